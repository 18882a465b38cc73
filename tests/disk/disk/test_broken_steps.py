"""Can a broker work on this file system at all? Tried on real ones, and with each step failing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from logagent.base.linux.kernel import mount_of, mounts
from logagent.disk.health import REMOVE_OPEN, SYNC_FOLDER
from logagent.disk.probe import broken_steps
from tests.disk.conftest import LoopFs, unmount
from tests.host import Host
from tests.needs import need_command, need_root

# As the user that is named, if one is: the folder is opened before.
TRY = """
import json, os, sys
from logagent.disk.probe import broken_steps
fd = os.open(sys.argv[1], os.O_RDONLY)
for user in sys.argv[2:]:
    os.setuid(int(user))
print(json.dumps(broken_steps(fd)))
"""
# By what is injected: what cannot be done then.
INJECTED = {
    "fcntl:error=ENOLCK:when=": {"lock a file": errno.ENOLCK},
    "rename,renameat,renameat2:error=EACCES": {"rename a file that is open": errno.EACCES},
    "fsync:error=EINVAL:when=1": {SYNC_FOLDER: errno.EINVAL},
    "unlinkat:error=EBUSY:when=1": {REMOVE_OPEN: errno.EBUSY},
}


def tried(folder: Path) -> dict[str, str] | None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        return broken_steps(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs"])
def test_usual_file_systems_can_do_all_of_it(loop_fs: LoopFs, kind: str) -> None:
    folder = loop_fs(kind)
    before = sorted(os.listdir(folder))
    assert tried(folder) == {} and sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("injected", INJECTED)
def test_what_fails_is_named_and_nothing_is_left(tmp_path: Path, injected: str) -> None:
    need_command("strace")
    calls, number = injected.split(":")[0], ""
    command, program = ["strace", "-f", "-qq"], [sys.executable, "-c", TRY, str(tmp_path)]
    if calls == "fcntl":
        # The file's name is not known beforehand, so the call is counted off.
        traced = tmp_path.with_suffix(".strace")
        subprocess.run([*command, "-o", traced, "-e", "trace=fcntl", *program], check=True, stdout=subprocess.DEVNULL)
        lines = traced.read_text().splitlines()
        number = str(1 + next(at for at, line in enumerate(lines) if "F_SETLK" in line))
    else:
        command += ["-P", str(tmp_path)]
    command += ["-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={injected}{number}"]
    ran = subprocess.run([*command, *program], capture_output=True, text=True, check=True)
    expected = {what: os.strerror(number) for what, number in INJECTED[injected].items()}
    assert ran.stdout.strip() == json.dumps(expected)
    assert os.listdir(tmp_path) == []


def test_a_full_one_is_not_tried(tmp_path: Path) -> None:
    """Whoever wrote into a hole by the mapping was killed, and left the file behind."""
    need_root()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], check=True)
    try:
        with suppress(OSError), (tmp_path / "fill").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        ran = subprocess.run([sys.executable, "-c", TRY, str(tmp_path)], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "null" and os.listdir(tmp_path) == ["fill"]
    finally:
        unmount(tmp_path)


def test_where_nothing_may_be_written_nothing_is_said(tmp_path: Path) -> None:
    need_root()
    program = [sys.executable, "-c", TRY, str(tmp_path), "65534"]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "null" and os.listdir(tmp_path) == []


def test_check_names_what_a_file_system_cannot_do(tmp_path: Path) -> None:
    """bindfs that forbids renames, as drvfs does with open files; the same without that is no finding."""
    need_root()
    need_command("bindfs")
    for options, wanted in ((["--rename-deny"], ["fatal"]), ([], [])):
        host = Host(tmp_path / str(len(options)), node_id=1)
        source = host.root / "source"
        source.mkdir(parents=True)
        host.d1.mkdir(parents=True)
        with subprocess.Popen(["bindfs", "-f", *options, source, host.d1]) as server:
            try:
                while (mount := mount_of(str(host.d1), mounts())) is None or not mount.kind.startswith("fuse"):
                    assert server.poll() is None
                host.format()
                ran = host.run("check", "--json", "--log-dir", str(host.d1))
                found = [f for f in ran.json["findings"] if f["code"] == "unfit-file-system"]
                assert [f["severity"] for f in found] == wanted, ran.json
                assert [f["says"] for f in found if "rename a file that is open" not in f["says"]] == []
                assert not [name for name in os.listdir(host.d1) if name.startswith(".logagent")]
            finally:
                unmount(host.d1)
