"""What the kernel says of processes and mounts, and the Linux calls that Python lacks: `renameat2` with its flags,
`statx` for mount ids and attributes, `FIEMAP`, and `name_to_handle_at`, which says on which layer of an overlay a
directory is.

They take file descriptors, so that no path is resolved twice. `ctypes` is imported on first use, because commands that
only read do not need it. And what else only the system knows or does: who holds an `flock` (every user who may read a
file or directory may lock it, too), returning freed memory (glibc only), and Python's cyclic garbage collector, turned
off for a while.

`/proc` says a process's start time, its user, and what kind of program it is. `/proc/PID/mountinfo` is the mount table,
for ourselves or another process, and this is its only reader: bind mounts of the same device show nowhere else, and no
disk is touched.

A collection of 100,000 directories or a million partitions takes tenths of a second and stops every thread. Who removes
files turns it off, because it could fall between a look at the broker's lock and the unlink after it; who reads a
metadata log does, because what is read grows, and a fifth of the CPU time would go into looking at it again. Reference
counts go on freeing what is in no cycle.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

from logagent.base.files.safe_open import listed

# In the flags of /proc/PID/stat.
_PF_KTHREAD = 0x00200000
# Apache's (also in its Docker image) and Confluent's main classes.
_BROKER_CLASSES = (b"kafka.", b"org.apache.kafka.", b"io.confluent.")


def process_start_ticks(pid: int) -> int:
    """When `pid` started, in clock ticks since boot; together with the PID it identifies a process.

    Raises `ProcessLookupError` if there is no such process.
    """
    return int(_stat_fields(pid)[19])


def process_start_time_ms(pid: int) -> int:
    """When `pid` started, in milliseconds since the epoch (to the clock tick; the boot time is rounded to seconds).

    Raises `ProcessLookupError` if there is no such process.
    """
    with open("/proc/stat", "rb") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
    return booted * 1000 + process_start_ticks(pid) * 1000 // os.sysconf("SC_CLK_TCK")


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (the second, the command, may contain blanks and parentheses)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except FileNotFoundError as error:
        raise ProcessLookupError(error.errno, f"there is no process {pid}") from error


def command_name(pid: int) -> str:
    with open(f"/proc/{pid}/comm", "rb") as file:
        return os.fsdecode(file.read()).rstrip("\n")


def is_kernel_thread(pid: int) -> bool:
    """Whether it is a thread of the kernel, which has no files. False if that cannot be read."""
    try:
        return bool(int(_stat_fields(pid)[6]) & _PF_KTHREAD)
    except (OSError, ValueError, IndexError):
        return False


def command_line(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")


def ancestors() -> frozenset[int]:
    """The visible ancestors of this process: shells, `sudo`, the service manager."""
    pids: set[int] = set()
    pid = os.getppid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        try:
            pid = int(_stat_fields(pid)[1])
        except (OSError, ValueError, IndexError):
            break
    return frozenset(pids)


def is_java(command: str, words: list[bytes]) -> bool:
    """Whether the program itself is a JVM; words in its arguments do not count (`tail -F kafka/server.log` is not
    one)."""
    return command in ("java", "jsvc") or os.path.basename(words[0]) in (b"java", b"jsvc")


def is_kafka(pid: int) -> bool:
    """Whether a process is a JVM or has Kafka's main class on its command line; False if that cannot be read."""
    try:
        words = command_line(pid)
    except OSError:
        return False
    return b"kafka.Kafka" in words or os.path.basename(words[0]) == b"java"


def may_be_a_broker(words: list[bytes]) -> bool:
    """For a JVM: whether its command line has a main class of Kafka, is empty, or hides it in `java @FILE`."""
    hidden = not words[0] or any(word.startswith(b"@") for word in words[1:])
    return hidden or any(word.startswith(_BROKER_CLASSES) for word in words[1:])


def effective_user(pid: int, proc: str = "/proc") -> int:
    with open(f"{proc}/{pid}/status", "rb") as file:
        return next(int(line.split()[2]) for line in file if line.startswith(b"Uid:"))


def mount_namespace(pid: int | str) -> int:
    return os.stat(f"/proc/{pid}/ns/mnt").st_ino


