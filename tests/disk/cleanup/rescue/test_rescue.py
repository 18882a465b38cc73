"""`logagent rescue` on real file systems: what it offers of any mess, what it promises, what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from logagent.base.dir_names import CLEANER
from logagent.base.records import TopicPartition
from logagent.cleanup.rescue.plan_rescue import plan_rescue
from logagent.cleanup.state.reserve import RESERVE_NAME
from logagent.kafka.files.checkpoint_files import parse_checkpoint, render_checkpoint
from logagent.kafka.files.log_extent import read_log_extent
from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
from tests import metadata_writer as writer
from tests.command_line import Ran, run_here
from tests.disk.conftest import LoopFs
from tests.disk.doctor_host import DISK, STATE, TOML, doctor_host
from tests.disk.killed import in_process, under_strace
from tests.disk.messes import (
    SORTS,
    Mess,
    Sort,
    Thing,
    ThisNodeLeads,
    content,
    fill_all_but,
    fill_bytes,
    fill_inodes,
    free,
    lock_held,
    make,
)
from tests.disk.sessions import FailingHost
from tests.host import NO_LIMITS, Host
from tests.kafka_disks import metadata_dir
from tests.long_form import FULL
from tests.needs import need_command
from tests.waiting import wait_until

MIB = 1 << 20
# Less than this is noise of a file system's own books.
NOISE = 256 << 10

things = st.lists(
    st.builds(Thing, st.sampled_from(SORTS), st.integers(16, 1024), st.booleans(), st.sampled_from([0.0, 3.0, 30.0])),
    min_size=4,
    max_size=14,
)


def rescue(
    mess: Mess,
    *arguments: str,
    command: str = "rescue",
    settings: str = "",
    state: Path | None = None,
    config: Path | None = None,
    version: str = "3.9.1",
) -> Ran:
    given = {"command": command, "settings": settings, "version": version}
    return rescue_text(mess, "--json", *arguments, **given, state=state, config=config)


def rescue_text(
    mess: Mess,
    *arguments: str,
    command: str = "rescue",
    settings: str = "",
    state: Path | None = None,
    config: Path | None = None,
    version: str = "3.9.1",
) -> Ran:
    toml = config or mess.root / "logagent.toml"
    text = (f'[kafka]\nversion = "{version}"\n[assignments]\nsources = ["file"]\n'
            f'file = "{mess.assignments}"\n[cleanup]\n{settings}\n')  # fmt: skip
    # On a full disk the same bytes may find no room once they were given up.
    if not toml.exists() or toml.read_text() != text:
        toml.write_text(text)
    common = ["--config", str(toml), "--state-dir", str(state or mess.root / "state")]
    common += [word for d in mess.log_dirs for word in ("--log-dir", str(d))]
    return run_here(command, *common, *arguments)


def offered(document: Any) -> set[Path]:
    return {Path(a["log_dir"]) / a["name"] for a in document["actions"] if a["action"] != "drop-checkpoint-entry"}


@pytest.fixture(params=["ext4", "xfs"])
def point(request: pytest.FixtureRequest, folder_on: Callable[[str], Path]) -> Path:
    return folder_on(request.param)


# On each file system everything at once, and a few drawn ones. One that fails is not made smaller, which takes minutes
# on real disks.
MESSES = settings(
    max_examples=10 if FULL else 3,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# Everything that may go, once, and everything that may not.
ALL = [Thing(sort, 512, bool(n % 2), 30.0) for n, sort in enumerate(SORTS)]


@MESSES
@example(wanted=ALL)
@given(wanted=things)
def test_a_mess_gives_back_what_was_promised_and_nothing_else(point: Path, tmp_path: Path, wanted: list[Thing]) -> None:
    root = point / tmp_path.name
    root.mkdir()
    try:
        mess = make(root, wanted)
        before = {path: content(path) for path in mess.stays}
        shown = rescue(mess)
        assert shown.status in (0, 4), shown.err
        found = offered(shown.json)
        assert found <= {path for group in mess.may_go for path in group}
        assert all(len(found.intersection(group)) == 1 for group in mess.may_go), (found, mess.may_go)
        promised = shown.json["rescue"]["gives_back"]
        room = free(point)
        # Its state dir is elsewhere: a first journal, with its reserve, takes room of its own. And it is this mess's
        # own: one that remembers the mess before it takes directories of the same names for what came back.
        state = Path(tempfile.mkdtemp(dir=tmp_path))
        done = rescue(mess, "--execute", "--approve", shown.json["plan_id"], state=state)
        assert {a["outcome"] for a in done.deeds} <= {"done"}, (done.deeds, done.json["refusals"])
        assert done.json["totals"]["freed_bytes"] == promised
        # xfs frees the blocks of removed files in the background.
        wait_until(lambda: abs(free(point) - room - promised) <= 0.05 * promised + NOISE, f"{promised} bytes come back")
        assert {path: content(path) for path in mess.stays} == before
        assert [path for path in found if path.exists()] == []
    finally:
        shutil.rmtree(root)


def test_files_below_with_a_second_link_are_not_promised(point: Path, tmp_path: Path) -> None:
    """As at the top: the other name may be anywhere."""
    root = point / tmp_path.name
    root.mkdir()
    try:
        mess = make(root, [Thing("stray", 64), Thing("assigned")])
        below = mess.may_go[0][0] / "sub" / "below"
        below.mkdir(parents=True)
        (below / "alone").write_bytes(b"x" * MIB)
        (below / "linked").write_bytes(b"x" * 8 * MIB)
        (root / "keep").hardlink_to(below / "linked")
        shown = rescue(mess)
        promised, room = shown.json["rescue"]["gives_back"], free(point)
        assert MIB <= promised < 2 * MIB
        done = rescue(mess, "--execute", "--approve", shown.json["plan_id"], state=tmp_path / "state")
        assert {a["outcome"] for a in done.deeds} == {"done"}
        wait_until(lambda: abs(free(point) - room - promised) <= NOISE, f"{promised} bytes come back")
    finally:
        shutil.rmtree(root)


def test_what_gives_nothing_back_is_reported_where_something_is_needed(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray", 512), Thing("orphan", 256), Thing("stray", 64), Thing("assigned")])
    (linked,), (orphan,), (helpful,) = mess.may_go
    for path in (linked, orphan):
        for file in path.iterdir():
            (tmp_path / f"{path.name}.{file.name}").hardlink_to(file)
    whole = rescue(mess).json
    giving = {a["name"]: a["gives_back"] for a in whole["actions"] if a["action"] != "drop-checkpoint-entry"}
    assert {name for name, size in giving.items() if not size} == {linked.name, orphan.name} and giving[helpful.name]
    assert not [k for k in whole["rescue"]["kept"] if k["name"] in giving]
    for arguments in (["--need", "1GiB"], ["--need", "1"], ["--need", "1GiB", "--execute"]):
        shown = rescue(mess, *arguments).json
        kept = {k["name"]: k for k in shown["rescue"]["kept"] if "frees nothing now" in k["reason"]}
        assert kept.keys() == {linked.name, orphan.name}, shown
        assert kept[linked.name]["bytes"] >= 512 << 10
        assert not kept.keys() & {r["name"] for r in shown["refusals"]}
    # A plan made without a need takes them, and then they are not kept.
    approved = rescue(mess, "--need", "1GiB", "--approve", whole["plan_id"]).json
    assert len(offered(approved)) == 3
    assert [k for k in approved["rescue"]["kept"] if "frees nothing" in k["reason"]] == []


FILL: dict[str, Callable[[Path], Path]] = {"bytes": fill_bytes, "inodes": fill_inodes}


@pytest.mark.parametrize(("kind", "what"), [("ext4", "bytes"), ("ext4", "inodes"), ("xfs", "bytes")])
def test_on_a_disk_without_room_for_a_byte_or_a_file(loop_fs: LoopFs, kind: str, what: str) -> None:
    """Log dirs and state dir on it; the state dir was used once before. Nothing is kept free by anybody else."""
    point = loop_fs(kind, options="-N 1024" if kind == "ext4" else "")
    mess = make(point, ALL)
    assert rescue(mess, "--execute", "--need", "1").json["mode"] == "execute"
    before = {path: content(path) for path in mess.stays}
    FILL[what](point)
    shown = rescue(mess)
    assert shown.status == 4, shown.err
    done = rescue(mess, "--execute", "--approve", shown.json["plan_id"])
    assert done.status in (0, 3) and {a["outcome"] for a in done.deeds} == {"done"}, (done.err, done.json)
    assert offered(rescue(mess).json) == set()
    assert {path: content(path) for path in mess.stays} == before
    assert (mess.root / "state" / RESERVE_NAME).stat().st_nlink == 1
    assert [log_dir for log_dir in mess.log_dirs if entries(log_dir) > names(log_dir)] == []


def names(log_dir: Path) -> set[str]:
    return {path.name for path in log_dir.iterdir()}


def entries(log_dir: Path) -> set[str]:
    return {str(tp) for tp in parse_checkpoint((log_dir / CLEANER).read_bytes())}


@pytest.mark.parametrize("sort", ["orphan", "double"])
@pytest.mark.parametrize(("kind", "what"), [("ext4", "bytes"), ("ext4", "inodes"), ("xfs", "bytes")])
def test_where_nothing_else_makes_room_its_own_indexes_do(loop_fs: LoopFs, kind: str, what: str, sort: Any) -> None:
    """An entry has to leave a checkpoint before a directory is set aside, and that takes a new file."""
    point = loop_fs(kind, options="-N 1024" if kind == "ext4" else "")
    mess = make(point, [Thing(sort, 512), Thing(sort, 512), Thing("assigned")])
    gone = [path for paths in mess.may_go for path in paths]
    assert [path for path in gone if path.name not in entries(path.parent)] == []
    for path in gone:
        # As many entries as 40 MiB of records have: xfs makes no file with less free.
        (path / f"{0:020d}.timeindex").write_bytes(bytes(range(12)) * 10_000)
    before = {path: content(path) for path in mess.stays}
    assert rescue(mess, "--execute", "--need", "1").json["mode"] == "execute"
    FILL[what](point)
    done = rescue(mess, "--execute", "--approve", rescue(mess).json["plan_id"])
    assert done.status == 0 and {a["outcome"] for a in done.deeds} == {"done"}, (done.err, done.json)
    assert [path for path in gone if path.exists()] == []
    assert {path: content(path) for path in mess.stays} == before
    assert [log_dir for log_dir in mess.log_dirs if entries(log_dir) > names(log_dir)] == []


def test_one_that_cannot_make_room_keeps_no_other_from_making_it(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4")
    mess = make(point, [Thing("orphan", 512) for _ in range(3)])
    log_dir = mess.log_dirs[0]
    (log_dir / CLEANER).write_bytes(render_checkpoint({TopicPartition("t1", 0): 40}))
    for index in log_dir.glob("*/*index"):
        index.unlink()
    assert rescue(mess, "--execute", "--need", "1").json["mode"] == "execute"
    fill_bytes(point)
    done = rescue(mess, "--execute", "--approve", rescue(mess).json["plan_id"])
    assert done.status == 0 and {a["outcome"] for a in done.deeds} == {"done"}, (done.err, done.json)
    assert not any(log_dir.glob("t*"))


def test_a_log_dir_without_room_for_a_longer_name(loop_fs: LoopFs) -> None:
    """Its own block is full of names, and there is no block for more."""
    point = loop_fs("ext4", options="-N 4096 -b 1024")
    mess = make(point, [Thing("orphan", 512)])
    log_dir = mess.log_dirs[0]
    (log_dir / CLEANER).unlink()
    assert rescue(mess, "--execute", "--need", "1").json["mode"] == "execute"
    # Directories never shrink: how many names fit is tried out in another one.
    trial = point / "trial"
    shutil.copytree(log_dir, trial)
    size, more = trial.stat().st_size, 0
    assert log_dir.stat().st_size == size
    while trial.stat().st_size == size:
        more += 1
        (trial / f"zz-{more:04d}").touch()
    shutil.rmtree(trial)
    for number in range(1, more):
        (log_dir / f"zz-{number:04d}").touch()
    assert log_dir.stat().st_size == size
    fill_bytes(point)
    done = rescue(mess, "--execute", "--approve", rescue(mess).json["plan_id"])
    assert done.status == 0 and {a["outcome"] for a in done.deeds} == {"done"}, (done.err, done.json)
    assert not any(log_dir.glob("t*"))


def test_interrupted_between_set_aside_and_removal_it_says_so(tmp_path: Path) -> None:
    need_command("strace")
    mess = make(tmp_path, [Thing("orphan"), Thing("orphan")])
    command = ["rescue", "--assignments", str(mess.assignments)]
    _, shown = in_process(mess.root, command)
    approved = [*command, "--execute", "--approve", shown["plan_id"]]
    ran = under_strace(mess.root, approved, "-e", "trace=renameat2", "-e", "inject=renameat2:signal=INT:when=2")
    assert ran.returncode == 130, ran.stderr
    told = json.loads(ran.stdout)
    assert Counter((a["action"], a["outcome"]) for a in told["actions"] if a["action"] != "drop-checkpoint-entry") == {
        ("quarantine", "done"): 2,
        ("remove", "skipped"): 2,
    }
    assert len(list(mess.log_dirs[0].glob("*-stray"))) == 2


def test_no_copy_is_read_before_what_needs_none_is_gone(tmp_path: Path) -> None:
    """Reading 500 GB takes hours, and a marked directory goes at once."""
    need_command("strace")
    mess = make(tmp_path, [Thing("delete"), Thing("double")])
    ((marked,), (duplicate,)), (kept,) = mess.may_go, mess.stays
    log = tmp_path / "trace"
    command = ["rescue", "--log-dir", str(mess.log_dirs[1]), "--assignments", str(mess.assignments)]
    _, shown = in_process(mess.root, command)
    approved = [*command, "--execute", "--approve", shown["plan_id"]]
    assert under_strace(mess.root, approved, "-y", "-o", str(log), "-e", "trace=unlinkat,pread64").returncode == 0
    lines = log.read_text().splitlines()
    last = max(n for n, line in enumerate(lines) if "unlinkat(" in line and marked.name in line)
    # A look at its end begins at the batch that the index names: only who reads it all reads its first byte.
    read = [n for n, line in enumerate(lines) if f"<{kept}/{0:020d}.log>" in line and ", 0) = " in line]
    assert read and min(read) > last
    assert not duplicate.exists() and not marked.exists()


@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_dry_run_says_that_acting_would_fail_and_where_to_go_on(loop_fs: LoopFs, tmp_path: Path, state: str) -> None:
    point = loop_fs("ext4")
    mess = make(point, [Thing("stray"), Thing("assigned")])
    shutil.copy(mess.assignments, tmp_path)
    mess = replace(mess, root=tmp_path)
    other = loop_fs("ext4") if state == "read-only" else point
    if state == "full":
        fill_bytes(point)
    else:
        assert rescue(mess, "--execute", state=other / "state").status == 3
        subprocess.run(["mount", "-o", "remount,ro", other], check=True)
    room = "--state-dir, such as /run/logagent"
    for command in ("rescue", "cleanup"):
        shown = rescue(mess, command=command, settings=DUE, state=other / "state")
        assert shown.status == 0 and offered(shown.json), shown.err
        assert "acting would fail: the state dir" in shown.err and room in shown.err
        failed = rescue(mess, "--execute", command=command, settings=DUE, state=other / "state")
        assert failed.status == 1 and room in failed.err and "Permission denied" not in failed.err
    said = rescue(mess, "--budget", "10m", command="prestart", settings=DUE, state=other / "state")
    assert said.status == 0 and room in said.err and room in said.json["hint"]
    done = rescue(mess, "--execute", settings=DUE, state=tmp_path / "elsewhere")
    assert {a["outcome"] for a in done.deeds} == {"done"} and "acting would fail" not in done.err


def test_a_reserve_that_cannot_be_made_is_named(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4")
    mess = make(point, [Thing("stray"), Thing("assigned")])
    ballast = fill_all_but(point, 6 << 20)
    for arguments in ([], ["--execute"]):
        assert "has no journal.reserve" in rescue(mess, *arguments).err
    ballast.unlink()
    fill_all_but(point, 9 << 20)
    # A dry run says nothing that the next act mends. The reserve comes before what else the journal may take.
    for arguments in ([], ["--execute"]):
        assert "journal.reserve" not in rescue(mess, *arguments).err
    fill_bytes(point)
    done = rescue(mess, "--execute", settings=DUE)
    assert {a["outcome"] for a in done.deeds} == {"done"} and "journal.reserve" not in done.err


@settings(MESSES, max_examples=3)
@given(wanted=things)
def test_nothing_is_offered_while_a_broker_may_be_starting(point: Path, tmp_path: Path, wanted: list[Thing]) -> None:
    root = point / tmp_path.name
    root.mkdir()
    try:
        mess = make(root, wanted)
        with lock_held(mess.log_dirs[0]), lock_held(mess.log_dirs[1]):
            shown = rescue(mess)
        assert shown.status == 0 and offered(shown.json) == set()
    finally:
        shutil.rmtree(root)


HOLD_OPEN = "import sys; file = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"


def test_what_is_removed_but_open_is_reported_by_process_and_never_part_of_the_plan(
    point: Path, tmp_path: Path
) -> None:
    root = point / tmp_path.name
    root.mkdir()
    try:
        mess = make(root, [Thing("assigned", 1024), Thing("stray", 256, second_dir=True)])
        log = mess.stays[0] / "00000000000000000000.log"
        size = 1 << 20
        gone = mess.stays[0] / "00000000000000000007.log.deleted"
        gone.write_bytes(b"x" * size)
        command = [sys.executable, "-c", HOLD_OPEN, str(gone)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
            gone.unlink()
            shown = rescue(mess)
            (found,) = shown.json["rescue"]["open_removed"]
            assert (found["pid"], found["bytes"], found["is_holder"]) == (holder.pid, size, False)
            assert found["log_dir"] == str(mess.stays[0].parent) and "python" in found["program"]
            assert {path.name for path in offered(shown.json)} == {mess.may_go[0][0].name}
            assert shown.json["rescue"]["gives_back"] < size
            # It is for a person to end that process.
            done = rescue(mess, "--execute", "--approve", shown.json["plan_id"], state=tmp_path / "state")
            assert {a["outcome"] for a in done.deeds} == {"done"} and holder.poll() is None
            room = free(point)
            holder.communicate()
        wait_until(lambda: free(point) - room >= size, "xfs frees the blocks in the background")
        assert log.exists() and rescue(mess).json["rescue"]["open_removed"] == []
    finally:
        shutil.rmtree(root)


def test_what_was_removed_by_hand_is_to_be_copied_and_no_room(point: Path, tmp_path: Path) -> None:
    """Nothing that the same process keeps counts as room: ending it would lose the rest."""
    root = point / tmp_path.name
    root.mkdir()
    try:
        mess = make(root, [Thing("assigned", 1024), Thing("stray", 256, second_dir=True)])
        log = mess.stays[0] / "00000000000000000000.log"
        content = log.read_bytes()
        leak = mess.log_dirs[1] / "leak.log"
        leak.write_bytes(b"x" * MIB)
        command = [sys.executable, "-c", HOLD_OPEN.replace("sys.argv[1])", "sys.argv[1]), open(sys.argv[2])")]
        with subprocess.Popen([*command, str(log), str(leak)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
            log.unlink()
            leak.unlink()
            shown = rescue(mess).json["rescue"]
            (found,) = shown["removed_by_hand"]
            assert (found["log_dir"], found["file"]) == (str(mess.log_dirs[0]), f"{log.parent.name}/{log.name}")
            assert Path(found["descriptor"]).read_bytes() == content and found["bytes"] == len(content)
            assert shown["open_removed"] == []
            words = rescue_text(mess)
            assert "copy /proc/PID/fd/N before anything restarts" in words.out and found["descriptor"] in words.out
            assert "restart it" not in words.out
            holder.communicate()
        assert rescue(mess).json["rescue"]["removed_by_hand"] == []
    finally:
        shutil.rmtree(root)


def test_processes_that_may_not_be_read_are_counted(tmp_path: Path) -> None:
    """What root's process keeps open is seen by root alone, who becomes the user of the state dir, also to look."""
    with doctor_host(tmp_path) as host:
        gone = f"{DISK}/d1/gone"
        host.path(gone).write_bytes(b"x" * MIB)
        command = host.command(sys.executable, "-c", HOLD_OPEN, gone)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
            host.path(gone).unlink()

            def shown(*words: str, user: str | None = None) -> Ran:
                return host.logagent("rescue", "--config", TOML, "--state-dir", STATE, *words, user=user)

            everybodys = "of other users cannot be read: removed files that they"
            blind = shown("--json"), shown("--json", user="kafka"), shown("--json", "--execute", "--need", "1")
            for found in (ran.json["rescue"] for ran in blind):
                # Its init, the holder and the shell or nsenter above it.
                assert found["open_removed"] == [] and 2 <= found["unread_processes"] <= 4, found
            assert everybodys in shown(user="kafka").err and everybodys in shown().err
            assert "scan --json as root counts those" in shown().err
            explain = ("explain", "--log-dirs-only", "--config", TOML, "--state-dir", STATE)
            explained = host.logagent(*explain, user="kafka")
            assert "cannot be read: removed files that they keep open count as outside" in explained.err
            scan = ("scan", "--config", TOML, "--state-dir", STATE, "--json")
            counted = host.logagent(*scan).json
            assert [where["ledger"]["open_removed"] for where in counted["log_dirs"]] == [MIB, 0]
            assert counted["unread_processes"] == 0 and host.logagent(*scan, user="kafka").json["unread_processes"] >= 2
            for tree in (STATE, DISK):
                host.own(tree, 0)
            seen = shown("--json").json["rescue"]
            assert [o["bytes"] for o in seen["open_removed"]] == [MIB] and seen["unread_processes"] == 0
            assert "of other users" not in shown().err
            # Root in a container may lack the capability: no advice to be root.
            rescue_there = host.logagent_command("rescue", "--config", TOML, "--state-dir", STATE)
            drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
            limited = host.run(*drop, *rescue_there, check=False).stderr
            assert "of other users cannot be read" in limited and "as root" not in limited
            holder.communicate()


