"""`logagent rescue`: the disk is full; what can be freed, and at what cost."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from logagent.base.config.settings import parse_size
from logagent.base.console.options import Call, common, includes_internal, or_dry_run, reads_assignments
from logagent.base.console.render import dump, human_bytes, human_ms, said_on_stderr, show_line, table
from logagent.base.errors import Exit, UsageError
from logagent.base.records import DirKey, Health
from logagent.base.units import Space, counted, rfc3339_or_none
from logagent.cleanup.plan.plan import Execution
from logagent.cleanup.rescue.plan_rescue import (
    carry_out_rescue,
    file_systems,
    free_room,
    plan_rescue,
)
from logagent.cleanup.rescue.rules import EARLY, BrokersPart, Rescue, RetentionAdvice
from logagent.cleanup.run_plan import (
    by_directory,
    closing,
    plan_document,
    say_how_it_ends,
    set_status,
    show_refusals,
    show_waiting,
)
from logagent.cleanup.session.of_command import (
    NETWORK_SECONDS,
    Progress,
    Stopper,
    needs_log_dirs,
    note_health,
    read_assignments,
    say_where_they_end,
    session_of,
    take_inventory,
)
from logagent.cleanup.session.session import Session
from logagent.kafka.retention.settings import LOCAL_RETENTION
from logagent.verdict.facts import Facts, unread_words

if TYPE_CHECKING:
    from logagent.cleanup.commands.documents import PlanDoc, RescueDoc, RescueRoom, RetentionDoc

Room = Mapping[str, Space]
# Kept directories shown without -v, largest first.
KEPT_SHOWN = 10


def add_rescue(document: PlanDoc, rescue: Rescue, room_after: Room) -> None:
    """Add to the plan's document which step each action is, and everything else that a rescue reports."""
    aside = {(o.proposal.new_dir or o.key[0], o.proposal.new_name): o for o in rescue.offers.values()}
    for action in document["actions"]:
        key = DirKey(action["log_dir"], action["name"])
        offer = rescue.offers.get(key) or aside.get(key)
        if offer is not None:
            action["step"] = offer.step
            action["cost"] = offer.cost
            action["gives_back"] = offer.gives_back if key in rescue.offers else 0
            action["shortens"] = offer.shortens
            if offer.shortens is not None:
                action["due_at"] = rfc3339_or_none(offer.goes_at_ms)
    nothing_done = document["mode"] == "execute" and rescue.came is None
    document["rescue"] = rescue_document(rescue, room_after, rescue.need or 0 if nothing_done else rescue.missing)


def rescue_document(rescue: Rescue, room_after: Room, missing: int) -> RescueDoc:
    return {
        "need": rescue.need,
        "missing": missing,
        "came": rescue.came.bytes if rescue.came is not None else None,
        "why_less": _why_less(rescue),
        "gives_back": rescue.gives_back,
        "more": rescue.more,
        "room": _room(rescue.free),
        "room_after": _room(room_after),
        "removed_by_hand": [
            {
                "log_dir": r.log_dir,
                "file": r.file.path,
                "pid": r.file.pid,
                "program": r.program,
                "descriptor": r.file.descriptor,
                "bytes": r.file.bytes,
                "allocated": r.file.allocated,
                "is_holder": r.is_holder,
            }
            for r in rescue.removed_by_hand
        ],
        "open_removed": [
            {"log_dir": o.log_dir, "pid": o.pid, "program": o.program, "bytes": o.bytes, "is_holder": o.is_holder}
            for o in rescue.open_removed
        ],
        "unread_processes": rescue.unread_processes or 0,  # none read: each refusal says so
        "retention": _advice(rescue.by_broker.retention),
        "local_retention": _advice(rescue.by_broker.local_retention),
        "expired": [
            {"topic": e.topic, "bytes": e.bytes, "retention_ms": e.retention_ms} for e in rescue.by_broker.expired
        ],
        "compacted": [
            {"topic": topic, "bytes": size, "cleanup_policy": policy}
            for topic, size, policy in rescue.by_broker.compacted
        ],
        "no_retention": [
            {"topic": topic, "bytes": size, "reason": why} for topic, size, why in rescue.by_broker.no_retention
        ],
        "kept": [
            {"log_dir": k.log_dir, "name": k.name, "reason": k.reason, "detail": k.detail, "bytes": k.bytes}
            for k in rescue.kept
        ],
    }


def _advice(advice: Sequence[RetentionAdvice]) -> list[RetentionDoc]:
    return [
        {
            "topic": a.topic,
            "bytes": a.bytes,
            "cleanup_policy": a.policy,
            "retention_ms": a.retention_ms,
            "retention_now_ms": a.now_ms,
            "gives_back": a.gives_back[a.retention_ms],
            "command": a.command,
            "steps": [{"retention_ms": step, "gives_back": size} for step, size in a.gives_back.items()],
        }
        for a in advice
    ]


