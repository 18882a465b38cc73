"""Progress of deletions across the fleet, by topic, from requests, answers and the newest snapshots.

For reports only: nothing is written, and files without a valid signature are ignored as everywhere. A directory that an
order set aside counts as done; its bytes count as freed once a later snapshot of the online log dir no longer shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from logagent.errors import LogAgentError
from logagent.store.answers import ANSWERS_AT_ONCE, answer_names, read_answers
from logagent.store.control import ANSWERS, UNREADABLE, Control
from logagent.store.deletion import LARGEST_COUNT, SUCCESSES, Answer, Request, Result
from logagent.store.names import is_plain
from logagent.store.orders import Requests, moment
from logagent.store.publications import FleetPublications
from logagent.store.shared import open_store
from logagent.store.signing import PublicKey

SHOWN = timedelta(days=30)
"""How long a request is shown after it was done or has expired."""


_ANY = -1


class RequestedCopy(NamedTuple):
    """One copy that a request wants deleted."""

    request_id: str
    topic_id: str
    partition: int
    node_id: int
    log_dir: str | None = None
    name: str | None = None


@dataclass(slots=True)
class _Copy:
    """What is known of a copy. `kept`: log dir and name under which it was set aside, bytes, time of the answer."""

    topic: str
    bytes: int = 0
    done: bool = False
    removed_bytes: int = 0
    kept: list[tuple[str, str, int, datetime]] = field(default_factory=list)


def clusters(store: str) -> list[str]:
    """The clusters that have a control folder: deletions were requested there at some time. Raises OSError."""
    with open_store(store) as opened:
        return sorted(name for name in opened.names(["control"]) if is_plain(name))


def deletion_progress(store: str, cluster_id: str, keys: tuple[PublicKey, ...], now: datetime) -> list[dict[str, Any]]:
    """The rows of the report's table for one cluster. Raises ServiceUnreachable."""
    control = Control(store, cluster_id)
    requests = Requests(control, keys)
    requests.refresh()
    shown = {i: r for i, r in requests.requests.items() if _is_shown(requests, r, now)}
    # A dropped topic lives: none of its copies is left to be deleted.
    left = [replace(request, topics=requests.topics_of(request_id)) for request_id, request in shown.items()]
    copies = {asked: copy for request in left for asked, copy in _requested_copies(request)}
    listed = {asked._replace(node_id=_ANY): copy.topic for asked, copy in copies.items() if asked.name is None}
    for node in _nodes(control, copies):
        for answer in _answers(control, node):
            _apply_answer(answer, listed, copies)
    if copies:
        _apply_snapshots(store, cluster_id, copies, now)
    by_topic: dict[str, list[tuple[RequestedCopy, _Copy]]] = {}
    for asked, copy in copies.items():
        by_topic.setdefault(copy.topic, []).append((asked, copy))
    return [_row(cluster_id, topic, mine, shown) for topic, mine in sorted(by_topic.items())]


def _is_shown(requests: Requests, request: Request, now: datetime) -> bool:
    closed = requests.closed.get(request.request_id, {})
    if "cancelled" in closed:
        return False
    return now - (moment(closed["done"].at) if "done" in closed else moment(request.expires_at)) <= SHOWN


def _requested_copies(request: Request) -> Iterator[tuple[RequestedCopy, _Copy]]:
    for t in request.topics:
        for p in t.partitions:
            for node in p.replicas:
                yield RequestedCopy(request.request_id, t.topic_id, p.partition, node), _Copy(t.topic)
    for d in request.directories:
        yield (
            RequestedCopy(request.request_id, d.topic_id, d.partition, d.node_id, d.log_dir, d.name),
            _Copy(d.topic, d.bytes),
        )


def _nodes(control: Control, copies: dict[RequestedCopy, _Copy]) -> list[int]:
    answered: set[int] = set()
    with suppress(*UNREADABLE):
        answered = {
            int(name) for name in control.names(ANSWERS) if name.isascii() and name.isdigit() and len(name) < 11
        }
    return sorted(answered | {asked.node_id for asked in copies}) if copies else []


def _answers(control: Control, node: int) -> Iterator[Answer]:
    """The answers of a node's agents, oldest order first; none if their folder is not a readable directory."""
    try:
        names = sorted(name for _, name in answer_names(control, node).values())
    except UNREADABLE:
        return
    for _, answer in read_answers(control, node, names[-ANSWERS_AT_ONCE:]):
        if not isinstance(answer, str):
            yield answer


