"""One log dir whose open files are being looked for, and what a scan of `/proc` found in it."""

from __future__ import annotations

import os

from logagent.broker.process.lock import LOCK_FILE
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.records import Identity, RemovedFile

# What the kernel appends to the name of a removed file.
DELETED = " (deleted)"


class Watched:
    """A log dir during one scan of `/proc`, and what was found in it. Touches the disk only on construction."""

    def __init__(self, log_dir: str | OpenLogDir) -> None:
        if isinstance(log_dir, OpenLogDir):
            self.path = log_dir.path
            # The kernel's name for it: no disk is touched, so a hung one blocks nothing.
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
        # By process and file: the same one may be open several times, and a process is looked at twice if in doubt.
        self.removed: dict[tuple[int, Identity], RemovedFile] = {}

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
