"""`logagent prestart` on full file systems: what it removes, so that the broker can start, and what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.base.clock import SystemClock
from logagent.base.errors import Exit
from logagent.cleanup.session.recall import clocks_now
from logagent.cleanup.state.journal import Journal
from tests.command_line import Ran
from tests.disk.cleanup.rescue.test_rescue import HOLD_OPEN, rescue
from tests.disk.conftest import LoopFs
from tests.disk.messes import Mess, Thing, fill_bytes, fill_inodes, make

DUE = 'max_fraction = 1.0\nstray_retention = "0s"\n'
MARKED_DUE = f'{DUE}leftover_grace = "0s"\nmax_dirs = {{}}\n[delete]\nfile_delete_delay_ms = 0'
# The last 5 % of an ext4 are for root, and `fill_bytes` takes them too.
PLAIN = {"ext4": "-m 0", "xfs": ""}
MIB = 1 << 20


@pytest.fixture(params=["ext4", "xfs"])
def point(request: pytest.FixtureRequest, loop_fs: LoopFs) -> Path:
    return loop_fs(request.param, options=PLAIN[request.param])


def full(mess: Mess) -> Mess:
    """`mess`, on a full file system. Its state dir was used before, so that the journal has its reserve."""
    assert rescue(mess, "--execute", command="cleanup", settings='stray_retention = "365d"').status in (0, 3)
    fill_bytes(mess.root)
    return mess


def prestart(mess: Mess, *arguments: str, settings: str = DUE) -> Ran:
    config = mess.root.parent / "logagent.toml"
    return rescue(mess, "--budget", "60s", *arguments, command="prestart", settings=settings, config=config)


def acts(document: Any) -> list[tuple[str, str, str]]:
    return [
        (a["name"].split(".")[0], a["action"], a["outcome"])
        for a in document["plan"]["actions"]
        if a["action"] != "drop-checkpoint-entry"
    ]


def available(point: Path) -> int:
    """For users other than root."""
    room = os.statvfs(point)
    return room.f_bavail * room.f_frsize


def test_what_is_due_is_removed_until_there_is_room_and_the_rest_is_marked(point: Path) -> None:
    strays = [Thing("stray", 4096), Thing("stray", 4096)]
    mess = full(make(point, [*strays, Thing("assigned"), Thing("stray-living")]))
    ran = prestart(mess)
    assert acts(ran.json) == [("t0-0", "remove", "done"), ("t1-0", "mark", "done")], ran.err
    assert [path for path in mess.stays if not path.exists()] == []
    assert available(point) > MIB and "free; starting may need" not in ran.err


def test_what_a_guard_refuses_counts_for_nothing(point: Path) -> None:
    """The oldest is an only copy, and larger than what is needed."""
    mess = full(make(point, [Thing("stray-living", 8192), Thing("stray", 4096), Thing("assigned")]))
    ran = prestart(mess)
    assert acts(ran.json) == [("t1-0", "remove", "done")]
    assert [(r["name"], r["guard"]) for r in ran.json["plan"]["refusals"]] == [(mess.stays[0].name, "assigned")]
    assert "free; starting may need" not in ran.err and mess.stays[0].exists()


def test_a_file_with_a_second_link_counts_for_nothing(point: Path) -> None:
    mess = full(make(point, [Thing("linked", 8192), Thing("stray", 4096), Thing("stray", 4096), Thing("assigned")]))
    ran = prestart(mess)
    assert acts(ran.json) == [("t0-0", "remove", "done"), ("t1-0", "remove", "done"), ("t2-0", "mark", "done")]
    assert "free; starting may need" not in ran.err


def test_blocks_that_a_reflink_keeps_make_no_room_and_it_goes_on(loop_fs: LoopFs) -> None:
    """They count as given back: only statvfs shows that they are not."""
    point = loop_fs("xfs", options="-m reflink=1")
    mess = make(point, [Thing("stray", 8192), Thing("stray", 4096), Thing("stray", 4096), Thing("assigned")])
    ((oldest,), *_) = mess.may_go
    name = f"{0:020d}.log"
    subprocess.run(["cp", "--reflink=always", oldest / name, point / "copy"], check=True)
    ran = prestart(full(mess))
    assert acts(ran.json) == [("t0-0", "remove", "done"), ("t1-0", "remove", "done"), ("t2-0", "mark", "done")]
    assert "free; starting may need" not in ran.err and available(point) > MIB


def test_log_dirs_of_one_file_system_need_room_together(point: Path) -> None:
    """What the second one needs comes from strays in the first."""
    strays = [Thing("stray", 1024)] * 5
    mess = full(make(point, [*strays, *[Thing("assigned", 16, second_dir=True)] * 40]))
    ran = prestart(mess)
    assert Counter((action, outcome) for _, action, outcome in acts(ran.json))["remove", "done"] >= 3
    assert "free; starting may need" not in ran.err
    assert available(point) >= 2 * MIB + 40 * (32 << 10)


def test_strays_in_a_quarantine_directory_make_room_too(point: Path) -> None:
    """Before 3.6.1 there are no others."""
    aside = point / "aside"
    aside.mkdir()
    config = point.parent / "logagent.toml"
    mess = make(point, [Thing("orphan", 4096), Thing("orphan", 4096), *[Thing("assigned", 16)] * 4])
    kept = f'max_fraction = 1.0\nmin_age = "0s"\nsightings = 1\nquarantine_dirs = ["{aside}"]\n'
    assert rescue(mess, "--execute", command="cleanup", settings=kept, version="3.5.2", config=config).status == 0
    assert len(list(aside.iterdir())) == 2
    fill_bytes(point)
    ran = rescue(
        mess,
        "--budget",
        "60s",
        command="prestart",
        settings=f'{kept}stray_retention = "0s"',
        version="3.5.2",
        config=config,
    )
    assert [(action, outcome) for _, action, outcome in acts(ran.json)] == [("remove", "done")], ran.err
    assert len(list(aside.iterdir())) == 1 and "free; starting may need" not in ran.err


def test_a_file_system_with_room_gives_nothing(loop_fs: LoopFs) -> None:
    mess = make(loop_fs("ext4", options=PLAIN["ext4"]), [Thing("assigned")])
    things = [Thing("invalid"), Thing("stray", 4096, second_dir=True), Thing("delete", 4096, second_dir=True)]
    other = make(loop_fs("ext4", options=PLAIN["ext4"]), things).log_dirs[1]
    mess.log_dirs = (mess.log_dirs[0], other)
    ran = prestart(full(mess), settings=MARKED_DUE.format(50))
    assert acts(ran.json) == [("t1-0", "mark", "done")]
    assert f"{mess.log_dirs[0]} has" in ran.err and f"{other} has" not in ran.err


def test_inodes_that_a_second_link_keeps_count_for_nothing(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4", options="-N 1024 -m 0")
    mess = make(point, [Thing("stray", 16)] * 20 + [Thing("assigned", 16)])
    ((oldest,), *_) = mess.may_go
    for number in range(100):
        os.link(oldest / "partition.metadata", oldest / f"{number}.linked")
    rescue(mess, "--execute", command="cleanup", settings='stray_retention = "365d"')
    fill_inodes(point)
    ran = prestart(mess)
    found = Counter(action for _, action, _ in acts(ran.json))
    assert 5 <= found["remove"] < 20 and found["mark"] == 20 - found["remove"], ran.err
    assert os.statvfs(point).f_favail >= 36 and "free; starting may need" not in ran.err


def test_it_goes_on_until_statvfs_agrees(loop_fs: LoopFs) -> None:
    """The reserve for root is used up: what is removed first is not free for the broker's user."""
    point = loop_fs("ext4", options="-m 2")
    mess = full(make(point, [Thing("stray", 4096)] * 4 + [Thing("assigned")]))
    ran = prestart(mess)
    assert [action for _, action, _ in acts(ran.json)] == ["remove", "remove", "remove", "mark"], ran.err
    assert available(point) > MIB and "free; starting may need" not in ran.err


