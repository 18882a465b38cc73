"""`logagent setup`: the drop-ins that fit the service to this host's broker, and the service itself.

Gathers what it may trust: the user that the service runs as and what it may write to. PID 1 reads the result, which
decides as which user a program runs. So nothing counts that another user could have written or faked: no process, no
unit or logagent configuration that does not belong to root, and a `server.properties` only if it belongs to root or to
the owner of the log dirs, through directories that nobody else can write to.

Verifies a drop-in with systemd itself and installs it, completely or not at all; starts the service with it.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import click

from logagent.base.config.config import DEFAULT_CONFIG, INSTANCE_DIR, load
from logagent.base.config.settings import Settings, is_uri
from logagent.base.console.options import or_dry_run
from logagent.base.console.render import visible, whoever_reads
from logagent.base.errors import ConfigError, LogAgentError, NotPermitted, UsageError
from logagent.base.files.safe_open import CONFIG, PROPERTIES, UNIT, whole_file
from logagent.base.linux.access import Untrusted, read_trusted, sole_owner, trusted_path, user_name
from logagent.base.linux.kernel import mount_points
from logagent.base.linux.state_dir import DEFAULT_STATE_DIR, make_as_root, why_by_anybody
from logagent.kafka.files.properties import ServerProperties, parse_server_properties
from logagent.kafka.identity import why_no_broker
from logagent.kafka.processes.discovery import USUAL_SERVER_PROPERTIES, is_sample
from logagent.kafka.processes.systemd_units import (
    UNIT_DIRS,
    BrokerUnit,
    UnitFile,
    broker_units,
    read_unit,
    show_unit,
    systemd_runs,
)
from logagent.service.setup.rules import (
    NAME,
    PRESTART_NAME,
    DropInFacts,
    PrestartFacts,
    SetupFacts,
    allowed,
    drop_in,
    has_control,
    naming,
    prestart_drop_in,
)

ROOT = frozenset({0})
_CONDITION = "ConditionDirectoryNotEmpty"
_READABLE = "name a file that can be read, and that no other user can change"
_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
# What a unit name and a program's path consist of; neither is escaped where it is written.
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+\.service", re.ASCII)
_PROGRAM = re.compile(r"[-@:+!|]*(/[A-Za-z0-9/_.+-]+)(?=\s|$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DropIn:
    """A drop-in of one unit: its path and content."""

    unit: str
    place: str
    text: str

    @property
    def is_in_place(self) -> bool:
        return existing_drop_in(self.place) == self.text


@dataclass(frozen=True, slots=True)
class Setup:
    """The drop-in of one service, and that of the broker's unit (`prestart`, None unless asked for). `left_out`: what
    was not trusted, and why. `broker`: its configuration; `names_it`: the content of logagent.toml with `kafka.config`,
    None where that is set."""

    service: DropIn
    prestart: DropIn | None
    left_out: tuple[str, ...]
    state_dir: str
    uid: int
    gid: int
    broker: str
    names_it: str | None


@dataclass(frozen=True, slots=True)
class _Broker:
    config: str
    server: ServerProperties
    owner: int
    unit: BrokerUnit | None


def service_of(name: str | None) -> tuple[str, str, str]:
    """Service, configuration file and command of an instance (None: the only one). Raises UsageError."""
    if name is None:
        return "logagent.service", str(DEFAULT_CONFIG), "logagent setup --execute"
    if not _NAME.fullmatch(name) or name in ("logagent", ".", "..") or name.startswith("-"):
        raise UsageError(f"{name} is not the name of an instance", hint="NAME of /etc/logagent/NAME.toml")
    return f"logagent@{name}.service", f"{INSTANCE_DIR}/{name}.toml", f"logagent setup {name} --execute"


def place_of(unit: str, name: str = NAME) -> str:
    """Where the drop-in `name` of a unit belongs."""
    return f"/etc/systemd/system/{unit}.d/{name}"


def plan_setup(name: str | None, *, prestart: bool = False) -> Setup:
    """What this host needs now: the drop-in of the service, with `prestart` that of the broker's unit too.

    Raises UsageError, ConfigError, Untrusted, LogAgentError.
    """
    service, file, command = service_of(name)
    settings = _settings(file, needed=name is not None)
    left_out: list[str] = []
    broker = _broker(settings, left_out)
    user, group, uid, gid = _user(broker)
    if broker.owner not in (0, uid):
        raise Untrusted(
            f"user {broker.owner} can change {broker.config}, and the broker runs as {user}",
            hint="give it and the directories above it to root",
        )
    wanted = {path: {0, uid} for path in broker.server.log_dirs}
    wanted = {path: {0, uid, *_owner(path)} for path in _configured(settings)} | wanted
    left_out += [f"{path}: not a path that may be opened to the service" for path in wanted if not allowed(path)]
    paths = tuple(dict.fromkeys(_resolved(path, owners) for path, owners in wanted.items() if allowed(path)))
    if not paths:
        raise LogAgentError(
            f"{broker.config} names no log dir that may be opened to the service", hint="; ".join(left_out) or None
        )
    mounts = tuple(mount_points(UNIT_DIRS, _root_only))
    facts = SetupFacts(command=command, config=broker.config, user=user, group=group, paths=paths, mounts=mounts)
    state_dir = DEFAULT_STATE_DIR if name is None else f"{DEFAULT_STATE_DIR}-{name}"
    names_it = _naming(file, broker.config) if settings.kafka.config is None else None
    return Setup(
        DropIn(service, place_of(service), drop_in(facts)),
        _prestart(broker, service, command, None if name is None else file, state_dir) if prestart else None,
        tuple(left_out),
        state_dir,
        uid,
        gid,
        broker.config,
        names_it,
    )


def _prestart(broker: _Broker, service: str, command: str, instance: str | None, state_dir: str) -> DropIn:
    """The drop-in of the only unit, one of root's, that starts this broker."""
    if broker.unit is None:
        raise LogAgentError(
            f"no unit that belongs to root starts the broker of {broker.config}",
            hint="let whatever starts the broker run `logagent prestart` before it",
        )
    unit = broker.unit.name
    content = partial(read_trusted, limit=UNIT, owners=ROOT)
    settings, ours = read_unit(unit, content=content), _installed(service)
    starts = ours.settings.get("ExecStart", ())
    program = _PROGRAM.match(starts[-1].value) if starts else None
    if not _UNIT_NAME.fullmatch(unit) or settings is None or program is None:
        raise Untrusted(f"{unit}: no drop-in can be written for a unit of this name, or for the program of {service}")
    protects = settings.last("ProtectSystem")
    facts = PrestartFacts(
        command=command.replace(" --execute", " --prestart --execute"),
        program=program[1],
        config=broker.config,
        instance=instance,
        state_dir=state_dir,
        strict=protects is not None and protects.value == "strict",
    )
    return DropIn(unit, place_of(unit, PRESTART_NAME), prestart_drop_in(facts))


