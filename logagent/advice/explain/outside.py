"""What is on a file system besides given directories, as `du -x` counts, and which of it are log dirs.

Nothing here is changed, followed or opened but directories, and in what may be a log dir `meta.properties` and `.lock`.
It never leaves the file system: mount points are left out by the mount table before anything asks them (which alone
may hang, or mount what is behind an automount point), and a directory on another device is not entered. Each file
system is searched in a thread of its own, which is not waited for longer than its time.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from logagent.advice.explain.rules import DiskUsage, LogDirOutside, Outside, PlaceKind, Whose, summed_up, whose
from logagent.base.console.options import Call
from logagent.base.console.render import human_bytes, table
from logagent.base.dir_names import classify
from logagent.base.files.safe_open import open_directory
from logagent.base.linux.mounts import Mount, mount_of, mounts
from logagent.base.records import Kind
from logagent.cleanup.session.session import Session
from logagent.disk.bounded_calls import Task
from logagent.disk.log_dir import OPEN_CHILD
from logagent.kafka.files.meta_properties import META_PROPERTIES, read_meta_file
from logagent.kafka.processes.lock import query_lock

if TYPE_CHECKING:
    from logagent.advice.explain.documents import OutsideDoc

SECONDS: Final = 10.0
"""For how long one file system is searched."""
# A call to its disk may take longer than the time that is left.
_GRACE_SECONDS = 2.0
# Directories are held open on the way down. What is nested deeper was made by a mistake, or to do harm.
MOST_LEVELS: Final = 200
# Of what has several names, so many are remembered to be counted once.
MOST_LINKED: Final = 500_000
# What has less than this share of the used bytes has no line of its own in the end, and is not remembered.
_SHARE: Final = 1000
_LEAST: Final = 1 << 20
_MOST_PARTS: Final = 2 * _SHARE
_MOST_LOG_DIRS: Final = 1000
# How many entries are counted between two looks at the clock.
_TICK: Final = 256


def mount_points_of(path: str, device: int, table: Collection[Mount]) -> list[str]:
    """Where the file system `device` can be entered, on which the directory `path` (canonical) is: the mount that shows
    most of it comes first."""
    whole = sorted((m for m in table if m.device == device), key=lambda m: (len(m.root), len(m.point)))
    own = mount_of(path, table)
    return list(dict.fromkeys([m.point for m in whole] + ([own.point] if own is not None else [])))


@dataclass(frozen=True, slots=True)
class NotEntered:
    """What is not entered. `paths`: canonical, of log dirs and mount points. `inodes`: of the log dirs on the file
    system that is searched, wherever another mount shows them."""

    paths: Collection[str]
    inodes: Collection[int]


def search_outside(
    points: Iterable[str],
    device: int,
    left_out: NotEntered,
    used: int,
    seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> Outside | None:
    """Count what is below the first of `points` that is on `device`, for at most `seconds`; None if none can be opened.
    `used`: bytes used on the file system. A call to a disk that hangs takes as long as it takes."""
    for point in points:
        try:
            fd = open_directory(point)
        except OSError:
            continue
        found = os.fstat(fd)
        if found.st_dev == device and found.st_ino not in left_out.inodes:
            return _Search(device, left_out, used, monotonic() + seconds, monotonic).run(point, fd)
        os.close(fd)
        if found.st_dev == device:  # it is a log dir: nothing is outside
            return Outside(point)
    return None


class _OverError(Exception):
    """The search ends: `args[0]` says why."""


@dataclass(slots=True)
class _OpenDirectory:
    """An open directory on the way down. `partitions`: directories in it that are partitions by name and have
    segments; `is_partition`: it is one."""

    fd: int
    tree: DiskUsage
    name: str
    subdirs: list[str] = field(default_factory=list)
    has_meta: bool = False
    partitions: int = 0
    is_partition: bool = False


class _Search:
    def __init__(
        self,
        device: int,
        left_out: NotEntered,
        used: int,
        ends: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.inodes = left_out.inodes
        self.device, self.ends, self.monotonic = device, ends, monotonic
        self.least = max(used // _SHARE, _LEAST)
        self.left_out: dict[str, set[str]] = {}
        for path in left_out.paths:
            parent, _, name = path.rpartition("/")
            self.left_out.setdefault(parent or "/", set()).add(name)
        self.linked: set[int] = set()
        self.log_dirs: list[LogDirOutside] = []
        self.unread = 0
        self.ticks = 0

    def run(self, root: str, fd: int) -> Outside:
        """Takes `fd` over."""
        tree = DiskUsage(root)
        levels = [_OpenDirectory(fd, tree, "")]
        unfinished: str | None = None
        try:
            try:
                self._list(levels[0])
                while levels[0].subdirs or len(levels) > 1:
                    self._step(levels)
            except _OverError as over:
                unfinished = str(over)
            while len(levels) > 1:
                self._leave(levels)
        finally:
            for level in levels:
                os.close(level.fd)
        return summed_up(root, tree, self.log_dirs, unread=self.unread, unfinished=unfinished)

    def _step(self, levels: list[_OpenDirectory]) -> None:
        level = levels[-1]
        if not level.subdirs:
            self._leave(levels)
            return
        name = level.subdirs.pop()
        if len(levels) >= MOST_LEVELS:
            self.unread += 1
            return
        try:
            fd = os.open(name, OPEN_CHILD, dir_fd=level.fd)
        except OSError as error:
            # It was removed or replaced meanwhile; else it may not be read, or its disk fails.
            self.unread += error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
            return
        found = os.fstat(fd)
        if found.st_dev != self.device or found.st_ino in self.inodes:
            os.close(fd)
            return
        below = _OpenDirectory(fd, DiskUsage(f"{level.tree.path.rstrip('/')}/{name}"), name)
        levels.append(below)
        self._list(below)

    def _list(self, level: _OpenDirectory) -> None:
        """Count what is in it, and note its subdirectories."""
        tree, left_out = level.tree, self.left_out.get(level.tree.path, ())
        has_segments = False
        try:
            tree.allocated += os.fstat(level.fd).st_blocks * 512
            for entry in self._entries(level.fd):
                name = entry.name
                if name in left_out:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    level.subdirs.append(name)
                    continue
                self._count(tree, entry)
                if name == META_PROPERTIES:
                    level.has_meta = True
                elif len(name) == 24 and name.endswith(".log") and name[:20].isdigit():
                    has_segments = True
        except OSError:
            self.unread += 1
        level.is_partition = has_segments and classify(level.name).kind not in (Kind.INVALID, Kind.CACHE)

    def _entries(self, fd: int) -> Iterator[os.DirEntry[str]]:
        with os.scandir(fd) as entries:
            for entry in entries:
                self.ticks += 1
                if self.ticks % _TICK == 0 and self.monotonic() > self.ends:
                    raise _OverError("stopped at the time limit")
                yield entry

    def _count(self, tree: DiskUsage, entry: os.DirEntry[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        if found.st_nlink > 1:
            if found.st_ino in self.linked:
                return
            if len(self.linked) >= MOST_LINKED:
                raise _OverError(f"more than {MOST_LINKED} files have several names")
            self.linked.add(found.st_ino)
        size = found.st_blocks * 512
        tree.files += 1
        tree.allocated += size
        if size >= self.least:
            _add(tree, DiskUsage(f"{tree.path.rstrip('/')}/{entry.name}", True, size, 1))

    def _leave(self, levels: list[_OpenDirectory]) -> None:
        """Add the last level to the one above it, unless it is a log dir."""
        level, above = levels.pop(), levels[-1]
        try:
            above.partitions += level.is_partition
            if (level.has_meta or level.partitions) and self._is_log_dir(level):
                return
        finally:
            os.close(level.fd)
        above.tree.allocated += level.tree.allocated
        above.tree.files += level.tree.files
        if level.tree.allocated >= self.least:
            _add(above.tree, level.tree)

    def _is_log_dir(self, level: _OpenDirectory) -> bool:
        try:
            meta = read_meta_file(level.fd) if level.has_meta else None
        except OSError:
            meta = None
        cluster_id, node_id = (meta.cluster_id, meta.node_id) if meta is not None else (None, None)
        identified = cluster_id is not None or node_id is not None
        if not (identified or level.partitions) or len(self.log_dirs) >= _MOST_LOG_DIRS:
            return False
        held = query_lock(level.fd).held
        path, allocated = level.tree.path, level.tree.allocated
        self.log_dirs.append(LogDirOutside(path, allocated, level.partitions, cluster_id, node_id, held))
        return True


def _add(tree: DiskUsage, part: DiskUsage) -> None:
    tree.parts.append(part)
    if len(tree.parts) > _MOST_PARTS:  # what shares its blocks counts more than the file system uses
        tree.parts = sorted(tree.parts, key=lambda p: -p.allocated)[:_SHARE]


class OutsideSearch:
    """Begins at once, on every file system with a log dir that can be read."""

    def __init__(self, session: Session, log_dirs: Iterable[str], seconds: float = SECONDS) -> None:
        self._monotonic = session.clock.monotonic
        self._ends = self._monotonic() + seconds + _GRACE_SECONDS
        opened = session.log_dirs.opened()
        try:
            table = mounts()
        except OSError:  # then mount points cannot be told from directories
            table = []
        # Log dirs that are offline are not entered either.
        paths = {os.path.normpath(path) for path in log_dirs} | {m.point for m in table}
        canonical = {path: os.readlink(f"/proc/self/fd/{log_dir.fd}") for path, log_dir in opened.items()}
        self._tasks: dict[int, Task[Outside | None]] = {}
        for path, log_dir in opened.items():
            device = log_dir.identity.device
            if device in self._tasks or path not in session.inventory.by_log_dir or not table:
                continue
            inodes = frozenset(o.identity.inode for o in opened.values() if o.identity.device == device)
            search = partial(
                search_outside,
                mount_points_of(canonical[path], device, table),
                device,
                NotEntered(paths | set(canonical.values()), inodes),
                session.inventory.by_log_dir[path].used,
                seconds,
                self._monotonic,
            )
            self._tasks[device] = Task(f"logagent-outside {path}", search)
            self._tasks[device].start()

    def results(self) -> Mapping[int, Outside]:
        """By device; of one that does not answer, that it does not."""
        found: dict[int, Outside] = {}
        for device, task in self._tasks.items():
            if not task.join(max(self._ends - self._monotonic(), 0)):
                found[device] = Outside("", unfinished="the file system does not answer")
                continue
            try:
                outside = task.outcome()
            except OSError as error:
                outside = Outside("", unfinished=error.strerror or str(error))
            found[device] = outside or Outside("", unfinished="its mount point cannot be opened")
        return found


_WHOSE: Final = {
    Whose.METADATA_LOG_DIR: "metadata.log.dir of this node",
    Whose.THIS_NODE: "log dir of this node, not in its log.dirs",
    Whose.OTHER_NODE: "log dir of node {node} of this cluster",
    Whose.OTHER_CLUSTER: "log dir of node {node} of cluster {cluster}",
    Whose.UNKNOWN: "log dir without meta.properties",
}
_KINDS: Final = {
    PlaceKind.DIRECTORY: "{files} files",
    PlaceKind.REMAINDER: "{files} files (the rest of it)",
    PlaceKind.FILE: "file",
}


def outside_document(session: Session, outside: Outside) -> OutsideDoc:
    return {
        "root": outside.root,
        "log_dirs": [
            {
                "path": d.path,
                "whose": _whose(session, d),
                "cluster_id": d.cluster_id,
                "node_id": d.node_id,
                "partitions": d.partitions,
                "allocated": d.allocated,
                "in_use": d.in_use,
            }
            for d in outside.log_dirs
        ],
        "places": [
            {"path": p.path, "kind": p.kind, "allocated": p.allocated, "files": p.files} for p in outside.places
        ],
        "rest": outside.rest,
        "rest_files": outside.rest_files,
        "unread_directories": outside.unread,
        "unfinished": outside.unfinished,
    }


def show_outside(call: Call, session: Session, outside: Outside) -> None:
    """Log dirs and other places in one table, largest first; and what is missing from it."""
    lines = [(d.allocated, d.path, _of_log_dir(session, d)) for d in outside.log_dirs]
    lines += [(p.allocated, p.path, _KINDS[p.kind].format(files=f"{p.files:,}")) for p in outside.places]
    lines.sort(key=lambda line: -line[0])
    if outside.rest:
        lines.append((outside.rest, "", f"everything else, {outside.rest_files:,} files"))
    columns = [("allocated", "right"), ("what", "text"), ("path", "long")]
    rows = [[human_bytes(allocated), what, path] for allocated, path, what in lines]
    if rows:
        table(f"Outside the log dirs, below {outside.root}", columns, rows, color=call.color)
    if outside.unfinished is not None:
        where = f" (below {outside.root})" if outside.root else ""
        call.say(f"files outside the log dirs{where}: totals are partial ({outside.unfinished})")
    if outside.unread:
        call.say(f"not counted, because they could not be read, below {outside.root}: {outside.unread} folders")


def _of_log_dir(session: Session, d: LogDirOutside) -> str:
    words = _WHOSE[_whose(session, d)].format(node="?" if d.node_id is None else d.node_id, cluster=d.cluster_id or "?")
    return f"{words}, {d.partitions} partitions{', in use' if d.in_use else ''}"


def _whose(session: Session, d: LogDirOutside) -> Whose:
    cluster, target = session.log_dirs.cluster, session.target
    metadata_log_dir = target.server.metadata_log_dir if target.config is not None else None
    return whose(d, cluster.cluster_id, cluster.node_id, metadata_log_dir)
