"""A file is the old or the new one, whatever fails and whenever the writer is killed."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logagent
from logagent.base.files.safe_open import create_file, replacement, whole_file
from tests.long_form import FULL
from tests.needs import need_command
from tests.syntax import syntax_tree

OLD, NEW = b"old", b"new" * 10_000
WRITE = """
import os, sys
from logagent.base.files.safe_open import create_file, whole_file
how, path = sys.argv[1:]
if how == "create":
    create_file(path, b"new" * 10_000, mode=0o640)
else:
    with whole_file(path, mode=0o640, durable=how == "durable") as file:
        file.write(b"new" * 10_000)
"""
# What Python itself does not call while it starts, so that the N-th is ours.
CALLS = "fchmod,fsync,renameat,renameat2,linkat,unlinkat,write"


def written(how: str, path: Path, log: Path, injection: str | None = None) -> subprocess.CompletedProcess[str]:
    need_command("strace")
    inject = ["-e", f"inject={injection}"] if injection is not None else []
    command = ["strace", "-f", "-y", "-o", str(log), "-e", f"trace={CALLS}", *inject, sys.executable, "-B", "-c", WRITE]
    return subprocess.run([*command, how, str(path)], capture_output=True, text=True, check=False)


def calls_in(log: Path) -> list[str]:
    return [m[1] for line in log.read_text().splitlines() if (m := re.match(r"\d+ +(\w+)\(", line))]


@pytest.mark.parametrize(
    ("how", "calls"),
    [
        ("durable", ["unlinkat", "fchmod", "write", "fsync", "renameat", "fsync"]),
        ("scratch", ["unlinkat", "fchmod", "write", "renameat"]),
    ],
)
def test_the_file_is_on_disk_before_its_name_and_its_name_before_the_end(
    tmp_path: Path, how: str, calls: list[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = written(how, folder / "f", tmp_path / "log")
    assert done.returncode == 0, done.stderr
    assert calls_in(tmp_path / "log") == calls
    lines = [line for line in (tmp_path / "log").read_text().splitlines() if " fsync(" in line]
    assert [(name, line) for name, line in zip(("/f.tmp>", "/folder>"), lines, strict=False) if name not in line] == []


@pytest.mark.parametrize("how", ["durable", "scratch", "create"])
@pytest.mark.parametrize("what", ["signal=KILL", *(("error=EIO", "error=ENOSPC") if FULL else ("error=ENOSPC",))])
def test_cut_short_anywhere_it_is_the_old_or_the_new_file(tmp_path: Path, how: str, what: str) -> None:
    """Every call in turn. What fails leaves no temporary file; what a kill leaves is gone after the next write."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "f"
    before = None if how == "create" else OLD
    assert written(how, path, tmp_path / "log").returncode == 0
    calls = calls_in(tmp_path / "log")
    assert len(calls) > 3
    seen = set()
    for number, call in enumerate(calls):
        for file in folder.iterdir():
            file.unlink()
        if before is not None:
            path.write_bytes(before)
        when = calls[: number + 1].count(call)
        cut = written(how, path, tmp_path / "cut", f"{call}:{what}:when={when}")
        now = path.read_bytes() if path.exists() else None
        assert now in (before, NEW), (call, when)
        seen.add(now)
        left = sorted(file.name for file in folder.iterdir() if file != path)
        if what == "signal=KILL":
            assert cut.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), (call, when, cut.stderr)
        elif (how, call) != ("create", "unlinkat"):  # where even the unlink fails, nothing more can be done
            assert left == [], (call, when)
        if how != "create":
            assert written(how, path, tmp_path / "again").returncode == 0
            assert sorted(file.name for file in folder.iterdir()) == ["f"]
    assert before in seen


def test_an_error_of_the_writer_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(OLD)
    with pytest.raises(KeyError), whole_file(tmp_path / "f") as file:
        file.write(NEW)
        raise KeyError
    assert (tmp_path / "f").read_bytes() == OLD
    assert os.listdir(tmp_path) == ["f"]


def test_the_mode_is_the_one_asked_for_or_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        for mode in (0o644, None):
            with whole_file(tmp_path / "f", mode=mode) as file:
                file.write(b"x")
            assert (tmp_path / "f").stat().st_mode & 0o777 == (mode or 0o600)
            create_file(tmp_path / f"g{mode}", b"", mode=mode)
            assert (tmp_path / f"g{mode}").stat().st_mode & 0o777 == (mode or 0o600)
    finally:
        os.umask(before)


def test_of_two_writers_neither_renames_what_the_other_has_half_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(OLD)
    with pytest.raises(OSError, match="another process replaced it"), whole_file(tmp_path / "f") as one:
        one.write(b"one")
        with whole_file(tmp_path / "f") as other:
            other.write(NEW)
    assert (tmp_path / "f").read_bytes() == NEW
    assert os.listdir(tmp_path) == ["f"]


def test_a_temporary_file_of_somebody_else_is_neither_used_nor_removed(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        (tmp_path / "t").write_bytes(b"theirs")
        with pytest.raises(FileExistsError), replacement(fd, "f", "t"):
            raise AssertionError
        assert os.listdir(tmp_path) == ["t"]
        assert (tmp_path / "t").read_bytes() == b"theirs"
    finally:
        os.close(fd)


def test_what_is_there_already_is_never_created_again(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(OLD)
    (tmp_path / "link").symlink_to("nowhere")
    assert not create_file(tmp_path / "f", NEW)
    assert not create_file(tmp_path / "link", NEW)
    assert create_file(tmp_path / "g", NEW)
    assert (tmp_path / "f").read_bytes() == OLD
    assert sorted(os.listdir(tmp_path)) == ["f", "g", "link"]


# Functions that rename or link, and what.
OTHERWISE = {
    "replacement": "a whole file: every other writer of one uses it, or `whole_file` and `create_file`",
    "create_file": "a whole file, if none of its name is there",
    "keep": "gives what was spooled, complete, a second name: the base of later snapshots",
    "lend_reserve": "gives the journal's reserve a second name",
    "move": "a file that is complete already",
    "_point": "a symlink",
    "broken_steps": "the trial of a file system: a file of its own that is open",
    "rename": "the trial of a file system: a file of its own that is open",
}


def test_nobody_else_writes_a_whole_file_by_hand() -> None:
    by_hand = {"os.rename", "os.replace", "os.link", "old.replace", "part.replace", "tempfile.mkstemp"}
    found = set()
    for path in sorted(Path(logagent.__file__).parent.rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in by_hand):
            continue
        for function in ast.walk(syntax_tree(text)):
            if isinstance(function, ast.FunctionDef):
                called = [ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
                found |= {function.name for name in called if name in by_hand}
    assert found == OTHERWISE.keys()
