"""Which broker on this host is meant: its configuration, its log dirs, its version."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from logagent.broker.files.server_properties import ServerProperties, parse_server_properties, read_server_properties
from logagent.broker.process.version import apache_version
from logagent.errors import ConfigError
from logagent.host.brokers.discovery import find_server_properties
from logagent.model.secrets import without_secret
from logagent.settings import Settings


@dataclass(frozen=True, slots=True)
class Target:
    """One broker on this host. `config` is its server.properties, None where only log dirs were named.

    `log_dirs` are absolute, in Kafka's order, each once by its spelling. `left_out`: log dirs of its configuration that
    are none of these, because others were named.
    """

    config: str | None
    server: ServerProperties
    log_dirs: tuple[str, ...]
    kafka_version: tuple[int, ...] | None
    left_out: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    def with_all_log_dirs(self) -> Target:
        """For a plan: the log dirs left out are looked at like the others, for they count for what is offline, moves
        and copies. They are `spared`: nothing in them is acted on."""
        return replace(self, log_dirs=_unique([*self.log_dirs, *self.left_out]), left_out=(), spared=self.left_out)


def resolve_target(settings: Settings, log_dirs: Sequence[str] = ()) -> Target:
    """The broker that settings and options name. Raises ConfigError, all problems at once."""
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
    if log_dirs:  # only then: following a path onto a hung disk takes for ever
        seen = {os.path.realpath(d) for d in dirs}
        left_out = [d for d in server.log_dirs if d.startswith("/") and os.path.realpath(d) not in seen]
    return Target(path, server, _unique(dirs), version, _unique(left_out))


def _unique(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def parse_version(text: str) -> tuple[int, ...]:
    """(3, 9, 1) of `3.9.1`, (3, 6, 0) of Confluent's `7.6.0-ccs`. Raises ConfigError."""
    numbers = text.split("-", 1)[0].split(".")
    if len(numbers) < 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        problem = f"kafka.version: {text!r} is not a version of Kafka"
        raise ConfigError(
            problem, problems=(problem,), hint="write it such as 3.9.1 (Confluent's numbers are known too)"
        )
    major, minor, patch = (int(n) for n in (*numbers, "0")[:3])
    return apache_version(major, minor, patch)