def _installed(service: str) -> UnitFile:
    """The unit of the service as root's files have it. Raises LogAgentError if it is not installed."""
    unit = read_unit(service, content=partial(read_trusted, limit=UNIT, owners=ROOT))
    if unit is None:
        raise LogAgentError(f"{service} is not installed", hint="it comes with the system packages")
    return unit


def _naming(file: str, config: str) -> str:
    """`logagent.toml` as it will name the broker. It names it to the commands of every user, too, who would otherwise
    have to add --kafka-config to whatever acts."""
    try:
        text = read_trusted(file, CONFIG, ROOT).decode("utf-8")
    except FileNotFoundError:
        text = ""
    try:
        return naming(text, config)
    except ValueError as e:
        raise ConfigError(
            f"{file}: kafka.config: cannot be added: {e}",
            problems=(f"{file}: kafka.config: cannot be added: {e}",),
            hint=f"add it to [kafka]: config = {config}",
        ) from e


def inspect_drop_in(name: str | None) -> DropInFacts | None:
    """Whether the existing drop-in fits, for doctor. None if there is none and none is needed, or if root is needed to
    know."""
    service, _, command = service_of(name)
    place = place_of(service)
    present = existing_drop_in(place)
    if present is None:
        return DropInFacts(place=place, state="missing", command=command) if _needs_drop_in(service) else None
    try:
        state: Literal["fits", "differs"] = "fits" if plan_setup(name).service.text == present else "differs"
    except (LogAgentError, OSError) as e:
        return DropInFacts(place=place, state="refused", command=command, why=str(e)) if os.geteuid() == 0 else None
    return DropInFacts(place=place, state=state, command=command)


