"""Whether the agent's user is the one that it has to be, and sees what the broker has open."""

from __future__ import annotations

from collections.abc import Iterator

from logagent.model.doctor.facts import DoctorFacts, HolderLook, ProcLook, ServiceLook
from logagent.model.doctor.finding import Area, Change, DoctorFinding, fails, unit_change, warning, works

_USELESS = "so it can only report: nothing is renamed or removed while it cannot be seen what the broker has open"


def rights(f: DoctorFacts) -> Iterator[DoctorFinding]:
    s = f.subject
    if not f.log_dirs:
        return
    yield works(Area.RIGHTS, "user", s.name, f"looked at as user {s.name} ({s.how})")
    if f.service is not None and not s.service and f.service.user not in (None, s.name):
        yield warning(
            Area.RIGHTS,
            "not-the-service",
            s.name,
            f"{f.service.unit} runs as user {f.service.user}: what it may do was not looked at",
            f"run `logagent doctor` as root, or as {f.service.user}",
        )
    for holder in f.holders:
        if holder.kafka:
            yield _descriptors(f, holder)
    if not f.holders:
        yield from _owner(f)
    yield from _hidepid(f.proc, f)


def _descriptors(f: DoctorFacts, h: HolderLook) -> DoctorFinding:
    s = f.subject
    path = f"/proc/{h.pid}/fd"
    who = f"the broker (process {h.pid})"
    if h.uid is not None and h.uid != s.uid and s.uid != 0:
        return fails(
            Area.RIGHTS,
            "other-user",
            path,
            f"{who} runs as user {h.user or h.uid}, the agent as {s.name}, {_USELESS}",
            "let both run as one user",
            _user_change(f.service, h.user or str(h.uid)),
        )
    if h.proc == "readable":
        return works(Area.RIGHTS, "descriptors", path, f"what {who} has open can be read")
    if h.proc == "hidden":
        return fails(
            Area.RIGHTS,
            "proc-hidden",
            path,
            f"{who} is not shown to user {s.name} in /proc, {_USELESS}",
            "see below how /proc is mounted; ProtectProc= and PrivatePIDs= of a unit hide processes too",
            _show_processes(f.proc, f.service),
        )
    if h.gid is not None and h.gid != s.gid:
        return fails(
            Area.RIGHTS,
            "other-group",
            path,
            f"{who} runs with group {h.gid}, the agent with group {s.gid}, {_USELESS}",
            "the kernel wants the same primary group too",
            _service_change(f.service, f"Group={h.gid}"),
        )
    if h.capabilities:
        return fails(
            Area.RIGHTS,
            "broker-capabilities",
            path,
            f"{who} has capabilities (0x{h.capabilities:x}), so the kernel hides what it has open from an agent without"
            f" them, {_USELESS}",
            "take them from the broker (AmbientCapabilities= of its unit), or give the agent one that sees past that",
            _service_change(f.service, "AmbientCapabilities=CAP_SYS_PTRACE\nCapabilityBoundingSet=CAP_SYS_PTRACE"),
        )
    why = "its program may not be read, or was made undumpable" if not h.dumpable else "the kernel or a policy refuses"
    return fails(
        Area.RIGHTS,
        "descriptors-refused",
        path,
        f"what {who} has open cannot be read ({why}), {_USELESS}",
        "make its java readable to all; look for SELinux or AppArmor denials",
    )


def _owner(f: DoctorFacts) -> Iterator[DoctorFinding]:
    """While the broker is stopped, the owner of the log dirs is who it will run as."""
    s = f.subject
    owned = [d for d in f.log_dirs if d.owner_uid is not None]
    # Where some are the agent's, the others have the wrong owner, not the agent the wrong user.
    if owned and s.uid != 0 and all(d.owner_uid != s.uid for d in owned):
        d = owned[0]
        yield fails(
            Area.RIGHTS,
            "other-owner",
            d.path,
            f"it belongs to user {d.owner}, the agent runs as {s.name}",
            "run the agent as the broker's user; if the broker runs as "
            f"{s.name} too, its log dir should belong to that user",
            _user_change(f.service, d.owner or str(d.owner_uid)),
        )


def _hidepid(proc: ProcLook, f: DoctorFacts) -> Iterator[DoctorFinding]:
    if proc.hidepid is None or proc.exempt or f.subject.uid == 0:
        return
    yield warning(
        Area.RIGHTS,
        "hidepid",
        "/proc",
        f"it is mounted with hidepid={proc.hidepid}: another user's process that holds files of a log dir is not seen",
        "let the agent's user see all processes",
        _show_processes(proc, f.service),
    )


def _show_processes(proc: ProcLook, service: ServiceLook | None) -> Change | None:
    if service is not None and service.properties.get("ProtectProc", "default") != "default":
        return _service_change(service, "ProtectProc=default")
    if proc.hidepid is None:
        return None
    if proc.group is not None:
        if service is not None:
            return _service_change(service, f"SupplementaryGroups={proc.group}")
        return Change(line=f"usermod --append --groups {proc.group} USER")
    if proc.fstab is not None:
        words = proc.fstab.value.split()
        words[3] = ",".join(o for o in words[3].split(",") if not o.startswith("hidepid=")) or "defaults"
        then = "mount -o remount,hidepid=0 /proc"
        return Change(line=" ".join(words), file=proc.fstab.file, number=proc.fstab.number, then=then)
    return Change(line="mount -o remount,hidepid=0 /proc")


def _user_change(service: ServiceLook | None, user: str) -> Change:
    return _service_change(service, f"User={user}") or Change(line=f"su -s /bin/sh {user} -c 'logagent …'")


def _service_change(service: ServiceLook | None, line: str) -> Change | None:
    return unit_change(service, line) if service is not None else None
