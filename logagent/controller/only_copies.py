"""Which directories must not be deleted because no other copy of their partition would remain.

All open requests are considered together: a copy that another open request would delete does not count, nor one on a
silent host, nor one that is already set aside or marked for deletion. Nor does one that a closed request may have
deleted after the snapshot that still shows it. And none counts unless its broker is live and in the ISR by what the
cluster says now: a directory on a host that is heard may be behind a dead leader, or of a replica that nobody serves.
A wrong "only copy" only asks for an approval.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from logagent.controller.controller_context import Reason, Replica
from logagent.model.naming.dir_names import current_name
from logagent.model.planning.plan import GuardName
from logagent.store.contract import CLOCKS_APART
from logagent.store.deletion import SEEN_ORDERS_LAST, Request
from logagent.store.publications import When

ONLY_COPY_GUARD: GuardName = "only-copy"
MAY_STILL_SHOW = 2 * CLOCKS_APART + SEEN_ORDERS_LAST
"""A snapshot may seem to be taken this long after a closing and show what the closed request deleted later."""
Place = tuple[int, str, str]
Copies = Mapping[tuple[str, int], frozenset[Place]]


def copies_in(rows: Mapping[int, Iterable[Mapping[str, Any]]], names: Mapping[str, str]) -> Copies:
    """The current copies of each (topic id, partition) in snapshot rows, given by node. `names`: of the topics, by id:
    a directory by another name, such as a backup, keeps the topic id, but no broker takes it for that partition."""
    found: dict[tuple[str, int], set[Place]] = {}
    for node, of_node in rows.items():
        for row in of_node:
            topic_id, partition = row.get("topic_id"), row.get("partition")
            current = row.get("row") == "dir" and row.get("kind") == "current"
            if not (current and isinstance(topic_id, str) and isinstance(partition, int)):
                continue
            if topic_id in names and row["name"] == current_name(names[topic_id], partition):
                found.setdefault((topic_id, partition), set()).add((node, str(row["log_dir"]), str(row["name"])))
    return {key: frozenset(places) for key, places in found.items()}


def in_sync_only(copies: Copies, in_sync: Mapping[tuple[str, int], frozenset[int]]) -> Copies:
    """`copies` on nodes that are live and in the ISR of their partition; of a partition that is not in `in_sync` (it
    was deleted, or the cluster was not asked), none."""
    return {
        key: frozenset(p for p in places if p[0] in in_sync.get(key, frozenset())) for key, places in copies.items()
    }


def taken_by(requests: Iterable[Request], topic_ids: Collection[str]) -> tuple[frozenset[Place], frozenset[str]]:
    """What requests delete of these topics: directories by place, and whole topics by id. A directory of another topic
    in the same place is another one: agents go by the topic id."""
    places = {(d.node_id, d.log_dir, d.name) for r in requests for d in r.directories if d.topic_id in topic_ids}
    return frozenset(places), frozenset(t.topic_id for r in requests for t in r.topics if t.topic_id in topic_ids)


def not_deleted_since(
    copies: Copies, closed: Iterable[tuple[Request, datetime]], snapshots: Mapping[int, When]
) -> Copies:
    """`copies` without those that a request may have deleted after the node's snapshot. `closed`: requests that are
    done or cancelled, and when. `snapshots`: the times of each node's.

    Agents may have carried out any part of a request until it was closed and `SEEN_ORDERS_LAST` longer. The clock that
    said when may have been `CLOCKS_APART` behind, and that of the snapshot's host as much ahead. A snapshot that was
    sent later than that after it was taken proves nothing: a clock that is far ahead does not show then.
    """
    asked = {topic_id for topic_id, _ in copies}
    closed_at: dict[Place | str, datetime] = {}
    for request, at in closed if asked else ():
        places, topic_ids = taken_by([request], asked)
        taken: set[Place | str] = {*places, *topic_ids}
        for each in taken:
            closed_at[each] = max(at, closed_at.get(each, at))

    def remains(place: Place, topic_id: str) -> bool:
        closings = [closed_at[each] for each in (place, topic_id) if each in closed_at]
        taken_at, arrived_at = snapshots[place[0]]
        return not closings or (arrived_at - taken_at < CLOCKS_APART and taken_at - max(closings) > MAY_STILL_SHOW)

    return {key: frozenset(p for p in places if remains(p, key[0])) for key, places in copies.items()}


def without_other_copy(keys: Collection[tuple[str, int]], copies: Copies, open_requests: Collection[Request]) -> set[
    tuple[str, int]
]:  # fmt: skip
    """The partitions that have no copy left once everything requested is deleted."""
    places, topic_ids = taken_by(open_requests, {topic_id for topic_id, _ in keys})
    return {k for k in keys if k[0] in topic_ids or not copies.get(k, frozenset()) - places}


def refused(replicas: Collection[Replica], alone: Collection[tuple[str, int]], requests: Mapping[str, Request]) -> dict[
    Replica, Reason
]:  # fmt: skip
    """The replicas that a `delete` order must not name now. An approval covers what its plan called an only copy."""
    answer: dict[Replica, Reason] = {}
    for replica in replicas:
        request = requests[replica.topic.request_id]
        if request.kind == "topics" or (replica.topic.topic_id, replica.partition) not in alone:
            continue
        place = (replica.node_id, replica.log_dir, replica.name)
        approved = request.approved and any(
            d.only_copy and (d.node_id, d.log_dir, d.name) == place for d in request.directories
        )
        if not approved:
            answer[replica] = Reason(
                "no other copy of its partition is known to be live and in sync, and no approval covers deleting it",
                ONLY_COPY_GUARD,
                "cancel the request, and request it again with the approval that its plan names",
            )
    return answer
