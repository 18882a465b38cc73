"""What doctor inspects of a host. Of the host itself: our unit, the user it runs as and that user's rights, how things
are mounted. Around the daemon: its status, the metrics port, the state dir, other instances. Around the broker: its
configurations on this host, the holders of the log dirs, its version and assignments.

Rights are checked by children that become the agent's user (`base/linux/access.py`); the journal is read without
SQLite, which would create files beside it. A hung disk blocks only a child.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from logagent.base.config.config import key_lines, load
from logagent.base.config.settings import Settings
from logagent.base.errors import LogAgentError, ServiceUnreachable, UsageError
from logagent.base.kafka_version import KafkaVersion, which_version
from logagent.base.linux.access import (
    Credentials,
    User,
    ask_as,
    lacking,
    owner_of,
    readable_process,
    real_path,
    user_name,
    user_named,
)
from logagent.base.linux.kernel import Mount, command_name, listening_processes, mount_of, mounts, process_start_time_ms
from logagent.base.linux.state_dir import log_dir_above, nearest_directory, stat_directory, unusable
from logagent.base.records import HolderState, Reason
from logagent.cleanup.state.journal import inspect_journal
from logagent.cleanup.state.journal_schema import SCHEMA_VERSION
from logagent.cleanup.state.reserve import check_place, lacks_room_for_journal, lacks_room_for_reserve
from logagent.kafka.config_in_force import in_force, still_in_doubt
from logagent.kafka.files.properties import ServerProperties
from logagent.kafka.identity import ClusterFacts
from logagent.kafka.processes.broker_process import launch_of_java, version_of_process
from logagent.kafka.processes.discovery import (
    BrokerConfigRead,
    brokers_of,
    newest_change_ms,
    same_file,
    version_installed,
)
from logagent.kafka.processes.systemd_units import read_unit, show_unit, systemd_runs
from logagent.kafka.processes.target import Target, resolve_target
from logagent.service.doctor.rules.host import (
    AccessFacts,
    AssignmentsFacts,
    BrokerFacts,
    DaemonFacts,
    DoctorLogDirFacts,
    HolderFacts,
    InstanceFacts,
    MountFacts,
    PortFacts,
    ProcFacts,
    ServiceFacts,
    SettingLine,
    StateDirFacts,
    SubjectFacts,
)
from logagent.service.status.command import SOCKET_NAME, ask_status
from logagent.verdict.evidence.assignment_sources import AssignmentQuery, Assignments, load_assignments
from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
from logagent.verdict.evidence.judge import gather_versions, identify_stopped
from logagent.verdict.evidence.other_brokers import client_config
from logagent.verdict.evidence.version_seen import is_noted, read_brokers_seen, read_lineage, read_version_seen
from logagent.verdict.rules import Host

# How long a disk, a process or the daemon may take to answer.
ANSWER_SECONDS = 5.0
_LISTS = ("TemporaryFileSystem", "Environment")


def inspect_service(unit: str, root: str = "/") -> ServiceFacts | None:
    """Our unit: as the running systemd has it in force, else according to its files; None if there is none."""
    file = read_unit(unit, root)
    shown = show_unit(unit) if root == "/" and systemd_runs() else None
    user_line = file.last("User") if file is not None else None
    place = SettingLine(user_line.file, user_line.line, user_line.value) if user_line is not None else None
    if shown is not None and shown.get("LoadState") == "loaded":
        pid = int(shown.get("MainPID", "0") or 0)
        return ServiceFacts(
            unit=unit,
            known_by="systemd",
            user=shown.get("User") or None,
            file=shown.get("FragmentPath", ""),
            user_place=place,
            properties=shown,
            active=shown.get("ActiveState"),
            main_pid=pid or None,
        )
    if file is None:
        return None
    once = {key: lines[-1].value for key, lines in file.settings.items()}
    lists = {key: file.listed(key) for key in file.settings if key.endswith("Paths") or key in _LISTS}
    user = user_line.value if user_line is not None and user_line.value else None
    return ServiceFacts(
        unit=unit, known_by="files", user=user, file=file.file, user_place=place, properties={**once, **lists}
    )


def service_state_dir(service: ServiceFacts | None) -> str | None:
    """The state dir that the unit sets for its daemon: `--state-dir` of its command, else `StateDirectory=`."""
    if service is None:
        return None
    named = re.search(r"--state-dir[= ](\S+)", service.properties.get("ExecStart", ""))
    if named is not None:
        return named[1]
    made = service.properties.get("StateDirectory", "").split()
    return f"/var/lib/{made[0].split(':')[0]}" if made else None


def find_subject(
    named: str | None, service: ServiceFacts | None, state_dir: str, log_dirs: Sequence[str]
) -> tuple[SubjectFacts, Credentials | None]:
    """Whose rights are checked, and the identity that a child needs for that (None: our own).

    The named user; else ourselves, unless we are root; as root the user of the unit, else the owner of the state dir or
    of a log dir, which is who a command that acts would become. Raises UsageError for a user that we cannot become.
    """
    me = os.geteuid()
    user = _subject(named, service, state_dir, log_dirs) if me == 0 or named is not None else None
    if user is None:
        how = (
            "the user who runs this command"
            if me != 0
            else "root: no unit, state dir or log dir points to another user"
        )
        serves = service is not None and (service.user or "root") in (user_name(me), str(me))
        return SubjectFacts(name=user_name(me), uid=me, gid=os.getegid(), how=how, service=serves), None
    if me not in (0, user.uid):
        raise UsageError(f"--user: only root can check as user {user.name}", hint="run it as root or as that user")
    gid = _group(user, service)
    serves = service is not None and service.user in (user.name, str(user.uid))
    subject = SubjectFacts(name=user.name, uid=user.uid, gid=gid, how=user.known_by, service=serves)
    return subject, Credentials(user.uid, gid, tuple(sorted(user.gids))) if me != user.uid else None


def _subject(named: str | None, service: ServiceFacts | None, state_dir: str, log_dirs: Sequence[str]) -> User | None:
    if named is not None:
        try:
            return replace(user_named(named), known_by="--user")
        except LookupError as e:
            raise UsageError(f"--user: {e.args[0]}", hint="give its uid instead") from e
    if service is not None and service.user is not None:
        with suppress(LookupError):  # a user that this host does not have: systemd says so at the start
            return replace(user_named(service.user), known_by=f"the user of {service.unit}")
    for place in (state_dir, *log_dirs):
        with suppress(OSError):  # not there, or closed to us: the next one may show the owner
            status = os.stat(place)
            if status.st_uid != 0:
                return owner_of(status, place)
    return None


def _group(user: User, service: ServiceFacts | None) -> int:
    group = service.properties.get("Group", "") if service is not None and service.user == user.name else ""
    # A group or user without an entry on this host: the next source is as good.
    with suppress(KeyError):
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    with suppress(KeyError):
        return pwd.getpwuid(user.uid).pw_gid
    return min(user.gids, default=user.uid)


def inspect_access(path: str, what: str, wants: int, identity: Credentials | None) -> AccessFacts:
    """What `identity` may do with `path`; a hung disk blocks only a child."""
    write = bool(wants & os.W_OK)
    try:
        seen = ask_as(identity, lambda: lacking(path, wants), ANSWER_SECONDS)
    except TimeoutError:
        return AccessFacts(path=path, what=what, answered=False, write=write)
    except OSError as e:
        return AccessFacts(path=path, what=what, lacks=f"every ({e})", at=path, write=write)
    if seen["lacks"] is None:
        return AccessFacts(path=path, what=what, write=write)
    owner, mode = None, None
    with suppress(OSError):  # owner and mode are only shown
        status = os.stat(seen["at"])
        owner, mode = user_name(status.st_uid), stat.S_IMODE(status.st_mode)
    return AccessFacts(
        path=path,
        what=what,
        lacks=seen["lacks"],
        at=seen["at"],
        owner=owner,
        mode=mode,
        exists=seen["exists"],
        write=write,
    )


def inspect_mount(path: str, table: Iterable[Mount]) -> MountFacts | None:
    mount = mount_of(os.path.realpath(path), table)
    if mount is None:
        return None
    device_ro = "ro" in mount.device_options
    return MountFacts(
        point=mount.point,
        kind=mount.kind,
        source=mount.source,
        read_only="ro" in mount.options and not device_ro,
        device_read_only=device_ro,
    )


def mounts_or_none(process: int | str = "self") -> list[Mount]:
    try:
        return mounts(process)
    except OSError:
        return []


def inspect_proc(table: Iterable[Mount], identity: Credentials | None, fstab: str = "/etc/fstab") -> ProcFacts:
    """Whether `/proc` shows the agent's user every process."""
    mount = mount_of("/proc", table)
    options = dict(o.partition("=")[::2] for o in mount.device_options | mount.options) if mount is not None else {}
    hidepid = options.get("hidepid")
    if hidepid in (None, "0", "off"):
        return ProcFacts()
    gid = int(options.get("gid", "0"))
    groups = {os.getegid(), *os.getgroups()} if identity is None else {identity.gid, *identity.groups}
    group = None
    if gid:
        with suppress(KeyError):  # a group without a name here: shown without one
            group = grp.getgrgid(gid).gr_name
    return ProcFacts(hidepid=hidepid, gid=gid or None, group=group, exempt=gid in groups, fstab=_proc_line(fstab))