def test_strict_does_not_prevent_a_start_that_it_made_possible(point: Path) -> None:
    mess = full(make(point, [Thing("stray", 16384), Thing("assigned")]))
    assert prestart(mess, "--strict", "--dry-run").status == 0
    ran = prestart(mess, "--strict")
    assert ran.status == 0, ran.err
    assert not [f for f in ran.json["findings"] if f["code"] == "full"]


def test_a_dry_run_says_that_the_broker_starts_once_the_plan_is_carried_out(point: Path) -> None:
    mess = full(make(point, [Thing("stray", 16384), Thing("assigned")]))
    shown = prestart(mess, "--dry-run")
    assert "the broker would start only once this plan is carried out: " in shown.err
    assert "fatal for this start:" not in shown.err and "free; starting may need" not in shown.err
    # What is found is what is so now.
    found = {(f["code"], f["path"]) for f in shown.json["findings"] if f["severity"] == "fatal"}
    assert found == {("full", str(d)) for d in mess.log_dirs}
    assert {(f["code"], f["path"]) for f in shown.json["settled_by_plan"]} == found
    ran = prestart(mess)
    assert (acts(ran.json), ran.json["settled_by_plan"]) == ([("t0-0", "remove", "done")], [])
    assert "the broker would" not in ran.err


