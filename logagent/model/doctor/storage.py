"""Whether the agent's user can work in the log dirs and reach the files it needs."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from logagent.model.doctor.doctor_facts import AccessLook, DoctorFacts, LogDirLook
from logagent.model.finding import Change, Finding, fatal, warning, works
from logagent.model.records import Health, HolderState


def log_dirs(f: DoctorFacts) -> Iterator[Finding]:
    for d in f.log_dirs:
        found = list(_log_dir(f, d))
        if not found:
            kind = f", {d.mount.kind} mounted at {d.mount.point}" if d.mount is not None else ""
            held = "held by the broker" if d.holder is not HolderState.FREE else "held by nobody"
            found = [works("log-dir", d.path, f"{d.health.value}, {held}{kind}; user {f.subject.name} can work in it")]
        yield from found


def _log_dir(f: DoctorFacts, d: LogDirLook) -> Iterator[Finding]:
    name = f.subject.name
    if d.access is not None and not d.access.answered:
        says = "no answer in time: its disk hangs"
        yield fatal("log-dir-hangs", d.path, says, "check the kernel log (dmesg) for its device")
        return
    blocked = d.access if d.access is not None and d.access.lacks is not None else None
    if blocked is not None and not blocked.exists:
        yield fatal(
            "log-dir-missing",
            d.path,
            f"{blocked.at or d.path} does not exist, or is not mounted",
            "mount its disk, or correct log.dirs; the other log dirs are served in the meantime",
        )
        return
    read_only = _read_only(d)
    if read_only is None and blocked is not None:
        yield _denied(f, blocked, d)
        return
    state = read_only or _health(d)
    if state is not None:
        yield state
    if d.others:
        more = "" if d.others == 1 else f" (and {d.others - 1} more directories)"
        yield fatal(
            "foreign-directory",
            d.example or d.path,
            f"user {name} may not write to it{more}: another user created it (was a broker once started as root?)",
            "it would cost the broker the log dir, too: give it to the owner of the log dir",
            change=Change(line=f"chown -R --reference={quote(d.path)} {quote(d.path)}"),
        )
    if d.holder is HolderState.UNREADABLE and blocked is None and d.health is not Health.OFFLINE:
        says = d.holder_detail or "cannot determine who holds it"
        hint = "if it is the broker, run as its user; if it only looks like one by its command line, stop it or wait"
        yield fatal("holder-unreadable", d.path, says, hint)


def _read_only(d: LogDirLook) -> Finding | None:
    if d.mount is not None and d.mount.device_read_only:
        return fatal(
            "read-only",
            d.path,
            f"the file system of {d.mount.source} is read-only",
            "the kernel does that to a file system with errors: check dmesg, run fsck, mount it again",
        )
    if d.mount is not None and d.mount.read_only:
        return fatal(
            "read-only-mount",
            d.path,
            f"its mount at {d.mount.point} is read-only here, but the file system itself is not",
            "usually a bind mount or a sandbox",
            change=Change(line=f"mount -o remount,bind,rw {quote(d.mount.point)}"),
        )
    return None


def _health(d: LogDirLook) -> Finding | None:
    if d.health is Health.OFFLINE:
        return fatal("log-dir-offline", d.path, d.reason or "it is offline", "logagent check says more")
    if d.health is Health.UNFORMATTED:
        return warning(
            "unformatted",
            d.path,
            d.reason or "no meta.properties",
            "no broker has used it yet: it is listed but never acted on",
        )
    if d.health is Health.FULL:
        says = d.reason or "its file system is full"
        return warning("full", d.path, says, "deleting is still possible, and frees space")
    return None


def _denied(f: DoctorFacts, a: AccessLook, d: LogDirLook) -> Finding:
    name = f.subject.name
    says = f"user {name} lacks {a.lacks} permission on {a.at or a.path} (owner {a.owner}, mode {_mode(a)})"
    if a.at is not None and a.at != a.path:
        hint = "a directory above the log dir denies it access"
        change = Change(line=f"chmod o+x {quote(a.at)}")
        return fatal("parent-closed", d.path, says, hint, change=change)
    path = quote(d.path)
    hint = "the broker's user needs the same access, and the agent should run as that user"
    if not f.holders and all(x.owner_uid != f.subject.uid for x in f.log_dirs):
        return fatal("no-access", d.path, says, hint)  # the user is wrong, which is said above
    change = Change(line=f"chmod u+rwx {path}" if a.owner == name else f"chown {quote(name)} {path}")
    return fatal("no-access", d.path, says, hint, change=change)


def _mode(a: AccessLook) -> str:
    return "unknown" if a.mode is None else f"{a.mode:04o}"


def files(f: DoctorFacts) -> Iterator[Finding]:
    """server.properties, the client's properties, the metadata log, the fleet store …"""
    for a in f.files:
        if not a.answered:
            says = f"{a.what}: no answer in time. Is it on a network file system whose server is down?"
            yield fatal("file-hangs", a.path, says, "mount it with a timeout (soft), or do not configure it")
        elif a.lacks is None:
            yield works("file", a.path, a.what)
        elif not a.exists:
            says = f"{a.what}: {a.at or a.path} does not exist"
            yield fatal("file-missing", a.path, says, "create it, or correct its path")
        else:
            at = a.at or a.path
            says = f"{a.what}: user {f.subject.name} lacks {a.lacks} permission on {at}"
            says += f" (owner {a.owner}, mode {_mode(a)})"
            change = _opened(a, at, f.subject.name)
            yield fatal("file-closed", a.path, says, "give the agent's user access", change=change)


def _opened(a: AccessLook, at: str, name: str) -> Change:
    bits = "".join(bit for bit, word in (("r", "read"), ("w", "write"), ("x", "search")) if word in (a.lacks or ""))
    return Change(line=f"setfacl -m u:{quote(name)}:{bits} {quote(at)}")
