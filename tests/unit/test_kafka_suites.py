"""Kafka's own test suites, case by case: which test here holds us to the same, or why there is none."""

from __future__ import annotations

import ast
import csv
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/fixtures/kafka-suites.tsv"


def _rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@cache
def _tests_of(path: str) -> frozenset[str]:
    """The test functions of a file; of no file none."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
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
