"""Turns a plan into a request, and follows it until it is done or times out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from typing import Any, cast

from logagent.cli.deletions.opening import Place, now, requested, who
from logagent.cli.deletions.progress import progress_document, show_progress
from logagent.cli.options import Call
from logagent.cli.render import dump, human_bytes, table
from logagent.controller.controller_context import ReplicaState
from logagent.controller.deletion_plan import DeletionPlan, ExistingTopic, asked_lately
from logagent.controller.exchange import LIFETIME
from logagent.controller.rounds import DeletionRounds
from logagent.controller.store_client import Outcome
from logagent.documents.topics import LeftOut, PlannedDirectory, TopicsPlanDoc
from logagent.errors import Exit, LogAgentError, ServiceUnreachable, UsageError
from logagent.store.control import TooLarge
from logagent.store.deletion import LARGEST_COUNT, Request
from logagent.store.epochs import EpochLost
from logagent.store.orders import decode, encode, instant, write_request

ROUND_SECONDS = 2.0
FEWER = "ask for fewer at a time: topics by --topic, directories by --host, --kind, --reason or --larger too"


def lately(rounds: DeletionRounds) -> list[Request]:
    """Requests of the last day that needed no approval."""
    return asked_lately(rounds.requests.requests.values(), rounds.setting.clock())


def topics_of_cluster(place: Place, rounds: DeletionRounds) -> list[ExistingTopic]:
    """Every topic that the cluster lists, with its current replicas and (if snapshots have them) its bytes."""
    from logagent.broker.admin.reader import AdminReader

    servers, config = place._connection()
    with AdminReader(servers, config) as reader:
        image = reader.image(int(now().timestamp() * 1000))
    if image.cluster_id != rounds.setting.control.cluster_id:
        raise LogAgentError(f"the cluster at {servers} is {image.cluster_id}, not {rounds.setting.control.cluster_id}")
    living = [ExistingTopic(requested(topic)) for topic in image.by_name.values()]
    sizes = bytes_by_topic(rounds.brokers.rows({t.requested.topic_id for t in living} - {""}))
    return [ExistingTopic(t.requested, sizes.get(t.requested.topic_id)) for t in living]


def bytes_by_topic(rows: Mapping[int, Iterable[Mapping[str, Any]]]) -> dict[str, int]:
    """The bytes of each topic id in snapshot rows, given by node: no more than a request can say, whatever hosts do."""
    sizes: dict[str, int] = {}
    for row in chain.from_iterable(rows.values()):
        if row["row"] == "dir":
            sizes[row["topic_id"]] = min(LARGEST_COUNT, sizes.get(row["topic_id"], 0) + row["bytes"])
    return sizes


def ask(call: Call, place: Place, plan: DeletionPlan, *, execute: bool, approve: str | None, timeout: float) -> None:
    """Show the plan; with `execute` (and any approval it needs) make the request and carry it out."""
    at = now()
    plan_id = approve if approve is not None and plan.is_approved(approve, at) is None else plan.plan_id(at)
    refused = plan.is_approved(approve, at) if plan.approval or approve is not None else None
    nothing = not plan.topics and not plan.directories
    going = execute and refused is None and not nothing
    document: TopicsPlanDoc = plan_document(
        plan, plan_id, at, refused if plan.approval or approve else None, execute=going
    )
    if refused is not None and not nothing:
        call.record_status(Exit.APPROVAL)
    for left_out in plan.dropped:
        hint = f" ({left_out.hint})" if left_out.hint else ""
        call.say(f"topics: {left_out.what} is left out: {left_out.why}{hint}")
    if execute and plan.dropped:
        call.record_status(Exit.REFUSED)
    if not going:
        _show_plan(call, document)
        return
    request = _make_request(call, place, plan, plan_id, at, approved=approve is not None)
    document["request_id"] = request.request_id
    call.say(f"topics: request {request.request_id} is open")
    try:
        rounds = place.rounds(signing=True)
        left = _run_until_done(call, rounds, request.request_id, timeout)
    except (LogAgentError, KeyboardInterrupt):
        call.say(_still_open(request.request_id))
        raise
    progress = document["progress"] = progress_document(rounds)
    if rounds.dropped:
        tell_dropped(call)
    if left and timeout > 0:
        call.record_status(Exit.REFUSED)
    if call.json:
        dump(document)
        return
    _show_plan(call, document)
    show_progress(call, progress)
    if left:
        call.say(
            f"requested, not done yet: request {request.request_id}; logagent topics run carries it out,"
            " logagent topics status --watch shows progress"
        )


def tell_dropped(call: Call) -> None:
    """A controller dropped topics (and named each): that fails, for good."""
    call.record_status(Exit.FAILED)
    call.say(
        "topics: what is dropped is never deleted by its request, whatever is changed later; where deletion is"
        " disabled, set delete.topic.enable=true on every broker and controller first, then request it again"
    )


def _still_open(request_id: str) -> str:
    return (
        f"topics: request {request_id} stays open: `logagent topics run` carries it out,"
        f" `logagent topics cancel {request_id}` cancels it"
    )


def ask_nothing(call: Call, cluster_id: str | None) -> None:
    """Show an empty plan. Without a row of a report there may be no cluster to name."""
    at, plan = now(), DeletionPlan("directories", cluster_id or "")
    _show_plan(call, plan_document(plan, plan.plan_id(at), at, None, execute=False))


def _make_request(
    call: Call, place: Place, plan: DeletionPlan, plan_id: str, at: datetime, *, approved: bool
) -> Request:
    rounds = place.rounds(signing=True)
    highest = rounds.highest_epoch()
    request = Request(
        f"{at:%Y%m%dt%H%M%S}-{secrets.token_hex(4)}",
        plan.cluster_id,
        plan.kind,
        plan_id,
        who(),
        instant(at),
        instant(at + LIFETIME),
        highest.epoch if highest is not None else 0,
        approved,
        plan.no_retention,
        plan.topics,
        plan.directories,
    )
    # Validate first what every reader will validate: a report can contain anything.
    decode(Request, encode(request))
    try:
        if not write_request(rounds.setting.control, request, rounds.setting.key):
            raise LogAgentError(f"request {request.request_id} exists already", hint="try again")
    except TooLarge as error:
        raise UsageError(f"this is too much for one request, nothing was requested: {error}", hint=FEWER) from error
    except (ServiceUnreachable, KeyboardInterrupt):
        call.say(f"topics: request {request.request_id} may have been made: `logagent topics status` shows it then")
        raise
    return request


def _run_until_done(call: Call, rounds: DeletionRounds, request_id: str, timeout: float) -> bool:
    """Run rounds (at least one) until the request is done or the time is over; whether something is left."""
    deadline = time.monotonic() + timeout
    try:
        rounds.start()
        while True:
            rounds.round()
            if rounds.requests.closed.get(request_id) is None:
                rounds.requests.refresh()
            if rounds.states.of(request_id) in ("done", "dropped"):
                return False
            if time.monotonic() + ROUND_SECONDS > deadline:
                return True
            time.sleep(ROUND_SECONDS)
    except EpochLost as error:
        call.say(f"topics: {error}: that controller carries out the request")
        return True


def plan_document(
    plan: DeletionPlan, plan_id: str, at: datetime, refused: str | None, *, execute: bool
) -> TopicsPlanDoc:
    return {
        "schema": "logagent.topics-plan/1",
        "at": instant(at),
        "cluster_id": plan.cluster_id,
        "kind": plan.kind,
        "plan_id": plan_id,
        "mode": "execute" if execute else "dry-run",
        "topics": [
            {"topic": t.topic, "topic_id": t.topic_id, "partitions": len(t.partitions),
             "replicas": sum(len(p.replicas) for p in t.partitions)}
            for t in plan.topics
        ],
        "directories": [cast(PlannedDirectory, asdict(d)) for d in plan.directories],
        "dropped": [cast(LeftOut, asdict(d)) for d in plan.dropped],
        "approval": {"needed": list(plan.approval), "refused": refused},
        "bytes": plan.bytes,
        "request_id": None,
        "progress": None,
    }  # fmt: skip


def _show_plan(call: Call, document: TopicsPlanDoc) -> None:
    if call.json:
        dump(document)
        return
    asked = "asked for" if document["mode"] == "execute" else "nothing was requested"
    title = f"Plan {document['plan_id']} ({asked})"
    if document["topics"]:
        rows = [[t["topic"], t["topic_id"], str(t["partitions"]), str(t["replicas"])] for t in document["topics"]]
        columns = [("topic", "left"), ("topic id", "left"), ("partitions", "right"), ("replicas", "right")]
        table(title, columns, rows, color=call.color)
    if document["directories"]:
        rows = [
            [str(d["node_id"]), f"{d['log_dir']}/{d['name']}", d["kind"], "only copy" if d["only_copy"] else "",
             human_bytes(d["bytes"])]
            for d in document["directories"]
        ]  # fmt: skip
        columns = [("node", "right"), ("directory", "path"), ("kind", "left"), ("", "left"), ("size", "right")]
        table(title, columns, rows, color=call.color)
    if not document["topics"] and not document["directories"]:
        call.say("nothing to do")
        return
    for why in document["approval"]["needed"]:
        call.say(f"it needs an approval: {why}")
    if document["approval"]["refused"] is not None:
        call.say(f"{document['approval']['refused']}; read the plan, then: --execute --approve {document['plan_id']}")
    elif document["mode"] == "dry-run":
        call.say("add --execute to request it")


def close(call: Call, request_id: str, outcome: Outcome, options: Mapping[str, Any]) -> None:
    """`topics cancel` and `topics resume`."""
    rounds = Place(call, **options).rounds(signing=True)
    rounds.look()
    if request_id not in rounds.requests.requests:
        known = ", ".join(r.request_id for r in rounds.states.not_closed()) or "none is open"
        raise UsageError(f"there is no request {request_id}", hint=f"open requests: {known}")
    state = rounds.states.of(request_id)
    if state in ("done", "cancelled", "dropped"):
        raise UsageError(f"request {request_id} is {state} already")
    done = [r for r, p in rounds.context.replicas.items()
            if r.topic.request_id == request_id and p.state is ReplicaState.SUCCESSFUL]  # fmt: skip
    rounds.start()
    rounds.close(request_id, outcome)
    if call.json:
        rounds.requests.refresh()
        dump(progress_document(rounds))
    else:
        call.say(f"request {request_id} is {outcome}")
        if outcome == "cancelled" and done:
            nodes = ", ".join(str(node) for node in sorted({r.node_id for r in done}))
            call.say(
                f"{len(done)} replicas were set aside or removed before; on nodes {nodes}"
                " `logagent restore` brings back what still exists"
            )
