"""What `logagent doctor` knows about a host, gathered once, and whether the agent's user can work there: the rights of
that user, the log dirs and the files that it needs.

All findings are made from these facts (`diagnose`). Decides; no I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Literal

from logagent.advice.finding import Finding, Remedy, fatal, warning, works
from logagent.base.kafka_version import UNKNOWN_VERSION, KafkaVersion, Version
from logagent.base.records import Health, HolderState, Reason
from logagent.kafka.identity import JournalHost
from logagent.kafka.image import Source
from logagent.service.setup.rules import DropInFacts
from logagent.verdict.without_directory import NOTHING_MISSING, Missing, in_words

DaemonState = Literal["running", "none", "dead", "refused", "silent"]


@dataclass(frozen=True, slots=True)
class SettingLine:
    """A line of a file that contains a setting and would have to be changed."""

    file: str
    number: int | None
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """Our own configuration. file: the one in force (None: defaults), default: where it would be written. keys: the
    line of each `section.key` in it, set or commented out. problems: in it and in server.properties. instance: NAME of
    `logagent@NAME`. named: whether the broker's configuration was given rather than found; named_in_file: by the
    file in force, which the daemon reads too. log_dirs_named: whether log dirs were given on the command line. systemd:
    whether it runs here; in a container it does not, and no unit counts."""

    file: str | None
    default: str
    keys: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    hint: str | None = None
    instance: str | None = None
    kafka_config: str | None = None
    named: bool = False
    named_in_file: bool = False
    log_dirs_named: bool = False
    mode: str = "report"
    systemd: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker's configuration on this host. ignored: why a process
    that seems to be a broker is not treated as one."""

    config: str
    how: str
    pid: int | None = None
    user: str | None = None
    unit: str | None = None
    version: Version | None = None
    chosen: bool = False
    candidate: bool = True
    ignored: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFacts:
    """The user whose permissions are checked. how: how that user was found. service: the daemon runs as that user."""

    name: str
    uid: int
    gid: int
    how: str
    service: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderFacts:
    """A process that holds some of our log dirs.

    command: what it runs, for display. config: the server.properties it was started with (None: unknown, or not a Kafka
    broker); same_config: whether that is the one we use. proc: whether the subject can see its open files: "readable",
    "hidden" (no /proc entry is visible), or "refused". If both run as the same user, this depends on capabilities (the
    permitted ones) and dumpable. overrides: `key=value` pairs on its command line that override the file. in_doubt: why
    what it runs with may differ from the file.
    """

    pid: int
    command: str
    user: str | None = None
    uid: int | None = None
    gid: int | None = None
    kafka: bool = True
    config: str | None = None
    same_config: bool | None = None
    overrides: tuple[str, ...] = ()
    in_doubt: str | None = None
    proc: str = "readable"
    capabilities: int = 0
    dumpable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MountFacts:
    """The mount of a path. read_only: this mount (a bind mount, a sandbox) is; device_read_only: the file system is."""

    point: str
    kind: str
    source: str
    read_only: bool = False
    device_read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFacts:
    """What the subject may do with a path. lacks: "read", "write", "search" or several of them in words, None if
    nothing is missing; at: the directory or file that denies it. answered: False if there was no answer in time.
    write: whether write access is needed."""

    path: str
    what: str
    lacks: str | None = None
    at: str | None = None
    owner: str | None = None
    mode: int | None = None
    exists: bool = True
    answered: bool = True
    write: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorLogDirFacts:
    """One log dir. others: the number of directories in it that the subject may not write to; example: one of them."""

    path: str
    health: Health
    reason: str | None
    holder: HolderState
    holder_detail: str | None = None
    pid: int | None = None
    started_ms: int | None = None
    owner: str | None = None
    owner_uid: int | None = None
    access: AccessFacts | None = None
    mount: MountFacts | None = None
    others: int = 0
    example: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """The unit of our daemon. known_by: "systemd" or "files". properties: as named by `systemctl show`. user_place: the
    line that sets `User=`. main_pid: of the running service; sandbox: the mounts of the paths we need as it sees them.
    setup: whether the drop-in of `logagent setup` fits; None if there is none and none is needed, or if unknown.
    """

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    user_place: SettingLine | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    active: str | None = None
    main_pid: int | None = None
    sandbox: Mapping[str, MountFacts] = field(default_factory=dict)
    setup: DropInFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcFacts:
    """How `/proc` is mounted: hidepid as the kernel prints it (None: nothing is hidden), gid: the exempt group."""

    hidepid: str | None = None
    gid: int | None = None
    group: str | None = None
    exempt: bool = False
    fstab: SettingLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """The daemon behind the status socket. state: "running", "none", "refused" (no permission), "silent", "dead".
    reload_failed: why it did not take the configuration when it was last asked to. failing: each job whose last run
    failed, and why."""

    socket: str
    state: DaemonState
    pid: int | None = None
    version: str | None = None
    log_dirs: tuple[str, ...] | None = None
    mode: str | None = None
    detail: str | None = None
    clock_doubt: str | None = None
    reload_failed: str | None = None
    failing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFacts:
    """Whether metrics can be served. problem: "taken", "not-local", "not-permitted", or the system's error message.
    by_daemon: our own daemon serves them there. next_free: an available port."""

    listen: str
    problem: str | None = None
    by: str | None = None
    by_daemon: bool = False
    next_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirFacts:
    """The state dir. full: there is no room for a journal. no_reserve: the journal has no reserve, and there is no room
    for one. journal_schema: the schema version of its journal, if readable. foreign: log dirs in the journal that are
    not this broker's; host: whose it is, if it says. forgotten: a log dir that it remembers and the broker's
    configuration does not name any more, and what to do. refused: why nothing that acts can use it, whoever it is."""

    path: str
    exists: bool
    access: AccessFacts | None = None
    made_by_unit: bool = False
    in_log_dir: str | None = None
    full: bool = False
    no_reserve: bool = False
    journal: bool = False
    journal_schema: int | None = None
    known_schema: int = 0
    foreign: tuple[str, ...] = ()
    forgotten: Reason | None = None
    service_path: str | None = None
    host: JournalHost | None = None
    refused: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsFacts:
    """The source of verdicts. bootstrap: an address of one of the broker's listeners; secure: that listener is not
    PLAINTEXT. stopped: nobody holds a log dir. kraft: the broker has its own metadata log and updates it while it runs.
    empty: the source was read and lists no topics. ends_at_stop: it ends when the broker stopped, and why no living one
    could be asked. not_our_lineage: the metadata log contradicts what is remembered of it, or ends before that.
    asked: the addresses of kafka.bootstrap_servers, if they are a source; answered_as: the principal that was answered,
    no_answer: why it was not. untried: kafka.client is set, and was not tried: there is no address, or
    assignments.sources lacks admin."""

    usable: bool
    source: Source | Literal["none"] = "none"
    age_seconds: float | None = None
    max_age_seconds: float = 0.0
    partitions: int = 0
    problems: tuple[str, ...] = ()
    bootstrap: str | None = None
    bootstrap_set: bool = False
    secure: bool = False
    stopped: bool = False
    kraft: bool = False
    empty: bool = False
    ends_at_stop: str | None = None
    not_our_lineage: bool = False
    log_doubt: Reason | None = None
    asked: str | None = None
    answered_as: str | None = None
    no_answer: Reason | None = None
    untried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """Another logagent configuration on this host and what both share. number: the line of kafka.config in it."""

    file: str
    number: int | None = None
    log_dirs: tuple[str, ...] = ()
    listen: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """All facts about one host. `missing`: what a start would make anew."""

    now_ms: int
    config: ConfigFacts
    brokers: tuple[BrokerFacts, ...] = ()
    subject: SubjectFacts
    holders: tuple[HolderFacts, ...] = ()
    kafka_version: KafkaVersion = UNKNOWN_VERSION
    cluster_id: str | None = None
    node_id: int | None = None
    cluster_problems: Mapping[str, str] = field(default_factory=dict)
    by_node: bool = False
    log_dirs: tuple[DoctorLogDirFacts, ...] = ()
    service: ServiceFacts | None = None
    proc: ProcFacts = field(default_factory=ProcFacts)
    daemon: DaemonFacts | None = None
    port: PortFacts | None = None
    state: StateDirFacts | None = None
    assignments: AssignmentsFacts | None = None
    files: tuple[AccessFacts, ...] = ()
    siblings: tuple[InstanceFacts, ...] = ()
    missing: Missing = NOTHING_MISSING
    root: bool = False


