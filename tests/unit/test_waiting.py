"""No test passes or fails by time: who looks at a clock or sleeps does it through `tests.waiting`, or says why not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.syntax import syntax_tree
from tests.waiting import holds, wait_until, within

TESTS = Path(__file__).parents[1]
CLOCKS = {"sleep", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
# Who calls one, and why that decides nothing. Of the folder `bench` all measure.
WHY = {
    "broker/check/__main__.py": "a program; prints how long a start took",
    "broker/check/starts.py": "watches a broker for as long as it may take to fail",
    "broker/deletion_cases.py": "a program; prints how long a case took",
    "broker/deletion_stage.py": "lets chance decide when a node goes",
    "broker/deletions.py": "a program; prints how long it took",
    "broker/races.py": "lets chance decide who comes first",
    "broker/rig/client.py": "asks again while a broker that died is still listed",
    "broker/rig/process.py": "waits for a line, or for the end of the process",
    "disk/cli/test_hostile_files.py": "compares the work with that on a harmless file, of the same run",
    "disk/soak.py": "a program that runs for hours",
    "frozen/__main__.py": "a program; runs its sides at different moments, and prints how long it took",
    "package/booted.py": "prints how long systemd took, by machines.py",
    "package/machines.py": "how long a machine took to boot, printed",
    "package/test_first_plan.py": "prints how long each step of an installation took",
    "spark/killed.py": "prints where copying took longer than the writer was held",
    "waiting.py": "waits",
}


def clocks_in(source: str) -> list[str]:
    """Calls of a clock of the module `time`, as `LINE: NAME`, also by another name or imported alone."""
    tree = syntax_tree(source)
    modules = {
        a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names if a.name == "time"
    }
    alone = {
        a.asname or a.name
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and n.module == "time"
        for a in n.names
        if a.name in CLOCKS
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if module in modules:
                found += [f"{node.lineno}: {name}"] if name in CLOCKS else []
            case ast.Call(func=ast.Name(id=name)) if name in alone:
                found.append(f"{node.lineno}: {name}")
    return found


def test_nobody_else_looks_at_a_clock_or_sleeps() -> None:
    calls = {
        str(path.relative_to(TESTS)): found
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] != "bench" and (found := clocks_in(path.read_text(encoding="utf-8")))
    }
    assert {path: found for path, found in calls.items() if path not in WHY} == {}
    assert sorted(WHY) == sorted(calls), "a reason without a call"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time\ntime.sleep(1)", ["2: sleep"]),
        ("import time as t\nassert t.monotonic() - began < 3", ["2: monotonic"]),
        ("from time import sleep as nap\nnap(1)", ["2: nap"]),
        ("import time\nwait(0, monotonic=time.monotonic, sleep=time.sleep)\ntime.time()\nclock.sleep(1)", []),
    ],
)
def test_calls_of_clocks_are_found(source: str, found: list[str]) -> None:
    assert clocks_in(source) == found


def test_who_waits_says_for_what() -> None:
    answers = iter([None, 0, "there"])
    assert wait_until(lambda: next(answers), "an answer", interval=0) == "there"
    with pytest.raises(AssertionError, match="not within 0 s: the end"):
        wait_until(lambda: False, "the end", 0, interval=0)
    with pytest.raises(AssertionError, match="nothing changes"):
        holds(lambda: False, 60, "nothing changes")
    with pytest.raises(AssertionError, match="instead of at most 0 s: somebody waits"), within(0, "somebody waits"):
        pass
