"""Ingest and report killed: what their writes leave (of each kind two, with the long form each), and what comes
after it. Longer: `tests.spark.killed`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.tables.store import Store
from tests.long_form import FULL, one_in
from tests.spark.conftest import Told
from tests.spark.hand_made import small_cluster, small_kafka
from tests.spark.killed import CASES, Case, Judge, State, come_since, judge, kind, python_states

UNDONE = ("os.link /store/commits/2025-03-10/2.json", "os.rename /out/latest")
"""Commit and `latest`: killed before the name appears, their private files are left."""


def test_killed_at_any_write_the_last_whole_run_counts(spark: SparkSession, small: Told, tmp_path: Path) -> None:
    """What is written and not yet named is in the copies: nothing of it counts, and nothing of it stays."""
    case, made = CASES["again"], tmp_path / "made"
    # What `case.before` makes, of a store and a report that others look at, too.
    for name, there in (("store", small.store.uri.removeprefix("file:")), ("out", small.out.parent)):
        shutil.copytree(there, made / name, symlinks=True)
    come_since(small_kafka(made / "store"))
    found = python_states(case, spark, made, tmp_path / "states")
    judged = judge(case, spark, tmp_path, found[-1])
    judged.before = FULL
    assert [(state.write, said) for state in one_of_each(found) if (said := judged.glance(state))] == []
    locks = [path.read_bytes() for path in tmp_path.glob("states/*/store/.ingest-lock")]
    assert len(locks) > 10 and all(json.loads(lock or b"{}").get("id") for lock in locks), "it says at once whose it is"
    undone = [state for state in found if state.write in UNDONE]
    assert [state.write for state in undone] == [*UNDONE]
    assert list(undone[0].root.rglob("2.json.*.tmp")) and list(undone[1].root.glob("out/.latest.*"))
    # What a report leaves that was killed before `latest`: `test_commits.py` too, without its tables.
    after = undone if FULL else undone[:1]
    assert [(state.write, said) for state in after if (said := judged.problems(state))] == []


def test_a_trim_killed_at_any_write_is_ended_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """What it left in landing did not come late, and goes; empty folders too. A trim changes nothing that a report
    reads: with the long form there are reports before and after it."""
    case = CASES["trim"]
    made = tmp_path / "made"
    if FULL:
        case.before(spark, made)
        found = python_states(case, spark, made, tmp_path / "states")
        judged = judge(case, spark, tmp_path, found[-1])
    else:
        small_cluster(made / "store")
        store = Store.open(spark, str(made / "store"))
        ingest_dates(store, None)
        trim = Case(case.name, case.before, case.after, case.last, reports=False)
        found = python_states(trim, spark, made, tmp_path / "states")
        judged = Judge(trim, spark, tmp_path, {})
    removing = [state for state in found if "/landing" in state.write]
    assert [(state.write, said) for state in one_in(4, removing) if (said := judged.glance(state))] == []
    some = [removing[0], removing[1], removing[len(removing) // 2], removing[-1]]
    assert [(state.write, said) for state in some if (said := judged.problems(state))] == []


def one_of_each(found: list[State]) -> list[State]:
    """The first and the last state of each kind of write; with the long form all."""
    if FULL:
        return found
    of_kind: dict[str, list[State]] = {}
    for state in found:
        of_kind.setdefault(kind(state.write), []).append(state)
    return [state for states in of_kind.values() for state in dict.fromkeys((states[0], states[-1]))]
