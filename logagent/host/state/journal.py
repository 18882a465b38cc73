"""The journal: what we intended to do, the outcome, and what we have seen. SQLite, WAL, `synchronous=FULL`.

Guarantees. `begin` returns only when the intents are on disk; an intent without an outcome after a crash is therefore
an action that may or may not have happened, and `recovery.py` settles it by looking at the disk. Text that is not UTF-8
(directory names can contain anything) is stored as a BLOB of the original bytes, everything else as TEXT, so that
`sqlite3 journal.db` stays readable. Every failure is a JournalError, and without a journal nothing is done (guard
"journal").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from logagent.host.state.journal_rows import (
    CheckpointEntry,
    Entry,
    Failure,
    Intent,
    entry_of,
    identity_of,
    put,
    signed,
    text_of,
    text_or_none,
)
from logagent.host.state.journal_schema import FILE_NAME, SCHEMA_VERSION, as_journal_error
from logagent.host.state.journal_store import JournalStore
from logagent.model.facts import RecentAction
from logagent.model.planning.queue import RemovalIntent, SettledAction
from logagent.model.records import ActionKind, Identity, Outcome, in_64_bits

__all__ = ["FILE_NAME", "SCHEMA_VERSION", "CheckpointEntry", "Entry", "Failure", "Intent", "Journal"]

_TAKES_AWAY = (ActionKind.QUARANTINE, ActionKind.MARK, ActionKind.REMOVE)


class Journal(JournalStore):
    """The open journal of one state dir: what was done. One writer at a time; any number of readers."""

    # Actions

    def begin(self, intents: Sequence[Intent], now_ms: int) -> list[int]:
        """Make all `intents` durable in one transaction (within `together`: in its one); their ids, in order.
        Nothing may be done before it is written."""
        ids: list[int] = []
        with self._transaction() as db:
            for i in intents:
                cursor = db.execute(
                    "INSERT INTO actions (at_ms, action, log_dir, name, new_name, new_dir, topic, partition, topic_id,"
                    " device, inode, bytes, plan_id, actor, approved, through_dir, through_name, closed_cleanly,"
                    " reason, files, removal_started) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    (
                        now_ms, i.action.value, put(i.log_dir), put(i.name), put(i.new_name), put(i.new_dir),
                        put(i.topic), i.partition, i.topic_id, signed(i.identity.device), signed(i.identity.inode),
                        in_64_bits(i.bytes), i.plan_id, i.actor, int(i.approved),
                        *((put(i.through[0]), put(i.through[1])) if i.through is not None else (None, None)),
                        None if i.closed_cleanly is None else int(i.closed_cleanly), i.reason, i.files,
                        None if i.removal_started is None else int(i.removal_started),
                    ),
                )  # fmt: skip
                action_id = cursor.lastrowid
                assert action_id is not None
                ids.append(action_id)
                db.executemany(
                    "INSERT INTO checkpoint_entries VALUES (?,?,?,?,?)",
                    [(action_id, e.file, put(e.topic), e.partition, e.offset) for e in i.checkpoint_entries],
                )
        return ids

    def finish(self, outcomes: Iterable[tuple[int, Outcome, str | None]], now_ms: int) -> None:
        """Record the outcomes of actions, in one durable transaction."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE actions SET outcome=?, error=?, finished_at_ms=? WHERE id=?",
                [(outcome.value, put(error), now_ms, action_id) for action_id, outcome, error in outcomes],
            )

    def withdraw(self, ids: Sequence[int]) -> None:
        """Delete these intents, whose actions were never started; settled ones are kept. No id is ever used again."""
        with self._transaction() as db:
            db.executemany("DELETE FROM actions WHERE id=? AND outcome IS NULL", [(n,) for n in ids])

    def unsettled(self) -> list[Entry]:
        """Intents without an outcome, oldest first: left by a crash, or by another process that is still working."""
        return self._entries("WHERE outcome IS NULL ORDER BY id")

    # A directory is identified by its name (that of a stray or marked one is unique) and its inode. Not by the path of
    # its log dir: a symlink or a new mount point gives it another one. Not by the device: its number can change at a
    # reboot.

    def renamed_to(self, name: str, identity: Identity) -> Entry | None:
        """Our newest finished rename that gave this directory its present name."""
        found = self._entries(
            "WHERE new_name=? AND inode=? AND outcome='done' ORDER BY id DESC LIMIT 1",
            (put(name), signed(identity.inode)),
        )
        return found[0] if found else None

    def renames(self) -> dict[tuple[str, int], Entry]:
        """(present name, inode) → our newest finished rename to that name, for whole listings."""
        entries = self._entries("WHERE new_name IS NOT NULL AND outcome='done' ORDER BY id")
        return {(e.intent.new_name or "", e.intent.identity.inode): e for e in entries}

    def restores(self) -> dict[tuple[str, int], Entry]:
        """(present name, inode) → the newest finished restore to that name."""
        entries = self._entries("WHERE action='restore' AND outcome='done' ORDER BY id")
        return {(e.intent.new_name or "", e.intent.identity.inode): e for e in entries}

    def removal_intents(self, inodes: AbstractSet[int]) -> dict[tuple[str, int], list[RemovalIntent]]:
        """(name, inode) of every directory among `inodes` that we ever meant to remove; see `removal_begun`."""
        sql = (
            "SELECT name, inode, files, bytes FROM actions"
            " WHERE action='remove' AND (outcome IS NULL OR outcome<>'skipped')"
        )
        found: dict[tuple[str, int], list[RemovalIntent]] = {}
        with self._lock, as_journal_error(self.path):
            # Row by row: there can be as many as the journal keeps, and only a few matter.
            for name, inode, files, size in self._db.execute(sql):
                if inode % (1 << 64) in inodes:
                    found.setdefault((text_of(name), inode % (1 << 64)), []).append(RemovalIntent(files, size))
        return found

    def of_plan(self, plan_id: str) -> list[Entry]:
        """The finished renames by which `plan_id` set directories aside or marked them."""
        return self._entries(
            "WHERE plan_id=? AND action IN ('mark', 'quarantine') AND outcome='done' ORDER BY id", (plan_id,)
        )

    def taken_since(self, at_ms: int) -> tuple[RecentAction, ...]:
        """What was renamed away or removed (or was about to be) at or after `at_ms`, and what was restored, in that
        order: what the blast radius counts."""
        sql = (
            "SELECT device, inode, topic_id, partition, bytes, approved, action FROM actions WHERE at_ms>=?"
            f" AND (action IN ({','.join('?' * len(_TAKES_AWAY))}) AND (outcome IS NULL OR outcome<>'skipped')"
            " OR action='restore' AND outcome='done') ORDER BY id"
        )
        with self._lock, as_journal_error(self.path):
            rows = self._db.execute(sql, (at_ms, *(action.value for action in _TAKES_AWAY)))
            return tuple(
                RecentAction(
                    identity=identity_of(r["device"], r["inode"]),
                    topic_id=r["topic_id"],
                    partition=r["partition"],
                    bytes=r["bytes"],
                    approved=bool(r["approved"]),
                    restored=r["action"] == ActionKind.RESTORE,
                )
                for r in rows
            )

    def history(self, *, limit: int | None = None, since_ms: int | None = None) -> list[Entry]:
        """The journal, oldest first; with `limit` only that many of the newest."""
        tail = "ORDER BY id DESC LIMIT ?" if limit is not None else "ORDER BY id DESC"
        values: list[Any] = [since_ms or 0] + ([limit] if limit is not None else [])
        return self._entries(f"WHERE at_ms>=? {tail}", values)[::-1]

    # Retention

    def settled(self) -> list[SettledAction]:
        """Every settled action, with the fields that decide what may be forgotten."""
        rows = self._rows(
            "SELECT id, at_ms, log_dir, new_dir, inode,"
            " CASE WHEN action='remove' AND outcome IN ('failed', 'yielded') THEN name END"
            " FROM actions WHERE outcome IS NOT NULL"
        )
        return [
            SettledAction(
                number,
                at,
                (text_of(log_dir), *((text_of(new_dir),) if new_dir else ())),
                inode % (1 << 64),
                text_or_none(attempt),
            )
            for number, at, log_dir, new_dir, inode, attempt in rows
        ]

    def forget(self, ids: Sequence[int]) -> None:
        """Forget these actions with their checkpoint entries; unsettled ones are always kept. Their space in the file
        is reused, and that of the WAL is returned to the file system."""
        with self._transaction() as db:
            db.executemany("DELETE FROM actions WHERE id=? AND outcome IS NOT NULL", [(n,) for n in ids])
        with self._lock, as_journal_error(self.path):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _entries(self, where: str, values: Sequence[Any] = ()) -> list[Entry]:
        rows = self._rows(
            f"SELECT * FROM actions {where}",
            values,
        )
        return [entry_of(row) for row in rows]

    def with_checkpoint_entries(self, entry: Entry) -> Entry:
        """`entry` with the checkpoint entries that its action removed."""
        rows = self._rows(
            "SELECT file, topic, partition, offset FROM checkpoint_entries WHERE action_id=?", (entry.id,)
        )
        saved = tuple(
            CheckpointEntry(file, text_of(topic), partition, offset) for file, topic, partition, offset in rows
        )
        return replace(entry, intent=replace(entry.intent, checkpoint_entries=saved))

    def saved_checkpoint_entries(self, name: str, identity: Identity) -> tuple[CheckpointEntry, ...]:
        """The checkpoint entries that our renames of this directory, back to its current name, removed.

        Goes back no further than an earlier restore: a broker may have moved the offsets since then.
        """
        saved: dict[str, CheckpointEntry] = {}
        entry = self.renamed_to(name, identity)
        while entry is not None and entry.intent.action is not ActionKind.RESTORE:
            for e in self.with_checkpoint_entries(entry).intent.checkpoint_entries:
                saved.setdefault(e.file, e)
            before = self.renamed_to(entry.intent.name, identity)
            entry = before if before is not None and before.id < entry.id else None
        return tuple(saved.values())
