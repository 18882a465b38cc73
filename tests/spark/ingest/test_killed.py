"""Ingest and report killed: what their writes leave (every third, with `tests/run --full` each), and what comes
after it. Longer: `tests.spark.killed`."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from logagent.fleet.job import Job, report
from logagent.fleet.tables.store import Store
from tests.long_form import one_in
from tests.spark.hand_made import NOW
from tests.spark.killed import CASES, DAY, judge, python_states

UNDONE = ("os.link /store/commits/2025-03-10/2.json", "os.rename /out/latest")
"""Commit and `latest`: killed before the name appears, their private files are left."""


def test_killed_at_any_write_the_last_whole_run_counts(spark: SparkSession, tmp_path: Path) -> None:
    """What is written and not yet named is in the copies: nothing of it counts, and nothing of it stays."""
    case = CASES["again"]
    case.before(spark, tmp_path / "made")
    found = python_states(case, spark, tmp_path / "made", tmp_path / "states")
    judged = judge(case, spark, tmp_path, found[-1])
    assert [(state.write, said) for state in one_in(3, found) if (said := judged.glance(state))] == []
    locks = [path.read_bytes() for path in tmp_path.glob("states/*/store/.ingest-lock")]
    assert len(locks) > 10 and all(json.loads(lock or b"{}").get("id") for lock in locks), "it says at once whose it is"
    undone = [state for state in found if state.write in UNDONE]
    assert [state.write for state in undone] == [*UNDONE]
    assert list(undone[0].root.rglob("2.json.*.tmp")) and list(undone[1].root.glob("out/.latest.*"))
    assert [(state.write, said) for state in undone if (said := judged.problems(state))] == []

    store = Store.open(spark, str(found[-1].root / "store"))
    back = report(Job(store, str(tmp_path / "back"), NOW, DAY, commit=1))
    assert (back["totals"]["orphans"], back["ingested"]["commit"]) == (0, 1), "an older commit, while it is kept"


def test_a_trim_killed_at_any_write_is_ended_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """What it left in landing did not come late, and goes; empty folders too."""
    case = CASES["trim"]
    case.before(spark, tmp_path / "made")
    found = python_states(case, spark, tmp_path / "made", tmp_path / "states")
    judged = judge(case, spark, tmp_path, found[-1])
    removing = [state for state in found if "/landing" in state.write]
    assert [(state.write, said) for state in one_in(4, removing) if (said := judged.glance(state))] == []
    some = [removing[0], removing[1], removing[len(removing) // 2], removing[-1]]
    assert [(state.write, said) for state in some if (said := judged.problems(state))] == []
