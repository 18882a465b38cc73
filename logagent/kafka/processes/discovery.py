"""Finds the Kafka brokers of this host: running ones, those that a systemd unit starts, and configurations in the
places where distributions, Confluent's packages and people who unpack an archive keep them.

Nothing is guessed. Files that only look like a broker's (a sample shipped with Kafka, a controller's file) are not
counted as brokers, and with two brokers neither is chosen.

Any local user can put `kafka.Kafka FILE` on a command line, and name any path there, even one on a file system of her
own that never answers. So only a child process touches it, and only for a limited time (`TimeLimits`), before it is
known whether to believe that process (`GenuineBrokers`).
"""

from __future__ import annotations

import glob
import os
import pwd
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from logagent.base.errors import ConfigError, LogAgentError
from logagent.base.files.safe_open import listed
from logagent.base.linux.access import ask_as
from logagent.base.linux.kernel import effective_user
from logagent.kafka.files.properties import META_PROPERTIES, ServerProperties, read_server_properties
from logagent.kafka.identity import why_no_broker
from logagent.kafka.processes.broker_process import Launch, launch_of_java, version_beside, version_of_script
from logagent.kafka.processes.systemd_units import BrokerUnit, broker_units, under

# Apache's archive, Confluent's packages, Bigtop, Bitnami, BSD and the distributions that package Kafka.
USUAL_SERVER_PROPERTIES = (
    "/etc/kafka/server.properties",
    "/etc/kafka/kraft/server.properties",
    "/etc/kafka/kraft/broker.properties",
    "/etc/kafka/broker.properties",
    "/etc/kafka/conf/server.properties",
    "/opt/kafka/config/server.properties",
    "/opt/kafka/config/kraft/server.properties",
    "/opt/kafka/config/kraft/broker.properties",
    "/opt/kafka/config/broker.properties",
    "/opt/bitnami/kafka/config/server.properties",
    "/opt/confluent/etc/kafka/server.properties",
    "/usr/local/kafka/config/server.properties",
    "/usr/local/kafka/config/kraft/server.properties",
    "/usr/share/kafka/config/server.properties",
)
# Looked at only if nothing else is found: releases from before an upgrade stay there with their configuration.
UNPACKED_SERVER_PROPERTIES = (
    "/opt/kafka[_-]*/config/server.properties",
    "/opt/kafka[_-]*/config/kraft/server.properties",
    "/opt/kafka[_-]*/config/broker.properties",
    "/opt/confluent-*/etc/kafka/server.properties",
    "/opt/confluent-*/etc/kafka/kraft/server.properties",
)
# `log.dirs` in the files shipped with Kafka and with Confluent's packages.
_SHIPPED_LOG_DIRS = frozenset(
    {
        "/tmp/kafka-logs",
        "/tmp/kraft-combined-logs",
        "/tmp/kraft-broker-logs",
        "/tmp/kraft-controller-logs",
        "/var/lib/kafka",
    }
)


def is_sample(server: ServerProperties, root: str = "/") -> bool:
    """Whether a configuration is as shipped with Kafka and its log dirs were never used."""
    log_dirs = [d.rstrip("/") for d in server.log_dirs]
    # Nothing else on a disk is touched, because it may hang.
    shipped = all(d in _SHIPPED_LOG_DIRS for d in log_dirs)
    return shipped and not any(os.path.lexists(f"{under(root, d)}/{META_PROPERTIES}") for d in log_dirs)


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
        seen = time_limits.ask(user, lambda: _read_config(config, process, root))
    except OSError:
        return NamedConfig(under(root, config), answers=False)
    if seen is None:
        return None
    file = tuple(seen["file"]) if seen["file"] is not None else None
    log_dirs = _log_dirs(launch, seen["log_dirs"], root)
    return NamedConfig(seen["path"], file, True, log_dirs, seen["controller"], seen["shipped"])


def _log_dirs(launch: Launch | None, configured: Sequence[str], root: str) -> tuple[str, ...]:
    override = launch.overrides.get("log.dirs", "") if launch is not None else ""
    return tuple(under(root, d) for d in [d for d in override.split(",") if d] or configured)


def _read_config(config: str, process: str, root: str) -> dict[str, Any] | None:
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


_MOST_DIRS = 64
_MOST_STEPS = 400  # of a path, where links lead in a circle


class GenuineBrokers:
    """Decides for each process whether it is taken for a broker; caches what it learned about the known ones.

    A process counts if its user runs a broker by a unit, or owns the log dirs that its configuration names. If a broker
    is known without the process (a unit starts it, or it is configured in a usual place), the process of an unrelated
    user does not add another one: otherwise anybody could make the choice ambiguous and so stop all work.
    """

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


