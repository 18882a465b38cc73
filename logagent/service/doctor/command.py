"""`logagent doctor`: what was found on this host, what does not work yet, and the exact line to change.

It inspects everything the agent needs, changes nothing, and never switches users itself. A hung disk blocks only a
child.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import click

from logagent import __version__
from logagent.advice.documents import HolderDoc
from logagent.advice.finding import Area, Finding, Severity, any_fatal
from logagent.base.clock import Clock, SystemClock
from logagent.base.config.config import DEFAULT_CONFIG, instance_of, key_lines, load_valid_part
from logagent.base.config.settings import Settings, is_uri
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, table
from logagent.base.dir_names import METADATA_DIR, classify
from logagent.base.documents import Time, TypedDict, strict
from logagent.base.errors import ConfigError, Exit
from logagent.base.kafka_version import version_text_or_none
from logagent.base.linux.access import READ, SEARCH, WRITE, Credentials, ask_as, real_path, unlistable, user_name
from logagent.base.records import Health, Holder, HolderState, PartitionDir, Reason
from logagent.base.units import rfc3339, rfc3339_or_none
from logagent.cleanup.session.left_log_dirs import inspect_missing
from logagent.cleanup.session.open_host import LogDirs, forgotten_log_dir
from logagent.cleanup.session.session import of_another_host
from logagent.cleanup.state.journal import FILE_NAME, inspect_journal
from logagent.disk.bounded_calls import BoundedCalls
from logagent.disk.calls import LogDirFailures
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.identity import ClusterFacts
from logagent.kafka.image import Source
from logagent.kafka.processes.discovery import BrokerConfigRead, find_brokers, only_broker
from logagent.kafka.processes.systemd_units import systemd_runs
from logagent.kafka.processes.target import Target, resolve_target
from logagent.service.doctor.inspection import (
    ANSWER_SECONDS,
    ask_holder,
    find_subject,
    find_version,
    inspect_access,
    inspect_assignments,
    inspect_brokers,
    inspect_daemon,
    inspect_holders,
    inspect_instances,
    inspect_mount,
    inspect_port,
    inspect_proc,
    inspect_service,
    inspect_state_dir,
    mounts_or_none,
)
from logagent.service.doctor.rules.diagnose import diagnose, exit_config
from logagent.service.doctor.rules.host import (
    AccessFacts,
    ConfigFacts,
    DaemonState,
    DoctorFacts,
    DoctorLogDirFacts,
    StateDirFacts,
)
from logagent.service.setup.command import inspect_drop_in
from logagent.verdict.evidence.assignment_sources import Assignments
from logagent.verdict.facts import LogDirFacts
from logagent.verdict.without_directory import Missing

_WORDS: dict[Severity, Literal["works", "info", "warning", "fails"]] = {
    Severity.FATAL: "fails",
    Severity.WARNING: "warning",
    Severity.INFO: "info",
    Severity.WORKS: "works",
}
_COUNTED = ((Severity.FATAL, "not working"), (Severity.WARNING, "to improve"), (Severity.WORKS, "working"))


@click.command()
@click.option("--user", metavar="USER", help="Check the rights of this user (name or uid; root only).")
@reads_assignments
@common
def doctor(call: Call, user: str | None) -> None:
    """Check everything logagent needs on this host: what works, what does not, and what to change.

    \b
    It checks
      the configuration, and every broker on this host (running, started by a
        unit, or configured in a usual place);
      who holds the log dirs, and whether their open files can be seen;
      the Kafka version, the source of the assignments and their age;
      the agent user's rights on each log dir and file, and the mounts;
      what the service's unit would block, and the running daemon;
      the state dir and its journal, the metrics port, other instances.

    Each problem comes with the file, the line and what it should say.

    \b
    Exit status:
      0   everything needed works
      1   something does not work yet
      78  configuration error, or it is not clear which broker to serve

    Run by root, it checks the rights of the user the service runs as (or --user); otherwise your own. Nothing is
    changed on disk. A running broker whose server.properties changed since its start is asked what it runs with (for at
    most 2 seconds).
    """
    clock = SystemClock()
    facts = examine(call, user, clock)
    findings = diagnose(facts)
    if exit_config(facts):
        call.record_status(Exit.CONFIG)
    elif any_fatal(findings):
        call.record_status(Exit.FAILED)
    if call.json:
        dump(doctor_document(facts, findings, call.host, rfc3339(clock.now_ms())))
    else:
        _show(call, findings)


def _settings(call: Call) -> tuple[Settings, ConfigError | None]:
    """The settings, or their valid part and the errors: doctor checks the rest all the same."""
    try:
        return call.settings(), None
    except ConfigError as wrong:
        try:
            return call.valid_part(), wrong
        except ConfigError:  # the file is not readable: only what the command line says is known
            return call.overridden(Settings()), wrong


def _show(call: Call, findings: tuple[Finding, ...]) -> None:
    rows: list[list[str]] = []
    for f in findings:
        why = f.why
        what = f"{f.path}: {why.fact}" if f.path and f.path not in why.fact else why.fact
        rows.append([_WORDS[f.severity] if f.severity is not Severity.INFO else "", f.area or "", what])
        if why.hint:
            rows.append(["", "", f"→ {why.hint}"])
        if f.change is not None:
            lines = [f"  {f.change.where}:", *(f"    {line}" for line in f.change.line.splitlines())]
            lines += [f"    then: {f.change.then}"] if f.change.then is not None else []
            rows += [["", "", line] for line in lines]
    table(
        "What logagent needs on this host",
        [("state", "left"), ("area", "left"), ("finding", "text")],
        rows,
        color=call.color,
    )
    counts = [(sum(f.severity is severity for f in findings), words) for severity, words in _COUNTED]
    call.say(", ".join(f"{count} {words}" for count, words in counts if count))


def doctor_document(facts: DoctorFacts, findings: Sequence[Finding], host: str, at: str) -> DoctorDoc:
    """`logagent.doctor/1`."""
    subject, s = facts.subject, facts.service
    return {
        "schema": "logagent.doctor/1",
        "at": at,
        "host": host,
        "agent_version": __version__,
        "config": facts.config.file,
        "kafka_config": facts.config.kafka_config,
        "state_dir": facts.state.path if facts.state is not None else "",
        "user": {"name": subject.name, "uid": subject.uid, "how": subject.how, "service": subject.service},
        "brokers": [
            {
                "config": b.config,
                "how": b.how,
                "pid": b.pid,
                "user": b.user,
                "unit": b.unit,
                "kafka_version": version_text_or_none(b.version),
                "chosen": b.chosen,
            }
            for b in facts.brokers
        ],
        "kafka_version": version_text_or_none(facts.kafka_version.version),
        "kafka_version_from": facts.kafka_version.says(),
        "at_least": facts.kafka_version.exact is None,
        "cluster_id": facts.cluster_id,
        "node_id": facts.node_id,
        "log_dirs": [
            {
                "path": d.path,
                "health": d.health,
                "reason": d.reason,
                "holder": {"state": d.holder, "pid": d.pid, "start_time": rfc3339_or_none(d.started_ms)},
                "owner": d.owner,
                "lacks": d.access.lacks if d.access is not None else None,
                "mount_point": d.mount.point if d.mount is not None else None,
                "file_system": d.mount.kind if d.mount is not None else None,
            }
            for d in facts.log_dirs
        ],
        "service": None
        if s is None
        else {
            "unit": s.unit,
            "known_by": s.known_by,
            "user": s.user,
            "file": s.file,
            "active": s.active,
            "main_pid": s.main_pid,
        },
        "daemon": facts.daemon.state if facts.daemon is not None else "none",
        "assignments_source": facts.assignments.source if facts.assignments is not None else "none",
        "assignments_age_seconds": facts.assignments.age_seconds if facts.assignments is not None else None,
        "findings": [_doctor_finding(f) for f in findings],
    }


def _doctor_finding(f: Finding) -> DoctorFindingDoc:
    assert f.area is not None, f
    c = f.change
    return {
        "area": f.area,
        "state": _WORDS[f.severity],
        "code": f.why.code,
        "path": f.path,
        "says": f.why.fact,
        "hint": f.why.hint,
        "change": None
        if c is None
        else {"file": c.file, "number": c.number, "section": c.section, "line": c.line, "then": c.then},
    }


METADATA_LOG = "the metadata log of the cluster"
REQUESTS, ANSWERS = "the fleet's deletion requests (orders.keys)", "what agents answer to them (orders.keys)"
# Not there in ZooKeeper mode (the findings on assignments cover that), or before anything was requested or answered.
MAY_BE_ABSENT = (METADATA_LOG, REQUESTS, ANSWERS)
# Directories per log dir whose permissions are checked; a few microseconds each.
_MOST_DIRS = 200_000


def examine(call: Call, user: str | None, clock: Clock) -> DoctorFacts:
    """Inspect the host. Raises only UsageError (a user that we cannot become)."""
    settings, wrong = _settings(call)
    brokers = find_brokers()
    config, target = _configuration(call, settings, wrong, brokers)
    instance = config.instance
    unit = f"logagent@{instance}.service" if instance is not None else "logagent.service"
    # A unit's file without systemd, as the package brings it into an image, starts nothing.
    service = inspect_service(unit) if config.systemd else None
    if service is not None:
        service = replace(service, setup=inspect_drop_in(instance))
    # Only a child touches the log dirs whose disks do not answer.
    reachable = tuple(d for d in target.log_dirs if real_path(d, ANSWER_SECONDS) is not None) if target else ()
    of_others = {d.rstrip("/") for b in brokers for d in b.log_dirs} - {d.rstrip("/") for d in reachable}
    subject, identity = find_subject(user, service, call.state_dir, reachable)
    daemon = inspect_daemon(call.state_dir)
    facts = DoctorFacts(
        now_ms=clock.now_ms(),
        config=config,
        brokers=inspect_brokers(brokers, config.kafka_config),
        subject=subject,
        service=service,
        proc=inspect_proc(mounts_or_none(), identity),
        daemon=daemon,
        port=inspect_port(settings.metrics.listen, identity, daemon.pid) if wrong is None else None,
        siblings=inspect_instances(config.file or config.default, reachable, settings.metrics.listen),
        state=inspect_state_dir(call.state_dir, service, reachable, of_others, identity),
        files=_files(settings, config, target, identity),
        root=os.geteuid() == 0,
    )
    if target is None:
        return facts
    return _with_broker(facts, settings, target, reachable, identity, clock, call.state_dir)


def _with_broker(
    facts: DoctorFacts,
    settings: Settings,
    target: Target,
    reachable: Sequence[str],
    identity: Credentials | None,
    clock: Clock,
    state_dir: str,
) -> DoctorFacts:
    """Add what can only be inspected once the broker is known."""
    log_dirs, answering, cluster, state = _inspect_log_dirs(target, reachable, identity, clock, facts.state)
    holders = inspect_holders(log_dirs, target.config, identity, state_dir)
    holders = tuple(ask_holder(h, target, settings, cluster, clock.now_ms()) for h in holders)
    stopped = all(d.holder is HolderState.FREE for d in log_dirs if d.health is not Health.OFFLINE)
    config, service = facts.config, facts.service
    if any(a.what == METADATA_LOG and not a.answered for a in facts.files):
        others = tuple(source for source in settings.assignments.sources if source != "kraft-log")
        settings = replace(settings, assignments=replace(settings.assignments, sources=others))
    try:
        assignments, read = inspect_assignments(
            target, settings, cluster, state_dir, stopped=stopped, now_ms=clock.now_ms()
        )
        read.close()
    except ConfigError as e:
        config = replace(config, problems=config.problems + (e.problems or (str(e),)), hint=e.hint)
        assignments, read = None, None
    missing = _inspect_missing(target, answering, read, clock, state_dir)
    version = find_version(target, log_dirs, facts.brokers, read, cluster, state_dir)
    strange = cluster.problems_for(version, zookeeper=not target.server.process_roles)
    if service is not None and service.main_pid is not None:
        # How the running daemon sees the paths that it has to write to.
        table = mounts_or_none(service.main_pid)
        written = [*answering, *(a.path for a in facts.files if a.write and a.answered)]
        sandbox = {path: mount for path in written if (mount := inspect_mount(path, table)) is not None}
        service = replace(service, sandbox=sandbox)
    return replace(
        facts,
        config=config,
        log_dirs=log_dirs,
        holders=holders,
        kafka_version=version,
        cluster_id=cluster.cluster_id,
        node_id=cluster.node_id,
        cluster_problems=strange,
        by_node=bool(cluster.by_node),
        service=service,
        assignments=assignments,
        missing=missing,
        state=state,
    )


def _inspect_log_dirs(
    target: Target, reachable: Sequence[str], identity: Credentials | None, clock: Clock, state: StateDirFacts | None
) -> tuple[tuple[DoctorLogDirFacts, ...], tuple[str, ...], ClusterFacts, StateDirFacts | None]:
    """Every log dir, the paths of those that answered in time, what they say of the cluster, and of the state dir:
    which one the configuration has lost, and whether it is this host's."""
    table = mounts_or_none()
    accesses = {
        path: inspect_access(path, "a log dir", READ | WRITE | SEARCH, identity)
        if path in reachable
        else AccessFacts(path=path, what="a log dir", answered=False, write=True)
        for path in target.log_dirs
    }
    answering = tuple(path for path, access in accesses.items() if access.answered)
    with _opened(target, answering, clock) as opened:
        seen = opened.log_dir_facts()
        cluster = opened.cluster
        if state is not None:
            state = replace(state, forgotten=forgotten_log_dir(target, opened, state.path, seen))
            # With all log dirs: one that does not answer may be the one that the journal knows.
            whole = len(answering) == len(target.log_dirs)
            journal = os.path.join(state.path, FILE_NAME)
            if whole and (e := of_another_host(journal, state.host, opened)) is not None:
                state = replace(state, refused=(*state.refused, Reason(str(e), e.hint or "", "journal-foreign")))
    log_dirs = tuple(
        replace(
            _log_dir(path, seen.get(path), identity if accesses[path].answered else None),
            access=accesses[path],
            mount=inspect_mount(path, table) if accesses[path].answered else None,
        )
        for path in target.log_dirs
    )
    return log_dirs, answering, cluster, state


