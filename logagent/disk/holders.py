"""Who holds a log dir: the lock and the open files of all processes, taken together.

A broker keeps the `.log` descriptors and the index maps of everything it loaded, and may keep them after it gave up a
log dir, so a free lock does not mean that no process uses the log dir. This module only reports what it saw and what it
could not see.

Open and mapped files are found in `/proc`, process by process, and matched against the watched log dirs. Links are read
by descriptor, not through psutil (several times slower for a broker's 20,000 files).

By path, where that leads to the same directory from here. A process of another mount namespace may have paths that do
not (`nsenter`, `docker exec`, the standard output of a container): what it has open is then compared with every file of
the log dirs, by device and inode.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from logagent.base.files.safe_open import opened_directory
from logagent.base.linux.kernel import (
    RemoteMounts,
    ancestors,
    command_line,
    command_name,
    device_unasked,
    effective_user,
    is_java,
    is_kernel_thread,
    may_be_a_broker,
    mount_namespace,
    mount_of,
    mounts,
    process_start_ticks,
    process_start_time_ms,
)
from logagent.base.records import Holder, HolderState, Identity, RemovedFile
from logagent.disk.log_dir import OFFLINE_ERRNOS, OpenLogDir
from logagent.kafka.files.segment_files import LOG, is_segment_file
from logagent.kafka.processes.lock import LOCK_FILE, process_named, query_lock

# What the kernel appends to the name of a removed file.
DELETED = " (deleted)"


class Watched:
    """A log dir during one scan of `/proc`, and what was found in it. Touches the disk only on construction."""

    def __init__(self, log_dir: str | OpenLogDir) -> None:
        if isinstance(log_dir, OpenLogDir):
            self.path = log_dir.path
            # The kernel's name for it: no disk is touched, so a hung one blocks nothing.
            self.real = os.readlink(f"/proc/self/fd/{log_dir.fd}")
            status = os.fstat(log_dir.fd)
        else:
            self.path = log_dir
            self.real = os.path.realpath(log_dir)
            status = os.stat(self.real)
        self.prefix = self.real.rstrip("/") + "/"
        self.identity = Identity(status.st_dev, status.st_ino)
        self.owner = status.st_uid
        self.lock_pids: set[int] = set()
        self.dir_pids: dict[str, set[int]] = {}
        # By process: a file of which nobody knows where it is, or None where none of its files can be read.
        self.doubtful: dict[int, str | None] = {}
        # By process and file: the same one may be open several times, and a process is looked at twice if in doubt.
        self.removed: dict[tuple[int, Identity], RemovedFile] = {}

    def names_by_inode(self) -> dict[int, str]:
        """The inodes of its `.lock` and of everything in its directories, by that file's or directory's name. Touches
        the disk; raises OSError."""
        found: dict[int, str] = {}
        waiting = [(self.real, "")]
        while waiting:
            path, child = waiting.pop()
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        name, is_dir = child or entry.name, entry.is_dir(follow_symlinks=False)
                        if is_dir:
                            waiting.append((entry.path, name))
                        if child or is_dir or name == LOCK_FILE:
                            found[entry.inode()] = name
            except FileNotFoundError:
                continue  # removed since
        return found

    @property
    def removed_bytes(self) -> int:
        """What the removed files that are still open take up; each counts once, whoever has it open."""
        return sum({file.identity: file.allocated for file in self.removed.values()}.values())

    def note_removed(self, path: str, pid: int, fd: int, found: os.stat_result) -> None:
        """Note that a process has a file open that has no name any more."""
        identity = Identity(found.st_dev, found.st_ino)
        file = RemovedFile(path, pid, fd, identity, found.st_size, found.st_blocks * 512)
        self.removed.setdefault((pid, identity), file)

    def is_used_by(self, pid: int) -> bool:
        """Whether a process has the lock file, or anything in one of the directories, open or mapped."""
        return pid in self.lock_pids or any(pid in pids for pids in self.dir_pids.values())

    def note(self, below: str, pid: int) -> None:
        """Note that a process has `below` open, a path relative to the log dir."""
        child, slash, _ = below.partition("/")
        if slash:
            self.dir_pids.setdefault(child, set()).add(pid)
        elif child in (LOCK_FILE, LOCK_FILE + DELETED):
            self.lock_pids.add(pid)


# Never a file of a log dir. Everything else that is not a path (socket:, pipe:, anon_inode:) has no leading slash.
_PSEUDO = ("/proc/", "/sys/", "/memfd:")
_MAPPED = re.compile(rb"^(\S+) \S+ \S+ ([0-9a-f]+:[0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE)
# Where a file is, if its path does not tell: device (None: not known) and inode.
_Place = tuple[int | None, int]


class ProcScan:
    """One scan of `/proc`; notes what it finds in `watched`."""

    def __init__(self, log_dirs: Iterable[str | OpenLogDir | Watched], avoid: Iterable[str] = ()) -> None:
        self.watched = [d if isinstance(d, Watched) else Watched(d) for d in log_dirs]
        # Only for paths as we see them: in a container the same path can be a healthy log dir.
        self._avoid = tuple(path.rstrip("/") + "/" for path in avoid)
        self._remote: dict[int, RemoteMounts] = {}
        self.prefixes = tuple(w.prefix for w in self.watched)
        self.devices = {w.identity.device for w in self.watched}
        # A cheap filter, so that most processes' maps are never split into lines.
        self.map_devices = _devices_in_maps(self.watched)
        self.map_tokens = tuple(os.fsencode(w.prefix.replace("\n", "\\012")) for w in self.watched) + tuple(
            b" " if device is None else b" %b " % device for device in self.map_devices
        )
        self.read: set[int] = set()
        self.unreadable: set[int] = set()
        self._our_namespace = mount_namespace("self")
        self._above_us = ancestors()
        self._ancestors: dict[tuple[object, str], list[tuple[Watched, str]]] = {}
        self._lost: dict[str, _Place] = {}
        self._inodes: dict[str, dict[int, str]] = {}
        # (mount namespace, directory) that were seen to be there: what processes have mapped is much the same.
        self._there: set[tuple[int, str]] = set()
        self._roots: dict[int, str] = {self._our_namespace: ""}

    def process(self, pid: int) -> None:
        """Raises OSError if a log dir cannot be read."""
        try:
            namespace = mount_namespace(pid)
            lost = self._look(pid, namespace)
            if lost:  # not merely renamed since?
                lost = {path: place for path, place in self._look(pid, namespace).items() if path in lost}
        except PermissionError:
            if is_kernel_thread(pid):
                return
            self.unreadable.add(pid)
            self._judge_unreadable(pid)
            return
        except (FileNotFoundError, ProcessLookupError):
            return  # it has ended
        self.read.add(pid)
        self._find(pid, lost)

    def _look(self, pid: int, namespace: int) -> dict[str, _Place]:
        """Note what the process has open and mapped; returns the paths that do not lead anywhere from here."""
        self._lost = {}
        self._descriptors(pid, namespace)
        self._maps(pid, namespace)
        return self._lost

    def _find(self, pid: int, lost: Mapping[str, _Place]) -> None:
        """Note those that are in a log dir after all, by device and inode. In doubt only: what was removed, and may
        have been a broker's."""
        for path, (device, inode) in lost.items():
            for watched in (w for w in self.watched if device in (None, w.identity.device)):
                if watched.path not in self._inodes:
                    self._inodes[watched.path] = watched.names_by_inode()
                name = self._inodes[watched.path].get(inode)
                if name == LOCK_FILE:
                    watched.lock_pids.add(pid)
                elif name is not None:
                    watched.dir_pids.setdefault(name, set()).add(pid)
                elif path.endswith(DELETED) and _may_be_a_brokers(path.removesuffix(DELETED)):
                    watched.doubtful[pid] = path

    def _descriptors(self, pid: int, namespace: int) -> None:
        same = namespace == self._our_namespace
        prefixes, leave_out = (self.prefixes, (*_PSEUDO, *self._avoid)) if same else ((), _PSEUDO)
        hangs = self._mounts("self" if same else pid, namespace).holds
        ours: set[str] = set()
        others: dict[str, _Place] = {}
        removed: list[tuple[str, str, os.stat_result]] = []
        with opened_directory(f"/proc/{pid}/fd") as directory:
            for number in os.listdir(directory):
                try:
                    link = os.readlink(number, dir_fd=directory)
                    if link.startswith(prefixes):
                        ours.add(link)
                        if link.endswith(DELETED):
                            self._note_removed(pid, number, link, os.stat(number, dir_fd=directory))
                    elif (
                        link.startswith("/")
                        and not link.startswith(leave_out)
                        and not self._is_elsewhere(namespace, link)
                        and not hangs(link)
                        and device_unasked(number, directory) in self.devices
                    ):
                        status = os.stat(number, dir_fd=directory)
                        place = status.st_dev, status.st_ino
                        if (namespace, link.rpartition("/")[0]) in self._ancestors:
                            others[link] = place
                        else:
                            self._note(pid, namespace, set(), {link: place})
                        if link.endswith(DELETED):
                            removed.append((number, link, status))
                except (FileNotFoundError, ProcessLookupError):
                    continue  # closed since
                except OSError as error:
                    if error.errno == errno.ENAMETOOLONG:
                        self._judge_nameless(pid, number, directory)
                    elif error.errno not in OFFLINE_ERRNOS:  # on a failing disk: none of ours, which were just opened
                        raise
        self._note(pid, namespace, ours, others)
        for number, link, seen in removed:
            self._note_removed_elsewhere(pid, namespace, number, link, seen)

    def _judge_nameless(self, pid: int, number: str, directory: int) -> None:
        """A path of over 4096 bytes cannot be read."""
        with suppress(OSError):  # closed since, or on a failing disk
            if device_unasked(number, directory) in self.devices:
                status = os.stat(number, dir_fd=directory)
                self._lost[f"descriptor {number}"] = status.st_dev, status.st_ino

    def _mounts(self, seen_by: int | str, namespace: int) -> RemoteMounts:
        if namespace not in self._remote:
            self._remote[namespace] = RemoteMounts(seen_by, self.devices)
        return self._remote[namespace]

    def _note_removed(self, pid: int, number: str, link: str, found: os.stat_result) -> None:
        """A removed file whose blocks stay allocated while it is open. The kernel gives the name that it had last, also
        if its directory was removed with it, and the present names of directories that were renamed since."""
        if found.st_nlink == 0:
            for watched in self.watched:
                if link.startswith(watched.prefix):
                    path = link[len(watched.prefix) :].removesuffix(DELETED)
                    watched.note_removed(path, pid, int(number), found)

    def _note_removed_elsewhere(self, pid: int, namespace: int, number: str, link: str, found: os.stat_result) -> None:
        """The same below another path of a log dir, such as that of a container. A segment of a directory that had been
        moved out of the log dir counts, too, if the process uses that log dir."""
        root = self._root(pid, namespace)
        if found.st_nlink or root is None:
            return
        path = link.removesuffix(DELETED)
        directory, _, file = path.rpartition("/")
        reached = self._reached(root, namespace, directory)
        for watched, below in reached:
            watched.note_removed(f"{below}/{file}" if below else file, pid, int(number), found)
        if not reached and is_segment_file(file, LOG):
            used = (w for w in self.watched if w.identity.device == found.st_dev and w.is_used_by(pid))
            for watched in used:
                watched.note_removed(path, pid, int(number), found)
                break

    def _maps(self, pid: int, namespace: int) -> None:
        with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
            maps = file.readall()
        if not any(token in maps for token in self.map_tokens):
            return
        prefixes = self.prefixes if namespace == self._our_namespace else ()
        ours: set[str] = set()
        others: dict[str, tuple[bytes, int]] = {}
        for address, device, inode, raw in _MAPPED.findall(maps):
            # The kernel escapes only the newline (as \012), so both readings are possible: note both.
            readings = {raw, raw.replace(b"\\012", b"\n")} if b"\\012" in raw else (raw,)
            for path in map(os.fsdecode, readings):
                if path.startswith(prefixes):
                    ours.add(path)
                elif (
                    not self.map_devices.isdisjoint((None, device))
                    and not path.startswith(_PSEUDO)
                    and not self._is_elsewhere(namespace, path)
                ):
                    others[path] = address, int(inode)
        before = self._lost
        self._lost = {}
        self._note(pid, namespace, ours, dict.fromkeys(others, (None, 0)))
        self._lost = before | {path: _mapped(pid, *others[path]) for path in self._lost}

    def _note(self, pid: int, namespace: int, ours: set[str], others: Mapping[str, _Place]) -> None:
        for path in ours:
            for watched in self.watched:
                if path.startswith(watched.prefix):
                    watched.note(path[len(watched.prefix) :], pid)
        if not others:
            return
        root = self._root(pid, namespace)
        for path, place in others.items():
            directory, _, file = path.rpartition("/")
            removed = path.endswith(DELETED)
            if root is None or (
                _is_covered(root, directory, place[0]) if removed else not self._is_there(root, namespace, directory)
            ):
                self._lost[path] = place
                continue
            for watched, below in self._reached(root, namespace, directory):
                watched.note(f"{below}/{file}" if below else file, pid)

    def _root(self, pid: int, namespace: int) -> str | None:
        """The root of a mount namespace, by a path that we can reach: links in /proc are relative to it, not to the
        root of a process in a chroot. None while every process seen so far has its own root."""
        if namespace not in self._roots:
            root = f"/proc/{pid}/root"
            try:
                program = os.readlink(f"/proc/{pid}/exe")
                if not os.path.samefile(f"/proc/{pid}/exe", root + program):
                    return None
            except OSError:
                return None
            self._roots[namespace] = root
        return self._roots[namespace]

    def _is_there(self, root: str, namespace: int, directory: str) -> bool:
        """Whether `directory` exists. Once found it is not checked again during this scan, as `_reached` resolves each
        directory only once; a missing one is."""
        key = (namespace, directory)
        if key not in self._there and os.path.lexists(root + (directory or "/")):
            self._there.add(key)
        return key in self._there

    def _reached(self, root: str, namespace: int, directory: str) -> list[tuple[Watched, str]]:
        """The log dirs that `directory` of a mount namespace is, or is below, by device and inode.

        A container, or a bind mount on this very host, has other paths for the same directories.
        """
        key = (namespace, directory)
        if key not in self._ancestors:
            self._ancestors[key] = found = []
            parts = directory.split("/")
            for end in range(len(parts), 0, -1):
                try:
                    seen = os.stat(root + ("/".join(parts[:end]) or "/"))
                except OSError:
                    continue
                identity = Identity(seen.st_dev, seen.st_ino)
                found += [(w, "/".join(parts[end:])) for w in self.watched if w.identity == identity]
        return self._ancestors[key]

    def _is_elsewhere(self, namespace: int, path: str) -> bool:
        """Whether this scan has already resolved the directory of `path`, and it is in none of the log dirs: a broker
        has many files open in each of its directories, and all but the first need no look. A removed file may have been
        in another directory of that name."""
        key = (namespace, path.rpartition("/")[0])
        return key in self._there and self._ancestors.get(key) == [] and not path.endswith(DELETED)

    def _judge_unreadable(self, pid: int) -> None:
        if pid in self._above_us:
            return  # `sudo -u kafka logagent ...` runs as root with "kafka" on its command line, but is not a broker
        try:
            command = command_name(pid)
            user = effective_user(pid)
            words = command_line(pid)
        except (OSError, ValueError):
            return
        if not is_java(command, words):
            return
        for watched in self.watched:
            if user == watched.owner or (user == 0 and may_be_a_broker(words)):
                watched.doubtful[pid] = None