def _proc_line(fstab: str) -> SettingLine | None:
    # Without the line, the change that is suggested is a command.
    with suppress(OSError), open(fstab, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if len(words) > 3 and words[1] == "/proc" and not words[0].startswith("#"):
                return SettingLine(fstab, number, line.strip())
    return None


_PORTS_TRIED = 64


def inspect_daemon(state_dir: str) -> DaemonFacts:
    """What the daemon of this state dir reports."""
    path = os.path.join(state_dir, SOCKET_NAME)
    try:
        status = ask_status(state_dir, ANSWER_SECONDS)
    except ServiceUnreachable as e:
        cause = e.__cause__
        if isinstance(cause, FileNotFoundError | NotADirectoryError):
            return DaemonFacts(socket=path, state="none")
        if isinstance(cause, ConnectionRefusedError):
            return DaemonFacts(socket=path, state="dead")
        closed = isinstance(cause, PermissionError)
        return DaemonFacts(socket=path, state="refused" if closed else "silent", detail=str(cause))
    rows, failed = status.get("log_dirs"), status.get("reload_failed")
    # Whoever owns the state dir can make anything answer.
    found = [status.get(name) for name in ("cycles", "failed")]
    jobs = [row for each in found if isinstance(each, list) for row in each if isinstance(row, dict)]
    dirs = None
    if isinstance(rows, list):
        dirs = tuple(str(row.get("path")) if isinstance(row, dict) else str(row) for row in rows)
    return DaemonFacts(
        socket=path,
        state="running",
        pid=status.get("pid"),
        version=status.get("agent_version"),
        log_dirs=dirs,
        mode=status.get("mode"),
        clock_doubt=status.get("clock_doubt"),
        reload_failed=str(failed.get("error")) if isinstance(failed, dict) else None,
        failing=tuple(f"{row.get('job')} failed: {row['error']}" for row in jobs if row.get("error")),
    )


def inspect_port(listen: str | None, identity: Credentials | None, daemon_pid: int | None) -> PortFacts | None:
    """Whether the metrics could be served at `listen` (None if they are not wanted)."""
    if not listen:
        return None
    host, _, port = listen.rpartition(":")
    host, number = host.strip("[]"), int(port)
    try:
        code = int(ask_as(identity, lambda: _bind(host, number), ANSWER_SECONDS))
    except OSError:
        return PortFacts(listen=listen, problem="it could not be tried")
    if code == 0:
        return PortFacts(listen=listen, next_free=_free(host, number))
    words = {errno.EADDRINUSE: "taken", errno.EADDRNOTAVAIL: "not-local", errno.EACCES: "not-permitted"}
    problem = "not-local" if code < 0 else words.get(code, os.strerror(code))
    pids = sorted(listening_processes(number)) if problem == "taken" else []
    by_daemon = problem == "taken" and daemon_pid is not None and (daemon_pid in pids or not pids)
    by = f"process {pids[0]} ({_command(pids[0])})" if pids else None
    free = _free("127.0.0.1" if problem == "not-local" else host, max(number, 1024))
    return PortFacts(listen=listen, problem=problem, by=by, by_daemon=by_daemon, next_free=free)


def _bind(host: str, port: int) -> int:
    """0, or the errno; -1 if the name cannot be resolved."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(address)
            s.listen(1)
    except socket.gaierror:
        return -1
    except OSError as e:
        return e.errno or errno.EIO
    return 0


def _free(host: str, after: int) -> int | None:
    return next((p for p in range(after + 1, min(after + _PORTS_TRIED, 65536)) if _bind(host, p) == 0), None)


def _command(pid: int) -> str:
    try:
        return command_name(pid)
    except OSError:
        return "?"


def inspect_state_dir(
    path: str,
    service: ServiceFacts | None,
    log_dirs: Sequence[str],
    strangers: Iterable[str],
    identity: Credentials | None,
) -> StateDirFacts:
    """The state dir; `strangers` are log dirs of other brokers."""
    exists = os.path.isdir(path)
    nearest = nearest_directory(path)
    given = service_state_dir(service)
    seen = inspect_journal(path)
    refused = [] if seen.damaged is None else [replace(seen.damaged, code="journal-damaged")]
    try:
        check_place(path, nearest)
    except OSError as e:
        # Who may write there is asked of the agent's user.
        if e.errno not in (errno.EACCES, errno.EPERM):
            why = unusable(path, e.errno)
            refused.append(Reason(str(why), why.hint or "", "state-unusable"))
    present = {log_dir: found.status for log_dir in log_dirs if (found := stat_directory(log_dir)) is not None}
    return StateDirFacts(
        path=path,
        exists=exists,
        access=inspect_access(nearest, "the state dir", os.W_OK | os.X_OK, identity),
        made_by_unit=given == path,
        in_log_dir=log_dir_above(path, present),
        full=lacks_room_for_journal(nearest, path),
        no_reserve=lacks_room_for_reserve(nearest, path),
        journal=seen.exists,
        journal_schema=seen.schema,
        known_schema=SCHEMA_VERSION,
        foreign=tuple(sorted(seen.log_dirs & set(strangers))),
        service_path=given,
        host=seen.host,
        refused=tuple(refused),
    )


def inspect_instances(file: str, log_dirs: Sequence[str], listen: str | None) -> tuple[InstanceFacts, ...]:
    """The other configurations beside `file`, and what they share with this one."""
    folder = os.path.dirname(file)
    by_real_path = {real_path(d, ANSWER_SECONDS) or d: d for d in log_dirs}
    others = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not name.endswith(".toml") or os.path.realpath(path) == os.path.realpath(file):
            continue
        try:
            settings = load(path, environ={}).settings
            target = resolve_target(settings) if settings.kafka.config is not None else None
        except LogAgentError as e:
            others.append(InstanceFacts(file=path, problem=str(e)))
            continue
        their_dirs = [real_path(d, ANSWER_SECONDS) or d for d in target.log_dirs] if target is not None else []
        others.append(
            InstanceFacts(
                file=path,
                number=key_lines(path).get("kafka.config"),
                log_dirs=tuple(by_real_path[d] for d in their_dirs if d in by_real_path),
                listen=bool(listen) and settings.metrics.listen == listen,
            )
        )
    return tuple(others)


# One of Kafka's main classes, or a file with arguments for java.
_KAFKA = re.compile(r"kafka\.|org\.apache\.kafka\.|io\.confluent\.|@")


def inspect_brokers(configs: Sequence[BrokerConfigRead], chosen: str | None) -> tuple[BrokerFacts, ...]:
    """Each configuration on this host; `chosen` is the one in use."""
    candidates = brokers_of(configs)
    return tuple(
        BrokerFacts(
            config=b.config,
            how=b.how,
            pid=b.pid,
            user=user_name(b.user) if b.user is not None else None,
            unit=b.unit.name if b.unit is not None else None,
            version=_version(b),
            chosen=b.ignored is None and chosen is not None and same_file(b.config, chosen),
            candidate=b in candidates,
            ignored=b.ignored,
        )
        for b in configs
    )


def _version(broker: BrokerConfigRead) -> tuple[int, int, int] | None:
    if broker.ignored is not None:
        return None  # nothing that it names may be touched
    running = version_of_process(broker.pid) if broker.pid is not None else None
    return running or version_installed(broker.config)


def inspect_holders(
    log_dirs: Iterable[DoctorLogDirFacts], config: str | None, identity: Credentials | None, state_dir: str
) -> tuple[HolderFacts, ...]:
    """Every process that holds one of the log dirs, and whether `identity` may see what it has open."""
    pids = dict.fromkeys(
        d.pid for d in log_dirs if d.pid is not None and (d.holder.is_broker or d.holder is HolderState.HIDDEN)
    )
    return tuple(_holder(pid, config, identity, state_dir) for pid in pids)


def ask_holder(h: HolderFacts, target: Target, settings: Settings, cluster: ClusterFacts, now_ms: int) -> HolderFacts:
    """Where the file may not be what the broker runs with, it is asked what it was started with (for at most 2 s)."""
    if h.in_doubt is None:
        return h
    node = Host(cluster.node_id, cluster.cluster_id, settings.assignments.max_age)
    brokers = BrokersToAsk(Assignments(), target, settings, node, {}, frozenset({h.pid}), False, now_ms)
    asked = brokers.ask_running(target.server.layers)
    doubt = h.in_doubt if asked.why_not is None else f"{h.in_doubt} (the broker was asked in vain: {asked.why_not})"
    running = asked.layers.file if asked.layers is not None else None
    return replace(h, in_doubt=still_in_doubt(doubt, target.server.layers.file, running))


def _holder(pid: int, config: str | None, identity: Credentials | None, state_dir: str) -> HolderFacts:
    try:
        seen = str(ask_as(identity, lambda: readable_process(pid), ANSWER_SECONDS))
    except OSError:
        seen = "refused"
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().rstrip(b"\0").split(b"\0")]
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        uid, gid = int(status["Uid"].split()[1]), int(status["Gid"].split()[1])
        capabilities = int(status["CapPrm"], 16)
        dumpable = os.stat(f"/proc/{pid}/status").st_uid == uid
    except (OSError, KeyError, ValueError):
        return HolderFacts(pid=pid, command="its command cannot be read", proc=seen)
    launch = launch_of_java(words)
    started_with = _absolute(launch.config, pid) if launch is not None else None
    same = _same_config_in_time(started_with, config, pid)
    in_doubt = None
    if same and config is not None:
        started_ms = None
        with suppress(OSError):
            started_ms = process_start_time_ms(pid)
        changed_ms = newest_change_ms(config)
        noted = is_noted(state_dir, config, pid, started_ms)
        in_doubt = in_force(config, running=True, started_ms=started_ms, changed_ms=changed_ms, noted=noted).doubt
    return HolderFacts(
        pid=pid,
        command=os.path.basename(words[0]) if words[0] else status.get("Name", "?"),
        user=user_name(uid),
        uid=uid,
        gid=gid,
        kafka=launch is not None or any(_KAFKA.match(word) for word in words),
        config=started_with,
        same_config=same,
        in_doubt=in_doubt,
        overrides=tuple(f"{k}={v}" for k, v in launch.overrides.items()) if launch is not None else (),
        proc=seen,
        capabilities=capabilities if uid != 0 else 0,
        dumpable=dumpable,
    )


def _absolute(config: str, pid: int) -> str | None:
    if os.path.isabs(config):
        return config
    try:
        return os.path.join(os.readlink(f"/proc/{pid}/cwd"), config)
    except OSError:
        return None


def _same_config_in_time(started_with: str | None, configured: str | None, pid: int) -> bool | None:
    """`_same_config` in a child: anybody who may read a log dir's files can hold its lock, and name a path that never
    answers."""
    try:
        answer = ask_as(None, lambda: _same_config(started_with, configured, pid), ANSWER_SECONDS)
    except OSError:
        return None
    return None if answer is None else bool(answer)


def _same_config(started_with: str | None, configured: str | None, pid: int) -> bool | None:
    """Whether the file that the process was started with is the one we use; None if unknown."""
    if started_with is None or configured is None:
        return None
    # In a container the same file has another path.
    seen_from_here = (started_with, f"/proc/{pid}/root{started_with}")
    return any(same_file(path, configured) for path in seen_from_here) or (
        os.path.realpath(started_with) == os.path.realpath(configured)
    )


def find_version(
    target: Target,
    log_dirs: Iterable[DoctorLogDirFacts],
    brokers: Iterable[BrokerFacts],
    read: Assignments | None,
    cluster: ClusterFacts,
    state_dir: str,
) -> KafkaVersion:
    """The version of the broker and its source. A starting broker counts too, although it holds nothing yet."""
    holders = [d.pid for d in log_dirs if d.pid is not None and d.holder.is_broker]
    starting = [b.pid for b in brokers if b.chosen and b.pid is not None]
    last_run = read_version_seen(state_dir, cluster.cluster_id, cluster.node_id)
    return which_version(gather_versions(target, [*holders, *starting], read, cluster.cluster_id, last_run))


def inspect_assignments(
    target: Target, settings: Settings, cluster: ClusterFacts, state_dir: str, *, stopped: bool, now_ms: int
) -> tuple[AssignmentsFacts, Assignments]:
    """Read the sources as a command would. Raises ConfigError for a wrong `kafka.client` file."""
    query = AssignmentQuery(
        target=target,
        settings=settings,
        cluster_id=cluster.cluster_id,
        node_id=cluster.node_id,
        now_ms=now_ms,
        stopped=stopped,
        lineage=read_lineage(state_dir, cluster.cluster_id, cluster.node_id),
        directory_ids=cluster.directory_ids,
    )
    read = load_assignments(query)
    identify_stopped(read, read_brokers_seen(state_dir, cluster.cluster_id), now_ms)
    document = read.document(now_ms)
    client = client_config(settings.kafka)
    address, secure = client_address(target.server, "PLAINTEXT" if client is None else client["security_protocol"])
    facts = AssignmentsFacts(
        usable=read.first is not None,
        source=document["source"],
        age_seconds=document["age_seconds"],
        max_age_seconds=settings.assignments.max_age / 1000,
        partitions=document["partitions"],
        problems=tuple(read.problems),
        bootstrap=address,
        bootstrap_set=settings.kafka.bootstrap_servers is not None,
        secure=secure,
        stopped=stopped,
        kraft=bool(target.server.process_roles),
        empty=document["source"] != "none" and document["topics"] == 0,
        ends_at_stop=read.ends_at_stop,
        log_doubt=read.log_doubt,
        not_our_lineage=read.lineage_problem is not None or read.other_history is not None,
        asked=settings.kafka.bootstrap_servers if "admin" in settings.assignments.sources else None,
        answered_as=read.reader.principal if read.reader is not None else None,
        no_answer=read.no_answer,
        untried=settings.kafka.client is not None
        and (settings.kafka.bootstrap_servers is None or "admin" not in settings.assignments.sources),
    )
    return facts, read


def client_address(server: ServerProperties, wanted: str) -> tuple[str | None, bool]:
    """HOST:PORT of a listener for clients, one of the protocol that is wanted first, and whether it requires security
    settings; (None, False) if `listeners` is not set."""
    pairs = (p.partition(":") for p in _items(server.props, "listener.security.protocol.map"))
    names = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    controllers = set(_items(server.props, "controller.listener.names"))
    best: tuple[str | None, bool] = (None, False)
    for listener in _items(server.props, "listeners"):
        match = re.fullmatch(r"(\w+)://(\[[^\]]*\]|[^:]*):(\d+)", listener)
        if match is None or match[1] in controllers:
            continue
        protocol = names.get(match[1], match[1]).upper()
        address = f"{match[2] if match[2] not in ('', '0.0.0.0') else 'localhost'}:{match[3]}"
        found = address, protocol != "PLAINTEXT"
        if protocol == wanted:
            return found
        if best[0] is None:
            best = found
    return best


def _items(props: Mapping[str, str], key: str) -> list[str]:
    return [item.strip() for item in props.get(key, "").split(",") if item.strip()]
