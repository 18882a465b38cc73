"""What the `topics` commands print, and what the controller and the agents write into the store's control folder."""

from __future__ import annotations

from typing import Any, Literal

from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.deletion.store.answers import Answer, Seen
from logagent.deletion.store.requests import Decision, Request, RequestOutcome


@strict
class MissingReplica(TypedDict):
    partition: int
    node_id: int
    log_dir: str | None
    name: str | None
    state: str
    since: Time | None
    why: str
    claim: str | None
    hint: str | None
    next_try_at: Time | None


@strict
class TopicProgressDoc(TypedDict):
    """`states` and `partitions`: how many are in each of Kafka's states. `strays_left`: directories of a deleted topic
    that its hosts have set aside and not removed yet."""

    topic: str
    topic_id: str
    result: str | None
    states: dict[str, int]
    partitions: dict[str, int]
    waits_for: str | None
    strays_left: int
    bytes_quarantined: Size
    bytes_back: Size
    missing: list[MissingReplica]


@strict
class RequestProgress(TypedDict):
    request_id: str
    kind: Literal["topics", "directories"]
    plan_id: str
    approvals: list[str]
    by: str
    at: Time
    expires_at: Time
    state: Literal["open", "deleting", "on-hold", "done", "disabled", "refused", "cancelled", "dropped", "expired"]
    why: str
    next: str
    carried_out_by: str
    topics_asked: int
    topics: list[TopicProgressDoc]
    bytes_quarantined: Size
    bytes_back: Size


@strict
class AgentDoc(TypedDict):
    """A node's seen file: `heard` if it was renewed lately; `knows`: how many requests it verified, open or ended."""

    node_id: int
    host: str
    at: Time
    heard: bool
    knows: int


@strict
class RunnerDoc(TypedDict):
    host: str
    by: str
    at: Time


@strict
class TopicsDoc(TypedDict):
    """`topics status`: requests, replicas by state, what is missing and why. `unreadable`: what agents wrote and nobody
    can read. `cluster`: why the cluster was not asked."""

    schema: Literal["logagent.topics/2"]
    at: Time
    cluster_id: str
    cluster: str | None
    requests: list[RequestProgress]
    agents: list[AgentDoc]
    runners: list[RunnerDoc]
    unreadable: dict[str, str]


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
    inode: int
    directory_id: str | None
    end_offset: int | None
    bytes: Size
    only_copy: bool


@strict
class LeftOut(TypedDict):
    what: str
    why: str
    hint: str | None


@strict
class NeededApproval(TypedDict):
    word: Literal["only-copy", "limit", "no-retention"]
    why: str


@strict
class ApprovalDoc(TypedDict):
    needed: list[NeededApproval]
    refused: str | None


@strict
class TopicsPlanDoc(TypedDict):
    """`topics delete`, and each cluster of `topics purge`: what was, or would be, requested."""

    schema: Literal["logagent.topics-plan/2"]
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
class TopicsPlansDoc(TypedDict):
    """`topics purge`: a plan for each cluster that the selected rows are of, none where none was selected. After an
    error it has those that were shown or carried out before."""

    schema: Literal["logagent.topics-plans/1"]
    at: Time
    plans: list[TopicsPlanDoc]


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
    "topics-plans": TopicsPlansDoc,
    "signed": SignedDoc,
    "request": Request,
    "decision": Decision,
    "outcome": RequestOutcome,
    "seen": Seen,
    "answer": Answer,
}
