"""The log dirs that the cluster has for a node."""

from __future__ import annotations

from collections.abc import Sequence

from logagent.kafka.identity import directory_ids
from logagent.kafka.image import (
    RESERVED_DIRECTORY_IDS,
    AssignmentImage,
    BrokerRegistration,
    PartitionAssignment,
    Source,
    Topic,
    make_image,
)
from tests.hosts import CLUSTER, NOW, TOPIC_ID

D1, D2, D3 = (letter * 22 for letter in "BCD")


def image(
    *registered: str, at_ms: int = NOW, cluster: str | None = CLUSTER, directories: Sequence[str] = ()
) -> AssignmentImage:
    """Registered by node 1; a partition on nodes 1 and 2 in these directories."""
    orders = Topic("orders", TOPIC_ID, {0: PartitionAssignment((1, 2), directories=tuple(directories))})
    return make_image(
        [orders],
        AssignmentImage(
            source=Source.KRAFT_LOG,
            cluster_id=cluster,
            at_ms=at_ms,
            known_until_ms=at_ms,
            complete=True,
            brokers={1: BrokerRegistration(1, registered)},
            metadata_version=21,
        ),
    )


def of_node_1(*images: AssignmentImage) -> set[str]:
    return set(directory_ids(images, CLUSTER, 1))


def test_those_it_registered_and_those_its_replicas_are_in() -> None:
    """A broker that loses a log dir while it runs is registered without it from then on."""
    assert of_node_1(image(D1, D2)) == {D1, D2}
    assert of_node_1(image(D1, directories=(D2, D3))) == {D1, D2}
    for reserved in RESERVED_DIRECTORY_IDS:
        assert of_node_1(image(D1, reserved, directories=(reserved, D3))) == {D1}


def test_the_newest_counts_that_is_of_this_cluster_and_has_any() -> None:
    assert of_node_1(image(D1, D2, at_ms=NOW - 1), image(D1)) == {D1}
    assert of_node_1(image(D1), image(D1, D2, at_ms=NOW - 1)) == {D1}
    # The Admin API knows none.
    assert of_node_1(image(D1, D2, at_ms=NOW - 1), image()) == {D1, D2}
    assert of_node_1(image(D1, D2, cluster="other"), image(D1, D2, cluster=None)) == set()


def test_of_an_unknown_node_or_cluster_there_is_none() -> None:
    assert directory_ids([image(D1, directories=(D2, D3))], CLUSTER, 3) == frozenset()
    assert directory_ids([image(D1)], CLUSTER, None) == directory_ids([image(D1, cluster=None)], None, 1) == frozenset()
