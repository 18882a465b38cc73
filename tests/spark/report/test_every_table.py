"""Every table of a report, and every section of `report.json`, worked out elsewhere: from the files that agents sent.

Nothing of our ingest, store or report is used: the rules of docs/ are written once more in `tests/fleets/of_….py`. Row
by row, to the byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent import __version__
from logagent.fleet import demo, job
from logagent.fleet.documents import FleetReport
from logagent.fleet.page import render
from logagent.fleet.report.columns import CHARTS, TABLES
from logagent.store.contract import PageTable
from tests.browser import Open
from tests.fleets import by_hand, planted
from tests.fleets.of_answers import Answers
from tests.fleets.of_directories import ORPHAN, WINDOWS, Directories
from tests.fleets.of_hosts import Hosts, Says
from tests.fleets.of_replicas import UNDECIDED, Replicas
from tests.fleets.of_requests import deletion_progress
from tests.fleets.of_time import Time
from tests.fleets.published import Fleet, Row
from tests.long_form import FULL
from tests.page.figures import follow_figures
from tests.spark.conftest import KEY, Told, tell
from tests.spark.hand_made import AT, NOW, Kafka

FLEETS = {"planted": demo.Fleet(AT, clusters=2, hosts=8, partitions=150, days=3, seed=7, sick=0.04, broken=0.3)}
if FULL:
    FLEETS["many"] = demo.Fleet(AT, clusters=6, hosts=72, partitions=3000, days=3, seed=11, sick=0.04, broken=0.1)
    FLEETS["demo"] = demo.Fleet(AT)


class Reference:
    def __init__(self, store: Path) -> None:
        self.store = store
        self.fleet = Fleet(store / "landing", NOW)
        self.directories = Directories(self.fleet)
        self.replicas = Replicas(self.fleet, self.directories)
        self.hosts = Hosts(self.fleet, self.directories, self.replicas)
        self.time = Time(self.fleet, self.directories, self.replicas, self.hosts)

    @cached_property
    def answers(self) -> Answers:
        return Answers(self.fleet, self.directories, self.replicas, self.hosts, self.time)


REFERENCES: dict[str, Callable[[Reference], Iterable[Row]]] = {
    "usage_clusters": lambda of: of.hosts.usage_clusters,
    "usage_hosts": lambda of: of.hosts.usage_hosts,
    "usage_log_dirs": lambda of: of.hosts.usage_log_dirs,
    "usage_topics": lambda of: of.directories.usage_topics(),
    "usage_partitions": lambda of: of.directories.usage_partitions(),
    "orphans": lambda of: of.directories.orphans,
    "missing_replicas": lambda of: of.replicas.rows("missing"),
    "undecided_replicas": lambda of: of.replicas.rows(*UNDECIDED),
    "leftovers": lambda of: of.directories.leftovers,
    "undecided": lambda of: of.directories.undecided(),
    "duplicates": lambda of: of.directories.duplicates(),
    "log_dir_health": lambda of: of.hosts.log_dir_health(__version__),
    "growth": lambda of: of.time.growth(),
    "deletion_progress": lambda of: deletion_progress(of.store, KEY.key_id),
    "audit": lambda of: of.time.audit,
    "quarantined_input": lambda of: of.hosts.quarantined_input(),
    "chart_growth": lambda of: of.time.chart_growth(),
}
SECTIONS: dict[str, Callable[[Reference], Any]] = {
    "as_of": lambda of: "2025-03-10T12:20:00.000Z",
    "date": lambda of: "2025-03-10",
    "clusters": lambda of: of.answers.clusters(),
    "hosts": lambda of: of.answers.hosts(),
    "totals": lambda of: of.answers.totals(),
    "answers": lambda of: of.answers.answers(),
    "tables": lambda of: {name: described(name, [*REFERENCES[name](of)]) for name in TABLES},
}
LEFT_OUT = {
    **dict.fromkeys(
        ("schema", "run_id", "at", "ingested", "place", "commands"), "says which report it is, not of what"
    ),
    "warnings": "sentences for people: test_rests_on.py and test_truth.py ask what they say",
}


def test_every_table_and_every_section_has_a_reference() -> None:
    assert REFERENCES.keys() == {*TABLES, *CHARTS}
    assert SECTIONS.keys() | LEFT_OUT.keys() == FleetReport.__annotations__.keys()


@dataclass
class Made:
    """`page`: the tables that the page was made of."""

    name: str
    told: Told
    reference: Reference
    hands: dict[str, Kafka]
    page: dict[str, PageTable]


@pytest.fixture(scope="module", params=list(FLEETS))
def made(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    store = tmp_path_factory.mktemp(request.param) / "store"
    store.mkdir()
    fleet = replace(FLEETS[request.param], at=AT + timedelta(minutes=15))
    hands: dict[str, Kafka] = {}
    if request.param == "demo":
        demo.generate(store, fleet)
    else:
        planted.generate(store, fleet)
        hands = by_hand.generate(store, KEY)
    page: dict[str, PageTable] = {}

    def rendered(content: dict[str, Any], tables: dict[str, PageTable]) -> str:
        page.update(tables)
        return render(content, tables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "render", rendered)
        told = tell(spark, store, store.parent / "out")
    return Made(request.param, told, Reference(store), hands, page)


def described(table: str, rows: list[Row]) -> Row:
    """The page and CSV do without the largest table."""
    has_csv = table != "usage_partitions"
    where = {"csv": f"{table}.csv" if has_csv else None, "parquet": f"parquet/{table}"}
    return {"rows": len(rows), "shown": len(rows) if has_csv else 0, **where}


def plain(value: Any) -> Any:
    """As both sides have it: a time in milliseconds, a date as text."""
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize("table", REFERENCES)
def test_each_row_of_a_table_is_what_the_landing_says(made: Made, table: str) -> None:
    rows = made.page[table]["rows"] if table in CHARTS else made.told.rows(table)
    names = (TABLES | CHARTS)[table].names
    expected = [{name: plain(row.get(name)) for name in names} for row in REFERENCES[table](made.reference)]
    assert_same([{name: plain(row[name]) for name in names} for row in rows], expected)


def assert_same(rows: list[Row], expected: list[Row]) -> None:
    """The same rows in any order; of a sentence that it names the facts."""

    def key(row: Row, says: frozenset[str]) -> str:
        return repr({name: value for name, value in row.items() if name not in says})

    says = frozenset(name for row in expected for name, value in row.items() if isinstance(value, Says))
    mine, theirs = (Counter(key(row, says) for row in each) for each in (rows, expected))
    assert (sorted(mine - theirs)[:3], sorted(theirs - mine)[:3]) == ([], [])
    for row, other in zip(*(sorted(each, key=lambda r: key(r, says)) for each in (rows, expected)), strict=True):
        for name in says:
            assert_says(row[name], other[name], name)


def assert_says(value: Any, expected: Any, path: str) -> None:
    if isinstance(expected, Says):
        assert [fact for fact in expected if fact not in value] == [], (path, value)
    else:
        assert value == expected, path


def test_the_fleet_has_what_is_compared(made: Made) -> None:
    """A comparison of nothing would prove nothing."""
    of = made.reference
    if made.name == "demo":
        return
    assert [table for table in REFERENCES if not [*REFERENCES[table](of)]] == []
    assert len({*of.fleet.hosts, *of.fleet.unknown}) >= (70 if made.name == "many" else 20)
    reasons = {row["reason"] for row in (*of.directories.undecided(), *of.directories.orphans)}
    assert reasons >= ORPHAN | {"internal", "no-assignments", "no-topic-id", "reassigning", "sources-disagree"}
    assert {row["window"] for row in of.directories.waste} == {*WINDOWS, None}


def test_what_moved_or_has_another_name_is_counted_once_and_said(made: Made) -> None:
    """A host with another node id, a cluster with another id, a log dir whose path is not UTF-8; and a broker more: its
    topics grow over the hosts of both dates."""
    if made.name == "demo":
        return
    moves, old, new, odd = (made.hands[name].cluster_id for name in ("moves", "old-id", "new-id", "odd"))
    hosts = Counter(row["cluster_id"] for row in made.told.rows("usage_hosts"))
    assert (hosts[moves], hosts[old], hosts[new], hosts[odd]) == (3, 0, 2, 4)
    (said,) = (one for one in made.told.content["warnings"] if "which count once" in one)
    assert "log dirs moved, which count once: 3" in said and f"of cluster {old} no host counts" in said
    paths = Counter(row["log_dir"] for row in made.told.rows("usage_log_dirs") if row["cluster_id"] == odd)
    assert paths == {"/d0": 4, "/d\\udcff": 4}
    growth = [row for row in made.told.rows("growth") if (row["cluster_id"], row["scope"]) == (odd, "topic")]
    assert {row["hosts"] for row in growth} == {3}


def test_every_number_of_its_page_that_is_a_link_opens_its_rows(made: Made, open_page: Open) -> None:
    page = open_page(made.told.out / "index.html", viewport={"width": 1400, "height": 1000})
    assert follow_figures(page) >= 12


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_of_the_report_is_what_the_landing_says(made: Made, section: str) -> None:
    compare(made.told.content[section], SECTIONS[section](made.reference), section)


def compare(value: Any, expected: Any, path: str) -> None:
    if isinstance(expected, dict):
        assert value.keys() == expected.keys(), path
        for name in expected:
            compare(value[name], expected[name], f"{path}.{name}")
    elif isinstance(expected, list):
        assert len(value) == len(expected), path
        for number, (one, other) in enumerate(zip(value, expected, strict=True)):
            compare(one, other, f"{path}[{number}]")
    else:
        assert_says(value, expected, path)
