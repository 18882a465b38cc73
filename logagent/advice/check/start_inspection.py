"""Inspects a log dir the way a starting broker will: formatting, checkpoints, links, owners and modes, space, files;
and the end of a broker's own log, for what it could not mark for deletion since its last start.

What a broker fails on when it loads a log, whatever the records are, mirrors `LogLoader.load`,
`LogSegment.sanityCheck`, `FileLogInputStream.nextBatch` and `ProducerStateManager`. What each release makes of them was
seen on real brokers (tests/damages/files.py).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from logagent.advice.check.rules.start_facts import (
    CheckpointFault,
    FreeSpace,
    LoadFault,
    LoadFile,
    MetaFile,
    MetaState,
    PathProblem,
)
from logagent.base.dir_names import (
    CHECKPOINTS,
    CLEANER,
    LOG_START_OFFSET,
    MAX_NAME,
    METADATA_DIR,
    PARTITION_METADATA,
    RECOVERY_POINT,
    REPLICATION,
    classify,
    parse_long,
)
from logagent.base.errors import UnreadableError
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import (
    INDEX,
    LEADER_EPOCHS,
    NOWHERE,
    SEGMENT,
    FileLimit,
    kind_of,
    leads_nowhere,
    open_regular,
    opened_directory,
    opened_regular,
    read_regular,
)
from logagent.base.linux.access import READ, SEARCH, WRITE, User, denied, in_words
from logagent.base.linux.kernel import attributes
from logagent.base.records import Denied, DirKey, Identity, TopicPartition
from logagent.disk.log_dir import CLEAN_SHUTDOWN, OFFLINE_ERRNOS, OPEN_DIRECTORY, OpenLogDir
from logagent.kafka.files.checkpoint_files import TEMP_PREFIX, parse_epochs, read_checkpoint
from logagent.kafka.files.log_extent import LEADER_EPOCH_CHECKPOINT
from logagent.kafka.files.properties import META_PROPERTIES, parse_partition_metadata, read_meta_properties
from logagent.kafka.files.segment_files import LOG, OFFSET_INDEX, TIME_INDEX, last_index_entry, segment_bases
from logagent.kafka.metadata_log.batches import HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, RECORD_OVERHEAD_V0
from logagent.kafka.metadata_log.log import snapshots_of
from logagent.kafka.processes.lock import LOCK_FILE

# Names that Kafka treats as a segment's file, which must have an offset before the first dot.
_SEGMENT_FILE = re.compile(r"(?s).*\.(?:log|index|timeindex|txnindex|snapshot|cleaned|swap)")
_USUAL = re.compile(r"[0-9]{20}\.(?:log|index|timeindex|txnindex|snapshot)")
MOST_OFFSET: Final = (1 << 63) - 1
_MOST_DIGITS = str(MOST_OFFSET).zfill(20)
# Opened for reading and writing at a start; all other files only have to be readable.
_WRITTEN = (".log", ".index", ".timeindex", ".txnindex")
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM})


def path_problem(path: str) -> tuple[PathProblem, str] | None:
    """Why `path` is not a directory that can be opened, None if it is one."""
    try:
        fd = os.open(path, OPEN_DIRECTORY)
    except FileNotFoundError:
        if os.path.islink(path):
            return PathProblem.DANGLING, f"it is a symlink to {os.readlink(path)}, which does not exist"
        return PathProblem.MISSING, "there is no such directory"
    except NotADirectoryError:
        return PathProblem.NOT_A_DIRECTORY, "it is not a directory"
    except PermissionError as error:
        return PathProblem.CLOSED, f"it cannot be opened ({error.strerror})"
    except OSError as error:
        return PathProblem.UNREADABLE, f"it cannot be opened ({error.strerror})"
    os.close(fd)
    return None


def read_meta_file(dir_fd: int) -> MetaFile:
    """`meta.properties` with what is wrong with it. Raises `OSError` for the errors of a failing disk only."""
    try:
        meta = read_meta_properties(dir_fd, follow=True)
    except UnreadableError as error:
        return MetaFile(MetaState.MALFORMED, error=str(error))
    except OSError as error:
        if error.errno in OFFLINE_ERRNOS:
            raise
        return MetaFile(MetaState.UNREADABLE, error=error.strerror)
    if meta is None:
        return MetaFile(MetaState.MISSING)
    return MetaFile(MetaState.READ, meta.version, meta.cluster_id, meta.node_id, meta.directory_id)


def room_of(dir_fd: int) -> FreeSpace:
    vfs = os.fstatvfs(dir_fd)
    return FreeSpace(vfs.f_blocks * vfs.f_frsize, vfs.f_bavail * vfs.f_frsize, vfs.f_files, vfs.f_favail)


def broken_checkpoints(dir_fd: int) -> dict[str, tuple[CheckpointFault, str]]:
    """The offset checkpoints that Kafka cannot read, with the error."""
    broken: dict[str, tuple[CheckpointFault, str]] = {}
    for name in CHECKPOINTS:
        try:
            read_checkpoint(dir_fd, name, follow=True)
        except UnreadableError as error:
            fault = CheckpointFault.FIFO if _kind_at(dir_fd, name) == "a FIFO" else _fault(str(error))
            broken[name] = fault, str(error)
        except OSError as error:
            if error.errno not in _NOT_ALLOWED:
                raise
    return broken


_DIRECTORY = "a directory"
# Files of a log dir, with what a link that leads nowhere and what a FIFO in their place do, as seen on real brokers.
_PLACES: Mapping[str, tuple[LoadFile | None, LoadFile | None]] = {
    LOCK_FILE: (LoadFile.PLACE, None),
    CLEAN_SHUTDOWN: (None, LoadFile.PLACE),
    f"{RECOVERY_POINT}.tmp": (LoadFile.PLACE, LoadFile.PLACE),
    f"{LOG_START_OFFSET}.tmp": (LoadFile.PLACE, LoadFile.PLACE),
    f"{REPLICATION}.tmp": (LoadFile.PLACE, LoadFile.AHEAD),
    f"{CLEANER}.tmp": (LoadFile.AHEAD, LoadFile.AHEAD),
}


def places_of_files(dir_fd: int, *, metadata_only: bool = False) -> list[LoadFault]:
    """What is no file where the broker needs one beside the partition directories. A directory is left out, unless it
    is empty and a marker: it has no partition's name, which is said. `metadata_only`: no log dir is there, only a
    metadata log: of these files a node opens the lock alone."""
    found = []
    for name, (nowhere, fifo) in _PLACES.items():
        what = _kind_at(dir_fd, name)
        file = nowhere if what == NOWHERE else fifo
        if metadata_only and name != LOCK_FILE:
            continue
        if what == _DIRECTORY:
            file = _of_directory(dir_fd, name, metadata_only=metadata_only)
        if what is not None and file is not None:
            found.append(LoadFault(file, name, f"it is {what}"))
    return found


def _of_directory(dir_fd: int, name: str, *, metadata_only: bool) -> LoadFile | None:
    if metadata_only:
        return LoadFile.PLACE
    if name != CLEAN_SHUTDOWN:
        return None
    try:
        with opened_directory(name, dir_fd=dir_fd, follow=True) as fd:
            return LoadFile.MARKER if not os.listdir(fd) else None
    except OSError as error:
        if error.errno in OFFLINE_ERRNOS:
            raise
        return None


def in_place_of_directory(dir_fd: int, name: str) -> str | None:
    """What is called `name` and is no directory, so that a broker cannot make one of that name; None if nothing is."""
    what = _kind_at(dir_fd, name)
    if what is None:
        with suppress(FileNotFoundError):
            what = kind_of(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode) or "a file"
    return what if what != _DIRECTORY else None


def broken_epochs(dir_fd: int, names: Iterable[str]) -> dict[str, tuple[CheckpointFault, str]]:
    """Of the partition directories `names`, those with a `leader-epoch-checkpoint` that Kafka cannot read."""
    broken: dict[str, tuple[CheckpointFault, str]] = {}
    for name in names:
        file = f"{name}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            # Through a symlink too, because the broker follows it; nothing is changed.
            parse_epochs(read_regular(file, LEADER_EPOCHS, dir_fd=dir_fd, follow=True))
        except UnreadableError as error:
            broken[name] = _fault(str(error)), f"{LEADER_EPOCH_CHECKPOINT}: {error}"
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
    return broken


def followed_topic_ids(dir_fd: int, names: Iterable[str]) -> dict[str, str | None]:
    """The topic ids of the directories `names`, read as a broker does, through links and mounts; None where there is
    none. What cannot be read is left out: that is not the same."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            with opened_directory(name, dir_fd=dir_fd, follow=True) as fd:
                found[name] = _topic_id(fd)
        except UnreadableError:
            continue
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
    return found


