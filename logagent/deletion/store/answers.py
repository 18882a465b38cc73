"""What the agents of one cluster say about its deletion requests: `answers/<cluster>/<node>/` of the fleet store.

`seen.json`: which requests the node's agent verified, open or ended. `<request>.json`: what it did for one request.
Both are replaced as a whole and carry the time at which they were written.

Beside `control/`, not below it: whoever may write there could remove a cancellation, and an agent, which has no key,
must never need to. Answers are not signed, so nothing in them permits anything, and they carry nothing that others
wrote. Where the store has owners, an answer counts only from the user that the node's folder belonged to when the
request was made (`Request.why_not_from`); elsewhere whoever may write into the folder of a node speaks for it.

`deletion_progress` is what the fleet's report shows of both, by topic: nothing is written, and requests without a valid
signature are ignored as everywhere. A copy is done when its host's agent says that it has none left that a broker
loads; its bytes are back once they are freed.

And the documents: what the `topics` commands print, and what the controller and the agents write into the store's
control folder.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from logagent.base.documents import Size, Time, TypedDict, strict
from logagent.base.files.safe_open import MIB
from logagent.base.units import LARGEST_COUNT
from logagent.deletion.store.requests import (
    CONTROL_FILE,
    LONGEST_WORDS,
    UNREADABLE,
    AgentId,
    ClusterId,
    ControlFolder,
    Count,
    Decision,
    DirName,
    Filed,
    Node,
    Path,
    Request,
    RequestFolder,
    RequestOutcome,
    Sha256,
    TooLarge,
    TopicId,
    Words,
    decode,
    encode,
    moment,
)
from logagent.store.contract import is_plain
from logagent.store.shared import open_store
from logagent.store.signing import NotSigned, PublicKey
from logagent.store.tree import ANSWERS

T = TypeVar("T")

SEEN_SCHEMA = "logagent.seen/2"
ANSWER_SCHEMA = "logagent.answer/2"
SEEN = "seen.json"
SHORT = 200
"""Characters of a fact in an answer that would be too large otherwise; its hint goes."""

_NODE = re.compile(r"0|[1-9][0-9]{0,9}")

State = Literal["done", "refused", "waits"]
DoneResult = Literal["quarantined", "removed", "absent"]


@dataclass(frozen=True, slots=True)
class SeenLogDirs:
    """Whether every log dir of the broker was read, at the agent's last whole inventory (`at`), and since when it has
    been so; if not, which were not."""

    at: Time
    all_online: bool
    since: Time | None = None
    offline: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one agent knows. `agent`: random, made with its memory at `born_at`. `open`: the requests in the store at
    `at` that it verified and that nobody has decided; `ended`: those of which it verified an end, as it remembers.
    `refuses`: why it carries nothing out, in words."""

    cluster_id: ClusterId
    node_id: Node
    host: Words
    agent: AgentId
    born_at: Time
    at: Time
    open: tuple[Sha256, ...] = ()
    ended: tuple[Sha256, ...] = ()
    log_dirs: SeenLogDirs | None = None
    refuses: Words = ""


@dataclass(frozen=True, slots=True)
class DirectoryAnswer:
    """What became of one requested directory, which the request calls `log_dir`/`name`.

    `done`: see `result`, for good; `new_name` if it was renamed. `refused`: `claim` (a guard's name, or `identity`,
    `restored`, `moved-before`, `only-copy`) rests on `fact`, and only `hint` changes it. `waits`: `fact` is what for;
    it is tried again by itself, at `next_try_at` or, if that is None, when what it waits for happens."""

    log_dir: Path
    name: DirName
    state: State
    result: DoneResult | None = None
    claim: Words | None = None
    fact: Words | None = None
    hint: Words | None = None
    next_try_at: Time | None = None
    bytes: Count = 0
    new_name: DirName | None = None


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What this host has of a topic that a request deletes, by its id. `live`: directories under a name that a broker
    loads; None where not every log dir could be read, or not the topic id of each under the topic's name.
    `strays_left`: set aside by the broker or by us, and not removed yet; `bytes_left` is what they hold, `bytes_back`
    what was freed. `words`: what the rest waits for. `unread`: directories under the topic's name whose topic id could
    not be read: each may be a replica of it, so `live` is None."""

    topic_id: TopicId
    live: Count | None
    strays_left: Count
    bytes_left: Count = 0
    bytes_back: Count = 0
    words: Words = ""
    next_try_at: Time | None = None
    unread: Count = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one agent did for one request, as of `at`."""

    cluster_id: ClusterId
    node_id: Node
    request_id: Sha256
    host: Words
    agent: AgentId
    at: Time
    directories: tuple[DirectoryAnswer, ...] = ()
    topics: tuple[TopicAnswer, ...] = ()