@pytest.mark.parametrize("why", ["gives too little", "needs approval"])
def test_a_dry_run_whose_plan_does_not_suffice_says_that_the_broker_would_not_start(point: Path, why: str) -> None:
    strays = [Thing("linked", 4096)] if why == "gives too little" else [Thing("stray", 4096)] * 2
    mess = full(make(point, [*strays, *[Thing("assigned", 16)] * 4]))
    if why == "needs approval":
        # All that may go today went already.
        assert len(acts(prestart(mess, settings=MARKED_DUE.format(1)).json)) == 1
        fill_bytes(point / "d1")
    shown = prestart(mess, "--strict", "--dry-run", settings=MARKED_DUE.format(1))
    assert shown.status == (Exit.CHECK_FATAL if why == "gives too little" else Exit.APPROVAL), shown.err
    assert "fatal for this start:" in shown.err and "only once this plan" not in shown.err
    assert shown.json["settled_by_plan"] == []


def test_strict_prevents_a_start_that_removals_did_not_make_possible(point: Path) -> None:
    mess = full(make(point, [Thing("linked", 4096), Thing("assigned")]))
    ran = prestart(mess, "--strict")
    # Its directory, and the small files in it, make room for the next write, not for a start.
    assert acts(ran.json) == [("t0-0", "remove", "done")] and "free; starting may need" in ran.err


def test_what_is_marked_and_not_due_is_named_with_the_command_that_frees_it(point: Path) -> None:
    mess = full(make(point, [Thing("delete", 4096), Thing("delete", 4096), Thing("stray", 1024), Thing("assigned")]))
    ran = prestart(mess, settings="max_fraction = 1.0")
    assert (ran.status, acts(ran.json)) == (0, [])
    assert {w["reason"] for w in ran.json["plan"]["waiting"]} == {"file.delete.delay.ms", "stray-retention"}
    found = re.search(
        r"2 directories are marked for deletion in .*would free 8\.\d MiB .*rescue (?:--log-dir \S+ )+--need (\d+)",
        ran.err,
    )
    assert found is not None, ran.err
    config = point.parent / "logagent.toml"
    shown = rescue(mess, "--need", found[1], config=config)
    assert [a["step"] for a in shown.json["actions"]] == ["marked", "marked"]
    assert rescue(mess, "--execute", "--approve", shown.json["plan_id"], config=config).status == 0
    assert "free" not in prestart(mess, settings="max_fraction = 1.0").err


def test_of_a_plan_over_the_blast_radius_what_a_start_needs_goes_all_the_same(point: Path) -> None:
    """The safest first, and no rename beside it: those are what exceeds the limits."""
    mess = full(make(point, [*[Thing("stray", 16)] * 4, *[Thing("delete", 4096)] * 3, *[Thing("assigned", 16)] * 10]))
    ran = prestart(mess, "--strict", settings=MARKED_DUE.format(3))
    assert (ran.status, acts(ran.json)) == (Exit.REFUSED, [("t4-0", "remove", "done")]), ran.err
    assert "free; starting may need" not in ran.err and available(point) > MIB
    assert [(r["name"], r["fact"], r["hint"]) for r in ran.json["plan"]["refusals"]] == [
        (
            "",
            "5 directories within 24 hours exceed cleanup.max_dirs = 3; only what makes room for a start is removed",
            "prestart takes no approval; logagent cleanup shows a plan that can be approved",
        )
    ]
    # Room is there now, so the renames are one plan again, and what was removed counts.
    again = prestart(mess, settings=MARKED_DUE.format(3))
    assert again.status == Exit.APPROVAL and {outcome for *_, outcome in acts(again.json)} == {None}


@pytest.mark.parametrize(("most", "left"), [(2, 3), (3, 2), (4, 1)])
def test_where_the_limits_do_not_suffice_as_much_as_they_allow_goes_and_the_rest_is_said(
    point: Path, most: int, left: int
) -> None:
    mess = full(make(point, [*[Thing("stray", 128)] * 5, *[Thing("assigned", 16)] * 10]))
    ran = prestart(mess, settings=MARKED_DUE.format(most))
    assert ran.status == Exit.REFUSED, ran.err
    assert acts(ran.json) == [(f"t{n}-0", "remove", "done") for n in range(most)]
    assert "free; starting may need" in ran.err
    what = "1 directory that is due exceeds" if left == 1 else f"{left} directories that are due exceed"
    assert f"{what} the limits of 24 hours (cleanup.max_dirs, cleanup.max_fraction)" in ran.err


def test_what_was_taken_within_a_day_counts_for_a_start_too(point: Path) -> None:
    mess = full(make(point, [*[Thing("stray", 128)] * 5, *[Thing("assigned", 16)] * 10]))
    assert len(acts(prestart(mess, settings=MARKED_DUE.format(2)).json)) == 2
    ran = prestart(mess, settings=MARKED_DUE.format(2))
    assert ran.status == Exit.APPROVAL and {outcome for *_, outcome in acts(ran.json)} == {None}
    assert "free; starting may need" in ran.err and "3 directories that are due exceed the limits" in ran.err


