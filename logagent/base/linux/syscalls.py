"""The Linux calls that Python lacks: `renameat2` with its flags, `statx` for mount ids and attributes, `FIEMAP`, and
`name_to_handle_at`, which says on which layer of an overlay a directory is.

They take file descriptors, so that no path is resolved twice. `ctypes` is imported on first use, because commands that
only read do not need it.

And what else only the system knows or does: who holds an `flock` (every user who may read a file or directory may
lock it, too), and returning freed memory (glibc only).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from logagent.base.linux.proc import effective_user

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
    """Close a descriptor with which an `flock` may have been taken. A child of ours that hangs (`base.linux.child`) has
    it open, too, and would keep the lock."""
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