def _opened(target: Target, answering: tuple[str, ...], clock: Clock) -> LogDirs:
    failures = LogDirFailures()
    for path in set(target.log_dirs) - set(answering):
        # Open files there are not read: even that would hang.
        failures.mark_offline(path, "its disk does not answer")
    return LogDirs(replace(target, log_dirs=answering), clock, failures, calls=BoundedCalls(failures, ANSWER_SECONDS))


def _inspect_missing(
    target: Target, answering: tuple[str, ...], read: Assignments | None, clock: Clock, state_dir: str
) -> Missing:
    """By the names of directories: doctor reads none of them."""
    with _opened(target, answering, clock) as opened:
        looked = opened.log_dir_facts("no")
        listed = opened.calls.call_each({path: partial(_named_dirs, d) for path, d in opened.online().items()})
        dirs = [d for found in listed.values() if isinstance(found, list) for d in found]
        silent = set(target.log_dirs) - {path for path, found in listed.items() if isinstance(found, list)}
        nowhere = Holder(HolderState.UNREADABLE)
        looked |= {path: LogDirFacts(path, None, Health.OFFLINE, None, nowhere) for path in silent}
        image, sure = (read.shown, read.shown_is_sure) if read is not None else (None, False)
        known = inspect_journal(state_dir).log_dirs
        return inspect_missing(opened, looked, image, sure, dirs, known, state_dir)


