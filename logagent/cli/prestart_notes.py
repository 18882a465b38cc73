"""What prestart says of file systems on which a broker has too little room to start."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from logagent.agent.planning.plan_prestart import Prestart
from logagent.cli.render import human_bytes
from logagent.cli.run_plan import Done
from logagent.model.check.log_dirs import SPACE_CODES
from logagent.model.planning.plan import Proposal, action_id
from logagent.model.planning.room import Key, StartRoom
from logagent.model.records import ActionKind, Outcome
from logagent.model.space import NOTHING, Space

if TYPE_CHECKING:
    from logagent.documents.doctor import FindingDoc


def room_after(rooms: Mapping[int, StartRoom], prestart: Prestart, done: Done) -> dict[int, StartRoom]:
    """`rooms` (by device, as they are now) once the plan is carried out: in a dry run, what it would remove has not
    made room yet."""
    if done.execution is not None:
        return dict(rooms)
    removed = _removed(done)
    return {
        device: replace(room, free=room.free + _given([p for p in removed if p.dir.device == device], prestart.gains))
        for device, room in rooms.items()
    }


def room_notes(rooms: Mapping[int, StartRoom], prestart: Prestart, done: Done) -> list[str]:
    """Of each of `rooms` that is too small for a start: how much it lacks, and what else could go there."""
    gone = {p.key for p in _removed(done)}
    return [note for device, room in rooms.items() if room.lacks for note in _notes(device, room, prestart, gone)]


def settled_by(rooms: Mapping[int, StartRoom], prestart: Prestart, findings: Iterable[FindingDoc]) -> list[FindingDoc]:
    """The fatal ones about too little space where a start has enough once the plan is carried out (`rooms`)."""
    enough = {
        path for device in prestart.lacking if (room := rooms.get(device)) and not room.lacks for path in room.log_dirs
    }
    return [f for f in findings if f["severity"] == "fatal" and f["code"] in SPACE_CODES and f["path"] in enough]


def _notes(device: int, room: StartRoom, prestart: Prestart, gone: set[Key]) -> Iterator[str]:
    free, need = room.free, room.need
    has = "has" if len(room.log_dirs) == 1 else "(one file system) have"
    where = ", ".join(room.log_dirs)
    yield (
        f"{where} {has} {free.bytes} bytes and {free.inodes} inodes free; starting may need"
        f" {need.bytes} and {need.inodes} (logagent rescue shows what can be freed)"
    )
    beyond = [p for p in prestart.beyond if p.dir.device == device]
    if beyond:
        what = _count(beyond, "directory that is due exceeds", "directories that are due exceed")
        yield (
            f"{what} the limits of 24 hours (cleanup.max_dirs, cleanup.max_fraction) and would free"
            f" {human_bytes(_given(beyond, prestart.gains).bytes)} in {where} (logagent cleanup shows a plan that can"
            " be approved)"
        )
    told = gone.union(p.key for p in beyond)
    marked = [p for p in prestart.marked if p.dir.device == device and p.key not in told]
    if marked:
        # Before it is due, removing it needs an approval, and only `rescue` takes one.
        size = _given(marked, prestart.gains).bytes
        rescue = shlex.join(["logagent", "rescue", *(w for d in room.log_dirs for w in ("--log-dir", d))])
        shown = f"{rescue} --need {size}" if size else rescue  # inodes may be all that it frees
        yield (
            f"{_count(marked, 'directory is', 'directories are')} marked for deletion in {where}: removing that now"
            f" would free {human_bytes(size)} and needs an approval ({shown} shows the plan, {rescue} --execute"
            " --approve PLAN_ID carries it out)"
        )


def _removed(done: Done) -> list[Proposal]:
    """What was removed, or in a dry run would be."""
    removals = [p for p in done.plan.actions if p.action is ActionKind.REMOVE and done.plan.needs_approval is None]
    if done.execution is None:
        return removals
    results = done.execution.results
    return [p for p in removals if action_id(p) in results and results[action_id(p)].outcome is Outcome.DONE]


def _given(removals: Sequence[Proposal], gains: Mapping[Key, Space]) -> Space:
    return sum((gains.get(p.key, NOTHING) for p in removals), NOTHING)


def _count(found: Sequence[Proposal], one: str, many: str) -> str:
    return f"1 {one}" if len(found) == 1 else f"{len(found)} {many}"
