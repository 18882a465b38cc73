"""The fleet gives the verdicts that a host gives: the same truth table, each line as a cluster of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.base.errors import UnreadableError
from logagent.base.records import Kind
from logagent.fleet.report.answers import windowed
from logagent.kafka.files.exported import landing_lines
from logagent.store.landing_files import ManifestHead, land
from tests.spark.conftest import Told, Zoo
from tests.spark.hand_made import NOW, Kafka, dir_row, log_dir_row
from tests.spark.planting import planted
from tests.verdict_table import NOW as DECIDED_MS
from tests.verdict_table import READ, STRAYS_DUE, TABLE, Line, image

HEX = "0123456789abcdef0123456789abcdef"


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _write_image(kafka: Kafka, line: Line) -> None:
    if line.image is None:
        return
    made = image(**{"cluster_id": kafka.cluster_id, **line.image})
    claim = ManifestHead(f"{made.source}-7", "assignments", kafka.cluster_id, None, "publisher", _at(made.at_ms))
    try:
        rows = [text.decode().rstrip("\n") for text in landing_lines(made)]
    except UnreadableError:
        assert made.open_transaction
        return
    land(kafka.store, claim, rows, received_at=_at(made.at_ms))


def _row(line: Line) -> dict[str, Any]:
    name = f"{line.topic}-{line.partition}" + (f".{HEX}-future" if line.kind is Kind.FUTURE else "")
    verdict, reason = line.agent or (("orphan", "topic-absent") if line.proven else (None, None))
    times = {"newest_mtime": _at(line.written_ms).isoformat(timespec="milliseconds")}
    says = {"kind": str(line.kind), "topic": line.topic, "partition": line.partition}
    return dir_row(name, line.topic_id, verdict=verdict, reason=reason, **says, **times)


@planted
def truth_table(store: Path) -> dict[str, str]:
    """The cluster of each line."""
    assert NOW.timestamp() * 1000 == DECIDED_MS
    clusters = {}
    for line in TABLE:
        kafka = Kafka(store, line.name)
        clusters[line.name] = kafka.cluster_id
        _write_image(kafka, line)
        places = [log_dir_row(directory_id=line.directory_id)]
        kafka.snapshot(line.node_id, [_row(line)], at=_at(READ), log_dirs=places)
    return clusters


@pytest.fixture(scope="module")
def told(zoo: Zoo) -> dict[str, tuple[str, str | None]]:
    """The outcome of each line; ("undecided", None) where the fleet has no verdict on its cluster."""
    return _outcomes(zoo.told, zoo.planted["truth_table"])


def _outcomes(report: Told, clusters: dict[str, str]) -> dict[str, tuple[str, str | None]]:
    found: dict[str, tuple[str, str | None]] = {}
    for table, verdict in (("orphans", "orphan"), ("undecided", "unknown")):
        found |= {row["cluster_id"]: (verdict, row["reason"]) for row in report.rows(table)}
    for cluster in report.content["clusters"]:
        if cluster["verdicts"] != "decided":
            assert cluster["cluster_id"] not in found
            found[cluster["cluster_id"]] = ("undecided", None)
    return {name: found.get(cluster, ("assigned", None)) for name, cluster in clusters.items()}


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_the_fleet_gives_the_verdict_of_a_host(told: dict[str, tuple[str, str | None]], line: Line) -> None:
    assert told[line.name] == (("undecided", None) if line.unusable else line.outcome)


def test_a_stray_is_due_when_its_host_says_so(spark: SparkSession) -> None:
    """`tests/unit/cleanup/plan/test_due.py` reads the same table."""
    ddl = "kind string, age_seconds double, marked_at timestamp, only_copy boolean, window string, due_at timestamp,"
    rows = [("stray", age / 1000, _at(DECIDED_MS - age), False, None, None, None) for age, _ in STRAYS_DUE]
    found = windowed(spark.createDataFrame(rows, f"{ddl} obstacle string")).collect()
    assert [row["window"] for row in found] == ["now" if due else "later" for _, due in STRAYS_DUE]
    kept = timedelta(days=7)
    assert [row for row in found if row["due_at"] not in (None, row["marked_at"] + kept)] == []