def _apply_answer(answer: Answer, listed: dict[RequestedCopy, str], copies: dict[RequestedCopy, _Copy]) -> None:
    """`listed`: the topics of the partitions that requests list. A node may have a copy of one though the request does
    not list it there; of a partition that nobody listed, anyone could make up any number."""
    by_copy: dict[RequestedCopy, list[Result]] = {}
    for r in answer.results:
        asked = RequestedCopy(r.request_id, r.topic_id, r.partition, answer.node_id, r.asked_log_dir, r.asked_name)
        by_copy.setdefault(asked, []).append(r)
    for asked, results in by_copy.items():
        copy = copies.get(asked)
        if copy is None:
            topic = listed.get(asked._replace(node_id=_ANY))
            if topic is None or all(r.directory is None for r in results):
                continue
            copy = copies[asked] = _Copy(topic)
        copy.bytes = max(copy.bytes, sum(r.directory.bytes for r in results if r.directory is not None))
        copy.done = copy.done or all(r.result in SUCCESSES for r in results)
        for r in results:
            if r.directory is not None and r.result == "removed":
                copy.removed_bytes += r.directory.bytes
            elif r.directory is not None and r.result == "renamed" and r.new_name is not None:
                copy.kept.append((r.directory.log_dir, r.new_name, r.directory.bytes, moment(answer.at)))


def _apply_snapshots(store: str, cluster_id: str, copies: dict[RequestedCopy, _Copy], now: datetime) -> None:
    """Take sizes from the newest snapshots, and find which set-aside copies are no longer on disk."""
    heard = FleetPublications(store, cluster_id, SHOWN)
    heard.look(now)
    by_node: dict[int, list[tuple[RequestedCopy, _Copy]]] = {}
    for asked, copy in copies.items():
        by_node.setdefault(asked.node_id, []).append((asked, copy))
    for node, of_node in by_node.items():
        if node not in heard.nodes:
            continue
        try:
            rows = list(heard.directories(node, {asked.topic_id for asked, _ in of_node}))
        except LogAgentError:
            continue  # without a readable snapshot nothing counts as freed
        _apply_rows(rows, heard.nodes[node].taken_at, of_node)


def _apply_rows(rows: list[dict[str, Any]], at: datetime, of_node: list[tuple[RequestedCopy, _Copy]]) -> None:
    online = {row["path"] for row in rows if row.get("row") == "log_dir" and row["health"] == "online"}
    there = {(row["log_dir"], row["name"]) for row in rows if row.get("row") == "dir"}
    current: dict[tuple[str, int], int] = {}
    for row in rows:
        if row.get("row") == "dir" and row.get("kind") in ("current", "future"):
            key = (row["topic_id"], row["partition"])
            current[key] = current.get(key, 0) + row["bytes"]
    for asked, copy in of_node:
        if not copy.done and asked.name is None:
            copy.bytes = max(copy.bytes, current.get((asked.topic_id, asked.partition), 0))
        for log_dir, name, size, answered in copy.kept:
            if answered < at and log_dir in online and (log_dir, name) not in there:
                copy.removed_bytes += size


def _row(
    cluster_id: str, topic: str, mine: list[tuple[RequestedCopy, _Copy]], shown: dict[str, Request]
) -> dict[str, Any]:  # fmt: skip
    hosts = {asked.node_id for asked, _ in mine}
    waiting = {asked.node_id for asked, copy in mine if not copy.done}
    done = sum(copy.done for _, copy in mine)
    return {
        "cluster_id": cluster_id,
        "topic": topic,
        "marked": len(mine),
        "marked_bytes": min(LARGEST_COUNT, sum(copy.bytes for _, copy in mine)),
        "removed": done,
        "removed_bytes": min(LARGEST_COUNT, sum(min(copy.removed_bytes, copy.bytes) for _, copy in mine)),
        "hosts": len(hosts),
        "hosts_done": len(hosts - waiting),
        "remaining": len(mine) - done,
        "since": moment(min(shown[asked.request_id].at for asked, _ in mine)).date().isoformat(),
        "done_share": done / len(mine),
    }
