"""Which processes have what open or mapped below the log dirs, read from `/proc` once per batch.

A broker keeps the `.log` descriptors and the index maps of everything it loaded, and may keep them after it gave a log
dir up, so "nobody has the lock" does not mean "nobody works here". This module only says what it saw and what it could
not see. It reads links by descriptor, not through psutil (several times slower for a broker's 20,000 files).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from logagent.broker.process.lock import LOCK_FILE
from logagent.host.linux.mounts import RemoteMounts
from logagent.host.linux.proc import (
    PF_KTHREAD,
    ancestors,
    command_and_flags,
    command_line,
    effective_user,
    is_java,
    may_be_a_broker,
    mount_namespace,
)
from logagent.host.log_dir.log_dir import OFFLINE_ERRNOS, OPEN_DIRECTORY, OpenLogDir
from logagent.model.records import Identity

_DELETED = " (deleted)"
# Never a file of a log dir; everything else that is no path (socket:, pipe:, anon_inode:) has no leading slash.
_PSEUDO = ("/proc/", "/sys/", "/memfd:")
_MAPPED = re.compile(rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) \d+ +(/.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What the processes of this host have open or mapped below the log dirs (keys: their configured paths).

    lock_pids: who has `.lock` open, an unlinked one too. dir_pids: per direct child directory, who has a file below it
    open or mapped. read: pids whose descriptors and maps were both read. unreadable: pids that refused to be read.
    doubtful: per log dir, those that may have something in it open and could not be seen through. Unreadable ones that
    may be its broker: a JVM of its owner, or one of root with a broker's main class; other words of a command line say
    nothing, and any host has processes that its agent cannot read (systemd's `(sd-pam)`, ssh-agent), so that refusing
    for each of them would be refusing always. Readable ones with a file on its device that cannot be found by its path.
    removed_bytes: per log dir, the allocated bytes of files that were removed while somebody had them open; the space
    comes back when they are closed. (Files that are only mapped any more cannot be sized and are missing.)
    """

    lock_pids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    dir_pids: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    read: frozenset[int] = frozenset()
    unreadable: frozenset[int] = frozenset()
    doubtful: Mapping[str, frozenset[int]] = field(default_factory=dict)
    removed_bytes: Mapping[str, int] = field(default_factory=dict)

    def users(self, log_dir: str, name: str) -> frozenset[int]:
        """Who has a file below the directory `name` of `log_dir` open or mapped."""
        return self.dir_pids.get(log_dir, {}).get(name, frozenset())

    def occupants(self, log_dir: str) -> frozenset[int]:
        """Who has `.lock` of `log_dir`, or anything in a directory in it, open or mapped."""
        return self.lock_pids.get(log_dir, frozenset()).union(*self.dir_pids.get(log_dir, {}).values())

    def could_read(self, pid: int | None) -> bool:
        """Whether everything that `pid` has open was seen. False for a process that was not found at all."""
        return pid in self.read


class Watched:
    """One log dir that is looked for, and what was found in it; for one scan. Asks the disk only when it is made."""

    def __init__(self, log_dir: str | OpenLogDir) -> None:
        if isinstance(log_dir, OpenLogDir):
            self.path = log_dir.path
            # What the kernel calls it: no disk is asked, so a hung one blocks nothing.
            self.real = os.readlink(f"/proc/self/fd/{log_dir.fd}")
            found = os.fstat(log_dir.fd)
        else:
            self.path = log_dir
            self.real = os.path.realpath(log_dir)
            found = os.stat(self.real)
        self.prefix = self.real.rstrip("/") + "/"
        self.identity = Identity(found.st_dev, found.st_ino)
        self.owner = found.st_uid
        self.lock_pids: set[int] = set()
        self.dir_pids: dict[str, set[int]] = {}
        self.doubtful: set[int] = set()
        self.removed: dict[tuple[int, int], int] = {}

    def note(self, below: str, pid: int) -> None:
        """A process has `below` open, a path relative to the log dir."""
        child, slash, _ = below.partition("/")
        if slash:
            self.dir_pids.setdefault(child, set()).add(pid)
        elif child in (LOCK_FILE, LOCK_FILE + _DELETED):
            self.lock_pids.add(pid)