def _devices_in_maps(watched: Iterable[Watched]) -> frozenset[bytes | None]:
    """How /proc/PID/maps prints the devices of the log dirs: the file system's own, which on btrfs is not that of
    `stat` (each subvolume has one). None where it may print any (overlay)."""
    table = mounts()
    found: set[bytes | None] = set()
    for w in watched:
        mount = mount_of(w.real, table)
        known = {w.identity.device} if mount is None else {w.identity.device, mount.device}
        found.update(f"{os.major(d):02x}:{os.minor(d):02x}".encode() for d in known)
        if mount is None or mount.kind == "overlay":
            found.add(None)
    return frozenset(found)


def _is_covered(root: str, directory: str, device: int | None) -> bool:
    """Whether a removed file of that device was not below `directory` as it is now: something is mounted over it."""
    if device is None:
        return False
    while directory:
        try:
            return os.stat(root + directory).st_dev != device
        except OSError:
            directory = directory.rpartition("/")[0]
    return os.stat(root + "/").st_dev != device


def _mapped(pid: int, address: bytes, inode: int) -> _Place:
    """Where a mapped file is. Only root may follow such a link; the inode is in the table of maps, too."""
    start, _, end = address.partition(b"-")
    try:
        status = os.stat(f"/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}")
    except OSError:
        return None, inode
    return status.st_dev, status.st_ino


