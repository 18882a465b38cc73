"""The assignments that verdicts are based on, and those that `assignments export` writes."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config

from logagent.base.documents import Time, TypedDict, strict
from logagent.kafka.image import Source


@strict
class LogDoubtDoc(TypedDict):
    """Why the metadata log on this host proves less than that of a tested release of Kafka, and what helps. `proves`:
    only that topics were deleted or created anew (`removals`), `nothing`, or `all` where only features were not tested
    that say nothing of partitions as far as is known."""

    proves: Literal["all", "removals", "nothing"]
    says: str
    hint: str


@strict
class AssignmentsUsed(TypedDict):
    """The assignments that the verdicts are based on. `source` is `none` if there were none. `ends_at_stop`: they end
    when this host's broker stopped, and why no living broker could be asked about what happened since."""

    source: Source | Literal["none"]
    cluster_id: str | None
    at: Time | None
    offset: int | None
    age_seconds: float | None
    topics: int
    partitions: int
    ends_at_stop: NotRequired[str]
    log_doubt: NotRequired[LogDoubtDoc]


@strict
class BrokerDoc(TypedDict):
    node_id: int
    directory_ids: list[str]
    fenced: NotRequired[bool | None]


@strict
class UncommittedDoc(TypedDict):
    topic_id: str
    partition: int | None


@strict
class PartitionDoc(TypedDict):
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    isr: list[int]
    directories: list[str]


@strict
class TopicDoc(TypedDict):
    topic: str
    topic_id: str | None
    partitions: list[PartitionDoc]


@with_config(ConfigDict(extra="allow", strict=True))
class AssignmentsDoc(TypedDict):
    schema: Literal["logagent.assignments/1"]
    cluster_id: str | None
    at: Time
    known_until: NotRequired[Time]
    source: Source
    offset: int | None
    metadata_version: NotRequired[Any]
    brokers: list[BrokerDoc]
    uncommitted: NotRequired[list[UncommittedDoc]]
    topics: list[TopicDoc]
