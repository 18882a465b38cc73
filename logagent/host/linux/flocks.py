"""Who holds an `flock`, by `/proc/locks`. Every user who may read a file or directory may lock it, too."""

from __future__ import annotations

import os
from collections.abc import Collection

from logagent.host.linux.proc import effective_user


def flock_holders(fd: int) -> list[int]:
    """The visible processes that took an `flock` on the file open as `fd`. A process that has ended is still listed
    while a child of it keeps the descriptor open."""
    found = os.fstat(fd)
    device, inode = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}", str(found.st_ino)
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
        pass
    try:
        return effective_user(pid) not in users
    except OSError:
        return False