def test_a_failed_removal_is_tried_again_after_its_wait_or_with_approval(tmp_path: Path) -> None:
    need_command("strace")
    mess = make(tmp_path, [Thing("delete"), Thing("assigned")])
    marked = mess.may_go[0][0]
    command = ["rescue", "--assignments", str(mess.assignments)]
    # Nothing foresees that (a module of the kernel that watches over files, say).
    denied = ("-P", str(marked), "-e", "trace=unlinkat", "-e", "inject=unlinkat:error=EPERM")
    for _ in range(2):
        _, shown = in_process(mess.root, command)
        failed = under_strace(mess.root, [*command, "--execute", "--approve", shown["plan_id"]], *denied)
        assert failed.returncode == 1, failed.stderr
        assert {a["outcome"] for a in json.loads(failed.stdout)["actions"]} == {"failed"}
    # As if it had failed more often: an hour is long enough for what follows.
    with sqlite3.connect(mess.root / "state/journal.db") as journal:
        assert journal.execute("SELECT attempts FROM failures").fetchall() == [(2,)]
        journal.execute("UPDATE failures SET attempts = 13")
    journal.close()
    status, refused = in_process(mess.root, [*command, "--execute"])
    assert status == 3 and [r["fact"] for r in refused["refusals"]] == [
        "it would be removed early (the wait after a failed removal)"
    ]
    _, shown = in_process(mess.root, command)
    assert [a["shortens"] for a in shown["actions"]] == ["the wait after a failed removal"]
    _, done = in_process(mess.root, [*command, "--execute", "--approve", shown["plan_id"]])
    assert {a["outcome"] for a in done["actions"]} == {"done"} and not marked.exists()


