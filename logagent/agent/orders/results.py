"""The result for one ordered partition, and the key that identifies it within an order."""

from __future__ import annotations

from logagent.model.planning.plan import GuardName
from logagent.store.deletion import LONGEST_WORDS, Identity, Order, OrderedPartition, Result, ResultName

IDENTITY: GuardName = "identity"
RESTORED: GuardName = "restored"
RETENTION: GuardName = "retention"
FINAL_GUARDS = (IDENTITY, RESTORED)
"""Refusals that this very order never gets over."""
_END = 500


def in_utf8(text: str) -> str:
    """`text` with bytes of a name that are not UTF-8 as `\\udcXX`."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_words(text: str) -> str:
    """`text` as an answer can carry it: in UTF-8, and a long path, such as that of a file deep in a stray, without its
    middle."""
    said = in_utf8(text)
    if len(said) <= LONGEST_WORDS:
        return said
    return f"{said[: LONGEST_WORDS - _END - 3]} … {said[-_END:]}"


def _as_words(text: str | None) -> str | None:
    return None if text is None else as_words(text)


def result_of(
    p: OrderedPartition, result: ResultName, *, directory: Identity | None = None, guard: GuardName | None = None,
    fact: str | None = None, hint: str | None = None, new_name: str | None = None,
) -> Result:  # fmt: skip
    return Result(
        p.request_id, p.topic_id, p.partition, result, guard, _as_words(fact), _as_words(hint), p.asked_log_dir,
        p.asked_name, directory, new_name,
    )  # fmt: skip


def refused(p: OrderedPartition, guard: GuardName, fact: str, hint: str | None = None) -> Result:
    return result_of(p, "refused", guard=guard, fact=fact, hint=hint)


def refuse_all(order: Order, why: str) -> list[Result]:
    """The answer to an order that is refused as a whole."""
    return [refused(p, "order", why) for p in order.partitions]


def key_of(p: OrderedPartition) -> str:
    """Identifies a partition within an order."""
    where = f"{p.directory.log_dir}/{p.directory.name}" if p.directory is not None else ""
    return f"{p.request_id} {p.topic_id} {p.partition} {p.asked_log_dir or ''}/{p.asked_name or ''} {where}"
