"""Shows a rescue: as part of the plan's document, and as tables for a person."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from logagent.agent.rescue.plan_rescue import Rescue
from logagent.agent.rescue.rescue_looks import BrokersPart
from logagent.cli.options import Call
from logagent.cli.render import human_bytes, human_ms, table
from logagent.cli.run_plan import show_refusals, show_waiting
from logagent.model.planning.topic_retention import LOCAL_RETENTION, RetentionAdvice
from logagent.model.space import Space

if TYPE_CHECKING:
    from logagent.documents.plans import PlanDoc, RescueDoc, RescueRoom, RetentionDoc

Room = Mapping[str, Space]
# Kept directories shown without -v, largest first.
KEPT_SHOWN = 10


def add_rescue(document: PlanDoc, rescue: Rescue, room_after: Room) -> None:
    """Add to the plan's document which step each action is, and everything else that a rescue reports."""
    aside = {(o.proposal.new_dir or o.key[0], o.proposal.new_name): o for o in rescue.offers.values()}
    for action in document["actions"]:
        key = action["log_dir"], action["name"]
        offer = rescue.offers.get(key) or aside.get(key)
        if offer is not None:
            action["step"] = offer.step
            action["cost"] = offer.cost
            action["gives_back"] = offer.gives_back if key in rescue.offers else 0
            action["shortens"] = offer.shortens
    freed = document["totals"]["freed_bytes"] if document["mode"] == "execute" else rescue.gives_back
    document["rescue"] = rescue_document(rescue, room_after, rescue.missing(freed))


def rescue_document(rescue: Rescue, room_after: Room, missing: int) -> RescueDoc:
    return {
        "need": rescue.need,
        "missing": missing,
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
                "is_holder": r.is_holder,
            }
            for r in rescue.removed_by_hand
        ],
        "open_removed": [
            {"log_dir": o.log_dir, "pid": o.pid, "program": o.program, "bytes": o.bytes, "is_holder": o.is_holder}
            for o in rescue.open_removed
        ],
        "unread_processes": rescue.unread_processes,
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


def _advice(found: Sequence[RetentionAdvice]) -> list[RetentionDoc]:
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
        for a in found
    ]


def _room(found: Room) -> list[RescueRoom]:
    return [{"log_dir": path, "free": free.bytes, "inodes_free": free.inodes} for path, free in found.items()]


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
    if rescue.unread_processes:
        what = "1 process" if rescue.unread_processes == 1 else f"{rescue.unread_processes} processes"
        # With --execute root becomes the user of the state dir. What root may not read, nobody here can show.
        more = ": logagent rescue as root, without --execute, shows those" if os.geteuid() != 0 else ""
        call.say(f"{what} of other users cannot be read, nor what removed files they keep open{more}")
    if document["actions"]:
        rows = [
            [a.get("step", ""), f"{a['log_dir']}/{a['name']}", human_bytes(a.get("gives_back", 0)), a.get("cost", ""),
             a.get("shortens") or "", *([a["outcome"] or ""] if executed else [])]
            for a in document["actions"]
            if call.verbose or a["action"] != "drop-checkpoint-entry"
        ]  # fmt: skip
        columns = [("step", "left"), ("directory", "path"), ("frees", "right"), ("cost", "text")]
        columns += [("early because", "text"), *([("outcome", "left")] if executed else [])]
        title = f"Plan {document['plan_id']}" + ("" if executed else " (not carried out)")
        table(title, columns, rows, color=call.color)
    show_waiting(call, rescue.plan)
    _show_by_broker(call, rescue.by_broker)
    _show_kept(call, rescue)
    show_refusals(call, document)
    _say_sum(call, document, rescue, executed=executed)


