"""The offset checkpoints of a log dir: read as Kafka reads them, rewritten so that a crash leaves one of both states.

Mirrors `CheckpointFile` and `OffsetCheckpointFile`: line 1 the version 0, line 2 the number of entries, then
`topic partition offset` per line. Kafka writes through `<name>.tmp`; we use a temp name of our own, so that the two
never meet, and keep owner, group and mode, because we may run as another user than the broker.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Mapping
from typing import Final

from logagent.errors import UnreadableError
from logagent.files.limits import CHECKPOINT
from logagent.files.safe_open import opened_regular, read_open
from logagent.model.naming.java_numbers import parse_int, parse_long
from logagent.model.records import TopicPartition

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
REPLICATION: Final = "replication-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (RECOVERY_POINT, LOG_START_OFFSET, REPLICATION, CLEANER)

TEMP_PREFIX: Final = ".logagent-"
"""A checkpoint under construction is `.logagent-<name>` beside it; the broker ignores plain files in a log dir."""

_MAX_LINES: Final = 2_000_000
"""Kafka's own limit for the partitions of a broker is far below; a file of blank lines must not become a list."""

_JAVA_BLANKS: Final = b" \t\n\v\f\r"
_NEW_FILE_MODE: Final = 0o644

Entries = dict[TopicPartition, int]


def parse_checkpoint(data: bytes) -> Entries:
    """The entries in their order; of a partition that is there twice, the last offset.

    An empty file and one without a count have no entries, as in Kafka. Raises UnreadableError, naming the line,
    for anything a 3.9.1 broker refuses: wrong version, a wrong count, malformed lines, numbers out of range, bytes
    that are not UTF-8. A partition or offset below 0 and an empty topic are read, because Kafka reads them.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"byte {error.start} is not UTF-8") from None
    if data.count(b"\n") + data.count(b"\r") > _MAX_LINES:
        raise UnreadableError(f"there are more than {_MAX_LINES} lines")
    # bytes.splitlines ends lines at \n, \r and \r\n only, as Java's readLine does; str.splitlines knows more.
    lines = data.splitlines()
    if not lines:
        return {}
    version = _int(lines[0], 1)
    if version != 0:
        raise UnreadableError(f"line 1: unrecognised version {version}, expected 0")
    if len(lines) == 1:
        return {}
    expected = _int(lines[1], 2)
    entries = dict(_entry(line, number) for number, line in enumerate(lines[2:], 3))
    found = len(lines) - 2
    if found != expected:
        raise UnreadableError(f"line 2: expected {expected} entries, found {found}")
    return entries


def render_checkpoint(entries: Mapping[TopicPartition, int]) -> bytes:
    """The file that Kafka would write for `entries`, in their order.

    Raises ValueError for a topic with blanks, which could not be read back.
    """
    lines = ["0", str(len(entries))]
    for partition, offset in entries.items():
        if not set(partition.topic).isdisjoint(_JAVA_BLANKS.decode()):
            raise ValueError(f"the topic {partition.topic!r} has a blank and cannot be written")
        lines.append(f"{partition.topic} {partition.partition} {offset}")
    return ("\n".join(lines) + "\n").encode()


def read_checkpoint(dir_fd: int, name: str) -> Entries | None:
    """The entries of the checkpoint `name` in the log dir `dir_fd`; None where there is no such file.

    Raises UnreadableError (also for anything that is not a plain file; nothing is followed, nothing blocks) and
    OSError as the disk raises it. Read this before `rewrite_checkpoint` and journal what will be dropped.
    """
    found = _read(dir_fd, name)
    return None if found is None else found[0]


def rewrite_checkpoint(
    dir_fd: int,
    name: str,
    *,
    before_act: Callable[[], None],
    drop: Collection[TopicPartition] = (),
    put: Mapping[TopicPartition, int] | None = None,
) -> Entries:
    """Write the checkpoint `name` without the partitions in `drop` and with the entries in `put`; returns what went.

    After the return the change is durable. At a crash the file is the old or the new one, whole, and what may lie
    beside it is one temp file, which the next call removes. Owner, group and mode stay as they were. Nothing is
    written if nothing changes. A file that is not there has nothing to drop; with `put` it is created, owned by the
    owner of the log dir.

    `dir_fd` is the log dir, opened for reading (an O_PATH descriptor cannot be fsynced). `before_act` is called
    right before each effect (removing a leftover, creating the temp file, renaming it over the checkpoint) and
    stops the work by raising: the checkpoint is as it was then, and our temp file goes too if the disk lets it.

    Raises ValueError for a name that is not in `CHECKPOINTS`, UnreadableError if the old file cannot be read or
    changed while we worked, OSError as the disk raises it. Only if the very last step fails, the fsync of the log
    dir, may the new file stand in spite of the error.
    """
    temp = TEMP_PREFIX + _known(name)
    _remove_leftover(dir_fd, temp, before_act)
    found = _read(dir_fd, name)
    if found is None and not put:
        return {}
    old, before = found if found is not None else ({}, None)
    dropped = {partition: old[partition] for partition in drop if partition in old}
    new = {partition: offset for partition, offset in old.items() if partition not in dropped}
    new.update(put or {})
    if before is not None and new == old:
        return {}
    content = render_checkpoint(new)
    before_act()
    try:
        _write_temp(dir_fd, temp, content, before if before is not None else os.fstat(dir_fd))
        _check_unchanged(dir_fd, name, before)
        before_act()
        os.rename(temp, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileExistsError:
        raise  # somebody else made a file of this name just now: it is not ours to remove
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=dir_fd)
        raise
    os.fsync(dir_fd)
    return dropped


def _known(name: str) -> str:
    if name not in CHECKPOINTS:
        raise ValueError(f"{name!r} is not an offset checkpoint; these are: {', '.join(CHECKPOINTS)}")
    return name


def _read(dir_fd: int, name: str) -> tuple[Entries, os.stat_result] | None:
    try:
        with opened_regular(name, CHECKPOINT, dir_fd=dir_fd) as fd:
            opened = os.fstat(fd)
            data = read_open(fd, name, CHECKPOINT)
    except FileNotFoundError:
        return None
    try:
        return parse_checkpoint(data), opened
    except UnreadableError as error:
        raise UnreadableError(f"{name}: {error}") from None


def remove_leftovers(dir_fd: int, before_act: Callable[[], None]) -> None:
    """Remove the temp files that killed rewrites left in the log dir `dir_fd`. Raises OSError as the disk raises it."""
    for name in CHECKPOINTS:
        _remove_leftover(dir_fd, TEMP_PREFIX + name, before_act)


def _remove_leftover(dir_fd: int, temp: str, before_act: Callable[[], None]) -> None:
    """Remove what a killed call left. Whoever calls holds the executor lock, so it is nobody's work in progress."""
    try:
        os.stat(temp, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    before_act()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temp, dir_fd=dir_fd)


