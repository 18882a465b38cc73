"""`logagent scan` for a person: totals first, then what is not assigned, and what was chosen of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import Exit
from tests.host import ALL_DUE, NO_LIMITS, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host.from_disk(tmp_path)
    made.with_assignments(**{**ALL_DUE, **NO_LIMITS})
    return made


def dirs(host: Host, *options: str) -> list[dict[str, Any]]:
    ran = host.run("scan", "--json", *options)
    assert ran.status == Exit.OK, ran.err
    return list(ran.json["dirs"])


def test_totals_come_first_then_log_dirs_then_what_is_not_assigned(host: Host) -> None:
    out = host.run("scan").out
    kinds = Counter(d["kind"] for d in dirs(host))
    orphans = [d for d in dirs(host) if d["verdict"] == "orphan"]
    first = out.splitlines()[0]
    assert first.startswith(f"2 log dirs, {kinds.total()} directories, ")
    for kind, count in kinds.items():
        assert f"{count} {kind}" in first
    assert f"; {len(orphans)} orphans (" in first and "unknown" not in first
    strays = sum(d["kind"] == "stray" for d in orphans)
    assert strays and first.endswith(f", {strays} of them strays)"), "explain counts them as strays"
    places = [out.index(f"\n{title}") for title in ("Log dirs", "Not assigned", "Assigned")]
    assert places == sorted(places) and "\nUnknown" not in out
    not_assigned, assigned = out[places[1] : places[2]], out[places[2] :]
    for d in orphans:
        assert f"{d['log_dir']}/{d['name']} " in not_assigned and d["name"] not in assigned.split()
    assert "used" in out and "%" in out


def test_without_assignments_nothing_is_called_an_orphan(host: Host) -> None:
    host.configure(**{"assignments.sources": ["file"], "assignments.file": "/nowhere", **NO_LIMITS})
    out = host.run("scan", "--all").out
    assert " orphan" not in out.splitlines()[0] and " unknown (" in out.splitlines()[0]
    assert "\nUnknown" in out and "\nAssigned" not in out


def test_kinds_and_verdicts_are_chosen_for_people_and_programs_alike(host: Host) -> None:
    every = dirs(host)
    for options, wanted in (
        (("--kind", "stray"), lambda d: d["kind"] == "stray"),
        (("--kind", "stray", "--kind", "delete"), lambda d: d["kind"] in ("stray", "delete")),
        (("--verdict", "orphan"), lambda d: d["verdict"] == "orphan"),
        (("--verdict", "orphan", "--kind", "current"), lambda d: (d["verdict"], d["kind"]) == ("orphan", "current")),
    ):
        chosen = [(d["log_dir"], d["name"]) for d in every if wanted(d)]
        assert chosen and [(d["log_dir"], d["name"]) for d in dirs(host, *options)] == chosen
        lines = host.run("scan", "--jsonl", *options).out.splitlines()
        assert [json.loads(line)["name"] for line in lines[1:]] == [name for _, name in chosen]
        out = host.run("scan", "--all", *options).out
        shown = {(d["log_dir"], d["name"]) for d in every if f" {d['log_dir']}/{d['name']} " in out}
        assert shown == set(chosen)
        assert out.startswith(f"2 log dirs, {len(every)} directories, "), "totals are of everything"
    assert host.run("scan", "--kind", "strays").status == Exit.USAGE


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("size", lambda d: -d["allocated"]),
        ("files", lambda d: -d["files"]),
        ("newest", lambda d: d["newest_mtime"] or ""),
        ("name", lambda d: (d["topic"] or d["name"], -1 if d["partition"] is None else d["partition"], d["name"])),
    ],
)
def test_the_order_can_be_chosen(host: Host, sort: str, key: Any) -> None:
    found = [key(d) for d in dirs(host, "--sort", sort)]
    assert found == sorted(found, reverse=sort == "newest")


def test_it_is_said_where_rows_are_left_out(host: Host) -> None:
    for n in range(60):
        (host.d1 / f"more-{n}").mkdir()
    ran = host.run("scan")
    total = len(dirs(host))
    assert f"of {total}; --all shows all" in ran.err
    assert "--all shows" not in host.run("scan", "--all").err
