"""A date is committed by one small file: what a report shows while, after and although an ingest broke off."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logagent.base.errors import LogAgentError, UnreadableError
from logagent.fleet.ingest.dates import ingest_dates, sweep
from logagent.fleet.job import Job, report
from logagent.fleet.report.output import Output
from logagent.fleet.report.scope import asked, scope
from logagent.fleet.tables.store import Store, parsed_commit
from tests.spark.hand_made import AT, NOW, Kafka

DAY = AT.date()


class Killed(BaseException):
    """Nothing that comes after it is done, clean-up neither."""


def _unheard(_: str) -> None:
    """Progress."""


@pytest.fixture(scope="module")
def twice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose date was ingested twice, over commits that do not count; tests take copies of it."""
    path = tmp_path_factory.mktemp("committed") / "store"
    path.mkdir()
    made = Kafka(path, "committed")
    made.topic("orders", [1, 2, 3])
    made.assignments()
    made.everyone()
    store = Store.open(spark, str(path))
    ingest_dates(store, None)
    place = path / "commits" / str(DAY)
    whole = (place / "1.json").read_bytes()
    (place / "2.json").write_bytes(whole[: len(whole) // 2])
    (place / "3.json").mkdir()
    (place / "04.json").write_bytes(b"{}")
    (place / "5.json.x.tmp").write_bytes(whole)
    said = json.loads(whole)
    (place / "6.json").write_text(json.dumps(said | {"run": "../../../etc"}))
    (place / "7.json").write_text(json.dumps(said | {"date": "2025-03-11"}))
    store.refresh()
    found = store.commit_of(DAY)
    assert found is not None and found.number == 1, "what is not whole does not count"
    assert scope(store, asked(store, NOW, None, Job.max_age), None, _unheard).commit.number == 1, "for a report neither"
    ingest_dates(store, DAY)
    return path


@pytest.fixture
def store(twice: Path, spark: SparkSession, tmp_path: Path) -> Store:
    shutil.copytree(twice, tmp_path / "store")
    return Store.open(spark, str(tmp_path / "store"))


def test_a_commit_that_is_not_whole_does_not_count(store: Store, tmp_path: Path) -> None:
    """Nor does the next one take its number."""
    found = store.commit_of(DAY)
    assert found is not None and found.number == 8
    assert scope(store, asked(store, NOW, None, Job.max_age), None, _unheard).commit == found


def test_an_older_commit_can_be_asked_for(store: Store) -> None:
    assert scope(store, asked(store, NOW, DAY, Job.max_age), 1, _unheard).commit.number == 1
    with pytest.raises(LogAgentError):
        scope(store, asked(store, NOW, DAY, Job.max_age), 2, _unheard)


def test_while_the_newest_commit_cannot_be_read_no_run_is_removed(store: Store, tmp_path: Path) -> None:
    """It may name any of them: an unreadable answer is never that nothing is needed."""
    later, newest, said = NOW + timedelta(days=900), tmp_path / "store/commits" / str(DAY) / "8.json", list[str]()
    whole, runs = newest.read_bytes(), store.runs()
    assert len(runs) == 2
    for damaged in (b"", whole[:-20]):
        newest.write_bytes(damaged)
        assert sweep(store, later, said.append) == [] and store.runs() == runs
        assert f"the newest commit of {DAY} cannot be read: no run is removed" in said[-1]
    newest.write_bytes(whole)
    (superseded,) = sweep(store, later)
    assert store.runs() == [run for run in runs if run != superseded] == [json.loads(whole)["run"]]


def test_of_two_ingests_one_commits(store: Store, tmp_path: Path) -> None:
    """The lock is politeness, this is safety: the loser fails, and its run goes."""
    commit = store.commit_of(DAY)
    assert commit is not None
    with pytest.raises(LogAgentError, match="another ingest has committed 2025-03-10 meanwhile"):
        store.add_commit(commit)
    assert store.files.create_new(f"{store.uri}/commits/{DAY}/9.json", b"x")
    assert not store.files.create_new(f"{store.uri}/commits/{DAY}/9.json", b"y")
    assert (tmp_path / "store/commits" / str(DAY) / "9.json").read_bytes() == b"x"
    assert parsed_commit(b"x", DAY, 9) is None


def test_a_commit_of_before_the_first_release_is_refused(store: Store, tmp_path: Path) -> None:
    """Neither an older commit nor none stands in for it: its date would be another one, or an empty one."""
    whole = json.loads((path := tmp_path / "store/commits" / str(DAY) / "8.json").read_bytes())
    without = whole | {"tables": {name: files for name, files in whole["tables"].items() if name != "absent"}}
    for old, says in ((whole | {"schema": "logagent.commit/1"}, "logagent.commit/1"), (without, "it has no absent")):
        path.write_text(json.dumps(old))
        for read in (lambda: report(Job(store, str(tmp_path / "out"), NOW)), lambda: ingest_dates(store, None)):
            with pytest.raises(UnreadableError, match=f"8.json was .* before the first release .{says};") as refused:
                read()
            assert refused.value.hint is not None and f"fleet ingest --date {DAY}" in refused.value.hint
    path.write_text(json.dumps(whole | {"schema": "logagent.commit/3"}))
    assert store.commit_of(DAY) is not None, "of a later release, with what is needed of it"


def test_a_report_that_is_killed_leaves_the_last_good_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables are left out: they are in the report's own directory like what is written here, and take seconds."""
    out = tmp_path / "out"
    monkeypatch.setattr("logagent.fleet.job.render", lambda *_: "a page")
    monkeypatch.setattr("logagent.fleet.job._tables", lambda job, chosen, output, scratch: {"run_id": output.run})
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
    unnamed = out / ".latest.7"
    unnamed.symlink_to("nowhere")
    os.utime(unnamed, (0, 0), follow_symlinks=False)
    newest = report(Job(store, str(out), NOW + timedelta(days=2)))
    assert (out / "latest").resolve().name == newest["run_id"]
    whole = {path.name for path in out.iterdir() if (path / "report.json").exists()}
    assert {path.name for path in out.iterdir()} == whole, "what was left a day ago is gone"
