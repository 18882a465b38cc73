"""Whose journal it is."""

from __future__ import annotations

import pytest

from logagent.model.assignments.identity import JournalHost, foreign_journal

KNOWN = JournalHost("c", 1, frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("here", "foreign"),
    [
        (KNOWN, False),
        (JournalHost("c", 1, frozenset({"b", "new"})), False),
        (JournalHost("c", 1), False),
        (JournalHost("c", 1, frozenset({"x", "y"})), True),
        (JournalHost("c", 2, KNOWN.directory_ids), True),
        (JournalHost("d", 1, KNOWN.directory_ids), True),
    ],
)
def test_a_journal_of_another_host_is_told(here: JournalHost, foreign: bool) -> None:
    assert (foreign_journal(KNOWN, here) is not None) is foreign
    assert foreign_journal(None, here) is None
    assert foreign_journal(JournalHost("c", 1), JournalHost("c", 1, frozenset({"x"}))) is None