def thread_states(pid: int, proc: str = "/proc") -> str:
    """The kernel's state letters of all threads of a process (`R`, `S`, `D` …); empty if there is no such process."""
    states = ""
    # Threads and processes end at any time; the states of the others still count.
    with suppress(OSError):
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with suppress(OSError, IndexError), open(f"{proc}/{pid}/task/{thread}/stat", "rb") as file:
                states += file.read(4096).rpartition(b")")[2].split()[0].decode("ascii", "replace")
    return states


_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


def process_listens(pid: int, port: int) -> bool:
    """Whether process `pid` has a TCP socket that listens on `port`, in our network namespace; False if unknown.

    A port that a starting broker has not bound yet can be taken by any local user, who could then answer in its place.
    """
    try:
        if os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
            return False
        wanted = _listening_inodes(pid, port)
        return bool(wanted) and not wanted.isdisjoint(_socket_inodes(pid))
    except OSError:
        return False


def listening_processes(port: int) -> Iterator[int]:
    """The processes that listen on the TCP port `port` of our network namespace, as far as we may see."""
    wanted = _listening_inodes("self", port)
    for name in os.listdir("/proc") if wanted else ():
        # Another user's process, or one that has just ended, is not seen.
        with suppress(OSError):
            if name.isdecimal() and not wanted.isdisjoint(_socket_inodes(int(name))):
                yield int(name)


def _listening_inodes(pid: int | str, port: int) -> frozenset[str]:
    inodes: set[str] = set()
    for table in ("tcp", "tcp6"):
        # A kernel without IPv6 has no tcp6.
        with suppress(FileNotFoundError), open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            for fields in (line.split() for line in lines):
                # sl, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode
                if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return frozenset(inodes)


def _socket_inodes(pid: int) -> set[str]:
    directory = f"/proc/{pid}/fd"
    inodes: set[str] = set()
    for number in os.listdir(directory):
        with suppress(FileNotFoundError):  # closed meanwhile
            link = os.readlink(f"{directory}/{number}")
            if link.startswith("socket:["):
                inodes.add(link[len("socket:[") : -1])
    return inodes


_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_AT_EMPTY_PATH = 0x1000
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_HANDLE_FID = 0x200
_AT_STATX_DONT_SYNC = 0x4000
_STATX_MNT_ID = 0x1000
_STATX_BASIC = 0x7FF
_STATX_SIZE = 256
# In struct statx: stx_attributes, stx_nlink, stx_uid, stx_mode, stx_size and stx_blocks.
_ATTRIBUTES = struct.Struct("=8xQII4xH10xQQ")
_IMMUTABLE = 0x10
_APPEND_ONLY = 0x20
# Offsets in struct statx: stx_mask, stx_btime (seconds), stx_dev (major, minor) and stx_mnt_id (Linux 5.8).
_MASK = struct.Struct("=I")
_MNT_ID = struct.Struct("=Q")
_MNT_ID_OFFSET = 144
_DEVICE = struct.Struct("=II")
_DEVICE_OFFSET = 136
# struct fiemap without extents: start, length, flags, mapped extents, room for extents, reserved.
_FIEMAP = struct.Struct("=QQIIII")
_FS_IOC_FIEMAP = 0xC020660B
# struct file_handle (bytes, type), then overlayfs's own: 3 bytes of padding, version, magic, length, flags.
_HANDLE = struct.Struct("=Ii3xxBxB")
_HANDLE_BYTES = 128
_OVERLAY_TYPE, _OVERLAY_MAGIC, _ON_UPPER_LAYER = 0xF8, 0xFB, 4


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    function = getattr(_libc(), "renameat2", None)  # glibc 2.28, musl 1.2.6
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)

    def call(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> int:
        return 0 if function(old_fd, old, new_fd, new, flags) == 0 else ctypes.get_errno()

    return call


def rename_noreplace(dir_fd: int, name: str, new_name: str, new_dir_fd: int) -> None:
    """Rename within one file system, atomically, or not at all; an existing `new_name` is never replaced.

    Raises `OSError`: EEXIST if `new_name` is taken (plain `rename` would silently replace an empty directory), EINVAL
    if the file system lacks the flag, ENOSYS if the system lacks the call. There is no fallback.
    """
    _rename(dir_fd, name, new_dir_fd, new_name, _RENAME_NOREPLACE)


def rename_exchange(dir_fd: int, name: str, other_name: str, other_dir_fd: int) -> None:
    """Exchange two names within one file system, atomically, or not at all; both must exist.

    Raises `OSError`: ENOENT if one of them does not exist, EXDEV across file systems, EINVAL and ENOSYS as for
    `rename_noreplace`.
    """
    _rename(dir_fd, name, other_dir_fd, other_name, _RENAME_EXCHANGE)


def _rename(dir_fd: int, name: str, new_dir_fd: int, new_name: str, flags: int) -> None:
    rename = _renameat2()
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)
    number = rename(dir_fd, os.fsencode(name), new_dir_fd, os.fsencode(new_name), flags)
    if number:
        raise OSError(number, os.strerror(number), name, None, new_name)