def _write_temp(dir_fd: int, temp: str, content: bytes, owner: os.stat_result) -> None:
    """Write and fsync a file that nobody can have prepared for us, owned as `owner` says."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # Mode 0600 until the owner is right: in between nobody else shall read or write it.
    with open(os.open(temp, flags, 0o600, dir_fd=dir_fd), "wb") as file:
        fd = file.fileno()
        created = os.fstat(fd)
        if (created.st_uid, created.st_gid) != (owner.st_uid, owner.st_gid):
            os.fchown(fd, owner.st_uid, owner.st_gid)
        os.fchmod(fd, stat.S_IMODE(owner.st_mode) if stat.S_ISREG(owner.st_mode) else _NEW_FILE_MODE)
        file.write(content)
        file.flush()
        os.fsync(fd)


def _check_unchanged(dir_fd: int, name: str, before: os.stat_result | None) -> None:
    try:
        now = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        if before is None:
            return
        raise UnreadableError(f"{name} disappeared while it was rewritten") from None
    same = before is not None and os.path.samestat(before, now)
    if not same or before is None or (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
        raise UnreadableError(f"{name} was changed by somebody else while it was rewritten")


def _int(line: bytes, number: int) -> int:
    try:
        return parse_int(line.decode())
    except ValueError:
        raise UnreadableError(f"line {number}: malformed: {line.decode()!r}") from None


def _entry(line: bytes, number: int) -> tuple[TopicPartition, int]:
    fields = line.split()
    # bytes.split knows the same six blanks as Java's \s, but drops an empty first field, which Kafka keeps.
    if line[:1] and line[:1] in _JAVA_BLANKS:
        fields.insert(0, b"")
    if len(fields) != 3:
        raise UnreadableError(f"line {number}: malformed: {line.decode()!r}")
    topic, partition, offset = fields
    try:
        return (TopicPartition(topic.decode(), _number(partition, parse_int)), _number(offset, parse_long))
    except ValueError as error:
        raise UnreadableError(f"line {number}: {error}") from None


def _number(field: bytes, parse: Callable[[str], int]) -> int:
    # bytes.isdigit knows ASCII digits only, and nine of them fit in either type.
    if len(field) <= 9 and field.isdigit():
        return int(field)
    return parse(field.decode())
