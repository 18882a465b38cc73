"""The daemon's side: its unit and what that would block, its status, its state dir, its port, other instances."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from logagent.model.doctor_facts import DoctorFacts, ServiceLook
from logagent.model.doctor_finding import (
    Area,
    Change,
    DoctorFinding,
    fails,
    info,
    shell_word,
    toml_change,
    unit_change,
    unit_word,
    warning,
    works,
)

_SYSTEM = {"yes": ("/usr", "/boot", "/efi"), "full": ("/usr", "/boot", "/efi", "/etc"), "strict": ("/",)}
# What `ProtectSystem=strict` leaves as it is.
_API = ("/dev", "/proc", "/sys")
_HOMES = ("/home", "/root", "/run/user")
_TMP = ("/tmp", "/var/tmp")
# Unit settings with which the broker or the rest of /proc is out of sight: key, value that works, values that do not
# (None: every other one).
_BLINDING: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    ("ProtectProc", "default", None),
    ("ProcSubset", "all", None),
    ("PrivateUsers", "no", None),
    ("PrivatePIDs", "no", None),
    ("DynamicUser", "no", None),
    ("RootDirectory", "", None),
    ("RootImage", "", None),
)


def service(f: DoctorFacts) -> Iterator[DoctorFinding]:
    s = f.service
    if s is None:
        hint = "the commands work without one; the packages bring logagent.service"
        yield info(Area.SERVICE, "no-service", "", "no unit of the daemon is installed", hint)
        return
    found = [*_blind(s), *_paths(f, s), *_failed(s)]
    if not found:
        state = s.active or "state unknown: no systemd answers"
        yield works(
            Area.SERVICE, "service", s.unit, f"{state}; user {s.user or 'root'}; nothing in it blocks the agent"
        )
    yield from found


def _blind(s: ServiceLook) -> Iterator[DoctorFinding]:
    for key, good, bad in _BLINDING:
        value = s.properties.get(key, good)
        if value and value != good and (bad is None or value in bad):
            yield fails(
                Area.SERVICE,
                "unit-blinds",
                s.unit,
                f"{key}={value}: the daemon would not see the broker's processes, users or files as they are",
                "without seeing them it does nothing",
                unit_change(s, f"{key}={good}"),
            )


def _paths(f: DoctorFacts, s: ServiceLook) -> Iterator[DoctorFinding]:
    written = [d.path for d in f.log_dirs] + [a.path for a in f.files if a.write]
    # A log dir that is opened by itself is bound into the service's own namespace, and keeps an unmounted disk busy.
    points = {d.path: d.mount.point for d in f.log_dirs if d.mount is not None and d.mount.point != "/"}
    if f.state is not None and f.state.service_path is not None:
        written.append(f.state.service_path)
    for path in dict.fromkeys(written):
        reason, line = _blocked(s, path, points.get(path, path))
        if reason is not None:
            yield fails(
                Area.SERVICE,
                "unit-blocks",
                path,
                f"{reason}: {s.unit} could not write there",
                "`systemctl daemon-reload` makes logagent's generator open what server.properties names now; what it"
                " leaves out (places of the system), open yourself",
                unit_change(s, line),
            )
            continue
        seen = s.sandbox.get(path)
        if seen is not None and (seen.read_only or seen.device_read_only):
            yield fails(
                Area.SERVICE,
                "service-read-only",
                path,
                f"the running daemon (process {s.main_pid}) sees it read-only, mounted at {seen.point}",
                "it was started before the path was opened, or before its disk was mounted",
                Change(line=f"systemctl restart {s.unit}"),
            )
    if s.properties.get("PrivateTmp") in ("yes", "connected", "disconnected"):
        for path in [p for p in (f.config.kafka_config,) if p and _below(p, _TMP)]:
            says = f"PrivateTmp={s.properties['PrivateTmp']}: the daemon would not find {path}"
            yield fails(Area.SERVICE, "unit-blocks", path, says, "", unit_change(s, "PrivateTmp=no"))


def _blocked(s: ServiceLook, path: str, point: str) -> tuple[str | None, str]:
    """Why the unit would keep `path` (on the mount `point`) from being written to, and the line that opens it."""
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
        return f"ProtectSystem={system}, and no ReadWritePaths= names it", open_line
    return None, ""


def _listed(text: str) -> list[str]:
    """Paths of a unit's list, without what systemd permits before each and after a colon."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', text)
    return [(quoted or plain).lstrip("-+").split(":")[0] for quoted, plain in words]


def _below(path: str, places: tuple[str, ...] | list[str]) -> bool:
    return any(path == p or path.startswith(f"{p.rstrip('/')}/") for p in places)


def _failed(s: ServiceLook) -> Iterator[DoctorFinding]:
    if s.active == "failed":
        result = s.properties.get("Result", "unknown")
        status = s.properties.get("ExecMainStatus", "unknown")
        says = f"the service failed (result {result}, exit status {status})"
        change = Change(line=f"systemctl restart {s.unit}")
        yield fails(Area.SERVICE, "service-failed", s.unit, says, f"journalctl --unit {s.unit} says why", change)


