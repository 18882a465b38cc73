"""Which processes are taken for brokers: any local user can put `kafka.Kafka FILE` on a command line.

A process counts where its user runs a broker by a unit, or owns the log dirs that its configuration names. Where a
broker is known without it (a unit starts it, or it is configured in a usual place), a user who has nothing to do with
that one adds none: else anybody could make the choice ambiguous, and nothing would be done any more.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from logagent.host.brokers.units import BrokerUnit
from logagent.host.linux.child import ask_as

# For all log dirs that one user names: a disk may hang, and a user may make one that does.
_SECONDS = 2.0
_MOST_DIRS = 64


class Believed:
    """Asks for each process; what was learned of the known brokers is kept."""

    def __init__(self, units: Iterable[BrokerUnit], known_log_dirs: Iterable[Sequence[str]]) -> None:
        self._unit_users = {uid for unit in units if (uid := _uid(unit.user)) is not None}
        self._left: dict[int, float] = {}
        self._known = list(known_log_dirs)
        self._trusted: set[int] | None = None

    def why_not(self, user: int, log_dirs: Sequence[str], *, by_unit: bool) -> str | None:
        """Why a process of `user` with these log dirs is ignored; None where it is believed.

        `by_unit`: a unit, or a usual place, has the same configuration.
        """
        if user == 0 or (by_unit and user in self._unit_users):
            return None
        owners = self._owners(user, log_dirs)
        others = [path for path, owner in owners.items() if owner != user]
        if others:
            return f"its user {user} does not own {others[0]}"
        if not owners:
            return f"none of its log dirs is there for user {user} to own"
        if not by_unit and self._known and user not in self._known_users():
            return f"user {user} has nothing to do with the broker that is known without it; name it with kafka.config"
        return None

    def _known_users(self) -> set[int]:
        if self._trusted is None:
            self._trusted = {os.geteuid(), *self._unit_users}
            for log_dirs in self._known:
                self._trusted |= set(self._owners(-1, log_dirs).values())
        return self._trusted

    def _owners(self, asker: int, log_dirs: Sequence[str]) -> dict[str, int]:
        """Whose those log dirs are that are there and answer. Looked at by a child, within the time of `asker`."""
        found: dict[str, int] = {}
        for path in log_dirs[:_MOST_DIRS]:
            left = self._left.get(asker, _SECONDS)
            if left <= 0:
                break
            begun = time.monotonic()
            with suppress(OSError):
                uid = ask_as(None, lambda path=path: _owner(path), left)  # type: ignore[misc]
                if uid is not None:
                    found[path] = uid
            self._left[asker] = left - (time.monotonic() - begun)
        return found


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _uid(user: str | None) -> int | None:
    if user is None:
        return 0
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