# Changes: lines of logagent.toml and of units


def unit_word(path: str) -> str:
    """`path` as one word of a unit file, where `%` starts a specifier."""
    word = path.replace("%", "%%")
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'


def toml_change(c: ConfigFacts, key: str, value: str) -> Remedy:
    """The line of logagent.toml that sets `section.key` to `value`, replacing an existing one even if that is commented
    out."""
    section, _, name = key.partition(".")
    unit = quote(f"logagent@{c.instance}" if c.instance else "logagent")
    then = f"systemctl {'restart' if section == 'metrics' else 'reload'} {unit}, if it runs" if c.systemd else None
    # A basic string in TOML is written like one in JSON.
    line = f"{name} = {json.dumps(value)}"
    return Remedy(line=line, file=c.file or c.default, number=c.keys.get(key), section=section, then=then)


def unit_change(service: ServiceFacts, line: str) -> Remedy:
    """The line for the administrator's drop-in of our unit, replacing the one there that sets it now."""
    place = service.user_place if line.startswith("User=") else None
    then = f"systemctl daemon-reload && systemctl restart {quote(service.unit)}"
    if place is not None and place.file.startswith("/etc/"):
        return Remedy(line=line, file=place.file, number=place.number, section="Service", then=then)
    file = f"/etc/systemd/system/{service.unit}.d/override.conf"
    return Remedy(line=line, file=file, section="Service", then=then)


