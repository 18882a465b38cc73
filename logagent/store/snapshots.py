"""The lines of a snapshot: what an agent saw of its host, whole or as changes of an earlier one.

`logagent.snapshot/3`: a `snapshot` line (the head), a `log_dir` line each, an `absent` line for each replica that is
assigned here and lies nowhere, an `act` line for each of what logagent did there in the last `ACTS_DAYS`, a `dir` line
each, sorted by log dir and name. The first snapshot of a day is whole: a
base. Later ones are deltas: all but the directories in full, `changes` of the base's directories in their order, and
`dir` lines of what is new. The head names the base by id and SHA-256, and has
the number and the SHA-256 of the `dir` lines that base and changes give together, in that order: the survivors, then
what is new. Whatever differs makes the snapshot unreadable; it never has fewer directories.

`snapshot_lines` reads this version and later ones. Agents write with `whole_lines` and `delta_of`. No I/O.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from gzip import GzipFile
from itertools import chain, islice
from operator import add
from typing import Any

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import MIB, parse_json
from logagent.base.records import DirKey
from logagent.store.contract import is_plain

SNAPSHOT_SCHEMA = "logagent.snapshot/3"
NUMBERS = (
    "bytes", "allocated", "newest_mtime", "last_segment_offset", "segments", "files", "first_offset", "end_offset",
    "sightings",
)  # fmt: skip
"""The fields of a directory that writing to it changes, the most often changed first: last in its line, and all that
`changes` can change."""
FIELDS = {
    "row": "word", "log_dir": "path", "name": "name", "kind": "word", "topic": "name", "topic_truncated": "bool",
    "full_topic": "name", "partition": "int", "uuid": "word", "topic_id": "word", "bytes": "long", "allocated": "long",
    "files": "long", "segments": "long", "newest_mtime": "time", "marked_at": "time", "first_offset": "long",
    "last_segment_offset": "long", "sightings": "long", "first_seen": "time", "in_use": "bool", "verdict": "word",
    "reason": "word", "window": "word", "due_at": "time", "covered": "word", "obstacle": "word",
    "obstacle_detail": "sentence", "claim": "word", "witness": "word", "inode": "long", "end_offset": "long",
    "error": "message",
}  # fmt: skip
"""The fields of a directory: what each is, from which what the fleet job reads, bounds and stores of it is made
(`fleet/tables/frames.py`). `SnapshotDir` says what they mean."""
ACT_FIELDS = {
    "row": "word", "id": "long", "at": "time", "finished_at": "time", "action": "word", "outcome": "word",
    "log_dir": "path", "name": "name", "new_name": "name", "topic": "name", "topic_id": "word", "partition": "int",
    "bytes": "long", "allocated": "long", "actor": "word", "approved": "bool", "plan_id": "word", "claim": "word",
    "witness": "word", "as_of": "time", "claims": "sentence", "error": "sentence",
}  # fmt: skip
"""The same of what logagent did. `SnapshotAct` says what they mean."""
ACTS_DAYS = 8
"""Each snapshot has what was done in so many days, not only since the last one: of a day only the newest is read, and
changes are counted from a week before. Whoever reads several tells the same act by its host, id and times."""
MOST_ACTS = 5_000
"""The most of them; the head says how many were left out."""
TIMES = tuple(name for name, kind in FIELDS.items() if kind == "time")
"""In milliseconds since 1970."""
_BEFORE = ("logagent.snapshot/1", "logagent.snapshot/2")
MAX_LINE = MIB
"""The most bytes of a line of a snapshot. The longest names and paths that there are take a fraction of it."""
MAX_UNPACKED = 256 << 20
MAX_NEW_SHARE = 0.25
"""With a larger share of new directories a snapshot becomes the next base: it would hardly be smaller as a delta."""
_CHANGES_A_LINE = 256
_LINES_HELD = 4096
_DIR, _CHANGES, _FIRST_NUMBER = b'{"row":"dir",', b'{"row":"changes",', b',"bytes":'


@dataclass(frozen=True, slots=True)
class Base:
    """The whole snapshot that a delta changes. It lies in the same folder."""

    snapshot_id: str
    sha256: str


def line_of(kind: str, row: Mapping[str, Any]) -> bytes:
    return json.dumps({"row": kind, **row}, separators=(",", ":")).encode()


def dir_line(row: Mapping[str, Any], planned: Mapping[str, object]) -> bytes:
    """The line of a directory: its row as `logagent scan` has it, with times in milliseconds since 1970, and `planned`,
    what the agent's plan says about it. Fields without a value are left out."""
    found = {**row, **{name: _millis(row.get(name)) for name in TIMES if name in row}, **planned}
    first = {name: value for name, value in found.items() if value is not None and name not in NUMBERS}
    return line_of("dir", first | {name: found[name] for name in NUMBERS if found.get(name) is not None})


