"""`logagent cleanup`: what is due goes."""

from __future__ import annotations

import click

from logagent.agent.session.plan_cleanup import plan_cleanup
from logagent.agent.session.session import Session
from logagent.cli.options import Call, common
from logagent.cli.plans import run_plan
from logagent.model.facts import Facts
from logagent.model.planning.plan import Plan


@click.command()
@click.option("--execute", is_flag=True, help="Carry the plan out; without this it is only shown.")
@click.option("--approve", metavar="PLAN_ID", help="Approve exactly this plan, which exceeds the blast radius.")
@click.option("--include-internal", is_flag=True, help="Old strays of internal topics too.")
@click.option("--trust-clock", is_flag=True, help="The wall clock is correct now, although it was set.")
@common
def cleanup(call: Call, execute: bool, approve: str | None, include_internal: bool, trust_clock: bool) -> None:
    """Show or (with --execute) do what is due: marked directories past their delay, old strays, proven orphans."""

    def make_plan(session: Session, facts: Facts) -> Plan:
        return plan_cleanup(session, facts, approve=approve, trust_clock=trust_clock, include_internal=include_internal)

    run_plan(call, make_plan, execute=execute)