def _named_dirs(log_dir: OpenLogDir) -> list[PartitionDir]:
    with log_dir.acting("list"):
        names = os.listdir(log_dir.fd)
    parsed = ((name, classify(name)) for name in names)
    return [
        PartitionDir(log_dir.path, name, p.kind, p.topic, p.partition, p.uuid, p.truncated, 0, 0, 0, 0)
        for name, p in parsed
    ]


def _configuration(
    call: Call, settings: Settings, wrong: ConfigError | None, brokers: Sequence[BrokerConfigRead]
) -> tuple[ConfigFacts, Target | None]:
    loaded = call.loaded_settings
    file = loaded.file if loaded is not None else call.config_file
    # Whether the file itself names the broker, whatever our own environment says: the daemon has another one.
    by_file = loaded is None or (
        loaded.file is not None and load_valid_part(loaded.file, {})[0].settings.kafka.config is not None
    )
    facts = ConfigFacts(
        file=file if file is not None and os.path.exists(file) else None,
        default=call.config_file or str(DEFAULT_CONFIG),
        keys=key_lines(file) if file is not None else {},
        problems=wrong.problems or (str(wrong),) if wrong is not None else (),
        hint=wrong.hint if wrong is not None else None,
        instance=instance_of(call.config_file),
        kafka_config=settings.kafka.config,
        named=settings.kafka.config is not None,
        named_in_file=by_file,
        log_dirs_named=bool(call.log_dirs),
        mode=settings.cleanup.mode,
        systemd=systemd_runs(),
    )
    if facts.instance is not None and settings.kafka.config is None and not call.log_dirs:
        return facts, None
    try:
        target = resolve_target(settings, call.log_dirs)
    except ConfigError as e:
        only = only_broker(brokers)
        if settings.kafka.config is None and only is None:
            return facts, None  # none or several: other findings say so
        config = settings.kafka.config or (only.config if only is not None else None)
        problems = facts.problems + (e.problems or (str(e),))
        return replace(facts, kafka_config=config, problems=problems, hint=e.hint or facts.hint), None
    return replace(facts, kafka_config=target.config), target


