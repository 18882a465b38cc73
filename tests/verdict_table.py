"""The truth table of the verdict, as data: `decide` on the host and the fleet's Spark expression both have to give it.

Each line is one directory, one image and the outcome; the lines are in the order of the table in `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logagent.base.records import ZERO_ID, Kind, id_to_text
from logagent.kafka.image import (
    NEWEST_METADATA_VERSION,
    AssignmentImage,
    BrokerRegistration,
    PartitionAssignment,
    Source,
    Topic,
    make_image,
)
from tests.metadata_writer import id_of

NOW = 1_741_609_200_000
"""The time of the decision and of the report: 20 minutes after the hosts were read."""
MINUTE, HOUR = 60_000, 3_600_000
READ = NOW - 20 * MINUTE
IMAGE_AT = NOW - 10 * MINUTE
MAX_AGE = 26 * HOUR
OLD = NOW - 9 * 24 * HOUR

CLUSTER = "ours"
HERE, ELSEWHERE = id_of(901), id_of(902)
LIVES, MOVED, MOVING, GONE, NEW, OFFSETS = (id_of(n) for n in range(6))
TOPICS = (
    ("lives", LIVES, PartitionAssignment((1, 2), (1, 2), directories=(HERE, ELSEWHERE))),
    ("moved", MOVED, PartitionAssignment((2, 3), (2, 3))),
    ("moving", MOVING, PartitionAssignment((2, 3), (2,), adding=(3,))),
    ("again", NEW, PartitionAssignment((1,))),
    ("__consumer_offsets", OFFSETS, PartitionAssignment((2,))),
    ("old", None, PartitionAssignment((1,))),
)
DRAINED = 9
"""A node without a replica."""


def image(cluster_id: str = CLUSTER, **changes: Any) -> AssignmentImage:
    """A complete image, ten minutes old, of `TOPICS`; `changes`: of its fields, or its `topics`."""
    topics = changes.pop("topics", None)
    if topics is None:
        topics = [Topic(name, id_, {0: partition}) for name, id_, partition in TOPICS]
    usual: dict[str, Any] = {"source": Source.KRAFT_LOG, "cluster_id": cluster_id, "at_ms": IMAGE_AT, "complete": True}
    usual["metadata_version"] = NEWEST_METADATA_VERSION
    usual["known_until_ms"] = changes.get("at_ms", IMAGE_AT)
    return make_image(topics, AssignmentImage(**(usual | changes)))


@dataclass(frozen=True)
class Line:
    """`image`: None, or what is different from the usual one. `agent`: what the agent on that host says itself, which
    only the fleet reads. `proven`: the broker answered that the topic id is unknown; the agent says so by its verdict.
    `unusable`: the fleet has no verdict on this cluster at all."""

    name: str
    topic: str
    topic_id: str | None
    outcome: tuple[str, str | None]
    image: dict[str, Any] | None = field(default_factory=dict)
    node_id: int = 1
    kind: Kind = Kind.CURRENT
    partition: int = 0
    directory_id: str | None = HERE
    written_ms: int = OLD
    proven: bool = False
    agent: tuple[str, str | None] | None = None
    unusable: bool = False


ASSIGNED = ("assigned", None)
ABSENT, RECREATED, MOVED_AWAY, COPY = (
    ("orphan", reason) for reason in ("topic-absent", "topic-recreated", "not-a-replica", "copy-of")
)
NO_ID, NO_ASSIGNMENTS, INTERNAL, UNCOMMITTED, STALE, DISAGREE, WRONG, REASSIGNING = (
    ("unknown", reason)
    for reason in (
        "no-topic-id",
        "no-assignments",
        "internal",
        "uncommitted",
        "stale-assignments",
        "sources-disagree",
        "wrong-directory",
        "reassigning",
    )
)
ADMIN: dict[str, Any] = {"source": Source.ADMIN, "complete": False}
REGISTERED: dict[str, Any] = {"brokers": {DRAINED: BrokerRegistration(DRAINED)}}
NEWER: dict[str, Any] = {"metadata_version": NEWEST_METADATA_VERSION + 1}
REMOVAL: dict[str, Any] = {"uncommitted": frozenset({GONE, (MOVED, 0), OFFSETS})}
FOREIGN = ("unknown", "foreign-cluster")
# A directory that the agent finds elsewhere than assigned: only such ones are compared by the fleet.
PLACED: dict[str, Any] = {"agent": WRONG}


def _placed(*directories: str) -> dict[str, Any]:
    return {"topics": [Topic("lives", LIVES, {0: PartitionAssignment((1, 2), directories=directories)})]}


TABLE = (
    Line("no image", "gone", GONE, NO_ASSIGNMENTS, None, unusable=True),
    Line("an image without topics", "gone", GONE, NO_ASSIGNMENTS, {"topics": [], **REGISTERED}, unusable=True),
    Line("an image of another cluster", "gone", GONE, FOREIGN, {"cluster_id": "theirs"}, unusable=True),
    Line("an old image", "gone", GONE, STALE, {"at_ms": NOW - MAX_AGE - 1}, unusable=True),
    Line("an image from the future", "gone", GONE, STALE, {"at_ms": NOW + 3 * HOUR}, unusable=True),
    Line("the image does not know this node", "lives", LIVES, NO_ASSIGNMENTS, node_id=DRAINED),
    Line("the image does not know this node, gone", "gone", GONE, NO_ASSIGNMENTS, node_id=DRAINED),
    Line("drained, of a living topic", "lives", LIVES, MOVED_AWAY, REGISTERED, node_id=DRAINED),
    Line("drained, deleted", "gone", GONE, ABSENT, REGISTERED, node_id=DRAINED),
    Line("drained, recreated", "again", GONE, RECREATED, REGISTERED, node_id=DRAINED),
    Line("drained, being reassigned", "moving", MOVING, REASSIGNING, REGISTERED, node_id=DRAINED),
    Line("drained, in a list of the Admin API", "lives", LIVES, NO_ASSIGNMENTS, ADMIN | REGISTERED, node_id=DRAINED),
    Line("the metadata log", "__cluster_metadata", GONE, INTERNAL),
    Line("the metadata log without an id", "__cluster_metadata", None, INTERNAL),
    Line("the metadata log, future", "__cluster_metadata", GONE, INTERNAL, kind=Kind.FUTURE),
    Line("no topic id", "lives", None, NO_ID),
    Line("the zero id", "lives", ZERO_ID, NO_ID),
    Line("no topic id, deleted", "gone", None, NO_ID),
    Line("the id of another topic", "lives", MOVED, DISAGREE),
    Line("a copy", "lives-backup", LIVES, COPY),
    Line("a copy of what is elsewhere", "backup", MOVED, COPY),
    Line("a copy of what is being reassigned", "backup", MOVING, COPY),
    Line("a copy with the name of a topic without an id", "old", LIVES, DISAGREE),
    Line("a copy, of a partition that the topic does not have", "backup", LIVES, DISAGREE, partition=7),
    Line("a copy, Admin API", "backup", LIVES, NO_ASSIGNMENTS, ADMIN),
    Line("a copy on a node unknown", "backup", LIVES, NO_ASSIGNMENTS, node_id=DRAINED),
    Line("a copy, future", "backup", LIVES, DISAGREE, kind=Kind.FUTURE),
    Line("a copy, the topic's deletion uncommitted", "backup", MOVED, UNCOMMITTED, REMOVAL),
    Line("a copy, younger", "backup", LIVES, STALE, {"known_until_ms": OLD - 1}),
    Line("a copy, untested metadata", "backup", LIVES, NO_ASSIGNMENTS, NEWER),
    Line("a copy with an internal name", "__transaction_state", LIVES, INTERNAL),
    Line("a partition that a living topic does not have", "lives", LIVES, NO_ASSIGNMENTS, partition=7),
    Line("assigned", "lives", LIVES, ASSIGNED),
    Line("assigned, not as the first replica", "lives", LIVES, ASSIGNED, node_id=2, directory_id=ELSEWHERE),
    Line("assigned, future", "lives", LIVES, ASSIGNED, kind=Kind.FUTURE),
    Line("assigned, internal", "__consumer_offsets", OFFSETS, ASSIGNED, node_id=2),
    Line("in its directory", "lives", LIVES, ASSIGNED, _placed(HERE, ELSEWHERE), **PLACED),
    Line("in another directory", "lives", LIVES, WRONG, _placed(ELSEWHERE, HERE), **PLACED),
    Line("in another one, future", "lives", LIVES, ASSIGNED, _placed(ELSEWHERE, HERE), kind=Kind.FUTURE, **PLACED),
    Line("of no known id", "lives", LIVES, ASSIGNED, _placed(ELSEWHERE, HERE), directory_id=None, **PLACED),
    Line("directories unknown", "lives", LIVES, ASSIGNED, _placed(), **PLACED),
    Line("directories not parallel", "lives", LIVES, ASSIGNED, _placed(ELSEWHERE), **PLACED),
    Line("unassigned directory", "lives", LIVES, ASSIGNED, _placed(ZERO_ID, HERE), **PLACED),
    Line("migrating", "lives", LIVES, ASSIGNED, _placed(id_to_text((2).to_bytes(16, "big")), HERE), **PLACED),
    Line("being reassigned", "moving", MOVING, REASSIGNING),
    Line("not a replica", "moved", MOVED, MOVED_AWAY),
    Line("not a replica, future", "moved", MOVED, MOVED_AWAY, kind=Kind.FUTURE),
    Line("not a replica, Admin API", "moved", MOVED, MOVED_AWAY, ADMIN),
    Line("recreated", "again", GONE, RECREATED),
    Line("its name lives without an id", "old", GONE, NO_ID),
    Line("its name lives without an id, Admin API", "old", GONE, NO_ID, ADMIN),
    Line("deleted", "gone", GONE, ABSENT),
    Line("deleted, future", "gone", GONE, ABSENT, kind=Kind.FUTURE),
    Line("deleted, Admin API", "gone", GONE, NO_ASSIGNMENTS, ADMIN),
    Line("recreated, Admin API", "again", GONE, NO_ASSIGNMENTS, ADMIN),
    Line("deleted, Admin API, asked by id", "gone", GONE, ABSENT, ADMIN, proven=True),
    Line("recreated, Admin API, asked by id", "again", GONE, RECREATED, ADMIN, proven=True),
    Line("internal, deleted", "__consumer_offsets", GONE, INTERNAL),
    Line("internal, not a replica", "__consumer_offsets", OFFSETS, INTERNAL),
    Line("internal, uncommitted", "__consumer_offsets", OFFSETS, INTERNAL, REMOVAL),
    Line("untested metadata, deleted", "gone", GONE, ABSENT, NEWER),
    Line("untested metadata, recreated", "again", GONE, RECREATED, NEWER),
    Line("untested metadata, not a replica", "moved", MOVED, NO_ASSIGNMENTS, NEWER),
    Line("untested metadata, uncommitted", "gone", GONE, UNCOMMITTED, NEWER | REMOVAL),
    Line("untested metadata, younger", "gone", GONE, STALE, NEWER | {"known_until_ms": OLD - 1}),
    Line(
        "untested metadata, in another directory",
        "lives",
        LIVES,
        NO_ASSIGNMENTS,
        NEWER | _placed(ELSEWHERE, HERE),
        **PLACED,
    ),
    Line("untested metadata, assigned", "lives", LIVES, ASSIGNED, NEWER),
    Line("the newest metadata", "gone", GONE, ABSENT, {"metadata_version": NEWEST_METADATA_VERSION}),
    Line("an open transaction", "gone", GONE, NO_ASSIGNMENTS, {"open_transaction": True}, unusable=True),
    Line("uncommitted, deleted", "gone", GONE, UNCOMMITTED, REMOVAL),
    Line("uncommitted, recreated", "again", GONE, UNCOMMITTED, REMOVAL),
    Line("uncommitted, not a replica", "moved", MOVED, UNCOMMITTED, REMOVAL),
    Line("uncommitted, another partition", "moved", MOVED, MOVED_AWAY, {"uncommitted": frozenset({(MOVED, 1)})}),
    Line("uncommitted, another topic", "gone", GONE, ABSENT, {"uncommitted": frozenset({NEW})}),
    Line("uncommitted, asked by id", "gone", GONE, ABSENT, REMOVAL, proven=True),
    Line("uncommitted, not a replica, asked by id", "moved", MOVED, UNCOMMITTED, REMOVAL, proven=True),
    Line("uncommitted and younger", "gone", GONE, UNCOMMITTED, REMOVAL | {"known_until_ms": OLD - 1}),
    Line("younger", "gone", GONE, STALE, {"known_until_ms": OLD - 1}),
    Line("younger, not a replica", "moved", MOVED, STALE, {"known_until_ms": OLD - 1}),
    Line("younger, asked by id", "gone", GONE, STALE, ADMIN | {"known_until_ms": OLD - 1}, proven=True),
    Line("just old enough", "gone", GONE, ABSENT, {"known_until_ms": OLD}),
)

DAY = 24 * HOUR
STRAYS_DUE = tuple((age, age >= 7 * DAY) for age in (0, 1000, 7 * DAY - 1000, 7 * DAY, 8 * DAY))
"""How long ago a stray was set aside, and whether it is due by default: as the host's planner has it, and the fleet."""
