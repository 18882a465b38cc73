"""What the `topics` commands print, and what controller and agents write into the store's control folder."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, RootModel

from logagent.documents.base import Document, Size, Time
from logagent.store.deletion import Answer, ControllerEpoch, Order, Request


class MissingReplica(Document):
    partition: int
    node_id: int
    log_dir: str | None
    name: str | None
    state: str
    since: Time
    why: str | None
    guard: str | None
    hint: str | None


class TopicProgressDoc(Document):
    topic: str
    topic_id: str
    since: Time
    states: dict[str, int]
    waits_for: str | None
    missing: list[MissingReplica]


class RequestProgress(Document):
    request_id: str
    kind: Literal["topics", "directories"]
    plan_id: str
    approved: bool
    by: str
    at: Time
    expires_at: Time
    state: Literal["open", "on-hold", "done", "cancelled"]
    on_hold: str | None
    topics_asked: int
    topics: list[TopicProgressDoc]
    bytes_set_aside: Size
    bytes_removed: Size


class SilentHost(Document):
    node_id: int
    why: str


class EpochHolder(Document):
    by: str
    host: str
    at: Time


class IgnoredFiles(Document):
    files: int
    example: str | None


class TopicsDoc(Document):
    """`topics status`: requests, replicas by state, what is missing and why."""

    schema_: Literal["logagent.topics/1"] = Field(alias="schema")
    at: Time
    cluster_id: str
    epoch: int | None
    controller: EpochHolder | None
    requests: list[RequestProgress]
    hosts: list[SilentHost]
    ignored: IgnoredFiles


class PlannedTopic(Document):
    topic: str
    topic_id: str
    partitions: int
    replicas: int


class PlannedDirectory(Document):
    node_id: int
    log_dir: str
    name: str
    topic: str
    topic_id: str
    partition: int
    kind: Literal["orphan", "stray"]
    bytes: Size
    only_copy: bool


class LeftOut(Document):
    what: str
    why: str
    hint: str | None


class ApprovalDoc(Document):
    needed: list[str]
    refused: str | None


class TopicsPlanDoc(Document):
    """`topics delete` and `topics purge`: what was, or would be, asked for."""

    schema_: Literal["logagent.topics-plan/1"] = Field(alias="schema")
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


class SignedDoc(Document):
    """A file of the control folder that a controller signed; `payload` and `signature` are base64."""

    schema_: str = Field(alias="schema")
    key_id: str
    payload: str
    signature: str


class EpochDoc(RootModel[ControllerEpoch]):
    """The payload of a `logagent.epoch/1`."""


class RequestDoc(RootModel[Request]):
    """The payload of a `logagent.request/1`."""


class OrderDoc(RootModel[Order]):
    """The payload of a `logagent.order/1`."""


class AnswerDoc(RootModel[Answer]):
    """A `logagent.answer/1` (not signed; the file also has `schema`)."""


SCHEMAS: dict[str, Any] = {
    "topics": TopicsDoc,
    "topics-plan": TopicsPlanDoc,
    "signed": SignedDoc,
    "epoch": EpochDoc,
    "request": RequestDoc,
    "order": OrderDoc,
    "answer": AnswerDoc,
}