def test_within_the_limits_those_go_that_make_a_start_possible(point: Path) -> None:
    """The oldest would be safest, but gives too little."""
    mess = full(make(point, [*[Thing("stray", 16)] * 4, Thing("stray", 4096), *[Thing("assigned", 16)] * 10]))
    ran = prestart(mess, settings=MARKED_DUE.format(1))
    assert (ran.status, acts(ran.json)) == (Exit.REFUSED, [("t4-0", "remove", "done")]), ran.err
    assert "free; starting may need" not in ran.err


def test_a_start_comes_before_renames_that_the_blast_radius_allows(point: Path) -> None:
    mess = full(make(point, [*[Thing("delete", 4096)] * 3, *[Thing("stray", 16)] * 2, *[Thing("assigned", 16)] * 10]))
    ran = prestart(mess, settings=MARKED_DUE.format(2))
    assert (ran.status, acts(ran.json)) == (Exit.REFUSED, [("t0-0", "remove", "done")]), ran.err
    assert [r["guard"] for r in ran.json["plan"]["refusals"]] == ["blast-radius"]
    assert "free; starting may need" not in ran.err


def test_what_gives_nothing_back_does_not_use_the_blast_radius(point: Path) -> None:
    other = Thing("delete", 4096)
    mess = full(make(point, [other, other, *[Thing("assigned", 16)] * 10]))
    (oldest,), (younger,) = mess.may_go
    for file in oldest.iterdir():
        os.link(file, mess.root / f"linked-{file.name}")
    ran = prestart(mess, settings=MARKED_DUE.format(1))
    assert (ran.status, acts(ran.json)) == (0, [("t1-0", "remove", "done")]), ran.err
    assert not younger.exists() and oldest.exists()


def test_limits_that_one_file_system_does_not_need_are_left_for_another(loop_fs: LoopFs) -> None:
    other = make(loop_fs("ext4", options=PLAIN["ext4"]), [Thing("stray", 16), Thing("delete", 4096)])
    mess = make(loop_fs("ext4", options=PLAIN["ext4"]), [*[Thing("delete", 4096)] * 3, *[Thing("assigned", 16)] * 9])
    mess.log_dirs = (mess.log_dirs[0], other.log_dirs[0])
    fill_bytes(other.root)
    ran = prestart(full(mess), settings=MARKED_DUE.format(2))
    assert Counter(acts(ran.json)) == {("t0-0", "remove", "done"): 1, ("t1-0", "remove", "done"): 1}, ran.err
    assert "free; starting may need" not in ran.err


def test_the_blast_radius_is_used_where_space_is_lacking(loop_fs: LoopFs) -> None:
    other = make(loop_fs("ext4", options=PLAIN["ext4"]), [Thing("delete", 4096)] * 2)
    mess = make(loop_fs("ext4", options=PLAIN["ext4"]), [*[Thing("delete", 4096)] * 3, *[Thing("assigned", 16)] * 3])
    mess.log_dirs = (mess.log_dirs[0], other.log_dirs[0])
    ran = prestart(full(mess), settings=MARKED_DUE.format(1))
    assert (ran.status, acts(ran.json)) == (0, [("t0-0", "remove", "done")]), ran.err
    assert not mess.may_go[0][0].exists()


def test_what_a_guard_refuses_does_not_use_the_blast_radius_and_is_shown(point: Path) -> None:
    strays = [Thing("delete", 4096), Thing("delete", 4096, second_dir=True)]
    mess = full(make(point, [*strays, *[Thing("assigned", 16)] * 10]))
    ((held,), (free,)) = mess.may_go
    command = [sys.executable, "-c", HOLD_OPEN, str(held / "00000000000000000000.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        ran = prestart(mess, settings=MARKED_DUE.format(1))
        holder.communicate()
    assert acts(ran.json) == [("t1-0", "remove", "done")] and not free.exists()
    assert [(r["name"], r["guard"]) for r in ran.json["plan"]["refusals"]] == [(held.name, "lock")]


def test_while_the_clock_is_in_doubt_nothing_is_removed(point: Path) -> None:
    mess = full(make(point, [Thing("stray", 4096), Thing("delete", 4096), Thing("assigned")]))
    now = clocks_now(SystemClock())
    with Journal.open(str(mess.root / "state")) as journal:
        journal.note_clocks(replace(now, wall_ms=now.wall_ms + 48 * 3_600_000))
    ran = prestart(mess, settings=MARKED_DUE.format(50))
    assert acts(ran.json) == []
    assert [(path,) for (path,) in mess.may_go if not path.exists()] == []
    assert sum("clock" in w["reason"] for w in ran.json["plan"]["waiting"]) == 2
    assert "1 directory is marked for deletion" in ran.err
