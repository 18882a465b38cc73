"""`logagent rescue`: the disk is full; what can be freed, and at what cost."""

from __future__ import annotations

import shlex

import click

from logagent.agent.rescue.plan_rescue import LOCAL_SOURCES, Rescue, carry_out_rescue, plan_rescue
from logagent.agent.rescue.rescue_looks import file_systems, free_room
from logagent.agent.session.session import Session
from logagent.cli.host_session import (
    Progress,
    Stopper,
    note_health,
    session_of,
    take_inventory,
    unusable_assignments_file,
)
from logagent.cli.options import Call, common, reads_assignments
from logagent.cli.plan_documents import plan_document
from logagent.cli.render import dump, human_bytes
from logagent.cli.rescues import add_rescue, show_rescue
from logagent.cli.run_plan import set_status
from logagent.errors import Exit, UsageError
from logagent.model.facts import Facts
from logagent.model.planning.plan import Execution
from logagent.model.records import Health
from logagent.settings import parse_size

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
@click.option("--approve", metavar="PLAN_ID", help="Approve exactly this plan, which shortens a wait.")
@click.option("--include-internal", is_flag=True, help="Strays and orphans of internal topics too.")
@reads_assignments
@common
def rescue(call: Call, need: str | None, execute: bool, approve: str | None, include_internal: bool) -> None:
    """Show what can be freed on a full disk now, from safest to least safe, or (with --execute) free it.

    Needs no network: what only a running cluster could prove counts as unknown, and stays. --execute alone removes
    only what is due, until --need is really freed; removing anything early needs --approve with the id of that plan,
    and then exactly that plan is carried out.
    """
    try:
        wanted = parse_size(need) if need is not None else None
    except ValueError as e:
        raise UsageError(f"--need: {e}", hint="logagent rescue --need 50GiB") from e
    with session_of(call, act=execute, to_plan=True) as session:
        if wanted is not None:
            _refuse_several_file_systems(session, need)
        _read_what_is_here(session, call)
        take_inventory(session, call)
        facts = session.facts()
        found = plan_rescue(
            session, facts, need=wanted, approve=approve, only_due=execute, include_internal=include_internal
        )
        execution = None
        if execute:
            found, execution = _carried_out(call, session, found, approve is not None, include_internal)
        _tell(call, session, facts, found, execution)


def _refuse_several_file_systems(session: Session, need: str | None) -> None:
    """What is freed on one disk does not help another, and the safest step may be on the one that has room."""
    found = file_systems(session)
    if len(found) > 1:
        ways = (
            f"{' '.join(f'--log-dir {shlex.quote(d)}' for d in dirs)} ({human_bytes(free)} free)"
            for dirs, free in found
        )
        raise UsageError(
            f"--need {need}: the log dirs are on {len(found)} file systems, and it does not say on which one",
            hint=f"name the log dirs of one, the fullest first: {', or '.join(ways)}",
        )


def _read_what_is_here(session: Session, call: Call) -> None:
    sources = tuple(s for s in session.settings.assignments.sources if s in LOCAL_SOURCES)
    session.read_assignments(sources)
    unusable = unusable_assignments_file(session, call)
    if unusable is not None:
        raise unusable
    for problem in session.assignments.problems:
        (call.detail if session.assignments.usable else call.say)(f"assignments: {problem}")


def _carried_out(
    call: Call, session: Session, found: Rescue, approved: bool, include_internal: bool
) -> tuple[Rescue, Execution]:
    total = sum(o.proposal.dir.bytes for o in found.offers.values())
    with Stopper() as stopper, Progress(call, "Removing", total=total) as progress:
        manager = session.log_manager(stop=stopper, on_progress=progress.on_bytes)
        return carry_out_rescue(session, found, manager, approved=approved, include_internal=include_internal)


def _tell(call: Call, session: Session, facts: Facts, found: Rescue, execution: Execution | None) -> None:
    plan = found.plan
    note_health(call, facts)
    _say_where_a_stop_helps(call, facts, found)
    executed = execution is not None and plan.needs_approval is None
    document = plan_document(
        session,
        plan,
        call.host,
        mode="dry-run" if execution is None else "execute",
        execution=execution,
        drops=session.checkpoint_drops(plan) if execution is None else {},
    )
    after = {p: r for p, r in free_room(session).items() if p in found.free} if execution is not None else {}
    add_rescue(document, found, after)
    set_status(call, plan, execution)
    if executed and found.missing(document["totals"]["freed_bytes"]):
        call.record_status(Exit.REFUSED)
    if call.json:
        dump(document)
    else:
        show_rescue(call, document, found, executed=executed)


def _say_where_a_stop_helps(call: Call, facts: Facts, found: Rescue) -> None:
    """A running broker gives a full log dir up at its next checkpoint of high watermarks, within 5 s by default, and
    takes it back only at a start. Nothing acts on an offline log dir; while the broker is stopped it is not offline."""
    advice = "stop the broker, run logagent rescue, start the broker again"
    if found.removed_by_hand:
        advice = "copy what was removed by hand to another disk, then run logagent rescue again"
    elif any(f.open_files_unreadable is not None for f in facts.log_dirs.values()):
        advice = f"run logagent rescue as root, which shows what was removed by hand; if that is nothing, {advice}"
    for path, free in found.free.items():
        if facts.log_dirs[path].health is Health.OFFLINE and free.bytes < _FULL_BYTES:
            call.say(f"hint: {path} is full ({human_bytes(free.bytes)} free): {advice}")
