"""What lies in a report directory: CSV for programs, report.json, the page; and nothing else."""

from __future__ import annotations

import csv
import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.report.columns import NO_CSV, TABLES
from logagent.fleet.report.output import Output, run_name
from logagent.fleet.tables.files import Files
from logagent.fleet.tables.frames import local_frame
from tests.documents import assert_promised
from tests.spark.conftest import DAY, Zoo


def test_report_directory(zoo: Zoo) -> None:
    names = {path.name for path in zoo.told.out.iterdir()}
    assert {path.name for path in zoo.told.out.parent.iterdir()} == {zoo.told.out.name, "latest"}
    assert (zoo.told.out.parent / "latest").resolve() == zoo.told.out.resolve()
    assert names == {f"{name}.csv" for name in TABLES if name not in NO_CSV} | {"report.json", "index.html", "parquet"}
    assert {path.name for path in (zoo.told.out / "parquet").iterdir()} == set(TABLES)


def test_report_json_says_where_each_table_lies(zoo: Zoo) -> None:
    content = json.loads((zoo.told.out / "report.json").read_text())
    assert content == zoo.told.content
    assert_promised(content, "fleet-report")
    assert content["date"] == "2025-03-10"
    assert set(content["tables"]) == set(TABLES)
    for name, entry in content["tables"].items():
        assert entry["rows"] == len(zoo.told.rows(name))
        assert (zoo.told.out / entry["parquet"]).is_dir()
        assert (entry["csv"] is None) == (name in NO_CSV)


def test_tables_of_several_reports_can_be_read_as_one(spark: SparkSession, zoo: Zoo) -> None:
    """Every Parquet file says of which date and run it is, in columns of its own."""
    for name in TABLES:
        frame = spark.read.parquet(f"{zoo.told.out}/parquet/{name}")
        assert dict(frame.dtypes)["date"] == "date" and frame.columns[-2:] == ["date", "run_id"], name
        said = {(str(row["date"]), row["run_id"]) for row in frame.select("date", "run_id").distinct().collect()}
        assert said <= {("2025-03-10", zoo.told.out.name)}, name


