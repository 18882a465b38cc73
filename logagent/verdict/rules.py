"""Whether a directory is assigned to this broker, an orphan, or unknown. Decides without I/O.

`decide` goes by the first line that applies (so does the fleet's job: `tests/verdict_table.py` is run against both):

======================================================================  ==========================
the image ...                                                           verdict, reason
======================================================================  ==========================
is missing, has no topics, or does not know this node (**)              unknown, no-assignments
is of another cluster, or either cluster id or our node id is unknown   unknown, foreign-cluster
is older than `max_age_ms`, or from the future                          unknown, stale-assignments
----------------------------------------------------------------------  --------------------------
the directory ...                                                       verdict, reason
----------------------------------------------------------------------  --------------------------
is of `__cluster_metadata`                                              unknown, internal
has no topic id (before 2.8, or no `partition.metadata`)                unknown, no-topic-id
has an id that lives under another topic name
... which has this partition; current, and its own name does not live   orphan, copy-of (*) (-)
... else                                                                unknown, sources-disagree
has an id that lives, but the topic has no such partition               unknown, no-assignments
is of a living replica of this node, `-future`                          assigned
... current, its assigned directory is this one, reserved or not known  assigned
... current, its assigned directory is another one                      unknown, wrong-directory (***)
is of a living partition without this node, being reassigned            unknown, reassigning
is of a living partition without this node                              orphan, not-a-replica (*)
has an id that does not live, its name lives under another id           orphan, topic-recreated (*) (+)
... its name lives without an id (cluster before 2.8)                   unknown, no-topic-id
... its name does not live                                              orphan, topic-absent (*) (+)
======================================================================  ==========================

(**) Neither as a replica nor, if the image is complete, as a registered broker, so that directories on a drained
broker are decided.

(***) no-assignments, if the image has a `metadata.version` that was not tested (`levels`), or had one since its
snapshot, or is of a metadata log that does not say which.

(+) needs proof of absence: a complete image, or the id in `absent_by_id`; otherwise unknown, no-assignments.
(-) needs a complete image, as only that shows that a name does not live; otherwise unknown, no-assignments.
(*) and (+) then become unknown if one of these is true, in this order:

- the topic is internal: internal
- the image ends within a transaction, or (only what has (*) without (+)) may have a `metadata.version` that was not
  tested (***): no-assignments
- the removal is on disk but not known to be committed, and the id is not in `absent_by_id`: uncommitted
- the directory is younger than what the image can know (both its times are later): stale-assignments

A directory id never proves an orphan: brokers correct the metadata to where the log is, and living replicas may
have reserved ids. "Living replica" means in `replicas`, which contains old and new ones during a reassignment.
Mirrors `LogManager.isStrayReplica` (once `isStrayKraftReplica`; Kafka 3.7 to 4.4), with two deviations to the safe
side: no topic id and a missing partition of a living topic are strays to Kafka, unknown to us. And one on purpose:
Kafka asks only for the id, so it loads a copy that somebody made under another name (`cp -a orders-0 orders-backup-0`)
and never writes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from logagent.base.claims import Claim, Held, Proof, Witness
from logagent.base.dir_names import INTERNAL_TOPICS, METADATA_TOPIC
from logagent.base.records import LIVE_KINDS, ZERO_ID, Kind, PartitionDir, Verdict
from logagent.base.units import human_time, rough
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic
from logagent.verdict.facts import Ruling


class VerdictReason(StrEnum):
    """Those of `ORPHAN_REASONS` are reasons for `orphan`, all others for `unknown`."""

    TOPIC_ABSENT = "topic-absent"
    TOPIC_RECREATED = "topic-recreated"
    NOT_A_REPLICA = "not-a-replica"
    COPY_OF = "copy-of"
    WRONG_DIRECTORY = "wrong-directory"
    NO_TOPIC_ID = "no-topic-id"
    NO_ASSIGNMENTS = "no-assignments"
    STALE_ASSIGNMENTS = "stale-assignments"
    FOREIGN_CLUSTER = "foreign-cluster"
    REASSIGNING = "reassigning"
    INTERNAL = "internal"
    UNCOMMITTED = "uncommitted"
    SOURCES_DISAGREE = "sources-disagree"


ORPHAN_REASONS: Final[Mapping[VerdictReason, str]] = {
    VerdictReason.TOPIC_ABSENT: "its topic id is not in the cluster",
    VerdictReason.TOPIC_RECREATED: "a topic of this name has another id",
    VerdictReason.NOT_A_REPLICA: "this broker holds none of the partition's replicas",
    VerdictReason.COPY_OF: "made by hand from a living partition, under another name",
}
"""What each says of a directory, on a host and across the fleet."""

GONE_FOR_GOOD: Final = frozenset({VerdictReason.TOPIC_ABSENT, VerdictReason.TOPIC_RECREATED})
"""Those that stay true once proven, because topic ids are never reused. (A reassignment can end `not-a-replica`.)"""


CLOCK_TOLERANCE_MS = 60_000
"""How far in the future an image's time may be (the controller has another clock) before the image is refused."""


