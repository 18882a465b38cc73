"""Between which images of the assignments a host's look at its disks lies, so that what it has not is known to be
missing. Pure: rows of `files` in.

An agent reads its image before its inventory and after it, and says which replicas both assign to it and it does not
have. Where it has none of its own, the images that others published stand in: one at or before its first look, and one
at or after its last, of one lineage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from logagent.kafka.image import Source
from logagent.store.contract import CLOCKS_APART

Row = Mapping[str, Any]
_APART_MS = CLOCKS_APART // timedelta(milliseconds=1)
OLDER, YOUNGER = "older", "younger"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the newest image of its cluster stands to what a host has seen.

    `own`: the agent has said what is absent. `place`: whether the image is `OLDER` than what the agent read before its
    inventory, or `YOUNGER` than what it read after it; None: between them, or it cannot be told. `younger`: it is at or
    after the host's last look. `older`: the name of a stored image at or before its first one.
    """

    own: bool
    place: str | None
    younger: bool
    older: str | None


def first_look(snapshot: Row) -> int:
    """When a host began to look, by its clock. Agents that do not say read their image right before; of one without
    that, what differs by less than five minutes from the snapshot's time proves nothing."""
    known = [snapshot.get(name) for name in ("began", "image_at")]
    return min([int(at) for at in known if at is not None] or [int(snapshot["at"]) - _APART_MS])


def has_own_images(snapshot: Row) -> bool:
    return snapshot.get("images") is not None and snapshot.get("absent") is not None


def can_follow(older: Row, newer: Row) -> bool:
    """Whether one image comes before another of the same lineage: of the metadata log, its time and its end tell it."""
    if older["at"] > newer["at"] or older.get("source") != newer.get("source"):
        return False
    if newer.get("source") != Source.KRAFT_LOG:
        return True
    ends = (older.get("offset"), newer.get("offset"))
    return ends[0] is not None and ends[1] is not None and ends[0] <= ends[1]


def standing(host: Row, newest: Row, stored: Iterable[tuple[str, Row]], as_of_ms: int) -> Standing:
    """`newest`: the image that counts for its cluster; `stored`: the names and rows of all of that cluster that can be
    read, this one too."""
    behind = _behind(host, newest, as_of_ms)
    first, last = first_look(host) + min(behind, 0), host["at"] + max(behind, 0)
    until = newest["at"] if newest.get("image_at") is None else min(newest["at"], newest["image_at"])
    before = [(row["at"], name) for name, row in stored if row["at"] <= first and can_follow(row, newest)]
    own = has_own_images(host)
    place = _place(newest, host["images"]["before"], host["images"]["after"]) if own else None
    return Standing(own, place, until >= last, max(before)[1] if before else None)


def _behind(host: Row, newest: Row, as_of_ms: int) -> int:
    """How far the host's clock is behind that of the image, in milliseconds, from how long each file took to arrive;
    0 for less than five minutes."""
    delays = [min(row["received_at"], as_of_ms) - row["at"] for row in (host, newest)]
    behind = int(delays[0] - delays[1])
    return behind if abs(behind) > _APART_MS else 0


def _place(newest: Row, before: Row, after: Row) -> str | None:
    if newest.get("source") == before["source"] == Source.KRAFT_LOG:
        older, younger = can_follow(newest, before), can_follow(after, newest)
    else:
        older = newest["at"] + _APART_MS <= before["at"]
        younger = after["at"] + _APART_MS <= newest["at"]
    if older == younger:
        return None
    return OLDER if older else YOUNGER


MOST_EARLIER = 6
"""Newest snapshots are of the last hour or two, in which few assignments are published."""


def worth_reading(snapshots: Iterable[Row], newest: Row, superseded: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the images that a newer one superseded, the last before each host without images of its own looked; the latest
    ones, if these are many."""
    candidates = sorted(
        (row for row in superseded if row["at"] < newest["at"]), key=lambda r: (r["at"], str(r["file"]))
    )
    times = [row["at"] for row in candidates]
    found = {bisect_right(times, first_look(host)) - 1 for host in snapshots if not has_own_images(host)}
    return [candidates[index] for index in sorted(found - {-1})[-MOST_EARLIER:]]
