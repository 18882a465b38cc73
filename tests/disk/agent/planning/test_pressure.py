"""`cleanup.pressure` on real file systems: which strays go early, and what counts as space."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.disk.cli.commands.test_rescue import HOLD_OPEN, rescue
from tests.disk.messes import Mess, Thing, free, make

NOW = 'pressure_floor = "0s"\n'


@pytest.fixture(params=["ext4", "xfs"])
def root(request: pytest.FixtureRequest, folder_on: Callable[[str], Path]) -> Path:
    return folder_on(request.param)


def cleanup(mess: Mess, settings: str, *arguments: str) -> Any:
    return rescue(mess, *arguments, command="cleanup", settings=f"max_fraction = 1.0\n{settings}").json


def strays(document: Any) -> list[tuple[str, str]]:
    return [(a["name"].split(".")[0], a["reason"]) for a in document["actions"] if a["reason"].startswith("stray")]


def level(mess: Mess, too_much: int) -> str:
    """A `cleanup.pressure` that the file system exceeds by so many bytes."""
    free(mess.root)
    room = os.statvfs(mess.root)
    used = (room.f_blocks - room.f_bfree) * room.f_frsize
    return f"pressure = {(used - too_much) / (used + room.f_bavail * room.f_frsize):.9f}\n{NOW}"


def test_strays_go_early_but_never_before_the_floor(root: Path) -> None:
    mess = make(root, [Thing("stray", 1024), Thing("stray", 1024), Thing("assigned"), Thing("delete", 1024)])
    assert strays(cleanup(mess, "")) == []
    assert strays(cleanup(mess, "pressure = 0.0")) == [], "they were set aside today"
    assert strays(cleanup(mess, f"pressure = 0.0\n{NOW}")) == [("t0-0", "stray-pressure"), ("t1-0", "stray-pressure")]
    assert strays(cleanup(mess, f"pressure = 0.99\n{NOW}")) == []


def test_an_only_copy_frees_nothing(root: Path) -> None:
    """It is the oldest, and larger than what is needed."""
    mess = make(root, [Thing("stray-living", 4096), Thing("stray", 1024), Thing("stray", 1024), Thing("assigned")])
    shown = cleanup(mess, level(mess, 512 << 10))
    assert strays(shown) == [("t1-0", "stray-pressure")]
    assert shown["refusals"] == [] and mess.stays[0].name in {w["name"] for w in shown["waiting"]}


def test_what_is_due_and_refused_frees_nothing(root: Path) -> None:
    mess = make(root, [Thing("delete", 4096), Thing("stray", 1024, second_dir=True), Thing("assigned")])
    ((marked,), _) = mess.may_go
    settings = f'{level(mess, 512 << 10)}leftover_grace = "0s"\n[delete]\nfile_delete_delay_ms = 0'
    assert strays(cleanup(mess, settings)) == []
    command = [sys.executable, "-c", HOLD_OPEN, str(marked / "00000000000000000000.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        shown = cleanup(mess, settings)
        holder.communicate()
    assert [r["guard"] for r in shown["refusals"]] == ["lock"]
    assert strays(shown) == [("t1-0", "stray-pressure")]


def test_as_many_go_as_really_give_back_what_is_needed(root: Path) -> None:
    """The files of the oldest are kept by a second link."""
    mess = make(root, [Thing("linked", 2048), Thing("stray", 1024), Thing("stray", 1024), Thing("assigned")])
    assert [name for name, _ in strays(cleanup(mess, level(mess, 512 << 10)))] == ["t0-0", "t1-0"]
    assert [name for name, _ in strays(cleanup(mess, level(mess, 1536 << 10)))] == ["t0-0", "t1-0", "t2-0"]


def test_it_adds_no_more_than_the_blast_radius_leaves(root: Path) -> None:
    """What is due goes all the same, and a stopped plan is not made larger."""
    mess = make(root, [Thing("stray")] * 4 + [Thing("delete")] * 2 + [Thing("assigned")] * 10)
    due = f'pressure = 0.0\n{NOW}leftover_grace = "0s"\nmax_dirs = {{}}\n[delete]\nfile_delete_delay_ms = 0'

    def planned(most: int) -> tuple[int, int, bool]:
        shown = cleanup(mess, due.format(most))
        early = strays(shown)
        assert early == [(f"t{n}-0", "stray-pressure") for n in range(len(early))], "the oldest first"
        return len(shown["actions"]) - len(early), len(early), shown["refusals"] != []

    assert [planned(most) for most in (6, 5, 4, 3, 2)] == [(2, n, False) for n in (4, 3, 2, 1, 0)]
    assert planned(1) == (2, 0, True)
    done = cleanup(mess, due.format(3), "--execute")
    assert {a["outcome"] for a in done["actions"]} == {"done"} and len(done["actions"]) == 3
    assert cleanup(mess, due.format(3))["actions"] == [], "over 24 hours"
