"""Killed anywhere, failed anywhere: the same command again leads to the same end.

Every fifth call site (for errors, every sixth), on a small host; with `tests/run --full` each once, and
`python -m tests.disk.killed --every` takes every single call and every errno.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk.killed import SCENARIOS, SYSCALLS, each_file_once, each_once, errors, kills, sites_of, strike
from tests.long_form import one_in
from tests.needs import need_command


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_anywhere_it_comes_to_the_same_end(tmp_path: Path, name: str) -> None:
    need_command("strace")
    blows = kills(one_in(5, each_once(sites_of(SCENARIOS[name], tmp_path))))
    assert strike(SCENARIOS[name], blows, tmp_path) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_error_anywhere_is_said_and_made_good_by_the_next_run(tmp_path: Path, name: str) -> None:
    need_command("strace")
    blows = errors(one_in(6, each_file_once(sites_of(SCENARIOS[name], tmp_path))), each=False)
    assert strike(SCENARIOS[name], blows, tmp_path) == []


def test_the_call_sites_are_seen(tmp_path: Path) -> None:
    """If tracing saw nothing, the tests above would prove nothing."""
    need_command("strace")
    sites = {(s.call, s.what.partition("/")[0]) for n in SCENARIOS for s in sites_of(SCENARIOS[n], tmp_path)}
    on_disk = {call for call, place in sites if place == "d1"}
    assert {"renameat2", "renameat", "unlinkat", "write", "fsync"} <= on_disk <= set(SYSCALLS)
    assert {("pwrite64", "state"), ("fdatasync", "state"), ("ftruncate", "state")} <= sites
