"""Decides which processes are taken for brokers: any local user can put `kafka.Kafka FILE` on a command line.

A process counts if its user runs a broker by a unit, or owns the log dirs that its configuration names. If a broker is
known without the process (a unit starts it, or it is configured in a usual place), the process of an unrelated user
does not add another one: otherwise anybody could make the choice ambiguous and so stop all work.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Sequence
from contextlib import suppress

from logagent.host.brokers.named_config import TimeLimits
from logagent.host.brokers.systemd_units import BrokerUnit

_MOST_DIRS = 64


class GenuineBrokers:
    """Decides for each process; caches what it learned about the known brokers."""

    def __init__(
        self, units: Iterable[BrokerUnit], known_log_dirs: Iterable[Sequence[str]], time_limits: TimeLimits
    ) -> None:
        self._unit_users = users_of(units)
        self._time_limits = time_limits
        self._known = list(known_log_dirs)
        self._trusted: set[int] | None = None

    def why_ignored(self, user: int, log_dirs: Sequence[str], *, by_unit: bool) -> str | None:
        """Why a process of `user` with these log dirs is ignored; None if it is believed.

        `by_unit`: a unit starts the same configuration, or it is in a usual place.
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
            return f"user {user} does not run the broker that is already known; name it with kafka.config"
        return None

    def _known_users(self) -> set[int]:
        if self._trusted is None:
            self._trusted = {os.geteuid(), *self._unit_users}
            for log_dirs in self._known:
                self._trusted |= set(self._owners(0, log_dirs).values())
        return self._trusted

    def _owners(self, asker: int, log_dirs: Sequence[str]) -> dict[str, int]:
        """The owners of those log dirs that exist and answer."""
        found: dict[str, int] = {}
        for path in log_dirs[:_MOST_DIRS]:
            with suppress(OSError):
                uid = self._time_limits.ask(asker, lambda path=path: _owner(path))  # type: ignore[misc]
                if uid is not None:
                    found[path] = uid
        return found


def users_of(units: Iterable[BrokerUnit]) -> frozenset[int]:
    """The users as which those units start their brokers."""
    return frozenset(uid for unit in units if (uid := _uid(unit.user)) is not None)


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
