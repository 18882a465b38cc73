"""What a file system gets back when a directory is removed: the blocks of files that nothing else keeps."""

from __future__ import annotations

import os
import stat

from logagent.host.inventory.nested import nested_usage
from logagent.model.space import Space


def gives_back(dir_fd: int, *, held: bool = False, truncates_held: bool = False) -> Space:
    """What is freed at once when everything in the open directory, and the directory itself, is removed. Bytes are
    counted as `remove.Removed` counts them, without the blocks of the directory itself, so that a removal frees at
    least what was promised.

    A file with another hard link frees nothing. `held`: a serving broker has its files open; then only the `.log` files
    that are truncated before they are unlinked (`truncates_held`) free their bytes now, the rest when it closes them.
    Raises OSError as the disk does.

    Blocks that are shared with another file (`cp --reflink` on xfs and btrfs, snapshots of btrfs) count although they
    stay: only the extents of each file tell, one call per file and more for each that is fragmented. `remove.Removed`
    counts the same, so only `statvfs` afterwards shows it.
    """
    total, device = Space(0, 1), os.fstat(dir_fd).st_dev
    for name in os.listdir(dir_fd):
        try:
            found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode):
            total += nested_usage(dir_fd, name, device).alone
        elif found.st_nlink == 1 and (not held or (truncates_held and name.endswith(".log"))):
            total += Space(found.st_blocks * 512, 0 if held else 1)
    return total
