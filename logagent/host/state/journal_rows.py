"""The rows of the journal: intents, outcomes, removed checkpoint entries, failures."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from logagent.model.records import ActionKind, Identity, Outcome


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One entry that was (or will be) removed from an offset checkpoint, kept so that restore can put it back."""

    file: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Intent:
    """An action about to happen. `topic` is the full name, even if `name` or `new_name` is truncated.

    `new_dir` is the directory that a rename moves it to if that is not `log_dir` (quarantine before 3.6.1). `through`:
    (directory, name) that it has for a moment on the way (what `restore --replace` displaces). `closed_cleanly`:
    whether the broker's last stop before it was clean; None if nobody looked. `reason`: why it was an orphan right
    before it lost its name (`model.assignments.reasons`); None if it was not one. `files`, `removal_started`: how many
    files it had, and whether it had the mode bit that marks the start of a removal; None if nobody noted it.
    """

    action: ActionKind
    log_dir: str
    name: str
    new_name: str | None
    topic: str | None
    partition: int | None
    topic_id: str | None
    identity: Identity
    bytes: int
    plan_id: str
    actor: str
    approved: bool = False
    checkpoint_entries: tuple[CheckpointEntry, ...] = ()
    new_dir: str | None = None
    through: tuple[str, str] | None = None
    closed_cleanly: bool | None = None
    reason: str | None = None
    files: int | None = None
    removal_started: bool | None = None

    @property
    def ends_in(self) -> str:
        """The directory that it is in after a rename."""
        return self.log_dir if self.new_dir is None else self.new_dir

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Every (directory, name) that it can have while the action is under way."""
        after = () if self.new_name is None else ((self.ends_in, self.new_name),)
        return ((self.log_dir, self.name), *after, *(() if self.through is None else (self.through,)))


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal: an intent with its time (ms) and, once settled, its outcome."""

    id: int
    at_ms: int
    intent: Intent
    outcome: Outcome | None
    finished_at_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """The failures of a removal so far, for the backoff before the next attempt."""

    attempts: int
    last_at_ms: int
    last_error: str


def entry_of(row: sqlite3.Row) -> Entry:
    intent = Intent(
        action=ActionKind(row["action"]),
        log_dir=text_of(row["log_dir"]),
        name=text_of(row["name"]),
        new_name=text_or_none(row["new_name"]),
        topic=text_or_none(row["topic"]),
        partition=row["partition"],
        topic_id=row["topic_id"],
        identity=identity_of(row["device"], row["inode"]),
        bytes=row["bytes"],
        plan_id=row["plan_id"],
        actor=row["actor"],
        approved=bool(row["approved"]),
        new_dir=text_or_none(row["new_dir"]),
        through=None if row["through_dir"] is None else (text_of(row["through_dir"]), text_of(row["through_name"])),
        closed_cleanly=None if row["closed_cleanly"] is None else bool(row["closed_cleanly"]),
        reason=row["reason"],
        files=row["files"],
        removal_started=None if row["removal_started"] is None else bool(row["removal_started"]),
    )
    outcome = Outcome(row["outcome"]) if row["outcome"] is not None else None
    return Entry(row["id"], row["at_ms"], intent, outcome, row["finished_at_ms"], text_or_none(row["error"]))


def signed(number: int) -> int:
    """A device or inode number (unsigned, 64 bits) as SQLite can hold it."""
    return number if number < 1 << 63 else number - (1 << 64)


def identity_of(device: int, inode: int) -> Identity:
    return Identity(device % (1 << 64), inode % (1 << 64))


def put(text: str | None) -> str | bytes | None:
    if text is None:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def text_of(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def text_or_none(value: str | bytes | None) -> str | None:
    return None if value is None else text_of(value)