def places_of(dir_fd: int, names: Iterable[str]) -> dict[str, Identity]:
    """Which directories `names` lead to, through links and mounts; what cannot be seen is left out."""
    found: dict[str, Identity] = {}
    for name in names:
        try:
            status = os.stat(name, dir_fd=dir_fd)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            continue
        found[name] = Identity(status.st_dev, status.st_ino)
    return found


def _topic_id(fd: int) -> str | None:
    try:
        return parse_partition_metadata(
            read_regular(PARTITION_METADATA, limits.PARTITION_METADATA, dir_fd=fd, follow=True)
        )
    except FileNotFoundError:
        return None


def has_metadata_log(dir_fd: int) -> bool:
    try:
        os.stat(METADATA_DIR, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in OFFLINE_ERRNOS:
            raise
        return False
    return True


def _fault(error: str) -> CheckpointFault:
    """Java's NumberFormatException and IllegalArgumentException are not IOExceptions: Kafka treats them differently."""
    number = 'For input string: "' in error or "expected -" in error
    return CheckpointFault.NUMBER if number else CheckpointFault.MALFORMED


def links_and_leftovers(dir_fd: int) -> tuple[dict[str, str], list[str]]:
    """Symlinks to directories, with their targets, and temp files of logagent."""
    links: dict[str, str] = {}
    leftovers: list[str] = []
    with opened_directory(".", dir_fd=dir_fd) as directory, os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                if _is_dir(entry):
                    links[entry.name] = os.readlink(entry.name, dir_fd=dir_fd)
            elif entry.name.startswith(TEMP_PREFIX) and entry.is_file(follow_symlinks=False):
                leftovers.append(entry.name)
    return links, sorted(leftovers)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # its target cannot be seen from here


def denied_at(path: str, user: User) -> Iterator[Denied]:
    """What `user` lacks on a log dir that we may not open ourselves; nothing if not even its owner can be read."""
    with suppress(OSError):
        status = os.stat(path)
        if (lacks := user.lacks(status, READ | WRITE | SEARCH)) != 0:
            yield Denied(path, in_words(lacks), status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def denied_in_log_dir(log_dir: OpenLogDir, user: User) -> Iterator[Denied]:
    """What the broker's user may not do with the log dir itself and with the plain files that it needs there."""
    fd, path = log_dir.fd, log_dir.path
    yield from denied(user, fd, ".", path, os.fstat(fd), READ | WRITE | SEARCH)
    needed = [(LOCK_FILE, READ | WRITE), (META_PROPERTIES, READ)]
    for name in CHECKPOINTS:
        # Kafka opens an old temp file for writing; it does not replace it.
        needed += [(name, READ), (f"{name}.tmp", WRITE)]
    for name, wants in needed:
        try:
            status = os.stat(name, dir_fd=fd)
        except OSError as error:
            if error.errno in OFFLINE_ERRNOS:
                raise
            continue
        yield from denied(user, fd, name, f"{path}/{name}", status, wants)


def fixed_in(log_dir: OpenLogDir, names: Iterable[str]) -> dict[str, str]:
    """What of the log dir and of its directories `names` not even root may change, by path, and how so."""
    found = {}
    for name in ("", *names):
        with suppress(FileNotFoundError):
            if (how := attributes(log_dir.fd, name).fixed) is not None:
                found[f"{log_dir.path}/{name}".rstrip("/")] = how
    return found


class PartitionDirs:
    """Goes through partition directories for missing permissions and for file names that make a start fail."""

    def __init__(self, log_dir: OpenLogDir, user: User) -> None:
        self._log_dir = log_dir
        self._user = user
        self.denied: list[Denied] = []
        self.odd_files: list[str] = []
        self.load_faults: list[LoadFault] = []
        self._clean = log_dir.has(CLEAN_SHUTDOWN)
        self._starts: dict[TopicPartition, int] | None = None
        self.not_seen: list[str] = []

    def inspect(self, names: Iterable[str]) -> None:
        """Inspect the directories `names`. Raises `OSError` for the errors of a failing disk only."""
        for name in names:
            try:
                self._inspect(name)
            except OSError as error:
                if error.errno in OFFLINE_ERRNOS:
                    raise
                if error.errno in _NOT_ALLOWED:
                    self.not_seen.append(name)

    def _inspect(self, name: str) -> None:
        # A symlink is followed here, because the broker follows it too; nothing is changed.
        path = f"{self._log_dir.path}/{name}"
        status = os.stat(name, dir_fd=self._log_dir.fd)
        self.denied += denied(self._user, self._log_dir.fd, name, path, status, READ | WRITE | SEARCH)
        with opened_directory(name, dir_fd=self._log_dir.fd, follow=True) as fd:
            others = _no_files(fd)
            files = [file for file in os.listdir(fd) if file not in others]
            for file in files:
                self._file(fd, path, name, file)
            # The marker says nothing of the metadata log, which is recovered at each start (`KafkaMetadataLog`).
            clean = self._clean and name != METADATA_DIR
            starts = partial(self._log_starts, name, fd)
            faults = load_faults(fd, frozenset(files), others, clean=clean, log_starts=starts)
            self.load_faults += [replace(fault, name=f"{name}/{fault.name}") for fault in faults]

    def _log_starts(self, name: str, fd: int) -> set[int]:
        if name == METADATA_DIR:
            return {0, *(int(snapshot[:20]) for snapshot in snapshots_of(os.listdir(fd))[-1:])}
        if self._starts is None:
            try:
                self._starts = read_checkpoint(self._log_dir.fd, LOG_START_OFFSET, follow=True) or {}
            except UnreadableError:
                self._starts = {}  # another finding reports this
        parsed = classify(name)
        partition = TopicPartition(parsed.topic or "", -1 if parsed.partition is None else parsed.partition)
        return {self._starts.get(partition, 0)}

    def _file(self, dir_fd: int, path: str, directory: str, file: str) -> None:
        usual = _USUAL.fullmatch(file) is not None and file[:20] <= _MOST_DIGITS
        if not usual and _is_odd(file) and _is_file(dir_fd, file):
            self.odd_files.append(f"{directory}/{file}")
        if self._user.privileged:
            return
        try:
            status = os.stat(file, dir_fd=dir_fd)
        except FileNotFoundError:
            return  # removed since, or a dangling symlink
        if stat.S_ISREG(status.st_mode):
            wants = READ | WRITE if file.endswith(_WRITTEN) else READ
            self.denied += denied(self._user, dir_fd, file, f"{path}/{file}", status, wants)


def _no_files(dir_fd: int) -> dict[str, str]:
    """What is no regular file, with what it is."""
    with os.scandir(dir_fd) as entries:
        return {entry.name: what for entry in entries if (what := _no_file(entry, dir_fd)) is not None}


def _no_file(entry: os.DirEntry[str], dir_fd: int) -> str | None:
    return None if entry.is_file(follow_symlinks=False) else _kind_at(dir_fd, entry.name)


def _kind_at(dir_fd: int, name: str) -> str | None:
    """What `name` is, or leads to; None if that is a regular file, is not there, or cannot be seen from here."""
    try:
        return kind_of(os.stat(name, dir_fd=dir_fd).st_mode)
    except FileNotFoundError:
        return NOWHERE if leads_nowhere(name, dir_fd) else None
    except OSError as error:
        if error.errno in OFFLINE_ERRNOS:
            raise
        return None


def _is_odd(file: str) -> bool:
    """Whether Kafka tries to parse an offset from this name and fails (`LogFileUtils.offsetFromFile`)."""
    if _SEGMENT_FILE.fullmatch(file) is None:
        return False
    try:
        parse_long(file.partition(".")[0])
    except ValueError:
        return True
    return False


def _is_file(dir_fd: int, file: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(file, dir_fd=dir_fd).st_mode)
    except FileNotFoundError:
        return False


TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
LOG_SWAP: Final = LOG + ".swap"
EPOCHS_BEING_WRITTEN: Final = "leader-epoch-checkpoint.tmp"
_INDEX_ENTRY = struct.Struct(">ii")
_HEAD = struct.Struct(">qi")
_DELTA_AT, _HEADER_BYTES = 23, 61
# `AbortedTxn`: its version comes first.
_ABORTED_BYTES, _ABORTED_VERSION = 34, 0
_WINDOW = 1 << 16
_MOST_BYTES = (1 << 31) - 1


def load_faults(
    dir_fd: int,
    files: Collection[str],
    others: Mapping[str, str],
    *,
    clean: bool,
    log_starts: Callable[[], Collection[int]],
) -> Iterator[LoadFault]:
    """What is wrong in the open partition directory `dir_fd`, which has these regular `files`, and `others` with what
    they are. `clean`: its log dir has the clean-shutdown marker, beside which nothing is recovered. `log_starts`: where
    a log without segments may begin. Raises OSError only if the disk fails."""
    bases = segment_bases(files)
    for name, what in sorted(others.items()):
        file = _place(dir_fd, name, what, files, bases, log_starts)
        if file is not None:
            yield LoadFault(file, name, f"it is {what}")
    if clean and bases and bases[-1] + OFFSET_INDEX in files:
        position = _no_batch_at(dir_fd, bases[-1])
        if position is not None:
            says = f"at byte {position} begins what is no batch, and beside a clean-shutdown marker it is not cut off"
            yield LoadFault(LoadFile.TAIL, bases[-1] + LOG, says)
    yield from _too_large(dir_fd, files, bases)
    for name in sorted(files):
        if name.endswith(LOG_SWAP) and name[:20].isdigit() and (fault := _swap_fault(dir_fd, name)) is not None:
            yield fault
    for base in bases:
        if base + TXN_INDEX in files and (version := _foreign_version(dir_fd, base + TXN_INDEX)) is not None:
            yield LoadFault(LoadFile.ABORTED, base + TXN_INDEX, f"an entry is of version {version}")


def _place(
    dir_fd: int,
    name: str,
    what: str,
    files: Collection[str],
    bases: list[str],
    log_starts: Callable[[], Collection[int]],
) -> LoadFile | None:
    """Whether a start needs a file where there is something else (PLACE), or a later moment would (AHEAD)."""
    base, suffix = name[:20], name[20:]
    if name == EPOCHS_BEING_WRITTEN or (name == LEADER_EPOCH_CHECKPOINT and what == NOWHERE):
        return LoadFile.PLACE  # another kind of epoch file cannot be read, which is said
    numbered = base.isdigit() and base.isascii() and int(base) <= MOST_OFFSET
    if not numbered or suffix not in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
        return None
    if suffix == LOG:
        needed = not bases and int(base) in log_starts()  # then the first segment is made there
    elif suffix == SNAPSHOT:
        needed = bool(bases) and int(base) == _end_of(dir_fd, bases[-1]) > 0  # where a loaded log takes one
    else:
        # An index of aborted transactions is opened only if it is there.
        needed = base + LOG in files and not (suffix == TXN_INDEX and what == NOWHERE)
    return LoadFile.PLACE if needed else LoadFile.AHEAD


def _too_large(dir_fd: int, files: Collection[str], bases: Iterable[str]) -> Iterator[LoadFault]:
    """`FileRecords.open` and `AbstractIndex` take no file above `Integer.MAX_VALUE`."""
    for base in bases:
        for name in (base + LOG, base + OFFSET_INDEX, base + TIME_INDEX):
            if name not in files:
                continue
            try:
                size = os.stat(name, dir_fd=dir_fd).st_size
            except (FileNotFoundError, PermissionError):
                continue
            if size > _MOST_BYTES:
                yield LoadFault(LoadFile.LARGE, name, f"it has {size} bytes, and a broker reads {_MOST_BYTES} at most")


def _swap_fault(dir_fd: int, name: str) -> LoadFault | None:
    """The broker puts a `.swap` in the place of the segments that it was made from, whatever is in it."""
    try:
        with opened_regular(name, SEGMENT, dir_fd=dir_fd, follow=True) as fd:
            size, head = os.fstat(fd).st_size, os.pread(fd, _HEAD.size, 0)
    except (FileNotFoundError, PermissionError, UnreadableError):
        return None
    if size == 0:
        return LoadFault(LoadFile.EMPTY_SWAP, name, "it is empty")
    length = _HEAD.unpack(head)[1] if len(head) == _HEAD.size else size
    if RECORD_OVERHEAD_V0 <= length <= size - LOG_OVERHEAD:
        return None
    torn = length > size - LOG_OVERHEAD
    return LoadFault(LoadFile.TORN_SWAP if torn else LoadFile.SWAP, name, "it begins with what is no batch")


def _no_batch_at(dir_fd: int, base: str) -> int | None:
    """Where `LogSegment.readNextOffset` fails in the last segment; None if it does not. What is cut off within a batch
    is passed over."""
    return _walk(dir_fd, base)[0]


def _end_of(dir_fd: int, base: str) -> int:
    return _walk(dir_fd, base)[1]


def _walk(dir_fd: int, base: str) -> tuple[int | None, int]:
    """From the last entry of its index to where there is no whole batch: where that is no batch at all, and the offset
    after the last one."""
    end = int(base)
    try:
        with opened_regular(base + LOG, SEGMENT, dir_fd=dir_fd, follow=True) as fd:
            size = os.fstat(fd).st_size
            _, position = last_index_entry(dir_fd, base + OFFSET_INDEX, _INDEX_ENTRY) or (0, 0)
            position = position if 0 <= position < size else 0
            window, window_at = b"", position
            while size - position > HEADER_SIZE_UP_TO_MAGIC:
                if position + _HEADER_BYTES > window_at + len(window):
                    window, window_at = os.pread(fd, _WINDOW, position), position
                at = position - window_at
                if len(window) - at < _HEAD.size:
                    return None, end  # it became shorter
                first, length = _HEAD.unpack_from(window, at)
                if length < RECORD_OVERHEAD_V0:
                    return position, end
                if length + LOG_OVERHEAD > size - position:
                    return None, end
                delta = int.from_bytes(window[at + _DELTA_AT : at + _DELTA_AT + 4], "big", signed=True)
                end, position = first + max(delta, 0) + 1, position + LOG_OVERHEAD + length
    except (FileNotFoundError, PermissionError, UnreadableError):
        pass
    return None, end


def _foreign_version(dir_fd: int, name: str) -> int | None:
    """The version of the first entry that is of another one than Kafka writes; a torn entry at the end is ignored."""
    try:
        with opened_regular(name, INDEX, dir_fd=dir_fd, follow=True) as fd:
            position = 0
            while len(data := os.pread(fd, _ABORTED_BYTES * 1024, position)) >= _ABORTED_BYTES:
                for at in range(0, len(data) - _ABORTED_BYTES + 1, _ABORTED_BYTES):
                    version = int.from_bytes(data[at : at + 2], "big", signed=True)
                    if version != _ABORTED_VERSION:
                        return version
                position += len(data)
    except (FileNotFoundError, PermissionError, UnreadableError):
        pass
    return None


_TAIL = 4 << 20
_SERVER_LOG = FileLimit("a broker's log", 1 << 40)
_STARTS = re.compile(rb"\bstarting \(kafka\.server\.KafkaServer\)")
# The reason is in the words of the host's language; the length of the name is the same in all of them.
_RENAME = re.compile(rb"FileSystemException: (/[^\n]+) -> (/[^\n]+\.[0-9a-f]{32}-delete): ")
# Where a broker logs to by default, relative to the directory of server.properties (Apache's archive) and of the start
# script; the last one is that of packages.
_BESIDE_CONFIG = ("../logs", "../../logs")
_BY_SCRIPT = ("../logs",)
_PACKAGED = "/var/log/kafka"
_LOGS_DIR = b"-Dkafka.logs.dir="


def log_places(config: str | None, scripts: Iterable[str], pid: int | None, proc: str = "/proc") -> list[str]:
    """Where the log of this broker may be: what its running process says, or else the usual places."""
    if pid is not None and (logs_dir := _of_process(pid, proc)) is not None:
        return [f"{logs_dir}/server.log"]
    dirs = [os.path.join(os.path.dirname(os.path.realpath(script)), p) for script in scripts for p in _BY_SCRIPT]
    if config is not None:
        dirs += [os.path.join(os.path.dirname(os.path.realpath(config)), p) for p in _BESIDE_CONFIG]
    return list(dict.fromkeys(f"{os.path.normpath(d)}/server.log" for d in (*dirs, _PACKAGED)))


def _of_process(pid: int, proc: str) -> str | None:
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            words = file.read(1 << 20).split(b"\0")
    except OSError:
        return None
    return next((os.fsdecode(w[len(_LOGS_DIR) :]) for w in words if w.startswith(_LOGS_DIR + b"/")), None)


def failed_marks(paths: Iterable[str], log_dirs: Iterable[str]) -> dict[DirKey, str]:
    """The directories of `log_dirs` that could not be marked since the last start, with the log that says so. A log
    that cannot be read says nothing. `log_dirs`: as configured, and with links resolved."""
    wanted = frozenset(log_dirs)
    return {key: path for path in paths for key in _failed_in(path) if key.log_dir in wanted}


def _failed_in(path: str) -> Iterator[DirKey]:
    try:
        fd = open_regular(path, _SERVER_LOG, follow=True)
    except (OSError, UnreadableError):
        return
    try:
        size = os.fstat(fd).st_size
        text = os.pread(fd, _TAIL, max(0, size - _TAIL))
    except OSError:
        return
    finally:
        os.close(fd)
    start = max((match.end() for match in _STARTS.finditer(text)), default=0)
    for match in _RENAME.finditer(text, start):
        log_dir, _, name = os.fsdecode(match[1]).rpartition("/")
        if len(os.path.basename(match[2])) > MAX_NAME:
            yield DirKey(log_dir, name)
