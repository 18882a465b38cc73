"""What is on a host and what it belongs to: `scan`, `explain`, `assignments export`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config

from logagent.documents.base import AsOf, Size, Time, TypedDict, strict
from logagent.model.assignments.image import Source
from logagent.model.assignments.verdict import Reason
from logagent.model.claims import Claim, Witness
from logagent.model.records import Health, HolderState, Kind, Verdict


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


@strict
class HolderDoc(TypedDict):
    state: HolderState
    pid: int | None
    start_time: Time | None


@strict
class Ledger(TypedDict):
    """What the bytes of a log dir's file system are used for. `size`, `used`, `free` and `unexplained` are of the file
    system, which log dirs with the same `device` share: add them up once. `unexplained` = used − what all of those log
    dirs have (may be negative)."""

    size: Size
    used: Size
    free: Size
    current: Size
    future: Size
    stray: Size
    delete: Size
    other: Size
    open_removed: Size
    unexplained: int


@strict
class LogDirDoc(TypedDict):
    """`device`: the number of its file system (it may be another one after a reboot), null where it is offline. Log
    dirs with the same one share its `size`, `used` and `free`."""

    path: str
    device: int | None
    directory_id: str | None
    health: Health
    reason: str | None
    holder: HolderDoc
    ledger: Ledger | None


@strict
class DirDoc(TypedDict):
    """`claim`, `witness`: what the verdict says and who said so, as of the time that the head gives for that witness;
    null where there is no verdict, or one that rests on nothing. `detail`: of strays and copies, what it rests on in
    words."""

    log_dir: str
    name: str
    kind: Kind
    topic: str | None
    topic_truncated: bool
    full_topic: str | None
    partition: int | None
    uuid: str | None
    topic_id: str | None
    bytes: Size
    allocated: Size
    files: Size
    segments: Size
    newest_mtime: Time | None
    marked_at: Time | None
    first_offset: int | None
    last_segment_offset: int | None
    sightings: int
    first_seen: Time | None
    in_use: bool | None
    verdict: Verdict | None
    reason: Reason | None
    claim: NotRequired[Claim | None]
    witness: NotRequired[Witness | None]
    error: str | None
    detail: NotRequired[str | None]


@strict
class WithoutDirectoryDoc(TypedDict):
    """What is assigned to this node and has no directory here. `only_copy`: no other replica is in sync; null if the
    assignments do not say."""

    topic: str
    partition: int
    topic_id: str | None
    only_copy: bool | None


@strict
class Scan(TypedDict):
    schema: Literal["logagent.scan/2"]
    at: Time
    host: str
    agent_version: str
    cluster_id: str | None
    node_id: int | None
    kafka_version: str | None
    assignments: AssignmentsUsed
    as_of: AsOf
    log_dirs: list[LogDirDoc]
    without_directory: NotRequired[list[WithoutDirectoryDoc]]
    dirs: list[DirDoc]


@strict
class ExplainDoc(TypedDict):
    schema: Literal["logagent.explain/1"]
    name: str
    kind: Kind
    topic: str | None
    partition: int | None
    uuid: str | None
    topic_truncated: bool
    valid: bool
    error: str | None


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
