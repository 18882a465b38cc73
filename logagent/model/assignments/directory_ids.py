"""Which log dirs the cluster has for a node, by their `directory.id` (brokers from 3.7 on). Decides without I/O."""

from __future__ import annotations

from collections.abc import Iterable

from logagent.model.assignments.image import RESERVED_DIRECTORY_IDS, AssignmentImage


def directory_ids(images: Iterable[AssignmentImage], cluster_id: str | None, node_id: int | None) -> frozenset[str]:
    """What the newest of `images` that is of this cluster and has any for the node says, however old it is; empty if
    none does.

    Those that the node registered, and those that its replicas are assigned to: when a running broker loses a log dir,
    the controller takes it out of the registration, and the replicas in it keep its id.
    """
    if cluster_id is None or node_id is None:
        return frozenset()
    ours = sorted((i for i in images if i.cluster_id == cluster_id), key=lambda i: i.at_ms, reverse=True)
    return next(filter(None, (_of_node(image, node_id) for image in ours)), frozenset())


def _of_node(image: AssignmentImage, node_id: int) -> frozenset[str]:
    registration = image.brokers.get(node_id)
    registered = () if registration is None else registration.directory_ids
    partitions = (p for topic in image.by_id.values() for p in topic.partitions.values() if p.directories)
    assigned = (directory for p in partitions if (directory := p.directory_of(node_id)) is not None)
    return frozenset(registered).union(assigned) - RESERVED_DIRECTORY_IDS
