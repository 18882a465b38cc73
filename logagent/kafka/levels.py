"""Which levels of which cluster features were tested, and what an image of a cluster with others proves. No I/O.

The number is a sign: `metadata.version` 12 (3.6-IV0) changed what a shrunken ISR means without changing a record
(KAFKA-15021). So a level counts as known only once its release was tested: one log was replayed through Kafka's own
`MetadataDelta`, and the image was ours. Above that, and however well every record was understood, only what a record
says once and for all is proven: that a topic id was removed. Who is a replica, where, since when and in sync with whom
is then asked of a broker by id. So it is if only some of the records are of such a level (it was lowered since), and if
the level is not known.

And what a start reads in a metadata log dir: the levels in its files, and which of these Kafka cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from logagent.base.dir_names import PARTITION_METADATA
from logagent.base.records import LogDoubt

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
BOOTSTRAP: Final = "bootstrap.checkpoint"
NEWEST_METADATA_VERSION: Final = 34
"""4.5-IV0, the newest `metadata.version` that Kafka 4.4.0 knows (it formats with 33, 4.4-IV2)."""

# `org.apache.kafka.server.common.Feature` of 4.4.0; those before it are a part of it.
_NEWEST_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: NEWEST_METADATA_VERSION,
    KRAFT_VERSION: 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 2,
    "streams.version": 1,
}


def unread(why: str, *, newer: bool, asks_brokers: bool) -> LogDoubt:
    """`newer`: it holds what no tested release writes. `asks_brokers`: `kafka.bootstrap_servers` is set."""
    says = f"the metadata log on this host proves nothing: {why}"
    return LogDoubt("nothing", says, _what_helps(newer=newer, asks_brokers=asks_brokers))


def doubt_of(untested_because: str | None, untested: Sequence[str], *, asks_brokers: bool) -> LogDoubt | None:
    """Of a log that was read, by `AssignmentImage.untested_because` and `AssignmentImage.untested`."""
    hint = _what_helps(newer=True, asks_brokers=asks_brokers)
    if untested_because is not None:
        what = "the metadata log on this host proves only that topics were deleted or created anew"
        others = (feature for feature in untested if not feature.startswith(f"its {METADATA_VERSION} "))
        return LogDoubt("removals", f"{what}: {'; '.join((untested_because, *others))}", hint)
    if untested:
        says = (
            f"the metadata log on this host is of a cluster with features that were not tested: {'; '.join(untested)}"
        )
        return LogDoubt("all", says, "install a newer logagent, if there is one")
    return None


def _what_helps(*, newer: bool, asks_brokers: bool) -> str:
    instead = "install a newer logagent" if newer else "logagent check says which file is damaged, and what helps"
    if asks_brokers:
        return instead
    return (
        "set kafka.bootstrap_servers (and kafka.client for TLS or a password), so that the brokers say what is theirs;"
        f" or {instead}"
    )


def untested_features(levels: Mapping[str, int]) -> tuple[str, ...]:
    """The finalised features whose name or level was not tested, each in words; `metadata.version` first."""
    ordered = sorted(levels.items(), key=lambda feature: (feature[0] != METADATA_VERSION, feature[0]))
    return tuple(_in_words(name, level) for name, level in ordered if not 0 <= level <= _NEWEST_LEVELS.get(name, -1))


def _in_words(name: str, level: int) -> str:
    newest = _NEWEST_LEVELS.get(name)
    if newest is None:
        return f"the feature {name} is not known"
    return f"its {name} is {level}, the newest tested one is {newest}"


class MetadataFile(StrEnum):
    """A file in a metadata log dir that a KRaft node reads when it starts."""

    QUORUM_STATE = "quorum-state"
    EPOCHS = "leader-epoch-checkpoint"
    TOPIC_ID = PARTITION_METADATA
    SNAPSHOT = "snapshot"
    FIRST_SNAPSHOT = "first-snapshot"
    LOST_SNAPSHOT = "lost-snapshot"
    BOOTSTRAP = "bootstrap.checkpoint"
    SNAPSHOT_END = "end-of-snapshot"
    ODD_NAME = "odd-name"
    VOTERS = "voters"
    DYNAMIC = "dynamic-quorum"
    DIRECTORY_ID = "directory-id"


class MetadataFault(NamedTuple):
    """One of these that Kafka cannot read. `name`: its path below the metadata log dir. `refused`: Kafka waits,
    or raises something else than an `IOException`. `spare`: a start does without the file, if it is not there."""

    file: MetadataFile
    name: str
    error: str
    refused: bool = False
    spare: bool = True


FeatureLevels = Mapping[str, tuple[int, ...]]
"""By feature, each level that records give it, the one that is finalised now last."""


class StartLevels(NamedTuple):
    """The features in the files that a KRaft node reads when it starts.

    log: of the newest metadata snapshot and the log after it. bootstrap: of `bootstrap.checkpoint`. formatted: of the
    snapshot that `kafka-storage format` of 4.4 and later writes instead, while that is all there is. unread: why not
    all of it could be read. empty: no metadata record has been written yet.
    """

    log: FeatureLevels = MappingProxyType({})
    bootstrap: FeatureLevels = MappingProxyType({})
    formatted: FeatureLevels = MappingProxyType({})
    unread: str | None = None
    empty: bool = False
