"""System calls that fail or that are the last one of the process, through strace: the outcome, and that it resumes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logagent.disk.log_dir import OFFLINE_ERRNOS
from tests.needs import need_command

MARKED = "orders-0.0123456789abcdef0123456789abcdef-delete"

# Marks (or resumes after the mark) and removes; says how it ended.
WORK = """
import json, os, sys
from logagent.kafka.processes.lock import Interlock
from logagent.base.errors import LogAgentError
from logagent.disk.unlink import ByteBudget
from logagent.disk.unlink import WorkControl
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.base.records import Identity

path, marked = sys.argv[1:]
failures = LogDirFailures()
said = {"outcome": "done"}
try:
    with OpenLogDir(path, failures) as log_dir:
        interlock = Interlock(log_dir.fd, path)
        for name in os.listdir(log_dir.fd):
            found = os.stat(name, dir_fd=log_dir.fd)
            identity = Identity(found.st_dev, found.st_ino)
            if name != marked:
                log_dir.rename(name, marked, identity, interlock)
                interlock.after_rename()
            log_dir.fsync()
            remove_dir(log_dir, marked, identity, interlock, control=WorkControl(budget=ByteBudget(10 << 30)))
except LogAgentError as error:
    said = {"outcome": error.slug, "says": str(error), "errno": getattr(error, "errno", None)}
said["offline"] = failures.reason(path)
print(json.dumps(said))
"""


def layout(log_dir: Path) -> Path:
    """One partition: two segments, one of them of several steps, a subdirectory."""
    path = log_dir / "orders-0"
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "file").touch()
    (path / "partition.metadata").touch()
    for base in (0, 100):
        for suffix in (".log", ".index"):
            (path / f"{base:020d}{suffix}").write_bytes(b"x")
    with (path / f"{0:020d}.log").open("wb") as big:
        for _ in range(65):
            big.write(b"x" * (1 << 20))
    return path


def run(log_dir: Path, *strace: str) -> tuple[int, dict[str, Any] | None]:
    command = [sys.executable, "-c", WORK, str(log_dir), MARKED]
    if strace:
        need_command("strace")
        command = ["strace", "-f", "-qq", "-o", "/dev/null", *strace, *command]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)
    return done.returncode, json.loads(done.stdout) if done.stdout else None


@pytest.mark.parametrize("error", ["EIO", "EROFS", "ENOSPC", "EACCES", "EBUSY"])
@pytest.mark.parametrize("call", ["renameat2", "fsync", "unlinkat", "rmdir", "ftruncate"])
def test_a_call_that_fails(tmp_path: Path, call: str, error: str) -> None:
    """The errno decides: the log dir is offline, or this item failed. The next try ends it all the same."""
    number = getattr(errno, error)
    layout(tmp_path)
    # rmdir(dir_fd=) is unlinkat with a flag: the 6th is that of the subdirectory.
    inject = f"inject=unlinkat:error={error}:when=6" if call == "rmdir" else f"inject={call}:error={error}:when=1"
    status, said = run(tmp_path, "-e", inject)
    assert status == 0
    assert said is not None
    if number in OFFLINE_ERRNOS:
        assert (said["outcome"], bool(said["offline"])) == ("storage", True)
        assert os.strerror(number) in said["offline"]
    else:
        assert (said["outcome"], said["errno"], said["offline"]) == ("item", number, None)
        assert os.strerror(number) in said["says"]
    assert len(os.listdir(tmp_path)) == 1
    assert run(tmp_path) == (0, {"outcome": "done", "offline": None})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("call", "when"),
    [("renameat2", 1), ("fsync", 1), ("ftruncate", 1), *(("unlinkat", n) for n in range(1, 9))],
)
def test_killed_at_a_call_it_resumes(tmp_path: Path, call: str, when: int) -> None:
    layout(tmp_path)
    status, said = run(tmp_path, "-e", f"inject={call}:signal=KILL:when={when}")
    assert (abs(status) % 128, said) == (signal.SIGKILL, None)
    assert os.listdir(tmp_path) in (["orders-0"], [MARKED], [])
    assert run(tmp_path) == (0, {"outcome": "done", "offline": None})
    assert os.listdir(tmp_path) == []


def test_what_the_kernel_sees(tmp_path: Path) -> None:
    """A look at `.lock` before the first change and after the rename; names relative to a descriptor, never a path."""
    layout(tmp_path)
    trace = tmp_path.parent / "trace"
    need_command("strace")
    subprocess.run(
        [
            *("strace", "-f", "-qq", "-o", str(trace), "-e", "trace=%file,ftruncate"),
            *(sys.executable, "-c", WORK, str(tmp_path), MARKED),
        ],
        check=True,
        capture_output=True,
    )
    changing = ("renameat2(", "rename(", "unlinkat(", "unlink(", "rmdir(", "ftruncate(")
    seen = []
    for line in trace.read_text().splitlines():
        call = line.split(None, 1)[1]
        if call.startswith(changing):
            seen.append(call)
        elif '".lock"' in call:
            assert "O_RDONLY|O_NONBLOCK|O_NOFOLLOW|O_CLOEXEC" in call.replace("O_NOCTTY|", "")
            seen.append("look")
    first_change = next(number for number, call in enumerate(seen) if call != "look")
    assert first_change > 0
    assert seen[first_change].startswith("renameat2(")
    assert seen[first_change].endswith("RENAME_NOREPLACE) = 0")
    assert seen[first_change + 1] == "look"
    changes = [call for call in seen if call != "look"]
    assert len(changes) == 1 + 1 + 6 + 2  # the rename, a truncate, six files, two directories
    for change in changes:
        for word in change.split('"')[1::2]:
            assert "/" not in word