def _may_be_a_brokers(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name == LOCK_FILE or any(is_segment_file(name, suffix) for suffix in (LOG, ".index", ".timeindex"))


__all__ = [
    "OpenFiles",
    "holder_of",
    "process_start_ticks",
    "process_start_time_ms",
    "scan_open_files",
]


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What the processes of this host have open or mapped below the log dirs (keys: their configured paths).

    lock_pids: PIDs that have `.lock` open, even an unlinked one. dir_pids: per direct child directory, PIDs that
    have a file below it open or mapped. read: PIDs whose descriptors and maps were both read. unreadable: PIDs that
    we may not read (not the kernel's threads, which have no files). doubtful: per log dir, PIDs that may have
    something open in it that we cannot see. These are unreadable processes that may be its broker (a JVM of its
    owner, or one of root with a broker's main class; nothing else on a command line counts, because every host has
    processes that its agent cannot read, such as systemd's `(sd-pam)` or ssh-agent, and refusing for each of them
    would mean refusing always), and readable ones with a removed file on its device that may have been in it.
    removed_bytes: per log dir, the allocated bytes of files that were removed while a process had them open; the
    space is freed when they are closed. (Files that are only mapped cannot be measured and are missing.)
    removed_files: these files, one for each process that has it open.
    """

    lock_pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    dir_pids: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    read: frozenset[int] = frozenset()
    unreadable: frozenset[int] = frozenset()
    doubtful: Mapping[str, Mapping[int, str | None]] = field(default_factory=dict)
    removed_bytes: Mapping[str, int] = field(default_factory=dict)
    removed_files: Mapping[str, tuple[RemovedFile, ...]] = field(default_factory=dict)

    def users(self, log_dir: str, name: str) -> frozenset[int]:
        """PIDs that have a file below the directory `name` of `log_dir` open or mapped."""
        return self.dir_pids.get(log_dir, {}).get(name, frozenset())

    def occupants(self, log_dir: str) -> frozenset[int]:
        """PIDs that have `.lock` of `log_dir`, or anything in one of its directories, open or mapped."""
        return self.lock_pids.get(log_dir, frozenset()).union(*self.dir_pids.get(log_dir, {}).values())

    def doubt(self, log_dir: str) -> tuple[int, str] | None:
        """A process of which it is not known whether it uses the log dir, and why, in words."""
        doubtful = self.doubtful.get(log_dir, {})
        if not doubtful:
            return None
        pid = min(doubtful)
        if (path := doubtful[pid]) is None:
            return pid, f"the open files of process {pid}, which may be a broker, cannot be read"
        return pid, f"process {pid} has {path} open, and nobody can tell whether it was in this log dir"

    def could_read(self, pid: int | None) -> bool:
        """Whether everything that `pid` has open was seen. False if the process was not found."""
        return pid in self.read


def scan_open_files(
    log_dirs: Iterable[str | OpenLogDir | Watched],
    pids: Iterable[int] | None = None,
    *,
    avoid: Iterable[str] = (),
) -> OpenFiles:
    """Look for files below the log dirs in every process (or only in `pids`; never in ourselves).

    Descriptors and memory maps both count, deleted files included; paths in containers and bind mounts are resolved by
    device and inode. `avoid`: paths of disks that may hang; nothing below them is touched. Raises `OSError` only if
    `/proc` or a log dir itself cannot be read.
    """
    scan = ProcScan(log_dirs, avoid)
    if pids is None:
        pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    for pid in pids:
        if pid != os.getpid():
            scan.process(pid)
    return OpenFiles(
        lock_pids={w.path: frozenset(w.lock_pids) for w in scan.watched},
        dir_pids={w.path: {name: frozenset(pids) for name, pids in w.dir_pids.items()} for w in scan.watched},
        read=frozenset(scan.read),
        unreadable=frozenset(scan.unreadable),
        doubtful={w.path: dict(w.doubtful) for w in scan.watched},
        removed_bytes={w.path: w.removed_bytes for w in scan.watched},
        removed_files={w.path: tuple(w.removed.values()) for w in scan.watched},
    )


def holder_of(dir_fd: int, log_dir: str, open_files: OpenFiles) -> Holder:
    """Who holds the log dir: `.lock` is read now, the rest comes from `open_files`.

    A process with the lock is reported as STARTING: whether it serves is found out elsewhere. HIDDEN: no process has
    the lock, but one has `.lock` (perhaps an unlinked one) or files below the log dir open. UNREADABLE: `.lock` cannot
    be read, or the files of a process that may be this log dir's broker cannot.
    """
    seen = query_lock(dir_fd)
    if not seen.readable:
        why = os.strerror(seen.errno) if seen.errno is not None else "it is not a regular file"
        return Holder(HolderState.UNREADABLE, detail=f"{LOCK_FILE} cannot be read: {why}")
    if seen.held:
        pid = seen.pid
        if pid is None:
            # A lock from another PID namespace shows no PID; if only one process has the file open, it is that one.
            candidates = open_files.lock_pids.get(log_dir, frozenset())
            pid = next(iter(candidates)) if len(candidates) == 1 else None
        detail = None if open_files.could_read(pid) else "its open files cannot be read"
        return Holder(HolderState.STARTING, pid, _start_time_or_none(pid), detail)
    shared = process_named(seen.pid) if seen.shared else None
    occupants = open_files.occupants(log_dir)
    if occupants:
        pid = min(occupants)
        what = LOCK_FILE if pid in open_files.lock_pids.get(log_dir, frozenset()) else "files"
        others = f" (and {len(occupants) - 1} more)" if len(occupants) > 1 else ""
        detail = f"process {pid}{others} has {what} open, without the lock"
        lock_open_by = tuple(sorted(open_files.lock_pids.get(log_dir, frozenset())))
        return Holder(HolderState.HIDDEN, pid, _start_time_or_none(pid), detail, lock_open_by, shared)
    doubt = open_files.doubt(log_dir)
    if doubt is not None:
        return Holder(HolderState.UNREADABLE, doubt[0], _start_time_or_none(doubt[0]), doubt[1])
    return Holder(HolderState.FREE, shared_lock=shared)


def open_lock_files(pid: int) -> frozenset[str] | None:
    """The `.lock` files that a process has open, including unlinked ones, by their paths as it sees them; None if it
    cannot be read. Touches no disk."""
    directory = f"/proc/{pid}/fd"
    found: set[str] = set()
    try:
        for number in os.listdir(directory):
            with suppress(FileNotFoundError):
                link = os.readlink(f"{directory}/{number}").removesuffix(" (deleted)")
                if link.endswith(f"/{LOCK_FILE}"):
                    found.add(link)
    except OSError:
        return None
    return frozenset(found)


def shares_our_mounts(pid: int) -> bool:
    """Whether paths mean the same to a process as to us (False if unknown)."""
    try:
        return mount_namespace(pid) == mount_namespace("self")
    except OSError:
        return False


def _start_time_or_none(pid: int | None) -> int | None:
    try:
        return None if pid is None else process_start_time_ms(pid)
    except OSError:
        return None
