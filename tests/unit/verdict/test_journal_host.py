"""Whose journal it is."""

from __future__ import annotations

import pytest

from logagent.kafka.identity import JournalHost, foreign_journal

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


def test_a_journal_from_before_cluster_ids_goes_with_the_upgrade_and_never_back() -> None:
    old, new = JournalHost("", 1), JournalHost("c", 1)
    assert foreign_journal(old, old) is None and foreign_journal(old, new) is None
    assert (
        foreign_journal(old, JournalHost("", 2)) is not None and foreign_journal(old, JournalHost("c", 2)) is not None
    )
    assert "a cluster without an id" in (foreign_journal(new, old) or "")
