"""What each release of Kafka supports, by its own classes. Do not edit.

Made by `python -m tests.broker.releases table`; a test compares it with the jars.

METADATA_VERSIONS: the name of each level of `metadata.version`, and whether records of it cannot be read below it, so
that no way leads back (`changed`). RELEASES: by minor release, the patch that was read, the
lowest and highest level of each feature (`QuorumFeatures`), the oldest and newest version of each file's format, and
the highest `metadata.version` that it has a name for, if only as one that is not stable.
"""

from __future__ import annotations

from typing import NamedTuple


class MetadataVersion(NamedTuple):
    name: str
    changed: bool


class Release(NamedTuple):
    patch: str
    features: dict[str, tuple[int, int]]
    files: dict[str, tuple[int, int]]
    named: int


METADATA_VERSIONS: dict[int, MetadataVersion] = {
    1: MetadataVersion("3.0-IV1", True),
    2: MetadataVersion("3.1-IV0", False),
    3: MetadataVersion("3.2-IV0", True),
    4: MetadataVersion("3.3-IV0", False),
    5: MetadataVersion("3.3-IV1", True),
    6: MetadataVersion("3.3-IV2", True),
    7: MetadataVersion("3.3-IV3", True),
    8: MetadataVersion("3.4-IV0", True),
    9: MetadataVersion("3.5-IV0", False),
    10: MetadataVersion("3.5-IV1", False),
    11: MetadataVersion("3.5-IV2", True),
    12: MetadataVersion("3.6-IV0", False),
    13: MetadataVersion("3.6-IV1", True),
    14: MetadataVersion("3.6-IV2", True),
    15: MetadataVersion("3.7-IV0", True),
    16: MetadataVersion("3.7-IV1", False),
    17: MetadataVersion("3.7-IV2", True),
    18: MetadataVersion("3.7-IV3", False),
    19: MetadataVersion("3.7-IV4", False),
    20: MetadataVersion("3.8-IV0", False),
    21: MetadataVersion("3.9-IV0", False),
    22: MetadataVersion("4.0-IV0", False),
    23: MetadataVersion("4.0-IV1", True),
    24: MetadataVersion("4.0-IV2", False),
    25: MetadataVersion("4.0-IV3", False),
    26: MetadataVersion("4.1-IV0", False),
    27: MetadataVersion("4.1-IV1", False),
    28: MetadataVersion("4.2-IV0", False),
    29: MetadataVersion("4.2-IV1", False),
    30: MetadataVersion("4.3-IV0", True),
    31: MetadataVersion("4.4-IV0", False),
    32: MetadataVersion("4.4-IV1", True),
    33: MetadataVersion("4.4-IV2", True),
}

RELEASES: dict[tuple[int, int], Release] = {
    (3, 5): Release(
        "3.5.2",
        {"metadata.version": (1, 11)},
        {
            "quorum-state": (0, 0),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        11,
    ),
    (3, 6): Release(
        "3.6.2",
        {"metadata.version": (1, 14)},
        {
            "quorum-state": (0, 0),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        14,
    ),
    (3, 7): Release(
        "3.7.2",
        {"metadata.version": (1, 19)},
        {
            "quorum-state": (0, 0),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        20,
    ),
    (3, 8): Release(
        "3.8.1",
        {"metadata.version": (1, 20)},
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        21,
    ),
    (3, 9): Release(
        "3.9.2",
        {"kraft.version": (0, 1), "metadata.version": (1, 21)},
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        23,
    ),
    (4, 0): Release(
        "4.0.2",
        {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 25),
            "transaction.version": (0, 2),
        },
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        26,
    ),
    (4, 1): Release(
        "4.1.2",
        {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 27),
            "share.version": (0, 1),
            "transaction.version": (0, 2),
        },
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        29,
    ),
    (4, 2): Release(
        "4.2.2",
        {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 29),
            "share.version": (0, 1),
            "streams.version": (0, 1),
            "transaction.version": (0, 2),
        },
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        30,
    ),
    (4, 3): Release(
        "4.3.1",
        {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 30),
            "share.version": (0, 1),
            "streams.version": (0, 1),
            "transaction.version": (0, 2),
        },
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        31,
    ),
    (4, 4): Release(
        "4.4.0",
        {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 33),
            "share.version": (0, 2),
            "streams.version": (0, 1),
            "transaction.version": (0, 2),
        },
        {
            "quorum-state": (0, 1),
            "meta.properties": (0, 1),
            "log": (0, 2),
            "txnindex": (0, 0),
            "snapshot": (1, 1),
            "offset-checkpoint": (0, 0),
            "leader-epoch-checkpoint": (0, 0),
            "partition.metadata": (0, 0),
        },
        34,
    ),
}