def _log_dir(path: str, seen: LogDirFacts | None, identity: Credentials | None) -> DoctorLogDirFacts:
    if seen is None:
        return DoctorLogDirFacts(
            path=path, health=Health.OFFLINE, reason="its disk does not answer", holder=HolderState.UNREADABLE
        )
    owner: int | None = None
    count, example = 0, None
    if seen.health is not Health.OFFLINE:
        try:
            owner = os.stat(path).st_uid
            count, example = ask_as(identity, lambda: unlistable(path, _MOST_DIRS), ANSWER_SECONDS)
        except OSError:
            pass  # a disk that fails now is reported above
    return DoctorLogDirFacts(
        path=path,
        health=seen.health,
        reason=seen.health_reason,
        holder=seen.holder.state,
        holder_detail=seen.holder.detail,
        pid=seen.holder.pid,
        started_ms=seen.holder.start_time_ms,
        owner=user_name(owner) if owner is not None else None,
        owner_uid=owner,
        others=count,
        example=example,
    )


def _files(
    settings: Settings, config: ConfigFacts, target: Target | None, identity: Credentials | None
) -> tuple[AccessFacts, ...]:
    """Everything besides the log dirs that must be readable or writable."""
    kafka, store, folder = settings.kafka, settings.publish.store, READ | WRITE | SEARCH
    wanted: list[tuple[str | None, str, int]] = [
        (config.file, "the configuration", READ),
        (config.kafka_config, "the broker's configuration", READ),
        (kafka.client, "security settings for the Admin API (kafka.client)", READ),
        (settings.assignments.file, "exported assignments (assignments.file)", READ),
        (store if store and not is_uri(store) else None, "the fleet store (publish.store)", folder),
    ]
    if store and settings.orders.keys and not is_uri(store):
        wanted.append((os.path.join(store, "control"), REQUESTS, READ | SEARCH))
        wanted.append((os.path.join(store, "answers"), ANSWERS, folder))
    if settings.metrics.textfile is not None:
        wanted.append((os.path.dirname(settings.metrics.textfile), "the folder of metrics.textfile", WRITE | SEARCH))
    wanted += [
        (d, "a quarantine directory (cleanup.quarantine_dirs)", folder) for d in settings.cleanup.quarantine_dirs
    ]
    if target is not None and "kraft-log" in settings.assignments.sources:
        metadata = os.path.join(target.server.metadata_log_dir, METADATA_DIR) if target.config is not None else None
        if metadata is not None:
            wanted.append((metadata, METADATA_LOG, READ | SEARCH))
    accesses = (inspect_access(path, what, wants, identity) for path, what, wants in wanted if path)
    return tuple(access for access in accesses if access.exists or access.what not in MAY_BE_ABSENT)


