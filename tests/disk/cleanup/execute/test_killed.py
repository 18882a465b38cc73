"""Killed anywhere, failed anywhere: the same command again leads to the same end.

One call site of each kind, on a small host, in the first two scenarios that have it; with `tests/run --full` each call
site once, and `python -m tests.disk.killed --every` takes every single call and every errno.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from logagent.base.errors import BrokerHoldsLogDir
from logagent.kafka.processes.lock import Interlock
from tests.disk.killed import (
    SCENARIOS,
    SYSCALLS,
    Site,
    each_file_once,
    each_kind_once,
    each_once,
    errors,
    kills,
    sites_of,
    strike,
    unless_too_busy,
)
from tests.long_form import FULL
from tests.needs import need_command

# There the journal is created, too.
FIRST = next(iter(SCENARIOS))


Sites = dict[str, list[Site]]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """The call sites of each scenario."""
    need_command("strace")
    return {name: sites_of(scenario, tmp_path_factory.mktemp("sites")) for name, scenario in SCENARIOS.items()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_anywhere_it_comes_to_the_same_end(tmp_path: Path, sites: Sites, name: str) -> None:
    found = each_once(sites[name]) if FULL else some_of_each_kind(sites)[name]
    assert strike(SCENARIOS[name], kills(found), tmp_path) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_error_anywhere_is_said_and_made_good_by_the_next_run(tmp_path: Path, sites: Sites, name: str) -> None:
    found = each_file_once(sites[name] if FULL else some_of_each_kind(sites)[name])
    assert strike(SCENARIOS[name], errors(found, each=False), tmp_path) == []


def some_of_each_kind(sites: Sites) -> Sites:
    """Of the kinds that scenarios share, the first two have each."""
    times: Counter[str] = Counter()
    chosen: Sites = {}
    for name, found in sites.items():
        kinds = each_kind_once(found, opening=name == FIRST)
        chosen[name] = [site for kind, site in kinds.items() if times[kind] < 2]
        times.update(kinds.keys())
    assert all(chosen.values()), "each scenario has a kind that few others have"
    return chosen


def test_what_ended_because_the_host_was_too_busy_is_struck_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(BrokerHoldsLogDir) as slow:
            Interlock(fd, str(tmp_path), partial(next, count())).before()
    finally:
        os.close(fd)
    ended = (subprocess.CompletedProcess("", status, said, "") for status, said in ((3, str(slow.value)), (-9, "")))
    assert unless_too_busy(lambda: ([], next(ended)))[1].returncode == -9


def test_the_call_sites_are_seen(sites: Sites) -> None:
    """If tracing saw nothing, the tests above would prove nothing."""
    seen = {(s.call, s.what.partition("/")[0]) for name in SCENARIOS for s in sites[name]}
    on_disk = {call for call, place in seen if place == "d1"}
    assert {"renameat2", "renameat", "unlinkat", "write", "fsync"} <= on_disk <= set(SYSCALLS)
    assert {("pwrite64", "state"), ("fdatasync", "state"), ("ftruncate", "state")} <= seen