@cache
def _statx() -> Callable[[int, bytes, int, int], bytes | int] | None:
    """`statx` by directory, name, flags and mask: its answer, or the number of the error."""
    statx = getattr(_libc(), "statx", None)
    if statx is None:
        return None
    statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)

    buffer = ctypes.c_char * _STATX_SIZE

    def call(dir_fd: int, name: bytes, flags: int, mask: int) -> bytes | int:
        answer = buffer()
        return answer.raw if statx(dir_fd, name, flags, mask, answer) == 0 else ctypes.get_errno()

    return call


def _statx_of(fd: int, mask: int) -> bytes | None:
    """`statx` of an open file for the fields in the mask; None if the answer does not contain them."""
    statx = _statx()
    answer = statx(fd, b"", _AT_EMPTY_PATH, mask) if statx is not None else 0
    return answer if isinstance(answer, bytes) and _MASK.unpack_from(answer)[0] & mask else None


class Attributes(NamedTuple):
    """What decides whether a file may be removed, and its size. `fixed`: "immutable" or "append-only" if it is."""

    fixed: str | None
    links: int
    uid: int
    mode: int
    size: int
    blocks: int


def attributes(dir_fd: int, name: str = "") -> Attributes:
    """Of `name` in the open directory, or of the directory itself; no symlink is followed. Raises `OSError`.

    Where there is no `statx` (or a file system that does not tell), nothing is known to be immutable.
    """
    statx = _statx()
    flags = _AT_SYMLINK_NOFOLLOW if name else _AT_EMPTY_PATH
    answer = statx(dir_fd, os.fsencode(name), flags, _STATX_BASIC) if statx is not None else errno.ENOSYS
    if isinstance(answer, bytes):
        bits, links, uid, mode, size, blocks = _ATTRIBUTES.unpack_from(answer)
        fixed = "immutable" if bits & _IMMUTABLE else "append-only" if bits & _APPEND_ONLY else None
        return Attributes(fixed, links, uid, mode, size, blocks)
    if answer in (errno.ENOSYS, errno.EPERM):
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False) if name else os.fstat(dir_fd)
        return Attributes(None, found.st_nlink, found.st_uid, found.st_mode, found.st_size, found.st_blocks)
    raise OSError(answer, os.strerror(answer), name or None)


def on_lower_layer(fd: int) -> bool:
    """Whether the open directory comes from a lower layer of an overlay file system, alone or merged with one above it.

    Its file handle says so, from Linux 6.6 on. False where nothing does: an older kernel, another file system.
    """
    ask = getattr(_libc(), "name_to_handle_at", None)
    if ask is None:
        return False
    handle = ctypes.create_string_buffer(struct.pack("=I", _HANDLE_BYTES), 8 + _HANDLE_BYTES)
    flags = _AT_EMPTY_PATH | _AT_HANDLE_FID
    if ask(ctypes.c_int(fd), b"", handle, ctypes.byref(ctypes.c_int()), ctypes.c_int(flags)) != 0:
        return False
    _, kind, magic, bits = _HANDLE.unpack_from(handle.raw)
    return (kind, magic) == (_OVERLAY_TYPE, _OVERLAY_MAGIC) and not bits & _ON_UPPER_LAYER


def device_unasked(name: str, dir_fd: int) -> int:
    """The device (`st_dev`) of `name`, from what the kernel knows: the server behind a network or FUSE file system is
    not asked, because it may never answer. Symlinks are followed; only those of `/proc/PID/fd` lead to an open file
    without a lookup that could hang after all.

    Raises `OSError`. Where there is no `statx` (or a sandbox refuses it), plain `stat` answers.
    """
    statx = _statx()
    answer = statx(dir_fd, os.fsencode(name), _AT_STATX_DONT_SYNC, 0) if statx is not None else errno.ENOSYS
    if isinstance(answer, bytes):
        return os.makedev(*_DEVICE.unpack_from(answer, _DEVICE_OFFSET))
    if answer in (errno.ENOSYS, errno.EPERM):
        return os.stat(name, dir_fd=dir_fd).st_dev
    raise OSError(answer, os.strerror(answer), name)


