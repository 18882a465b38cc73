"""Kafka's `LogManager.asyncDelete`, as a plan: what `logagent delete` renames. `LogManager.execute` carries it out."""

from __future__ import annotations

from collections.abc import Collection

from logagent.agent.session.session import Session, new_uuid
from logagent.model.facts import Facts
from logagent.model.planning.plan import Flags, Plan
from logagent.model.planning.proposals import find_partitions, rename_away
from logagent.model.records import TopicPartition

NO_FLAGS = Flags()


def async_delete(
    session: Session,
    facts: Facts,
    partitions: Collection[TopicPartition],
    *,
    is_future: bool = False,
    is_stray: bool = False,
    flags: Flags = NO_FLAGS,
    approve: str | None = None,
) -> tuple[Plan, list[TopicPartition]]:
    """The plan that renames the (future) logs of `partitions` to `-delete` or, with `is_stray`, to `-stray`; and those
    of `partitions` that do not exist (Kafka's `None`).

    Raises KafkaStorageError if one is not found but may be in an offline log dir.
    """
    found, absent = find_partitions(partitions, session.dirs, facts, is_future=is_future)
    proposals = [
        rename_away(
            d,
            is_stray=is_stray,
            reason="asked for",
            new_uuid=new_uuid,
            quarantine_dir=facts.quarantine_dirs.get(d.log_dir),
            flags=flags,
        )
        for d in sorted(found, key=lambda d: (d.log_dir, d.name))
    ]
    return session.plan(proposals, facts=facts, approve=approve), absent
