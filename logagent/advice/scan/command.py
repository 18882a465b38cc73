"""`logagent scan`: the inventory of this host's log dirs, and its rows as published snapshots have them too, as plain
dicts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from logagent import __version__
from logagent.base.claims import of_ruling, since_when
from logagent.base.console.options import Call, common, gathered, reads_assignments
from logagent.base.console.render import dump_line, dump_rows, human_bytes, show_line, table
from logagent.base.records import LOADED_KINDS, DirKey, Kind, PartitionDir, Verdict
from logagent.base.units import LAST_MS, counted, rfc3339, rfc3339_or_none
from logagent.cleanup.plan.plan import Waiting
from logagent.cleanup.plan.planner import Told
from logagent.cleanup.plan.queue import full_topic, marked_at_ms
from logagent.cleanup.rescue.rules import at_risk
from logagent.cleanup.session.gather import rule_on_strays
from logagent.cleanup.session.left_log_dirs import missing as missing_of
from logagent.cleanup.session.of_command import (
    needs_log_dirs,
    note_health,
    read_assignments,
    say_where_they_end,
    session_of,
    take_inventory,
)
from logagent.cleanup.session.session import Session
from logagent.disk.scan import LogDirInventory
from logagent.verdict.copies import needs_cover
from logagent.verdict.facts import Facts, LogDirFacts, unread_processes
from logagent.verdict.rules import VerdictReason
from logagent.verdict.without_directory import LeftLogDir, Missing, as_told, named

_IS_MARKED = (Kind.STRAY, Kind.DELETE)


def scan_head(session: Session, facts: Facts, host: str) -> dict[str, Any]:
    """`logagent.scan/2` without its `dirs`, of which there are many."""
    version = facts.kafka_version
    return {
        "schema": "logagent.scan/2",
        "at": rfc3339(facts.now_ms),
        "host": host,
        "agent_version": __version__,
        "cluster_id": session.log_dirs.cluster.cluster_id,
        "node_id": session.log_dirs.cluster.node_id,
        "kafka_version": ".".join(map(str, version)) if version else None,
        "assignments": session.assignments.document(facts.now_ms),
        "as_of": {
            witness.value: rfc3339(ms)
            for witness, ms in since_when(ruling.proof for ruling in facts.rulings.values()).items()
        },
        "unread_processes": unread_processes(facts.log_dirs),
        "log_dirs": log_dir_rows(facts.log_dirs, session.inventory.by_log_dir),
    }


def log_dir_rows(
    log_dirs: Mapping[str, LogDirFacts], inventories: Mapping[str, LogDirInventory]
) -> list[dict[str, Any]]:
    ledgers = ledgers_of(log_dirs, inventories)
    return [_log_dir_row(facts, ledgers.get(path)) for path, facts in log_dirs.items()]


def _log_dir_row(facts: LogDirFacts, ledger: dict[str, int] | None) -> dict[str, Any]:
    return {
        "path": facts.path,
        "device": facts.identity.device if facts.identity is not None else None,
        "directory_id": facts.directory_id,
        "health": facts.health.value,
        "reason": facts.health_reason,
        "holder": {
            "state": facts.holder.state.value,
            "pid": facts.holder.pid,
            "start_time": rfc3339_or_none(facts.holder.start_time_ms),
        },
        "ledger": ledger,
    }


def ledgers_of(
    log_dirs: Mapping[str, LogDirFacts], inventories: Mapping[str, LogDirInventory]
) -> dict[str, dict[str, int]]:
    """Where the allocated bytes are, by log dir. `size`, `used`, `free` and `unexplained` are of its file system, which
    several log dirs may share (`device` tells): those count once.

    `unexplained` is everything that is in none of these log dirs: the file system's own metadata, other directories,
    and what changed while we looked (so it may be negative).
    """
    own = {
        path: _own(inventory, log_dirs[path].open_removed_bytes)
        for path, inventory in inventories.items()
        if path in log_dirs
    }
    known: Counter[object] = Counter()
    for path, figures in own.items():
        known[_file_system(log_dirs[path])] += sum(figures.values())
    return {
        path: {
            "size": inventories[path].size,
            "used": inventories[path].used,
            "free": inventories[path].free,
            **figures,
            "unexplained": inventories[path].used - known[_file_system(log_dirs[path])],
        }
        for path, figures in own.items()
    }


def sharing(log_dirs: Mapping[str, LogDirFacts], inventories: Mapping[str, LogDirInventory]) -> frozenset[str]:
    """The log dirs on a file system whose figures count at another one: the first of them there, by path."""
    first: dict[object, str] = {}
    known = sorted(path for path in inventories if path in log_dirs)
    return frozenset(path for path in known if first.setdefault(_file_system(log_dirs[path]), path) != path)


def _own(inventory: LogDirInventory, open_removed: int) -> dict[str, int]:
    kinds = dict.fromkeys(LOADED_KINDS, 0)
    for d in inventory.dirs:
        if d.kind in kinds:
            kinds[d.kind] += d.allocated
    named = {kind.value: total for kind, total in kinds.items()}
    return {**named, "other": inventory.other_allocated, "open_removed": open_removed}


def _file_system(facts: LogDirFacts) -> object:
    return facts.identity.device if facts.identity is not None else facts.path


def dir_row(told: Told, facts: Facts) -> dict[str, Any]:
    d, ruling, mark, sighting = told.dir, told.ruling, told.mark, told.sighting
    where = facts.log_dirs.get(d.log_dir)
    marked = d.kind in _IS_MARKED
    says = of_ruling(ruling.proof) if ruling is not None else None
    return {
        "log_dir": d.log_dir,
        "name": d.name,
        "kind": d.kind.value,
        "topic": d.topic,
        "topic_truncated": d.truncated,
        "full_topic": full_topic(d, mark) if d.topic is not None else None,
        "partition": d.partition,
        "uuid": d.uuid,
        "topic_id": d.topic_id,
        "bytes": d.bytes,
        "allocated": d.allocated,
        "files": d.files,
        "segments": d.segments,
        "newest_mtime": rfc3339(d.newest_mtime_ns // 1_000_000) if d.newest_mtime_ns else None,
        "marked_at": rfc3339(marked_at_ms(d, mark)) if marked else None,
        "first_offset": d.first_offset,
        "last_segment_offset": d.last_segment_offset,
        "sightings": sighting.count if sighting is not None else 0,
        "first_seen": rfc3339_or_none(sighting.first_ms) if sighting is not None else None,
        "in_use": _in_use(where, d.name),
        "verdict": told.verdict.value if told.verdict is not None else None,
        "reason": ruling.reason if ruling is not None else None,
        "claim": says.claim.value if says is not None else None,
        "witness": says.witness.value if says is not None else None,
        "error": d.error,
    }


# A sentence may quote a path of 4,096 bytes.
_LONGEST_DETAIL = 600


def step_row(told: Told) -> dict[str, Any]:
    """The next step on it, in the form of `logagent.snapshot/2`; empty if nothing is done with it."""
    if told.step is None:
        return {}
    obstacle, due = told.obstacle, told.goes_at_ms
    waits = isinstance(told.step, Waiting) and told.step.why.fact != told.step.why.code
    return {
        "window": told.window,
        "due_at": None if due is None else min(due, LAST_MS),  # any delay can be configured
        "covered": told.covered,
        "obstacle": obstacle.code if obstacle is not None else None,
        "obstacle_detail": obstacle.fact[:_LONGEST_DETAIL] if obstacle is not None and waits else None,
    }


def _in_use(where: LogDirFacts | None, name: str) -> bool | None:
    """True if a process has it open; None if that is unknown."""
    if where is None:
        return None
    if where.open_by.get(name):
        return True
    return None if where.open_files_unreadable else False


# Enough of each section for a person; --all, --json and --jsonl show every row.
SHOWN = 40
KINDS = tuple(kind.value for kind in Kind)
VERDICTS = tuple(verdict.value for verdict in Verdict)
_SORTS: dict[str, Callable[[PartitionDir], Any]] = {
    "size": lambda d: -d.allocated,
    "name": lambda d: (d.topic or d.name, d.partition if d.partition is not None else -1, d.name),
    "files": lambda d: -d.files,
    "newest": lambda d: -(d.newest_mtime_ns or 0),
}


@dataclass(frozen=True, slots=True)
class DirFilter:
    """Which directories are shown (empty: all), and in which order (None: largest first, or as found)."""

    kinds: tuple[str, ...]
    verdicts: tuple[str, ...]
    sort: str | None

    def of(self, dirs: Iterable[PartitionDir], verdict: Callable[[PartitionDir], str | None]) -> list[PartitionDir]:
        chosen = [d for d in dirs if not self.kinds or d.kind.value in self.kinds]
        chosen = [d for d in chosen if not self.verdicts or verdict(d) in self.verdicts]
        return chosen if self.sort is None else sorted(chosen, key=_SORTS[self.sort])


@click.command()
@click.option("--jsonl", is_flag=True, help="One JSON object per line: the head, then one per directory.")
@click.option("--all", "show_all", is_flag=True, help="Show every directory, not only the largest.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind (repeatable).")
@click.option(
    "--verdict", "verdicts", multiple=True, type=click.Choice(VERDICTS), help="Only this verdict (repeatable)."
)
@click.option("--sort", type=click.Choice(tuple(_SORTS)), help="The order of the directories (tables: by size).")
@reads_assignments
@gathered("choice", DirFilter)
@common
@needs_log_dirs
def scan(call: Call, jsonl: bool, show_all: bool, choice: DirFilter) -> None:
    """Show every log dir and every directory in it, including the bytes that the broker's own tools cannot see: first
    what is not assigned, with the reason, then the largest."""
    with session_of(call) as session:
        read_assignments(session, call)
        take_inventory(session, call)
        facts = session.facts(to_plan=False)
        say_where_they_end(session, call)
        note_health(call, facts)
        if session.journal_problem is not None:
            call.say(f"full topic names may be missing: {session.journal_problem.fact}")
        head, missing = scan_head(session, facts, call.host), missing_of(session, facts)
        head["without_directory"] = [
            {
                "topic": w.topic,
                "partition": w.partition,
                "topic_id": w.topic_id,
                "only_copy": w.only_copy,
                "future": None if w.future is None else f"{w.future.log_dir}/{w.future.name}",
            }
            for w in missing.all
        ]
        head["forgotten_log_dirs"] = list(map(_forgotten, missing.left))
        planner, details = session.planner(facts), _details(session, facts)

        def verdict(d: PartitionDir) -> str | None:
            found = planner.says(d).verdict
            return found.value if found is not None else None

        dirs = choice.of(session.dirs, verdict)

        def rows(of: Sequence[PartitionDir]) -> Iterator[Mapping[str, Any]]:
            return (dir_row(planner.says(d), facts) | details.get(d.key, {}) for d in of)

        if jsonl:
            dump_line({"row": "scan", **head})
            for row in rows(dirs):
                dump_line({"row": "dir", **row})
        elif call.json:
            dump_rows(rows(dirs), before=json.dumps(head, ensure_ascii=True)[:-1] + ', "dirs": [', after="]}")
        else:
            _show_totals(head, session.dirs, verdict)
            _show_log_dirs(call, head)
            ordered = dirs if choice.sort is not None else sorted(dirs, key=_SORTS["size"])
            if not ordered and (choice.kinds or choice.verdicts):
                show_line(f"0 directories are {' or '.join((*choice.kinds, *choice.verdicts))}")
            _show_dirs(call, ordered, rows, verdict, show_all=show_all)
        _say_what_is_missing(call, missing, at_risk(facts))


def _forgotten(left: LeftLogDir) -> dict[str, Any]:
    names = [*map(str, left.partitions), *left.held]
    only = len(left.only_copies) if left.partitions else None
    row = {"path": left.path, "directory_id": left.directory_id, "known": left.known, "known_by": left.known_by}
    return row | {"partitions": names, "only_copies": only}


def _say_what_is_missing(call: Call, missing: Missing, lost: Sequence[object]) -> None:
    for line in as_told(missing):
        call.say(line)
    if missing.here:
        call.say(
            f"{named(missing.here)} assigned here, without a current directory (a start makes them anew, empty, and"
            " truncates a -future one to them); logagent check says of each what to do"
        )
    if missing.hidden:
        where = ", ".join(missing.unseen) or "a log dir that was not named"
        call.say(f"{named(missing.hidden)} assigned here, and may be in {where}, which could not be inspected")
    if lost:
        call.say(
            f"removed by hand and still open: {counted(len(lost), 'file')}, maybe the only copy of their records:"
            " logagent rescue says what to copy before anything restarts"
        )


def _details(session: Session, facts: Facts) -> dict[DirKey, dict[str, str | None]]:
    """Of strays and copies, what their verdict rests on: to whom one has moved, and whether another copy has all of it;
    of strays, that is asked as before a removal."""
    strays = facts.stray_verdicts
    asked = [d for d in session.of_kind(Kind.STRAY) if needs_cover(strays[d.key])]
    covered = rule_on_strays(session, asked, facts.now_ms)
    found = {key: {"detail": covered[key].why.fact if key in covered else r.detail} for key, r in strays.items()}
    return found | {key: {"detail": r.detail} for key, r in facts.rulings.items() if r.reason == VerdictReason.COPY_OF}


def _show_totals(
    head: Mapping[str, Any], dirs: Sequence[PartitionDir], verdict_of: Callable[[PartitionDir], str | None]
) -> None:
    """Everything in one line, whatever is shown below."""
    kinds = Counter(d.kind.value for d in dirs)
    verdicts: Counter[str | None] = Counter()
    allocated: Counter[str | None] = Counter()
    strays = 0
    for d in dirs:
        verdict = verdict_of(d)
        verdicts[verdict] += 1
        strays += verdict == Verdict.ORPHAN.value and d.kind is Kind.STRAY
        allocated[verdict] += d.allocated
    counts = [f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: KINDS.index(item[0]))]
    where, what = counted(len(head["log_dirs"]), "log dir"), counted(len(dirs), "directory")
    total = human_bytes(sum(d.allocated for d in dirs))
    line = f"{where}, {what}, {total} allocated" + (f": {', '.join(counts)}" if counts else "")
    # `explain` counts those as strays.
    set_aside = f", {strays} of them {'strays' if strays != 1 else 'a stray'}" if strays else ""
    found = [
        f"{verdicts[v.value]} {words} ({human_bytes(allocated[v.value])}{more})"
        for v, words, more in (
            (Verdict.ORPHAN, "orphans" if verdicts["orphan"] != 1 else "orphan", set_aside),
            (Verdict.UNKNOWN, "unknown", ""),
        )
        if verdicts[v.value]
    ]
    show_line(line + (f"; {', '.join(found)}" if found else ""))
    click.echo()


def _show_log_dirs(call: Call, head: Mapping[str, Any]) -> None:
    columns = [("log dir", "path"), ("health", "left"), ("holder", "left"), ("used", "right"), ("free", "right")]
    kinds = ("stray", "delete", "current", "future", "other", "unexplained", "size")
    named = ("outside" if kind == "unexplained" else kind for kind in kinds)
    columns += [(kind, "right") for kind in named]  # all of them: a narrow terminal gets a block for each log dir
    ledgers = [
        [
            d["path"],
            d["health"],
            _holder(d["holder"]),
            *((_used(d["ledger"]), human_bytes(d["ledger"]["free"])) if d["ledger"] else ("", "")),
            *(human_bytes(d["ledger"][kind]) if d["ledger"] else "" for kind in kinds),
        ]
        for d in head["log_dirs"]
    ]
    shared = _shared_file_systems(head["log_dirs"])
    for line, d in zip(ledgers, head["log_dirs"], strict=True):
        if any(d["path"] in paths[1:] for paths in shared):
            line[3:5] = line[-2:] = ["", ""]
    table("Log dirs (allocated)", columns, ledgers, color=call.color)
    for paths in shared:
        call.say(f"{', '.join(paths)} share one file system: what is free or outside them there is shown once")


def _used(ledger: Mapping[str, int]) -> str:
    return f"{round(100 * ledger['used'] / ledger['size'])}%" if ledger["size"] else ""


def _show_dirs(
    call: Call,
    dirs: Sequence[PartitionDir],
    rows: Callable[[Sequence[PartitionDir]], Iterator[Mapping[str, Any]]],
    verdict: Callable[[PartitionDir], str | None],
    *,
    show_all: bool,
) -> None:
    """What matters first: what is not assigned, then what nobody can tell, then the rest."""
    sections: dict[str, list[PartitionDir]] = {"Not assigned": [], "Unknown": [], "Assigned": []}
    for d in dirs:
        value = verdict(d)
        lies = value == Verdict.ORPHAN.value or (d.kind in _SET_ASIDE and value != Verdict.ASSIGNED.value)
        sections["Not assigned" if lies else "Unknown" if value == Verdict.UNKNOWN.value else "Assigned"].append(d)
    left = 0
    for title, members in sections.items():
        shown = members if show_all else members[:SHOWN]
        left += len(members) - len(shown)
        # By log dir, whose path then stands once above its rows.
        by_log_dir = sorted(shown, key=lambda d: d.log_dir)
        if members:
            _show_section(call, title, by_log_dir, rows)
    if left:
        call.say(f"showing {len(dirs) - left} of {len(dirs)}; --all shows all")


_SET_ASIDE = (Kind.STRAY, Kind.DELETE, Kind.INVALID)


def _show_section(
    call: Call,
    title: str,
    dirs: Sequence[PartitionDir],
    rows: Callable[[Sequence[PartitionDir]], Iterator[Mapping[str, Any]]],
) -> None:
    lines = [
        [
            f"{row['log_dir']}/{row['name']}",
            row["kind"],
            human_bytes(row["allocated"]),
            human_bytes(row["bytes"]),
            str(row["segments"]),
            f"{row['newest_mtime'][:19].replace('T', ' ')}Z" if row["newest_mtime"] else "",
            "in use" if row["in_use"] else "",
            _verdict(row),
        ]
        for row in rows(dirs)
    ]
    headings = [("directory", "dir"), ("kind", "left"), ("allocated", "right"), ("size", "right?")]
    headings += [("segments", "right?"), ("newest write", "left?"), ("", "left"), ("verdict", "text")]
    table(title, headings, lines, color=call.color)


def _verdict(row: Mapping[str, Any]) -> str:
    detail = row.get("detail")
    # What was asked as before a removal begins with the reason.
    words = (
        row["verdict"],
        None if detail and row["reason"] and row["reason"] in detail else row["reason"],
        row["error"],
    )
    return ": ".join(filter(None, (" ".join(filter(None, words)), detail)))


def _shared_file_systems(log_dirs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The paths of log dirs that are on the same device, where there are several."""
    found: dict[int, list[str]] = {}
    for d in log_dirs:
        if d["device"] is not None and d["ledger"]:
            found.setdefault(d["device"], []).append(d["path"])
    return [paths for paths in found.values() if len(paths) > 1]


def _holder(holder: Mapping[str, Any]) -> str:
    return holder["state"] if holder["pid"] is None else f"{holder['state']} by {holder['pid']}"
