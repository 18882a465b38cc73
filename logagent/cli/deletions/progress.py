"""`logagent.topics/1`: the requests of a cluster, their replicas by state, and what is missing and why."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from logagent.cli.deletions.opening import Place
from logagent.cli.options import Call
from logagent.cli.render import dump, human_bytes, table
from logagent.controller.controller_context import Replica, ReplicaProgress, ReplicaState, Topic, TopicProgress
from logagent.controller.rounds import DeletionRounds
from logagent.documents.topics import DroppedTopic, MissingReplica, RequestProgress, TopicProgressDoc, TopicsDoc
from logagent.errors import ServiceUnreachable, UsageError
from logagent.store.deletion import Request
from logagent.store.orders import instant


def follow(call: Call, place: Place, topic: str | None, *, watch: bool, pause: float) -> None:
    """Show it once, or, to `watch` it, every `pause` seconds until nothing is open. What passes does not end it."""
    shown = False
    while True:
        try:
            rounds = place.rounds(signing=False)
            rounds.look()
            document = progress_document(rounds, topic)
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
        if not watch or not any(r["state"] in ("open", "on-hold") for r in document["requests"]):
            return
        time.sleep(pause)


def progress_document(rounds: DeletionRounds, topic: str | None = None) -> TopicsDoc:
    """All requests, with the replicas that are not done; `topic`: only for this name."""
    highest = rounds.highest_epoch()
    asked = sorted(rounds.requests.requests.values(), key=lambda r: (r.at, r.request_id))
    requests = [row for request in asked if (row := _request(rounds, request, topic)) is not None]
    return {
        "schema": "logagent.topics/1",
        "at": instant(rounds.setting.clock()),
        "cluster_id": rounds.setting.control.cluster_id,
        "epoch": highest.epoch if highest is not None else None,
        "controller": None if highest is None else {"by": highest.by, "host": highest.host, "at": highest.at},
        "requests": requests,
        "hosts": [{"node_id": node, "why": why} for node, why in sorted(rounds.context.silent_nodes.items())],
        "ignored": {"files": rounds.requests.ignored.count, "example": rounds.requests.ignored.example},
    }


def _request(rounds: DeletionRounds, request: Request, name: str | None) -> RequestProgress | None:
    named = [t.topic for t in request.topics] + [d.topic for d in request.directories]
    if name is not None and name not in named:
        return None
    queue = rounds.context.topics_to_be_deleted
    topics = [_topic(rounds, t, known) for t, known in queue.items() if t.request_id == request.request_id]
    bytes_by = rounds.exchange.bytes_by_request.get(request.request_id, {})
    return {
        "request_id": request.request_id,
        "kind": request.kind,
        "plan_id": request.plan_id,
        "approved": request.approved,
        "by": request.by,
        "at": request.at,
        "expires_at": instant(rounds.states.valid_until(request)),
        "state": rounds.states.of(request.request_id),
        "on_hold": rounds.states.on_hold.get(request.request_id),
        "topics_asked": len({d.topic_id for d in request.directories}) or len(request.topics),
        "topics": [t for t in topics if name is None or t["topic"] == name],
        "dropped": _dropped(rounds, request, name),
        "bytes_set_aside": bytes_by.get("renamed", 0),
        "bytes_removed": bytes_by.get("removed", 0),
    }


def _dropped(rounds: DeletionRounds, request: Request, name: str | None) -> list[DroppedTopic]:
    said = rounds.requests.dropped.get(request.request_id, {})
    return [
        {"topic": t.topic, "topic_id": t.topic_id, "why": said[t.topic_id]}
        for t in request.topics
        if t.topic_id in said and name in (None, t.topic)
    ]


def _topic(rounds: DeletionRounds, topic: Topic, known: TopicProgress) -> TopicProgressDoc:
    replicas = [(replica, rounds.context.replicas[replica]) for replica in known.replicas]
    states = Counter(progress.state.value for _, progress in replicas)
    return {
        "topic": known.name,
        "topic_id": topic.topic_id,
        "since": instant(known.since),
        "states": dict(sorted(states.items())),
        "waits_for": known.waits_for_cluster or next(iter(known.ineligible.values()), None),
        "missing": [_replica(r, p) for r, p in replicas if p.state is not ReplicaState.SUCCESSFUL],
    }


def _replica(replica: Replica, progress: ReplicaProgress) -> MissingReplica:
    reason = progress.reason
    return {
        "partition": replica.partition,
        "node_id": replica.node_id,
        "log_dir": replica.log_dir,
        "name": replica.name,
        "state": progress.state.value,
        "since": instant(progress.since),
        "why": reason.why if reason is not None else None,
        "guard": reason.guard if reason is not None else None,
        "hint": reason.hint if reason is not None else None,
    }


def show_progress(call: Call, document: TopicsDoc) -> None:
    """The same for a person: one line per topic, then what is missing."""
    ignored = document["ignored"]
    if ignored["files"]:
        call.say(f"topics: files that are ignored: {ignored['files']}, such as {ignored['example']}")
    rows, missing = [], []
    for r in document["requests"]:
        if not r["topics"] and not r["dropped"]:
            rows.append([r["request_id"], r["kind"], r["state"], "", r["on_hold"] or "", *_bytes(r), r["at"]])
        for d in r["dropped"]:
            rows.append([r["request_id"], r["kind"], "dropped", d["topic"], d["why"], *_bytes(r), r["at"]])
        for t in r["topics"]:
            states = ", ".join(f"{count} {state}" for state, count in t["states"].items())
            text = r["on_hold"] or t["waits_for"] or states
            rows.append([r["request_id"], r["kind"], r["state"], t["topic"], text, *_bytes(r), r["at"]])
            for m in t["missing"]:
                where = f"{m['log_dir']}/{m['name']}" if m["name"] else ""
                missing.append([f"{t['topic']}-{m['partition']}", str(m["node_id"]), where, m["state"],
                                m["why"] or "", m["since"]])  # fmt: skip
    if not rows:
        call.say("no deletion has been requested yet" if not document["requests"] else "nothing is open")
        return
    columns = [("request", "left"), ("kind", "left"), ("state", "left"), ("topic", "left"), ("replicas", "text"),
               ("set aside", "right"), ("back", "right"), ("since", "left")]  # fmt: skip
    table(f"Deletions of cluster {document['cluster_id']}", columns, rows, color=call.color)
    if missing:
        columns = [("replica", "left"), ("node", "right"), ("directory", "path"), ("state", "left"), ("why", "text"),
                   ("since", "left")]  # fmt: skip
        table("Not done", columns, missing, color=call.color)


def _bytes(row: RequestProgress) -> tuple[str, str]:
    return human_bytes(row["bytes_set_aside"]), human_bytes(row["bytes_removed"])