def daemon(f: DoctorFacts) -> Iterator[DoctorFinding]:
    d = f.daemon
    if d is None:
        return
    if d.state == "running":
        ours = {path.rstrip("/") for path in (x.path for x in f.log_dirs)}
        theirs = None if d.log_dirs is None else {path.rstrip("/") for path in d.log_dirs}
        if theirs is not None and ours and theirs != ours:
            yield fails(
                Area.DAEMON,
                "other-daemon",
                d.socket,
                f"the daemon there (process {d.pid}) serves {', '.join(sorted(theirs)) or 'no log dir'}: not the log"
                " dirs of this configuration",
                "name the state dir of the daemon that is meant (--state-dir), or reload it: its configuration changed",
            )
        else:
            yield works(Area.DAEMON, "daemon", d.socket, f"process {d.pid} runs and answers")
    elif d.state == "refused":
        hint = "run doctor as root or as the daemon's user"
        yield info(Area.DAEMON, "daemon-closed", d.socket, f"its daemon may not be asked: {d.detail}", hint)
    elif d.state == "silent":
        says = f"a daemon is there, but does not answer: {d.detail}"
        yield fails(Area.DAEMON, "daemon-silent", d.socket, says, "look at its log; its watchdog restarts it, too")
    else:
        yield info(Area.DAEMON, "daemon-stopped", d.socket, "no daemon runs with this state dir", "")


def state_dir(f: DoctorFacts) -> Iterator[DoctorFinding]:
    s = f.state
    if s is None:
        return
    found = list(_state_problems(f))
    if not found:
        what = "the journal is there" if s.journal else "the first command that acts makes the journal there"
        found = [works(Area.STATE_DIR, "state-dir", s.path, what)]
    yield from found
    if s.service_path is not None and s.service_path != s.path:
        says = f"{f.service.unit if f.service else 'the service'} keeps its journal in {s.service_path}, not here"
        yield info(Area.STATE_DIR, "other-state-dir", s.path, says, f"add --state-dir {s.service_path}")


def _state_problems(f: DoctorFacts) -> Iterator[DoctorFinding]:
    s, name = f.state, f.subject.name
    assert s is not None
    if s.in_log_dir is not None:
        yield fails(
            Area.STATE_DIR,
            "state-in-log-dir",
            s.path,
            f"it lies in the log dir {s.in_log_dir}, where no broker would start with it",
            "name a state dir elsewhere with --state-dir",
        )
    if s.access is not None and s.access.lacks is not None and not (s.made_by_unit and not s.exists):
        at = s.access.at or s.path
        says = (
            f"user {name} lacks {s.access.lacks} permission on {at} (owner {s.access.owner}): nothing is done without"
        )
        says += " a journal"
        path = shell_word(s.path)
        change = Change(line=f"install -d -m 0750 -o {name} {path}" if not s.exists else f"chown -R {name} {path}")
        yield fails(Area.STATE_DIR, "state-closed", s.path, says, "give it to the user that the agent runs as", change)
    if s.full:
        says = "its file system has no free block: nothing is done while the journal cannot be written"
        yield fails(Area.STATE_DIR, "state-full", s.path, says, "make room there")
    if s.journal_schema is not None and s.journal_schema > s.known_schema:
        yield fails(
            Area.STATE_DIR,
            "journal-newer",
            s.path,
            f"its journal was written by a newer logagent (schema {s.journal_schema}; this one knows {s.known_schema})",
            "install that version again",
        )
    if s.foreign:
        yield warning(
            Area.STATE_DIR,
            "journal-of-others",
            s.path,
            f"its journal also tells of log dirs that are none of this broker's: {', '.join(s.foreign[:4])}",
            "one state dir for each broker: the blast radius counts over all that a journal holds",
        )


def metrics(f: DoctorFacts) -> Iterator[DoctorFinding]:
    p = f.port
    if p is None:
        return
    if p.problem is None or p.ours:
        says = "the daemon offers its metrics there" if p.ours else "free for the metrics"
        yield works(Area.METRICS, "metrics", p.listen, says)
        return
    host = p.listen.rpartition(":")[0]
    better = f"{host if p.problem != 'not-local' else '127.0.0.1'}:{p.next_free}"
    words = {
        "taken": f"the port is taken{f' by {p.by}' if p.by else ''}",
        "not-local": "this host has no such address",
        "not-permitted": f"user {f.subject.name} may not use a port that low",
    }
    yield fails(
        Area.METRICS,
        f"port-{p.problem}" if p.problem in words else "port",
        p.listen,
        words.get(p.problem, p.problem),
        "take another one",
        toml_change(f.config, "metrics.listen", better) if p.next_free is not None else None,
    )


def siblings(f: DoctorFacts) -> Iterator[DoctorFinding]:
    others = [b.config for b in f.brokers if b.candidate and not b.chosen]
    for s in f.siblings:
        if s.log_dirs:
            line = f"config = {json.dumps(others[0])}" if len(others) == 1 else None
            yield fails(
                Area.INSTANCES,
                "shared-log-dirs",
                s.file,
                f"it serves the same log dirs as this one: {', '.join(s.log_dirs)}",
                "one instance for one broker: take one of the two away, or name its own broker in it",
                Change(line=line, file=s.file, number=s.number, section="kafka") if line is not None else None,
            )
        if s.listen:
            free = f.port.next_free if f.port is not None and f.port.next_free is not None else 9641
            host = f.port.listen.rpartition(":")[0] if f.port is not None else "127.0.0.1"
            yield fails(
                Area.INSTANCES,
                "shared-port",
                s.file,
                f"it offers its metrics at the same address as this one, {f.port.listen if f.port else ''}",
                "give each instance a port of its own",
                toml_change(f.config, "metrics.listen", f"{host}:{free}"),
            )
        if s.problem is not None:
            yield info(Area.INSTANCES, "instance-wrong", s.file, s.problem, f"logagent doctor --config {s.file}")
