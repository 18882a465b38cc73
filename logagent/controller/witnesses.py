"""Who can tell of a decision that the store has lost, before anything irreversible. Pure.

A removed file, or a store from yesterday's backup, must revive nothing. Each agent rewrites what it has seen once a
minute. So whoever acts reads the seen files that were written after their own look began, waits for one from another
host, and obeys every decision in any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from logagent.controller.sightings import Witness
from logagent.store.requests import Request


@dataclass(frozen=True, slots=True)
class Testimony:
    """`waits`: why it may not go on yet, in words; None: it may. `silent`: hosts that were not heard."""

    waits: str | None
    silent: tuple[str, ...] = ()


def named(witness: Witness) -> str:
    return f"node {witness.seen.node_id} ({witness.seen.host})"


def heard(witnesses: Iterable[Witness], here: str, now: datetime, silent_after: timedelta) -> list[Witness]:
    """Those from another host than `here` that were written lately; a time from the future is a wrong clock's."""
    apart = timedelta(minutes=5)
    return [w for w in witnesses if w.seen.host != here and now - silent_after <= w.written <= now + apart]


def testimony(
    number: str,
    request: Request,
    witnesses: Iterable[Witness],
    *,
    here: str,
    began: datetime,
    now: datetime,
    silent_after: timedelta,
    wrote_it: bool,
) -> Testimony:
    """Whether a request may go on to what cannot be undone, where no decision or outcome is known that ends it.

    `began`: when this look began, by the store's clock. `wrote_it`: this process made the request, so no backup of the
    store can have brought it back.
    """
    others = [w for w in witnesses if w.seen.host != here]
    present = heard(others, here, now, silent_after)
    silent = tuple(sorted(named(w) for w in others if w not in present))
    if not present:
        if "no-witness" in request.approvals:
            return Testimony(None, silent)
        who = f" ({', '.join(silent)})" if silent else ""
        return Testimony(f"no agent of another host is heard{who}, which could tell of a decision; ask again with the"
                         " approval no-witness where no agents run", silent)  # fmt: skip
    fresh = [w for w in present if w.written > began]
    if not fresh:
        first = ", ".join(sorted(map(named, present))[:5])
        return Testimony(f"until an agent of another host has written what it has seen: {first}", silent)
    if not wrote_it and not any(number in w.seen.open or number in w.seen.decisions for w in fresh):
        return Testimony("none of the agents that are heard lists this request, so only the process that wrote it goes "
                         "on: it may come from a backup of the store", silent)  # fmt: skip
    return Testimony(None, silent)