# Rights, log dirs, files

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
    owned = [d for d in f.log_dirs if d.owner_uid is not None and not _is_opened_by_group(d)]
    # While the broker is stopped, the owner of the log dirs is taken for the user it will run as. If some belong to the
    # agent's user, the others have the wrong owner; the agent's user is right.
    if not f.holders and owned and s.uid != 0 and all(d.owner_uid != s.uid for d in owned):
        d = owned[0]
        yield fatal(
            "other-owner",
            d.path,
            f"it belongs to user {d.owner}, but the agent runs as {s.name}",
            "run the agent as the broker's user; if the broker runs as "
            f"{s.name} too, its log dir should belong to that user",
            change=_user_change(f.service, d.owner or str(d.owner_uid)),
        )
    if f.proc.hidepid is not None and not f.proc.exempt and s.uid != 0:
        yield warning(
            "hidepid",
            "/proc",
            f"mounted with hidepid={f.proc.hidepid}: files held open by other users' processes are not seen",
            "let the agent's user see all processes",
            change=_show_processes(f.proc, f.service),
        )


def _is_opened_by_group(d: DoctorLogDirFacts) -> bool:
    """Whether it is the root of a volume that belongs to root and that the agent may write to all the same, as
    Kubernetes' fsGroup makes it: its owner says nothing about the broker's user."""
    is_volume = d.mount is not None and d.mount.point == d.path
    return is_volume and d.owner_uid == 0 and d.access is not None and d.access.answered and d.access.lacks is None


def _descriptors(f: DoctorFacts, h: HolderFacts) -> Finding:
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
    return _refused(f, h, path, who)


def _refused(f: DoctorFacts, h: HolderFacts, path: str, who: str) -> Finding:
    """Both run as the same user (or the agent as root), and the kernel still refuses."""
    s = f.subject
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


