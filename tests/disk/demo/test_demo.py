"""`logagent demo`: it tells the truth, fails when it cannot, and harms nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest

from logagent.demo import command
from logagent.demo.host import Stage, StepFailed, lay_out, own_environment, read_tree
from tests.command_line import run_apart, run_here


def test_the_whole_story_holds(tmp_path: Path) -> None:
    folder = tmp_path / "host"
    ran = run_apart("demo", "--dir", str(folder), LOGAGENT_CLEANUP__MAX_DIRS="nonsense")
    assert ran.status == 0, ran.out + ran.err
    counted = re.search(r"(\d+) checks in [\d.]+ s, 0 failed", ran.out)
    assert counted is not None and int(counted[1]) == ran.out.count("✓") > 30
    assert "Traceback" not in ran.err and "NOT SO" not in ran.out
    # What it printed as typed works as typed, also later.
    again = run_apart("history", "--config", str(folder / "logagent.toml"), "--state-dir", str(folder / "state"))
    assert again.status == 0 and "quarantine" in again.out
    assert {p.name for p in folder.iterdir()} >= {"d1", "d2", "state", "server.properties", "logagent.toml"}


def test_it_takes_only_an_empty_place_and_leaves_none_if_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file", tmp_path / "a=b"):
        ran = run_here("demo", "--dir", str(place))
        assert ran.status == 2 and "hint:" in ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_does_not_hold_fails_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the checkpoints of one log dir gone, restore cannot bring them back as they were."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    told: list[str] = []

    def run(arguments: object) -> int:
        assert isinstance(arguments, list)
        told.append(arguments[0])
        ran = run_here(*arguments)
        if arguments[0] == "restore":
            (tmp_path / "d2" / "log-start-offset-checkpoint").unlink(missing_ok=True)
        print(ran.out)
        return ran.status

    stage = Stage(tmp_path, run, color=False)
    with own_environment(color=False):
        original = read_tree(tmp_path)
        command._assigned(stage)
        plan_id = command._deleted(stage)
        assert not stage.failures
        with pytest.raises(StepFailed):
            command._restored(stage, plan_id, original)
    assert told.count("restore") == 3
    assert stage.failures == ["and so is every entry of the checkpoints"]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_in_its_shell_what_is_typed_wins_over_the_demos_own_options(tmp_path: Path, shell: str) -> None:
    (folder := tmp_path / "a host").mkdir()
    lay_out(folder)
    (folder / "logagent").write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    (folder / "logagent").chmod(0o755)

    def given(words: str) -> str:
        typed = f"PATH=.:$PATH; . ./env.sh; logagent {words}"
        return subprocess.run([shell, "-c", typed], cwd=folder, capture_output=True, text=True, check=True).stdout

    config, state = f"--config={folder}/logagent.toml|", f"--state-dir={folder}/state|"
    assert given("config check") == f"config|check|{config}{state}"
    assert given("rescue --state-dir /run/logagent") == f"rescue|--state-dir|/run/logagent|{config}"
    assert given("scan --state-dir=/x --kafka-config 'a b'") == f"scan|--state-dir=/x|--kafka-config|a b|{config}"
    assert given("scan --config mine.toml --json") == f"scan|--config|mine.toml|--json|{state}"
    assert given("fleet demo") == "fleet|demo|"


def test_the_disk_that_ships_is_small() -> None:
    data = files("logagent.demo") / "data"
    assert sum(len(item.read_bytes()) for item in data.iterdir()) < 300_000


def test_a_disk_from_the_future_is_put_into_the_past(tmp_path: Path) -> None:
    lay_out(tmp_path)
    newest = max(path.stat().st_mtime for path in tmp_path.rglob("*"))
    assert newest <= time.time()
    shutil.rmtree(tmp_path)
