"""The daemon's cycle killed or failed at its system calls: whoever comes next brings it to the same end.

One call site of each kind (for errors, every other one); with `tests/run --full` each once, and
`python -m tests.disk.killed_daemon --every` takes every single call and every errno.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk.killed import errors, kills
from tests.disk.killed_daemon import ENVIRONMENT, each_few, each_file_once, each_kind_once, sites_of, strike
from tests.long_form import FULL
from tests.needs import need_command


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_killed_anywhere_in_a_cycle_the_next_one_comes_to_the_same_end(tmp_path: Path) -> None:
    need_command("strace")
    sites = sites_of(tmp_path)
    assert {"renameat2", "unlinkat", "fsync", "pwrite64"} <= {s.call for s in sites}, "tracing saw the work"
    assert strike(kills(each_few(sites) if FULL else each_kind_once(sites)), tmp_path) == []


def test_an_error_anywhere_in_a_cycle_is_made_good_by_the_next_one(tmp_path: Path) -> None:
    need_command("strace")
    sites = sites_of(tmp_path)
    struck = each_file_once(sites) if FULL else each_kind_once(sites)[::2]
    assert strike(errors(struck, each=False), tmp_path) == []