@strict
class DoctorBroker(TypedDict):
    """A configuration of a broker on this host. `chosen`: the one that logagent uses; `how`: how it was found."""

    config: str
    how: str
    pid: int | None
    user: str | None
    unit: str | None
    kafka_version: str | None
    chosen: bool


@strict
class DoctorLogDir(TypedDict):
    """`lacks`: the permissions on it that the agent's user is missing, in words."""

    path: str
    health: Health
    reason: str | None
    holder: HolderDoc
    owner: str | None
    lacks: str | None
    mount_point: str | None
    file_system: str | None


@strict
class DoctorUser(TypedDict):
    """The user whose permissions were checked, and how that user was found. `service`: the daemon runs as that user."""

    name: str
    uid: int
    how: str
    service: bool


@strict
class DoctorService(TypedDict):
    """The daemon's unit as loaded by the running systemd, or as read from its files (then `active` is null)."""

    unit: str
    known_by: Literal["systemd", "files"]
    user: str | None
    file: str
    active: str | None
    main_pid: int | None


@strict
class DoctorChange(TypedDict):
    """Put `line` (it may contain newlines) into `file` below `section`, replacing line `number` if that is set. If
    `file` is null, `line` is a command to run as root. `then`: what makes the change effective."""

    file: str | None
    number: int | None
    section: str | None
    line: str
    then: str | None


@strict
class DoctorFindingDoc(TypedDict):
    """Codes are stable; new ones may be added."""

    area: Area
    state: Literal["works", "info", "warning", "fails"]
    code: str
    path: str
    says: str
    hint: str
    change: DoctorChange | None


@strict
class DoctorDoc(TypedDict):
    """`kafka_config` and everything derived from it is null or empty if no broker, or more than one, was found.
    `at_least`: the broker runs `kafka_version` or later."""

    schema: Literal["logagent.doctor/1"]
    at: Time
    host: str
    agent_version: str
    config: str | None
    kafka_config: str | None
    state_dir: str
    user: DoctorUser
    brokers: list[DoctorBroker]
    kafka_version: str | None
    kafka_version_from: str | None
    at_least: bool
    cluster_id: str | None
    node_id: int | None
    log_dirs: list[DoctorLogDir]
    service: DoctorService | None
    daemon: DaemonState
    assignments_source: Source | Literal["none"]
    assignments_age_seconds: float | None
    findings: list[DoctorFindingDoc]
