"""Whether the agent's user can work in the log dirs, and reach the files it needs."""

from __future__ import annotations

from collections.abc import Iterator

from logagent.model.doctor.facts import AccessLook, DoctorFacts, LogDirLook
from logagent.model.doctor.finding import Area, Change, DoctorFinding, fails, shell_word, warning, works
from logagent.model.records import Health, HolderState


def log_dirs(f: DoctorFacts) -> Iterator[DoctorFinding]:
    for d in f.log_dirs:
        found = list(_log_dir(f, d))
        if not found:
            kind = f", {d.mount.kind} mounted at {d.mount.point}" if d.mount is not None else ""
            held = "held by the broker" if d.holder is not HolderState.FREE else "held by nobody"
            found = [
                works(
                    Area.LOG_DIRS,
                    "log-dir",
                    d.path,
                    f"{d.health.value}, {held}{kind}; user {f.subject.name} may work in it",
                )
            ]
        yield from found


def _log_dir(f: DoctorFacts, d: LogDirLook) -> Iterator[DoctorFinding]:
    name = f.subject.name
    if d.access is not None and not d.access.answered:
        says = "it did not answer in time: its disk hangs"
        yield fails(Area.LOG_DIRS, "log-dir-hangs", d.path, says, "look at the kernel's log (dmesg) for its device")
        return
    blocked = d.access if d.access is not None and d.access.lacks is not None else None
    if blocked is not None and not blocked.exists:
        yield fails(
            Area.LOG_DIRS,
            "log-dir-missing",
            d.path,
            f"{blocked.at or d.path} does not exist, or is mounted nowhere",
            "mount its disk, or correct log.dirs; the other log dirs are served meanwhile",
        )
        return
    if d.mount is not None and d.mount.device_read_only:
        yield fails(
            Area.LOG_DIRS,
            "read-only",
            d.path,
            f"the file system of {d.mount.source} is read-only",
            "the kernel does that to a file system with errors: look at dmesg, check it, mount it anew",
        )
    elif d.mount is not None and d.mount.read_only:
        yield fails(
            Area.LOG_DIRS,
            "read-only-mount",
            d.path,
            f"its mount at {d.mount.point} is read-only here, the file system itself is not",
            "a bind mount or a sandbox does that",
            Change(line=f"mount -o remount,bind,rw {shell_word(d.mount.point)}"),
        )
    elif blocked is not None:
        yield _denied(f, blocked, d)
        return
    elif d.health is Health.OFFLINE:
        yield fails(Area.LOG_DIRS, "log-dir-offline", d.path, d.reason or "it is offline", "logagent check says more")
    elif d.health is Health.UNFORMATTED:
        yield warning(
            Area.LOG_DIRS,
            "unformatted",
            d.path,
            d.reason or "there is no meta.properties",
            "no broker has used it yet: it is listed, and never acted on",
        )
    elif d.health is Health.FULL:
        says = d.reason or "its file system is full"
        yield warning(Area.LOG_DIRS, "full", d.path, says, "deleting is the cure, and possible")
    if d.others:
        more = "" if d.others == 1 else f" (and {d.others - 1} more directories)"
        yield fails(
            Area.LOG_DIRS,
            "foreign-directory",
            d.example or d.path,
            f"user {name} may not write in it{more}: it was made by somebody else (a broker started as root once?)",
            "the broker would lose the log dir over it too: give it to the owner of the log dir",
            Change(line=f"chown -R --reference={shell_word(d.path)} {shell_word(d.path)}"),
        )
    if d.holder is HolderState.UNREADABLE and blocked is None and d.health is not Health.OFFLINE:
        says = d.holder_detail or "it cannot be told who holds it"
        hint = "if that is the broker, run as its user; if it only looks like one by its command line, end it or wait"
        yield fails(Area.LOG_DIRS, "holder-unreadable", d.path, says, hint)


def _denied(f: DoctorFacts, a: AccessLook, d: LogDirLook) -> DoctorFinding:
    name = f.subject.name
    says = f"user {name} lacks {a.lacks} permission on {a.at or a.path} (owner {a.owner}, mode {_mode(a)})"
    if a.at is not None and a.at != a.path:
        hint = "a directory above the log dir is closed to it"
        change = Change(line=f"chmod o+x {shell_word(a.at)}")
        return fails(Area.LOG_DIRS, "parent-closed", d.path, says, hint, change)
    path = shell_word(d.path)
    hint = "the broker's user needs the same, and the agent should be that user"
    if not f.holders and all(x.owner_uid != f.subject.uid for x in f.log_dirs):
        return fails(Area.LOG_DIRS, "no-access", d.path, says, hint)  # the user is wrong, which is said above
    change = Change(line=f"chmod u+rwx {path}" if a.owner == name else f"chown {name} {path}")
    return fails(Area.LOG_DIRS, "no-access", d.path, says, hint, change)


def _mode(a: AccessLook) -> str:
    return "unknown" if a.mode is None else f"{a.mode:04o}"


def files(f: DoctorFacts) -> Iterator[DoctorFinding]:
    """server.properties, the client's properties, the metadata log, the fleet store …"""
    for a in f.files:
        if not a.answered:
            says = f"{a.what} did not answer in time: a network file system whose server is away?"
            yield fails(Area.FILES, "file-hangs", a.path, says, "mount it with a time limit, or leave it out")
        elif a.lacks is None:
            yield works(Area.FILES, "file", a.path, a.what)
        elif not a.exists:
            says = f"{a.what}: {a.at or a.path} does not exist"
            yield fails(Area.FILES, "file-missing", a.path, says, "make it, or correct its path")
        else:
            at = a.at or a.path
            says = f"{a.what}: user {f.subject.name} lacks {a.lacks} permission on {at}"
            says += f" (owner {a.owner}, mode {_mode(a)})"
            yield fails(
                Area.FILES, "file-closed", a.path, says, "let the agent's user in", _opened(a, at, f.subject.name)
            )


def _opened(a: AccessLook, at: str, name: str) -> Change:
    bits = "".join(bit for bit, word in (("r", "read"), ("w", "write"), ("x", "search")) if word in (a.lacks or ""))
    return Change(line=f"setfacl -m u:{name}:{bits} {shell_word(at)}")
