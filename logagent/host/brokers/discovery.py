"""Which Kafka brokers this host has: those that run, those that a systemd unit starts, and configurations in the
places where distributions, Confluent's packages and people who unpack an archive keep them.

Nothing is guessed. What only says where a broker could be (a sample that came with Kafka, a controller's file) is
told apart from a broker; of two brokers none is chosen.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from logagent.broker.files.server_properties import read_server_properties
from logagent.broker.process.launch import Launch, launch_of_java
from logagent.broker.process.version import version_beside, version_of_script
from logagent.errors import ConfigError, LogAgentError
from logagent.host.brokers.believed import Believed
from logagent.host.brokers.units import BrokerUnit, broker_units, under
from logagent.host.brokers.usual_places import UNPACKED_SERVER_PROPERTIES, USUAL_SERVER_PROPERTIES, is_sample
from logagent.host.linux.proc import effective_user

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFound:
    """One configuration of a broker, and how it was found.

    pid, user: the running process that was started with it. unit: the service that starts it. launch: the command line
    of the process, else of the unit. sample: it is as it came with Kafka, and nothing was ever stored under it.
    controller: a node without the role of a broker. strong: a process or an enabled unit uses it. shipped: it is as it
    came with Kafka, whoever uses it. log_dirs: those that it names, where it can be read. ignored: why the process is
    not taken for a broker.
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


def find_brokers(root: str = "/") -> list[BrokerFound]:
    """Every configuration of a broker on the host with this root directory, those in use first. Raises nothing."""
    found: list[BrokerFound] = []
    for running in running_brokers(root):
        _add(found, running)
    units = broker_units(root)
    for unit in units:
        config = under(root, unit.launch.config)
        if os.path.isabs(unit.launch.config) and os.path.exists(config):
            _add(found, BrokerFound(config=config, unit=unit, launch=unit.launch))
    for path in _files(root, USUAL_SERVER_PROPERTIES):
        _add(found, BrokerFound(config=path, usual=True))
    found = _believed([_judged(broker, root) for broker in found], units)
    if not brokers_of(found):
        for path in _files(root, UNPACKED_SERVER_PROPERTIES):
            _add(found, _judged(BrokerFound(config=path, usual=True), root))
    return found


def brokers_of(found: Iterable[BrokerFound]) -> list[BrokerFound]:
    """Those of `found` that a broker uses, or may use: no controllers, and samples only where there is nothing else.

    What only a process says that is not believed is left out.
    """
    brokers = [b for b in found if not b.controller and b.ignored is None]
    return [b for b in brokers if not b.sample] or brokers


def only_broker(found: Iterable[BrokerFound]) -> BrokerFound | None:
    """The broker, if `found` has exactly one, by whatever paths."""
    brokers = {os.path.realpath(b.config): b for b in reversed(brokers_of(found))}
    return next(iter(brokers.values())) if len(brokers) == 1 else None


def find_server_properties(configured: str | None, root: str = "/") -> str:
    """The broker's `server.properties`: the configured one, else that of the only broker this host has.

    Raises ConfigError where none or more than one is found: guessing between two brokers is not ours to do.
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
            hint="say which one with --kafka-config or kafka.config; logagent@NAME with /etc/logagent/NAME.toml serves"
            " one broker of several",
        )
    ignored = tuple(f"{b.config}: {b.how}" for b in found if b.ignored is not None)
    raise ConfigError(
        "no server.properties was found: no broker runs, no unit starts one, and the usual places have none",
        problems=(*ignored, *(f"{p}: not there" for p in USUAL_SERVER_PROPERTIES)),
        hint="name it with --kafka-config FILE, or the log dirs with --log-dir DIR",
    )


def running_brokers(root: str = "/") -> Iterator[BrokerFound]:
    """The brokers among the processes that can be seen, by the configuration on their command lines.

    One whose configuration is not there by that path (it runs in a container, or its working directory cannot be read)
    is left out: nothing could be read of it.
    """
    proc = under(root, "/proc")
    for name in _numbers(proc):
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
        config = _config_of_process(launch, f"{proc}/{name}", root) if launch is not None else None
        if config is not None:
            yield BrokerFound(config=config, pid=int(name), user=user, launch=launch)


def version_installed(config: str | None, root: str = "/") -> Version | None:
    """The version of Kafka that belongs to this configuration while its broker is stopped: of the installation that it
    lies in, else of the one whose start script a unit calls with it. None also where units disagree.
    """
    version = version_beside(config)
    if version is not None or config is None:
        return version
    scripts = {
        under(root, unit.launch.script)
        for unit in broker_units(root)
        if unit.launch.script is not None and _same_file(under(root, unit.launch.config), config)
    }
    versions = {version_of_script(script) for script in scripts}
    return versions.pop() if len(versions) == 1 else None


def _add(found: list[BrokerFound], new: BrokerFound) -> None:
    """Put `new` in, or what it adds to the same file found before. Two processes of one file are two brokers."""
    for n, known in enumerate(found):
        if _same_file(known.config, new.config) and not (known.pid is not None and new.pid is not None):
            found[n] = replace(
                known, unit=known.unit or new.unit, launch=known.launch or new.launch, usual=known.usual or new.usual
            )
            return
    found.append(new)


def _judged(broker: BrokerFound, root: str) -> BrokerFound:
    try:
        server = read_server_properties(broker.config)
    except LogAgentError:
        return broker
    controller = server.process_roles == ["controller"]
    shipped = is_sample(server, root)
    override = broker.launch.overrides.get("log.dirs", "") if broker.launch is not None else ""
    named = tuple(under(root, d) for d in override.split(",") or () if d) or tuple(
        under(root, d) for d in server.log_dirs
    )
    return replace(broker, log_dirs=named, controller=controller, shipped=shipped, sample=not broker.strong and shipped)


def _believed(found: list[BrokerFound], units: list[BrokerUnit]) -> list[BrokerFound]:
    """The same, with the processes marked that any local user could have made up."""
    known = [b.log_dirs for b in found if (b.unit is not None or b.usual) and not b.sample and not b.controller]
    judge = Believed(units, known)
    told: list[BrokerFound] = []
    for b in found:
        on_host = b.unit is not None or b.usual
        why = judge.why_not(b.user, b.log_dirs, by_unit=on_host) if b.pid is not None and b.user is not None else None
        if why is None:
            told.append(b)
            continue
        if on_host:  # what else is known of the same file stays
            launch = b.unit.launch if b.unit is not None else None
            alone = replace(b, pid=None, user=None, launch=launch)
            told.append(replace(alone, sample=b.shipped and not alone.strong))
        told.append(replace(b, unit=None, usual=False, ignored=why))
    return told


def _config_of_process(launch: Launch, process: str, root: str) -> str | None:
    config = launch.config
    if not os.path.isabs(config):
        try:
            config = os.path.join(os.readlink(f"{process}/cwd"), config)
        except OSError:
            return None
    here = under(root, config)
    if ".." in config.split("/"):
        here = os.path.realpath(here)
    try:
        seen = os.stat(here)
    except PermissionError:
        return here
    except OSError:
        return None
    try:
        # A process in a container has other files under the same paths.
        theirs = os.stat(f"{process}/root{config}")
    except OSError:
        return here
    return here if os.path.samestat(seen, theirs) else None


def _files(root: str, patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        path = under(root, pattern)
        yield from (p for p in (sorted(glob.glob(path)) if "*" in pattern else [path]) if os.path.isfile(p))


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one == other


def _numbers(proc: str) -> list[str]:
    try:
        return sorted((name for name in os.listdir(proc) if name.isdecimal()), key=int)
    except OSError:
        return []
