"""What doctor inspects around the broker: its configurations on this host, the holders of the log dirs, version,
assignments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from logagent.base.config.settings import Settings
from logagent.base.kafka_version import KafkaVersion, which_version
from logagent.base.linux.access import user_name
from logagent.base.linux.child import Identity, ask_as, readable_process
from logagent.base.records import HolderState
from logagent.kafka.files.server_properties import ServerProperties
from logagent.kafka.identity import ClusterFacts
from logagent.kafka.processes.discovery import BrokerConfigRead, brokers_of, same_file, version_installed
from logagent.kafka.processes.target import Target
from logagent.kafka.processes.version import launch_of_java, version_of_process
from logagent.service.doctor.rules.host import AssignmentsFacts, BrokerFacts, DoctorLogDirFacts, HolderFacts
from logagent.verdict.evidence.assignment_sources import AssignmentQuery, Assignments, load_assignments
from logagent.verdict.evidence.judge import gather_versions, identify_stopped
from logagent.verdict.evidence.version_seen import read_brokers_seen, read_lineage, read_version_seen

ANSWER_SECONDS = 5.0
_HELD = (HolderState.HELD, HolderState.STARTING, HolderState.HIDDEN)
# One of Kafka's main classes, or a file with arguments for java.
_KAFKA = re.compile(r"kafka\.|org\.apache\.kafka\.|io\.confluent\.|@")
_PLAIN = ("PLAINTEXT", "SASL_PLAINTEXT")


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
    log_dirs: Iterable[DoctorLogDirFacts], config: str | None, identity: Identity | None
) -> tuple[HolderFacts, ...]:
    """Every process that holds one of the log dirs, and whether `identity` may see what it has open."""
    pids = dict.fromkeys(d.pid for d in log_dirs if d.pid is not None and d.holder in _HELD)
    return tuple(_holder(pid, config, identity) for pid in pids)


def _holder(pid: int, config: str | None, identity: Identity | None) -> HolderFacts:
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
    return HolderFacts(
        pid=pid,
        command=os.path.basename(words[0]) if words[0] else status.get("Name", "?"),
        user=user_name(uid),
        uid=uid,
        gid=gid,
        kafka=launch is not None or any(_KAFKA.match(word) for word in words),
        config=started_with,
        same_config=_same_config_in_time(started_with, config, pid),
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
    holders = [d.pid for d in log_dirs if d.pid is not None and d.holder in (HolderState.HELD, HolderState.STARTING)]
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
    address, secure = client_address(target.server)
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
    )
    return facts, read


def client_address(server: ServerProperties) -> tuple[str | None, bool]:
    """HOST:PORT of a listener for clients, plaintext first, and whether it requires security settings; (None, False) if
    `listeners` is not set."""
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
        if protocol == _PLAIN[0]:
            return address, False
        if best[0] is None:
            best = address, True
    return best


def _items(props: Mapping[str, str], key: str) -> list[str]:
    return [item.strip() for item in props.get(key, "").split(",") if item.strip()]
