"""The records that everything else passes around: small, slotted, without behaviour; and the ids of topics and
directories.

Units: `*_ns` are nanoseconds and `*_ms` milliseconds since the epoch (Kafka's own unit), `bytes` the sum of
file sizes, `allocated` the sum of `st_blocks * 512`. Names are `str` as `os.fsdecode` returns them: bytes that are
not UTF-8 appear as surrogate escapes and go back to disk unchanged.

An id is 16 bytes, written as 22 characters of url-safe base64 (Kafka's `Uuid`, KIP-516). Throughout logagent it is its
canonical text. Other spellings exist (padding, unused bits set in the last character) and Kafka reads them as the same
id, so compare ids only after `canonical_id`.

`Reason` is one thing that somebody is told, and what they can do about it: why a directory is not whole, why the kernel
forbids a change, what a version contradicts. What carries more contains one: a refusal or a wait adds the directory, a
finding its severity and the releases that it concerns.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

from logagent.base.claims import Claim, Held, Witness


class Kind(StrEnum):
    """The kind of a directory in a log dir, from its name."""

    CURRENT = "current"
    FUTURE = "future"
    STRAY = "stray"
    DELETE = "delete"
    METADATA = "metadata"
    CACHE = "cache"
    INVALID = "invalid"


LIVE_KINDS = (Kind.CURRENT, Kind.FUTURE)
"""What a broker may serve: current logs, and future ones, of moves between log dirs."""
LOADED_KINDS = (*LIVE_KINDS, Kind.STRAY, Kind.DELETE)
"""What a broker loads when it starts (`LogManager.loadLog`)."""


class Verdict(StrEnum):
    ASSIGNED = "assigned"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


class Health(StrEnum):
    """State of a log dir. `FULL` does not count as offline, since deleting helps."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    FULL = "full"
    OFFLINE = "offline"
    UNFORMATTED = "unformatted"


class HolderState(StrEnum):
    """Who has the lock of a log dir.

    FREE: nobody. HELD: a serving broker. STARTING: a broker that may still be loading (also if in doubt).
    HIDDEN: nobody has the lock, but a process has `.lock` (perhaps an unlinked one) or files in the log dir open.
    UNREADABLE: unknown. Only FREE permits renames and removals of `-delete`.
    """

    FREE = "free"
    HELD = "held"
    STARTING = "starting"
    HIDDEN = "hidden"
    UNREADABLE = "unreadable"

    @property
    def is_broker(self) -> bool:
        """A broker has the lock."""
        return self in (HolderState.HELD, HolderState.STARTING)


class ActionKind(StrEnum):
    QUARANTINE = "quarantine"
    MARK = "mark"
    REMOVE = "remove"
    RESTORE = "restore"
    REMOVE_LEFTOVERS = "remove-leftovers"
    DROP_CHECKPOINT_ENTRY = "drop-checkpoint-entry"


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    YIELDED = "yielded"
    SKIPPED = "skipped"


def in_64_bits(number: int) -> int:
    """A size or a time (ns) as the journal can hold it: some file systems have times after the year 2262, and the sizes
    of sparse files add up to more."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a directory across renames: (st_dev, st_ino)."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Denied:
    """Access that the broker's user lacks: `wants` is `read`, `write`, `search` or several of them."""

    path: str
    wants: str
    owner: int
    group: int
    mode: int


class RemovedFile(NamedTuple):
    """A file without a name that process `pid` keeps as its descriptor `fd`: its blocks are freed, and its content is
    gone, when the last process closes it. `path`: what it was called, relative to the log dir, or absolute if its
    directory had been moved out of the log dir. `bytes`: its size."""

    path: str
    pid: int
    fd: int
    identity: Identity
    bytes: int
    allocated: int

    @property
    def descriptor(self) -> str:
        """What can be copied as long as the process has it open."""
        return f"/proc/{self.pid}/fd/{self.fd}"


class DirKey(NamedTuple):
    """Where a directory is: its log dir and its name there. It says nothing about which directory that is: after a
    rename or a removal another one may have the name, so whatever acts compares `Identity` too."""

    log_dir: str
    name: str