def mount_id(fd: int) -> int:
    """The id of the mount that `fd` was opened through. It differs between bind mounts of one device; `st_dev` does
    not.

    Raises `OSError` if neither `statx` nor `/proc/self/fdinfo` has it: we do not guess.
    """
    answer = _statx_of(fd, _STATX_MNT_ID)
    return _fdinfo_mount_id(fd) if answer is None else int(_MNT_ID.unpack_from(answer, _MNT_ID_OFFSET)[0])


def is_hole(fd: int, start: int, end: int) -> bool:
    """Whether no disk space is allocated to the file from `start` to `end`. Space that was allocated in advance
    (`fallocate`) and never written is no hole, although SEEK_DATA says so: that is used only where FIEMAP is not
    supported (tmpfs). False if the file system supports neither."""
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_FIEMAP, _FIEMAP.pack(start, end - start, 0, 0, 0, 0))
        return int(_FIEMAP.unpack(answer)[3]) == 0
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EINVAL):
            return False
    try:
        return os.lseek(fd, start, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO  # no data from there on


def _fdinfo_mount_id(fd: int) -> int:
    with open(f"/proc/self/fdinfo/{fd}", "rb") as info:
        for line in info:
            if line.startswith(b"mnt_id:"):
                return int(line[7:])
    raise OSError(errno.ENOSYS, "the kernel does not report a mount id", f"/proc/self/fdinfo/{fd}")


def close_unlocked(fd: int) -> None:
    """Close a descriptor with which an `flock` may have been taken. A child of ours that hangs (`base/linux/access.py`)
    has it open, too, and would keep the lock."""
    with suppress(OSError):  # on a dead disk; closing it releases what nobody else has open
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def flock_holders(fd: int) -> list[int]:
    """The visible processes that took an `flock` on the file open as `fd`. A process that has ended is still listed
    while a child of it keeps the descriptor open."""
    status = os.fstat(fd)
    device, inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)
    with open("/proc/locks", encoding="ascii", errors="replace") as file:
        rows = [words for line in file if len(words := line.split()) >= 6 and words[1] == "FLOCK"]
    same = [(words[4], *words[5].rpartition(":")) for words in rows]
    # Some file systems (btrfs) report another device number in stat(2); then every file with that inode number counts.
    holders = [pid for pid, dev, _, ino in same if ino == inode and dev == device]
    return [int(pid) for pid in holders or [pid for pid, _, _, ino in same if ino == inode] if pid.isdecimal()]


def only_strangers(pids: Collection[int], users: Collection[int]) -> bool:
    """Whether there are any, and each has ended or belongs to none of `users`. False if one cannot be determined."""
    return bool(pids) and all(_is_stranger(pid, users) for pid in pids)


def _is_stranger(pid: int, users: Collection[int]) -> bool:
    try:
        os.kill(pid, 0)  # also finds a process that a /proc with hidepid does not show
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists, and belongs to another user
    try:
        return effective_user(pid) not in users
    except OSError:
        return False


_M_ARENA_MAX = -8


def share_one_arena() -> None:
    """Use one arena for all threads: ours wait for disks, not for memory. Call it before any thread is started."""
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return freed memory to the system (takes some milliseconds)."""
    malloc_trim = getattr(_libc(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


# Behind these is a server or process that may never answer: even `stat` of an open file waits for it.
_REMOTE = ("fuse", "nfs", "cifs", "smb", "9p", "ceph", "lustre", "afs", "virtiofs", "beegfs", "glusterfs")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table. device: as `st_dev` has it. options: of this mount; device_options: of the file system.
    root: the directory of the file system that is seen there. id: of the mount, as `mount_id` has it."""

    point: str
    kind: str
    source: str
    device: int
    options: frozenset[str]
    device_options: frozenset[str]
    root: str = "/"
    id: int = -1

    @property
    def remote(self) -> bool:
        """Whether it may hang for reasons other than this host's disks."""
        return self.kind.startswith(_REMOTE)


def mounts(process: int | str = "self") -> list[Mount]:
    """Every mount that the process sees, later ones after (and on top of) earlier ones. Raises OSError if the table
    cannot be read."""
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return parse_mounts(file)


def parse_mounts(lines: Iterable[bytes]) -> list[Mount]:
    """The mounts in a `mountinfo`; malformed lines are skipped."""
    return [m for line in lines if (m := _mount(line)) is not None]


