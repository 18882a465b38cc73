"""What the `topics` commands print, and what the controller and the agents write into the store's control folder."""

from __future__ import annotations

from typing import Any, Literal

from logagent.documents.base import Size, Time, TypedDict, strict
from logagent.store.deletion import Answer, ControllerEpoch, Order, Request


@strict
class MissingReplica(TypedDict):
    partition: int
    node_id: int
    log_dir: str | None
    name: str | None
    state: str
    since: Time
    why: str | None
    guard: str | None
    hint: str | None


@strict
class TopicProgressDoc(TypedDict):
    topic: str
    topic_id: str
    since: Time
    states: dict[str, int]
    waits_for: str | None
    missing: list[MissingReplica]


@strict
class DroppedTopic(TypedDict):
    topic: str
    topic_id: str
    why: str


@strict
class RequestProgress(TypedDict):
    request_id: str
    kind: Literal["topics", "directories"]
    plan_id: str
    approved: bool
    by: str
    at: Time
    expires_at: Time
    state: Literal["open", "on-hold", "done", "cancelled", "dropped"]
    on_hold: str | None
    topics_asked: int
    topics: list[TopicProgressDoc]
    dropped: list[DroppedTopic]
    bytes_set_aside: Size
    bytes_removed: Size


@strict
class SilentHost(TypedDict):
    node_id: int
    why: str


@strict
class EpochHolder(TypedDict):
    by: str
    host: str
    at: Time


@strict
class IgnoredFiles(TypedDict):
    files: int
    example: str | None


@strict
class TopicsDoc(TypedDict):
    """`topics status`: requests, replicas by state, what is missing and why."""

    schema: Literal["logagent.topics/1"]
    at: Time
    cluster_id: str
    epoch: int | None
    controller: EpochHolder | None
    requests: list[RequestProgress]
    hosts: list[SilentHost]
    ignored: IgnoredFiles


@strict
class PlannedTopic(TypedDict):
    topic: str
    topic_id: str
    partitions: int
    replicas: int


@strict
class PlannedDirectory(TypedDict):
    node_id: int
    log_dir: str
    name: str
    topic: str
    topic_id: str
    partition: int
    kind: Literal["orphan", "stray"]
    bytes: Size
    only_copy: bool


@strict
class LeftOut(TypedDict):
    what: str
    why: str
    hint: str | None


@strict
class ApprovalDoc(TypedDict):
    needed: list[str]
    refused: str | None


@strict
class TopicsPlanDoc(TypedDict):
    """`topics delete` and `topics purge`: what was, or would be, requested."""

    schema: Literal["logagent.topics-plan/1"]
    at: Time
    cluster_id: str
    kind: Literal["topics", "directories"]
    plan_id: str
    mode: Literal["dry-run", "execute"]
    topics: list[PlannedTopic]
    directories: list[PlannedDirectory]
    dropped: list[LeftOut]
    approval: ApprovalDoc
    bytes: Size
    request_id: str | None
    progress: TopicsDoc | None


@strict
class SignedDoc(TypedDict):
    """A file of the control folder, signed by a controller; `payload` and `signature` are base64."""

    schema: str
    key_id: str
    payload: str
    signature: str


SCHEMAS: dict[str, Any] = {
    "topics": TopicsDoc,
    "topics-plan": TopicsPlanDoc,
    "signed": SignedDoc,
    "epoch": ControllerEpoch,
    "request": Request,
    "order": Order,
    "answer": Answer,
}