class Answers(ControlFolder):
    """The answers of one cluster's agents. Raises ServiceUnreachable if the store is absent or fails; one file or
    folder that is no answer raises NotSigned or one of `UNREADABLE`."""

    root = ANSWERS

    def nodes(self) -> list[int]:
        """The nodes that have a folder, also those of which nothing can be read."""
        return sorted(int(name) for name in self.names("") if _NODE.fullmatch(name))

    def write_seen(self, seen: Seen) -> None:
        self._put(seen.node_id, SEEN, _content(SEEN_SCHEMA, seen))

    def write(self, answer: Answer) -> None:
        """Replace this node's answer to a request. One that would be too large loses hints and the ends of facts."""
        content = _content(ANSWER_SCHEMA, answer)
        if len(content) > CONTROL_FILE.max_bytes:
            clipped = tuple(replace(d, fact=d.fact and d.fact[:SHORT], hint=None) for d in answer.directories)
            content = _content(ANSWER_SCHEMA, replace(answer, directories=clipped))
        self._put(answer.node_id, f"{answer.request_id}.json", content)

    def owner(self, node_id: int) -> int | None:
        """The user id that the node's folder belongs to; None if it has none, or the store has no owners."""
        folder = str(node_id)
        with self._opened(folder) as store, suppress(FileNotFoundError):
            return store.owner(self._path(folder))
        return None

    def has_owners(self) -> bool:
        """Whether the store tells users apart. Raises ServiceUnreachable."""
        with self._opened("") as store:
            return store.owner([]) is not None

    def owners(self) -> dict[int, int]:
        """The owners of the nodes' folders. Raises ServiceUnreachable."""
        found = {}
        for node in self.nodes():
            with suppress(*UNREADABLE):
                owner = self.owner(node)
                if owner is not None:
                    found[node] = owner
        return found

    def seen(self, node_id: int) -> Seen | None:
        """The node's seen file; None if it has none."""
        found, owners = self._read(node_id, SEEN, SEEN_SCHEMA, Seen)
        if len(owners) > 1:
            raise NotSigned("it belongs to another user than its folder")
        if found is not None and (found.cluster_id, found.node_id) != (self.cluster_id, node_id):
            raise NotSigned("it belongs to another node")
        return found

    def answer(self, node_id: int, request_id: str) -> Answer | None:
        """The node's answer to a request, whoever wrote it; None if it has none."""
        return self.answer_by(node_id, request_id)[0]

    def answer_by(self, node_id: int, request_id: str) -> tuple[Answer | None, frozenset[int]]:
        """The node's answer to a request, and the user ids that the file and its folder belong to."""
        found, owners = self._read(node_id, f"{request_id}.json", ANSWER_SCHEMA, Answer)
        ours = (self.cluster_id, node_id, request_id)
        if found is not None and (found.cluster_id, found.node_id, found.request_id) != ours:
            raise NotSigned("it belongs to another node or request")
        return found, owners

    def _read(self, node_id: int, name: str, schema: str, kind: type[T]) -> tuple[T | None, frozenset[int]]:
        folder = str(node_id)
        with self._opened(folder) as store:
            try:
                content, owners = store.read_owned([*self._path(folder), name], CONTROL_FILE)
            except FileNotFoundError:
                return None, frozenset()
        if not content.startswith(_head(schema)):
            raise NotSigned(f"it is not a {schema}")
        return decode(kind, content), owners

    def _put(self, node_id: int, name: str, content: bytes) -> None:
        if len(content) > CONTROL_FILE.max_bytes:
            most = CONTROL_FILE.max_bytes // MIB
            raise TooLarge(f"{name} would have {len(content)} bytes, and no more than {most} MiB are read")
        with self._opened(str(node_id)) as store:
            store.put([*self._path(str(node_id)), name], io.BytesIO(content))


def as_words(text: str) -> str:
    """`text` as an answer can carry it: UTF-8 (other bytes of a name as `\\udcXX`), a long path without its middle."""
    words = text.encode("utf-8", "backslashreplace").decode()
    end = LONGEST_WORDS // 4
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - end - 3]} … {words[-end:]}"


def _head(schema: str) -> bytes:
    return b'{"schema":"%s",' % schema.encode()


def _content(schema: str, value: object) -> bytes:
    return _head(schema) + encode(value)[1:]


