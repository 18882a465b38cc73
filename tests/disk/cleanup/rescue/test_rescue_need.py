"""`logagent rescue --need` ends by what `statvfs` gave back, not by the blocks of what was removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import Ran, process
from tests.disk.conftest import LoopFs, run
from tests.disk.messes import NODE, Mess, Thing, fill_bytes, make
from tests.forked import run_forked
from tests.needs import need_command

MIB, KIB = 1 << 20, 1 << 10
DUE = 'max_fraction = 1.0\nmax_dirs = 100\nstray_retention = "0s"'

# Opens the files of a directory and keeps them open.
OPENER = """
import os, sys
held = [os.open(f"{sys.argv[1]}/{name}", os.O_RDONLY) for name in os.listdir(sys.argv[1])]
print("ready", flush=True)
sys.stdin.read()
"""
# As in a container: no process of the host can be seen.
APART = ("unshare", "--pid", "--mount", "--fork", "--mount-proc")


def rescue(mess: Mess, state: Path, *arguments: str, apart: bool = False, named: Sequence[Path] = ()) -> Ran:
    """The state dir is elsewhere, or its journal would take of what comes."""
    properties, toml = state.parent / "server.properties", state.parent / "logagent.toml"
    properties.write_text(f"process.roles=broker\nnode.id={NODE}\nlog.dirs={','.join(map(str, mess.log_dirs))}\n")
    toml.write_text(f'[kafka]\nversion = "3.9.1"\nconfig = "{properties}"\n'
                    f'[assignments]\nsources = ["file"]\nfile = "{mess.assignments}"\n'
                    f"[cleanup]\n{DUE}\n")  # fmt: skip
    words = ["rescue", "--config", str(toml), "--state-dir", str(state)]
    words += [word for d in named for word in ("--log-dir", str(d))]
    if not apart:
        return run_forked(*words, *arguments)
    command = [*APART, sys.executable, "-m", "logagent", *words, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def reflink(directory: Path, where: Path) -> None:
    where.mkdir()
    for file in directory.iterdir():
        run("cp", "--reflink=always", file, where / file.name)
    os.sync()


def free_for_users(point: Path) -> int:
    room = os.statvfs(point)
    return room.f_bavail * room.f_frsize


def test_it_goes_on_while_what_it_removed_gives_nothing_back(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Blocks that a copy made by `cp --reflink` has, too: 8 MiB were "freed", and none came."""
    point = loop_fs("xfs")
    mess = make(point, [Thing("stray", 8 * KIB), Thing("stray", 6 * KIB), Thing("stray", 5 * KIB), Thing("assigned")])
    (shared,), (alone,), (spare,) = mess.may_go
    reflink(shared, point / "copy")
    before = free_for_users(point)
    done = rescue(mess, tmp_path / "state", "--need", "4MiB", "--execute", "--json")
    assert done.outcomes() == {shared.name: "done", alone.name: "done"} and spare.exists(), done.out
    came = free_for_users(point) - before
    found = done.json["rescue"]
    assert done.status == 0 and found["missing"] == 0, done.err
    assert 4 * MIB <= found["came"] <= came < 7 * MIB and done.json["totals"]["freed_bytes"] > 13 * MIB


def test_what_did_not_come_is_missing_and_why_is_said(loop_fs: LoopFs, tmp_path: Path) -> None:
    point = loop_fs("xfs")
    mess = make(point, [Thing("stray", 8 * KIB), Thing("assigned")])
    reflink(mess.may_go[0][0], point / "copy")
    done = rescue(mess, tmp_path / "state", "--need", "4MiB", "--execute")
    assert done.status == 3, done.err
    assert "4.0 MiB needed, 4.0 MiB missing" in done.err and "cp --reflink" in done.err, done.err
    last = done.err.splitlines()[-1]
    assert last.startswith("1 of 1 done, ") and "8.1 MiB freed" not in last, last


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_a_process_that_cannot_be_seen_keeps_open_did_not_come(loop_fs: LoopFs, tmp_path: Path, kind: str) -> None:
    need_command("unshare")
    point = loop_fs(kind)
    mess = make(point, [Thing("stray", 8 * KIB), Thing("stray", 6 * KIB), Thing("stray", 5 * KIB), Thing("assigned")])
    (held,), (alone,), (spare,) = mess.may_go
    with process(OPENER, held):
        done = rescue(mess, tmp_path / "state", "--need", "4MiB", "--execute", "--json", apart=True)
        assert done.outcomes() == {held.name: "done", alone.name: "done"} and spare.exists(), (done.out, done.err)
        found = done.json["rescue"]
        assert done.status == 0 and found["missing"] == 0 and 4 * MIB <= found["came"] < 12 * MIB
        assert found["why_less"][0].startswith({"ext4": "a process", "xfs": "xfs: "}[kind]), found["why_less"]