def _millis(time: str | int | None) -> int | None:
    return round(datetime.fromisoformat(time).timestamp() * 1000) if isinstance(time, str) else time


@dataclass(frozen=True, slots=True)
class Rest:
    """What every snapshot has in full: rows of log dirs, of absent replicas, and of what was done."""

    log_dirs: Sequence[Mapping[str, Any]]
    absent: Sequence[Mapping[str, Any]] = ()
    acts: Sequence[Mapping[str, Any]] = ()

    def lines(self) -> Iterator[bytes]:
        yield from (line_of("log_dir", row) for row in self.log_dirs)
        yield from (line_of("absent", row) for row in self.absent)
        yield from (line_of("act", row) for row in self.acts)


def whole_lines(head: Mapping[str, Any], rest: Rest, dirs: Iterable[bytes]) -> Iterator[bytes]:
    """A base. `dirs`: its `dir` lines, sorted by log dir and name."""
    yield line_of("snapshot", {**head, "base": None})
    yield from rest.lines()
    yield from dirs


@dataclass(slots=True)
class Delta:
    """What has changed since `base`. `changes`: JSON arrays, see `lines`; `new`: `dir` lines; `dirs`, `sha256`: of the
    directories that result."""

    base: Base
    changes: list[str] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    dirs: int = 0
    sha256: str = ""
    _passed: int = 0

    def lines(self, head: Mapping[str, Any], rest: Rest) -> Iterator[bytes]:
        """The lines of the snapshot. `changes` has an array for each directory of the base that is not as it was: how
        many directories after the last one are as they were, then by how much each of its `NUMBERS` has grown
        (`allocated`: by how much more than `bytes`; zeros at the end are left out), or nothing more if it is gone."""
        base = {"snapshot_id": self.base.snapshot_id, "sha256": self.base.sha256}
        yield line_of("snapshot", {**head, "base": base, "dirs": self.dirs, "dirs_sha256": self.sha256})
        yield from rest.lines()
        for start in range(0, len(self.changes), _CHANGES_A_LINE):
            part = ",".join(self.changes[start : start + _CHANGES_A_LINE])
            yield _CHANGES + b'"dirs":[' + part.encode() + b"]}"
        yield from self.new

    def next_has_grown(self, by: tuple[int, ...] | None) -> None:
        """By how much the next directory of the base has grown; None: it is gone."""
        if by == ():
            self._passed += 1
            return
        self.changes.append(f"[{','.join(map(str, (self._passed, *(by or ()))))}]")
        self._passed = 0


def delta_of(base: Base, packed: bytes, dirs: Iterable[tuple[DirKey, bytes]]) -> Delta | None:
    """What makes of `base` (its file is `packed`) a snapshot with these directories, sorted by key.

    None if it is not worth it (`MAX_NEW_SHARE`), or if the base is not what it was; then write a base.
    """
    delta, digest = Delta(base), hashlib.sha256()
    try:
        old = _Peekable(_lines_of_base(base, packed))
        for key, line in dirs:
            old.skip(key, delta)
            grown = None
            if old.is_at(key):
                grown = () if old.line == line else _growth(old.line, line)
                delta.next_has_grown(grown)
                old.step()
            if grown is None:
                delta.new.append(line)
            else:
                digest.update(line)
                delta.dirs += 1
        old.skip(None, delta)
    except UnreadableError:
        return None
    digest.update(b"".join(delta.new))
    delta.dirs += len(delta.new)
    delta.sha256 = digest.hexdigest()
    return delta if len(delta.new) <= max(8, delta.dirs * MAX_NEW_SHARE) else None


