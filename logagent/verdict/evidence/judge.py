"""The verdicts on directories, from all usable sources of assignments together.

Finds out which broker answers through the Admin API, up to when it knows the cluster, and which topic ids it does
not know.

An answer counts only if the cluster is this host's own (`kafka.identity`). Our own broker decides about
what is on its own disk. While it is down another broker may answer, if it was seen before or continues the metadata log
on this disk (`verdict.brokers`), and the quorum says how far it has caught up.

Asks every source which version of Kafka this is; `base.kafka_version` decides which answer counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from logagent.base.claims import Claim, Held, Witness
from logagent.base.errors import LogAgentError, ServiceUnreachable
from logagent.base.kafka_version import LastRun, VersionsSeen
from logagent.base.records import LIVE_KINDS, HolderState, Kind, PartitionDir, Verdict
from logagent.kafka.admin.responses import IdAnswer
from logagent.kafka.commitment import QuorumRead, quorum_known_until_ms, why_not_our_log
from logagent.kafka.identity import BrokerPlace
from logagent.kafka.image import AssignmentImage, Source, oldest_release
from logagent.kafka.processes.broker_process import version_of_process
from logagent.kafka.processes.discovery import version_installed
from logagent.kafka.processes.target import Target
from logagent.verdict.brokers import StoppedBroker, why_live, why_not_our_quorum
from logagent.verdict.evidence.assignment_sources import (
    Absent,
    Answering,
    Assignments,
    settled_on_disk,
    shows_another_disk,
)
from logagent.verdict.facts import LogDirFacts, Ruling, Rulings
from logagent.verdict.rules import Host, VerdictReason, combine, contradict, decide

# In ZooKeeper mode nothing shows how far a broker has caught up: one that lost its session goes on serving old
# metadata, with an age of 0 (observed). So one known broker, which is enough where the quorum shows its progress, is
# not enough there: two must agree, and only about the replica lists. Another broker never proves there that a topic is
# deleted.
_OLD_GENERATION = (
    "in ZooKeeper mode a broker does not say how current its metadata is, and no second known broker answers"
)
_AGREE = 2


def identify(
    found: Assignments,
    host: Host,
    dirs: Sequence[PartitionDir],
    log_dirs: Mapping[str, LogDirFacts],
    seen: AbstractSet[BrokerPlace],
    now_ms: int,
) -> None:
    """Find out which broker answers, once a round; unless that broker may answer, the Admin API is not a usable source,
    but what it lists may contradict others.

    `dirs`: what is on the disk. `seen`: where brokers listened when this cluster was last confirmed to be ours.
    """
    held = any(f.holder.state is not HolderState.FREE for f in log_dirs.values() if not f.quarantine)
    if held:
        found.stopped_broker = None
    if found.stopped_broker is not None:
        identify_stopped(found, seen, now_ms)
        return
    image, node_id = found.of(Source.ADMIN), host.node_id
    if found.answering is not None or image is None or found.reader is None or node_id is None:
        return
    on_disk = settled_on_disk(dirs, log_dirs, found, now_ms)
    try:
        try:
            why = shows_another_disk(found.reader, node_id, on_disk)
        except ServiceUnreachable:
            known = frozenset(p.node_id for p in found.reader.places() if p in seen)
            problem = _another_broker(found, node_id, known, image, now_ms)
        else:
            if why is None and not held:
                why = "this host's broker is down, so that one runs on another host"
            problem = why and f"node {node_id} of the cluster that answers is not this host's broker: {why}"
            if problem is None and found.lineage_problem is not None:
                problem = f"this host's broker answers from its metadata log: {found.lineage_problem}"
            if problem is None:
                found.answering = Answering(node_id, True, on_disk, places=found.reader.places())
    except LogAgentError as e:
        problem = str(e)
    _sort_out(found, image, problem)


def _sort_out(found: Assignments, image: AssignmentImage, problem: str | None) -> None:
    if problem is not None:
        found.nobody = problem
        found.usable.remove(image)
        found.sort_in(image, problem)


def identify_stopped(found: Assignments, seen: AbstractSet[BrokerPlace], now_ms: int) -> None:
    """The same while our broker is stopped, and the metadata log on its disk shows who is of its cluster.

    What that log says is older than the answer of a broker that is known to be up to date; it may contradict it still
    (`verdict.contradict`), but it does not decide any more."""
    image, ours, reader = found.of(Source.ADMIN), found.stopped_broker, found.reader
    if found.answering is not None or image is None or reader is None or ours is None:
        return
    try:
        live = frozenset(place.node_id for place in reader.places())
        problem = why_live(live, ours, now_ms)
        if problem is None:
            known = frozenset(place.node_id for place in reader.places() if place in seen)
            problem = _another_broker(found, ours.node_id, known, image, now_ms, live=live)
    except LogAgentError as e:
        problem = str(e)
    _sort_out(found, image, problem)
    if found.own_log is not None and _is_up_to_date(found.answering):
        found.usable = [usable for usable in found.usable if usable is not found.own_log]
        found.unusable.append(found.own_log)


def _is_up_to_date(answering: Answering | None) -> bool:
    return answering is not None and answering.known_until_ms is not None


def _another_broker(
    found: Assignments,
    node_id: int,
    known: AbstractSet[int],
    image: AssignmentImage,
    now_ms: int,
    live: AbstractSet[int] = frozenset(),
) -> str | None:
    """Our own broker is down, and another one answers in its place. Returns why none may.

    `known`: those that were seen in our cluster before; `live`: others, of which the quorum has to show that they are
    of our cluster (`found.stopped_broker`)."""
    others = sorted((known | live) - {node_id}, key=lambda other: (other not in known, other))
    asked = _ask_others(others, found, known, image, now_ms, found.stopped_broker if live else None)
    if isinstance(asked, str):
        return asked
    images, problem = asked.images, asked.problem
    what = f"this host's broker (node {node_id}) does not answer, and {problem}"
    if not images:
        return what
    if asked.known_until_ms is None and (problem != _OLD_GENERATION or len(images) == 1):
        found.problems.append(f"admin: {what}")
        found.nobody = problem
        images = [replace(one, uncommitted=_every_partition(one)) for one in images[:1]]
    at = found.usable.index(image)
    found.usable[at : at + 1] = images[:_AGREE]
    found.answering = Answering(asked.last, False, {}, asked.known_until_ms)
    return None


@dataclass(slots=True)
class _Asked:
    """What other brokers answered: `images` up to and with the first of a broker whose quorum knows it to be up to date
    (`known_until_ms`); else `problem` says why the last one is not."""

    images: list[AssignmentImage]
    last: int
    problem: str
    known_until_ms: int | None = None


def _ask_others(
    others: Sequence[int],
    found: Assignments,
    known: AbstractSet[int],
    image: AssignmentImage,
    now_ms: int,
    ours: StoppedBroker | None,
) -> _Asked | str:
    """A broker of another cluster ends it: then nothing that was answered counts, and why is returned."""
    reader = found.reader
    assert reader is not None
    asked = _Asked([], -1, "none of those that do was seen in its cluster while it was running")
    for other in others:
        asked.last = other
        try:
            one = reader.image(now_ms, node_id=other)
            quorum = reader.quorum() if reader.has_quorum(other) else None
        except LogAgentError as e:
            asked.problem = str(e)
            continue
        if one.cluster_id != image.cluster_id:
            return f"node {other} is of cluster {one.cluster_id}"
        if quorum is not None and (why := _not_our_quorum(quorum, found, ours, one.cluster_id)) is not None:
            return f"node {other} is not of this host's cluster: {why}"
        if quorum is None and other not in known:
            asked.problem = f"node {other} does not say how far its metadata log reaches (before Kafka 3.3)"
            continue
        until = quorum_known_until_ms(quorum, other, now_ms) if quorum is not None else _OLD_GENERATION
        if not isinstance(until, str):
            asked.images = [replace(one, known_until_ms=min(one.known_until_ms, until))]
            asked.known_until_ms = until
            return asked
        asked.problem = until
        asked.images.append(one)
    return asked


def _not_our_quorum(
    quorum: QuorumRead, found: Assignments, ours: StoppedBroker | None, cluster_id: str | None
) -> str | None:
    if ours is not None:
        return why_not_our_quorum(quorum, ours)
    return why_not_our_log(quorum.high_watermark, found.own_end(cluster_id), "its quorum")


def _every_partition(image: AssignmentImage) -> frozenset[str | tuple[str, int]]:
    """For a broker that may lag far behind: if it lists no replica for this node, that blocks removal and proves
    nothing."""
    return frozenset((topic_id, number) for topic_id, topic in image.by_id.items() for number in topic.partitions)


def absent_ids(
    dirs: Sequence[PartitionDir],
    found: Assignments,
    host: Host,
    now_ms: int,
    proven: frozenset[str],
    inventory: Sequence[PartitionDir],
) -> Absent:
    """Topic ids of `dirs` that the Admin API does not list and that the answering broker does not know either.

    `proven`: the ids that our own broker did not know at every sighting required of an orphan. `inventory`: all
    directories of this host. Another broker has to know those that live here, and right before an act `dirs` are only
    those that are acted on, of which none lives.
    """
    image = found.of(Source.ADMIN)
    answering, reader = found.answering, found.reader
    if image is None or reader is None or answering is None or host.node_id is None:
        return Absent()
    asked = sorted({d.topic_id for d in dirs if d.topic_id is not None and d.topic_id not in image.by_id})
    proven = proven.intersection(asked)
    if not asked:
        return Absent(asked=True)
    if not answering.own and answering.known_until_ms is None:
        return Absent(proven=proven, asked=True)
    canaries = None if answering.own else _canaries(inventory, image, host.node_id)
    try:
        answers = reader.topic_ids_known(answering.node_id, asked, canaries=canaries)
        # Another broker may have taken the address between the two questions.
        if answering.own and (why := shows_another_disk(reader, answering.node_id, answering.on_disk)) is not None:
            found.problems.append(f"admin: node {answering.node_id} is no longer this host's broker: {why}")
            return Absent(proven=proven, asked=True)
    except LogAgentError as e:
        found.problems.append(f"admin: {e}")
        return Absent(proven=proven, asked=True)
    unknown = frozenset(topic_id for topic_id, answer in answers.items() if answer is IdAnswer.UNKNOWN)
    return Absent(unknown, proven, True, None if answering.own else answering.known_until_ms)


def _canaries(inventory: Iterable[PartitionDir], image: AssignmentImage, node_id: int) -> list[str]:
    """Topic ids of current directories on this host that exist in the cluster with this node among the replicas."""
    living = {
        d.topic_id: None
        for d in inventory
        if d.kind is Kind.CURRENT
        and d.topic_id is not None
        and d.partition is not None
        and (partition := image.partition(d.topic_id, d.partition)) is not None
        and node_id in partition.replicas
    }
    return list(living)


def judge(
    dirs: Iterable[PartitionDir],
    assignments: Assignments,
    host: Host,
    log_dirs: Mapping[str, LogDirFacts],
    now_ms: int,
    *,
    inventory: Sequence[PartitionDir],
    proven_absent: frozenset[str] = frozenset(),
) -> Rulings:
    """The verdict on every current and future directory.

    The first usable source decides. If it says orphan, every other usable one must agree, and none that is not usable
    may contradict with something younger. The Admin API cannot prove absence by leaving a topic out, so a broker is
    asked by topic id (`absent_ids`). `inventory`: all directories of this host, of which `dirs` may be a few.
    """
    chosen = [d for d in dirs if d.kind in LIVE_KINDS]
    absent = absent_ids(chosen, assignments, host, now_ms, proven_absent, inventory)
    rulings = Rulings()
    # Most directories share a few rulings: 100,000 of them need one object per distinct ruling.
    shared: dict[Ruling, Ruling] = {}
    for d in chosen:
        where = log_dirs.get(d.log_dir)
        ruling = rule(d, assignments, host, absent, now_ms, where.directory_id if where is not None else None)
        if ruling is not None:
            rulings.add(d.log_dir, d.name, shared.setdefault(ruling, ruling))
    return rulings


def rule(
    d: PartitionDir,
    assignments: Assignments,
    host: Host,
    absent: Absent,
    now_ms: int,
    directory_id: str | None,
    *,
    internal: bool = False,
) -> Ruling | None:
    """The verdict of all usable sources together on one directory."""
    images: Sequence[AssignmentImage | None] = assignments.usable or assignments.unusable[:1] or [None]
    ids = absent.of(d)
    answers = [
        (image, decide(d, image, host, now_ms=now_ms, directory_id=directory_id, absent_by_id=ids, internal=internal))
        for image in images
    ]
    # What a log of an untested level cannot say is left to those who can; it may contradict them.
    left = [answer for answer in answers if _cannot_say(*answer)]
    aside = [image for image, _ in left if image is not None]
    answers = [answer for answer in answers if not _cannot_say(*answer)] or answers[:1]
    ruling = answers[0][1]
    if ruling is not None and ruling.verdict is Verdict.ORPHAN:
        for _, other in answers[1:]:
            ruling = combine(ruling, other)
        proof = [image for image, _ in answers if image is not None]
        ruling = contradict(d, ruling, host, proof=proof, doubted=[*assignments.doubted, *aside], now_ms=now_ms)
        if ruling.verdict is Verdict.ORPHAN:
            agreed = Held(Claim.NOT_CONTRADICTED, Witness.EVERY_SOURCE, now_ms)
            ruling = replace(ruling, proof=(*ruling.proof, *assignments.grounds, agreed))
    if ruling is not None and ruling.verdict is not Verdict.UNKNOWN and not assignments.usable:
        # What is wrong with such a source need not be anything that `decide` looks at: a file that is of a clone.
        why = "; ".join(assignments.problems) or "no source of assignments is usable"
        return Ruling(Verdict.UNKNOWN, VerdictReason.NO_ASSIGNMENTS, why)
    return ruling


def _cannot_say(image: AssignmentImage | None, answer: Ruling | None) -> bool:
    untested = image is not None and image.untested_because is not None
    return untested and answer is not None and answer.reason == VerdictReason.NO_ASSIGNMENTS


def gather_versions(
    target: Target,
    broker_pids: Iterable[int],
    assignments: Assignments | None,
    cluster_id: str | None,
    last_run: LastRun,
) -> VersionsSeen:
    """broker_pids: the processes that hold the log dirs, or (before they do) that run with this configuration."""
    # Also from assignments too old for verdicts: only an operator's downgrade lowers a metadata.version, and if nothing
    # fresh is known only what an operator names is set aside (and `check` says "at least").
    image = assignments.shown if assignments is not None else None
    if image is not None and image.cluster_id != cluster_id:
        image = None
    running = ((version_of_process(pid), pid) for pid in dict.fromkeys(broker_pids))
    version, pid = min(((v, pid) for v, pid in running if v is not None), default=(None, None))
    return VersionsSeen(
        running=version,
        pid=pid,
        last_run=last_run,
        configured=target.kafka_version,
        # Only before the next start, which it is about: it reads the start scripts of units.
        installed=version_installed(target.config) if version is None else None,
        metadata=oldest_release(image.metadata_version or 0) if image is not None else None,
    )
