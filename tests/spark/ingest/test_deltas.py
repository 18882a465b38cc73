"""Hourly snapshots, as agents publish them: a base in the morning, then what has changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.ingest import check as module
from logagent.fleet.ingest.dates import ingest_dates, trim_landing
from logagent.fleet.ingest.landing import Landing
from logagent.fleet.tables.store import Store
from logagent.store.landing_files import manifest_of
from tests.fleets.corruptions import corrupt
from tests.needs import need_root
from tests.spark.conftest import DAY, Zoo
from tests.spark.hand_made import AT, Kafka, dir_row
from tests.spark.planting import planted

HOUR = timedelta(hours=1)
NODES = (1, 2, 3)


def made(store: Path, name: str) -> Kafka:
    kafka = Kafka(store, name)
    kafka.topic("orders", *([1, 2, 3] for _ in range(20)))
    kafka.assignments()
    return kafka


def hours(kafka: Kafka, node: int) -> list[list[dict[str, Any]]]:
    """What a node has at two hours of a day: directories grow, an orphan comes, a marked directory goes."""
    before = kafka.replicas_of(node)
    marked = dir_row(f"old-0.{'0' * 32}-delete", kafka.topic("old"), kind="delete", topic="old", partition=0)
    after = [row | {"bytes": row["bytes"] + n, "allocated": 8192} for n, row in enumerate(before)]
    orphan = dir_row("gone-0", "B" * 22, bytes=77, verdict="orphan", reason="topic-absent", claim="deleted")
    return [[*before, marked], [*after, orphan | {"inode": 5, "end_offset": 9, "witness": "kraft-log"}]]


def published(kafka: Kafka, nodes: tuple[int, ...] = NODES) -> dict[int, tuple[Path, Path]]:
    """A base and a delta of each node."""
    files = {}
    for node in nodes:
        first, second = hours(kafka, node)
        base = kafka.hourly(node, first, at=AT - HOUR)
        files[node] = base, kafka.hourly(node, second, base=base)
    return files


@planted
def hourly_and_whole(store: Path) -> tuple[Kafka, Kafka]:
    """The same hosts twice: as a base with its changes, and as one whole snapshot."""
    deltas, whole = made(store, "hourly"), Kafka(store, "at-once")
    published(deltas)
    whole.topics = deltas.topics
    whole.assignments()
    for node in NODES:
        whole.hourly(node, hours(whole, node)[1])
    return deltas, whole


def of_cluster(rows: list[dict[str, Any]], kafka: Kafka) -> list[dict[str, Any]]:
    """Its rows without what tells the two apart: cluster and host, and the hour of the snapshot's id."""
    mine = [row for row in rows if row["cluster_id"] == kafka.cluster_id]
    return sorted(({k: v for k, v in row.items() if k not in ("cluster_id", "host", "id")} for row in mine), key=str)


def test_deltas_give_the_tables_of_whole_snapshots(zoo: Zoo) -> None:
    deltas, whole = zoo.planted["hourly_and_whole"]
    for table in ("dirs", "others", "parts", "topics"):
        both = fn.col("cluster_id").isin(deltas.cluster_id, whole.cluster_id)
        stored = [row.asDict() for row in zoo.told.stored(table).where(both).collect()]
        found = of_cluster(stored, deltas)
        assert found == of_cluster(stored, whole), table
        if table == "dirs":
            assert len(found) == 3 * 21
            assert {row["witness"] for row in found if row["claim"]} == {"kraft-log"}
    for table in ("orphans", "usage_hosts", "usage_clusters", "usage_topics", "missing_replicas"):
        told = zoo.told.rows(table)
        assert of_cluster(told, deltas) == of_cluster(told, whole), table
    assert len(of_cluster(zoo.told.rows("orphans"), deltas)) == 3