def existing_drop_in(place: str) -> str | None:
    """The present content of the drop-in; None if there is none that belongs to root."""
    try:
        return read_trusted(place, UNIT, ROOT).decode("utf-8", "replace")
    except (OSError, LogAgentError):
        return None


def _needs_drop_in(service: str) -> bool:
    """Whether the unit starts only with a drop-in, and has none."""
    unit = read_unit(service)
    folders = [line.value.lstrip("|") for line in unit.settings.get(_CONDITION, ())] if unit is not None else []
    return bool(folders) and not any(os.path.isdir(folder) and os.listdir(folder) for folder in folders)


def _settings(file: str, *, needed: bool) -> Settings:
    try:
        read_trusted(file, CONFIG, ROOT)
    except FileNotFoundError:
        if needed:
            raise ConfigError(f"{file}: not there", problems=(f"{file}: not there",), hint="create it first") from None
        return Settings()
    except OSError as e:
        raise ConfigError(f"{file}: {e.strerror}", problems=(f"{file}: {e.strerror}",), hint=_READABLE) from e
    settings = load(file, environ={}).settings
    if needed and settings.kafka.config is None:
        problem = f"{file}: kafka.config: is not set; an instance's file must name its broker"
        raise ConfigError(problem, problems=(problem,), hint="logagent doctor lists the brokers of this host")
    return settings


def _root_only(path: str) -> bytes:
    """The content of a file that belongs to root; empty for any other."""
    try:
        return read_trusted(path, UNIT, ROOT)
    except (OSError, LogAgentError):
        return b""


def _broker(settings: Settings, left_out: list[str]) -> _Broker:
    """The only broker that can be trusted: the configured one, else by units, else by the usual places."""
    units = broker_units(content=lambda path: read_trusted(path, UNIT, ROOT))
    if settings.kafka.config is not None:
        return _read(settings.kafka.config, units)
    by_path: dict[str, _Broker] = {}
    controllers: list[str] = []
    for path in dict.fromkeys([*(u.launch.config for u in units), *USUAL_SERVER_PROPERTIES]):
        if not os.path.lexists(path):
            continue
        try:
            broker = _read(path, units)
        except LogAgentError as e:
            left_out.append(f"{path}: {e}")
            continue
        if broker.server.controller_only:
            controllers.append(path)
        elif broker.unit is not None or not is_sample(broker.server):
            by_path.setdefault(os.path.realpath(path), broker)
    started = [b for b in by_path.values() if b.unit is not None and b.unit.enabled]
    brokers = started if len(started) == 1 else list(by_path.values())
    if len(brokers) == 1:
        return brokers[0]
    if controllers and not brokers and not left_out:
        problem, hint = why_no_broker(controllers)
        raise ConfigError(problem, problems=(problem,), hint=hint)
    problems = tuple(f"{b.config}: one of several" for b in brokers) or tuple(left_out)
    raise ConfigError(
        "several brokers were found" if brokers else "no trustworthy broker configuration was found",
        problems=problems or ("no root-owned unit starts a broker, and the usual places have no server.properties",),
        hint=(
            f"set kafka.config in {DEFAULT_CONFIG}; with several brokers, use one instance for each: logagent "
            "setup NAME"
        ),
    )


def _read(config: str, units: list[BrokerUnit]) -> _Broker:
    """One server.properties that belongs to root or to one other user. Raises Untrusted, ConfigError."""
    try:
        owner = sole_owner(config)
        data = read_trusted(config, PROPERTIES, {0, owner})
        real = trusted_path(config, {0, owner})
    except OSError as e:
        raise ConfigError(f"{config}: {e.strerror}", problems=(f"{config}: {e.strerror}",), hint=_READABLE) from e
    if has_control(config):
        raise Untrusted(f"{config}: control characters")
    mine = [u for u in units if os.path.realpath(u.launch.config) == real]
    mine.sort(key=lambda u: not u.enabled)
    return _Broker(config, parse_server_properties(data, config), owner, mine[0] if mine else None)


