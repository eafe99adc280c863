"""A pytest plugin that fails a test which showed a password: in its output, its log, or an error of kafkabus, caught or not.

It knows every text of which the code under test made a ``Secret`` in this process. Warnings are errors, and errors that are not
caught fail their tests anyway.
"""

from __future__ import annotations

from collections.abc import Generator
from urllib.parse import unquote, urlsplit

import pytest

from kafkabus.exceptions import ServiceBusError
from kafkabus_mapping.secret import Secret

SHORTEST = 8
"""How many characters a password has that is looked for; a shorter one may occur anywhere by chance."""

PLACEHOLDER = "PASSWORD"
"""A word that replaces a password in documents and in errors that say what to write."""

_PATCH: pytest.StashKey[pytest.MonkeyPatch] = pytest.StashKey()
_known: set[str] = set()
_errors: list[str] = []


def shows_secret(text: str) -> bool:
    """Whether a text holds a password that is known."""
    return any(secret in text for secret in _known)


def pytest_configure(config: pytest.Config) -> None:
    """Hear of every secret and every error that is made from now on."""
    make_secret, make_error = Secret.__init__, ServiceBusError.__init__

    def note_secret(self: Secret, text: str) -> None:
        make_secret(self, text)
        password = (urlsplit(text).password or "") if "://" in text else text
        _known.update(one for one in (password, unquote(password)) if len(one) >= SHORTEST and one != PLACEHOLDER)

    def note_error(self: ServiceBusError, message: str = "", *, error: BaseException | None = None) -> None:
        make_error(self, message, error=error)
        if shows_secret(f"{message} {error!r}"):
            _errors.append(type(self).__name__)

    patch = config.stash[_PATCH] = pytest.MonkeyPatch()
    patch.setattr(Secret, "__init__", note_secret)
    patch.setattr(ServiceBusError, "__init__", note_error)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Listen no more."""
    config.stash[_PATCH].undo()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what showed one, without showing it again."""
    report = yield
    shown = [title for title, text in report.sections if title.endswith(report.when) and shows_secret(text)]
    shown += _errors
    _errors.clear()
    if shown and not report.failed:
        report.outcome = "failed"
        report.longrepr = f"a password was shown in: {', '.join(shown)}"
    return report