def test_internal_topics_go_only_when_they_are_named(point: Path, tmp_path: Path) -> None:
    root = point / tmp_path.name
    root.mkdir()
    try:
        mess = make(root, [Thing("stray-internal"), Thing("assigned")])
        assert offered(rescue(mess).json) == set()
        shown = rescue(mess, "--include-internal")
        assert {path.name for path in offered(shown.json)} == {mess.stays[0].name}
        # The plan of that id is another one without the option.
        refused = rescue(mess, "--execute", "--approve", shown.json["plan_id"])
        assert refused.status != 0 and mess.stays[0].exists(), refused.json
        done = rescue(mess, "--include-internal", "--execute", "--approve", shown.json["plan_id"])
        assert {a["outcome"] for a in done.deeds} == {"done"} and not mess.stays[0].exists()
        assert mess.stays[1].exists()
    finally:
        shutil.rmtree(root)


def test_an_approval_to_set_aside_is_not_one_to_remove(tmp_path: Path) -> None:
    """`cleanup` and `rescue` would set the same directories aside; only `rescue` removes them in the same run."""
    mess = make(tmp_path, [Thing("orphan"), Thing("orphan"), Thing("assigned"), Thing("assigned")])
    limited = 'sightings = 1\nmin_age = "0s"\nmax_dirs = 1'
    reversible = rescue(mess, command="cleanup", settings=limited)
    removing = rescue(mess, settings=limited)
    assert reversible.status == removing.status == 4
    assert offered(reversible.json) == offered(removing.json) != set()
    crossed = (("rescue", reversible.json["plan_id"]), ("cleanup", removing.json["plan_id"]))
    for command, approval in crossed:
        refused = rescue(mess, "--execute", "--approve", approval, command=command, settings=limited)
        assert refused.status == 4, refused.err
    assert [path for path in offered(removing.json) if not path.exists()] == []
    done = rescue_text(mess, "--execute", "--approve", removing.json["plan_id"], settings=limited)
    assert re.search(r"\n2 of 2 done, ", done.err), "each directory once, though it is set aside and then removed"
    assert done.out.count("-stray") == 0 and done.out.count(" done") == 2
    assert [path for path in offered(removing.json) if path.exists()] == []


