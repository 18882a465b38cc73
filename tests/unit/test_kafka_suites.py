"""Kafka's own test suites, case by case: which test here holds us to the same, or why there is none.

That the named test does is shown for 40 rows that a seed draws: `kafka-suites-broken.tsv` has a text of the product
that makes it do what Kafka does, and one that does not; with that, the test fails (`tests/run --full`).
"""

from __future__ import annotations

import ast
import csv
import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.long_form import long_form
from tests.syntax import syntax_tree

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/fixtures/kafka-suites.tsv"
BROKEN = ROOT / "tests/fixtures/kafka-suites-broken.tsv"
SEED, DRAWN = 41, 40


def _rows(table: Path = TABLE) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _drawn() -> dict[tuple[str, str], str]:
    """By suite and case, the test that is named. A row that is added or goes changes one of them at most."""
    ours = {(row["suite"], row["case"]): row["ours"] for row in _rows() if row["ours"].startswith("tests/")}
    by_chance = sorted(ours, key=lambda case: hashlib.sha256(f"{SEED} {case[0]} {case[1]}".encode()).digest())
    return {case: ours[case] for case in by_chance[:DRAWN]}


@cache
def _tests_of(path: str) -> frozenset[str]:
    """The test functions of a file; of no file none."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = syntax_tree(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def problem_of(row: dict[str, str]) -> str | None:
    """What is wrong with a row, None if it is sound."""
    if None in row or not all(row.values()):
        return "not four fields"
    ours, reason = row["ours"], row["ours"].partition(": ")
    if reason[0] in ("on purpose", "not ours"):
        return None if reason[2].strip() else "no reason"
    path, _, name = ours.partition("::")
    if not name.startswith("test_") or name not in _tests_of(path):
        return f"no such test: {ours}"
    return None


def test_each_case_has_a_test_that_exists_or_a_reason() -> None:
    rows = _rows()
    assert len(rows) > 600
    assert [(row["suite"], row["case"], why) for row in rows if (why := problem_of(row)) is not None] == []


def test_each_case_is_there_once() -> None:
    assert [case for case, n in Counter((row["suite"], row["case"]) for row in _rows()).items() if n > 1] == []


@pytest.mark.parametrize(
    "ours",
    ["", "not ours: ", "fault: 1", "tests/unit/test_kafka_suites.py::test_no_such_test", "tests/none.py::test_any"],
)
def test_a_row_that_names_nothing_is_found(ours: str) -> None:
    assert problem_of({"suite": "LogManagerTest", "case": "testAny", "Kafka": "does it", "ours": ours}) is not None


def test_each_row_that_was_drawn_can_be_broken() -> None:
    broken = _rows(BROKEN)
    assert {(row["suite"], row["case"]) for row in broken} == set(_drawn())
    texts = [((ROOT / row["file"]).read_text(encoding="utf-8"), row) for row in broken]
    assert [row["case"] for text, row in texts if text.count(row["as it is"]) != 1] == []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product and its tests, which may be broken."""
    made = tmp_path_factory.mktemp("tree")
    for name in ("logagent", "tests", "config"):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "docs", "packaging", "ARCHITECTURE.md", "README.md", "SECURITY.md", "CHANGELOG.md"):
        (made / name).symlink_to(ROOT / name)
    return made


@long_form
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['suite']}.{row['case']}") for row in _rows(BROKEN)])
def test_a_row_goes_red_when_the_behaviour_is_broken(row: dict[str, str], tree: Path) -> None:
    file, test = tree / row["file"], _drawn()[row["suite"], row["case"]]
    sound = file.read_text(encoding="utf-8")
    file.write_text(sound.replace(row["as it is"], row["broken"]), encoding="utf-8")
    try:
        ran = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "LOGAGENT_TESTS_FULL": ""},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        file.write_text(sound, encoding="utf-8")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout[-3000:]