def _user(broker: _Broker) -> tuple[str, str, int, int]:
    """The user and group that the service runs as, by name and by number: the unit's user, else the log dirs' owner."""
    unit = broker.unit
    owners = _owners(broker.server)
    if unit is not None and unit.user is not None:
        try:
            entry = pwd.getpwuid(int(unit.user)) if unit.user.isdecimal() else pwd.getpwnam(unit.user)
        except KeyError:
            raise LogAgentError(f"{unit.name} runs as user {unit.user}, which does not exist on this host") from None
        uid, gid, how = entry.pw_uid, entry.pw_gid, f"{unit.name} runs as root"
    elif len({uid for uid, _ in owners.values()}) == 1:
        uid, gid = next(iter(owners.values()))
        how = "the log dirs belong to root"
        doubts = [why_by_anybody(path, uid) for path in owners]
        if uid != 0 and all(doubts):
            raise Untrusted(
                f"anybody can have made the log dirs, so their owner, user {user_name(uid)}, names nobody: {doubts[0]}",
                hint="let a unit of root's start the broker, with User=, or keep log dirs where only root makes some",
            )
    else:
        owned_by = "; ".join(f"{path}: user {uid}" for path, (uid, _) in owners.items()) or "none of them exists"
        raise LogAgentError(f"cannot determine who owns the log dirs: {owned_by}", hint="mount their disks first")
    if uid == 0:
        raise LogAgentError(
            f"{how}, and logagent never runs as root", hint="run the broker as its own user, which owns the log dirs"
        )
    wrong = [path for path, (owner, _) in owners.items() if owner != uid]
    if wrong:
        raise LogAgentError(f"{wrong[0]} belongs to user {owners[wrong[0]][0]}, but the broker runs as user {uid}")
    if unit is not None and unit.group is not None:
        with suppress(KeyError):  # a group that is not there: the user's own stays
            gid = int(unit.group) if unit.group.isdecimal() else grp.getgrnam(unit.group).gr_gid
    # A name that systemd does not take stands as a number.
    name = user_name(uid)
    return name if _USER.fullmatch(name) else str(uid), str(gid), uid, gid


def _owners(server: ServerProperties) -> dict[str, tuple[int, int]]:
    """User and group of the log dirs that exist."""
    owners: dict[str, tuple[int, int]] = {}
    for path in server.log_dirs:
        # One that is not there has no owner; that none is there is an error of its own.
        with suppress(OSError):
            status = os.stat(path)
            owners[path] = (status.st_uid, status.st_gid)
    return owners


def _configured(settings: Settings) -> list[str]:
    """The paths that logagent's own configuration, which belongs to root, needs to write to."""
    wanted = list(settings.cleanup.quarantine_dirs)
    if settings.metrics.textfile is not None:
        wanted.append(os.path.dirname(settings.metrics.textfile))
    if settings.publish.store is not None and not is_uri(settings.publish.store):
        wanted.append(settings.publish.store)
    return wanted


def _owner(path: str) -> set[int]:
    try:
        return {os.stat(path).st_uid}
    except OSError:
        return set()


def _resolved(path: str, owners: set[int]) -> str:
    """Where `path` leads, passing only directories of `owners`, whether or not all of it exists yet.

    Raises Untrusted, also if it leads to a system directory.
    """
    existing, missing = path.rstrip("/"), ""
    while not os.path.lexists(existing) and existing:
        existing, _, name = existing.rpartition("/")
        missing = f"/{name}{missing}"
    try:
        resolved = trusted_path(existing or "/", owners, others_may_write="anywhere").rstrip("/") + missing
    except OSError as e:
        raise Untrusted(f"{path}: {e.strerror}") from e
    if not allowed(resolved):
        raise Untrusted(f"{path} leads to {resolved}, which is not a path that may be opened to the service")
    return resolved


_SECONDS = 30.0