def test_no_more_goes_than_is_needed_and_only_what_was_approved(tmp_path: Path) -> None:
    """Set aside a moment ago: all of them would go early."""
    mess = make(tmp_path, [Thing("stray", 512), Thing("delete", 512), Thing("orphan", 512), Thing("assigned")])
    paths = [group[0] for group in mess.may_go]
    assert offered(rescue(mess).json) == set(paths)
    one = rescue(mess, "--need", "1")
    assert len(offered(one.json)) == 1 and one.json["rescue"]["more"] > 0
    for arguments in (["--execute"], ["--execute", "--approve", "0123456789abcdef"]):
        refused = rescue(mess, *arguments, settings="max_fraction = 1.0")
        assert refused.status in (3, 4) and not any(a["outcome"] for a in refused.deeds), refused.json
        assert all(path.exists() for path in paths), arguments
    done = rescue(mess, "--need", "1", "--execute", "--approve", one.json["plan_id"])
    assert {a["outcome"] for a in done.deeds} == {"done"} and sum(path.exists() for path in paths) == 2


def with_a_decayed_copy(root: Path, *strays: Thing) -> tuple[Mess, Path, list[Path]]:
    """A mess with one more stray, offered first, and a batch in the middle of its covering copy that no longer has its
    checksum: only the reading at the act shows that. Returns the mess, that stray and the others."""
    mess = make(root, [Thing("stray-covered", 1200), *strays])
    log = mess.stays[0] / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[5000] ^= 0xFF
    log.write_bytes(data)
    (bad,) = mess.if_led
    return mess, bad, [path for (path,) in mess.may_go]


@pytest.fixture
def led_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host's broker leads every partition, whoever is asked."""
    monkeypatch.setattr(BrokersToAsk, "leaders", lambda _: ThisNodeLeads())