@dataclass(frozen=True, slots=True)
class Host:
    """This broker, from its `meta.properties`, and how old assignments may be (`assignments.max_age`)."""

    node_id: int | None
    cluster_id: str | None
    max_age_ms: int


def decide(
    directory: PartitionDir,
    image: AssignmentImage | None,
    host: Host,
    *,
    now_ms: int,
    directory_id: str | None = None,
    absent_by_id: AbstractSet[str] | None = None,
    internal: bool = False,
) -> Ruling | None:
    """The verdict on one directory; None for kinds other than current and future.

    `directory_id` is the `directory.id` of its log dir, None if there is none. `absent_by_id` are the topic ids for
    which the broker itself answered `UNKNOWN_TOPIC_ID`; it matters for images that are not complete (Admin API) and for
    removals that are uncommitted on disk; None = the broker was not asked. `internal`: decide on internal topics like
    on any other (guard "policy" refuses them). Pure and total: it never raises or guesses.

    The first line of the table above that applies decides. The ruling has the image as its witness.
    """
    ruling = _decide(directory, image, host, now_ms, directory_id, absent_by_id, internal=internal)
    if ruling is None or image is None:
        return ruling
    return replace(ruling, proof=_proof(ruling, directory.topic_id, image, absent_by_id))


def _proof(
    ruling: Ruling, topic_id: str | None, image: AssignmentImage, absent_by_id: AbstractSet[str] | None
) -> Proof:
    """What `ruling` claims, as of when: a removal, as of when the image is complete; what can change, as of its
    time."""
    witness = Witness(image.source)
    if ruling.verdict is Verdict.ORPHAN and ruling.reason is not None:
        claim = Claim(ruling.reason)
        if claim not in (Claim.TOPIC_ABSENT, Claim.TOPIC_RECREATED):
            return (Held(claim, witness, image.at_ms),)
        if absent_by_id is not None and topic_id in absent_by_id:
            witness = Witness.ADMIN
        elif image.never_showed(topic_id):
            witness = Witness.NEVER_SHOWN
        return (Held(claim, witness, image.known_until_ms),)
    if ruling.verdict is Verdict.ASSIGNED or ruling.reason == VerdictReason.WRONG_DIRECTORY:
        lives = Held(Claim.LIVES_HERE, witness, image.at_ms)
        return (lives, Held(Claim.OTHERS_IN_SYNC, witness, image.at_ms)) if ruling.last_copy is False else (lives,)
    return ()


