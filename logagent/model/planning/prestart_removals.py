"""Which directories prestart removes so that a broker can start on a full disk. Decides; no I/O.

A start comes before the renames: where the blast radius does not leave room for both, the renames wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from logagent.model.facts import Facts
from logagent.model.planning.blast_radius import BlastRadius, blast_radius, within_limits
from logagent.model.planning.plan import Proposal, Refusal
from logagent.model.planning.room import Key, helps, still_lacking, until_it_starts
from logagent.model.space import NOTHING, Space


@dataclass(frozen=True, slots=True)
class Removals:
    """`chosen`: what is removed now; `possible`: that, and what may be removed too if it turns out not to suffice;
    `beyond`: what would help, but exceeds the blast radius. `renames`: those that are made beside them; `stop`: why
    there are none, if they would exceed it together with `chosen`."""

    chosen: Sequence[Proposal]
    possible: Sequence[Proposal]
    beyond: Sequence[Proposal]
    renames: Sequence[Proposal]
    stop: Refusal | None = None


def to_make_room(
    due: Sequence[Proposal],
    renames: Sequence[Proposal],
    lacking: Mapping[int, Space],
    gains: Mapping[Key, Space],
    facts: Facts,
    limits: BlastRadius,
) -> Removals:
    """What of `due` (removals, the safest first) is removed, and which of `renames` are made. The guards permit each
    of them.

    Of four ways the first that leaves least lacking: the safest first, else the largest; beside the renames, else
    without them. Nothing is chosen that exceeds `limits` together with what is made beside it. If nothing may be
    removed, the renames stay as they are, even if they exceed `limits` themselves.
    """
    helpful = [p for p in due if helps(gains.get(p.key, NOTHING), lacking.get(p.dir.device, NOTHING))]
    largest = sorted(helpful, key=lambda p: -gains[p.key].bytes)
    found: list[tuple[tuple[int, int, int], Removals]] = []
    for beside, order in product((renames, ()), (helpful, largest)):
        way = _one_way(order, beside, lacking, gains, within_limits(beside, facts, limits))
        found.append((_short(way, lacking, gains), way))
    _, best = min(found, key=lambda way: way[0])
    left = _without(renames, best.chosen)
    if len(best.renames) == len(left):
        return best
    return replace(best, stop=blast_radius([*best.chosen, *left], facts, limits))


def _one_way(
    order: Sequence[Proposal],
    beside: Sequence[Proposal],
    lacking: Mapping[int, Space],
    gains: Mapping[Key, Space],
    may_join: Callable[[Proposal], bool],
) -> Removals:
    chosen = until_it_starts(order, lacking, gains, may_join)
    more = [p for p in _without(order, chosen) if may_join(p)]
    possible = [*chosen, *more]
    return Removals(chosen, possible, _without(order, possible), _without(beside, chosen))


def _without(proposals: Sequence[Proposal], others: Sequence[Proposal]) -> list[Proposal]:
    keys = {p.key for p in others}
    return [p for p in proposals if p.key not in keys]


def _short(way: Removals, lacking: Mapping[int, Space], gains: Mapping[Key, Space]) -> tuple[int, int, int]:
    """On how many file systems a broker still lacks room to start, and how much."""
    left = [lack for lack in still_lacking(lacking, way.chosen, gains).values() if lack]
    total = sum(left, NOTHING)
    return len(left), total.bytes, total.inodes