def test_what_another_copy_here_has_goes_where_this_node_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mess = make(tmp_path, ALL)
    claims = {Path(r["log_dir"]) / r["name"]: r["claim"] for r in rescue(mess).json["refusals"]}
    assert {claims[path] for path in mess.if_led} == {"covered"}
    monkeypatch.setattr(BrokersToAsk, "leaders", lambda _: ThisNodeLeads())
    found = offered(rescue(mess).json)
    assert found >= set(mess.if_led) and found <= {path for group in mess.may_go for path in group} | set(mess.if_led)


DUE = 'max_fraction = 1.0\nstray_retention = "0s"'


@pytest.mark.usefixtures("led_here")
def test_it_goes_on_until_enough_was_really_freed(loop_fs: LoopFs, tmp_path: Path) -> None:
    mess, bad, (first, second) = with_a_decayed_copy(loop_fs("tmpfs"), Thing("stray", 600), Thing("stray", 600))
    shown = rescue(mess, "--need", "400KiB", settings=DUE, state=tmp_path / "state")
    assert offered(shown.json) == {bad} and shown.json["rescue"]["missing"] == 0
    done = rescue(mess, "--need", "400KiB", "--execute", settings=DUE, state=tmp_path / "state")
    assert done.outcomes() == {bad.name: "skipped", first.name: "done"} and done.status == 3
    assert done.json["totals"]["freed_bytes"] >= 400 << 10 and done.json["rescue"]["missing"] == 0
    assert bad.exists() and not first.exists() and second.exists()
    # Each was tried once, and what is missing is said.
    done = rescue(mess, "--need", "1GiB", "--execute", settings=DUE, state=tmp_path / "state")
    assert done.outcomes() == {bad.name: "skipped", second.name: "done"} and done.status == 3
    assert done.json["rescue"]["missing"] == (1 << 30) - done.json["totals"]["freed_bytes"]
    said = rescue_text(mess, "--need", "1GiB", "--execute", settings=DUE, state=tmp_path / "state")
    assert "1.0 GiB needed, 1.0 GiB missing" in said.err.splitlines()
    assert said.err.rstrip().endswith("nothing was done: refused, see above") or "0 of 1 done" in said.err, said.err


@pytest.mark.parametrize("need, status", [("400KiB", 0), ("1GiB", 3)])
def test_a_script_sees_whether_enough_was_freed(loop_fs: LoopFs, tmp_path: Path, need: str, status: int) -> None:
    mess = make(loop_fs("tmpfs"), [Thing("stray", 600)])
    assert rescue(mess, "--need", need, settings=DUE, state=tmp_path / "state").status == 0
    done = rescue(mess, "--need", need, "--execute", settings=DUE, state=tmp_path / "state")
    assert list(done.outcomes().values()) == ["done"] and done.status == status, done.json["refusals"]


@pytest.mark.usefixtures("led_here")
def test_going_on_takes_nothing_that_needs_an_approval(loop_fs: LoopFs, tmp_path: Path) -> None:
    """By the blast radius, or because it would go early."""
    limits = 'max_fraction = 1.0\nmax_dirs = 2\nstray_retention = "0s"'
    things = [Thing("stray", 600), Thing("stray", 600), Thing("stray", 600), Thing("orphan", 1024)]
    mess, bad, (first, *others) = with_a_decayed_copy(loop_fs("tmpfs"), *things)
    done = rescue(mess, "--need", "1700KiB", "--execute", settings=limits, state=tmp_path / "state")
    assert done.outcomes() == {bad.name: "skipped", first.name: "done"} and done.status == 3
    assert [path for path in (bad, *others) if not path.exists()] == []
    assert {name: done.guards().get(name) for name in (p.name for p in others)} == {
        others[0].name: "blast-radius", others[1].name: "blast-radius", others[2].name: None
    }  # fmt: skip
    assert done.json["rescue"]["missing"] and done.json["rescue"]["more"]
    done = rescue(mess, "--need", "1GiB", "--execute", settings=limits.replace("2", "9"), state=tmp_path / "state")
    assert others[2].exists() and done.guards()[others[2].name] == "policy"
    assert not others[0].exists() and not others[1].exists()


@pytest.mark.usefixtures("led_here")
def test_an_approval_is_of_exactly_the_plan_that_was_shown(loop_fs: LoopFs, tmp_path: Path) -> None:
    mess, bad, others = with_a_decayed_copy(loop_fs("tmpfs"), Thing("stray", 600), Thing("stray", 600))
    shown = rescue(mess, "--need", "400KiB", settings=DUE, state=tmp_path / "state")
    arguments = ["--need", "400KiB", "--execute", "--approve", shown.json["plan_id"]]
    done = rescue(mess, *arguments, settings=DUE, state=tmp_path / "state")
    assert done.outcomes() == {bad.name: "skipped"} and done.status == 3
    assert done.json["rescue"]["missing"] == 400 << 10
    assert [path for path in (bad, *others) if not path.exists()] == []