Version = tuple[int, int, int]
_SILENT = "its configuration does not answer, or its user names too many paths to check"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigRead:
    """One configuration of a broker, and how it was found.

    pid, user: the running process that was started with it. unit: the service that starts it. launch: the command line
    of the process, else of the unit. sample: the file is as shipped with Kafka, and its log dirs were never used.
    controller: a node without the broker role. strong: a process or an enabled unit uses it. shipped: the file is as
    shipped with Kafka, whether or not anything uses it. log_dirs: the ones it names, if it can be read. ignored: why
    the process is not taken for a broker. named: what was read in time of the configuration that the process names;
    nothing else of it was touched.
    """

    config: str
    pid: int | None = None
    user: int | None = None
    unit: BrokerUnit | None = None
    launch: Launch | None = None
    usual: bool = False
    sample: bool = False
    controller: bool = False
    shipped: bool = False
    log_dirs: tuple[str, ...] = ()
    ignored: str | None = None
    named: NamedConfig | None = None

    @property
    def strong(self) -> bool:
        return self.pid is not None or (self.unit is not None and self.unit.enabled)

    @property
    def how(self) -> str:
        """How it was found, in words."""
        words = [f"process {self.pid} runs with it"] if self.pid is not None else []
        if self.unit is not None:
            words.append(f"{self.unit.name} starts with it")
        words += ["it is in a usual place"] if not words else []
        words += ["as it came with Kafka"] if self.sample else []
        words += ["a controller's"] if self.controller else []
        words += [f"ignored: {self.ignored}"] if self.ignored is not None else []
        return ", ".join(words)


def find_brokers(root: str = "/") -> list[BrokerConfigRead]:
    """Every broker configuration on the host whose root directory is `root`, those in use first. Raises nothing."""
    units = broker_units(root)
    time_limits = TimeLimits({0, os.geteuid(), *users_of(units)})
    on_host: list[BrokerConfigRead] = []
    for unit in units:
        config = under(root, unit.launch.config)
        if os.path.isabs(unit.launch.config) and os.path.exists(config):
            _add(on_host, _judged(BrokerConfigRead(config=config, unit=unit, launch=unit.launch), root))
    for path in _files(root, USUAL_SERVER_PROPERTIES):
        _add(on_host, _judged(BrokerConfigRead(config=path, usual=True), root))
    found = _with_processes(on_host, running_brokers(root, time_limits), units, time_limits)
    if not brokers_of(found):
        for path in _files(root, UNPACKED_SERVER_PROPERTIES):
            _add(found, _judged(BrokerConfigRead(config=path, usual=True), root))
    return found


def brokers_of(found: Iterable[BrokerConfigRead]) -> list[BrokerConfigRead]:
    """Those of `found` that a broker uses or may use: no controllers, and samples only if there is nothing else.

    A configuration named only by a process that is not believed is left out.
    """
    brokers = [b for b in found if not b.controller and b.ignored is None]
    return [b for b in brokers if not b.sample] or brokers


def only_broker(found: Iterable[BrokerConfigRead]) -> BrokerConfigRead | None:
    """The broker, if `found` contains exactly one, even under several paths."""
    brokers = {os.path.realpath(b.config): b for b in reversed(brokers_of(found))}
    return next(iter(brokers.values())) if len(brokers) == 1 else None


def find_server_properties(configured: str | None, root: str = "/") -> str:
    """The broker's `server.properties`: the configured one, else that of the only broker on this host.

    Raises ConfigError if none or more than one is found: we do not guess between two brokers.
    """
    if configured is not None:
        return configured
    found = find_brokers(root)
    only = only_broker(found)
    if only is not None:
        return only.config
    brokers = list({os.path.realpath(b.config): b for b in brokers_of(found)}.values())
    if brokers:
        raise ConfigError(
            f"several broker configurations were found: {', '.join(b.config for b in brokers)}",
            problems=tuple(f"{b.config}: one of several ({b.how})" for b in brokers),
            hint="name one with --kafka-config or kafka.config; logagent@NAME with /etc/logagent/NAME.toml serves"
            " one broker of several",
        )
    ignored = tuple(f"{b.config}: {b.how}" for b in found if b.ignored is not None)
    problem, hint = why_no_broker([b.config for b in found if b.controller])
    raise ConfigError(problem, problems=(problem, *ignored), hint=hint)