class BroughtBack(NamedTuple):
    """A directory has a name again that was taken from it: the journal's action (the restore; or, where somebody else
    brought it back, by hand or with another journal, what took the name away), and when that was (ms)."""

    action: int
    at_ms: int


@dataclass(slots=True)
class PartitionDir:
    """One directory in a log dir, as an inventory saw it."""

    log_dir: str
    name: str
    kind: Kind
    topic: str | None
    partition: int | None
    uuid: str | None
    truncated: bool
    device: int
    inode: int
    ctime_ns: int
    mtime_ns: int
    topic_id: str | None = None
    bytes: int = 0
    allocated: int = 0
    files: int = 0
    segments: int = 0
    # Of `bytes`, those of everything but the segments' `.log`: a broker that loads the directory changes them.
    beside_log_bytes: int = 0
    newest_mtime_ns: int = 0
    first_offset: int | None = None
    last_segment_offset: int | None = None
    error: str | None = None
    # It has the mode bit that marks the start of a removal: alone a sign, no proof (`cleanup.plan.queue`).
    removal_started: bool = False
    # What was approved or seen of it before no longer counts.
    brought_back: BroughtBack | None = None
    # It contains only regular files with a single link; valid as long as its mtime is `mtime_ns`.
    plain: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.device, self.inode)

    @property
    def key(self) -> DirKey:
        return DirKey(self.log_dir, self.name)

    @property
    def segment_bytes(self) -> int:
        """The bytes of the segments' `.log` files."""
        return self.bytes - self.beside_log_bytes


def id_unread(d: PartitionDir) -> bool:
    """Whether its topic id was not read: it may have any, which is not the same as having none, or another one."""
    return d.topic_id is None and d.error is not None


