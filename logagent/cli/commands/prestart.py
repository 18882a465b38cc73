"""`logagent prestart`: between a broker's stop and its start, as `ExecStartPre=-` of its unit."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from logagent.agent.session.plan_prestart import BudgetSpent, looking_at_most, plan_prestart
from logagent.agent.session.session import Session
from logagent.cli.documents import finding_row
from logagent.cli.options import Call, common
from logagent.cli.plans import Done, carry_out, set_status, show_plan
from logagent.cli.render import dump
from logagent.cli.session import read_assignments, session_of
from logagent.errors import Exit, LogAgentError, UsageError
from logagent.host.linux.child import work_in_child
from logagent.host.state.state_dir import default_state_dir
from logagent.model.facts import Facts
from logagent.model.records import Outcome, PartitionDir
from logagent.model.times import rfc3339
from logagent.settings import parse_duration

if TYPE_CHECKING:
    from logagent.documents.check import FindingDoc

# How long to wait for another logagent to finish acting: a broker is waiting behind us.
EXECUTOR_WAIT_SECONDS = 1.0
# What the work leaves of the budget to end in an orderly way, at most.
_TELLING_SECONDS = 0.2


@click.command()
@click.option("--budget", default="2s", show_default=True, metavar="TIME", help="Delay the start by this at most.")
@click.option("--strict", is_flag=True, help="Exit 6, which prevents the start, if the broker would fail to start.")
@click.option("--dry-run", is_flag=True, help="Only show what would be renamed.")
@common
def prestart(call: Call, budget: str, strict: bool, dry_run: bool) -> None:
    """Set due orphans aside and mark strays past their retention, right before the broker starts. It only renames.

    The work is done by a child process, which is given up at the end of the budget whatever it waits for.
    """
    try:
        allowed = parse_duration(budget) / 1000
    except ValueError as e:
        raise UsageError(f"--budget: {e}", hint="logagent prestart --budget 2s") from e
    started = time.monotonic()
    step = _Step()
    try:
        found = work_in_child(lambda: _Run(call, started + _ours(allowed), step).act(dry_run=dry_run), allowed)
    except TimeoutError:
        found = _Found(skipped=f"the budget of {budget} was spent while {step.text()}", status=call.status)
    call.record_status(found.status)
    if found.done is not None and not call.json:
        show_plan(call, found.done)
    for note in found.notes:
        call.say(f"prestart: {note}")
    if found.skipped is not None:
        call.say(f"prestart: {found.skipped}")
    fatal = [f for f in found.findings if f["severity"] == "fatal"]
    for finding in fatal:
        call.say(f"the broker would not start: {finding['path']}: {finding['says']} ({finding['hint']})")
    if strict and fatal:
        call.record_status(Exit.CHECK_FATAL)
    if call.json:
        dump(
            {
                "schema": "logagent.prestart/1",
                "at": rfc3339(time.time_ns() // 1_000_000),
                "budget_ms": int(allowed * 1000),
                "spent_ms": int((time.monotonic() - started) * 1000),
                "skipped": found.skipped,
                "plan": found.done.document if found.done is not None else None,
                "findings": found.findings,
            }
        )


def _ours(allowed: float) -> float:
    """The part of the budget for the work itself, so that it mostly ends by itself and can say how far it came."""
    return allowed - min(_TELLING_SECONDS, allowed / 10)


class _Step:
    """What the child is doing, for whoever gives it up: memory that both see."""

    _BYTES = 512

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, self._BYTES)
        self.note("starting")

    def note(self, doing: str) -> None:
        self._shared[:] = doing.encode("utf-8", "replace")[: self._BYTES].ljust(self._BYTES)

    def text(self) -> str:
        return self._shared[:].decode("utf-8", "replace").strip()


@dataclass(slots=True)
class _Found:
    """What came of one prestart. skipped: why it ended early."""

    status: Exit
    skipped: str | None = None
    done: Done | None = None
    findings: list[FindingDoc] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Run:
    """One prestart, in the child: disks, journal and configuration are touched by nobody else."""

    def __init__(self, call: Call, deadline: float, step: _Step) -> None:
        self.call = call
        self.deadline = deadline
        self.found = _Found(call.status)
        self._step = step

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def act(self, *, dry_run: bool) -> _Found:
        try:
            self._act(dry_run=dry_run)
        except BudgetSpent:
            self.found.skipped = f"the budget was spent while {self._step.text()}"
        except LogAgentError as e:
            self.found.skipped = str(e)
        self.found.status = self.call.status
        return self.found

    def _act(self, *, dry_run: bool) -> None:
        self._step.note("opening the state dir, the journal and the log dirs; nothing was renamed")
        wait = max(0.0, min(EXECUTOR_WAIT_SECONDS, self._left()))
        with session_of(self.call, act=not dry_run, to_plan=True, wait_seconds=wait) as session:
            with looking_at_most(self._left()):
                self._step.note("looking at assignments and log dirs; nothing was renamed")
                read_assignments(session, self.call)
                session.take_inventory()
                facts = session.facts()
                plan = plan_prestart(session, facts)
                self._check(session)
            self._step.note("renaming; what was done is in the journal (logagent history)")
            self.found.done = carry_out(
                self.call,
                session,
                facts,
                plan,
                execute=not dry_run,
                stop=lambda: self._left() <= 0,
                look=lambda dirs: self._look_in_time(session, dirs, facts),
            )
            if not dry_run:
                self._obey(session, {(p.dir.log_dir, p.dir.name) for p in self.found.done.plan.actions})
        set_status(self.call, self.found.done.plan, self.found.done.execution)

    def _obey(self, session: Session, renamed: Collection[tuple[str, str]]) -> None:
        """Orders of the fleet: those that can be read in half of what is left, else those that the daemon saw."""
        from logagent.agent.orders.box import bounded, box_of

        settings = self.call.settings()
        if not settings.orders.accept or self._left() <= 0:
            return
        self._step.note("reading the orders of the fleet; the renames of this host's own plan are done")
        box = box_of(settings, self.call.state_dir or default_state_dir(os.environ), session.clock, session)
        if box is None:
            return
        if bounded(box.receive, self._left() / 2) is None and not box.recall():
            self.found.notes.append("the store was not read in time and no order was seen lately; none was obeyed")
            return
        session.dirs = [d for d in session.dirs if (d.log_dir, d.name) not in renamed]
        with looking_at_most(self._left()):
            facts = session.facts()
        self._step.note("renaming by orders; what was done is in the journal (logagent history)")
        for obeyed in box.obey(session, facts, lambda: self._left() <= 0, renames_only=True):
            done = obeyed.execution.results.values() if obeyed.execution is not None else ()
            count = sum(r.outcome is Outcome.DONE for r in done)
            if count:
                self.found.notes.append(f"{count} directories were renamed by order {obeyed.order.order_id}")

    def _look_in_time(self, session: Session, dirs: Sequence[PartitionDir], last: Facts) -> Facts:
        """Looking again before the act counts too. Where it takes too long nothing is done with what it gives: the
        budget is spent, and `stop` says so."""
        try:
            with looking_at_most(self._left()):
                return session.facts(dirs)
        except BudgetSpent:
            return last

    def _check(self, session: Session) -> None:
        from logagent.agent.check.check import run_check

        report = run_check(session, timeout=max(0.1, self._left()), deep=False, about_to_start=True)
        self.found.findings = [finding_row(f) for f in report.findings]
