"""`logagent.topics/2`: requests, replicas by state, and what is missing, why, and what ends it."""

from __future__ import annotations

import sys
import time

import click

from logagent.base.console.options import Call
from logagent.base.console.render import dump, human_bytes, table
from logagent.base.errors import ServiceUnreachable, UsageError
from logagent.base.sizes import LARGEST_COUNT
from logagent.base.times import instant
from logagent.deletion.command.opening import Place
from logagent.deletion.controller.deletions import Deletions
from logagent.deletion.controller.topic_deletion_manager import (
    Missing,
    Sightings,
    TopicDeletionManager,
    TopicProgress,
    is_running,
    request_state,
)
from logagent.deletion.documents import MissingReplica, RequestProgress, TopicProgressDoc, TopicsDoc
from logagent.deletion.store.requests import Filed, Request

SHOWN_MISSING = 1000
"""Of one topic, in the table for a person; the document has all."""


def follow(call: Call, place: Place, topic: str | None, *, watch: bool, pause: float) -> None:
    """Show it once, or, to `watch` it, every `pause` seconds until nothing is open. What passes does not end it."""
    shown, deletions = False, place.deletions(signing=False)
    while True:
        try:
            document = progress_document(deletions.reader.read(), deletions, topic=topic)
            if topic is not None and not document["requests"]:
                raise UsageError(f"no request names the topic {topic}", hint="without TOPIC every request is shown")
        except ServiceUnreachable as error:
            if not shown:
                raise
            call.say(f"topics: {error}; trying again")
            time.sleep(pause)
            continue
        if call.json:
            dump(document)
        else:
            if watch and call.color:
                click.clear()
            show_progress(call, document)
        shown = watch
        sys.stdout.flush()  # whoever reads a pipe sees each look when it was made
        if not watch or not any(r["state"] in ("open", "deleting", "on-hold") for r in document["requests"]):
            return
        time.sleep(pause)


def progress_document(
    seen: Sightings, deletions: Deletions, number: str | None = None, topic: str | None = None
) -> TopicsDoc:
    """All requests, with the replicas that are not done; `number`: only this one, `topic`: only for this name."""
    setting = deletions.setting
    manager = TopicDeletionManager(seen, setting.silent_after)
    filed = sorted(seen.filed.values(), key=lambda f: (f.request.at if f.request else "", f.request_id))
    wanted = [f for f in filed if number in (None, f.request_id)]
    requests = [row for f in wanted if (row := _request(f, manager, deletions, topic)) is not None]
    return {
        "schema": "logagent.topics/2",
        "at": instant(seen.at),
        "cluster_id": setting.control.cluster_id,
        "cluster": seen.cluster.why_not,
        "requests": requests,
        "agents": [
            {"node_id": node, "host": w.seen.host, "at": instant(w.written),
             "heard": seen.at - w.written <= setting.silent_after, "knows": len(w.seen.open) + len(w.seen.ended)}
            for node, w in sorted(seen.agents.items())
        ],
        "runners": [
            {"host": r.host, "by": r.by, "at": instant(r.at)} for r in seen.runners if is_running(r, seen.at)
        ],
        "unreadable": {str(node): why for node, why in sorted(seen.unreadable.items())},
    }  # fmt: skip


def _request(
    filed: Filed, manager: TopicDeletionManager, deletions: Deletions, name: str | None
) -> RequestProgress | None:
    request = filed.request or Request(deletions.setting.control.cluster_id, "topics", "", "", "", "", "")
    named = [t.topic for t in request.topics] + [d.topic for d in request.directories]
    if name is not None and name not in named:
        return None
    progress = manager.progress(filed)
    state = request_state(filed, progress, manager.seen)
    over = state.is_over and state.state != "done"
    return {
        "request_id": filed.request_id,
        "kind": request.kind,
        "plan_id": request.plan_id,
        "approvals": list(request.approvals),
        "by": request.by,
        "at": request.at or instant(manager.seen.at),
        "expires_at": instant(request.ends_at) if request.at else instant(manager.seen.at),
        "state": state.state,
        "why": state.why,
        "next": state.next,
        "carried_out_by": state.carried_out_by,
        "topics_asked": len(progress),
        "topics": [_topic(t, over=over) for t in progress if name is None or t.topic == name],
        "bytes_quarantined": min(LARGEST_COUNT, sum(t.bytes_quarantined for t in progress)),
        "bytes_back": min(LARGEST_COUNT, sum(t.bytes_back for t in progress)),
    }


