"""The result for one ordered partition, and the key that identifies it within an order."""

from __future__ import annotations

from logagent.store.deletion import Identity, Order, OrderedPartition, Result, ResultName

IDENTITY, RESTORED, RETENTION = "identity", "restored", "retention"
FINAL_GUARDS = (IDENTITY, RESTORED)
"""Refusals that this very order never gets over."""


def result_of(
    p: OrderedPartition, result: ResultName, *, directory: Identity | None = None, guard: str | None = None,
    fact: str | None = None, hint: str | None = None, new_name: str | None = None,
) -> Result:  # fmt: skip
    return Result(
        p.request_id, p.topic_id, p.partition, result, guard, fact, hint, p.asked_log_dir, p.asked_name, directory,
        new_name,
    )  # fmt: skip


def refused(p: OrderedPartition, guard: str, fact: str, hint: str | None = None) -> Result:
    return result_of(p, "refused", guard=guard, fact=fact, hint=hint)


def refuse_all(order: Order, why: str) -> list[Result]:
    """The answer to an order that is refused as a whole."""
    return [refused(p, "order", why) for p in order.partitions]


def key_of(p: OrderedPartition) -> str:
    """Identifies a partition within an order."""
    where = f"{p.directory.log_dir}/{p.directory.name}" if p.directory is not None else ""
    return f"{p.request_id} {p.topic_id} {p.partition} {p.asked_log_dir or ''}/{p.asked_name or ''} {where}"
