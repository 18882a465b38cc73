"""Whether the agent runs as the right user and can see the broker's open files."""

from __future__ import annotations

from collections.abc import Iterator

from logagent.model.doctor.doctor_facts import DoctorFacts, HolderLook, ProcLook, ServiceLook
from logagent.model.doctor.fixes import unit_change
from logagent.model.finding import Change, Finding, fatal, warning, works

_USELESS = "so it can only report: nothing is renamed or removed while the broker's open files cannot be seen"


def rights(f: DoctorFacts) -> Iterator[Finding]:
    s = f.subject
    if not f.log_dirs:
        return
    yield works("user", s.name, f"checked as user {s.name} ({s.how})")
    if f.service is not None and not s.service and f.service.user not in (None, s.name):
        yield warning(
            "not-the-service",
            s.name,
            f"{f.service.unit} runs as user {f.service.user}, whose rights were not checked",
            f"run `logagent doctor` as root, or as {f.service.user}",
        )
    for holder in f.holders:
        if holder.kafka:
            yield _descriptors(f, holder)
    if not f.holders:
        yield from _owner(f)
    yield from _hidepid(f.proc, f)


def _descriptors(f: DoctorFacts, h: HolderLook) -> Finding:
    s = f.subject
    path = f"/proc/{h.pid}/fd"
    who = f"the broker (process {h.pid})"
    if h.uid is not None and h.uid != s.uid and s.uid != 0:
        return fatal(
            "other-user",
            path,
            f"{who} runs as user {h.user or h.uid} and the agent as {s.name}, {_USELESS}",
            "run both as the same user",
            change=_user_change(f.service, h.user or str(h.uid)),
        )
    if h.proc == "readable":
        return works("descriptors", path, f"the open files of {who} can be read")
    if h.proc == "hidden":
        return fatal(
            "proc-hidden",
            path,
            f"{who} is hidden from user {s.name} in /proc, {_USELESS}",
            "see below how /proc is mounted; ProtectProc= and PrivatePIDs= in a unit also hide processes",
            change=_show_processes(f.proc, f.service),
        )
    if h.gid is not None and h.gid != s.gid:
        return fatal(
            "other-group",
            path,
            f"{who} runs with group {h.gid} and the agent with group {s.gid}, {_USELESS}",
            "the kernel requires the same primary group too",
            change=_service_change(f.service, f"Group={h.gid}"),
        )
    if h.capabilities:
        return fatal(
            "broker-capabilities",
            path,
            f"{who} has capabilities (0x{h.capabilities:x}), so the kernel hides its open files from an agent without"
            f" them, {_USELESS}",
            "remove them from the broker (AmbientCapabilities= in its unit), or give the agent CAP_SYS_PTRACE",
            change=_service_change(
                f.service, "AmbientCapabilities=CAP_SYS_PTRACE\nCapabilityBoundingSet=CAP_SYS_PTRACE"
            ),
        )
    why = (
        "its executable is not readable, or it is not dumpable" if not h.dumpable else "the kernel or a policy refuses"
    )
    return fatal(
        "descriptors-refused",
        path,
        f"the open files of {who} cannot be read ({why}), {_USELESS}",
        "make its java executable readable for all; look for SELinux or AppArmor denials",
    )


def _owner(f: DoctorFacts) -> Iterator[Finding]:
    """While the broker is stopped, the owner of the log dirs is taken for the user it will run as."""
    s = f.subject
    owned = [d for d in f.log_dirs if d.owner_uid is not None]
    # If some belong to the agent's user, the others have the wrong owner; the agent's user is right.
    if owned and s.uid != 0 and all(d.owner_uid != s.uid for d in owned):
        d = owned[0]
        yield fatal(
            "other-owner",
            d.path,
            f"it belongs to user {d.owner}, but the agent runs as {s.name}",
            "run the agent as the broker's user; if the broker runs as "
            f"{s.name} too, its log dir should belong to that user",
            change=_user_change(f.service, d.owner or str(d.owner_uid)),
        )


def _hidepid(proc: ProcLook, f: DoctorFacts) -> Iterator[Finding]:
    if proc.hidepid is None or proc.exempt or f.subject.uid == 0:
        return
    yield warning(
        "hidepid",
        "/proc",
        f"mounted with hidepid={proc.hidepid}: files held open by other users' processes are not seen",
        "let the agent's user see all processes",
        change=_show_processes(proc, f.service),
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
