"""The check of commit subjects distinguishes an imperative from other openings."""

from __future__ import annotations

import pytest

from tools.check_commits import faults


@pytest.mark.parametrize(
    "subject",
    [
        "Add a check of commit subjects",
        "Bring the reader's states into one enum",
        "Process records in order",
        "Need fewer round trips: claim and settle together",
        "Discuss why ledgers are rebuilt",
    ],
)
def test_an_imperative_passes(subject: str) -> None:
    """The check has no complaint."""
    assert faults(subject) == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("The reader has states", "begins with 'The'"),
        ("Adding states", "begins with 'Adding'"),
        ("Added states", "begins with 'Added'"),
        ("Adds states", "begins with 'Adds'"),
        ("What is read has states", "begins with 'What'"),
        ("add states", "small letter"),
        ("Add states.", "full stop"),
        ("Add " + "s" * 69, "73 characters"),
    ],
)
def test_other_openings_do_not(subject: str, fault: str) -> None:
    """The complaint names what is wrong."""
    (found,) = faults(subject)
    assert fault in found
