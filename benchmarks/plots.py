"""The plots of figures that were measured at several numbers of things."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

_LINE, _INK = "#7a93ac", "#333333"
_COLUMNS = 3


def draw(rows: str, path: Path) -> None:
    """Draw a panel for each row with a curve into an SVG; without one, nothing is drawn.

    Args:
        rows: The text of ``latest.json``.
        path: The file of the picture.
    """
    curves = [row["curve"] for row in json.loads(rows) if "curve" in row]
    if not curves:
        return
    # The same figures make the same file.
    plt.rcParams.update(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "kafkabus"}
    )
    lines = ceil(len(curves) / _COLUMNS)
    figure, panels = plt.subplots(lines, _COLUMNS, figsize=(10, 2.6 * lines), layout="constrained", squeeze=False)
    for panel in panels.flat[len(curves) :]:
        panel.set_visible(False)
    for panel, curve in zip(panels.flat, curves, strict=False):
        _draw(panel, curve)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw(panel: Any, curve: dict[str, Any]) -> None:
    numbers, figures = zip(*curve["points"], strict=True)
    panel.plot(numbers, figures, color=_LINE, marker="o", markersize=4)
    panel.set_title(curve["title"], loc="left", color=_INK, fontsize=9)
    panel.set_xlabel(curve["over"], color=_INK)
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(list(numbers)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(0, max(figures) * 1.15 or 1)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    panel.grid(axis="y", color="#e3e3e3", linewidth=0.8)
