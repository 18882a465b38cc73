"""Makes, shows and carries out the plan of an acting command: the same steps for cleanup, delete and restore."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

import click

from logagent.base.claims import since_when
from logagent.base.console.options import Call
from logagent.base.console.render import (
    dump,
    human_bytes,
    human_ms,
    said_on_stderr,
    short_name,
    show_line,
    table,
    until_in_words,
)
from logagent.base.errors import Exit
from logagent.base.records import ActionKind, Outcome, PartitionDir
from logagent.base.units import counted, human_time, rfc3339, rfc3339_or_none
from logagent.cleanup.plan.plan import Execution, Plan, PlanGuard, Proposal, Refusal, action_id
from logagent.cleanup.plan.proposals import OWNERSHIP
from logagent.cleanup.session.of_command import (
    Progress,
    Stopper,
    note_health,
    nothing_is_due,
    read_assignments,
    say_where_they_end,
    session_of,
    take_inventory,
)
from logagent.cleanup.session.session import Session
from logagent.disk.calls import Stop, never
from logagent.verdict.facts import Facts

if TYPE_CHECKING:
    from logagent.cleanup.commands.documents import ActionDoc, PlanDoc, RefusalDoc
    from logagent.cleanup.execute.log_manager import LogManager
    from logagent.cleanup.state.journal import CheckpointEntry

MakePlan = Callable[[Session, Facts], Plan]
ReadFacts = Callable[[Sequence[PartitionDir]], Facts]
Act = Callable[["LogManager"], tuple[Plan, Execution]]


@dataclass(frozen=True, slots=True)
class Done:
    """A plan, its outcome (None: a dry run), and the document with both."""

    plan: Plan
    execution: Execution | None
    document: PlanDoc


def run_plan(call: Call, make_plan: MakePlan, *, execute: bool) -> None:
    """Gather facts, plan, and with `execute` act; then print the plan with the outcome, and set the exit status."""
    with session_of(call, act=execute, to_plan=True) as session:
        read_assignments(session, call)
        take_inventory(session, call)
        facts = session.facts()
        session.remember(facts)
        say_where_they_end(session, call)
        done = carry_out(call, session, make_plan(session, facts), execute=execute)
        note_health(call, facts)
    set_status(call, done.plan, done.execution)
    with said_on_stderr(call.say, closing(done.plan, done.document)):
        if call.json:
            dump(done.document)
        else:
            show_plan(call, done)


def carry_out(
    call: Call,
    session: Session,
    plan: Plan,
    *,
    execute: bool,
    stop: Stop = never,
    read_facts: ReadFacts | None = None,
    act: Act | None = None,
) -> Done:
    """Carry out `plan` if `execute`; SIGINT and SIGTERM end it between two files, as `stop` does.

    `read_facts`: how facts are gathered again (default: as the session does). `act`: what carries it out, and returns
    what the plan became (default: `LogManager.execute`).
    """
    drops = session.checkpoint_drops(plan)
    execution = None
    if execute:
        removing = sum(p.dir.allocated for p in plan.actions if p.action is ActionKind.REMOVE)
        with Stopper(call) as stopper, Progress(call, "Removing", total=removing) as progress:
            manager = session.log_manager(stop=lambda: stopper() or stop(), on_progress=progress.on_bytes)
            manager = manager if read_facts is None else replace(manager, read_facts=read_facts)
            plan, execution = act(manager) if act is not None else (plan, manager.execute(plan))
    mode: Literal["dry-run", "execute"] = "execute" if execute else "dry-run"
    return Done(plan, execution, plan_document(session, plan, call.host, mode=mode, execution=execution, drops=drops))


def set_status(call: Call, plan: Plan, execution: Execution | None) -> None:
    if plan.needs_approval is not None:
        call.record_status(Exit.APPROVAL)
    if execution is None:
        return
    if any(r.outcome is Outcome.FAILED for r in execution.results.values()):
        call.record_status(Exit.FAILED)
    stopped = any(r.outcome in (Outcome.YIELDED, Outcome.SKIPPED) for r in execution.results.values())
    if plan.refusals or execution.refusals or stopped:
        call.record_status(Exit.REFUSED)


def show_plan(call: Call, done: Done) -> None:
    """The plan as tables for a person."""
    document, plan = done.document, done.plan
    executed = document["mode"] == "execute" and plan.needs_approval is None
    if document["actions"]:
        columns = [("action", "left"), ("directory", "dir"), ("becomes", "name?"), ("why", "text"), ("says", "left?")]
        columns += [("allocated", "right"), ("size", "right?")]
        rows = [
            [a["action"], f"{a['log_dir']}/{a['name']}", a["new_name"] or "", _why(a), _who_says(a),
             human_bytes(a["allocated"]), human_bytes(a["bytes"]), *([a["outcome"] or ""] if executed else [])]
            for a in document["actions"]
            if call.verbose or a["action"] != "drop-checkpoint-entry"
        ]  # fmt: skip
        title = f"Plan {plan.plan_id}" + ("" if executed else " (not carried out)")
        table(title, [*columns, *([("outcome", "left")] if executed else [])], rows, color=call.color)
        witnesses = [f"{witness.value} as of {at}" for witness, at in document["as_of"].items()]
        call.detail(f"it rests on: {', '.join(witnesses)}" if witnesses else "it rests on nothing that changes")
    show_waiting(call, plan)
    show_refusals(call, document["refusals"])
    say_how_it_ends(call, plan, document)


def say_how_it_ends(call: Call, plan: Plan, document: PlanDoc) -> None:
    """What went wrong with single directories, and the closing sentence."""
    for a in document["actions"]:
        if a["error"]:
            call.say(f"{a['outcome']}: {a['log_dir']}/{a['name']}: {a['error']}")
    call.say(closing(plan, document))


def _why(action: ActionDoc) -> str:
    return f"{action['reason']}: {action['fact']}" if "fact" in action else action["reason"]


def _who_says(action: ActionDoc) -> str:
    """Who says whose the directory is, and that another copy covers it."""
    witnesses = (c["witness"].value for c in action["claims"] if c["claim"] in OWNERSHIP)
    return ", ".join(dict.fromkeys(witnesses))


def show_waiting(call: Call, plan: Plan) -> None:
    if plan.waiting:
        dated = [(w.key, at) for w in plan.waiting if (at := w.why.until_ms) is not None]
        dates = {key: f"{human_time(at)} (in {human_ms(at - plan.made_at_ms)})" for key, at in dated}
        rows = [
            [w.action, "/".join(w.key), human_bytes(w.dir.allocated), human_bytes(w.dir.bytes), w.why.fact,
             until_in_words(w.why, dates.get(w.key, ""), once="")]
            for w in plan.waiting
        ]  # fmt: skip
        columns = [
            ("action", "left"),
            ("directory", "dir"),
            ("allocated", "right?"),
            ("size", "right?"),
            ("waits for", "text"),
            ("until", "text"),
        ]
        table("Waiting", columns, rows, color=call.color)


def show_refusals(call: Call, refusals: Sequence[RefusalDoc]) -> None:
    if not refusals:
        return
    rows = [[r["guard"], f"{r['log_dir']}/{r['name']}" if r["name"] else "the whole plan", r["fact"]] for r in refusals]
    table("Refused", [("guard", "left"), ("directory", "dir"), ("saw", "text")], rows, color=call.color)
    # Once for all that it helps, below the table: in it the same lines would stand beside each of them.
    helped: dict[tuple[str, str], list[str]] = {}
    for r in refusals:
        helped.setdefault((r["guard"], r["hint"]), []).append(r["name"] or "the whole plan")
    for (guard, hint), names in helped.items():
        what = short_name(names[0]) if len(names) == 1 else f"{len(names)} directories"
        show_line(f"what to do, {guard}, {what}: {hint}")
    # Not folded: they are to be pasted.
    for command in dict.fromkeys(r["command"] for r in refusals if "command" in r):
        click.echo(f" {command}")
    click.echo()


def closing(plan: Plan, document: PlanDoc) -> str:
    """The last sentence of a command, which agrees with what the plan came to: done, due and what to add, refused, or
    not due yet."""
    totals = document["totals"]
    refused = sum(1 for r in document["refusals"] if r["name"])
    beside = f"; {refused} refused, see above" if refused else ""
    if document["mode"] == "execute" and plan.needs_approval is None and totals["actions"]:
        rows = [a for a in by_directory(document["actions"]) if a["action"] != "drop-checkpoint-entry"]
        done = sum(a["outcome"] == "done" for a in rows)
        return f"{done} of {len(rows)} done{_freed(document)}{beside}"
    if totals["actions"]:
        also = f" ({refused} refused)" if refused else ""
        what = counted(totals["actions"], "directory")
        add = "--execute" if plan.needs_approval is None else f"--execute --approve {plan.plan_id}"
        needs = "" if plan.needs_approval is None else " it needs approval: read the plan, then"
        size = human_bytes(document["rescue"]["gives_back"] if "rescue" in document else totals["bytes"])
        return f"{what}, {size}{also}: nothing has been done yet;{needs} add {add}"
    if totals["refusals"]:
        all_of_it = (
            "the whole plan is refused" if refused == 0 else f"all {refused} are refused" if refused > 1 else "refused"
        )
        tense = "was" if document["mode"] == "execute" else "would be"
        return f"nothing {tense} done: {all_of_it}, see above"
    return nothing_is_due([w.why.until_ms for w in plan.waiting], plan.made_at_ms) if plan.waiting else "nothing to do"


def by_directory(actions: Sequence[ActionDoc]) -> list[ActionDoc]:
    """One row for each directory, as the plan had it: what a rescue set aside and then removed has the outcome of its
    removal."""
    removals = {a["name"]: a for a in actions if a["action"] == ActionKind.REMOVE}
    then = {a["id"]: removals[a["new_name"]] for a in actions if a["new_name"] in removals}
    ends = {a["id"] for a in then.values()}
    return [
        {**a, "outcome": then[a["id"]]["outcome"], "error": then[a["id"]]["error"]} if a["id"] in then else a
        for a in actions
        if a["id"] not in ends
    ]


def _freed(document: PlanDoc) -> str:
    """The blocks of what was removed, and what came back of them where that is less."""
    freed = document["totals"]["freed_bytes"]
    if "rescue" in document and document["rescue"]["why_less"]:
        return f", {human_bytes(freed)} removed, {human_bytes(document['rescue']['came'] or 0)} more free"
    return f", {human_bytes(freed)} freed" if freed else ""


def plan_document(
    session: Session,
    plan: Plan,
    host: str,
    *,
    mode: Literal["dry-run", "execute"],
    execution: Execution | None = None,
    drops: Mapping[str, tuple[CheckpointEntry, ...]] = MappingProxyType({}),
) -> PlanDoc:
    """`logagent.plan/1`, with outcomes where the plan was executed."""
    refusals = [*plan.refusals, *(execution.refusals if execution is not None else ())]
    actions = [_action_row(p, plan, execution) for p in plan.actions]
    actions += [
        _drop_row(row, entry)
        for row in list(actions)
        for entry in drops.get(row["id"], ())
        if row["action"] is not ActionKind.RESTORE
    ]
    return {
        "schema": "logagent.plan/1",
        "at": rfc3339(plan.made_at_ms),
        "host": host,
        "cluster_id": session.log_dirs.cluster.cluster_id,
        "node_id": session.log_dirs.cluster.node_id,
        "plan_id": plan.plan_id,
        "mode": mode,
        "assignments": session.assignments.document(plan.made_at_ms),
        "as_of": {witness: rfc3339(ms) for witness, ms in since_when(plan.proofs.values()).items()},
        "actions": actions,
        "refusals": [_refusal_row(r, plan) for r in refusals],
        "waiting": [
            {
                "log_dir": w.dir.log_dir,
                "name": w.dir.name,
                "action": w.action,
                "reason": w.why.fact,
                "until": rfc3339_or_none(w.why.until_ms),
                "sightings": w.sightings,
                "bytes": w.dir.bytes,
                "allocated": w.dir.allocated,
                "claim": w.why.claim,
                "verdict": plan.verdicts.get(w.key),
            }
            for w in plan.waiting
        ],
        "totals": {
            "actions": len(plan.actions),
            "bytes": plan.allocated,
            "refusals": len(refusals),
            "waiting": len(plan.waiting),
            "freed_bytes": execution.freed_bytes if execution is not None else 0,
        },
    }


def _action_row(p: Proposal, plan: Plan, execution: Execution | None) -> ActionDoc:
    number, proof, stray = action_id(p), plan.proofs.get(p.key, ()), plan.strays.get(p.key)
    result = execution.results.get(number) if execution is not None else None
    row: ActionDoc = {
        "id": number,
        "action": p.action,
        "log_dir": p.dir.log_dir,
        "name": p.dir.name,
        "new_name": p.new_name,
        "topic": p.full_topic or p.dir.topic,
        "partition": p.dir.partition,
        "topic_id": p.dir.topic_id,
        "reason": p.reason,
        "bytes": p.dir.bytes,
        "allocated": p.dir.allocated,
        "sightings": p.sightings,
        "due_at": rfc3339_or_none(p.due_at_ms),
        "claims": [{"claim": held.claim, "witness": held.witness} for held in proof],
        "outcome": result.outcome if result is not None else None,
        "error": result.error if result is not None else None,
        "verdict": plan.verdicts.get(p.key),
    }
    if p.leftovers:
        row["files"] = list(p.leftovers)
    if stray is not None and stray.ruling is not None:
        row["fact"] = stray.why.fact
    return row


def _drop_row(rename: ActionDoc, entry: CheckpointEntry) -> ActionDoc:
    """An offset checkpoint entry that is removed with its rename (and put back by a restore)."""
    digest = hashlib.sha256(f"{rename['id']} {entry.file}".encode()).hexdigest()
    return {
        **rename,
        "id": digest[:12],
        "action": ActionKind.DROP_CHECKPOINT_ENTRY,
        "new_name": None,
        "reason": f"{entry.file}: offset {entry.offset}",
        "bytes": 0,
        "allocated": 0,
        "sightings": 0,
        "due_at": None,
        "claims": [],
        "error": None,
    }


def _refusal_row(r: Refusal, plan: Plan) -> RefusalDoc:
    row: RefusalDoc = {
        "log_dir": r.key.log_dir,
        "name": r.key.name,
        "guard": cast(PlanGuard, r.why.code),
        "fact": r.why.fact,
        "hint": r.why.hint,
        "bytes": r.bytes,
        "allocated": r.allocated,
        "claim": r.why.claim,
        "verdict": plan.verdicts.get(r.key),
    }
    if r.why.command is not None:
        row["command"] = r.why.command
    return row
