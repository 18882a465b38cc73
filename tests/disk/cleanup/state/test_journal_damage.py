"""Rows that we never write: whoever owns the state dir can put them into the journal that root reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from logagent.base.errors import JournalError
from logagent.base.records import ActionKind, Identity, Outcome
from logagent.cleanup.state.journal import Intent, Journal

DAMAGE = [
    "UPDATE actions SET at_ms='yesterday'",
    "UPDATE actions SET at_ms=-1",
    "UPDATE actions SET at_ms=99999999999999999",
    "UPDATE actions SET finished_at_ms=9223372036854775807",
    "UPDATE actions SET bytes=1.5",
    "UPDATE actions SET inode=x'00'",
    "UPDATE actions SET action='obliterate'",
    "UPDATE actions SET outcome='splendid'",
    "UPDATE actions SET name=CAST(x'610062' AS TEXT)",
    "UPDATE actions SET log_dir=x'2f6400'",
    "INSERT INTO sightings VALUES ('/d', 'a-0', 1, 1, NULL, 'new', 'topic-absent', 1, 1, 1)",
    "INSERT INTO serving VALUES ('/d', 'x', 1, 1)",
    "INSERT INTO last_cycle VALUES (1, 'b', 'now', 1)",
    "INSERT INTO failures VALUES ('/d', 'a-0', 1, 'then', 'EIO')",
    "CREATE TRIGGER t AFTER INSERT ON actions BEGIN DELETE FROM actions; END",
    "DROP TABLE actions",
    "ALTER TABLE actions DROP COLUMN bytes",
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with Journal.open(str(tmp_path)) as journal:
        intent = Intent(ActionKind.MARK, "/d", "a-0", "a-0.x-delete", "a", 0, None, Identity(1, 2), 3, "p", "me")
        ids = journal.begin([intent], 1_000)
        journal.finish([(ids[0], Outcome.DONE, None)], 2_000)
    return tmp_path


def test_a_whole_journal_is_read(state: Path) -> None:
    for opened in (Journal.open_read_only(str(state)), Journal.open(str(state))):
        with opened as journal:
            assert [e.intent.name for e in journal.history()] == ["a-0"]


@pytest.mark.parametrize("sql", DAMAGE)
def test_a_row_that_we_never_write_is_a_journal_error(state: Path, sql: str) -> None:
    with closing(sqlite3.connect(state / "journal.db", isolation_level=None)) as db:
        db.execute(sql)
    for open_journal in (Journal.open_read_only, Journal.open):
        with pytest.raises(JournalError) as refused:
            open_journal(str(state))
        assert str(state) in str(refused.value) and refused.value.hint
