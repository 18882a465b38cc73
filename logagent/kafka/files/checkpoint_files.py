"""The offset checkpoints of a log dir: read as Kafka does, and rewritten so that a crash leaves the old or new state.

Mirrors `CheckpointFile` and `OffsetCheckpointFile`: line 1 is the version 0, line 2 the number of entries, then
`topic partition offset` per line. Kafka writes through `<name>.tmp`; we use another temp name, so that the two never
collide, and preserve owner, group and mode, because we may run as a different user than the broker.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from logagent.base.dir_names import CHECKPOINTS, parse_int, parse_long
from logagent.base.errors import UnreadableError, cited
from logagent.base.files.safe_open import CHECKPOINT, NOWHERE, leads_nowhere, opened_regular, read_open, replacement
from logagent.base.records import TopicPartition

TEMP_PREFIX: Final = ".logagent-"
"""While we write a checkpoint it is `.logagent-<name>` beside it; the broker ignores regular files in a log dir."""

_MAX_LINES: Final = 2_000_000
"""Far above the partitions that a broker can have; a huge file of blank lines must not become a list."""

_JAVA_BLANKS: Final = b" \t\n\v\f\r"
_NEW_FILE_MODE: Final = 0o644

Entries = dict[TopicPartition, int]
T = TypeVar("T")


def parse_checkpoint(data: bytes) -> Entries:
    """The entries in file order; of a duplicate partition, the last offset.

    As in Kafka, an empty file and one without a count have no entries. Raises UnreadableError, naming the line, for
    anything a 3.9.1 broker refuses: a wrong version or count, malformed lines, numbers out of range, bytes that are not
    UTF-8. A negative partition or offset and an empty topic are accepted, because Kafka accepts them.
    """
    return dict(_entries(data, _entry))


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) of each line of a `leader-epoch-checkpoint`, as `LeaderEpochCheckpointFile` reads them.
    Raises UnreadableError as `parse_checkpoint` does."""
    return _entries(data, _epoch)


def _entries(data: bytes, entry: Callable[[bytes, int], T]) -> list[T]:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"byte {error.start} is not UTF-8") from None
    if data.count(b"\n") + data.count(b"\r") > _MAX_LINES:
        raise UnreadableError(f"there are more than {_MAX_LINES} lines")
    # bytes.splitlines splits only at \n, \r and \r\n, like Java's readLine; str.splitlines splits at more characters.
    lines = data.splitlines()
    if not lines:
        return []
    version = _int(lines[0], 1)
    if version != 0:
        raise UnreadableError(f"line 1: unrecognised version {version}, expected 0")
    if len(lines) == 1:
        return []
    expected = _int(lines[1], 2)
    entries = [entry(line, number) for number, line in enumerate(lines[2:], 3)]
    count = len(lines) - 2
    if count != expected:
        raise UnreadableError(f"line 2: expected {expected} entries, found {count}")
    return entries


def render_checkpoint(entries: Mapping[TopicPartition, int]) -> bytes:
    """The file that Kafka would write for `entries`, in their order.

    Raises ValueError for a topic with whitespace, which could not be read back.
    """
    lines = ["0", str(len(entries))]
    for partition, offset in entries.items():
        if not set(partition.topic).isdisjoint(_JAVA_BLANKS.decode()):
            raise ValueError(f"the topic {partition.topic!r} contains whitespace and cannot be written")
        lines.append(f"{partition.topic} {partition.partition} {offset}")
    return ("\n".join(lines) + "\n").encode()


def read_checkpoint(dir_fd: int, name: str, *, follow: bool = False) -> Entries | None:
    """The entries of the checkpoint `name` in the log dir `dir_fd`; None if there is no such file.

    Raises UnreadableError (also for anything but a regular file; never blocks) and OSError from the disk. Call this
    before `rewrite_checkpoint` and journal what will be dropped. `follow`: follow a symlink, as the broker does; never
    set when we act on the content.
    """
    checkpoint = _read(dir_fd, name, follow=follow)
    return None if checkpoint is None else checkpoint[0]