def verify(setup: Setup) -> str | None:
    """Let `systemd-analyze verify` read each unit with its drop-in. Returns None, or why that was not possible.

    Raises LogAgentError with systemd's objections, and if the service itself is not installed.
    """
    _installed(setup.service.unit)
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze is not there"
    both = (setup.service,) if setup.prestart is None else (setup.service, setup.prestart)
    return next((why for made in both if (why := _verify(made)) is not None), None)


def _verify(made: DropIn) -> str | None:
    unit = read_unit(made.unit)
    if unit is None:
        raise LogAgentError(f"{made.unit} is not installed")
    with tempfile.TemporaryDirectory(prefix="logagent-setup-") as scratch:
        folder = Path(scratch)
        (folder / os.path.basename(unit.file)).write_bytes(read_trusted(unit.file, UNIT, ROOT))
        (folder / f"{made.unit}.d").mkdir()
        (folder / f"{made.unit}.d" / os.path.basename(made.place)).write_text(made.text, encoding="utf-8")
        try:
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", made.unit],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_UNIT_PATH": f"{folder}:"},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as e:
            return f"systemd-analyze verify did not answer ({e})"
    output = done.stdout.decode("utf-8", "replace").replace(f"{folder}/", "")
    complaints = [line for line in output.splitlines() if "logagent" in line]
    if complaints:
        raise LogAgentError(f"systemd-analyze verify: {complaints[0]}", hint="nothing was written")
    return None


def write(setup: Setup) -> None:
    """Name the broker in logagent.toml, and install the drop-ins (mode 0644), each unless that is so already.

    Raises Untrusted if a user other than root could write there, or LogAgentError.
    """
    if setup.names_it is not None:
        # Replace logagent.toml, with the mode and owner that it has.
        folder = str(INSTANCE_DIR)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o755)
        if trusted_path(folder, ROOT) != folder:
            raise Untrusted(f"{folder} is a symlink")
        there = os.lstat(DEFAULT_CONFIG) if os.path.lexists(DEFAULT_CONFIG) else None
        with whole_file(str(DEFAULT_CONFIG), mode=0o644 if there is None else there.st_mode & 0o7777) as file:
            if there is not None:
                os.fchown(file.fileno(), there.st_uid, there.st_gid)
            file.write(setup.names_it.encode())
    _install(setup.service)
    if setup.prestart is not None:
        _install(setup.prestart)


def _install(made: DropIn) -> None:
    system = UNIT_DIRS[0]
    folder = os.path.dirname(made.place)
    try:
        if trusted_path(system, ROOT) != system:
            raise Untrusted(f"{system} is a symlink")
        with suppress(FileExistsError):  # whose it is, is checked next
            os.mkdir(folder, 0o755)
        if trusted_path(folder, ROOT) != folder:
            raise Untrusted(f"{folder} is a symlink")
        if not made.is_in_place:
            with whole_file(made.place, mode=0o644) as file:
                file.write(made.text.encode())
    except OSError as e:
        raise LogAgentError(f"{made.place}: {e.strerror}", hint="this drop-in was not written") from e


_START_SECONDS = 90.0


def start(setup: Setup, *, changed: bool) -> str | None:
    """Let systemd read what was written, then enable the service and start it (again, if it was `changed`). The broker
    is left alone. Returns what was achieved; None if systemd does not run here.

    Raises LogAgentError with what systemd said.
    """
    if not systemd_runs():
        return None
    service = setup.service.unit
    _systemctl("daemon-reload", _SECONDS)
    _systemctl("enable", _SECONDS, service)
    # It answers when the service is ready, which on a large host is after minutes.
    if not _systemctl("restart" if changed else "start", _START_SECONDS, service):
        return f"{service} is enabled and still starting; journalctl -u {service} -f shows how far it is"
    state = (show_unit(service) or {}).get("ActiveState")
    if state == "active":
        return f"{service} is enabled and running"
    raise LogAgentError(
        f"{service} is enabled, but {state or 'its state is unknown'}", hint=f"journalctl -u {service} -n 20 says why"
    )