def _room(room: Room) -> list[RescueRoom]:
    return [{"log_dir": path, "free": free.bytes, "inodes_free": free.inodes} for path, free in room.items()]


def show_rescue(call: Call, document: PlanDoc, rescue: Rescue, *, executed: bool) -> None:
    """In the order in which an operator should act: first what is lost otherwise, then what costs nothing, last what
    only the broker can do."""
    _show_removed_by_hand(call, rescue)
    if rescue.open_removed:
        rows = [
            [str(o.pid), o.program or "", o.log_dir, human_bytes(o.bytes),
             "restart the broker" if o.is_holder else "restart it"]
            for o in rescue.open_removed
        ]  # fmt: skip
        columns = [("process", "right"), ("program", "path"), ("log dir", "path"), ("frees", "right"), ("cost", "text")]
        table("Removed files that a process keeps open (by hand)", columns, rows, color=call.color)
    if unread := unread_words(rescue.unread_processes):
        # Here root has become the user of the state dir. What root may not read, nobody here can show.
        more = "; logagent scan --json as root counts those (open_removed)" if os.geteuid() != 0 else ""
        call.say(f"{unread}: removed files that they keep open are not listed{more}")
    if document["actions"]:
        rows = [
            [a.get("step", ""), f"{a['log_dir']}/{a['name']}", human_bytes(a.get("gives_back", 0)),
             "early" if a.get("shortens") else "due", *([a["outcome"] or ""] if executed else [])]
            for a in by_directory(document["actions"])
            if call.verbose or a["action"] != "drop-checkpoint-entry"
        ]  # fmt: skip
        columns = [("step", "left"), ("directory", "dir"), ("frees", "right"), ("when", "left")]
        columns += [("outcome", "left")] if executed else []
        title = f"Plan {document['plan_id']}" + ("" if executed else " (not carried out)")
        table(title, columns, rows, color=call.color)
        # Once for each step: in the table they would be most of it.
        costs = ((a["step"], a["cost"], a["shortens"]) for a in document["actions"] if "step" in a)
        for step, cost, waits in dict.fromkeys(costs):
            show_line(f"cost of {step}: {cost}" + (f"; early, without waiting for {waits}" if waits else ""))
        click.echo()
    _show_files(call, document)
    show_waiting(call, rescue.plan)
    _show_by_broker(call, rescue.by_broker)
    _show_kept(call, rescue)
    early = [r for r in document["refusals"] if r["fact"].startswith(EARLY) and not call.verbose]
    show_refusals(call, [r for r in document["refusals"] if r not in early])
    for room in document["rescue"]["room_after"] if executed else document["rescue"]["room"]:
        call.say(f"{room['log_dir']}: {human_bytes(room['free'])} and {room['inodes_free']} inodes free")
    if rescue.came is not None and rescue.came_less:
        expected, came = human_bytes(rescue.expected), human_bytes(rescue.came.bytes)
        call.say(f"{expected} were removed, but only {came} more are free: {'; '.join(_why_less(rescue))}")
    if rescue.missing:
        call.say(f"{human_bytes(rescue.need or 0)} needed, {human_bytes(rescue.missing)} missing")
    if not_kafkas := rescue.not_kafkas:
        largest = f"{not_kafkas[0].log_dir}/{not_kafkas[0].name} {human_bytes(not_kafkas[0].bytes)}"
        call.say(f"most of what is in the log dirs is not Kafka's, and not for logagent to remove: {largest}")
    if early:
        what = counted(len(early), "directory")
        size = human_bytes(sum(r["allocated"] for r in early))
        call.say(f"{what}, {size}, would go early: {early[0]['hint']}")
    if rescue.more and rescue.need is not None:
        call.say(f"{human_bytes(rescue.more)} more can be freed, if needed")
    say_how_it_ends(call, rescue.plan, document)


def _show_files(call: Call, document: PlanDoc) -> None:
    """What an approval of leftovers is about, each by its name."""
    rows = [[f"{a['log_dir']}/{a['name']}", name] for a in document["actions"] for name in a.get("files", ())]
    if rows:
        title = "Files that a start would drop (after a retention set by mistake, the last copy)"
        table(title, [("directory", "dir"), ("file", "path")], rows, color=call.color)


