"""May a log dir be taken out of `log.dirs`, and what moves the partitions that are still in it?

Pure: decided from an inventory of the whole host, the verdicts on it, and what is free. A log dir may leave when
nothing of a partition is in it and nothing can come: its broker is stopped, or it is cordoned (KIP-1066). What is moved
is what is proven to be assigned to this node, each to the other log dir with the most free space, as
`kafka-reassign-partitions.sh` takes it (KIP-113). That tool changes the replicas of a partition to those in its JSON:
so the JSON has them as fresh assignments have them, or the partition is not in it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from logagent.base.kafka_version import CORDONS_SINCE, Version
from logagent.base.records import DirKey, Kind, PartitionDir, Reason, TopicPartition, Verdict
from logagent.kafka.image import AssignmentImage, PartitionAssignment
from logagent.kafka.retention.settings import CORDONED_LOG_DIRS
from logagent.verdict.facts import Ruling

KEPT_FREE: Final = 0.05
"""Of each file system, this share stays free: what was moved there goes on growing."""

# What has no records of a partition: the broker makes it anew wherever it needs it.
_NO_RECORDS = (Kind.CACHE,)
_TOOL = "kafka-reassign-partitions.sh"
_STRAYS_GO = (
    "strays are removed after cleanup.stray_retention, once another copy has all of them or their topic is gone"
)


class TargetLogDir(NamedTuple):
    """Another log dir of this broker that is online and takes partitions. Bytes of its file system (`device`)."""

    log_dir: str
    device: int
    size: int
    free: int


class RemainingDir(NamedTuple):
    """One directory that is still in the log dir. `only_copy`: no other broker has a replica in sync; None if that is
    not known. `to`: the log dir to move it to; `stays`: why none is named."""

    dir: PartitionDir
    ruling: Ruling | None
    only_copy: bool | None = None
    replicas: tuple[int, ...] = ()
    to: str | None = None
    stays: str | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """What is known of the log dir that is to leave, and of its host.

    `unseen`: why it is not known what is in it. `dirs`: of all log dirs. `image`: fresh assignments, None where no
    source proves any, and `no_image` says why. `configured`: `log.dirs` as it is spelled, `is_configured`: it has the
    log dir. `rooms`: where partitions can go. `stopped`: the broker holds no lock; None if that is not known.
    `cordoned`: the log dirs that are; `cordon_is_dynamic`: by a setting that this broker has of its own, which
    `kafka-configs.sh` changes. `version`: None if it is not known.
    """

    log_dir: str
    unseen: str | None
    dirs: Sequence[PartitionDir]
    rulings: Mapping[DirKey, Ruling]
    image: AssignmentImage | None
    no_image: str
    node_id: int | None
    configured: Sequence[str]
    metadata_log_dir: str | None
    rooms: Sequence[TargetLogDir]
    stopped: bool | None
    cordoned: Collection[str]
    cordon_is_dynamic: bool
    version: Version | None

    @property
    def is_configured(self) -> bool:
        return any(_normal(d) == self.log_dir for d in self.configured)

    @property
    def is_cordoned(self) -> bool:
        return self.log_dir in self.cordoned or "*" in self.cordoned


@dataclass(frozen=True, slots=True)
class Leave:
    """The answer. `may_leave` only without any obstacle, each with a code. `line`: of `server.properties`, without the
    log dir; None where there is none. `cordon`: the command that keeps new partitions away; None where that is done or
    not possible. `uncordon`: the one that takes that back, where it is cordoned by its name. `stopped`: as in
    `Leaving`.
    """

    log_dir: str
    node_id: int | None
    may_leave: bool
    obstacles: tuple[Reason, ...]
    left: tuple[RemainingDir, ...]
    line: str | None
    cordon: str | None
    uncordon: str | None
    stopped: bool | None

    @property
    def reassignment(self) -> dict[str, Any] | None:
        """The JSON for `kafka-reassign-partitions.sh`; None if there is nothing that it can move."""
        moved = [
            {
                "topic": each.dir.topic,
                "partition": each.dir.partition,
                "replicas": list(each.replicas),
                "log_dirs": [each.to if node == self.node_id else "any" for node in each.replicas],
            }
            for each in self.left
            if each.to is not None
        ]
        return {"version": 1, "partitions": moved} if moved else None


def may_leave(facts: Leaving) -> Leave:
    """The answer for one log dir."""
    left = tuple(_placed(facts, [d for d in facts.dirs if d.log_dir == facts.log_dir and d.kind not in _NO_RECORDS]))
    obstacles = (*_of_the_host(facts), *_of_what_is_left(left), *_of_the_broker(facts))
    rest = [d for d in facts.configured if _normal(d) != facts.log_dir]
    line = f"log.dirs={','.join(rest)}" if facts.is_configured and rest else None
    cordon, uncordon = cordon_command(facts), uncordon_command(facts)
    return Leave(
        facts.log_dir, facts.node_id, not obstacles, obstacles, left, line, cordon, uncordon, stopped=facts.stopped
    )


def cordon_command(facts: Leaving) -> str | None:
    """The `kafka-configs.sh` command line that cordons the log dir, too; None if it is, if the broker is stopped (which
    keeps new partitions away by itself), or if this broker knows no such thing (or may not: its release is not
    known)."""
    if facts.is_cordoned or facts.stopped or facts.version is None or facts.version < CORDONS_SINCE:
        return None
    return _cordoned_command(facts, (*_without_stale(facts.cordoned, facts.configured), facts.log_dir))


def uncordon_command(facts: Leaving) -> str | None:
    """The command line that takes the cordon of the log dir back; None where its name is not cordoned, or not by a
    setting that `kafka-configs.sh` changes."""
    if facts.log_dir not in facts.cordoned or not facts.cordon_is_dynamic:
        return None
    rest = (d for d in _without_stale(facts.cordoned, facts.configured) if d != facts.log_dir)
    return _cordoned_command(facts, tuple(rest))


def stale_cordons(cordoned: Collection[str], configured: Collection[str]) -> list[str]:
    """What `cordoned.log.dirs` names and `log.dirs` does not. A broker that starts so applies none of its own dynamic
    settings, whichever they are, and refuses to change one (`DynamicBrokerConfig.updateBrokerConfig`: "Per-broker
    configs of 3 could not be applied"; seen on 4.3.1)."""
    return sorted({*cordoned} - {"*"} - {_normal(d) for d in configured})


def _without_stale(cordoned: Collection[str], configured: Collection[str]) -> list[str]:
    """In the order in which a command has them: with one that is stale, the broker would refuse it."""
    return sorted({*cordoned} - {*stale_cordons(cordoned, configured)})


def _cordoned_command(facts: Leaving, log_dirs: Sequence[str]) -> str | None:
    return set_cordoned(facts.node_id, log_dirs) if facts.node_id is not None else None


def set_cordoned(node_id: int, log_dirs: Sequence[str]) -> str:
    """The `kafka-configs.sh` command line after which exactly `log_dirs` are cordoned."""
    what = ["--entity-type", "brokers", "--entity-name", str(node_id), "--alter"]
    setting = ["--delete-config", CORDONED_LOG_DIRS]
    if log_dirs:
        setting = ["--add-config", f"{CORDONED_LOG_DIRS}=[{','.join(log_dirs)}]"]
    return shlex.join(["kafka-configs.sh", "--bootstrap-server", "HOST:PORT", *what, *setting])


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"


def _of_the_host(facts: Leaving) -> Iterator[Reason]:
    if facts.unseen is not None:
        yield Reason(f"what is in it is not known: {facts.unseen}", "make it readable and ask again", "unseen")
    if not facts.is_configured:
        yield Reason(
            "log.dirs does not name it", f"log.dirs names {', '.join(facts.configured) or 'none'}", "not-configured"
        )
    elif all(_normal(d) == facts.log_dir for d in facts.configured):
        yield Reason("it is the only log dir of this broker", "add another one to log.dirs first", "only-log-dir")
    if facts.metadata_log_dir is not None and _normal(facts.metadata_log_dir) == facts.log_dir:
        # Its directory.id is how a dynamic quorum knows this voter: another directory is another voter.
        yield Reason(
            "the node's KRaft metadata log is in it (metadata.log.dir, else the first log dir)",
            "keep this log dir, or replace the node's metadata directory first as Kafka documents it for a failed disk",
            "metadata-log",
        )


def _of_what_is_left(left: Iterable[RemainingDir]) -> Iterator[Reason]:
    """One obstacle for each kind of thing that is still there."""
    count: Counter[str] = Counter(_kind_of(each) for each in left)
    for kind, (singular, plural, hint) in _LEFT.items():
        if number := count[kind]:
            yield Reason(f"{number} {singular if number == 1 else plural}", hint, kind)


_LEFT: Final[Mapping[str, tuple[str, str, str]]] = {
    "assigned": (
        "partition is assigned to this broker and is in it",
        "partitions are assigned to this broker and are in it",
        f"move them: --reassignment FILE writes the JSON for {_TOOL}",
    ),
    "moving-out": (
        "partition is being moved to another log dir",
        "partitions are being moved to another log dir",
        f"wait until {_TOOL} --verify says that it is done",
    ),
    "moving-in": (
        "partition is being moved into it (-future)",
        "partitions are being moved into it (-future)",
        f"wait until that is done, or cancel it: {_TOOL} --cancel",
    ),
    "unknown": (
        "directory with an unknown owner is in it",
        "directories with an unknown owner are in it",
        "name a source of assignments (logagent assignments show), and ask again",
    ),
    "orphan": (
        "orphan is in it",
        "orphans are in it",
        f"logagent cleanup sets them aside; {_STRAYS_GO}",
    ),
    "stray": (
        "stray is in it",
        "strays are in it",
        f"logagent cleanup: {_STRAYS_GO}",
    ),
    "marked": (
        "marked directory (-delete) is in it",
        "marked directories (-delete) are in it",
        "a running broker removes them itself; else logagent cleanup does",
    ),
    "metadata": (
        "KRaft metadata log is in it",
        "KRaft metadata logs are in it",
        "logagent check says whose it is",
    ),
    "not-a-partition": (
        "directory is no partition's",
        "directories are no partition's",
        "inspect them manually; logagent will not touch them",
    ),
}


def _kind_of(each: RemainingDir) -> str:
    d, ruling = each.dir, each.ruling
    simple = {Kind.FUTURE: "moving-in", Kind.STRAY: "stray", Kind.DELETE: "marked", Kind.METADATA: "metadata"}
    if d.kind in simple:
        return simple[d.kind]
    if d.kind is not Kind.CURRENT:
        return "not-a-partition"
    if each.stays == MOVING:
        return "moving-out"
    if ruling is None or ruling.verdict is Verdict.UNKNOWN:
        return "unknown"
    return "assigned" if ruling.verdict is Verdict.ASSIGNED else "orphan"


MOVING: Final = "it is being moved to another log dir"


def _of_the_broker(facts: Leaving) -> Iterator[Reason]:
    """That it is empty now is no promise: a running broker may place a new partition there."""
    if facts.stopped or (facts.is_cordoned and facts.stopped is not None):
        return
    if facts.stopped is None:
        yield Reason("whether its broker runs is not known", "ask as the broker's user or as root", "broker-unknown")
        return
    cordon = "cordon it first, or " if cordon_command(facts) is not None else ""
    yield Reason(
        "its broker runs and may place a new partition in it",
        f"{cordon}stop the broker when nothing else is left here, and ask again before the line is changed",
        "broker-runs",
    )


def _placed(facts: Leaving, dirs: Sequence[PartitionDir]) -> Iterator[RemainingDir]:
    """Each of `dirs` with the log dir it can go to, the largest first: small ones fill what is left."""
    moving = {
        TopicPartition(d.topic, d.partition)
        for d in facts.dirs
        if d.kind is Kind.FUTURE and d.log_dir != facts.log_dir and d.topic is not None and d.partition is not None
    }
    elsewhere = {(d.log_dir, d.name) for d in facts.dirs}
    free = {room.device: room.free - int(room.size * KEPT_FREE) for room in facts.rooms}
    placed: Counter[str] = Counter()
    for d in sorted(dirs, key=lambda d: (-d.allocated, d.name)):
        ruling = facts.rulings.get(d.key)
        partition = _partition(facts, d, ruling)
        if not isinstance(partition, PartitionAssignment):
            yield RemainingDir(d, ruling, stays=partition)
            continue
        node_id = facts.node_id
        alone = None if partition.leader is None or node_id is None else partition.only_in_sync(node_id)
        here = RemainingDir(d, ruling, alone, partition.replicas)
        others = [r for r in facts.rooms if (r.log_dir, d.name) not in elsewhere]
        rooms = [r for r in others if free[r.device] >= d.allocated]
        if TopicPartition(d.topic or "", d.partition or 0) in moving:
            yield here._replace(stays=MOVING)
        elif partition.reassigning:
            yield here._replace(stays="its replicas are being reassigned: wait until that is done")
        elif not rooms:
            taken = "has room for it" if others or not facts.rooms else "is without a directory of its name"
            yield here._replace(stays=f"no other log dir {taken}")
        else:
            # Of several log dirs on one file system, the one that got the fewest.
            room = max(rooms, key=lambda r: (free[r.device], -placed[r.log_dir], r.log_dir))
            free[room.device] -= d.allocated
            placed[room.log_dir] += 1
            yield here._replace(to=room.log_dir)


def _partition(facts: Leaving, d: PartitionDir, ruling: Ruling | None) -> PartitionAssignment | str | None:
    """The assignment of a directory that can be moved; why there is none, where that has to be said."""
    if d.kind is not Kind.CURRENT or (ruling is not None and ruling.verdict is Verdict.ORPHAN):
        return None
    if ruling is None or ruling.verdict is not Verdict.ASSIGNED:
        return "its owner is unknown"
    if facts.image is None:
        return f"its replicas are not known: {facts.no_image}"
    topics = facts.image.by_id if d.topic_id is not None else facts.image.by_name
    topic = topics.get(d.topic_id or d.topic or "")
    partition = topic.partitions.get(d.partition) if topic is not None and d.partition is not None else None
    if partition is None or facts.node_id not in partition.replicas:
        return f"{facts.image.origin} has no replica of it on this node"
    return partition
