"""What doctor finds of the daemon's unit: whether it would block what the daemon has to see and to write."""

from __future__ import annotations

import re
from collections.abc import Iterator

from logagent.model.doctor.facts import DoctorFacts, ServiceLook
from logagent.model.doctor.finding import (
    Area,
    Change,
    DoctorFinding,
    fails,
    info,
    unit_change,
    unit_word,
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