def _show_processes(proc: ProcFacts, service: ServiceFacts | None) -> Remedy | None:
    if service is not None and service.properties.get("ProtectProc", "default") != "default":
        return _service_change(service, "ProtectProc=default")
    if proc.hidepid is None:
        return None
    if proc.group is not None:
        if service is not None:
            return _service_change(service, f"SupplementaryGroups={proc.group}")
        return Remedy(line=f"usermod --append --groups {proc.group} USER")
    if proc.fstab is not None:
        words = proc.fstab.value.split()
        words[3] = ",".join(o for o in words[3].split(",") if not o.startswith("hidepid=")) or "defaults"
        then = "mount -o remount,hidepid=0 /proc"
        return Remedy(line=" ".join(words), file=proc.fstab.file, number=proc.fstab.number, then=then)
    return Remedy(line="mount -o remount,hidepid=0 /proc")


def _user_change(service: ServiceFacts | None, user: str) -> Remedy:
    return _service_change(service, f"User={user}") or Remedy(line=f"su -s /bin/sh {user} -c 'logagent …'")


def _service_change(service: ServiceFacts | None, line: str) -> Remedy | None:
    return unit_change(service, line) if service is not None else None


def log_dirs(f: DoctorFacts) -> Iterator[Finding]:
    for left in f.missing.left:
        why = in_words(left)
        yield warning("log-dir-forgotten", left.path or f.config.kafka_config or "", why.fact, why.hint)
    for d in f.log_dirs:
        problems = list(_log_dir(f, d))
        if not problems:
            kind = f", {d.mount.kind} mounted at {d.mount.point}" if d.mount is not None else ""
            held = "held by the broker" if d.holder is not HolderState.FREE else "held by nobody"
            says = f"{d.health.value}, {held}{kind}; user {f.subject.name} can work in it"
            problems = [works("log-dir", d.path, says)]
        yield from problems


def _log_dir(f: DoctorFacts, d: DoctorLogDirFacts) -> Iterator[Finding]:
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
            change=Remedy(line=f"chown -R --reference={quote(d.path)} {quote(d.path)}"),
        )
    if d.holder is HolderState.UNREADABLE and blocked is None and d.health is not Health.OFFLINE:
        says = d.holder_detail or "cannot determine who holds it"
        hint = "if it is the broker, run as its user; if it only looks like one by its command line, stop it or wait"
        yield fatal("holder-unreadable", d.path, says, hint)


def _read_only(d: DoctorLogDirFacts) -> Finding | None:
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
            change=Remedy(line=f"mount -o remount,bind,rw {quote(d.mount.point)}"),
        )
    return None


def _health(d: DoctorLogDirFacts) -> Finding | None:
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


def _denied(f: DoctorFacts, a: AccessFacts, d: DoctorLogDirFacts) -> Finding:
    name = f.subject.name
    says = f"user {name} lacks {a.lacks} permission on {a.at or a.path} (owner {a.owner}, mode {_mode(a)})"
    if a.at is not None and a.at != a.path:
        hint = "a directory above the log dir denies it access"
        change = Remedy(line=f"chmod o+x {quote(a.at)}")
        return fatal("parent-closed", d.path, says, hint, change=change)
    path = quote(d.path)
    hint = "the broker's user needs the same access, and the agent should run as that user"
    if not f.holders and all(x.owner_uid != f.subject.uid for x in f.log_dirs):
        return fatal("no-access", d.path, says, hint)  # the user is wrong, which is a finding of its own
    change = Remedy(line=f"chmod u+rwx {path}" if a.owner == name else f"chown {quote(name)} {path}")
    return fatal("no-access", d.path, says, hint, change=change)


def _mode(a: AccessFacts) -> str:
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
            bits = "".join(bit for bit, word in (("r", "read"), ("w", "write"), ("x", "search")) if word in a.lacks)
            change = Remedy(line=f"setfacl -m u:{quote(f.subject.name)}:{bits} {quote(at)}")
            yield fatal("file-closed", a.path, says, "give the agent's user access", change=change)
