"""Every error that logagent raises, each with a slug, a hint and its exit status.

The exit statuses are part of the interface; this module alone defines them and their meanings (`logagent --help` and
the man pages print that, docs/reference has them), and only `logagent.cli` turns an error into one. It imports
none of our modules.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_CITED = 80


class Exit(IntEnum):
    """Exit statuses of every command, each with its meaning."""

    meaning: str

    OK = 0, "success; for a dry run, the plan was made"
    FAILED = 1, "something failed, or a topic was dropped (topics); the message says what, and what was already done"
    USAGE = 2, "usage error"
    REFUSED = (
        3,
        "--execute: done, but a guard refused an item or less was freed than --need; topics: requests are open; "
        "fleet: fewer hosts report than --require-hosts; check --leave: it may not leave yet",
    )
    APPROVAL = 4, "the plan needs approval (--approve PLAN_ID); nothing was done"
    OFFLINE = 5, "a log dir involved is offline"
    CHECK_FATAL = 6, "check, or prestart --strict, found something fatal"
    HALTED = 7, "halted: all log dirs are offline"
    UNREACHABLE = 69, "a required service cannot be reached"
    TEMPORARY = 75, "another logagent holds a lock that is needed: try again"
    PERMISSION = 77, "no permission: run it as the broker's user"
    CONFIG = 78, "configuration error (every problem is listed at once)"
    INTERRUPTED = 130, "interrupted with Ctrl-C"

    def __new__(cls, status: int, meaning: str) -> Self:
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member


# If several apply, the first in this order is the status of the command.
EXIT_PRECEDENCE = (
    Exit.INTERRUPTED,
    Exit.USAGE,
    Exit.PERMISSION,
    Exit.CONFIG,
    Exit.HALTED,
    Exit.UNREACHABLE,
    Exit.TEMPORARY,
    Exit.FAILED,
    Exit.APPROVAL,
    Exit.OFFLINE,
    Exit.CHECK_FATAL,
    Exit.REFUSED,
    Exit.OK,
)


def worst(*statuses: Exit) -> Exit:
    """The exit status to report when all of `statuses` apply (`Exit.OK` for none)."""
    return next((s for s in EXIT_PRECEDENCE if s in statuses), Exit.OK)


class LogAgentError(Exception):
    """Base of all our errors.

    `str(error)` is one sentence saying what is wrong; `hint` is what the operator can do about it.
    """

    slug = "failed"
    exit_status = Exit.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(LogAgentError):
    """The command line asks for something invalid."""

    slug = "usage"
    exit_status = Exit.USAGE


class ConfigError(LogAgentError):
    """Configuration is wrong. `problems` lists every error at once, each as "place: what is wrong"."""

    slug = "config"
    exit_status = Exit.CONFIG

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class NotPermitted(LogAgentError):
    """This user may not do what the command needs."""

    slug = "permission"
    exit_status = Exit.PERMISSION


class UnreadableError(LogAgentError):
    """A file that the broker (or we) wrote is invalid. It never counts as empty."""

    slug = "unreadable"


class NotUnderstood(UnreadableError):
    """A metadata log holds what no tested release of Kafka writes. It may mean anything, so it proves nothing."""

    slug = "not-understood"


class KafkaStorageError(LogAgentError):
    """A log dir is offline, or went offline during this action (Kafka's `KafkaStorageException`)."""

    slug = "storage"
    exit_status = Exit.OFFLINE

    def __init__(self, message: str, *, log_dir: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log_dir = log_dir


class NotAsPlanned(LogAgentError):
    """What is at a name is not what was planned: deleted, swapped, a symlink, another device, a mount point."""

    slug = "inside"
    exit_status = Exit.REFUSED


class TooFewHosts(LogAgentError):
    """A fleet report is complete, but covers fewer hosts than `--require-hosts` wants."""

    slug = "too-few-hosts"
    exit_status = Exit.REFUSED


class ItemFailed(LogAgentError):
    """An operation failed for this one directory; the log dir itself stays online. `errno` is the cause."""

    slug = "item"

    def __init__(self, message: str, *, path: str, errno: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.errno = errno


class RemovalStopped(LogAgentError):
    """A removal was asked to stop and did, between two files. The rest stays queued by its name."""

    slug = "stopped"


class BrokerHoldsLogDir(LogAgentError):
    """A broker took (or has) the lock of a log dir: work there stops where it is."""

    slug = "lock"
    exit_status = Exit.REFUSED

    def __init__(self, message: str, *, log_dir: str, pid: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log_dir = log_dir
        self.pid = pid


class JournalError(LogAgentError):
    """The journal cannot be read or written; nothing is done without it."""

    slug = "journal"


def way_back(state_dir: str) -> str:
    """What helps where a newer logagent wrote the journal; the copy is the one of docs/reference/compatibility.md."""
    return (
        f"install that version again, or go back to the copy from before its upgrade ({state_dir}.before); without that"
        " copy, a journal that is moved away takes its undo information with it"
    )


class Busy(LogAgentError):
    """Another logagent holds the lock that is needed: of this host, of these log dirs, or of a store's ingest."""

    slug = "busy"
    exit_status = Exit.TEMPORARY


class ServiceUnreachable(LogAgentError):
    """A required service (Admin API, fleet store) cannot be reached."""

    slug = "unreachable"
    exit_status = Exit.UNREACHABLE


class Halted(LogAgentError):
    """All log dirs are offline and `health.on_all_offline` is `halt`."""

    slug = "halted"
    exit_status = Exit.HALTED


def cited(text: str) -> str:
    """What a damaged file has in a line, in quotes: of a long one only how it begins. A message is a sentence, also
    where the file is 16 MiB of zeros."""
    return repr(text) if len(text) <= _CITED else f"{text[:_CITED]!r}… ({len(text)} characters)"