def rewrite_checkpoint(
    dir_fd: int,
    name: str,
    *,
    before_act: Callable[[], None],
    drop: Collection[TopicPartition] = (),
    put: Mapping[TopicPartition, int] | None = None,
) -> Entries:
    """Write the checkpoint `name` without the partitions in `drop` and with the entries in `put`; returns the dropped
    entries.

    It is a `replacement`: durable; after a crash at most one temp file is left, which the next call removes. Owner,
    group and mode are preserved. Nothing is written if nothing changes. A missing file has nothing to drop; with `put`
    it is created, owned by the owner of the log dir.

    `dir_fd` is the log dir, opened for reading (an O_PATH descriptor cannot be fsynced). `before_act` is called
    right before each effect (removing a leftover, creating the temp file, renaming it over the checkpoint) and
    stops the work by raising: the checkpoint is then unchanged, and our temp file is removed if the disk permits.

    Raises UnreadableError if the old file cannot be read or changed meanwhile, OSError from the disk.
    """
    if name not in CHECKPOINTS:
        raise ValueError(f"{name!r} is not an offset checkpoint; these are: {', '.join(CHECKPOINTS)}")
    temp = TEMP_PREFIX + name
    _remove_leftover(dir_fd, temp, before_act)
    checkpoint = _read(dir_fd, name)
    if checkpoint is None and not put:
        return {}
    old, before = checkpoint if checkpoint is not None else ({}, None)
    dropped = {partition: old[partition] for partition in drop if partition in old}
    new = {partition: offset for partition, offset in old.items() if partition not in dropped}
    new.update(put or {})
    if before is not None and new == old:
        return {}
    content = render_checkpoint(new)
    before_act()
    _replace(dir_fd, name, temp, content, before, before_act)
    return dropped


def _replace(
    dir_fd: int, name: str, temp: str, content: bytes, before: os.stat_result | None, before_act: Callable[[], None]
) -> None:
    like = before if before is not None else os.fstat(dir_fd)
    mode = _NEW_FILE_MODE if before is None else stat.S_IMODE(before.st_mode)

    def before_rename() -> None:
        _check_unchanged(dir_fd, name, before)
        before_act()

    owner = (like.st_uid, like.st_gid)
    with replacement(dir_fd, name, temp, mode=mode, owner=owner, before_rename=before_rename) as file:
        file.write(content)


def _read(dir_fd: int, name: str, *, follow: bool = False) -> tuple[Entries, os.stat_result] | None:
    try:
        with opened_regular(name, CHECKPOINT, dir_fd=dir_fd, follow=follow) as fd:
            opened = os.fstat(fd)
            data = read_open(fd, name, CHECKPOINT)
    except FileNotFoundError:
        if follow and leads_nowhere(name, dir_fd):
            raise UnreadableError(f"{name} is {NOWHERE}") from None
        return None
    try:
        return parse_checkpoint(data), opened
    except UnreadableError as error:
        raise UnreadableError(f"{name}: {error}") from None


def remove_leftovers(dir_fd: int, before_act: Callable[[], None]) -> None:
    """Remove the temp files that killed rewrites left in the log dir `dir_fd`. Raises OSError from the disk."""
    for name in CHECKPOINTS:
        _remove_leftover(dir_fd, TEMP_PREFIX + name, before_act)


def _remove_leftover(dir_fd: int, temp: str, before_act: Callable[[], None]) -> None:
    """Remove what a killed call left. The caller holds the executor lock, so no other process is using it."""
    try:
        os.stat(temp, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    before_act()
    with contextlib.suppress(FileNotFoundError):  # gone already, which is what is wanted
        os.unlink(temp, dir_fd=dir_fd)


def _check_unchanged(dir_fd: int, name: str, before: os.stat_result | None) -> None:
    try:
        now = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        if before is None:
            return
        raise UnreadableError(f"{name} disappeared while it was being rewritten") from None
    same = before is not None and os.path.samestat(before, now)
    if not same or before is None or (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
        raise UnreadableError(f"{name} was changed by another process while it was being rewritten")


def _int(line: bytes, number: int) -> int:
    try:
        return parse_int(line.decode())
    except ValueError:
        raise UnreadableError(f"line {number}: malformed: {cited(line.decode())}") from None


def _entry(line: bytes, number: int) -> tuple[TopicPartition, int]:
    topic, partition, offset = _fields(line, number, 3)
    try:
        return (TopicPartition(topic.decode(), _number(partition, parse_int)), _number(offset, parse_long))
    except ValueError as error:
        raise UnreadableError(f"line {number}: {error}") from None


def _epoch(line: bytes, number: int) -> tuple[int, int]:
    epoch, start = _fields(line, number, 2)
    try:
        entry = _number(epoch, parse_int), _number(start, parse_long)
    except ValueError as error:
        raise UnreadableError(f"line {number}: {error}") from None
    if min(entry) < 0:  # `LeaderEpochFileCache.assign`; the file itself would be read
        raise UnreadableError(f"line {number}: epoch {entry[0]} from offset {entry[1]} is negative")
    return entry


def _fields(line: bytes, number: int, count: int) -> list[bytes]:
    fields = line.split()
    # bytes.split splits at the same six characters as Java's \s, but drops an empty first field, which Kafka keeps.
    if line[:1] and line[:1] in _JAVA_BLANKS:
        fields.insert(0, b"")
    if len(fields) != count:
        raise UnreadableError(f"line {number}: malformed: {cited(line.decode())}")
    return fields


def _number(field: bytes, parse: Callable[[str], int]) -> int:
    # bytes.isdigit accepts only ASCII digits, and nine of them fit into either type.
    if len(field) <= 9 and field.isdigit():
        return int(field)
    return parse(field.decode())
