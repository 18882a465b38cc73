"""Inspects a log dir the way a starting broker will: formatting, checkpoints, links, owners and modes, space, files."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from logagent.advice.check.rules.start_facts import PathProblem, Room
from logagent.base.dir_names import METADATA_DIR, classify, parse_long
from logagent.base.errors import UnreadableError
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import LEADER_EPOCHS, NOWHERE, kind_of, leads_nowhere, opened_directory, read_regular
from logagent.base.linux.access import READ, SEARCH, WRITE, User, denied, in_words
from logagent.base.records import Denied, Identity, TopicPartition
from logagent.disk.log_dir import CLEAN_SHUTDOWN, OFFLINE_ERRNOS, OPEN_DIRECTORY, OpenLogDir
from logagent.kafka.files.checkpoint_files import (
    CHECKPOINTS,
    CLEANER,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    REPLICATION,
    TEMP_PREFIX,
    parse_epochs,
    read_checkpoint,
)
from logagent.kafka.files.load_faults import MOST_OFFSET, load_faults
from logagent.kafka.files.log_extent import LEADER_EPOCH_CHECKPOINT
from logagent.kafka.files.meta_properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_partition_metadata,
    read_meta_properties,
)
from logagent.kafka.metadata_log.log import snapshots_of
from logagent.kafka.node_files import CheckpointFault, LoadFault, LoadFile, MetaFile, MetaState
from logagent.kafka.processes.lock import LOCK_FILE

# Names that Kafka treats as a segment's file, which must have an offset before the first dot.
_SEGMENT_FILE = re.compile(r"(?s).*\.(?:log|index|timeindex|txnindex|snapshot|cleaned|swap)")
_USUAL = re.compile(r"[0-9]{20}\.(?:log|index|timeindex|txnindex|snapshot)")
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


def room_of(dir_fd: int) -> Room:
    vfs = os.fstatvfs(dir_fd)
    return Room(vfs.f_blocks * vfs.f_frsize, vfs.f_bavail * vfs.f_frsize, vfs.f_files, vfs.f_favail)


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