@planted
def liars(store: Path) -> Kafka:
    """One host is late (its newest snapshot came before its base), one is silent, one says "unchanged" of what has
    changed, one base is damaged, one has another content, one delta is called whole, and one has a base, named as it
    should be, whose numbers are none."""
    kafka = Kafka(store, "liars")
    nodes = (1, 2, 3, 4, 5, 6, 7, 8)
    kafka.topic("orders", *(list(nodes) for _ in range(20)))
    kafka.assignments(brokers=nodes)
    files = published(kafka, tuple(node for node in nodes if node != 3))
    kafka.hourly(3, hours(kafka, 3)[0], at=AT - 30 * HOUR)
    for gone in (files[2][0], manifest_of(files[2][0])):
        gone.unlink()
    _rewrite(files[4][1], lambda lines: [line for line in lines if line["row"] != "changes"])
    for node in (4, 5, 7, 8):  # no older one to fall back on
        manifest_of(files[node][0]).unlink()
    corrupt(files[5][0], "truncated")
    _rewrite(files[6][0], lambda lines: [*lines[:-1], lines[-1] | {"bytes": 6}])
    manifest = json.loads(manifest_of(files[7][1]).read_bytes())
    del manifest["base"]
    manifest_of(files[7][1]).write_text(json.dumps(manifest | {"kind": "snapshot"}))
    _with_other_base(*files[8], gzip.decompress(files[8][0].read_bytes()).replace(b'"bytes":', b'"bytes":0'))
    return kafka


def test_a_host_whose_base_is_not_there_or_lies_is_unknown_and_has_lost_nothing(zoo: Zoo) -> None:
    cluster = zoo.planted["liars"].cluster_id
    assert [row for row in zoo.told.rows("missing_replicas") if row["cluster_id"] == cluster] == []
    says = {h["node_id"]: h["why"] for h in zoo.told.content["hosts"]["unknown"] if h["cluster_id"] == cluster}
    assert says.keys() == {2, 3, 4, 5, 7, 8}, "the two others report"
    assert "no-base: its base 110000-2 is not in landing" in says[2]
    assert "its newest complete snapshot is 30" in says[3]
    assert "base-differs: its changes and its base do not give the directories that it says" in says[4]
    assert "base-differs: the base of the snapshot, 110000-5, has changed" in says[5]
    assert "wrong-base" in says[7]
    assert "base-differs: a directory of a base cannot be read" in says[8]
    # The changed base of 6 is a complete snapshot of its own: an hour older, and counted as that.
    hosts = [row for row in zoo.told.rows("usage_hosts") if row["cluster_id"] == cluster]
    assert {row["snapshot_id"] for row in hosts if row["node_id"] == 6} == {"110000-6"}


def test_executors_read_hosts_as_the_driver_does(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every host of every story: the same files, reasons, log dirs, bad rows and bytes for Spark. The driver reads
    them itself where executors have no Python, and says so."""
    store = zoo.told.store
    context = store.spark.sparkContext
    found, read, said = [], module.read_host, list[str]()

    def refuse(*_: object) -> None:
        raise AssertionError("the driver reads a host")

    for few, reader, python in ((1000, read, None), (0, refuse, None), (0, read, "/no/python")):
        monkeypatch.setattr(module, "FEW_HOSTS", few)
        monkeypatch.setattr(module, "read_host", reader)
        monkeypatch.setattr(context, "pythonExec", python or context.pythonExec)
        run = store.new_run()
        with Landing(store.uri, store.files) as landing:
            checked = module.check(run, landing, landing.listed(), DAY, None, said.append)
        aside = Path(checked.aside.removeprefix("file:"))
        wholes = {str(path.relative_to(aside)): path.read_bytes() for path in aside.rglob("*.jsonl.gz")}
        run.drop()
        records = sorted(map(str, checked.records))
        reads = [e["read_from"].replace(run.name, "") for e in checked.chosen("snapshot")]
        kept = checked.log_dirs, checked.brokers, records, module.quarantine(checked), wholes, reads
        found.append((checked.files(), *kept))
    assert len(found[0][5]) > 3
    assert {e["status"] for e in found[0][0]} == {"taken", "superseded", "rejected", "waiting"}
    for each in zip(*found, strict=True):
        assert each[0] == each[1] == each[2]
    assert len(said) == 1
    assert "the executors cannot read" in said[0]
    assert "No such file" in said[0]


def test_the_driver_reads_what_executors_may_not(zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors that lack a mount: what is not there for them is read by the driver, as if it had been."""
    need_root()
    store, said, found = zoo.told.store, list[str](), []
    context = store.spark.sparkContext
    with Landing(store.uri, store.files) as landing:
        listing = landing.listed()
        hidden = next(each for each in listing.landed[DAY] if each.cluster_id == zoo.planted["liars"].cluster_id)
        folder = f"{store.landing.removeprefix('file:')}/{hidden.file.rpartition('/')[0]}"
        python = tmp_path / "python"
        covered = f'mount -t tmpfs none {folder} && exec "$0" "$@"'
        python.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{covered}' '{context.pythonExec}' \"$@\"\n")
        python.chmod(0o755)
        for few, executable in ((1000, context.pythonExec), (0, str(python))):
            monkeypatch.setattr(module, "FEW_HOSTS", few)
            monkeypatch.setattr(context, "pythonExec", executable)
            run = store.new_run()
            checked = module.check(run, landing, listing, DAY, None, said.append)
            run.drop()
            found.append((checked.files(), checked.log_dirs, module.quarantine(checked)))
    assert found[0] == found[1]
    assert len(said) == 1
    assert "of 1 of" in said[0]
    assert f"{hidden.file}: the manifest cannot be read: No such file or directory" in said[0]


def _rewrite(data: Path, change: Any) -> None:
    """As its host would have published other lines."""
    lines = [json.loads(line) for line in gzip.decompress(data.read_bytes()).splitlines()]
    lines = change(lines)
    packed = gzip.compress(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines), 1)
    data.write_bytes(packed)
    manifest = json.loads(manifest_of(data).read_bytes())
    manifest |= {"bytes": len(packed), "rows": len(lines), "sha256": hashlib.sha256(packed).hexdigest()}
    manifest_of(data).write_text(json.dumps(manifest))


