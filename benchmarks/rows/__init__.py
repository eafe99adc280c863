"""One module per piece of work that is measured."""

from __future__ import annotations