def _decide(
    directory: PartitionDir,
    image: AssignmentImage | None,
    host: Host,
    now_ms: int,
    directory_id: str | None,
    absent_by_id: AbstractSet[str] | None,
    *,
    internal: bool,
) -> Ruling | None:
    if directory.kind not in LIVE_KINDS:
        return None
    unusable = _image_problem(image, host, now_ms)
    if unusable is not None:
        return unusable
    assert image is not None and host.node_id is not None
    if directory.topic is None or directory.partition is None or directory.topic == METADATA_TOPIC:
        return _unknown(VerdictReason.INTERNAL, "this is Kafka's own metadata log")
    topic_id = directory.topic_id
    if topic_id is None or topic_id == ZERO_ID:
        return _unknown(VerdictReason.NO_TOPIC_ID, directory.error or "it has no topic id (partition.metadata)")
    topic = image.by_id.get(topic_id)
    if topic is not None:
        ruling = _of_living_topic(directory, topic, image, host.node_id, directory_id)
    else:
        ruling = _of_gone_topic(directory, topic_id, image, absent_by_id)
    if ruling.verdict is not Verdict.ORPHAN:
        return ruling
    if directory.topic in INTERNAL_TOPICS and not internal:
        return _unknown(VerdictReason.INTERNAL, f"{directory.topic} is an internal topic; else {_in_words(ruling)}")
    # A broker applies only committed records: if it says that the topic is gone, its removal is committed.
    settled = absent_by_id is not None and topic is None and topic_id in absent_by_id
    return _held_back(directory, image, ruling, settled)


def combine(primary: Ruling, secondary: Ruling | None) -> Ruling:
    """The verdict from two sources; `secondary` is None if there is no second usable source.

    The first source decides. An orphan is confirmed only if the second says the same for the same reason; otherwise it
    becomes unknown, sources-disagree, with both answers in words. Unknown stays unknown. Assigned becomes unknown only
    if the second source says orphan. That something is a copy, the first one shows by what it has, so a second one that
    does not know takes nothing from it.
    """
    if secondary is None or primary.verdict is Verdict.UNKNOWN:
        return primary
    if primary.reason == VerdictReason.COPY_OF and secondary.reason == VerdictReason.NO_ASSIGNMENTS:
        return primary
    if (primary.verdict, primary.reason) == (secondary.verdict, secondary.reason):
        return primary
    if primary.verdict is Verdict.ASSIGNED and secondary.verdict is not Verdict.ORPHAN:
        return primary
    return _unknown(
        VerdictReason.SOURCES_DISAGREE, f"one source says {_in_words(primary)}, the other {_in_words(secondary)}"
    )


def contradict(
    directory: PartitionDir,
    ruling: Ruling,
    host: Host,
    *,
    proof: Sequence[AssignmentImage],
    doubted: Iterable[AssignmentImage],
    now_ms: int,
) -> Ruling:
    """The verdict, after what sources say that decide nothing: an orphan becomes unknown, sources-disagree, if one of
    them has its topic id (of `not-a-replica`: this node among the replicas; of `copy-of`: its name), as of when the
    proof ends or later.

    `proof`: the images that called it an orphan. `doubted`: images that were read, but are not known to be right, such
    as that of a broker that was never seen before: they prove nothing, whatever they lack. Facts older than the newest
    proof contradict nothing, else a file of last week would hold back a topic deleted since for ever.
    """
    if ruling.verdict is not Verdict.ORPHAN or directory.topic_id is None or directory.partition is None:
        return ruling
    proven_until = min(now_ms, max((min(image.at_ms, image.known_until_ms) for image in proof), default=0))
    for image in doubted:
        if image.at_ms < proven_until:
            continue
        if ruling.reason == VerdictReason.COPY_OF:
            says = f"a topic {directory.topic} exists" if directory.topic in image.by_name else None
        elif ruling.reason != VerdictReason.NOT_A_REPLICA:
            says = "the topic id exists" if directory.topic_id in image.by_id else None
        else:
            partition = image.partition(directory.topic_id, directory.partition)
            here = partition is not None and host.node_id in partition.replicas
            says = f"this node ({host.node_id}) is among the replicas" if here else None
        if says is not None:
            proven = human_time(proven_until)
            return _unknown(
                VerdictReason.SOURCES_DISAGREE,
                f"{_in_words(ruling)} as of {proven}; but {says} as of {human_time(image.at_ms)}, says a source that"
                f" alone decides nothing here ({image.source}: {image.origin})",
            )
    return ruling


def too_old(age_ms: int, host: Host) -> str:
    return f"{rough(age_ms)} old, more than assignments.max_age ({rough(host.max_age_ms)})"