def _show_removed_by_hand(call: Call, rescue: Rescue) -> None:
    if not rescue.removed_by_hand:
        return
    rows = [
        [r.file.descriptor, r.program or "", os.path.join(r.log_dir, r.file.path), human_bytes(r.file.bytes)]
        for r in rescue.removed_by_hand
    ]
    title = "Removed by hand: copy /proc/PID/fd/N before anything restarts"
    columns = [("copy", "path"), ("program", "path"), ("it was", "path"), ("size", "right")]
    table(title, columns, rows, color=call.color)
    processes = sorted({r.file.pid for r in rescue.removed_by_hand})
    what = f"process {processes[0]} ends" if len(processes) == 1 else "these processes end"
    size = human_bytes(sum({r.file.identity: r.file.bytes for r in rescue.removed_by_hand}.values()))
    call.say(f"{size} of removed files may be the only copy of their records, and are gone when {what}")
    call.say("hint: stop the producers of these partitions, then cp each to another disk; until then restart nothing")


def _show_by_broker(call: Call, found: BrokersPart) -> None:
    _show_advice(
        call, found.retention, "What only a running broker can do, on all replicas (records are lost)", "retention"
    )
    title = "What only a running broker can do, on all replicas (remote records stay; only what was copied goes)"
    _show_advice(call, found.local_retention, title, "local retention")
    for e in found.expired:
        call.say(
            f"topic {e.topic}: {human_bytes(e.bytes)} past its retention of {human_ms(e.retention_ms)}, which a running"
            " broker deletes by itself"
        )
    for topic, size, policy in found.compacted:
        call.say(
            f"topic {topic}: {human_bytes(size)} that no retention frees: its cleanup.policy is {policy or 'empty'}"
        )
    for topic, size, why in found.no_retention:
        call.say(f"topic {topic}: no retention is advised for its {human_bytes(size)}: {why}")


def _show_advice(call: Call, found: Sequence[RetentionAdvice], title: str, what: str) -> None:
    if not found:
        return
    rows = [
        [
            a.topic,
            human_bytes(a.bytes),
            human_ms(a.retention_ms),
            _present(a.now_ms),
            f"{'up to ' if a.now_ms is None or a.setting == LOCAL_RETENTION else ''}"
            f"{human_bytes(a.gives_back[a.retention_ms])}",
            a.policy or "unknown: nothing, if it is compact",
        ]
        for a in found
    ]
    columns = [("topic", "path"), ("has", "right"), (what, "right"), ("now", "text"), ("frees", "right")]
    columns += [("cleanup.policy", "text")]
    table(title, columns, rows, color=call.color)
    # Not in the table, where they would be folded: they are to be pasted.
    for a in found:
        click.echo(f" {a.command}")
    click.echo()


def _present(retention_ms: int | None) -> str:
    if retention_ms is None:
        return "unknown: nothing, if it is lower already"
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
    columns = [("directory", "path"), ("size", "right"), ("because", "text"), ("detail", "text")]
    table(title, columns, rows, color=call.color)
    for reason, number in count.most_common():
        what = "1 entry" if number == 1 else f"{number} entries"
        call.say(f"not offered: {what}, {human_bytes(size[reason])}: {reason}")


def _say_sum(call: Call, document: PlanDoc, rescue: Rescue, *, executed: bool) -> None:
    for room in document["rescue"]["room_after"] if executed else document["rescue"]["room"]:
        call.say(f"{room['log_dir']}: {human_bytes(room['free'])} and {room['inodes_free']} inodes free")
    for a in document["actions"]:
        if a["error"]:
            call.say(f"{a['outcome']}: {a['log_dir']}/{a['name']}: {a['error']}")
    said = (
        f"{human_bytes(rescue.gives_back)} can be freed"
        if not executed
        else f"{human_bytes(document['totals']['freed_bytes'])} freed"
    )
    more = f", {human_bytes(rescue.more)} more if needed" if rescue.more else ""
    missing = rescue.missing(document["totals"]["freed_bytes"] if executed else rescue.gives_back)
    short = f"; {human_bytes(rescue.need or 0)} needed, {human_bytes(missing)} missing" if missing else ""
    waiting = sum(w.bytes for w in rescue.plan.waiting)
    later = f"; {human_bytes(waiting)} wait, see above" if waiting else ""
    call.say(f"{said}{more}{short}{later}" + ("" if executed else ": nothing has been done yet"))
