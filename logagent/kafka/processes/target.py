"""The broker on this host that is meant: its configuration, log dirs and version."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from logagent.base.config.settings import Settings, without_secret
from logagent.base.errors import ConfigError
from logagent.base.kafka_version import parse_version
from logagent.kafka.files.properties import (
    META_PROPERTIES,
    ServerProperties,
    parse_server_properties,
    read_server_properties,
)
from logagent.kafka.processes.discovery import find_server_properties


class UnnamedBroker(ConfigError):
    """A command that acts was not told which broker is meant."""


@dataclass(frozen=True, slots=True)
class Target:
    """One broker on this host. `config` is its server.properties, None if only log dirs were named.

    `log_dirs` are absolute, in Kafka's order, each spelling once. One that was named by another path (a symlink) has
    its path in the configuration, so that the journal knows it by one. `left_out`: log dirs of its configuration that
    are not among these, because only others were named. `unconfigured`: named ones that its configuration lacks.
    """

    config: str | None
    server: ServerProperties
    log_dirs: tuple[str, ...]
    kafka_version: tuple[int, ...] | None
    left_out: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    unconfigured: tuple[str, ...] = ()

    def with_all_log_dirs(self) -> Target:
        """For a plan: the log dirs left out are also looked at, because they count for offline log dirs, moves and
        copies. They are `spared`: nothing in them is acted on."""
        return replace(self, log_dirs=_unique([*self.log_dirs, *self.left_out]), left_out=(), spared=self.left_out)


def named_target(settings: Settings, log_dirs: Sequence[str] = ()) -> Target:
    """The broker whose directories may be changed, or for which that is planned: only one that settings or options
    name, because what is found depends on the processes and files of the moment. Raises ConfigError."""
    if settings.kafka.config is None and not log_dirs:
        try:
            found = find_server_properties(None)
        except ConfigError as e:  # none, or more than one, each named
            raise UnnamedBroker(str(e), problems=e.problems, hint=e.hint) from e
        problem = "kafka.config: not set, and commands that change data never guess the broker"
        raise UnnamedBroker(
            problem,
            problems=(problem,),
            hint=f"if it is {found}: --kafka-config {shlex.quote(found)}, or kafka.config in logagent.toml; "
            "`logagent setup --execute` sets that",
        )
    return resolve_target(settings, log_dirs)


def resolve_target(settings: Settings, log_dirs: Sequence[str] = ()) -> Target:
    """The broker that settings and options name, else the only one that is found: to look at it, not to change it.
    Raises ConfigError, all problems at once."""
    version = parse_version(settings.kafka.version) if settings.kafka.version is not None else None
    if log_dirs and settings.kafka.config is None:
        server = parse_server_properties(b"", "(defaults)")
        return Target(None, server, _unique([os.path.abspath(d) for d in log_dirs]), version)
    path = find_server_properties(settings.kafka.config)
    server = read_server_properties(path)
    dirs = [os.path.abspath(d) for d in log_dirs] or [d.rstrip("/") or "/" for d in server.log_dirs]
    relative = [d for d in dirs if not d.startswith("/")]
    if relative:
        raise ConfigError(
            f"{path}: relative log dirs",
            problems=tuple(
                without_secret(f"{path}: log.dirs: {d} is relative to the broker's working directory") for d in relative
            ),
            hint="name the log dirs with --log-dir DIR, or make them absolute in server.properties",
        )
    left_out: list[str] = []
    unconfigured: list[str] = []
    if log_dirs:  # only then: following a path onto a hung disk takes forever
        real = {d: os.path.realpath(d) for d in dirs}
        _no_log_dirs(real.values(), server, path)
        absolute = [d.rstrip("/") or "/" for d in server.log_dirs if d.startswith("/")]
        left_out = [d for d in absolute if os.path.realpath(d) not in real.values()]
        configured = {os.path.realpath(d): d for d in absolute}
        # Not if both paths were named: that is a finding of its own (`LogDirs.second_paths`).
        unconfigured = [d for d in dirs if real[d] not in configured]
        dirs = [d if configured.get(real[d], d) in dirs else configured[real[d]] for d in dirs]
    return Target(path, server, _unique(dirs), version, _unique(left_out), unconfigured=_unique(unconfigured))


def refuse_switch(acted_on: Collection[str], new: Target) -> None:
    """Raise ConfigError if a reload must not take `new`: it no longer has a log dir that the running daemon acts on.

    A `server.properties` that is being written may be empty (then Kafka's default, /tmp/kafka-logs, is in effect) or
    end in the middle of `log.dirs`, and is valid all the same; and what is forgotten of a log dir is a copy or a move
    that nobody sees any more. If it is meant, a restart takes it."""
    missing = [path for path in acted_on if path not in new.log_dirs]
    if missing:
        fact = f"{new.config or 'the new configuration'} does not name the log dir {missing[0]} any more"
        meant = "if that is meant, and not a file that was being written, restart logagent (systemctl restart logagent)"
        raise ConfigError(fact, problems=(fact,), hint=meant)


def _no_log_dirs(real: Collection[str], server: ServerProperties, config: str) -> None:
    """Raise ConfigError for a named path that is not a log dir: "nothing to do" would sound as if all were well."""
    known = {os.path.realpath(d) for d in server.log_dirs}
    wrong = [d for d in sorted(real) if d not in known and not os.path.lexists(os.path.join(d, META_PROPERTIES))]
    if wrong:
        raise ConfigError(
            f"--log-dir {wrong[0]}: it is not a log dir: {config} does not name it, and it has no {META_PROPERTIES}",
            problems=tuple(f"--log-dir {d}: it is not a log dir" for d in wrong),
            hint=f"the broker's log dirs are {', '.join(server.log_dirs)}",
        )


def _unique(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