@dataclass(frozen=True, slots=True)
class Holder:
    """`lock_open_by`: the PIDs that have `.lock` (even an unlinked one) open without holding the lock. `shared_lock`:
    who has a shared lock on it, in words; that is not a broker, but no broker can start meanwhile. `serving`: who says
    that it serves this log dir, and since when (ms); a claim of this process alone (`base.claims`)."""

    state: HolderState
    pid: int | None = None
    start_time_ms: int | None = None
    detail: str | None = None
    lock_open_by: tuple[int, ...] = ()
    shared_lock: str | None = None
    serving: Held | None = None

    @property
    def in_words(self) -> str:
        """Who has the lock, and what that means for a start. A lock without a process number is not taken for our own
        broker's: that a broker holds it has to be shown by something else."""
        if self.pid is None:
            return (
                "held by a process that is not visible here (another container, or an NFS lock of a dead client):"
                " a start now fails"
            )
        return f"process {self.pid} holds the lock: a broker started now exits at once"


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _NeverNegative:
    """What pydantic asks for a schema; it is not loaded for this."""

    @staticmethod
    def __get_pydantic_core_schema__(source: object, handler: Callable[[object], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(source), "ge": 0}


Size = Annotated[int, _NeverNegative]
"""A number of bytes or things."""


class SetBy(StrEnum):
    """Where a value is set. UNKNOWN: nothing that was read says."""

    TOPIC = "topic"
    BROKER = "broker"
    ALL_BROKERS = "all-brokers"
    FILE = "server.properties"
    DEFAULT = "default"
    UNKNOWN = "unknown"


_SET_BY_IN_WORDS: Final = {
    SetBy.TOPIC: "topic",
    SetBy.BROKER: "this broker, dynamic",
    SetBy.ALL_BROKERS: "all brokers, dynamic",
    SetBy.FILE: "server.properties",
    SetBy.DEFAULT: "Kafka's default",
}


class ConfigEntry(NamedTuple):
    """A value in force: the key and text with which it is set, and where. `text`: None if it is not known. `number`: in
    milliseconds or bytes; None if it is unknown or no number (a config provider may fill it in)."""

    key: str
    text: str | None
    source: SetBy
    number: int | None = None

    def __str__(self) -> str:
        if self.text is None:
            return f"{self.key} is not known"
        return f"{self.key}={self.text} ({_SET_BY_IN_WORDS[self.source]})"


@dataclass(frozen=True, slots=True)
class Reason:
    """`fact` is one sentence; `hint` what its reader does next (empty: nothing), with `command` as a line for a shell.

    `code` is stable: a guard, a rule, a finding's code. `source` says so, as of `as_of_ms`. `claim`: what an act lacks
    that rests on this. What ends it: `until_ms`, at the earliest; `until`, a clause in words, which has to be true too,
    or, where it begins with "or", may come before; `setting`: what of Kafka's configuration decides that. Without date
    and clause it is not known.
    """

    fact: str
    hint: str = ""
    code: str = ""
    _: KW_ONLY
    claim: Claim | None = None
    until_ms: int | None = None
    until: str | None = None
    setting: ConfigEntry | None = None
    source: Witness | None = None
    as_of_ms: int | None = None
    command: str | None = None


ZERO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""As a topic id: none, as brokers before 2.8 report. As a directory id: MIGRATING."""

ID_SHAPE: Final = "[A-Za-z0-9_-]{22}"
"""What an id looks like, as a regular expression (also of Spark)."""

_ID_BYTES: Final = 16
_MAX_TEXT: Final = 24
# The last of the 22 characters carries two bits; in canonical text its other four are zero.
_CANONICAL: Final = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
_ALPHABET: Final = {
    ord(character): value
    for value, character in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
}
_PADDING: Final = ord("=")


def canonical_id(text: str) -> str:
    """The text that Kafka writes for the id `text`; raises ValueError like `id_from_text`."""
    if _CANONICAL.fullmatch(text) is not None:
        return text
    return id_to_text(id_from_text(text))


def id_from_text(text: str) -> bytes:
    """`Uuid.fromString`: the 16 bytes of an id; raises ValueError with Kafka's message if Kafka refuses the text."""
    if _CANONICAL.fullmatch(text) is not None:
        return base64.urlsafe_b64decode(text + "==")
    prefix = _java_prefix(text, _MAX_TEXT)
    if prefix != text:
        raise ValueError(f"Input string with prefix `{prefix}` is too long to be decoded as a base64 UUID")
    decoded = _java_url_decode(text.encode("latin-1", "replace"))
    if len(decoded) != _ID_BYTES:
        raise ValueError(
            f"Input string `{text}` decoded as {len(decoded)} bytes, which is not equal to the expected "
            f"{_ID_BYTES} bytes of a base64-encoded UUID"
        )
    return decoded


def id_to_text(raw: bytes) -> str:
    """`Uuid.toString`: 22 characters; raises ValueError unless `raw` has 16 bytes."""
    if len(raw) != _ID_BYTES:
        raise ValueError(f"an id has {_ID_BYTES} bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")


def _java_prefix(text: str, units: int) -> str:
    """`text.substring(0, units)` if the text is longer than `units` UTF-16 units, else `text`."""
    if len(text) <= units and text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass")


def _java_url_decode(source: bytes) -> bytes:
    """`java.util.Base64.getUrlDecoder().decode`, which is neither as strict nor as lenient as Python's decoders."""
    if not source:
        return b""
    if len(source) < 2:
        raise ValueError("Input byte[] should at least have 2 bytes for base64 bytes")
    decoded = bytearray()
    bits = count = 0
    position = 0
    while position < len(source):
        byte = source[position]
        position += 1
        if byte == _PADDING:
            # Padding follows two characters (as "==") or three; "x=" is rejected below.
            second_missing = count == 2 and source[position : position + 1] != b"="
            if count == 0 or second_missing:
                raise ValueError("Input byte array has wrong 4-byte ending unit")
            position += count == 2
            break
        if byte not in _ALPHABET:
            signed = byte - 256 if byte > 127 else byte
            raise ValueError(f"Illegal base64 character {signed:x}")
        bits = bits << 6 | _ALPHABET[byte]
        count += 1
        if count == 4:
            decoded += bits.to_bytes(3, "big")
            bits = count = 0
    if count == 1:
        raise ValueError("Last unit does not have enough valid bits")
    if count == 2:
        decoded.append(bits >> 4)
    elif count == 3:
        decoded += (bits >> 2).to_bytes(2, "big")
    if position < len(source):
        raise ValueError(f"Input byte array has incorrect ending byte at {position}")
    return bytes(decoded)