def _image_problem(image: AssignmentImage | None, host: Host, now_ms: int) -> Ruling | None:
    if image is None:
        return _unknown(VerdictReason.NO_ASSIGNMENTS, "no assignments were read")
    if not image.by_name:
        return _unknown(VerdictReason.NO_ASSIGNMENTS, f"{_origin(image)} has no topics")
    if host.node_id is None or host.cluster_id is None:
        what = "cluster id of this log dir is" if host.node_id is not None else "ids of this host's log dirs are"
        return _unknown(VerdictReason.FOREIGN_CLUSTER, f"the {what} unknown")
    if image.cluster_id != host.cluster_id:
        return _unknown(
            VerdictReason.FOREIGN_CLUSTER, f"{_origin(image)} is of cluster {image.cluster_id}, not {host.cluster_id}"
        )
    age_ms = image.age_ms(now_ms)
    if age_ms > host.max_age_ms or age_ms < -CLOCK_TOLERANCE_MS:
        what = too_old(age_ms, host)
        if age_ms < 0:
            what = f"from {-age_ms / 1000:.0f} s in the future"
        return _unknown(VerdictReason.STALE_ASSIGNMENTS, f"{_origin(image)} is {what}")
    # A drained broker has no replicas, but a complete image still lists it.
    if host.node_id not in image.nodes and not (image.complete and host.node_id in image.brokers):
        return _unknown(VerdictReason.NO_ASSIGNMENTS, f"{_origin(image)} does not know node {host.node_id}")
    return None


def _of_living_topic(
    directory: PartitionDir, topic: Topic, image: AssignmentImage, node_id: int, directory_id: str | None
) -> Ruling:
    if topic.name != directory.topic:
        return _of_another_name(directory, topic, image)
    assert directory.partition is not None
    partition = topic.partitions.get(directory.partition)
    if partition is None:
        return _unknown(VerdictReason.NO_ASSIGNMENTS, f"the topic exists, but has no partition {directory.partition}")
    if node_id in partition.replicas:
        return _of_living_replica(directory, partition, image, node_id, directory_id)
    replicas = ", ".join(map(str, partition.replicas))
    if partition.reassigning:
        return _unknown(VerdictReason.REASSIGNING, f"it is being reassigned; its replicas are {replicas}")
    return Ruling(Verdict.ORPHAN, VerdictReason.NOT_A_REPLICA, f"its replicas are {replicas}; this node is {node_id}")


def _of_another_name(directory: PartitionDir, topic: Topic, image: AssignmentImage) -> Ruling:
    """Topics are never renamed, so somebody copied the directory. Unless its name lives, too: then the file that names
    the id may be all that was copied."""
    whose = f"its topic id {topic.topic_id} is that of topic {topic.name}"
    moving = directory.kind is Kind.FUTURE
    if moving or directory.topic in image.by_name or directory.partition not in topic.partitions:
        return _unknown(VerdictReason.SOURCES_DISAGREE, whose)
    if not image.complete:
        return _unknown(
            VerdictReason.NO_ASSIGNMENTS,
            f"{whose}; {_origin(image)} does not list a topic {directory.topic}, which proves nothing",
        )
    by_name = "by its name " if len(topic.partitions) > 1 else ""  # no file of it says of which partition
    return Ruling(
        Verdict.ORPHAN, VerdictReason.COPY_OF, f"{by_name}a copy of {topic.name}-{directory.partition}: {whose}"
    )


def _of_living_replica(
    directory: PartitionDir,
    partition: PartitionAssignment,
    image: AssignmentImage,
    node_id: int,
    directory_id: str | None,
) -> Ruling:
    last_copy = _is_last_copy(partition, image, node_id)
    assigned_directory = partition.directory_of(node_id)
    elsewhere = None not in (assigned_directory, directory_id) and assigned_directory != directory_id
    if elsewhere and directory.kind is Kind.CURRENT:
        if (untested := image.untested_because) is not None:
            there = f"{untested}; else in directory {assigned_directory}"
            return _unknown(VerdictReason.NO_ASSIGNMENTS, f"{_origin(image)}: {there}")
        return Ruling(
            Verdict.UNKNOWN,
            VerdictReason.WRONG_DIRECTORY,
            f"the cluster has this replica in directory {assigned_directory}; this is {directory_id}",
            last_copy,
        )
    return Ruling(Verdict.ASSIGNED, None, None, last_copy)


