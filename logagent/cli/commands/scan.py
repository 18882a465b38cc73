"""`logagent scan`: the inventory of this host's log dirs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from logagent.agent.session.scan_rows import dir_rows, scan_head
from logagent.agent.session.session import Session
from logagent.cli.host_session import note_health, read_assignments, say_where_they_end, session_of, take_inventory
from logagent.cli.options import Call, common, reads_assignments
from logagent.cli.render import dump_line, dump_rows, human_bytes, table
from logagent.model.assignments.strays import needs_cover
from logagent.model.assignments.verdict import Reason
from logagent.model.facts import Facts, Ruling
from logagent.model.planning.rescue_steps import at_risk
from logagent.model.records import DirKey, Kind

# Enough for a person; --all, --json and --jsonl show every row.
SHOWN = 40


@click.command()
@click.option("--jsonl", is_flag=True, help="One JSON object per line: the head, then one per directory.")
@click.option("--all", "show_all", is_flag=True, help="Show every directory, not only the largest.")
@reads_assignments
@common
def scan(call: Call, jsonl: bool, show_all: bool) -> None:
    """Show every log dir and every directory in it, including the bytes that the broker's own tools cannot see."""
    with session_of(call) as session:
        read_assignments(session, call)
        take_inventory(session, call)
        facts = session.facts(to_plan=False)
        say_where_they_end(session, call)
        note_health(call, facts)
        if session.journal_problem is not None:
            call.say(f"full topic names may be missing: {session.journal_problem}")
        head, missing = scan_head(session, facts, call.host), session.without_directory(facts)
        head["without_directory"] = [
            {"topic": w.topic, "partition": w.partition, "topic_id": w.topic_id, "only_copy": w.only_copy}
            for w in missing
        ]
        shown = session.dirs
        if not (jsonl or call.json):
            session.dirs.sort(key=lambda d: -d.allocated)
            shown = session.dirs if show_all else session.dirs[:SHOWN]
        strays = session.stray_verdicts(facts.now_ms)
        details = _details(session, facts, strays)
        rows = (
            row | details.get(DirKey(row["log_dir"], row["name"]), {})
            for row in dir_rows(shown, facts, session.marks(), session.sightings(), strays)
        )
        if jsonl:
            dump_line({"row": "scan", **head})
            for row in rows:
                dump_line({"row": "dir", **row})
        elif call.json:
            dump_rows(rows, before=json.dumps(head, ensure_ascii=True)[:-1] + ', "dirs": [', after="]}")
        else:
            _show(call, head, rows, Counter(d.kind.value for d in session.dirs))
        if missing:
            names = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
            call.say(
                f"{len(missing)} partitions are assigned here and have no directory (a start makes them anew, empty): "
                f"{names}; logagent check says of each what to do"
            )
        if lost := at_risk(facts):
            call.say(
                f"{len(lost)} files removed by hand are still open and may be the only copy of their records: logagent "
                "rescue says what to copy before anything restarts"
            )


def _details(session: Session, facts: Facts, strays: Mapping[DirKey, Ruling]) -> dict[DirKey, dict[str, str | None]]:
    """Of strays and copies, what their verdict rests on: to whom one has moved, and whether another copy has all of it;
    of strays, that is asked as before a removal."""
    asked = [d for d in session.of_kind(Kind.STRAY) if needs_cover(strays[d.key])]
    covered = session.rule_on_strays(asked, facts.now_ms)
    found = {key: {"detail": covered.get(key, r).detail} for key, r in strays.items()}
    return found | {key: {"detail": r.detail} for key, r in facts.rulings.items() if r.reason == Reason.COPY_OF}


def _show(call: Call, head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], counts: Counter[str]) -> None:
    columns = [("log dir", "path"), ("health", "left"), ("holder", "left")]
    kinds = ("current", "future", "stray", "delete", "other", "unexplained", "free")
    ledgers = [
        [
            d["path"],
            d["health"],
            _holder(d["holder"]),
            *(human_bytes(d["ledger"][kind]) if d["ledger"] else "" for kind in kinds),
        ]
        for d in head["log_dirs"]
    ]
    shared = _shared_file_systems(head["log_dirs"])
    for line, d in zip(ledgers, head["log_dirs"], strict=True):
        if any(d["path"] in paths[1:] for paths in shared):
            line[-2:] = ["", ""]
    table("Log dirs (allocated)", [*columns, *((k, "right") for k in kinds)], ledgers, color=call.color)
    for paths in shared:
        call.say(f"{', '.join(paths)} share one file system: what is free or unexplained there is shown once")
    call.say(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "no directories")
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
        for row in rows
    ]
    headings = [("directory", "path"), ("kind", "left"), ("allocated", "right"), ("size", "right?")]
    headings += [("segments", "right?"), ("newest write", "left?"), ("", "left"), ("verdict", "text")]
    table("Directories", headings, lines, color=call.color)
    if len(lines) < counts.total():
        call.say(f"showing the {len(lines)} largest of {counts.total()}; --all shows all")


def _verdict(row: Mapping[str, Any]) -> str:
    detail = row.get("detail")
    # What was asked as before a removal begins with the reason.
    said = (
        row["verdict"],
        None if detail and row["reason"] and row["reason"] in detail else row["reason"],
        row["error"],
    )
    return ": ".join(filter(None, (" ".join(filter(None, said)), detail)))


def _shared_file_systems(log_dirs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The paths of log dirs that are on the same device, where there are several."""
    found: dict[int, list[str]] = {}
    for d in log_dirs:
        if d["device"] is not None and d["ledger"]:
            found.setdefault(d["device"], []).append(d["path"])
    return [paths for paths in found.values() if len(paths) > 1]


def _holder(holder: Mapping[str, Any]) -> str:
    return holder["state"] if holder["pid"] is None else f"{holder['state']} by {holder['pid']}"
