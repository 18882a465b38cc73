"""Progress of deletions across the fleet, by topic, from requests and the answers of agents.

For reports only: nothing is written, and requests without a valid signature are ignored as everywhere. A copy is done
when its host's agent says that it has none left that a broker loads; its bytes are back once they are freed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from logagent.base.sizes import LARGEST_COUNT
from logagent.deletion.store.answers import Answer, Answers
from logagent.deletion.store.requests import UNREADABLE, Control, Filed, RequestFolder, moment
from logagent.store.contract import is_plain
from logagent.store.shared import open_store
from logagent.store.signing import NotSigned, PublicKey

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
    for filed in RequestFolder(Control(store, cluster_id), keys).read().values():
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