def _systemctl(verb: str, seconds: float, *units: str) -> bool:
    """Whether systemd carried that out in time. Raises LogAgentError if it refused."""
    try:
        done = subprocess.run(
            ["systemctl", "--no-ask-password", verb, *units],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    except OSError as e:
        raise LogAgentError(f"systemctl: {e.strerror}", hint="what was to be written is written") from e
    if done.returncode != 0:
        error = next(iter(done.stderr.decode("utf-8", "replace").splitlines()), f"exit status {done.returncode}")
        logs = f"; journalctl -u {units[0]} -n 20 says why" if units else ""
        raise LogAgentError(
            f"systemctl {' '.join((verb, *units))}: {error}", hint=f"what was to be written is written{logs}"
        )
    return True


@click.command()
@click.argument("name", required=False)
@click.option("--execute", is_flag=True, help="Write it, then enable and start the service (only shown otherwise).")
@or_dry_run
@click.option("--prestart", is_flag=True, help="Let the broker's unit run logagent prestart before each start, too.")
@click.option("-y", "--yes", is_flag=True, help="With --execute on a terminal: do not ask.")
def setup(name: str | None, execute: bool, prestart: bool, yes: bool) -> None:
    """Show (with --execute: write) the service's broker, user and writable paths, then start it.

    With NAME, the drop-in is for logagent@NAME.service and /etc/logagent/NAME.toml: one of several brokers on a host.

    The broker is the one of kafka.config, else the only one that a unit starts or that is configured in a usual place;
    that one is set as kafka.config in /etc/logagent/logagent.toml, for the service and for every command.
    The user is that of the broker's unit, else the owner of the log dirs, never root. Only files are trusted that root
    (of server.properties: root or the owner of the log dirs) owns, in directories that nobody else can write; running
    processes are not. Needs root. Run it again when log.dirs or the user has changed: logagent doctor says so.

    With --execute the service is enabled and started, or started again if anything changed. Where systemd does not run
    (an image that is being built, a container), that is left to whoever boots the host. The broker is never restarted:
    what --prestart adds to its unit counts from its next start.

    \b
    Exit status:
      0   shown; or written, verified by systemd-analyze, and started
      1   not trusted, not written, or the service did not start
      2   wrong usage
      77  not root
      78  the configuration is wrong, or it is not clear which broker is meant
    """
    if os.geteuid() != 0:
        raise NotPermitted("setup needs root", hint="sudo logagent setup")
    made = plan_setup(name, prestart=prestart)
    with whoever_reads(_say) if execute else nullcontext():
        _show(made)
    unasked = verify(made)
    _say("systemd-analyze verify has no complaints" if unasked is None else f"not verified: {unasked}")
    changed = not made.service.is_in_place or made.names_it is not None
    complete = not changed and (made.prestart is None or made.prestart.is_in_place)
    if not execute:
        _say("it is already in place" if complete else "nothing was written yet; --execute writes it")
        return
    if sys.stdin.isatty() and not yes and not click.confirm(f"Write this and start {made.service.unit}?", err=True):
        _say("nothing was written")
        return
    _carry_out(made, complete=complete, changed=changed)


def _carry_out(made: Setup, *, complete: bool, changed: bool) -> None:
    write(made)
    # The broker's user may need its journal before the service has ever started (`logagent prestart`).
    make_as_root(made.state_dir, (made.uid, made.gid))
    _say("it was already in place" if complete else "written")
    if made.prestart is not None:
        _say(f"{made.prestart.unit} runs logagent prestart from its next start on")
    by_hand = f"systemctl daemon-reload && systemctl enable --now {made.service.unit}"
    _say(start(made, changed=changed) or f"systemd does not run here; once it does: {by_hand}")


def _show(made: Setup) -> None:
    for line in made.left_out:
        _say(f"left out: {line}")
    for shown in filter(None, (made.service, made.prestart)):
        click.echo(f"# {shown.place}")
        click.echo("\n".join(visible(line) for line in shown.text.splitlines()))
    if made.names_it is not None:
        click.echo(f"# {DEFAULT_CONFIG}: kafka.config\nconfig = {json.dumps(visible(made.broker), ensure_ascii=False)}")


def _say(message: str) -> None:
    click.echo(visible(message), err=True)