def _with_other_base(base: Path, delta: Path, content: bytes) -> None:
    """The delta and its manifest name it as it then is."""
    before, packed = hashlib.sha256(base.read_bytes()).hexdigest(), gzip.compress(content, 1)
    base.write_bytes(packed)
    after = hashlib.sha256(packed).hexdigest()

    def renamed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [line | {"base": line["base"] | {"sha256": after}} if "base" in line else line for line in lines]

    _rewrite(delta, renamed)
    manifest_of(delta).write_text(manifest_of(delta).read_text().replace(before, after))


def test_a_base_that_came_late_is_taken_and_one_that_is_still_named_is_not_trimmed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nor is a rejected file, which somebody should inspect; everything else of the date goes."""
    kafka = made(tmp_path, "trimmed")
    files = published(kafka)
    damaged = files[2][1]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    late = [(path, path.read_bytes()) for path in (files[3][0], manifest_of(files[3][0]))]
    for path, _ in late:
        path.unlink()
    store = Store.open(spark, str(tmp_path))
    assert [one.taken for one in ingest_dates(store, None)] == [3], "the assignments, of node 1, the base of 2"
    for path, content in late:
        path.write_bytes(content)
    assert [one.taken for one in ingest_dates(store, None)] == [4], "and of 3, whose base has come"
    assert trim_landing(store, date(2025, 3, 11)) == [DAY]
    left = {path for path in (tmp_path / "landing").rglob("*") if path.is_file()}
    assert left == {files[2][0], manifest_of(files[2][0]), damaged, manifest_of(damaged)}
    assert ingest_dates(store, None) == []
    assert trim_landing(store, date(2025, 3, 11)) == []
    assert {path for path in (tmp_path / "landing").rglob("*") if path.is_file()} == left


@pytest.mark.parametrize("stuck", ["delta", "base"])
def test_what_cannot_be_removed_keeps_its_base(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    kafka = made(tmp_path, "stuck")
    files = published(kafka)
    keeps = files[1][1 if stuck == "delta" else 0]
    store = Store.open(spark, str(tmp_path))
    ingest_dates(store, None)
    warned: list[str] = []
    _immutable(keeps, on=True)
    try:
        trim_landing(store, date(2025, 3, 11), warn=warned.append)
        left = set((tmp_path / "landing").rglob("*.jsonl.gz"))
    finally:
        _immutable(keeps, on=False)
    assert left == ({*files[1]} if stuck == "delta" else {keeps})
    assert "--keep-landing off" in warned[0]
    trim_landing(store, date(2025, 3, 11))
    assert list((tmp_path / "landing").rglob("*.jsonl.gz")) == []


def _immutable(path: Path, *, on: bool) -> None:
    subprocess.run(["chattr", "+i" if on else "-i", str(path)], check=True)
