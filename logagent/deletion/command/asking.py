"""Turns a plan into a request, and sees it through until it is done or the time is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from secrets import token_hex
from typing import cast

from logagent.base.console.options import Call
from logagent.base.console.render import dump, human_bytes, table
from logagent.base.errors import Exit, LogAgentError, ServiceUnreachable, UsageError
from logagent.base.times import instant
from logagent.deletion.command.opening import Place, now, requested, who
from logagent.deletion.command.progress import progress_document, show_progress
from logagent.deletion.controller.deletion_plan import DeletionPlan, ExistingTopic, asked_lately
from logagent.deletion.controller.deletions import Deletions
from logagent.deletion.controller.topic_deletion_manager import (
    FAILED,
    RequestState,
    Sightings,
    TopicDeletionManager,
    request_state,
)
from logagent.deletion.documents import LeftOut, PlannedDirectory, TopicsPlanDoc
from logagent.deletion.store.requests import (
    LIFETIME,
    SEND_WITHIN,
    Approval,
    Request,
    TooLarge,
    decode,
    encode,
    write_request,
)

ROUND_SECONDS = 2.0
FEWER = "ask for fewer at a time: topics by --topic, directories by --host, --kind, --reason or --larger too"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a plan has to take into account of the requests there are. `open`: those that may still delete something."""

    open: tuple[Request, ...]
    lately: tuple[Request, ...]


def standing(deletions: Deletions) -> Standing:
    """The requests that are open, and those of the last day without an approval. Raises ServiceUnreachable."""
    setting = deletions.setting
    filed = deletions.reader.folder.read().values()
    requests = [f.request for f in filed if f.request is not None]
    at = setting.clock()
    still = [f.request for f in filed if f.request is not None and not f.is_over and not f.is_left(at)]
    return Standing(tuple(r for r in still if at < r.ends_at), tuple(asked_lately(requests, at)))


def topics_of_cluster(place: Place, deletions: Deletions) -> list[ExistingTopic]:
    """Every topic that the cluster lists, with its current replicas and (if snapshots have them) its bytes."""
    from logagent.kafka.admin.reader import AdminReader

    servers, config = place.connection()
    with AdminReader(servers, config) as reader:
        image = reader.image(int(now().timestamp() * 1000))
    if image.cluster_id != deletions.setting.control.cluster_id:
        ours = deletions.setting.control.cluster_id
        raise LogAgentError(f"the cluster at {servers} is {image.cluster_id}, not {ours}")
    living = [ExistingTopic(requested(topic)) for topic in image.by_name.values()]
    sizes = deletions.reader.sizes({t.requested.topic_id for t in living} - {""})
    return [ExistingTopic(t.requested, sizes.get(t.requested.topic_id)) for t in living]


def ask(call: Call, place: Place, plan: DeletionPlan, *, execute: bool, approve: Sequence[str], timeout: float) -> None:
    """Show the plan; with `execute` (and the approvals it needs) make the request and carry it out."""
    at = now()
    words, refused = plan.approved(approve, at)
    nothing = not plan.topics and not plan.directories
    going = execute and refused is None and not nothing
    shown_id = next((a.partition(":")[0] for a in approve if words and refused is None), plan.plan_id(at))
    document = plan_document(plan, shown_id, at, refused, execute=going)
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
    deletions = place.deletions(signing=True)
    number = document["request_id"] = _make_request(call, deletions, plan, shown_id, words, at)
    call.say(f"topics: request {number} is in the store")
    if timeout <= 0 and plan.kind == "directories":
        call.say("topics: asked, not done: its hosts' agents carry it out, `logagent topics status` shows it")
        _show_plan(call, document)
        return
    try:
        state, seen = _until_over(deletions, number, timeout)
    except (LogAgentError, KeyboardInterrupt):
        with suppress(LogAgentError):
            deletions.give_up(number)
        call.say(f"topics: request {number} is not done: `logagent topics status` shows whether it was decided,"
                 f" `logagent topics cancel {number}` cancels it")  # fmt: skip
        raise
    progress = document["progress"] = progress_document(seen, deletions, number)
    if timeout <= 0 and not state.is_over:
        call.say("topics: decided, not done: `logagent topics run` goes on with it, `logagent topics status` shows it")
    else:
        say_how_it_ends(call, number, state, deletions)
    if call.json:
        dump(document)
        return
    _show_plan(call, document)
    show_progress(call, progress)


def say_how_it_ends(call: Call, number: str, state: RequestState, deletions: Deletions) -> None:
    """Status and last words for one request: true whatever it came to."""
    if state.state in FAILED:
        call.record_status(Exit.FAILED)
        again = "; it is over: enable deletion, then request it again" if state.state == "disabled" else ""
        call.say(f"topics: request {number} is {state.state}: {state.why}{again}")
    elif not state.is_over:
        call.record_status(Exit.REFUSED)
        why = deletions.waits.get(number) or state.why or "`logagent topics status` shows what is missing"
        call.say(f"topics: request {number} is not done yet: {why}; `logagent topics run` goes on with it")
    elif state.state != "done":
        call.record_status(Exit.REFUSED)
        call.say(f"topics: request {number} is {state.state}{': ' if state.why else ''}{state.why}")


