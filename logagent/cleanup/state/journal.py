"""The journal: what we intended to do, the outcome, and what we have seen. SQLite, WAL, `synchronous=FULL`.

Guarantees. `begin` returns only when the intents are on disk; an intent without an outcome after a crash is therefore
an action that may or may not have happened, and `recovery.py` settles it by what is on the disk. Text that is not UTF-8
(directory names can contain anything) is stored as a BLOB of the original bytes, everything else as TEXT, so that
`sqlite3 journal.db` stays readable. Every failure is a JournalError, and without a journal nothing is done (guard
"journal").

`doctor`, which changes nothing, reads a journal without touching it: SQLite would create files beside it even for
reading. The daemon's latest writes may be missing.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from logagent.base.dir_names import is_unique
from logagent.base.errors import JournalError, UnreadableError
from logagent.base.files.safe_open import DATABASE, opened_regular
from logagent.base.records import ActionKind, BroughtBack, DirKey, Identity, Outcome, PartitionDir, Reason, in_64_bits
from logagent.base.units import DAY_MS
from logagent.cleanup.plan.queue import Attempts, RemovalIntent, SettledAction
from logagent.cleanup.state.journal_schema import (
    FILE_NAME,
    SCHEMA_VERSION,
    CheckpointEntry,
    Entry,
    Intent,
    Settled,
    as_journal_error,
    claims_text,
    connect,
    create_tables,
    entry_of,
    has_content,
    identity_of,
    open_to_read,
    put,
    signed,
    text_of,
    text_or_none,
    version_of,
)
from logagent.cleanup.state.reserve import (
    BESIDE,
    DAMAGED_HINT,
    check_files,
    check_rows,
    create,
    is_short_of_room,
    keep_free_pages,
    lend_reserve,
    use_reserve,
)
from logagent.kafka.files.properties import META_PROPERTIES
from logagent.kafka.identity import JournalHost
from logagent.verdict.clock_doubt import ClockDoubt, ClockJump, Clocks
from logagent.verdict.facts import RecentAction, SeenHolder
from logagent.verdict.marks import Sighting

__all__ = [
    "FILE_NAME",
    "SCHEMA_VERSION",
    "CheckpointEntry",
    "Entry",
    "Intent",
    "Journal",
]

# Enough to know the ones before a broker's start; each start adds one.
_INCARNATIONS_KEPT = 20


LONGEST_ACT_MS = 30 * DAY_MS
MEMORY = ":memory:"


_TAKES_AWAY = (ActionKind.QUARANTINE, ActionKind.MARK, ActionKind.REMOVE)


class Journal:
    """The open journal of one state dir. One writer at a time; any number of readers. Shared by threads."""

    def __init__(self, connection: sqlite3.Connection, path: str, *, read_only: bool) -> None:
        self._db = connection
        self._lock = threading.RLock()
        self.path = path
        self.read_only = read_only

    @classmethod
    def open(cls, state_dir: str) -> Self:
        """Open for writing, creating it (mode 0640) if missing; on a full disk the space kept by `reserve` is used.
        Raises JournalError."""
        path = os.path.join(state_dir, FILE_NAME)
        with as_journal_error(path):
            short = is_short_of_room(state_dir)
            create(path)
            check_files(path)
            if short:
                lend_reserve(state_dir)
            db = connect(path)
            try:
                if short:
                    use_reserve(db)
                if version_of(db, path) == 0:
                    db.execute("PRAGMA journal_mode=WAL")
                    create_tables(db)
                check_rows(db, path)
                db.execute("PRAGMA synchronous=FULL")
                db.execute("PRAGMA foreign_keys=ON")
                if not short:
                    keep_free_pages(db, state_dir)
            except BaseException:
                db.close()
                raise
        return cls(db, path, read_only=False)

    @classmethod
    def open_read_only(cls, state_dir: str) -> Self:
        """Open for reading; if there is no journal yet, an empty one in memory.

        Raises JournalError, also if it is unknown whether a journal exists: that must never count as an empty one.
        """
        path = os.path.join(state_dir, FILE_NAME)
        with as_journal_error(path):
            try:
                check_files(path)
            except FileNotFoundError:
                return cls.empty()
            db = open_to_read(path)
            try:
                if version_of(db, path) == 0:
                    db.close()
                    return cls.empty()
                check_rows(db, path)
            except BaseException:
                db.close()
                raise
        return cls(db, path, read_only=True)

    @classmethod
    def empty(cls) -> Self:
        """An empty journal in memory, for reading."""
        db = connect(MEMORY)
        create_tables(db)
        return cls(db, MEMORY, read_only=True)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Everything this thread writes inside is one durable transaction: all or nothing, for one fsync."""
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, as_journal_error(self.path):
            if self.read_only:
                raise JournalError(f"{self.path} is open for reading only")
            joined = self._db.in_transaction
            if joined:  # This thread's own, because it has the lock: the outer caller commits or rolls back.
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock, as_journal_error(self.path):
            return self._db.execute(sql, values).fetchall()

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        with self._transaction() as db:
            db.execute(sql, values)

    # Failed removals

    def record_failure(self, log_dir: str, name: str, error: str, now_ms: int) -> None:
        self._write(
            "INSERT INTO failures VALUES (?,?,1,?,?) ON CONFLICT (log_dir, name) DO UPDATE SET"
            " attempts=attempts+1, last_at_ms=excluded.last_at_ms, last_error=excluded.last_error",
            (put(log_dir), put(name), now_ms, put(error)),
        )

    def clear_failures(self, gone: Iterable[DirKey]) -> None:
        keys = [(put(log_dir), put(name)) for log_dir, name in gone]
        if not keys:
            return
        with self._transaction() as db:
            db.executemany("DELETE FROM failures WHERE log_dir=? AND name=?", keys)

    def failures(self) -> dict[DirKey, Attempts]:
        rows = self._rows("SELECT log_dir, name, attempts, last_at_ms, last_error FROM failures")
        return {
            DirKey(text_of(d), text_of(n)): Attempts(attempts, at, text_of(error)) for d, n, attempts, at, error in rows
        }

    # Sightings

    def sightings(self) -> dict[DirKey, Sighting]:
        rows = self._rows(
            "SELECT log_dir, name, device, inode, topic_id, newest_mtime_ns, reason, count, first_ms, last_ms"
            " FROM sightings"
        )
        sightings = [
            Sighting(
                log_dir=text_of(r["log_dir"]),
                name=text_of(r["name"]),
                identity=identity_of(r["device"], r["inode"]),
                topic_id=r["topic_id"],
                newest_mtime_ns=r["newest_mtime_ns"],
                reason=r["reason"],
                count=r["count"],
                first_ms=r["first_ms"],
                last_ms=r["last_ms"],
            )
            for r in rows
        ]
        return {s.key: s for s in sightings}

    def replace_sightings(self, sightings: Iterable[Sighting]) -> None:
        """Make exactly these the known sightings, in one durable transaction."""
        rows = [
            (
                put(s.log_dir), put(s.name), signed(s.identity.device), signed(s.identity.inode), s.topic_id,
                s.newest_mtime_ns, s.reason, s.count, s.first_ms, s.last_ms,
            )
            for s in sightings
        ]  # fmt: skip
        with self._transaction() as db:
            db.execute("DELETE FROM sightings")
            db.executemany("INSERT INTO sightings VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    # Brokers seen serving, and clocks

    def serving(self) -> dict[str, SeenHolder]:
        rows = self._rows("SELECT log_dir, pid, started_ms, since_ms FROM serving")
        return {text_of(log_dir): SeenHolder(pid, started_ms, since_ms) for log_dir, pid, started_ms, since_ms in rows}

    def note_serving(self, seen: Mapping[str, SeenHolder]) -> None:
        """Make exactly these the brokers that were seen serving, by log dir."""
        with self._transaction() as db:
            db.execute("DELETE FROM serving")
            rows = [(put(log_dir), s.pid, s.started_ms, s.since_ms) for log_dir, s in seen.items()]
            db.executemany("INSERT INTO serving VALUES (?,?,?,?)", rows)

    def incarnations(self) -> dict[str, int]:
        """The incarnations of this host's broker that were seen in its metadata log, and when first (ms)."""
        rows = self._rows("SELECT incarnation, seen_ms FROM incarnations")
        return {str(row["incarnation"]): int(row["seen_ms"]) for row in rows}

    def note_incarnation(self, incarnation: str, seen_ms: int) -> None:
        """Remember it, and the newest ones before it."""
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO incarnations VALUES (?,?)", (incarnation, seen_ms))
            db.execute(
                "DELETE FROM incarnations WHERE incarnation NOT IN"
                " (SELECT incarnation FROM incarnations ORDER BY seen_ms DESC LIMIT ?)",
                (_INCARNATIONS_KEPT,),
            )

    def last_clocks(self) -> Clocks | None:
        rows = self._rows("SELECT boot_id, wall_ms, boottime_ms FROM last_cycle")
        return Clocks(*rows[0]) if rows else None

    def note_clocks(self, clocks: Clocks) -> None:
        self.trust_clocks(clocks, None)

    def host(self) -> JournalHost | None:
        """The broker that this journal is about, if recorded yet."""
        rows = self._rows("SELECT cluster_id, node_id, directory_ids FROM host")
        return JournalHost(rows[0][0], rows[0][1], frozenset(rows[0][2].split())) if rows else None

    def note_host(self, host: JournalHost) -> None:
        values = (host.cluster_id, host.node_id, " ".join(sorted(host.directory_ids)))
        self._write("INSERT OR REPLACE INTO host VALUES (1,?,?,?)", values)

    def clock_doubt(self) -> ClockDoubt | None:
        """The doubt of the last cycle with a doubtful clock, unless a later cycle could trust it."""
        rows = self._rows("SELECT boot_id, until_ms, drift_ms FROM clock_doubt")
        return ClockDoubt("", **dict(rows[0])) if rows else None

    def note_clock_doubt(self, doubt: ClockDoubt) -> None:
        values = (doubt.boot_id, doubt.until_ms, doubt.drift_ms)
        self._write("INSERT OR REPLACE INTO clock_doubt VALUES (1,?,?,?)", values)

    def clock_jumps(self) -> list[ClockJump]:
        """The jumps forward that operators have accepted, oldest first."""
        return [ClockJump(**dict(row)) for row in self._rows("SELECT until_ms, delta_ms FROM clock_jumps ORDER BY id")]

    def trust_clocks(self, clocks: Clocks, jump: ClockJump | None) -> None:
        """Record these clocks as the trusted ones, with the jump (if any) that an operator has accepted."""
        with self._transaction() as db:
            values: tuple[object, ...] = (clocks.boot_id, clocks.wall_ms, clocks.boottime_ms)
            db.execute("INSERT OR REPLACE INTO last_cycle VALUES (1,?,?,?)", values)
            db.execute("DELETE FROM clock_doubt")
            if jump is not None:
                values = (jump.until_ms, jump.delta_ms)
                db.execute("INSERT INTO clock_jumps (until_ms, delta_ms) VALUES (?,?)", values)

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
                    " reason, files, removal_started, segments, claims, allocated,"
                    " log_bytes) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    (
                        now_ms, i.action.value, put(i.log_dir), put(i.name), put(i.new_name), put(i.new_dir),
                        put(i.topic), i.partition, i.topic_id, signed(i.identity.device), signed(i.identity.inode),
                        in_64_bits(i.bytes), i.plan_id, i.actor, int(i.approved),
                        *((put(i.through[0]), put(i.through[1])) if i.through is not None else (None, None)),
                        None if i.closed_cleanly is None else int(i.closed_cleanly), i.reason, i.files,
                        None if i.removal_started is None else int(i.removal_started), i.segments,
                        claims_text(i.claims), None if i.allocated is None else in_64_bits(i.allocated),
                        None if i.log_bytes is None else in_64_bits(i.log_bytes),
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
        """Record the outcomes of actions, in one durable transaction. A finished rename, a restore above all, ends
        every permission to remove the directory under the name that it had. What was seen under the name that a
        restore gives back counts no more: whichever came first by the clock, which may have been behind."""
        rows = [(outcome.value, put(error), now_ms, action_id) for action_id, outcome, error in outcomes]
        with self._transaction() as db:
            db.executemany("UPDATE actions SET outcome=?, error=?, finished_at_ms=? WHERE id=?", rows)
            db.executemany(
                "UPDATE actions SET permission_ended='it was renamed since' WHERE permission_ended IS NULL AND id<?1"
                " AND new_name=(SELECT name FROM actions WHERE id=?1 AND new_name IS NOT NULL AND outcome='done')",
                [(action_id,) for *_, action_id in rows],
            )
            db.executemany(
                "DELETE FROM sightings WHERE name="
                "(SELECT new_name FROM actions WHERE id=? AND action='restore' AND outcome='done')",
                [(action_id,) for *_, action_id in rows],
            )

    def permissions(self) -> list[Entry]:
        """The renames that set directories aside and that still permit whoever asked for them to remove these, oldest
        first."""
        return self._entries(
            "WHERE action='quarantine' AND outcome='done' AND permission_ended IS NULL"
            " AND (actor LIKE 'request %' OR actor LIKE 'order %') ORDER BY id"
        )

    def end_permissions(self, ended: Mapping[int, str]) -> None:
        """End them for good: the reasons by id."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE actions SET permission_ended=? WHERE id=? AND permission_ended IS NULL",
                [(why, action_id) for action_id, why in ended.items()],
            )

    def withdraw(self, ids: Sequence[int]) -> None:
        """Delete these intents, whose actions were never started; settled ones are kept. No id is ever used again."""
        with self._transaction() as db:
            db.executemany("DELETE FROM actions WHERE id=? AND outcome IS NULL", [(n,) for n in ids])

    def unsettled(self) -> list[Entry]:
        """Intents without an outcome, oldest first: left by a crash, or by another process that is still working."""
        return self._entries("WHERE outcome IS NULL ORDER BY id")

    # A directory is identified by the unique name of a stray or marked one (`is_unique`), which also a copy on another
    # disk keeps; under any other name by the name and its inode. Not by the path of its log dir: a symlink or a new
    # mount point gives it another one. Not by the device: its number can change at a reboot.

    def renamed_to(self, name: str, identity: Identity) -> Entry | None:
        """Our newest finished rename that gave this directory, or the one that it is a copy of, its present name."""
        where = "WHERE new_name=? AND (inode=? OR ?) AND outcome='done' ORDER BY inode=? DESC, id DESC LIMIT 1"
        inode = signed(identity.inode)
        entries = self._entries(where, (put(name), inode, is_unique(name), inode))
        return entries[0] if entries else None

    def renames(self) -> dict[tuple[str, int], Entry]:
        """(present name, inode) → our newest finished rename to that name, for whole listings."""
        return self._by_new_name("WHERE new_name IS NOT NULL AND outcome='done' ORDER BY id")

    def restores(self) -> dict[tuple[str, int], Entry]:
        """(present name, inode) → the newest finished restore to that name."""
        return self._by_new_name("WHERE action='restore' AND outcome='done' ORDER BY id")

    def brought_back(self, inodes: AbstractSet[int]) -> dict[tuple[str, int, str | None], BroughtBack]:
        """(name, inode, topic id), of directories among `inodes`, → our newest finished restore to that name, or rename
        away from it. What has that name now came back to it."""
        sql = (
            "SELECT id, at_ms, topic_id, inode, CASE action WHEN 'restore' THEN new_name ELSE name END FROM actions"
            " WHERE action IN ('quarantine', 'mark', 'restore') AND outcome='done' ORDER BY id"
        )
        found: dict[tuple[str, int, str | None], BroughtBack] = {}
        with self._lock, as_journal_error(self.path):
            # Row by row, as `removal_intents`.
            for action_id, at_ms, topic_id, inode, name in self._db.execute(sql):
                if inode % (1 << 64) in inodes:
                    found[text_of(name), inode % (1 << 64), topic_id] = BroughtBack(action_id, at_ms)
        return found

    def _by_new_name(self, where: str) -> dict[tuple[str, int], Entry]:
        return {(e.intent.new_name or "", e.intent.identity.inode): e for e in self._entries(where)}

    def removal_intents(
        self, inodes: AbstractSet[int], names: AbstractSet[str]
    ) -> dict[tuple[str, int], list[RemovalIntent]]:
        """(name, inode) of every directory among `inodes`, or with one of the unique `names`, that we ever meant to
        remove; see `removal_has_started`."""
        sql = (
            "SELECT name, inode, files, bytes, segments, log_bytes FROM actions"
            " WHERE action='remove' AND (outcome IS NULL OR outcome<>'skipped')"
        )
        intents: dict[tuple[str, int], list[RemovalIntent]] = {}
        with self._lock, as_journal_error(self.path):
            # Row by row: there can be as many as the journal keeps, and only a few matter.
            for name, inode, *had in self._db.execute(sql):
                if inode % (1 << 64) in inodes or text_of(name) in names:
                    intents.setdefault((text_of(name), inode % (1 << 64)), []).append(RemovalIntent(*had))
        return intents

    def of_plan(self, plan_id: str) -> list[Entry]:
        """The finished renames by which `plan_id` set directories aside or marked them."""
        return self._entries(
            "WHERE plan_id=? AND action IN ('mark', 'quarantine') AND outcome='done' ORDER BY id", (plan_id,)
        )

    def taken_since(self, at_ms: int) -> tuple[RecentAction, ...]:
        """What was renamed away or removed (or was about to be) at or after `at_ms`, and what was restored, in that
        order: what the blast radius counts."""
        sql = (
            # What an older logagent wrote has file sizes only: an upper bound, but for a day.
            "SELECT device, inode, topic_id, partition, coalesce(allocated, bytes), approved, action"
            " FROM actions WHERE at_ms>=?"
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
                    allocated=r[4],
                    approved=bool(r["approved"]),
                    restored=r["action"] == ActionKind.RESTORE,
                )
                for r in rows
            )

    def log_dirs(self) -> frozenset[str]:
        """Every log dir that it has entries about."""
        rows = self._rows("SELECT log_dir FROM actions UNION SELECT log_dir FROM sightings")
        return frozenset(text_of(row["log_dir"]) for row in rows)

    def removed_bytes(self, topic_ids: Iterable[str]) -> dict[str, int]:
        """The bytes of the directories that we removed, by these topic ids."""
        wanted = set(topic_ids)
        rows = self._rows(
            "SELECT topic_id, SUM(bytes) AS size FROM actions WHERE action='remove' AND outcome='done'"
            " AND topic_id IS NOT NULL GROUP BY topic_id"
        )
        return {row["topic_id"]: int(row["size"]) for row in rows if row["topic_id"] in wanted}

    def history(self, *, limit: int | None = None, since_ms: int | None = None) -> list[Entry]:
        """The journal, oldest first; with `limit` only that many of the newest."""
        tail = "ORDER BY id DESC LIMIT ?" if limit is not None else "ORDER BY id DESC"
        values: list[Any] = [since_ms or 0] + ([limit] if limit is not None else [])
        return self._entries(f"WHERE at_ms>=? {tail}", values)[::-1]

    def done_since(self, since_ms: int, most: int) -> Settled | None:
        """What was tried or done, by its outcome's time, but for what was skipped: nothing had happened; of more than
        `most`, the newest. None if there is no journal, which is not the same as one without entries.

        Looked up by the time at which they began: of what took over `LONGEST_ACT_MS` nothing is returned.
        """
        if self.path == MEMORY:
            return None
        where = "WHERE at_ms>=? AND finished_at_ms>=? AND outcome<>'skipped'"
        values = (since_ms - LONGEST_ACT_MS, since_ms)
        with self._lock, as_journal_error(self.path):
            # With the plus SQLite does not walk through all rows by id.
            sql = f"SELECT * FROM actions {where} ORDER BY finished_at_ms DESC, +id DESC LIMIT ?"
            found = [entry_of(row) for row in self._db.execute(sql, (*values, most))]
            count = self._db.execute(f"SELECT count(*) FROM actions {where}", values).fetchone()[0]
            last = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name='actions'").fetchone()
        left_out = max(count - len(found), 0)
        if left_out and found:
            # Others with the outcome of the same millisecond may be among those.
            since_ms = (found[-1].finished_at_ms or since_ms) + 1
        return Settled(found[::-1], since_ms, left_out, last[0] if last is not None else 0)

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

    def inodes_of(self, dirs: Iterable[PartitionDir]) -> set[int]:
        """The inodes of these directories, and those of the directories that they are copies of, whatever unique names
        these had then: all that this journal has on them."""
        inodes: set[int] = set()
        names: set[str] = set()
        for d in dirs:
            inodes.add(d.inode)
            if is_unique(d.name):
                names.add(d.name)
        known = -1
        with self._lock, as_journal_error(self.path):
            while known < len(inodes) + len(names):
                known = len(inodes) + len(names)
                # Row by row, as `removal_intents`.
                for inode, *texts in self._db.execute("SELECT inode, name, new_name FROM actions"):
                    number, mine = inode % (1 << 64), [text for text in map(text_or_none, texts) if text is not None]
                    if number in inodes or not names.isdisjoint(mine):
                        inodes.add(number)
                        names.update(filter(is_unique, mine))
        return inodes

    def forget(self, ids: Sequence[int]) -> None:
        """Forget these actions with their checkpoint entries; unsettled ones are always kept. Their space in the file
        is reused, and that of the WAL is returned to the file system."""
        with self._transaction() as db:
            db.executemany("DELETE FROM actions WHERE id=? AND outcome IS NOT NULL", [(n,) for n in ids])
        with self._lock, as_journal_error(self.path):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _entries(self, where: str, values: Sequence[Any] = ()) -> list[Entry]:
        return [entry_of(row) for row in self._rows(f"SELECT * FROM actions {where}", values)]

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
            before = self.renamed_to(entry.intent.name, entry.intent.identity)
            entry = before if before is not None and before.id < entry.id else None
        return tuple(saved.values())


_MAGIC = b"SQLite format 3\0"


class JournalFacts(NamedTuple):
    """schema: None if it cannot be read. log_dirs: every log dir that the journal mentions; host: whose it is, if it
    says. damaged: why no command can use it, and what to do."""

    exists: bool
    schema: int | None = None
    log_dirs: frozenset[str] = frozenset()
    host: JournalHost | None = None
    damaged: Reason | None = None


def inspect_journal(state_dir: str) -> JournalFacts:
    """What can be read of the journal in `state_dir`. Raises nothing."""
    path = os.path.join(state_dir, FILE_NAME)
    try:
        check_files(path)
        with opened_regular(path, DATABASE) as fd:
            before, head = os.fstat(fd), os.read(fd, 100)
    except FileNotFoundError:
        return JournalFacts(False)
    except UnreadableError as e:
        return JournalFacts(True, damaged=Reason(str(e), DAMAGED_HINT))
    except OSError:
        return JournalFacts(True)
    if not head:  # made, and not written yet
        return JournalFacts(True)
    schema = int.from_bytes(head[60:64], "big") if len(head) == 100 and head.startswith(_MAGIC) else None
    found = JournalFacts(True, schema)
    try:
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1", uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if schema == SCHEMA_VERSION:
                check_rows(db, path)
                rows = db.execute("SELECT log_dir FROM actions UNION SELECT log_dir FROM sightings").fetchall()
                of = db.execute("SELECT cluster_id, node_id, directory_ids FROM host").fetchone()
                host = JournalHost(of[0], of[1], frozenset(of[2].split())) if of is not None else None
                found = found._replace(log_dirs=frozenset(os.fsdecode(value) for (value,) in rows), host=host)
    except (sqlite3.Error, JournalError) as e:
        # A part of it may be elsewhere, or was on its way here: SQLite's locks are not asked for.
        if not is_written_to(path, before):
            says = str(e) if isinstance(e, JournalError) else f"{path} is damaged: {e}"
            return JournalFacts(True, damaged=Reason(says, DAMAGED_HINT))
    return found


def is_written_to(path: str, before: os.stat_result) -> bool:
    """Whether somebody writes to the database just now, or did since `before`."""
    if any(has_content(path + suffix) for suffix in BESIDE if suffix != "-shm"):
        return True
    with suppress(OSError):
        now = os.lstat(path)
        return (now.st_ino, now.st_size, now.st_mtime_ns) != (before.st_ino, before.st_size, before.st_mtime_ns)
    return True


_AWAY = (ActionKind.QUARANTINE, ActionKind.MARK)
_SETTLED = (ActionKind.REMOVE, ActionKind.RESTORE)


def undoable(journal: Journal) -> Iterator[tuple[str, int | None]]:
    """The path of every directory that we set aside or marked and that may still exist, and the device it is on. Used
    before a journal is deleted (when the system package is purged).

    Only directories known not to exist any more are left out: removed or restored by us, or missing from a log dir that
    is mounted. The device is None if the parent directory cannot be read, or may be the mount point of an absent disk.
    """
    settled = {
        (e.intent.name, e.intent.identity.inode): e.id
        for e in journal.history()
        if e.intent.action in _SETTLED and e.outcome is Outcome.DONE
    }
    for key, entry in journal.renames().items():
        if entry.intent.action not in _AWAY or settled.get(key, -1) > entry.id:
            continue
        directory, name = entry.intent.ends_in, key[0]
        path = os.path.join(directory, name)
        try:
            device = os.stat(directory).st_dev
        except OSError:
            yield path, None
            continue
        if os.path.lexists(path):
            yield path, device
        elif device != entry.intent.identity.device and not os.path.lexists(os.path.join(directory, META_PROPERTIES)):
            yield path, None
