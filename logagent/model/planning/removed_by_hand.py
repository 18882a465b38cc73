"""Which removed files that a process keeps open are room to be had, and which may be the only copy of records.

A broker never unlinks a segment that it serves: it renames it to `.deleted` first (`LogSegment.changeFileSuffixes`), or
its whole directory to `-delete` (`LogManager.asyncDelete`). What is unlinked under another name was removed by somebody
else while the broker goes on serving it from its descriptor; a restart is what loses it. So only what has one of those
names, is below a `-stray`, in the cache of remote indexes, or in no directory at all is room, or belongs to a directory
of a topic that is proven to be gone; everything else is data at risk: of a topic that lives on other nodes, these may
lack what is here. Nobody knows whose a directory was that is gone with
its `partition.metadata`, so its files are at risk too. Decides; no I/O.
"""

from __future__ import annotations

from dataclasses import replace

from logagent.model.assignments.strays import needs_cover
from logagent.model.facts import Facts
from logagent.model.naming.dir_names import classify
from logagent.model.planning.plan import GuardName, Refusal
from logagent.model.records import Kind, RemovedFile, Verdict

_ROOM = frozenset({Kind.STRAY, Kind.DELETE, Kind.CACHE})
# Their hints are to stop the broker, or whatever uses the log dir.
_WANT_A_STOP: frozenset[GuardName] = frozenset({"lock", "window"})
_COPY_FIRST = "copy what was removed by hand (/proc/PID/fd/N, see removed_by_hand) before anything restarts"


def at_risk(facts: Facts) -> list[tuple[str, RemovedFile]]:
    """What is lost when a process ends, with its log dir, in the order of its names."""
    found = [(path, file) for path, where in facts.log_dirs.items() for file in where.open_removed]
    found = [(path, file) for path, file in found if not _is_room(path, file, facts)]
    return sorted(found, key=lambda f: (f[0], f[1].path, f[1].pid, f[1].fd))


def _is_room(log_dir: str, file: RemovedFile, facts: Facts) -> bool:
    if file.path.endswith(".deleted"):
        return True
    name, below, _ = file.path.partition("/")
    if not below:
        return True  # a plain file in the log dir: of no partition
    if classify(name).kind in _ROOM:
        return True
    ruling = facts.rulings.get((log_dir, name))
    return ruling is not None and ruling.verdict is Verdict.ORPHAN and not needs_cover(ruling)


def without_a_stop(refusal: Refusal) -> Refusal:
    """`refusal` with a hint that does not lead to a loss, while anything is at risk."""
    return replace(refusal, hint=_COPY_FIRST) if refusal.guard in _WANT_A_STOP else refusal
