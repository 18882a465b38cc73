"""`logagent prestart`: between a broker's stop and its start, as `ExecStartPre=-` of its unit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from logagent.agent.session.plan_prestart import BudgetSpent, looking_at_most, plan_prestart
from logagent.agent.session.session import Session
from logagent.cli.documents import finding_row
from logagent.cli.options import Call, common
from logagent.cli.plans import carry_out, set_status, show_plan
from logagent.cli.render import dump
from logagent.cli.session import session_of
from logagent.errors import Exit, LogAgentError, UsageError
from logagent.model.facts import Facts
from logagent.model.records import PartitionDir
from logagent.model.times import rfc3339
from logagent.settings import parse_duration

if TYPE_CHECKING:
    from logagent.documents.check import FindingDoc
    from logagent.documents.plans import PlanDoc

# How long to wait for another logagent to finish acting: a broker is waiting behind us.
EXECUTOR_WAIT_SECONDS = 1.0


@click.command()
@click.option("--budget", default="2s", show_default=True, metavar="TIME", help="Delay the start by at most this.")
@click.option("--strict", is_flag=True, help="Exit 6 (and so prevent the start) if the broker would not start.")
@click.option("--dry-run", is_flag=True, help="Only say what would be renamed.")
@common
def prestart(call: Call, budget: str, strict: bool, dry_run: bool) -> None:
    """Set due orphans aside and mark strays past their retention, right before the broker starts. Only renames."""
    try:
        allowed = parse_duration(budget) / 1000
    except ValueError as e:
        raise UsageError(f"--budget: {e}", hint="logagent prestart --budget 2s") from e
    started = time.monotonic()
    run = _Run(call, started + allowed)
    try:
        run.act(dry_run=dry_run)
    except BudgetSpent:
        run.skipped = f"the budget of {budget} was spent on looking; nothing was renamed"
    except LogAgentError as e:
        run.skipped = str(e)
    if run.skipped is not None:
        call.say(f"prestart: {run.skipped}")
    fatal = [f for f in run.findings if f["severity"] == "fatal"]
    for finding in fatal:
        call.say(f"the broker would not start: {finding['path']}: {finding['says']} ({finding['hint']})")
    if strict and fatal:
        call.came_to(Exit.CHECK_FATAL)
    if call.json:
        dump(
            {
                "schema": "logagent.prestart/1",
                "at": rfc3339(time.time_ns() // 1_000_000),
                "budget_ms": int(allowed * 1000),
                "spent_ms": int((time.monotonic() - started) * 1000),
                "skipped": run.skipped,
                "plan": run.document,
                "findings": run.findings,
            }
        )


class _Run:
    """One prestart: what came of it, also where it ended early."""

    def __init__(self, call: Call, deadline: float) -> None:
        self.call = call
        self.deadline = deadline
        self.skipped: str | None = None
        self.document: PlanDoc | None = None
        self.findings: list[FindingDoc] = []

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def act(self, *, dry_run: bool) -> None:
        wait = max(0.0, min(EXECUTOR_WAIT_SECONDS, self._left()))
        with session_of(self.call, act=not dry_run, wait_seconds=wait) as session:
            with looking_at_most(self._left()):
                session.read_assignments()
                session.take_inventory()
                facts = session.facts()
                plan = plan_prestart(session, facts)
                self._check(session)
            done = carry_out(
                self.call,
                session,
                facts,
                plan,
                execute=not dry_run,
                stop=lambda: self._left() <= 0,
                look=lambda dirs: self._look_in_time(session, dirs, facts),
            )
        self.document = done.document
        set_status(self.call, done.plan, done.execution)
        if not self.call.json:
            show_plan(self.call, done)

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
        self.findings = [finding_row(f) for f in report.findings]
