"""The state dir, which holds the journal: its default path, its creation and its owner."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress

from logagent.errors import JournalError
from logagent.host.state.as_root import become, make_as_root

DEFAULT_STATE_DIR = "/var/lib/logagent"


def default_state_dir(environ: Mapping[str, str], default: str = DEFAULT_STATE_DIR, name: str = "logagent") -> str:
    """`/var/lib/logagent`, or `$XDG_STATE_HOME/logagent` for a user who can neither write to nor create that. For an
    instance (which passes its own `default` and `name`), `logagent-NAME` in either place."""
    writable = default if os.path.isdir(default) else os.path.dirname(default)
    if os.access(writable, os.W_OK | os.X_OK):
        return default
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")
    return os.path.join(home, name)


def prepare_state_dir(path: str, log_dirs: Sequence[str]) -> None:
    """Create the state dir (mode 0750) if it does not exist.

    As root: a state dir that this call creates is given to the owner of the log dirs (of the first one whose disk still
    answers), and then the process switches from root to the state dir's owner for good, so that nothing is ever created
    as root in a log dir of the broker's user. Root follows no symlink on the way, passes no directory that another user
    can write to, and gives away nothing that it did not create. Raises JournalError, also for a path in one of
    `log_dirs`: no broker starts with a directory such as `state` or `.local` in a log dir (and the home of the broker's
    user can be one).
    """
    try:
        _keep_out(path, log_dirs)
        if os.geteuid() == 0:
            like, log_dir = _first_of(log_dirs)
            owner = make_as_root(os.path.abspath(path), (like.st_uid, like.st_gid) if like is not None else None)
            if owner.st_uid == 0 and like is not None and like.st_uid != 0:
                raise JournalError(
                    f"the state dir {path} is root's, but the log dir {log_dir} belongs to user {like.st_uid}",
                    hint=f"chown -R {like.st_uid}:{like.st_gid} {shlex.quote(path)}, or name another with --state-dir",
                )
            become(owner)
        elif not os.path.isdir(path):
            os.makedirs(path, mode=0o750)
        if not os.access(path, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as e:
        raise JournalError(
            f"the state dir {path} cannot be used: {e.strerror}",
            hint="run as the broker's user, or name your own state dir with --state-dir",
        ) from e


def _first_of(log_dirs: Sequence[str]) -> tuple[os.stat_result | None, str | None]:
    """The first log dir that can be looked at; a dead disk must not stop the others. Raises OSError if there are log
    dirs and none can be: whose the state dir is would be a guess."""
    why: OSError | None = None
    for log_dir in log_dirs:
        try:
            return os.stat(log_dir), log_dir
        except OSError as error:
            why = error
    if why is not None:
        raise why
    return None, None


def _keep_out(path: str, log_dirs: Sequence[str]) -> None:
    log_dir = log_dir_above(path, log_dirs, unseen=FileNotFoundError)
    if log_dir is not None:
        raise JournalError(
            f"the state dir {path} is inside the log dir {log_dir}: no broker would start with it",
            hint="name a state dir elsewhere with --state-dir",
        )


def log_dir_above(path: str, log_dirs: Sequence[str], *, unseen: type[OSError] = OSError) -> str | None:
    """The log dir that `path` is or is in, by device and inode of every parent directory, because symlinks and bind
    mounts give one directory many paths. `unseen`: errors for which a parent directory is skipped."""
    known: dict[tuple[int, int], str] = {}
    for log_dir in log_dirs:
        with suppress(OSError):
            found = os.stat(log_dir)
            known[found.st_dev, found.st_ino] = log_dir
    above = os.path.realpath(path)
    while True:
        with suppress(unseen):
            found = os.stat(above)
            if (found.st_dev, found.st_ino) in known:
                return known[found.st_dev, found.st_ino]
        if above == "/":
            return None
        above = os.path.dirname(above)