def test_what_root_keeps_for_itself_did_not_come(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Root's daemons have filled the disk to its last byte: what comes first is root's reserve, 5% of ext4."""
    point = loop_fs("ext4")
    mess = make(point, [Thing("stray", 8 * KIB), Thing("assigned")])
    fill_bytes(point)
    done = rescue(mess, tmp_path / "state", "--need", "4MiB", "--execute")
    assert done.status == 3 and "4.0 MiB needed, 4.0 MiB missing" in done.err, done.err
    assert "only 0 B more are free: 8.0 MiB went to what the file system reserves for root\n" in done.err, done.err


# Once a directory is gone, closes its files a moment later.
LATE = """
import os, select, sys, time
held = [os.open(f"{sys.argv[1]}/{name}", os.O_RDONLY) for name in os.listdir(sys.argv[1]) if name.endswith(".log")]
print("ready", flush=True)
while os.path.exists(sys.argv[1]) and not select.select([0], [], [], 0.001)[0]:
    pass
time.sleep(0.2)
for fd in held:
    os.close(fd)
sys.stdin.read()
"""


def test_what_comes_late_is_waited_for_also_once_the_need_is_met(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Or what xfs frees in the background would be called shared, or kept open: here all but the small files."""
    need_command("unshare")
    point = loop_fs("ext4")
    mess = make(point, [Thing("stray", 8 * KIB), Thing("assigned")])
    with process(LATE, mess.may_go[0][0]):
        done = rescue(mess, tmp_path / "state", "--need", "4KiB", "--execute", "--json", apart=True)
    found = done.json["rescue"]
    assert done.status == 0 and found["why_less"] == [] and found["came"] > 7 * MIB, (done.out, done.err)


# Keeps a file open that has no name any more.
KEEPER = """
import os, sys
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(held, os.urandom(8 << 20))
os.fsync(held)
os.unlink(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_was_kept_open_before_is_no_reason(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Its blocks were not free before either."""
    point = loop_fs("xfs")
    mess = make(point, [Thing("stray", 8 * KIB), Thing("assigned")])
    (stray,) = mess.may_go[0]
    reflink(stray, point / "copy")
    with process(KEEPER, stray.parent / "old.log.deleted"):
        done = rescue(mess, tmp_path / "state", "--need", "4MiB", "--execute", "--json")
    found = done.json["rescue"]
    assert done.status == 3 and found["open_removed"][0]["bytes"] >= 8 * MIB, (done.out, done.err)
    assert "cp --reflink" in found["why_less"][0] and "others wrote meanwhile" in found["why_less"][1], found[
        "why_less"
    ]


# Removes a file once a directory is gone.
FOLLOWER = """
import os, select, sys
print("ready", flush=True)
while os.path.exists(sys.argv[1]) and not select.select([0], [], [], 0.001)[0]:
    pass
os.unlink(sys.argv[2])
sys.stdin.read()
"""


def test_what_comes_elsewhere_does_not_count(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Only one log dir is named; a moment later more comes on the other one's disk than was needed."""
    full, other = loop_fs("xfs"), loop_fs("ext4")
    mess = make(full, [Thing("stray", 8 * KIB), Thing("assigned")])
    (shared,) = mess.may_go[0]
    reflink(shared, full / "copy")
    shutil.move(mess.log_dirs[1], other / "d2")
    mess = replace(mess, log_dirs=(mess.log_dirs[0], other / "d2"))
    (other / "broker's").write_bytes(os.urandom(16 * MIB))
    with process(FOLLOWER, shared, other / "broker's"):
        done = rescue(mess, tmp_path / "state", "--need", "4MiB", "--execute", "--json", named=mess.log_dirs[:1])
    assert done.outcomes() == {shared.name: "done"} and done.status == 3, done.err
    assert done.json["rescue"]["came"] < MIB and done.json["rescue"]["missing"] > 3 * MIB