def ask_nothing(call: Call, cluster_id: str | None) -> None:
    """Show an empty plan. Without a row of a report there may be no cluster to name."""
    at, plan = now(), DeletionPlan("directories", cluster_id or "")
    _show_plan(call, plan_document(plan, plan.plan_id(at), at, None, execute=False))


def _make_request(
    call: Call, deletions: Deletions, plan: DeletionPlan, plan_id: str, words: tuple[Approval, ...], at: datetime
) -> str:
    setting = deletions.setting
    assert setting.key is not None
    lasts = SEND_WITHIN if plan.kind == "topics" else LIFETIME
    nodes = {n for t in plan.topics for p in t.partitions for n in p.replicas} | {d.node_id for d in plan.directories}
    request = Request(
        plan.cluster_id, plan.kind, plan_id, who(), instant(at), instant(at + lasts), token_hex(16), words, plan.topics,
        plan.directories, owners=deletions.reader.owners(nodes),
    )  # fmt: skip
    # Validate first what every reader will validate: a report can contain anything.
    decode(Request, encode(request))
    setting.control.prepare()
    try:
        number = write_request(setting.control, request, setting.key)
    except TooLarge as error:
        raise UsageError(f"this is too much for one request, nothing was requested: {error}", hint=FEWER) from error
    except (ServiceUnreachable, KeyboardInterrupt):
        call.say("topics: a request may have been made: `logagent topics status` shows it then")
        raise
    if plan.kind == "topics":
        setting.wrote.add(number)
    return number


def _until_over(deletions: Deletions, number: str, timeout: float) -> tuple[RequestState, Sightings]:
    """Rounds (at least one) until the request is over or the time is."""
    deadline = time.monotonic() + timeout
    try:
        while True:
            seen = deletions.round()
            state = state_of(seen, deletions, number)
            if not state.is_over and time.monotonic() + ROUND_SECONDS > deadline and number in deletions.setting.wrote:
                deletions.give_up(number)
                seen = deletions.reader.read()
                state = state_of(seen, deletions, number)
            if state.is_over or time.monotonic() + ROUND_SECONDS > deadline:
                return state, seen
            time.sleep(ROUND_SECONDS)
    finally:
        deletions.stop()


def state_of(seen: Sightings, deletions: Deletions, number: str) -> RequestState:
    filed = seen.filed.get(number)
    if filed is None:
        raise LogAgentError(f"request {number} is gone from the store", hint="see who can remove files there")
    manager = TopicDeletionManager(seen, deletions.setting.silent_after)
    return request_state(filed, manager.progress(filed), seen)


def plan_document(
    plan: DeletionPlan, plan_id: str, at: datetime, refused: str | None, *, execute: bool
) -> TopicsPlanDoc:
    return {
        "schema": "logagent.topics-plan/2",
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
        "approval": {"needed": [{"word": n.word, "why": n.why} for n in plan.approval], "refused": refused},
        "bytes": plan.bytes,
        "request_id": None,
        "progress": None,
    }  # fmt: skip


def _show_plan(call: Call, document: TopicsPlanDoc) -> None:
    if call.json:
        dump(document)
        return
    asked = "requested" if document["mode"] == "execute" else "nothing was requested"
    title = f"Plan {document['plan_id']} ({asked})"
    if document["topics"]:
        rows = [[t["topic"], t["topic_id"], str(t["partitions"]), str(t["replicas"])] for t in document["topics"]]
        columns = [("topic", "dir"), ("topic id", "left"), ("partitions", "right"), ("replicas", "right")]
        table(title, columns, rows, color=call.color)
    if document["directories"]:
        rows = [
            [str(d["node_id"]), f"{d['log_dir']}/{d['name']}", d["kind"], "only copy" if d["only_copy"] else "",
             human_bytes(d["bytes"])]
            for d in document["directories"]
        ]  # fmt: skip
        columns = [("node", "right"), ("directory", "dir"), ("kind", "left"), ("", "left"), ("size", "right")]
        table(title, columns, rows, color=call.color)
    if not document["topics"] and not document["directories"]:
        call.say("nothing to do")
        return
    needed = document["approval"]["needed"]
    for each in needed:
        verb = "approved" if document["mode"] == "execute" else "it needs the approval"
        call.say(f"{verb} {each['word']}: {each['why']}")
    if document["approval"]["refused"] is not None:
        words = ",".join(dict.fromkeys(each["word"] for each in needed))
        suffix = f" --approve {document['plan_id']}:{words}" if words else ""
        call.say(f"{document['approval']['refused']}; read the plan, then: --execute{suffix}")
    elif document["mode"] == "dry-run":
        call.say("add --execute to request it")
