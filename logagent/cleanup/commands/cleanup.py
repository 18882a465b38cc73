"""`logagent cleanup`: does what is due."""

from __future__ import annotations

import click

from logagent.base.console.options import Call, carries_out, common, includes_internal, reads_assignments
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.run_plan import run_plan
from logagent.cleanup.session.plan_cleanup import plan_cleanup
from logagent.cleanup.session.session import Session
from logagent.disk.wrong_user import needs_log_dirs
from logagent.verdict.facts import Facts


@click.command()
@carries_out
@includes_internal
@click.option("--trust-clock", is_flag=True, help="Confirm that the wall clock is right now, although it was changed.")
@reads_assignments
@common
@needs_log_dirs
def cleanup(call: Call, execute: bool, approve: str | None, include_internal: bool, trust_clock: bool) -> None:
    """Show or (with --execute) do what is due: marked directories past their delay, strays past theirs, orphans."""

    def make_plan(session: Session, facts: Facts) -> Plan:
        return plan_cleanup(session, facts, approve=approve, trust_clock=trust_clock, include_internal=include_internal)

    run_plan(call, make_plan, execute=execute)