def _csv(zoo: Zoo, name: str) -> list[dict[str, str]]:
    with (zoo.told.out / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_row_in_order(zoo: Zoo) -> None:
    for name, table in TABLES.items():
        if name in NO_CSV:
            continue
        rows = _csv(zoo, name)
        assert len(rows) == zoo.told.content["tables"][name]["rows"], name
        assert all(list(row) == [*table.names, "date", "run_id"] for row in rows), name
        assert {(row["date"], row["run_id"]) for row in rows} <= {("2025-03-10", zoo.told.out.name)}, name
    sizes = [int(row["allocated"]) for row in _csv(zoo, "orphans")]
    assert sizes == sorted(sizes, reverse=True)


def test_orphans_csv_has_what_is_promised(zoo: Zoo) -> None:
    promised = ["cluster_id", "node_id", "host", "log_dir", "name", "topic", "partition", "topic_id", "reason", "bytes"]
    promised += ["allocated", "age_seconds", "sightings", "copies_elsewhere", "longest_copy"]
    assert set(promised) <= set(TABLES["orphans"].names)
    parquet: list[dict[str, Any]] = zoo.told.rows("orphans")
    by_place = {(r["cluster_id"], str(r["node_id"]), r["log_dir"], r["name"]): r for r in parquet}
    for row in _csv(zoo, "orphans"):
        typed = by_place[row["cluster_id"], row["node_id"], row["log_dir"], row["name"]]
        assert (row["reason"], int(row["bytes"])) == (typed["reason"], typed["bytes"])
        assert row["longest_copy"] == str(typed["longest_copy"]).lower()
        assert (row["age_seconds"] or None) == (None if typed["age_seconds"] is None else str(typed["age_seconds"]))


def test_hostile_names_come_back_from_csv(zoo: Zoo) -> None:
    cluster = zoo.expected["names_that_are_no_text"].cluster_id
    names = {row["name"] for row in _csv(zoo, "orphans") if row["cluster_id"] == cluster}
    assert names == {"caf\\udce9-0", "caf\\udcea-0", "\U0001f480-0", "back\\udce9slash-0", 'quote",comma\n-0'}


def test_csv_is_strict_and_runs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """On the driver and by Spark the same bytes: RFC 4180, and no cell that a spreadsheet would run."""
    hostile = [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\tx",
        "\rx",
        "a\rb",
        "a\nb",
        "a\r\nb",
        'q"q',
        "a,b",
        " x ",
    ]
    hostile += ["-EkO4NIHQdIlB-q-5VcGFg", "-7", "caf\\udce9", "\U0001f480", ""]
    rows = [{"cluster_id": "c", "node_id": n, "reason": text} for n, text in enumerate(hostile)]
    made = []
    for number, limit in enumerate((1000, 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("logagent.fleet.report.output.DRIVER_ROWS", limit)
            output = Output(spark, Files(spark), f"file:{tmp_path}/{number}", "run", DAY)
            types = "cluster_id string, node_id int, reason string"
            frame = local_frame(spark, rows, types)
            missing = {n: fn.lit(None) for n in TABLES["quarantined_input"].names if n not in frame.columns}
            output.table("quarantined_input", frame.withColumns(missing))
            made.append((tmp_path / str(number) / "run" / "quarantined_input.csv").read_bytes())
    assert made[0] == made[1]
    with io.StringIO(made[0].decode(), newline="") as file:
        read = {int(row["node_id"]): row["reason"] for row in csv.DictReader(file, strict=True)}
    for number, text in enumerate(hostile):
        assert read[number] == ("'" + text if number < 6 else text), text
    assert made[0].count(b"\r\n") == len(hostile) + 2, "one inside a quoted cell"


def test_old_reports_go_but_the_last_ten_and_the_latest_stay(spark: SparkSession, tmp_path: Path) -> None:
    """And nothing else in that folder; of reports that never were complete what is a day old."""
    now = datetime(2025, 6, 30, tzinfo=UTC)
    days = [*range(200, 80, -10), 60, 30, *range(8)]
    made = [run_name("2025-01-01", now - timedelta(days=age)) for age in days]
    for name in made:
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text("{}")
    killed = [run_name("2025-01-01", now - timedelta(days=age)) for age in (2, 0)]
    for name in (*killed, "notes", "2025-01-01-backup"):
        (tmp_path / name).mkdir()
    output = Output(spark, Files(spark), f"file:{tmp_path}", run_name("2025-01-01", now), DAY, timedelta(days=90))
    output._sweep(made[0])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {made[0], *made[10:], killed[1], "notes", "2025-01-01-backup"}
    few = made[-8:]
    for name in set(made) - set(few):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    far = run_name("2025-01-01", now + timedelta(days=4000))
    Output(spark, Files(spark), f"file:{tmp_path}", far, DAY, timedelta(days=90))._sweep(far)
    assert set(few) <= {path.name for path in tmp_path.iterdir()}, "a clock that is wrong"


def test_the_page_is_there(zoo: Zoo) -> None:
    page = (zoo.told.out / "index.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "<img src=x" not in page


def test_files_that_were_not_taken_are_not_lost(zoo: Zoo) -> None:
    """Every data file of landing is in the store's list of files, with what became of it."""
    landed = {
        str(p.relative_to(zoo.path / "landing")) for p in (zoo.path / "landing").rglob("*.jsonl.gz") if p.stat().st_size
    }
    store = zoo.told.store
    listed = {row["file"]: row["status"] for day in store.dates() for row in zoo.told.small("files", day=day)}
    not_ours = {row["file"] for row in zoo.told.rows("quarantined_input") if row["reason"] == "not-ours"}
    assert {file for file in landed - listed.keys() if not {file, *map(str, Path(file).parents)} & not_ours} == set()
    assert set(listed.values()) == {"taken", "superseded", "waiting", "rejected"}


def test_manifests_are_what_the_contract_says(zoo: Zoo) -> None:
    cluster = zoo.truths[0].cluster_id
    found = sorted((zoo.path / "landing" / cluster).rglob("assignments/*.manifest.json"))
    assert found
    for path in found:
        assert_promised(path.read_text(), "manifest")
