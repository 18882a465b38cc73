"""`logagent scan`: the inventory of this host's log dirs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from logagent.cli.documents import dir_rows, scan_head
from logagent.cli.host import note_health, read_assignments, session_of, take_inventory
from logagent.cli.options import Call, common
from logagent.cli.render import dump_line, human_bytes, table

# A person reads so many rows; --all, --json and --jsonl give every one.
SHOWN = 40


@click.command()
@click.option("--jsonl", is_flag=True, help="One JSON object per line: the head, then one per directory.")
@click.option("--all", "show_all", is_flag=True, help="Every directory in the table, not only the largest.")
@common
def scan(call: Call, jsonl: bool, show_all: bool) -> None:
    """Show every log dir and every directory in it, with the bytes that no tool which asks the broker can see."""
    with session_of(call) as session:
        read_assignments(session, call)
        take_inventory(session, call)
        facts = session.facts()
        note_health(call, facts)
        if session.journal_problem is not None:
            call.say(f"full topic names may be missing: {session.journal_problem}")
        head = scan_head(session, facts, call.host)
        rows = dir_rows(session.dirs, facts, session.marks(), session.journal.sightings())
        if jsonl:
            dump_line({"row": "scan", **head})
            for row in rows:
                dump_line({"row": "dir", **row})
        elif call.json:
            _stream(head, rows)
        else:
            _show(call, head, list(rows), show_all=show_all)


def _stream(head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """One document, written row by row: 100,000 directories are never in memory as text."""
    out = sys.stdout
    out.write(json.dumps(head, ensure_ascii=True)[:-1] + ', "dirs": [')
    for number, row in enumerate(rows):
        out.write(("\n" if number == 0 else ",\n") + json.dumps(row, ensure_ascii=True))
    out.write("]}\n")


def _show(call: Call, head: Mapping[str, Any], rows: list[dict[str, Any]], *, show_all: bool) -> None:
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
    table("Log dirs (allocated)", [*columns, *((k, "right") for k in kinds)], ledgers, color=call.color)
    counts = Counter(row["kind"] for row in rows)
    call.say(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "no directories")
    rows.sort(key=lambda row: -row["allocated"])
    shown = rows if show_all else rows[:SHOWN]
    lines = [
        [
            f"{row['log_dir']}/{row['name']}",
            row["kind"],
            human_bytes(row["allocated"]),
            str(row["segments"]),
            f"{row['newest_mtime'][:19].replace('T', ' ')}Z" if row["newest_mtime"] else "",
            "in use" if row["in_use"] else "",
            " ".join(filter(None, (row["verdict"], row["reason"], row["error"]))),
        ]
        for row in shown
    ]
    headings = [("directory", "path"), ("kind", "left"), ("allocated", "right"), ("segments", "right")]
    headings += [("newest write", "left"), ("", "left"), ("verdict", "text")]
    table("Directories", headings, lines, color=call.color)
    if len(shown) < len(rows):
        call.say(f"the {len(shown)} largest of {len(rows)} are shown; --all shows every one")


def _holder(holder: Mapping[str, Any]) -> str:
    return holder["state"] if holder["pid"] is None else f"{holder['state']} by {holder['pid']}"
