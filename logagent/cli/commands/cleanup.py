"""`logagent cleanup`: what is due goes."""

from __future__ import annotations

import click

from logagent.agent.session.plan_cleanup import plan_cleanup
from logagent.cli.options import Call, common
from logagent.cli.plans import run_plan


@click.command()
@click.option("--execute", is_flag=True, help="Do it; without this it is only a plan.")
@click.option("--approve", metavar="PLAN_ID", help="Allow exactly this plan, though it is over the blast radius.")
@common
def cleanup(call: Call, execute: bool, approve: str | None) -> None:
    """Show (or, with --execute, do) what is due: marked directories past their delay, strays past their retention."""
    run_plan(call, lambda session, facts: plan_cleanup(session, facts, approve=approve), execute=execute)