class _Peekable:
    """The `dir` lines of a base, one at a time; `line` is empty after the last one."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.step()

    def step(self) -> None:
        self.line = next(self._lines, b"")
        if self.line:
            row = parse_json(self.line)
            self._key = DirKey(row["log_dir"], row["name"])

    def is_at(self, key: DirKey) -> bool:
        return bool(self.line) and self._key == key

    def skip(self, key: DirKey | None, delta: Delta) -> None:
        """Step to `key`, or to the end: what is passed is gone."""
        while self.line and (key is None or self._key < key):
            delta.next_has_grown(None)
            self.step()


def _are_numbers(values: Collection[Any]) -> bool:
    """Sums of longer ones could not be written (Python refuses integers of over 4,300 digits)."""
    return {*map(type, values)} <= {int} and max(map(abs, values), default=0) < 1 << 63


def numbers_of(line: bytes) -> tuple[bytes, dict[str, int]]:
    """A `dir` line without its numbers, and these. In a JSON string a quote is escaped: no name has this text."""
    at = line.rfind(_FIRST_NUMBER)
    try:
        numbers = parse_json(b"{" + line[at + 1 :]) if at > 0 else None
    except ValueError:
        numbers = None
    if not isinstance(numbers, dict) or not _are_numbers(numbers.values()):
        raise UnreadableError("a directory of a base cannot be read")
    return line[:at], numbers


def _growth(old: bytes, new: bytes) -> tuple[int, ...] | None:
    """By how much each number has grown; None if anything else differs."""
    (old_start, was), (new_start, now) = numbers_of(old), numbers_of(new)
    if old_start != new_start or list(was) != list(now):
        return None
    by = {name: number - was[name] for name, number in now.items()}
    if "allocated" in by:
        by["allocated"] -= by["bytes"]
    grown = list(by.values())
    while grown and not grown[-1]:
        grown.pop()
    return tuple(grown)


_NUMBER = rb"(-?[1-9][0-9]{0,17}|0)"
_WRITTEN_NUMBERS = re.compile(
    b',"bytes":' + _NUMBER + b"".join(b'(?:,"%s":%s)?' % (name.encode(), _NUMBER) for name in NUMBERS[1:]) + b"}"
)
_FIRST_NUMBERS = ["".join(f',"{name}":%d' for name in NUMBERS[:count]).encode() for count in range(len(NUMBERS) + 1)]


def _grown(line: bytes, by: list[int]) -> bytes:
    """A `dir` line whose numbers have grown. Written as agents do it, all but these stays as it is; else it is
    parsed."""
    found, count = _WRITTEN_NUMBERS.fullmatch(line, max(0, line.rfind(_FIRST_NUMBER))), len(by)
    if found is not None and 2 <= count <= len(NUMBERS) and None not in (was := found.groups()[:count]):
        now = list(map(add, map(int, was), by))
        now[1] += by[0]
        return line[: found.start()] + _FIRST_NUMBERS[count] % tuple(now) + line[found.end(count) :]
    start, numbers = numbers_of(line)
    if count > len(numbers):
        raise UnreadableError("its changes do not fit its base")
    for name, more in zip(numbers, [*by, *[0] * (len(numbers) - count)], strict=True):
        numbers[name] += more + (by[0] if name == "allocated" else 0)
    return start + b"," + ",".join(f'"{name}":{number}' for name, number in numbers.items()).encode() + b"}"


def snapshot_lines(read: Callable[[str], bytes], snapshot_id: str) -> Iterator[bytes]:
    """The lines of a snapshot as if it were whole, without line ends: the head first.

    `read`: the content of the data file of a snapshot in this snapshot's folder. Raises UnreadableError, also after
    lines were yielded: then none of them counts. Raises what `read` does, but for a base that is not there.
    """
    lines = _unpacked(read(snapshot_id))
    head = next(lines, b"")
    if (why := why_too_old(_parsed(head))) is not None:
        raise UnreadableError(why)
    base = base_of(head)
    if base is None:
        yield head
        yield from lines
        return
    try:
        packed = read(base.snapshot_id)
    except FileNotFoundError as error:
        raise UnreadableError(f"the base of the snapshot, {base.snapshot_id}, is missing") from error
    yield head
    yield from _applied(parse_json(head), lines, _lines_of_base(base, packed))


def why_too_old(head: Mapping[str, Any]) -> str | None:
    """Why a snapshot with this head is not read; None if it may be. Their times are texts, and they say of nothing
    that it is absent: read as one of today, a host would have no missing replicas."""
    if (schema := head.get("schema")) not in _BEFORE:
        return None
    return f"{schema} is what builds from before the first release write and read; this one reads {SNAPSHOT_SCHEMA}"


def _parsed(head: bytes) -> dict[str, Any]:
    try:
        row = parse_json(head)
    except ValueError as error:
        raise UnreadableError("its first line cannot be read") from error
    return row if isinstance(row, dict) else {}


def base_of(head: bytes) -> Base | None:
    """The base that the first line of a snapshot names. Raises UnreadableError for one that cannot be."""
    try:
        return base_named(_parsed(head))
    except ValueError as error:
        raise UnreadableError("its base cannot be read") from error


def base_named(row: Mapping[str, Any]) -> Base | None:
    """The base that a head or a manifest names. Raises ValueError for one that cannot be: another file than one beside
    it is never read."""
    base = row.get("base")
    if base is None:
        return None
    name, sha256 = (base.get("snapshot_id"), base.get("sha256")) if isinstance(base, dict) else (None, None)
    if not isinstance(name, str) or not is_plain(name) or not isinstance(sha256, str):
        raise ValueError("its base is not named")
    return Base(name, sha256.lower())


def _lines_of_base(base: Base, packed: bytes) -> Iterator[bytes]:
    """The `dir` lines of a base. Raises UnreadableError unless it is the file that was meant."""
    if hashlib.sha256(packed).hexdigest() != base.sha256:
        raise UnreadableError(f"the base of the snapshot, {base.snapshot_id}, has changed")
    lines = _unpacked(packed)
    if base_of(next(lines, b"")) is not None:
        raise UnreadableError(f"the base of the snapshot, {base.snapshot_id}, is no base")
    return (line for line in lines if line.startswith(_DIR))


def _applied(head: dict[str, Any], lines: Iterator[bytes], old: Iterator[bytes]) -> Iterator[bytes]:
    """The lines after the head: those of a delta, its changes made to its base's directories."""
    digest, dirs = hashlib.sha256(), 0

    def counted(run: list[bytes]) -> list[bytes]:
        nonlocal dirs
        dirs += len(run)
        digest.update(b"".join(run))
        return run

    def taken(count: int) -> list[bytes]:
        if len(run := list(islice(old, count))) < count:
            raise UnreadableError("it changes more directories than its base has")
        return run

    for line in lines:
        if line.startswith(_CHANGES):
            held: list[bytes] = []
            for unchanged, *by in _changes(line):
                while unchanged + len(held) >= _LINES_HELD:
                    yield from counted(held)
                    held = taken(min(unchanged, _LINES_HELD))
                    unchanged -= len(held)
                *run, last = taken(unchanged + 1)
                held += [*run, _grown(last, by)] if by else run
            yield from counted(held)
        elif line.startswith(_DIR):
            while run := list(islice(old, _LINES_HELD)):
                yield from counted(run)
            yield from counted([line])
        else:
            yield line
    while run := list(islice(old, _LINES_HELD)):
        yield from counted(run)
    if head.get("dirs") != dirs or head.get("dirs_sha256") != digest.hexdigest():
        raise UnreadableError("its changes and its base do not give the directories that it says")


def _changes(line: bytes) -> list[list[int]]:
    try:
        changes = parse_json(line)["dirs"]
        if _are_numbers(list(chain.from_iterable(changes))) and all(change[0] >= 0 for change in changes):
            return list(changes)
    except (ValueError, KeyError, TypeError, IndexError):
        pass
    raise UnreadableError("its changes cannot be read")


def _unpacked(packed: bytes) -> Iterator[bytes]:
    """The lines of a packed file, without line ends. Raises UnreadableError."""
    left, rest = MAX_UNPACKED, b""
    try:
        with GzipFile(fileobj=io.BytesIO(packed)) as file:
            while piece := file.read(MAX_LINE):
                left -= len(piece)
                if left < 0:
                    raise UnreadableError(f"a snapshot unpacks to more than {MAX_UNPACKED >> 20} MiB")
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > MAX_LINE or max(map(len, lines), default=0) >= MAX_LINE:
                    raise UnreadableError("a snapshot has a line of more than 1 MiB")
                yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"a snapshot is incomplete: {error}") from error
    if rest:
        yield rest