def test_what_came_later_counts_in_no_figure_of_an_approved_plan(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray", 512), Thing("delete", 2048), Thing("orphan", 512), Thing("assigned")])
    late = mess.may_go[1][0]
    late.rename(tmp_path / "hidden")
    shown = rescue(mess).json
    (tmp_path / "hidden").rename(late)
    whole = rescue(mess).json["rescue"]["gives_back"]
    approved = rescue(mess, "--approve", shown["plan_id"])
    assert offered(approved.json) == offered(shown) and late not in offered(shown) and approved.status == 0
    found = approved.json["rescue"]
    assert found["gives_back"] == shown["rescue"]["gives_back"] and found["gives_back"] + found["more"] == whole
    short = rescue(mess, "--approve", shown["plan_id"], "--need", str(whole)).json["rescue"]
    assert (short["gives_back"], short["missing"]) == (found["gives_back"], found["more"])


def on_two_disks(first: Path, second: Path, root: Path, thing: Thing) -> Mess:
    """A mess of this thing and an assigned one, with a log dir on each disk and the rest elsewhere."""
    mess = make(first, [thing, Thing("assigned")])
    shutil.move(mess.log_dirs[1], second / "d2")
    mess = replace(mess, root=root, log_dirs=(mess.log_dirs[0], second / "d2"))
    shutil.copy(first / "assignments.json", mess.assignments)
    return mess


def test_a_need_is_of_one_file_system(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Or it would be met on the disk that has room. Log dirs on one file system count as one."""
    full, roomy = loop_fs("ext4"), loop_fs("ext4")
    mess = on_two_disks(full, roomy, tmp_path, Thing("stray", 2048))
    fill_bytes(full)
    for arguments in ([], ["--execute"], ["--execute", "--approve", "0123456789abcdef"]):
        refused = rescue(mess, "--need", "1MiB", *arguments, settings=DUE)
        assert refused.status == 2 and refused.out == ""
        first, second = (refused.err.index(f"--log-dir {d} (") for d in mess.log_dirs)
        assert first < second and "(0 B free)" in refused.err
    assert offered(rescue(mess).json)
    # A mount point without its disk is no second file system; a log dir that was used, however little, is one.
    point = loop_fs("ext4") / "d3"
    point.mkdir()
    (point / "lost+found").mkdir()
    with_third = replace(mess, log_dirs=(mess.log_dirs[0], point))
    assert rescue(with_third, "--need", "1MiB").status != 2
    for name in ("t9-0", "t9-0.0123456789abcdef0123456789abcdef-delete"):
        (point / name).mkdir()
        assert rescue(with_third, "--need", "1MiB").status == 2
        (point / name).rmdir()
    (point / "meta.properties").touch()
    assert rescue(with_third, "--need", "1MiB").status == 2
    # The other ones of its server.properties count for what is known, not for the need.
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=3\nlog.dirs={mess.log_dirs[0]},{mess.log_dirs[1]}\n")
    one = replace(mess, log_dirs=mess.log_dirs[:1])  # type: ignore[arg-type]
    done = rescue(one, "--need", "1MiB", "--execute", "--kafka-config", str(properties), settings=DUE)
    assert {a["outcome"] for a in done.deeds} == {"done"} and free(full) >= MIB


def test_of_two_alike_the_one_where_room_is_needed_goes(loop_fs: LoopFs, tmp_path: Path) -> None:
    """The one in the log dir that is named; without --log-dir, the one on the fuller disk. Never both."""
    point, other = loop_fs("ext4"), loop_fs("ext4")
    mess = on_two_disks(point, other, tmp_path, Thing("double-alike", 2048))
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=3\nlog.dirs={mess.log_dirs[0]},{mess.log_dirs[1]}\n")
    one, two = (d / "t0-0" for d in mess.log_dirs)
    for path, covering in (one, two), (two, one):
        alone = replace(mess, log_dirs=(path.parent,))  # type: ignore[arg-type]
        shown = rescue(alone, "--need", "1MiB", "--kafka-config", str(properties))
        assert offered(shown.json) == {path} and shown.json["rescue"]["missing"] == 0
        fill = fill_bytes(point if path is one else other)
        shown = rescue(mess)
        assert offered(shown.json) == {path}
        kept = {k["log_dir"]: (k["reason"], k["detail"]) for k in shown.json["rescue"]["kept"] if k["name"] == "t0-0"}
        assert kept == {str(covering.parent): ("assigned", f"a duplicate: {path} is the one that may go")}
        fill.unlink()
    alone = replace(mess, log_dirs=mess.log_dirs[1:])  # type: ignore[arg-type]
    arguments = ["--need", "1MiB", "--kafka-config", str(properties), "--execute", "--approve"]
    shown = rescue(alone, *arguments[:-2])
    done = rescue(alone, *arguments, shown.json["plan_id"])
    assert {a["outcome"] for a in done.deeds} == {"done"}, done.json
    assert one.exists() and not two.exists() and free(other) >= MIB
    assert offered(rescue(mess).json) == set()


def test_what_was_tried_is_left_out_of_the_next_offers(tmp_path: Path) -> None:
    """Whatever became of it, it is tried once: going on ends."""
    mess = make(tmp_path, [Thing("stray"), Thing("stray")])
    with FailingHost(tmp_path / "state", *mess.log_dirs).session() as session:
        session.take_inventory()
        first, second = plan_rescue(session, session.facts(), need=None).offers
        assert set(plan_rescue(session, session.facts(), need=None, leave_out=[first]).offers) == {second}


def test_while_the_clock_is_in_doubt_everything_is_early(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path)
    ages = {"cleanup.stray_retention": "0s", "cleanup.leftover_grace": "0s", **NO_LIMITS}
    host.configure(**{"cleanup.sightings": 100})
    host.run("cleanup", "--execute")
    host.with_assignments(topics_gone=True, **ages)
    assert {a["step"] for a in host.run("rescue", "--json").json["actions"] if a["shortens"] is None}
    host.set_clock(days=8)
    shown = host.run("rescue", "--json").json["actions"]
    assert shown and all("clock was set" in a["shortens"] for a in shown if a["step"] != "double"), shown
    before = host.partitions()
    assert host.run("rescue", "--execute", "--json").status == 3 and host.partitions() == before


def test_what_the_broker_marked_waits_while_a_log_dir_is_not_seen(tmp_path: Path) -> None:
    """It may be the source of a move to that log dir, and the only readable copy."""
    mess = make(tmp_path, [Thing("delete"), Thing("stray"), Thing("assigned", second_dir=True)])
    ((marked,), (stray,)) = mess.may_go
    assert offered(rescue(mess).json) == {marked, stray}
    (mess.log_dirs[1] / "meta.properties").unlink()  # As if its disk were not mounted.
    shown = rescue(mess)
    assert offered(shown.json) == {stray}
    assert [w["name"] for w in shown.json["waiting"]] == [marked.name]
    text = rescue_text(mess)
    assert "this may be the source of a move to it; repair that log dir first" in flat(text.out)
    assert "1 directory, " in text.err and "add --execute" in text.err


def flat(text: str) -> str:
    """Cells of a table that are folded, on one line."""
    return " ".join(text.split())


def test_what_a_stop_of_the_broker_would_free_is_shown_with_its_size(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("orphan", 4096), Thing("assigned")])
    with lock_held(mess.log_dirs[0]), lock_held(mess.log_dirs[1]):
        shown, text = rescue(mess), rescue_text(mess)
    (waits,) = shown.json["waiting"]
    assert waits["name"] == "t0-0" and waits["bytes"] >= 4096 << 10 and waits["reason"].endswith("next stop")
    assert "/t0-0 4.0 MiB 4.0 MiB topic-absent: waiting for the broker's next stop" in flat(text.out)
    assert text.err.splitlines()[-1] == "nothing is due: 1 waits"
    assert "t0" not in [a["topic"] for a in shown.json["rescue"]["retention"]]


def test_a_directory_of_an_internal_topic_is_no_orphan(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("orphan"), Thing("assigned")])
    internal = mess.may_go[0][0].rename(mess.log_dirs[0] / "__consumer_offsets-7")
    for option in ([], ["--include-internal"]):
        shown = rescue(mess, *option)
        assert offered(shown.json) == set()
        assert any(k["name"] == internal.name and "internal" in k["reason"] for k in shown.json["rescue"]["kept"]), (
            shown.json["rescue"]["kept"]
        )


def test_what_else_takes_room_in_a_log_dir_is_reported_and_never_taken(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("assigned"), Thing("delete"), Thing("double-diverged"), Thing("invalid")])
    core, link = mess.log_dirs[0] / "core.1234", mess.log_dirs[0] / "link"
    core.write_bytes(b"x" * (9 * MIB))
    link.symlink_to(core)
    (mess.log_dirs[0] / "bootstrap.checkpoint").write_bytes(b"x")
    shown = rescue(mess)
    kept = {k["name"]: k for k in shown.json["rescue"]["kept"]}
    assert kept.keys() == {"core.1234", "link", "t0-0", "t2-0", "lost+found"}
    assert kept["core.1234"]["bytes"] >= 9 * MIB and "not Kafka's" in kept["core.1234"]["reason"]
    assert "not a partition directory" in kept["lost+found"]["reason"] and kept["lost+found"]["bytes"] > 256 << 10
    assert "not known to be covered" in kept["t2-0"]["detail"]
    assert {path.name for path in offered(shown.json)} == {mess.may_go[0][0].name}
    assert [
        a for a in shown.json["actions"] if "can no longer be restored, although its delay is not over" not in a["cost"]
    ] == []
    text = rescue_text(mess)
    assert "a duplicate, not known to be covered" in flat(text.out)
    assert "not offered: 1 entry, 9.0 MiB: a file that is not Kafka's" in text.err
    done = rescue(mess, "--execute", "--approve", shown.json["plan_id"], settings="max_fraction = 1.0")
    assert {a["outcome"] for a in done.deeds} == {"done"} and core.exists() and link.is_symlink()


def with_brokers_retention(found: Any) -> Any:
    """Without the topic of that disk that has a retention of its own: the day decides what is past it."""
    own = "eu.west_payments-v2"
    return {key: [a for a in found[key] if a["topic"] != own] for key in ("retention", "expired")}


@pytest.mark.parametrize("default", ["compact", "delete"])
def test_what_no_retention_frees_is_reported(tmp_path: Path, default: str) -> None:
    """By the host's own metadata log, and server.properties for topics that have no policy of their own."""
    host = Host.from_disk(tmp_path)
    host.configure(**{"assignments.max_age": "36500d"})
    host.set_property(f"log.cleanup.policy={default}\nlog.retention.ms=-1")
    found = host.run("rescue", "--json").json["rescue"]
    compacted = {c["topic"]: c["cleanup_policy"] for c in found["compacted"]}
    assert set(compacted.values()) == {"compact"}
    assert ("shipments" in compacted) == (default == "compact"), found
    assert ("shipments" in [a["topic"] for a in found["retention"]]) == (default == "delete"), found
    advised = with_brokers_retention(found)["retention"]
    assert [a for a in advised if (a["cleanup_policy"], a["retention_now_ms"]) != ("delete", -1)] == []


def retention_of(host: Host, *records: tuple[int, str, str, str]) -> Any:
    """What a rescue says of the retention of topics, once these (type, resource, name, value) are set."""
    log = metadata_dir(host.disk) / f"{0:020d}.log"
    end = look_at_log_of(log.parent)
    with log.open("ab") as file:
        file.write(writer.batch(end, [writer.config(*r) for r in records], time.time_ns() // 1_000_000, epoch=2))
    return host.run("rescue", "--json").json["rescue"]


def look_at_log_of(directory: Path) -> int:
    fd = os.open(directory, os.O_RDONLY)
    try:
        end = read_log_extent(fd).log_end
    finally:
        os.close(fd)
    assert end is not None
    return end


def test_retention_of_a_tiered_topic_is_local_retention(tmp_path: Path) -> None:
    """retention.ms governs the remote copies too: a lower one would delete them."""
    host = Host.from_disk(tmp_path)
    host.configure(**{"assignments.max_age": "36500d"})
    host.set_property("log.retention.ms=-1")
    before = {a["topic"] for a in host.run("rescue", "--json").json["rescue"]["retention"]}
    assert {"shipments", "clicks"} <= before
    tiered = [(2, topic, "remote.storage.enable", "true") for topic in ("shipments", "clicks")]
    found = retention_of(host, *tiered, (2, "clicks", "remote.log.copy.disable", "true"))
    assert not {"shipments", "clicks"} & {a["topic"] for a in found["retention"]}
    (local,) = found["local_retention"]
    assert (local["topic"], local["retention_now_ms"]) == ("shipments", -1)
    assert local["command"].endswith(f"--entity-name shipments --add-config local.retention.ms={local['retention_ms']}")
    assert [(t["topic"], "remote.log.copy.disable" in t["reason"]) for t in found["no_retention"]] == [("clicks", True)]
    said = host.run("rescue")
    assert f" {local['command']}\n" in said.out and "topic clicks: no retention is advised" in said.err
    # Its own, else the broker's.
    found = retention_of(host, (4, "", "log.local.retention.ms", "3153600000000"))
    assert [a["retention_now_ms"] for a in found["local_retention"]] == [3_153_600_000_000]
    found = retention_of(host, (2, "shipments", "local.retention.ms", "3600000"))
    assert found["local_retention"] == [] and "shipments" not in [e["topic"] for e in found["expired"]]


@pytest.mark.parametrize("sign", ["property", "cache", "topic", None])
def test_where_a_broker_may_tier_and_topics_are_unknown_no_retention_is_advised(
    tmp_path: Path, sign: str | None
) -> None:
    mess = make(tmp_path, [Thing("assigned")])
    properties = mess.root / "server.properties"
    lines = ["node.id=3", "process.roles=broker", f"log.dirs={','.join(map(str, mess.log_dirs))}"]
    match sign:
        case "property":
            lines.append("remote.log.storage.system.enable=true")
        case "cache":
            (mess.log_dirs[0] / "remote-log-index-cache").mkdir()
        case "topic":
            (mess.log_dirs[0] / "__remote_log_metadata-7").mkdir()
        case _:
            lines.append("remote.log.storage.system.enable=False ")
    properties.write_text("\n".join(lines) + "\n")
    found = rescue(mess, "--kafka-config", str(properties)).json["rescue"]
    assert [a["topic"] for a in found["retention"]] == ([] if sign else ["t0"])
    assert [t["topic"] for t in found["no_retention"]] == (["t0"] if sign else [])
    said = rescue_text(mess, "--kafka-config", str(properties))
    assert ("retention.ms=" in said.out) == (sign is None)
    assert ("remote records" in said.err) == (sign is not None)


def nothing_tiered(mess: Mess, *lines: str, log_dirs: Sequence[Path] | None = None) -> list[str]:
    """The option for a server.properties of the mess without remote storage."""
    properties = mess.root / "server.properties"
    dirs = ",".join(map(str, mess.log_dirs if log_dirs is None else log_dirs))
    properties.write_text("\n".join(["node.id=3", "process.roles=broker", f"log.dirs={dirs}", *lines]))
    return ["--kafka-config", str(properties)]


def test_without_a_configuration_any_topic_may_be_tiered(tmp_path: Path) -> None:
    """The index cache of remote segments is only in the first log dir, which may be one that was not named."""
    mess = make(tmp_path, [Thing("assigned")])
    found = rescue(mess).json["rescue"]
    ((topic, reason),) = [(n["topic"], n["reason"]) for n in found["no_retention"]]
    assert found["retention"] == [] and topic == "t0" and "remote records" in reason


def test_a_topic_that_nobody_writes_to_any_more_gives_its_last_segment_too(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("assigned")])
    (mess.stays[0] / f"{0:020d}.log").unlink()
    (mess.stays[0] / f"{0:020d}.timeindex").unlink()
    (found,) = rescue(mess, *nothing_tiered(mess, "log.retention.ms=-1")).json["rescue"]["retention"]
    assert (found["topic"], found["retention_ms"]) == ("t0", 7 * 24 * 3_600_000)
    assert found["gives_back"] == (mess.stays[0] / f"{80:020d}.log").stat().st_blocks * 512


def test_what_is_past_its_retention_needs_no_lower_one(tmp_path: Path) -> None:
    """As after a long stop of the broker: a longer retention must not be advised."""
    host = Host.from_disk(tmp_path)
    host.configure(**{"assignments.max_age": "36500d"})
    host.set_property("log.retention.hours=1")
    shown = with_brokers_retention(host.run("rescue", "--json").json["rescue"])
    assert shown["retention"] == [] and "shipments" in [e["topic"] for e in shown["expired"]], shown
    assert {e["retention_ms"] for e in shown["expired"]} == {3_600_000}
    said = host.run("rescue").err
    assert (
        "topic shipments: " in said
        and " that its retention no longer keeps, which a running broker deletes by itself" in said
    )


@pytest.mark.parametrize(("max_age", "known"), [("36500d", True), ("15m", False)])
def test_a_metadata_log_that_is_no_source_tells_settings_unless_it_is_stale(
    tmp_path: Path, max_age: str, known: bool
) -> None:
    host = Host.from_disk(tmp_path)
    host.with_assignments(**{"assignments.max_age": max_age})
    host.set_property("log.retention.ms=-1")
    found = host.run("rescue", "--json").json["rescue"]
    assert bool(found["compacted"]) is known
    advised = with_brokers_retention(found)["retention"]
    assert {a["retention_now_ms"] for a in advised} == {-1 if known else None}


def test_where_no_metadata_log_tells_them_policy_and_retention_are_unknown(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("assigned")])
    found = rescue(mess, *nothing_tiered(mess)).json["rescue"]
    assert (found["compacted"], found["expired"]) == ([], [])
    assert [(a["topic"], a["cleanup_policy"], a["retention_now_ms"]) for a in found["retention"]] == [
        ("t0", None, None)
    ]
    text = rescue_text(mess, *nothing_tiered(mess)).out
    assert "frees nothing of a topic whose retention is lower already" in text and "up to " in text
    # The broker's default is known: what is not below it may be longer than what the topic has.
    for hours, steps in (2, [1]), (1, None):
        broker = nothing_tiered(mess, f"log.retention.hours={hours}")
        found = rescue(mess, *broker).json["rescue"]["retention"]
        assert [[s["retention_ms"] // 3_600_000 for s in a["steps"]] for a in found] == ([steps] if steps else [])


def test_a_lower_retention_is_advised_only_where_it_frees_something_here(tmp_path: Path) -> None:
    """On orphans it would cost the living replicas their records; what the plan removes is not counted again; what is
    no name of a topic is no word for a shell."""
    sorts: list[Sort] = ["assigned", "orphan", "moved-away", "no-id", "double", "double-diverged", "stray-covered"]
    mess = make(tmp_path, [Thing(sort, 64) for sort in sorts])
    hostile = mess.stays[0].rename(mess.log_dirs[0] / "$(touch${IFS}pwned);reboot-0")
    shown = rescue(mess, *nothing_tiered(mess)).json["rescue"]
    copy = next(path for path in mess.stays if path.name == "t4-0")
    assert [a["topic"] for a in shown["retention"]] == ["t4", "t6"]
    log = (copy / f"{0:020d}.log").stat().st_size
    assert log <= shown["retention"][0]["gives_back"] < 2 * log
    assert hostile.name not in "".join(a["command"] for a in shown["retention"])
    assert "kafka-configs.sh" not in rescue_text(mess, "--need", "1").out


@pytest.mark.parametrize("name", ["backup-0", "t2-0", "t0-00"])
@pytest.mark.parametrize("sort", ["assigned", "stray-living"])
def test_a_backup_by_another_name_is_no_copy(tmp_path: Path, sort: Sort, name: str) -> None:
    """It keeps its topic id, but no broker takes it for that partition."""
    mess = make(tmp_path, [Thing(sort), Thing("assigned"), Thing("assigned")])
    (mess.log_dirs[0] / "t2-0").rename(mess.log_dirs[0] / "t2-1")
    own = mess.stays[0]
    backup = mess.log_dirs[1] / name
    shutil.copytree(own, backup)
    shown = rescue(mess, settings=DUE)
    assert own not in offered(shown.json), shown.deeds
    for command, *words in (["rescue", "--execute"], ["cleanup", "--execute"], ["prestart", "--budget", "10m"]):
        done = rescue(mess, *words, command=command, settings=DUE)
        assert own.exists(), done.out


@pytest.mark.parametrize("where", ["not configured", "a copy of the log dir"])
@pytest.mark.parametrize("sort", ["double-alike"])
def test_a_log_dir_that_the_broker_does_not_use_has_no_copies(tmp_path: Path, sort: Sort, where: str) -> None:
    mess = make(tmp_path, [Thing(sort), Thing("assigned")])
    both = {path for group in mess.may_go for path in group}
    assert offered(rescue(mess, settings=DUE).json)
    first, second = (log_dir / "meta.properties" for log_dir in mess.log_dirs)
    words: list[str] = []
    if where == "not configured":
        words = nothing_tiered(mess, log_dirs=mess.log_dirs[:1])
    else:
        ids = [line for line in first.read_text().splitlines() if line.startswith("directory.id")]
        kept = [line for line in second.read_text().splitlines() if not line.startswith("directory.id")]
        second.write_text("\n".join([*kept, *ids, ""]))
    shown = rescue(mess, *words, settings=DUE)
    assert not offered(shown.json) & both, shown.deeds


def test_deleted_records_do_not_return_from_a_copy_that_begins_earlier(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("double-alike"), Thing("assigned")])
    (gone,) = offered(rescue(mess).json)
    (gone.parent / "log-start-offset-checkpoint").write_text("0\n1\nt0 0 80\n")
    assert gone not in offered(rescue(mess).json)


@pytest.mark.parametrize("sort", ["double"])
@pytest.mark.parametrize("state", ["sound", "read-only", "unformatted", "foreign"])
def test_a_copy_counts_only_in_a_log_dir_that_the_broker_can_use(
    loop_fs: LoopFs, bind_mount: Callable[[Path, Path], None], sort: Sort, state: str
) -> None:
    """The disk of the longer copy fails next, or is another cluster's: then ours is the only one."""
    mess = make(loop_fs("ext4"), [Thing(sort), Thing("stray")])
    there = mess.log_dirs[1]
    match state:
        case "read-only":
            bind_mount(there, there)
            subprocess.run(["mount", "-o", "remount,bind,ro", str(there)], check=True)
        case "unformatted":
            (there / "meta.properties").unlink()
        case "foreign":
            meta = there / "meta.properties"
            meta.write_text(meta.read_text().replace("cluster.id=a", "cluster.id=z"))
    ((mine,), (other,)) = mess.may_go
    assert offered(rescue(mess).json) == {"sound": {mine, other}, "foreign": set()}.get(state, {other})


def test_an_orphan_that_may_be_the_only_copy_stays_and_no_option_is_offered_that_a_rescue_does_not_have(
    tmp_path: Path,
) -> None:
    mess = make(tmp_path, [Thing("assigned"), Thing("moved-away"), Thing("orphan")])
    document = rescue(mess).json
    assert "t1-0" not in [a["name"] for a in document["actions"]]
    (refused,) = (r for r in document["refusals"] if r["name"] == "t1-0")
    assert "no copy is known to cover it" in refused["fact"]
    assert "it stays, as it may be the only copy" in refused["hint"] and "--even-last-copy" not in refused["hint"]