def _is_last_copy(partition: PartitionAssignment, image: AssignmentImage, node_id: int) -> bool | None:
    """True if no other member of the ISR is known to be live, or the partition waits for this node to lead it; None if
    the source has no ISR, or one that may mean something else than we know (`levels`)."""
    alone = None if image.untested_because is not None else partition.only_in_sync(node_id)
    if alone is not False or not image.brokers:
        return alone
    known = (image.brokers.get(node) for node in partition.isr if node != node_id)
    return not any(broker is not None and broker.fenced is False for broker in known)


def _of_gone_topic(
    directory: PartitionDir, topic_id: str, image: AssignmentImage, absent_by_id: AbstractSet[str] | None
) -> Ruling:
    assert directory.topic is not None
    namesake = image.by_name.get(directory.topic)
    if namesake is not None and namesake.topic_id is None:
        return _unknown(VerdictReason.NO_TOPIC_ID, f"{_origin(image)} has no topic ids")
    if not image.complete and (absent_by_id is None or topic_id not in absent_by_id):
        return _unknown(
            VerdictReason.NO_ASSIGNMENTS, f"{_origin(image)} does not list topic id {topic_id}, which proves nothing"
        )
    if namesake is not None:
        return Ruling(
            Verdict.ORPHAN, VerdictReason.TOPIC_RECREATED, f"the topic of this name now has the id {namesake.topic_id}"
        )
    never = ", and none here ever had it" if image.never_showed(topic_id) else ""
    return Ruling(Verdict.ORPHAN, VerdictReason.TOPIC_ABSENT, f"no topic has the id {topic_id}{never}")


def _held_back(directory: PartitionDir, image: AssignmentImage, orphan: Ruling, settled: bool) -> Ruling:
    """Applies the second list in `decide` to an orphan. (`cp -a` copies an mtime older than the copy: of `copy-of` that
    age is the original's, but the broker makes no directory with a foreign id, so no topic can be younger than it.)"""
    assert directory.topic_id is not None and directory.partition is not None
    doubt = image.incomplete_because
    if orphan.reason not in GONE_FOR_GOOD:
        doubt = doubt or image.untested_because
    if doubt is not None:
        return _unknown(VerdictReason.NO_ASSIGNMENTS, f"{_origin(image)}: {doubt}; else {_in_words(orphan)}")
    if not settled and not image.uncommitted.isdisjoint(
        (directory.topic_id, (directory.topic_id, directory.partition))
    ):
        return _unknown(
            VerdictReason.UNCOMMITTED, f"the removal is not known to be committed; else {_in_words(orphan)}"
        )
    # The directory was created no later than the older of the two times: a rename renews ctime, a new file mtime.
    newest_possible_ms = min(directory.ctime_ns, directory.mtime_ns) // 1_000_000
    if newest_possible_ms > image.known_until_ms:
        return _unknown(
            VerdictReason.STALE_ASSIGNMENTS, f"{_too_young(newest_possible_ms, image)}; else {_in_words(orphan)}"
        )
    return orphan


def _too_young(newest_possible_ms: int, image: AssignmentImage) -> str:
    """In words: `image` may lack the topic of a directory created at that time."""
    if image.known_until_ms <= 0:
        return f"nothing in {_origin(image)} is known to be committed, so the directory may be younger"
    late = (newest_possible_ms - image.known_until_ms) / 1000
    until = f"which is known to be complete until {human_time(image.known_until_ms)}"
    tells = "" if image.source is Source.ADMIN else " (newer ones tell: a running broker, an export of another host)"
    return f"the directory may be {late:.0f} s younger than {_origin(image)}, {until}{tells}"


def _unknown(reason: VerdictReason, detail: str) -> Ruling:
    return Ruling(Verdict.UNKNOWN, reason, detail)


def _in_words(ruling: Ruling) -> str:
    words = ruling.verdict if ruling.reason is None else f"{ruling.verdict} ({ruling.reason})"
    return f"{words}: {ruling.detail}" if ruling.detail else words


def _origin(image: AssignmentImage) -> str:
    return f"the assignment image ({image.source})"
