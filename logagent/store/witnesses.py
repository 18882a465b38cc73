"""Who can tell of a decision that the store has lost, before anything irreversible: the one rule, for DeleteTopics and
for what an agent removes at once. Pure.

A removed file, or a store from yesterday's backup, must revive nothing. Each agent rewrites what it has seen once a
minute. So whoever acts reads the seen files that were written after their own look began, waits for one from another
host, and obeys every decision in any of them (`Filed.told`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from logagent.store.answers import Seen
from logagent.store.contract import CLOCKS_APART
from logagent.store.records import moment
from logagent.store.requests import Request


class Asker(NamedTuple):
    """Who acts. `host`: this machine, whose agents are no witnesses: a machine that is set back takes their memory
    along. `agent`: its own id, if it is one. `wrote_it`: it made the request, so no backup can have brought that."""

    host: str
    silent_after: timedelta
    agent: str = ""
    wrote_it: bool = False


@dataclass(frozen=True, slots=True)
class Testimony:
    """`waits`: why it may not go on yet, in words; None: it may. `silent`: hosts that were not heard."""

    waits: str | None
    silent: tuple[str, ...] = ()


def named(seen: Seen) -> str:
    return f"node {seen.node_id} ({seen.host})"


def baseline_of(seen: Mapping[int, Seen]) -> dict[int, str]:
    """The times of the seen files as a look begins: what is there by then was written before."""
    return {node: each.at for node, each in seen.items()}


def heard(seen: Iterable[Seen], asker: Asker, now: datetime) -> list[Seen]:
    """Those of other hosts that were written lately; a time from the future is a wrong clock's."""
    return [
        s
        for s in seen
        if s.host != asker.host
        and s.agent != asker.agent
        and now - asker.silent_after <= moment(s.at) <= now + CLOCKS_APART
    ]


def testimony(
    number: str, request: Request, seen: Mapping[int, Seen], baseline: Mapping[int, str], asker: Asker, now: datetime
) -> Testimony:
    """Whether a request may go on to what cannot be undone, where no decision or outcome is known that ends it.

    `baseline`: as `baseline_of` when the look began. An agent whose memory is newer than the request is no witness, and
    `no-witness` counts only where there is none.
    """
    present = [s for s in heard(seen.values(), asker, now) if moment(s.born_at) <= moment(request.at)]
    silent = tuple(sorted(named(s) for s in seen.values() if s.host != asker.host and s not in present))
    if not present:
        if "no-witness" in request.approvals:
            return Testimony(None, silent)
        who = f" ({', '.join(silent)})" if silent else ""
        return Testimony(f"no agent of another host is heard{who}, which could tell of a decision; ask again with the"
                         " approval no-witness where no agents run", silent)  # fmt: skip
    fresh = [s for s in present if s.at > baseline.get(s.node_id, "") and now - moment(s.at) <= CLOCKS_APART]
    if not fresh:
        first = ", ".join(sorted(map(named, present))[:5])
        return Testimony(f"until an agent of another host has written what it has seen: {first}", silent)
    if not asker.wrote_it and not any(number in s.open or number in s.decisions for s in fresh):
        return Testimony("none of the agents that are heard lists this request, so only the process that wrote it goes "
                         "on: it may come from a backup of the store", silent)  # fmt: skip
    return Testimony(None, silent)
