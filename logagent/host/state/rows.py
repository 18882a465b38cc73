"""The rows of the journal: what was meant, what came of it, what was taken out of a checkpoint, what failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logagent.model.records import ActionKind, Identity, Outcome


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One entry that was (or will be) taken out of an offset checkpoint, so that restore can put it back."""

    file: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Intent:
    """An action about to happen. `topic` is the full name, also where `name` or `new_name` is cut.

    `new_dir` is the directory that a rename moves it to where that is not `log_dir` (quarantine before 3.6.1).
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

    @property
    def ends_in(self) -> str:
        """The directory that it lies in after a rename."""
        return self.log_dir if self.new_dir is None else self.new_dir


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the journal: an intent with its time (ms) and, once it is settled, its outcome."""

    id: int
    at_ms: int
    intent: Intent
    outcome: Outcome | None
    finished_at_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a removal so far, for the backoff of the next attempt."""

    attempts: int
    last_at_ms: int
    last_error: str


def entry_of(row: tuple[Any, ...]) -> Entry:
    intent = Intent(
        action=ActionKind(row[2]),
        log_dir=text_of(row[3]),
        name=text_of(row[4]),
        new_name=text_or_none(row[5]),
        topic=text_or_none(row[6]),
        partition=row[7],
        topic_id=row[8],
        identity=identity_of(row[9], row[10]),
        bytes=row[11],
        plan_id=row[12],
        actor=row[13],
        approved=bool(row[14]),
        new_dir=text_or_none(row[18]),
    )
    outcome = Outcome(row[15]) if row[15] is not None else None
    return Entry(row[0], row[1], intent, outcome, row[16], text_or_none(row[17]))


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