def _show_removed_by_hand(call: Call, rescue: Rescue) -> None:
    if not rescue.removed_by_hand:
        return
    rows = [
        [os.path.dirname(path), os.path.basename(path), r.file.descriptor, human_bytes(r.file.bytes), r.program or ""]
        for r in rescue.removed_by_hand
        if (path := os.path.join(r.log_dir, r.file.path))
    ]
    title = "Removed by hand: copy /proc/PID/fd/N before anything restarts"
    columns = [("directory", "dir"), ("it was", "path"), ("copy", "left"), ("size", "right?"), ("program", "left?")]
    table(title, columns, rows, color=call.color)
    processes = sorted({r.file.pid for r in rescue.removed_by_hand})
    what = f"process {processes[0]} ends" if len(processes) == 1 else "these processes end"
    size = human_bytes(sum({r.file.identity: r.file.allocated for r in rescue.removed_by_hand}.values()))
    call.say(f"{size} of removed files may be the only copy of their records, and are gone when {what}")
    call.say("hint: stop the producers of these partitions, then cp each to another disk; until then restart nothing")


def _show_by_broker(call: Call, part: BrokersPart) -> None:
    _show_advice(
        call, part.retention, "What only a running broker can do, on all replicas (records are lost)", "retention"
    )
    title = "What only a running broker can do, on all replicas (remote records stay; only what was copied goes)"
    _show_advice(call, part.local_retention, title, "local retention")
    for e in part.expired:
        call.say(
            f"topic {e.topic}: {human_bytes(e.bytes)} that its retention no longer keeps, which a running broker"
            " deletes by itself"
        )
    for topic, size, policy in part.compacted:
        call.say(
            f"topic {topic}: {human_bytes(size)} that no retention frees: its cleanup.policy is {policy or 'empty'}"
        )
    for topic, size, why in part.no_retention:
        call.say(f"topic {topic}: no retention is advised for its {human_bytes(size)}: {why}")


def _show_advice(call: Call, advice: Sequence[RetentionAdvice], title: str, what: str) -> None:
    if not advice:
        return
    rows = [
        [
            a.topic,
            human_bytes(a.bytes),
            human_ms(a.retention_ms),
            _present(a.now_ms),
            f"{'up to ' if a.now_ms is None or a.setting == LOCAL_RETENTION else ''}"
            f"{human_bytes(a.gives_back[a.retention_ms])}",
            a.policy or "unknown",
        ]
        for a in advice
    ]
    columns = [("topic", "dir"), ("has", "right?"), (what, "right"), ("now", "left"), ("frees", "right")]
    columns += [("cleanup.policy", "left")]
    table(title, columns, rows, color=call.color)
    if any(a.now_ms is None or not a.policy for a in advice):
        show_line("It frees nothing of a topic whose retention is lower already, or whose policy is compact.")
    # Not in the table, where they would be folded: they are to be pasted.
    for a in advice:
        click.echo(f" {a.command}")
    what_if = shlex.join(["logagent", "explain", "--what-if", f"{advice[0].setting}={advice[0].retention_ms}"])
    show_line("What would stay all the same, why, and until when:")
    click.echo(f" {what_if} {shlex.quote(advice[0].topic)}")
    click.echo()


def _present(retention_ms: int | None) -> str:
    if retention_ms is None:
        return "unknown"
    return "unlimited" if retention_ms < 0 else human_ms(retention_ms)


def _show_kept(call: Call, rescue: Rescue) -> None:
    if not rescue.kept:
        return
    shown = rescue.kept if call.verbose else rescue.kept[:KEPT_SHOWN]
    rows = [[f"{k.log_dir}/{k.name}", human_bytes(k.bytes), k.reason, k.detail or ""] for k in shown]
    count, size = Counter[str](), Counter[str]()
    for k in rescue.kept:
        count[k.reason] += 1
        size[k.reason] += k.bytes
    title = "Not offered" + (
        f" (the largest {KEPT_SHOWN} of {len(rescue.kept)}; all with -v)" if len(shown) < len(rescue.kept) else ""
    )
    columns = [("directory", "dir"), ("size", "right"), ("because", "text"), ("detail", "text")]
    table(title, columns, rows, color=call.color)
    for reason, number in count.most_common():
        what = counted(number, "entry")
        call.say(f"not offered: {what}, {human_bytes(size[reason])}: {reason}")


def _why_less(rescue: Rescue) -> list[str]:
    """Why less came back than was removed: what is known, then what cannot be seen here."""
    if rescue.came is None or not rescue.came_less:
        return []
    kept, reserved, shares = rescue.kept_open, rescue.came.reserved, rescue.came.shares_blocks
    why = ["a file system does not answer: what came there is not known"] if rescue.came.unread else []
    why += [f"{human_bytes(reserved)} went to what the file system reserves for root"] if reserved else []
    why += [f"processes keep {human_bytes(kept)} of removed files open (listed above)"] if kept else []
    why += [f"{', '.join(shares)}: a copy made with cp --reflink, or a snapshot, keeps its blocks"] if shares else []
    if reserved + kept >= rescue.came_less:
        return why
    unseen = "a process that cannot be seen here keeps files open (lsof +L1, as root on the host)"
    return [*why, f"{'or ' if why else ''}{unseen}, or others wrote meanwhile"]