SHOWN = timedelta(days=30)
"""How long a request is shown after it was made."""


@dataclass(slots=True)
class _Topic:
    """One topic over all requests: replicas by node, those of hosts that are done, bytes."""

    since: str
    marked: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    marked_bytes: int = 0
    back_bytes: int = 0

    def add(self, node: int, count: int, left: int) -> None:
        self.marked[node] = self.marked.get(node, 0) + count
        self.left[node] = self.left.get(node, 0) + left


def clusters(store: str) -> list[str]:
    """The clusters that have a control folder: deletions were requested there at some time. Raises OSError."""
    with open_store(store) as opened:
        return sorted(name for name in opened.names(["control"]) if is_plain(name))


def deletion_progress(store: str, cluster_id: str, keys: tuple[PublicKey, ...], now: datetime) -> list[dict[str, Any]]:
    """The rows of the report's table for one cluster. Raises ServiceUnreachable."""
    answers = Answers(store, cluster_id)
    topics: dict[str, _Topic] = {}
    nodes = answers.nodes()
    for filed in RequestFolder(ControlFolder(store, cluster_id), keys).read().values():
        if _is_shown(filed, now):
            _add(filed, dict(_answers(answers, nodes, filed)), topics)
    return [_row(cluster_id, name, topic) for name, topic in sorted(topics.items()) if topic.marked]


def _is_shown(filed: Filed, now: datetime) -> bool:
    """Not what was cancelled, dropped or has expired: its topics live."""
    request, decision = filed.request, filed.decision
    ended = decision is not None and decision.decision != "delete"
    return request is not None and not ended and now - moment(request.at) <= SHOWN


def _answers(answers: Answers, nodes: list[int], filed: Filed) -> Iterator[tuple[int, Answer]]:
    """Those that count."""
    assert filed.request is not None
    for node in nodes:
        with suppress(NotSigned, ValueError, *UNREADABLE):
            answer, owners = answers.answer_by(node, filed.request_id)
            if answer is not None and filed.request.why_not_from(node, owners) is None:
                yield node, answer


def _add(filed: Filed, answers: dict[int, Answer], topics: dict[str, _Topic]) -> None:
    request = filed.request
    assert request is not None
    deleted = {o.topic_id for o in filed.outcome.topics if o.result == "deleted"} if filed.outcome is not None else None
    decided = filed.decision.topics if filed.decision is not None else request.topics
    for t in decided:
        if deleted is not None and t.topic_id not in deleted:
            continue  # it lives
        topic = topics.setdefault(t.topic, _Topic(request.at))
        topic.marked_bytes += next((a.bytes for a in request.topics if a.topic_id == t.topic_id), 0)
        for node in {n for p in t.partitions for n in p.replicas}:
            count = sum(node in p.replicas for p in t.partitions)
            host = (
                next((s for s in answers[node].topics if s.topic_id == t.topic_id), None) if node in answers else None
            )
            done = deleted is not None or (host is not None and host.live == 0)
            topic.add(node, count, 0 if done else count)
            topic.back_bytes += host.bytes_back if host is not None else 0
    answer_by_dir = {(n, d.log_dir, d.name): d for n, a in answers.items() for d in a.directories}
    for d in request.directories:
        topic = topics.setdefault(d.topic, _Topic(request.at))
        answer = answer_by_dir.get((d.node_id, d.log_dir, d.name))
        done = answer is not None and answer.state == "done"
        topic.marked_bytes += d.bytes
        topic.add(d.node_id, 1, 0 if done else 1)
        topic.back_bytes += d.bytes if answer is not None and answer.result == "removed" else 0


def _row(cluster_id: str, name: str, topic: _Topic) -> dict[str, Any]:
    marked, remaining = sum(topic.marked.values()), sum(topic.left.values())
    return {
        "cluster_id": cluster_id,
        "topic": name,
        "marked": marked,
        "marked_bytes": min(LARGEST_COUNT, topic.marked_bytes),
        "removed": marked - remaining,
        "removed_bytes": min(LARGEST_COUNT, topic.marked_bytes, topic.back_bytes),
        "hosts": len(topic.marked),
        "hosts_done": sum(not left for left in topic.left.values()),
        "remaining": remaining,
        "since": moment(topic.since).date().isoformat(),
        "done_share": (marked - remaining) / marked,
    }


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
    """`kind`: `unknown` of a request that no key trusted here signed: what it asks for is nobody's word."""

    request_id: str
    kind: Literal["topics", "directories", "unknown"]
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
