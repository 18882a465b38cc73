"""What lies on a host and whose it is: `scan`, `explain`, `assignments export`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from logagent.documents.base import Document, HealthName, KindName, ReasonName, Size, Time


class Assignments(Document):
    """Which assignments the verdicts come from. `source` is `none` where there were none."""

    source: Literal["kraft-log", "admin", "file", "none"]
    cluster_id: str | None
    at: Time | None
    offset: int | None
    age_seconds: float | None
    topics: int
    partitions: int


class HolderDoc(Document):
    state: Literal["free", "held", "starting", "hidden", "unreadable"]
    pid: int | None
    start_time: Time | None


class Ledger(Document):
    """Where the bytes of a log dir's file system are. `unexplained` = used − all the others (it may be negative)."""

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


class LogDirDoc(Document):
    path: str
    directory_id: str | None
    health: HealthName
    reason: str | None
    holder: HolderDoc
    ledger: Ledger | None


class DirDoc(Document):
    log_dir: str
    name: str
    kind: KindName
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
    verdict: Literal["assigned", "orphan", "unknown"] | None
    reason: ReasonName | None
    error: str | None


class Scan(Document):
    schema_: Literal["logagent.scan/1"] = Field(alias="schema")
    at: Time
    host: str
    agent_version: str
    cluster_id: str | None
    node_id: int | None
    kafka_version: str | None
    assignments: Assignments
    log_dirs: list[LogDirDoc]
    dirs: list[DirDoc]


class ExplainDoc(Document):
    schema_: Literal["logagent.explain/1"] = Field(alias="schema")
    name: str
    kind: KindName
    topic: str | None
    partition: int | None
    uuid: str | None
    topic_truncated: bool
    valid: bool
    error: str | None


class BrokerDoc(Document):
    node_id: int
    directory_ids: list[str]
    fenced: bool | None = None


class UncommittedDoc(Document):
    topic_id: str
    partition: int | None


class PartitionDoc(Document):
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    isr: list[int]
    directories: list[str]


class TopicDoc(Document):
    topic: str
    topic_id: str | None
    partitions: list[PartitionDoc]


class AssignmentsDoc(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    schema_: Literal["logagent.assignments/1"] = Field(alias="schema")
    cluster_id: str | None
    at: Time
    source: Literal["kraft-log", "admin", "file"]
    offset: int | None
    metadata_version: Any = None
    brokers: list[BrokerDoc]
    uncommitted: list[UncommittedDoc] = []
    topics: list[TopicDoc]
