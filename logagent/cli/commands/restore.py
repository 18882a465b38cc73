"""`logagent restore`: back from -stray, and from -delete as long as it exists."""

from __future__ import annotations

import click

from logagent.agent.session.session import Session, new_uuid
from logagent.cli.options import Call, common
from logagent.cli.plans import run_plan
from logagent.errors import UsageError
from logagent.model.facts import Facts
from logagent.model.naming.topic_names import validate_topic
from logagent.model.planning.plan import Plan
from logagent.model.planning.restorations import restorations
from logagent.model.records import Kind


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--plan", "plan_id", metavar="PLAN_ID", help="Everything this plan marked or set aside.")
@click.option("--topic-name", metavar="TOPIC", help="The full topic of a truncated name, where it is not known.")
@click.option("--replace", is_flag=True, help="Set aside the directory that has the name now.")
@click.option("--execute", is_flag=True, help="Carry the plan out; without this it is only shown.")
@click.option("--approve", metavar="PLAN_ID", help="Approve exactly this plan, which exceeds the blast radius.")
@common
def restore(
    call: Call,
    names: tuple[str, ...],
    plan_id: str | None,
    topic_name: str | None,
    replace: bool,
    execute: bool,
    approve: str | None,
) -> None:
    """Rename marked and stray directories (NAME as `scan` shows it) back to their full names."""
    if not names and plan_id is None:
        raise UsageError("name what to restore: directory names, or --plan PLAN_ID", hint="logagent queue shows them")
    if topic_name is not None and (len(names) != 1 or plan_id is not None):
        raise UsageError("--topic-name goes with exactly one NAME", hint="logagent restore --help")
    if topic_name is not None:
        try:
            validate_topic(topic_name)
        except ValueError as e:
            raise UsageError(f"--topic-name: {e}", hint="name the topic as Kafka knows it, in full") from e

    def make_plan(session: Session, facts: Facts) -> Plan:
        marks = session.marks()
        moved = set(session.renamed_by(plan_id)) if plan_id is not None else set()
        chosen = [
            d
            for d in session.dirs
            if d.log_dir not in session.target.spared
            and (d.name in names or f"{d.log_dir}/{d.name}" in names or (d.log_dir, d.name) in moved)
        ]
        known = {d.name for d in chosen} | {f"{d.log_dir}/{d.name}" for d in chosen}
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"no directory {missing[0]} in the log dirs", hint="logagent scan lists them")
        if plan_id is not None and not moved:
            raise UsageError(f"plan {plan_id} left nothing that could be restored", hint="logagent history shows it")
        chosen.sort(key=lambda d: (d.kind is Kind.STRAY, d.log_dir, d.name))
        proposals, refusals = restorations(
            chosen, session.dirs, facts, marks, session.begun(), new_uuid=new_uuid, replace=replace, topic=topic_name
        )
        return session.plan(proposals, refusals=refusals, facts=facts, approve=approve)

    run_plan(call, make_plan, execute=execute)
