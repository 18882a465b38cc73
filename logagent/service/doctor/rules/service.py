"""The daemon's unit: whether it hides what the daemon must see, or blocks what it must write to.

The daemon and what it needs: its status, the state dir, the metrics port, other instances.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from logagent.advice.finding import Change, Finding, fatal, info, warning, works
from logagent.service.doctor.rules.facts import DoctorFacts, ServiceFacts
from logagent.service.doctor.rules.storage import toml_change, unit_change, unit_word
from logagent.service.setup.rules import CONFIG_VARIABLE
from logagent.verdict.clock_doubt import TRUST_CLOCK


def daemon(f: DoctorFacts) -> Iterator[Finding]:
    d = f.daemon
    if d is None:
        return
    if d.state == "running":
        configured = {path.rstrip("/") for path in (x.path for x in f.log_dirs)}
        served = None if d.log_dirs is None else {path.rstrip("/") for path in d.log_dirs}
        if served is not None and configured and served != configured:
            yield fatal(
                "other-daemon",
                d.socket,
                f"the daemon there (process {d.pid}) serves {', '.join(sorted(served)) or 'no log dir'}, not the log"
                " dirs of this configuration",
                "give the state dir of the right daemon (--state-dir), or reload it if its configuration changed",
            )
        else:
            yield works("daemon", d.socket, f"process {d.pid} is running and answers")
        if d.clock_doubt is not None:
            says = f"it does nothing that depends on an age: {d.clock_doubt}"
            yield warning("clock-doubted", d.socket, says, TRUST_CLOCK)
        if d.reload_failed is not None:
            says = f"it runs with its configuration of before; the last reload failed: {d.reload_failed}"
            hint = "mend the configuration and reload it (systemctl reload logagent)"
            yield warning("reload-failed", d.socket, says, hint)
    elif d.state == "refused":
        hint = "run doctor as root or as the daemon's user"
        yield info("daemon-closed", d.socket, f"not permitted to ask the daemon: {d.detail}", hint)
    elif d.state == "silent":
        says = f"the daemon does not answer: {d.detail}"
        yield fatal("daemon-silent", d.socket, says, "see its log; its watchdog restarts it as well")
    else:
        yield info("daemon-stopped", d.socket, "no daemon is running with this state dir")


def state_dir(f: DoctorFacts) -> Iterator[Finding]:
    s = f.state
    if s is None:
        return
    problems = list(_state_problems(f))
    if not problems:
        what = "the journal exists" if s.journal else "the first command that acts creates the journal"
        problems = [works("state-dir", s.path, what)]
    yield from problems
    if s.service_path is not None and s.service_path != s.path:
        says = f"{f.service.unit if f.service else 'the service'} keeps its journal in {s.service_path}, not here"
        yield info("other-state-dir", s.path, says, f"add --state-dir {quote(s.service_path)}")


def _state_problems(f: DoctorFacts) -> Iterator[Finding]:
    s, name = f.state, f.subject.name
    assert s is not None
    if s.in_log_dir is not None:
        yield fatal(
            "state-in-log-dir",
            s.path,
            f"it is inside the log dir {s.in_log_dir}: no broker would start with it there",
            "use a state dir elsewhere (--state-dir)",
        )
    if s.access is not None and s.access.lacks is not None and not (s.made_by_unit and not s.exists):
        at = s.access.at or s.path
        lacks = f"user {name} lacks {s.access.lacks} permission on {at} (owner {s.access.owner})"
        give = f"chown -R {quote(name)}" if s.exists else f"install -d -m 0750 -o {quote(name)}"
        change = Change(line=f"{give} {quote(s.path)}")
        says = f"{lacks}: nothing is done without a journal"
        yield fatal("state-closed", s.path, says, "give it to the user the agent runs as", change=change)
    if s.full:
        says = "its file system is full: nothing is done while the journal cannot be written"
        yield fatal("state-full", s.path, says, "free some space there")
    elif s.no_reserve:
        says = "it has no journal.reserve, and no room for one: once its disk is full nothing may be removed any more"
        yield warning("no-reserve", s.path, says, "free some space there, or use a state dir on another disk")
    if s.journal_schema is not None and s.journal_schema > s.known_schema:
        yield fatal(
            "journal-newer",
            s.path,
            f"its journal was written by a newer logagent (schema {s.journal_schema}; this one knows {s.known_schema})",
            "install that version again",
        )
    if s.journal_schema is not None and 0 < s.journal_schema < s.known_schema:
        yield fatal(
            "journal-older",
            s.path,
            f"its journal is of an older logagent (schema {s.journal_schema}; this one reads {s.known_schema})",
            "run the last logagent 0.1.0 once, which brings it up to date",
        )
    if s.forgotten is not None:
        says = f"{s.forgotten[0]}: restores and removals that depend on it wait"
        yield warning("log-dir-forgotten", s.path, says, s.forgotten[1])
    if s.foreign:
        yield warning(
            "journal-of-others",
            s.path,
            f"its journal also has entries about log dirs of another broker: {', '.join(s.foreign[:4])}",
            "use one state dir per broker: the blast radius counts everything in a journal",
        )


def metrics(f: DoctorFacts) -> Iterator[Finding]:
    p = f.port
    if p is None:
        return
    if p.problem is None or p.by_daemon:
        says = "the daemon serves its metrics there" if p.by_daemon else "free for the metrics"
        yield works("metrics", p.listen, says)
        return
    host = p.listen.rpartition(":")[0]
    better = f"{host if p.problem != 'not-local' else '127.0.0.1'}:{p.next_free}"
    words = {
        "taken": f"the port is in use{f' by {p.by}' if p.by else ''}",
        "not-local": "not an address of this host",
        "not-permitted": f"user {f.subject.name} may not use a privileged port",
    }
    yield fatal(
        f"port-{p.problem}" if p.problem in words else "port",
        p.listen,
        words.get(p.problem, p.problem),
        "use another one",
        change=toml_change(f.config, "metrics.listen", better) if p.next_free is not None else None,
    )


def siblings(f: DoctorFacts) -> Iterator[Finding]:
    others = [b.config for b in f.brokers if b.candidate and not b.chosen]
    for s in f.siblings:
        if s.log_dirs:
            line = f"config = {json.dumps(others[0])}" if len(others) == 1 else None
            yield fatal(
                "shared-log-dirs",
                s.file,
                f"it serves the same log dirs as this one: {', '.join(s.log_dirs)}",
                "use one instance per broker: remove one of the two, or configure its own broker in it",
                change=Change(line=line, file=s.file, number=s.number, section="kafka") if line is not None else None,
            )
        if s.listen:
            free = f.port.next_free if f.port is not None and f.port.next_free is not None else 9641
            host = f.port.listen.rpartition(":")[0] if f.port is not None else "127.0.0.1"
            yield fatal(
                "shared-port",
                s.file,
                f"it serves its metrics on the same address as this one, {f.port.listen if f.port else ''}",
                "give each instance its own port",
                change=toml_change(f.config, "metrics.listen", f"{host}:{free}"),
            )
        if s.problem is not None:
            yield info("instance-wrong", s.file, s.problem, f"logagent doctor --config {quote(s.file)}")


_SYSTEM = {"yes": ("/usr", "/boot", "/efi"), "full": ("/usr", "/boot", "/efi", "/etc"), "strict": ("/",)}
# What `ProtectSystem=strict` leaves writable.
_API = ("/dev", "/proc", "/sys")
_HOMES = ("/home", "/root", "/run/user")
_TMP = ("/tmp", "/var/tmp")
# Unit settings that hide the broker or parts of /proc: key, the value that works, those that do not (None: all others).
_BLINDING: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    ("ProtectProc", "default", None),
    ("ProcSubset", "all", None),
    ("PrivateUsers", "no", None),
    ("PrivatePIDs", "no", None),
    ("DynamicUser", "no", None),
    ("RootDirectory", "", None),
    ("RootImage", "", None),
)


def service(f: DoctorFacts) -> Iterator[Finding]:
    s = f.service
    if s is None:
        hint = "the commands work without it; the packages install logagent.service"
        yield info("no-service", "", "the daemon's unit is not installed", hint)
        return
    problems = [*_setup(s), *_unnamed(f, s), *_blind(s), *_paths(f, s), *_failed(s)]
    if not problems:
        state = s.active or "state unknown: systemd does not answer"
        yield works("service", s.unit, f"{state}; user {s.user or 'root'}; nothing in the unit blocks the agent")
    yield from problems


def _setup(s: ServiceFacts) -> Iterator[Finding]:
    """Whether the drop-in is still what `logagent setup` would write."""
    setup = s.setup
    if setup is None or setup.state == "fits":
        return
    says = {
        "missing": f"{s.unit} is not set up yet: it does not start without a drop-in",
        "differs": "it no longer fits server.properties, the broker's user, the mounts or kafka.config",
        "refused": f"it could not be written again: {setup.why}",
    }[setup.state]
    hint = f"look at what `{setup.command.removesuffix(' --execute')}` shows first"
    then = f"systemctl daemon-reload && systemctl restart {quote(s.unit)}"
    change = Change(line=setup.command, then=then) if setup.state != "refused" else None
    yield fatal("setup-outdated" if setup.state != "missing" else "not-set-up", setup.place, says, hint, change=change)


def _unnamed(f: DoctorFacts, s: ServiceFacts) -> Iterator[Finding]:
    """The daemon does not search for a broker: where nothing names one, it does not start."""
    p, c = s.properties, f.config
    named = (
        c.named_in_file
        or CONFIG_VARIABLE in p.get("Environment", "")
        or "EnvironmentFile" in p
        or "EnvironmentFiles" in p
    )
    named = named or any(option in p.get("ExecStart", "") for option in ("--kafka-config", "--log-dir"))
    setup_names_it = s.setup is not None and s.setup.state != "fits"  # setup names it, once it is run
    if not named and not setup_names_it and c.kafka_config is not None:
        change = toml_change(c, "kafka.config", c.kafka_config)
        change = replace(change, then=f"systemctl restart {quote(s.unit)}")
        says = "nothing names the broker to the daemon: it does not start (exit status 78)"
        yield fatal("daemon-unnamed", s.unit, says, "name it", change=change)


def _blind(s: ServiceFacts) -> Iterator[Finding]:
    for key, good, bad in _BLINDING:
        value = s.properties.get(key, good)
        if value and value != good and (bad is None or value in bad):
            yield fatal(
                "unit-blinds",
                s.unit,
                f"{key}={value}: the daemon would not see the broker's real processes, users or files",
                "it does nothing without seeing them",
                change=unit_change(s, f"{key}={good}"),
            )


def _paths(f: DoctorFacts, s: ServiceFacts) -> Iterator[Finding]:
    written = [d.path for d in f.log_dirs] + [a.path for a in f.files if a.write]
    # A log dir that is listed itself is bind-mounted into the service's namespace and keeps an unmounted disk busy.
    points = {d.path: d.mount.point for d in f.log_dirs if d.mount is not None and d.mount.point != "/"}
    if f.state is not None and f.state.service_path is not None:
        written.append(f.state.service_path)
    for path in dict.fromkeys(written):
        reason, line = _blocked(s, path, points.get(path, path))
        if reason is not None:
            yield fatal(
                "unit-blocks",
                path,
                f"{reason}: {s.unit} cannot write there",
                "`logagent setup` (as root) opens what server.properties names; it leaves out system paths:"
                " open those yourself",
                change=unit_change(s, line),
            )
            continue
        seen = s.sandbox.get(path)
        if seen is not None and (seen.read_only or seen.device_read_only):
            yield fatal(
                "service-read-only",
                path,
                f"read-only for the running daemon (process {s.main_pid}), mounted at {seen.point}",
                "it was started before the path was made writable, or before its disk was mounted",
                change=Change(line=f"systemctl restart {quote(s.unit)}"),
            )
    if s.properties.get("PrivateTmp") in ("yes", "connected", "disconnected"):
        for path in [p for p in (f.config.kafka_config,) if p and _below(p, _TMP)]:
            says = f"PrivateTmp={s.properties['PrivateTmp']}: the daemon would not find {path}"
            yield fatal("unit-blocks", path, says, change=unit_change(s, "PrivateTmp=no"))


def _blocked(s: ServiceFacts, path: str, point: str) -> tuple[str | None, str]:
    """Why the unit makes `path` (on the mount `point`) unwritable, and the line that makes it writable."""
    p = s.properties
    open_line = f"ReadWritePaths={unit_word(f'-{point}')}"
    if p.get("PrivateTmp") in ("yes", "connected", "disconnected") and _below(path, _TMP):
        return f"PrivateTmp={p['PrivateTmp']}", "PrivateTmp=no"
    for key in ("InaccessiblePaths", "TemporaryFileSystem"):
        if _below(path, _listed(p.get(key, ""))):
            return f"{key}={p[key]}", f"{key}="
    opened = _listed(p.get("ReadWritePaths", "")) + [f"/var/lib/{d}" for d in p.get("StateDirectory", "").split()]
    home = p.get("ProtectHome", "no")
    if home in ("yes", "tmpfs") and _below(path, _HOMES):
        return f"ProtectHome={home}", "ProtectHome=no"
    best = max((len(o) for o in opened if _below(path, (o,))), default=-1)
    closed = list(_listed(p.get("ReadOnlyPaths", "")))
    if any(_below(path, (c,)) and len(c) >= best for c in closed):
        return f"ReadOnlyPaths={p['ReadOnlyPaths']}", open_line
    if best >= 0:
        return None, ""
    if home == "read-only" and _below(path, _HOMES):
        return f"ProtectHome={home}", open_line
    system = p.get("ProtectSystem", "no")
    if _below(path, _SYSTEM.get(system, ())) and not (system == "strict" and _below(path, _API)):
        return f"ProtectSystem={system}, and no ReadWritePaths= covers it", open_line
    return None, ""


def _listed(text: str) -> list[str]:
    """The paths in a unit's list, without the prefixes that systemd permits and without what follows a colon."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', text)
    return [(quoted or plain).lstrip("-+").split(":")[0] for quoted, plain in words]


def _below(path: str, places: tuple[str, ...] | list[str]) -> bool:
    return any(path == p or path.startswith(f"{p.rstrip('/')}/") for p in places)


def _failed(s: ServiceFacts) -> Iterator[Finding]:
    if s.active == "failed":
        result = s.properties.get("Result", "unknown")
        status = s.properties.get("ExecMainStatus", "unknown")
        says = f"the service failed (result {result}, exit status {status})"
        change = Change(line=f"systemctl restart {quote(s.unit)}")
        yield fatal("service-failed", s.unit, says, f"journalctl --unit {quote(s.unit)} says why", change=change)
