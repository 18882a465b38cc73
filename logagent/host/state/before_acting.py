"""Looks at the state dir for what a later act needs of it. Changes nothing."""

from __future__ import annotations

import errno
import os

from logagent.errors import JournalError
from logagent.host.state.reserve import ENOUGH_BYTES, RESERVE_NAME, lacks_room_for_journal, lacks_room_for_reserve
from logagent.host.state.state_dir import check_writable, hint_on, nearest_directory, unusable


def look_before_acting(path: str) -> JournalError | None:
    """Why a command that acts could not use the state dir `path` now, as far as looking shows it."""
    directory = nearest_directory(path)
    try:
        if directory != path and os.path.lexists(path):
            return unusable(path, errno.ENOTDIR)
        check_writable(directory)
    except OSError as e:
        return unusable(path, e.errno)
    return unusable(path, errno.ENOSPC) if lacks_room_for_journal(directory, path) else None


def missing_reserve(path: str) -> str | None:
    """What to say where the state dir `path` has no reserve, and no room for one."""
    if not lacks_room_for_reserve(nearest_directory(path), path):
        return None
    return (
        f"the state dir {path} has no {RESERVE_NAME}, for which {ENOUGH_BYTES >> 20} MiB have to be free there: once"
        f" that disk is full nothing may be removed any more; {hint_on(errno.ENOSPC)}"
    )
