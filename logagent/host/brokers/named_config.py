"""The configuration that a process names on its command line, read before it is known whether to believe that process.

Any local user can name any path, even one on a file system of her own that never answers. So only a child process
touches it, and only for a limited time: see `TimeLimits`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from logagent.broker.files.server_properties import read_server_properties
from logagent.broker.process.version import Launch
from logagent.errors import LogAgentError
from logagent.host.brokers.systemd_units import under
from logagent.host.brokers.usual_places import is_sample
from logagent.host.linux.child import ask_as

# For everything that the processes of one user name, and for all otherwise unknown users together: a user with
# subordinate UIDs has 65,536 of them.
_SECONDS = 2.0
_STRANGERS_SECONDS = 6.0


class TimeLimits:
    """How long to wait for paths that processes name. `known`: users known to run brokers here by more than their own
    claim."""

    def __init__(self, known: Collection[int]) -> None:
        self._known = frozenset(known)
        self._left: dict[int, float] = {}
        self._strangers = _STRANGERS_SECONDS

    def ask(self, user: int, question: Callable[[], Any]) -> Any:
        """What `question` returns (anything that JSON can hold), asked by a child on behalf of a process of `user`.

        Raises TimeoutError if that user's time is used up, OSError if the child ended without an answer.
        """
        left = self._left.get(user, _SECONDS)
        if user not in self._known:
            left = min(left, self._strangers)
        if left <= 0:
            raise TimeoutError(f"out of time for paths that user {user} names")
        started = time.monotonic()
        try:
            return ask_as(None, question, left)
        finally:
            spent = time.monotonic() - started
            self._left[user] = left - spent
            if user not in self._known:
                self._strangers -= spent


@dataclass(frozen=True, slots=True)
class NamedConfig:
    """A configuration, by its path as the process sees it. `file`: device and inode. `answers`: whether it could be
    read in time; if not, or if it cannot be read, the rest is empty."""

    path: str
    file: tuple[int, int] | None = None
    answers: bool = True
    log_dirs: tuple[str, ...] = ()
    controller: bool = False
    shipped: bool = False


def named_config(launch: Launch, pid: int, user: int, root: str, time_limits: TimeLimits) -> NamedConfig | None:
    """None if there is no such file at that path: the process runs in a container, or its working directory cannot be
    read."""
    process = f"{under(root, '/proc')}/{pid}"
    config = launch.config
    if not os.path.isabs(config):
        try:
            config = os.path.join(os.readlink(f"{process}/cwd"), config)
        except OSError:
            return None
    try:
        seen = time_limits.ask(user, lambda: _look(config, process, root))
    except OSError:
        return NamedConfig(under(root, config), answers=False)
    if seen is None:
        return None
    override = launch.overrides.get("log.dirs", "")
    named = [d for d in override.split(",") if d] or seen["log_dirs"]
    return NamedConfig(
        seen["path"],
        tuple(seen["file"]) if seen["file"] is not None else None,
        True,
        tuple(under(root, d) for d in named),
        seen["controller"],
        seen["shipped"],
    )


def _look(config: str, process: str, root: str) -> dict[str, Any] | None:
    """Runs in the child."""
    here = under(root, config)
    if ".." in config.split("/"):
        here = os.path.realpath(here)
    found: dict[str, Any] = {"path": here, "file": None, "log_dirs": [], "controller": False, "shipped": False}
    try:
        seen = os.stat(here)
    except PermissionError:
        return found
    except OSError:
        return None
    try:
        # In a container the same path is another file.
        if not os.path.samestat(seen, os.stat(f"{process}/root{config}")):
            return None
    except OSError:
        pass
    found["file"] = [seen.st_dev, seen.st_ino]
    try:
        server = read_server_properties(here)
    except LogAgentError:
        return found
    controller = server.process_roles == ["controller"]
    return {**found, "log_dirs": server.log_dirs, "controller": controller, "shipped": is_sample(server, root)}