# With less, the next segment or checkpoint is one too many.
_FULL_BYTES = 16 << 20


@click.command()
@click.option(
    "--need",
    metavar="SIZE",
    help="Stop once this much is freed, for example 50GiB (default: everything offered). Log dirs on several file "
    "systems: name those of one with --log-dir.",
)
@click.option("--execute", is_flag=True, help="Free it, in the order shown; without this the plan is only shown.")
@or_dry_run
@click.option("--approve", metavar="PLAN_ID", help="Approve exactly this plan, which shortens a wait.")
@includes_internal
@reads_assignments
@common
@needs_log_dirs
def rescue(call: Call, need: str | None, execute: bool, approve: str | None, include_internal: bool) -> None:
    """Show what can be freed on a full disk now, from safest to least safe, or (with --execute) free it.

    Works without a network, too: assignments are waited for at most 10 s, leaders are asked about copies where they
    answer, and what cannot be proven is listed with the reason, and stays. --execute alone removes only what is due,
    until --need is really freed; removing anything early needs --approve with the id of that plan, and then exactly
    that plan is carried out.
    """
    try:
        wanted = parse_size(need) if need is not None else None
    except ValueError as e:
        raise UsageError(f"--need: {e}", hint="logagent rescue --need 50GiB") from e
    if wanted == 0:
        raise UsageError(f"--need {need}: that is nothing", hint="leave it out if everything that is offered is meant")
    with session_of(call, act=execute, to_plan=True) as session:
        if wanted is not None:
            _refuse_several_file_systems(session, need)
        read_assignments(session, call, seconds=NETWORK_SECONDS)
        take_inventory(session, call)
        facts = session.facts()
        session.remember(facts)
        say_where_they_end(session, call)
        offered = plan_rescue(
            session, facts, need=wanted, approve=approve, only_due=execute, include_internal=include_internal
        )
        execution = None
        if execute:
            total = sum(o.proposal.dir.allocated for o in offered.offers.values())
            with Stopper(call) as stopper, Progress(call, "Removing", total=total) as progress:
                manager = session.log_manager(stop=stopper, on_progress=progress.on_bytes)
                offered, execution = carry_out_rescue(
                    session, offered, manager, approved=approve is not None, include_internal=include_internal
                )
        _report(call, session, facts, offered, execution)


def _refuse_several_file_systems(session: Session, need: str | None) -> None:
    """What is freed on one disk does not help another, and the safest step may be on the one that has room."""
    by_file_system = file_systems(session)
    if len(by_file_system) > 1:
        ways = (
            f"{' '.join(f'--log-dir {shlex.quote(d)}' for d in dirs)} ({human_bytes(free)} free)"
            for dirs, free in by_file_system
        )
        raise UsageError(
            f"--need {need}: the log dirs are on {len(by_file_system)} file systems, and it does not say on which one",
            hint=f"name the log dirs of one, the fullest first: {', or '.join(ways)}",
        )


def _report(call: Call, session: Session, facts: Facts, offered: Rescue, execution: Execution | None) -> None:
    plan = offered.plan
    note_health(call, facts)
    # A running broker gives a full log dir up at its next checkpoint of high watermarks, within 5 s by default, and
    # takes it back only at a start. Nothing acts on an offline log dir; while the broker is stopped it is not offline.
    advice = "stop the broker, run logagent rescue, start the broker again"
    if offered.removed_by_hand:
        advice = "copy what was removed by hand to another disk, then run logagent rescue again"
    elif any(f.open_files_unreadable is not None for f in facts.log_dirs.values()):
        advice = f"run logagent rescue as root, which shows what was removed by hand; if that is nothing, {advice}"
    for path, free in offered.free.items():
        if facts.log_dirs[path].health is Health.OFFLINE and free.bytes < _FULL_BYTES:
            call.say(f"hint: {path} is full ({human_bytes(free.bytes)} free): {advice}")
    executed = execution is not None and plan.needs_approval is None
    document = plan_document(
        session,
        plan,
        call.host,
        mode="dry-run" if execution is None else "execute",
        execution=execution,
        drops=session.checkpoint_drops(plan) if execution is None else {},
    )
    after = {p: r for p, r in free_room(session).items() if p in offered.free} if execution is not None else {}
    add_rescue(document, offered, after)
    set_status(call, plan, execution)
    if executed and offered.missing:
        call.record_status(Exit.REFUSED)
    with said_on_stderr(call.say, closing(plan, document)):
        if call.json:
            dump(document)
        else:
            show_rescue(call, document, offered, executed=executed)