def running_brokers(root: str, time_limits: TimeLimits) -> Iterator[BrokerConfigRead]:
    """The brokers among the visible processes, by the configuration on their command lines.

    A process whose configuration is not found at that path (it runs in a container, or its working directory cannot be
    read) is left out.
    """
    proc = under(root, "/proc")
    for name in sorted(filter(str.isdecimal, listed(proc)), key=int):
        try:
            with open(f"{proc}/{name}/cmdline", "rb") as file:
                line = file.read()
            if b"afka" not in line:
                continue
            words = [os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0")]
            user = effective_user(int(name), proc)
        except (OSError, StopIteration, ValueError):
            continue
        launch = launch_of_java(words)
        named = named_config(launch, int(name), user, root, time_limits) if launch is not None else None
        if named is not None:
            yield BrokerConfigRead(
                config=named.path,
                pid=int(name),
                user=user,
                launch=launch,
                controller=named.controller,
                shipped=named.shipped,
                log_dirs=named.log_dirs,
                named=named,
            )


def version_installed(config: str | None, root: str = "/") -> Version | None:
    """The version of Kafka for this configuration while its broker is stopped: that of the installation that contains
    the file, else of the one whose start script a unit calls with it. None also if units disagree.
    """
    version = version_beside(config)
    if version is not None or config is None:
        return version
    versions = {version_of_script(script) for script in start_scripts(config, root)}
    return versions.pop() if len(versions) == 1 else None


def start_scripts(config: str, root: str = "/") -> frozenset[str]:
    """The start scripts that units call with this configuration."""
    return frozenset(
        under(root, unit.launch.script)
        for unit in broker_units(root)
        if unit.launch.script is not None and same_file(under(root, unit.launch.config), config)
    )


def _add(found: list[BrokerConfigRead], new: BrokerConfigRead) -> None:
    """Add `new`, or merge what it adds into the entry already found for the same file."""
    for n, known in enumerate(found):
        if known.ignored is None and _same_file(known, new):
            found[n] = replace(known, usual=known.usual or new.usual)
            return
    found.append(new)


def _judged(broker: BrokerConfigRead, root: str) -> BrokerConfigRead:
    try:
        server = read_server_properties(broker.config)
    except LogAgentError:
        return broker
    controller = server.process_roles == ["controller"]
    shipped = is_sample(server, root)
    dirs = _log_dirs(broker.launch, server.log_dirs, root)
    return replace(broker, log_dirs=dirs, controller=controller, shipped=shipped, sample=not broker.strong and shipped)


def _with_processes(
    on_host: list[BrokerConfigRead],
    running: Iterable[BrokerConfigRead],
    units: list[BrokerUnit],
    time_limits: TimeLimits,
) -> list[BrokerConfigRead]:
    """`on_host`, with the processes that run with those configurations or with a file of their own. Processes that any
    local user could have made up are marked, and nothing they say is merged into the other entries.

    A configuration that a unit starts, or that is in a usual place, keeps that path: the path that a process names may
    lead through another user's symlink, which can point elsewhere a moment later.
    """
    known = [b.log_dirs for b in on_host if not b.sample and not b.controller]
    judge = GenuineBrokers(units, known, time_limits)
    left, named, ignored = list(on_host), list[BrokerConfigRead](), list[BrokerConfigRead]()
    for b in running:
        assert b.named is not None and b.user is not None
        same = next((host for host in on_host if _same_file(host, b)), None)
        why = judge.why_ignored(b.user, b.log_dirs, by_unit=same is not None) if b.named.answers else _SILENT
        if why is not None:
            ignored.append(replace(b, ignored=why))
        elif same in left:
            left.remove(same)
            named.append(replace(b, config=same.config, unit=same.unit, usual=same.usual))
        else:  # two processes with one file are two brokers
            named.append(b)
    return named + left + ignored


def _files(root: str, patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        path = under(root, pattern)
        yield from (p for p in (sorted(glob.glob(path)) if "*" in pattern else [path]) if os.path.isfile(p))


def _same_file(one: BrokerConfigRead, other: BrokerConfigRead) -> bool:
    files = [_identity(b) for b in (one, other)]
    return files[0] == files[1] if None not in files else one.config == other.config


def same_file(one: str, other: str) -> bool:
    """Whether two paths are the same file. Only for paths that are safe to look at."""
    return one == other or (_file(one) is not None and _file(one) == _file(other))


def newest_change_ms(path: str) -> int | None:
    """The newest change (of content or inode) of the file and of every link that leads to it, in milliseconds since
    the epoch; None if one of them cannot be seen."""
    newest, at, left = 0, "/", os.path.abspath(path).split("/")[1:]
    with suppress(OSError):
        for _ in range(_MOST_STEPS):
            if not left:
                return newest // 1_000_000
            name, *left = left
            at = os.path.dirname(at) if name == ".." else os.path.join(at, name)
            status = os.lstat(at)
            is_link = stat.S_ISLNK(status.st_mode)
            if is_link or not left:
                newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
            if is_link:
                target = os.readlink(at)
                at = "/" if target.startswith("/") else os.path.dirname(at)
                left = [*(part for part in target.split("/") if part not in ("", ".")), *left]
    return None


def _identity(broker: BrokerConfigRead) -> tuple[int, int] | None:
    return broker.named.file if broker.named is not None else _file(broker.config)


def _file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