def mount_of(path: str, table: Iterable[Mount]) -> Mount | None:
    """The mount that `path` (absolute, without symlinks) is on: the one with the longest mount point, and of those the
    last."""
    best: Mount | None = None
    for mount in table:
        below = path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def kind_of(fd: int) -> str:
    """The kind of the file system that `fd` is on; empty if the mount table does not say."""
    with suppress(OSError):
        own = mount_id(fd)
        return next((m.kind for m in mounts() if m.id == own), "")
    return ""


def mounted_children(dir_fd: int) -> frozenset[str]:
    """Names in the directory `dir_fd` that are mount points or have one below them. Raises OSError as `mounts` does."""
    prefix = os.readlink(f"/proc/self/fd/{dir_fd}").rstrip("/") + "/"
    below = (mount.point for mount in mounts())
    return frozenset(point[len(prefix) :].split("/", 1)[0] for point in below if point.startswith(prefix))


class RemoteMounts:
    """The file systems visible to a process that may hang, except those on `devices`.

    Empty if the mount table cannot be read.
    """

    def __init__(self, pid: int | str, devices: Collection[int]) -> None:
        try:
            # The last file system mounted at a point is the visible one.
            self._remote = {m.point: m.remote and m.device not in devices for m in mounts(pid)}
        except OSError:
            self._remote = {}
        self._prefixes = tuple(point.rstrip("/") + "/" for point, remote in self._remote.items() if remote)

    def holds(self, path: str) -> bool:
        """Whether `path`, as that process sees it, is on one of them."""
        if not f"{path}/".startswith(self._prefixes):
            return False
        place = path
        while place not in self._remote and place != "/":
            place = os.path.dirname(place)
        return self._remote.get(place, False)


def _mount(line: bytes) -> Mount | None:
    # Not split at runs of blanks: the source of a user's FUSE mount may be empty, its type any bytes.
    words = line.rstrip(b"\n").split(b" ")
    try:
        end = words.index(b"-", 6)
        kind, source, device_options = words[end + 1 : end + 4]
        major, minor = words[2].split(b":")
        device = os.makedev(int(major), int(minor))
    except ValueError:
        return None
    number = int(words[0]) if words[0].isdigit() else -1
    root, point = (os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), word)) for word in words[3:5])
    options = _options(words[5]), _options(device_options)
    return Mount(point, os.fsdecode(kind), os.fsdecode(source), device, *options, root, number)


def _options(word: bytes) -> frozenset[str]:
    return frozenset(os.fsdecode(word).split(","))


_FSTAB_ESCAPE = re.compile(r"\\([0-7]{3})")


def mount_points(unit_dirs: Iterable[str], content: Callable[[str], bytes]) -> list[str]:
    """Every mount point: the current ones, those in /etc/fstab, and those of `*.mount` units in `unit_dirs`; at boot
    the disks may not be mounted yet, nor those of a stopped broker.

    `content` reads a file; it returns nothing for one that cannot or must not be read. Raises OSError if the current
    mounts cannot be read.
    """
    points = [mount.point for mount in mounts()]
    for line in _lines(content("/etc/fstab")):
        fields = line.split()
        if len(fields) > 2 and not fields[0].startswith("#"):
            points.append(_FSTAB_ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[1]))
    for folder in unit_dirs:
        for name in listed(folder):
            if name.endswith(".mount"):
                lines = _lines(content(f"{folder}/{name}"))
                points += [line.partition("=")[2].strip() for line in lines if line.startswith("Where=")]
    return list(dict.fromkeys(os.path.normpath(m) for m in points if m.startswith("/")))


def _lines(data: bytes) -> list[str]:
    return os.fsdecode(data).splitlines()


class _Collector:
    """Counts who needs it off, in any thread: only the last one to leave turns it on again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._needing_it_off = 0
        self._was_enabled = False

    def turn_off(self) -> None:
        with self._lock:
            if self._needing_it_off == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._needing_it_off += 1

    def turn_on(self) -> None:
        with self._lock:
            self._needing_it_off -= 1
            if self._needing_it_off == 0 and self._was_enabled:
                gc.enable()


_COLLECTOR = _Collector()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Automatic collections are off within, in every thread; `gc.collect` works."""
    _COLLECTOR.turn_off()
    try:
        yield
    finally:
        _COLLECTOR.turn_on()