def _topic(topic: TopicProgress, *, over: bool) -> TopicProgressDoc:
    return {
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "result": topic.result,
        "states": {state.value: count for state, count in sorted(topic.states.items()) if count},
        "partitions": {state.value: count for state, count in sorted(topic.partitions.items()) if count},
        "waits_for": topic.waits,
        "strays_left": topic.strays_left,
        "bytes_quarantined": min(LARGEST_COUNT, topic.bytes_quarantined),
        "bytes_back": min(LARGEST_COUNT, topic.bytes_back),
        "missing": [] if over else [_replica(m) for m in topic.missing],
    }


def _replica(m: Missing) -> MissingReplica:
    return {
        "partition": m.partition, "node_id": m.node_id, "log_dir": m.log_dir, "name": m.name, "state": m.state.value,
        "since": m.reason.since, "why": m.reason.why, "claim": m.reason.claim, "hint": m.reason.hint,
        "next_try_at": m.reason.next_try_at,
    }  # fmt: skip


def show_progress(call: Call, document: TopicsDoc) -> None:
    """The same for a person: one line per topic, then what is missing, why, and what ends it."""
    rows, missing = list[list[str]](), list[list[str]]()
    for r in document["requests"]:
        if not r["topics"]:
            rows.append([r["request_id"][:12], r["kind"], r["state"], "", r["why"], *_bytes(r), r["at"]])
        for t in r["topics"]:
            states = ", ".join(f"{count} {state}" for state, count in t["states"].items())
            text = (r["why"] if r["state"] != "done" else "") or t["waits_for"] or states
            rows.append([r["request_id"][:12], r["kind"], r["state"], t["topic"], text, *_bytes(t), r["at"]])
            for m in t["missing"][:SHOWN_MISSING] if t["result"] == "deleted" or r["kind"] == "directories" else []:
                where = f"{m['log_dir']}/{m['name']}" if m["name"] else ""
                tries = f"; next try at {m['next_try_at']}" if m["next_try_at"] else ""
                missing.append([f"{t['topic']}-{m['partition']}", str(m["node_id"]), where, m["state"], m["why"],
                                f"{m['hint'] or ''}{tries}".removeprefix("; ")])  # fmt: skip
    if not rows:
        call.say("no deletion has been requested yet")
        return
    columns = [("request", "left"), ("kind", "left?"), ("state", "left"), ("topic", "dir"), ("replicas", "text"),
               ("quarantined", "right?"), ("back", "right?"), ("since", "left?")]  # fmt: skip
    table(f"Deletions of cluster {document['cluster_id']}", columns, rows, color=call.color)
    if missing:
        columns = [("replica", "dir"), ("node", "right"), ("directory", "path?"), ("state", "left?"), ("why", "text"),
                   ("what ends it", "text")]  # fmt: skip
        table("Not done", columns, missing, color=call.color)
    for r in document["requests"]:
        who = f"request {r['request_id'][:12]}: carried out by {r['carried_out_by']}" if r["carried_out_by"] else ""
        for line in filter(None, (who, r["next"] and f"request {r['request_id'][:12]}: {r['next']}")):
            call.say(f"topics: {line}")
    if document["cluster"] is not None:
        call.say(f"topics: the cluster was not asked: {document['cluster']}")
    for node, why in list(document["unreadable"].items())[:5]:
        call.say(f"topics: what the agent of node {node} has seen cannot be read: {why}")


def _bytes(row: RequestProgress | TopicProgressDoc) -> tuple[str, str]:
    return human_bytes(row["bytes_quarantined"]), human_bytes(row["bytes_back"])
