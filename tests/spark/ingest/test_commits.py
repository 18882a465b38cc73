"""A date is committed by one small file: what a report shows while, after and although an ingest broke off."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.errors import LogAgentError
from logagent.fleet.ingest.dates import ingest_dates, sweep
from logagent.fleet.job import Job, report
from logagent.fleet.report.output import Output
from logagent.fleet.tables.store import Store, parsed_commit
from tests.spark.hand_made import AT, NOW, Kafka

DAY = AT.date()


class Killed(BaseException):
    """Nothing that comes after it is done, clean-up neither."""


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    (tmp_path / "store").mkdir()
    made = Kafka(tmp_path / "store", "committed")
    made.topic("orders", [1, 2, 3])
    made.assignments()
    made.everyone()
    return made


def _orphans(store: Store, out: Path) -> tuple[int, dict[str, Any]]:
    content = report(Job(store, str(out), NOW))
    return content["totals"]["orphans"], content["ingested"]


def test_a_commit_that_is_not_whole_does_not_count(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    store = Store.open(spark, str(kafka.store))
    ingest_dates(store, None)
    place = kafka.store / "commits" / str(DAY)
    whole = (place / "1.json").read_bytes()
    (place / "2.json").write_bytes(whole[: len(whole) // 2])
    (place / "3.json").mkdir()
    (place / "04.json").write_bytes(b"{}")
    (place / "5.json.x.tmp").write_bytes(whole)
    said = json.loads(whole)
    (place / "6.json").write_text(json.dumps(said | {"run": "../../../etc"}))
    (place / "7.json").write_text(json.dumps(said | {"date": "2025-03-11"}))
    store.refresh()
    assert _orphans(store, tmp_path / "out")[1]["commit"] == 1
    ingest_dates(store, DAY)
    assert (place / "8.json").is_file()
    assert _orphans(store, tmp_path / "out")[1]["commit"] == 8


def test_while_the_newest_commit_cannot_be_read_no_run_is_removed(spark: SparkSession, kafka: Kafka) -> None:
    """It may name any of them: an unreadable answer is never that nothing is needed."""
    store = Store.open(spark, str(kafka.store))
    ingest_dates(store, None)
    ingest_dates(store, DAY)
    later, newest, said = NOW + timedelta(days=900), kafka.store / "commits" / str(DAY) / "2.json", list[str]()
    whole, runs = newest.read_bytes(), store.runs()
    for damaged in (b"", whole[:-20]):
        newest.write_bytes(damaged)
        assert sweep(store, later, said.append) == [] and store.runs() == runs
        assert f"the newest commit of {DAY} cannot be read: no run is removed" in said[-1]
    newest.write_bytes(whole)
    (superseded,) = sweep(store, later)
    assert store.runs() == [run for run in runs if run != superseded] == [json.loads(whole)["run"]]


def test_of_two_ingests_one_commits(spark: SparkSession, kafka: Kafka) -> None:
    """The lock is politeness, this is safety: the loser fails, and its run goes."""
    store = Store.open(spark, str(kafka.store))
    ingest_dates(store, None)
    commit = store.commit_of(DAY)
    assert commit is not None
    with pytest.raises(LogAgentError, match="another ingest has committed 2025-03-10 meanwhile"):
        store.add_commit(commit)
    assert store.files.create_new(f"{store.uri}/commits/{DAY}/2.json", b"x")
    assert not store.files.create_new(f"{store.uri}/commits/{DAY}/2.json", b"y")
    assert (kafka.store / "commits" / str(DAY) / "2.json").read_bytes() == b"x"
    assert parsed_commit(b"x", DAY, 2) is None


def test_a_report_that_is_killed_leaves_the_last_good_one(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(spark, str(kafka.store))
    ingest_dates(store, None)
    out = tmp_path / "out"
    good = report(Job(store, str(out), NOW))

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Output, "drop", lambda _: None)
        patch.setattr(Output, "_point", killed)
        with pytest.raises(Killed):
            report(Job(store, str(out), NOW + timedelta(minutes=1)))
    assert (out / "latest").resolve().name == good["run_id"]
    with monkeypatch.context() as patch:
        patch.setattr("logagent.fleet.job.render", killed)
        with pytest.raises(Killed):
            report(Job(store, str(out), NOW + timedelta(minutes=2)))
        assert len(list(out.iterdir())) == 3, "a report that fails, and is not killed, is removed"
        patch.setattr(Output, "drop", lambda _: None)
        with pytest.raises(Killed):
            report(Job(store, str(out), NOW + timedelta(minutes=3)))
    assert (out / "latest").resolve().name == good["run_id"]
    newest = report(Job(store, str(out), NOW + timedelta(days=2)))
    assert (out / "latest").resolve().name == newest["run_id"]
    whole = {path.name for path in out.iterdir() if (path / "report.json").exists()}
    assert {path.name for path in out.iterdir()} == whole, "what was left a day ago is gone"