class _Scan:
    def __init__(self, log_dirs: Iterable[str | OpenLogDir | Watched], avoid: Iterable[str] = ()) -> None:
        self.watched = [d if isinstance(d, Watched) else Watched(d) for d in log_dirs]
        # Only as we see it: to a container the same path can be a log dir that works.
        self._avoid = tuple(path.rstrip("/") + "/" for path in avoid)
        self._remote: dict[int, RemoteMounts] = {}
        self.prefixes = tuple(w.prefix for w in self.watched)
        self.devices = {w.identity.device for w in self.watched}
        # As /proc/PID/maps prints them; only a filter, so that most processes' maps are never split into lines.
        self.map_tokens = tuple(f" {os.major(d):02x}:{os.minor(d):02x} ".encode() for d in self.devices) + tuple(
            os.fsencode(w.prefix.replace("\n", "\\012")) for w in self.watched
        )
        self.read: set[int] = set()
        self.unreadable: set[int] = set()
        self._our_namespace = mount_namespace("self")
        self._above_us = ancestors()
        self._ancestors: dict[tuple[object, str], list[tuple[Watched, str]]] = {}
        self._lost: set[str] = set()
        self._roots: dict[int, str] = {self._our_namespace: ""}

    def process(self, pid: int) -> None:
        try:
            namespace = mount_namespace(pid)
            lost = self._look(pid, namespace)
            if lost and not lost.isdisjoint(self._look(pid, namespace)):
                # Not just renamed meanwhile: it is open on the device of a log dir, and where cannot be followed.
                for watched in self.watched:
                    watched.doubtful.add(pid)
        except PermissionError:
            self.unreadable.add(pid)
            self._judge_unreadable(pid)
        except (FileNotFoundError, ProcessLookupError):
            return  # it ended meanwhile
        else:
            self.read.add(pid)

    def _look(self, pid: int, namespace: int) -> set[str]:
        """Note what the process has open and mapped; returns the paths that lead nowhere."""
        self._lost = set()
        self._descriptors(pid, namespace)
        self._maps(pid, namespace)
        return self._lost

    def _descriptors(self, pid: int, namespace: int) -> None:
        same = namespace == self._our_namespace
        prefixes = self.prefixes if same else ()
        leave_out = (*_PSEUDO, *self._avoid) if same else _PSEUDO
        if namespace not in self._remote:
            self._remote[namespace] = RemoteMounts("self" if same else pid, self.devices)
        hangs = self._remote[namespace].holds
        ours: set[str] = set()
        others: set[str] = set()
        directory = os.open(f"/proc/{pid}/fd", OPEN_DIRECTORY)
        try:
            for number in os.listdir(directory):
                try:
                    link = os.readlink(number, dir_fd=directory)
                    if link.startswith(prefixes):
                        ours.add(link)
                        if link.endswith(_DELETED):
                            self._note_removed(link, os.stat(number, dir_fd=directory))
                    elif (
                        link.startswith("/")
                        and not link.startswith(leave_out)
                        and not hangs(link)
                        and os.stat(number, dir_fd=directory).st_dev in self.devices
                    ):
                        others.add(link)
                except (FileNotFoundError, ProcessLookupError):
                    continue  # closed meanwhile
                except OSError as error:
                    if error.errno == errno.ENAMETOOLONG:
                        self._judge_nameless(pid, number, directory)
                    elif error.errno not in OFFLINE_ERRNOS:
                        raise
                    # Else it lies on a failing disk: another one, for ours has just been opened.
        finally:
            os.close(directory)
        self._note(pid, namespace, ours, others)

    def _judge_nameless(self, pid: int, number: str, directory: int) -> None:
        """A path of over 4096 bytes cannot be read. On the device of a log dir it may lie in it, unless it is a
        directory, from which the way up can be followed."""
        try:
            device = os.stat(number, dir_fd=directory).st_dev
        except OSError:
            return  # closed meanwhile, or on a failing disk
        there = [w for w in self.watched if w.identity.device == device]
        if not there:
            return
        above = _directories_above(number, directory)
        for watched in there:
            if above is None or watched.identity in above:
                watched.doubtful.add(pid)

    def _note_removed(self, link: str, found: os.stat_result) -> None:
        """A file without a name any more, whose blocks its openers keep; each inode counts once."""
        if found.st_nlink == 0:
            for watched in self.watched:
                if link.startswith(watched.prefix):
                    watched.removed[found.st_dev, found.st_ino] = found.st_blocks * 512

    def _maps(self, pid: int, namespace: int) -> None:
        with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
            maps = file.readall()
        if not any(token in maps for token in self.map_tokens):
            return
        prefixes = self.prefixes if namespace == self._our_namespace else ()
        ours: set[str] = set()
        others: set[str] = set()
        for major, minor, raw in set(_MAPPED.findall(maps)):
            # The kernel prints a newline as \012 and that alone, so both readings are possible: note both.
            for path in {os.fsdecode(raw), os.fsdecode(raw.replace(b"\\012", b"\n"))}:
                if path.startswith(prefixes):
                    ours.add(path)
                elif os.makedev(int(major, 16), int(minor, 16)) in self.devices:
                    others.add(path)
        self._note(pid, namespace, ours, others)

    def _note(self, pid: int, namespace: int, ours: set[str], others: set[str]) -> None:
        for path in ours:
            for watched in self.watched:
                if path.startswith(watched.prefix):
                    watched.note(path[len(watched.prefix) :], pid)
        if not others:
            return
        root = self._root(pid, namespace)
        for path in others:
            directory, _, file = path.rpartition("/")
            if root is None or not (path.endswith(_DELETED) or os.path.lexists(root + (directory or "/"))):
                self._lost.add(path)
                continue
            for watched, below in self._reached(root, namespace, directory):
                watched.note(f"{below}/{file}" if below else file, pid)

    def _root(self, pid: int, namespace: int) -> str | None:
        """Where paths of a mount namespace begin, as we reach it: links in /proc are told from there, and not from the
        root of a process in a chroot. None where every process seen so far has a root of its own."""
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

    def _reached(self, root: str, namespace: int, directory: str) -> list[tuple[Watched, str]]:
        """The log dirs that `directory` of a mount namespace is or lies below: told by device and inode.

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

    def _judge_unreadable(self, pid: int) -> None:
        if pid in self._above_us:
            return  # `sudo -u kafka logagent ...` runs as root, has Kafka's name on its command line, and is no broker
        try:
            command, flags = command_and_flags(pid)
            user = effective_user(pid)
            words = command_line(pid)
        except (OSError, ValueError):
            return
        if flags & PF_KTHREAD or not is_java(command, words):
            return
        for watched in self.watched:
            if user == watched.owner or (user == 0 and may_be_a_broker(words)):
                watched.doubtful.add(pid)


def _directories_above(name: str, dir_fd: int) -> set[Identity] | None:
    """The directory `name` and all above it; None where it is no directory, or the way up cannot be followed."""
    above: set[Identity] = set()
    try:
        fd = os.open(name, OPEN_DIRECTORY, dir_fd=dir_fd)
        try:
            while True:
                found = os.fstat(fd)
                identity = Identity(found.st_dev, found.st_ino)
                if identity in above:
                    return above
                above.add(identity)
                up = os.open("..", OPEN_DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = up
        finally:
            os.close(fd)
    except OSError:
        return None


def scan_open_files(
    log_dirs: Iterable[str | OpenLogDir | Watched],
    pids: Iterable[int] | None = None,
    *,
    avoid: Iterable[str] = (),
) -> OpenFiles:
    """Look at every process (or only at `pids`; never at ourselves) for files below the log dirs.

    Descriptors and memory maps both count, deleted files included; containers and bind mounts are seen through by
    device and inode. `avoid`: where disks lie that may hang; nothing there is asked for. Raises `OSError` only if
    `/proc` or a log dir itself cannot be read.
    """
    scan = _Scan(log_dirs, avoid)
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
        doubtful={w.path: frozenset(w.doubtful) for w in scan.watched},
        removed_bytes={w.path: sum(w.removed.values()) for w in scan.watched},
    )
