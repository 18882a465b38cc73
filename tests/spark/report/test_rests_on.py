"""What a fleet's report and its page rest on: each number and list has its row; without each input they say something
else, and no longer that nothing needs anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.base.units import instant
from logagent.deletion.store.requests import ControlFolder, Request, RequestedPartition, RequestedTopic, write_request
from logagent.fleet.demo import topic_id
from logagent.fleet.documents import FleetReport
from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.job import Job, report
from logagent.fleet.page.document import brief
from logagent.fleet.tables.store import Store
from logagent.store.contract import DATA, MANIFEST
from tests.long_form import FULL
from tests.rests_on import assert_complete
from tests.spark.conftest import KEY
from tests.spark.hand_made import AT, GIB, NOW, Kafka, dir_row, log_dir_row

MINUTE = timedelta(minutes=1)
BEFORE = AT - timedelta(days=2)
"""Older than what counts as fresh."""
GONE = topic_id("rests on", "gone")
NODES = {"a": (1, 2, 3), "b": (1, 2)}
CALM = "Nothing needs you today."


@dataclass
class Look:
    """What a host publishes on a date: `head` of the snapshot, its log dir, directories and acts."""

    head: dict[str, Any]
    log_dir: dict[str, Any]
    dirs: list[dict[str, Any]]
    acts: list[dict[str, Any]]


@dataclass
class Given:
    """All that a report is made of, for a test to withhold some of it."""

    kafkas: dict[str, Kafka]
    looks: dict[tuple[str, int, datetime], Look]
    images: dict[tuple[str, datetime], list[dict[str, Any]]]
    request: bool = True
    job: dict[str, Any] = field(default_factory=lambda: {"order_keys": (KEY.public(),)})
    landed: list[Callable[[Path], object]] = field(default_factory=list)
    """What befalls the file of `one`."""

    @property
    def one(self) -> Look:
        return self.looks["a", 1, AT]


def waste(name: str, kind: str = "current", **fields: Any) -> dict[str, Any]:
    """What is left of a topic that is gone, and not yet due."""
    orphan = {"verdict": "orphan", "reason": "topic-absent"} if kind == "current" else {}
    due = {"window": "later", "due_at": instant(AT + timedelta(days=5)), "inode": 5}
    where = name if kind == "current" else f"{name}.{'0' * 31}1-{kind}"
    topic, _, partition = name.rpartition("-")
    marked = {} if kind == "current" else {"marked_at": instant(BEFORE - MINUTE)}
    named = {"kind": kind, "topic": topic, "partition": int(partition), "bytes": 9000}
    return dir_row(where, GONE, **named, **orphan, **due, **marked, **fields)


def removal(number: int, name: str) -> dict[str, Any]:
    """The `act` line of a directory that was removed an hour ago."""
    at = round((AT - timedelta(hours=1)).timestamp() * 1000)
    topic, _, partition = name.rpartition("-")
    row: dict[str, Any] = {"row": "act", "id": number, "at": at - 1, "finished_at": at, "action": "remove"}
    row |= {"outcome": "done", "log_dir": "/d0", "name": name, "new_name": None, "topic": topic, "topic_id": GONE}
    row |= {"partition": int(partition), "bytes": 9000, "allocated": 9000, "actor": "daemon", "approved": False}
    row |= {"plan_id": "p1", "claim": "kept", "witness": "name", "as_of": at - 2, "claims": "kept by name"}
    return row | {"error": None}


def given(store: Path) -> Given:
    """Two clusters of which nothing is wrong: something waits for its time, something was removed, all is known."""
    kafkas = {name: Kafka(store, name) for name in NODES}
    kafkas["a"].topic("orders", [1, 2, 3], [2, 3, 1])
    kafkas["b"].topic("clicks", [1, 2])
    looks = {}
    for number, (name, node) in enumerate((name, node) for name, nodes in NODES.items() for node in nodes):
        for at in (BEFORE, AT):
            offset = 3 if at == BEFORE else 7
            said = [{"source": "kraft-log", "at": instant(at + n * 2 * MINUTE), "offset": offset + n} for n in (-1, 1)]
            head = {"mode": "enforce", "accepts": "ops", "absent": 0, "began": instant(at - MINUTE / 2)}
            head |= {"images": dict(zip(("before", "after"), said, strict=True)), "boot_id": f"boot-{name}-{node}"}
            head |= {"unread_processes": 0}
            used = (10 if at == BEFORE else 11) * GIB
            ledger = log_dir_row()["ledger"] | {"used": used, "free": 100 * GIB - used, "current": GIB}
            dirs = kafkas[name].replicas_of(node)
            looks[name, node, at] = Look(head, log_dir_row(ledger=ledger, device=number), dirs, [])
    for node in (1, 2):
        looks["a", node, BEFORE].dirs += [waste("done-0"), waste("hand-1"), waste("aside-3", "stray")]
        looks["a", node, AT].dirs += [waste("gone-2"), waste("aside-3", "stray"), waste("marked-4", "delete")]
        looks["a", node, AT].acts.append(removal(1, "done-0"))
    return Given(kafkas, looks, {(name, at): kafkas[name].partition_rows() for name in NODES for at in (BEFORE, AT)})


def no_look(name: str, node: int, *times: datetime) -> Callable[[Given], object]:
    return lambda these: [these.looks.pop((name, node, at)) for at in times]


def head(**fields: Any) -> Callable[[Given], object]:
    """With these fields in the head of a host's snapshot."""
    return lambda these: these.one.head.update(fields)


def no_earlier_date(these: Given) -> None:
    these.looks = {key: look for key, look in these.looks.items() if key[-1] == AT}
    these.images = {key: rows for key, rows in these.images.items() if key[-1] == AT}


def befall(what: Callable[[Path], object]) -> Callable[[Given], object]:
    return lambda these: these.landed.append(what)


def absent(these: Given) -> None:
    """A replica is not there, and neither its agent nor the assignments say whether it had to be."""
    these.one.head |= {"images": None, "absent": None}
    these.one.dirs = [row for row in these.one.dirs if row["name"] != "orders-0"]


def offline(these: Given) -> None:
    these.one.log_dir = log_dir_row(health="offline", device=None)
    these.one.dirs.clear()


def unread(these: Given) -> None:
    """Its agent may not read all processes, and two hundredths of its file system are used by nothing that it sees."""
    these.one.head |= {"unread_processes": 3}
    these.one.log_dir["ledger"] |= {"unexplained": 2 * GIB}


def one_dir(**fields: Any) -> Callable[[Given], object]:
    def withhold(these: Given) -> None:
        (row,) = (row for row in these.one.dirs if row["name"] == "gone-2")
        row |= fields

    return withhold


def without_manifest(path: Path) -> None:
    path.with_name(path.name.removesuffix(DATA) + MANIFEST).unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


SOME_ACTS = {"since": instant(AT - timedelta(hours=3)), "rows": 1, "left_out": 2, "last_id": 1}
UNKNOWN = ("hosts.unknown_total", "answers.risk.unknown[].hosts", "warnings")
# By input: how it is withheld, and the figures that say so.
WITHHELD: dict[str, tuple[Callable[[Given], object], tuple[str, ...]]] = {
    "snapshot": (no_look("a", 1, AT), UNKNOWN),
    "manifest": (befall(without_manifest), UNKNOWN),
    "file": (befall(cut), UNKNOWN),
    "row": (lambda these: these.one.dirs.append({"row": "dir", "name": 5}), UNKNOWN),
    "assignments": (lambda these: these.images.pop(("b", AT)), ("clusters", "warnings")),
    "earlier date": (no_earlier_date, ("answers.risk.pace_unknown", "warnings")),
    "earlier snapshot": (no_look("a", 3, BEFORE), ("answers.risk.pace_unknown", "warnings")),
    "acts": (head(acts=None), ("hosts.acts_unknown", "answers.changes[].by_agents.unknown_hosts", "warnings")),
    "older acts": (head(acts=SOME_ACTS), ("answers.changes[].by_agents.left_out",)),
    "absent replicas": (absent, ("answers.replicas.not_compared", "warnings")),
    "log dir": (offline, ("answers.risk.offline", "answers.disks.unread", "warnings")),
    "file system": (lambda these: these.one.log_dir.update(ledger=None), ("answers.disks.unread", "warnings")),
    "directory": (one_dir(error="it cannot be opened"), ("warnings",)),
    "topic of a directory": (one_dir(topic_id=None, verdict="unknown", reason="no-topic-id"), ("warnings",)),
    "window": (one_dir(window=None, due_at=None, obstacle="holder"), ("answers.reclaim.barred",)),
    "mode": (head(mode=None), ("warnings",)),
    "accepts": (head(accepts=None), ("warnings",)),
    "processes": (head(unread_processes=None), ("answers.reclaim.unread_hosts", "warnings")),
    "some processes": (unread, ("answers.reclaim.unread_hosts", "answers.reclaim.open_unread", "warnings")),
    "order keys": (lambda these: these.job.update(order_keys=()), ("warnings",)),
    "boot": (head(boot_id=None), ("warnings",)),
}
# Which hosts count, what is read of their disks, what is decided of it, and what it is compared with.
HOST = ("snapshot", "manifest", "file", "row")
COUNTS = (*HOST, "assignments", "settings")
DISK = (*HOST, "log dir", "file system", "boot")
DIRS = (*HOST, "assignments", "log dir", "directory", "topic of a directory")
DUE = (*DIRS, "window")
REPLICAS = (*HOST, "assignments", "log dir", "absent replicas", "topic of a directory")
PROCESSES = ("processes", "some processes")
PAST = ("earlier date", "earlier snapshot")
ACTS = (*DIRS, *PAST, "acts", "older acts")
GIVEN = {"settings", "run"}
"""Without these there is no report: which date of which run is asked for, and the names of clusters."""


def of(prefix: str, names: str, *inputs: str) -> dict[str, tuple[str, ...]]:
    return {f"{prefix}{name}": inputs for name in names.split()}


COPIES = "expected found missing not_yet unproven gone not_heard not_read"
WINDOW = "asked_bytes bytes dirs hosts requestable"
REPORT: dict[str, tuple[str, ...]] = {
    **of("clusters[].", "hosts unknown_hosts", *COUNTS),
    "clusters": (*COUNTS, *REPLICAS),
    **of("clusters[].assignments.", "age_seconds partitions topics", "assignments"),
    **of("clusters[].replicas.", COPIES, *REPLICAS),
    **of("hosts.", "reporting unknown unknown[].node_id unknown_total", *COUNTS),
    **of("hosts.", "enforcing", *HOST, "mode"),
    **of("hosts.", "accepting refusing", *HOST, "accepts"),
    **of("hosts.", "acts_unknown", *HOST, "acts"),
    **of("totals.", "bytes allocated", *HOST, "log dir", "directory", "absent replicas"),
    **of("totals.", "current future stray delete other", *DISK),
    **of("totals.", "orphans orphan_bytes leftovers duplicates", *DIRS),
    **of("totals.", "missing_replicas", *REPLICAS),
    **of("", "tables tables[].rows tables[].shown warnings", *WITHHELD),
    **of("", "ingested.commit", "run"),
    **of("", "commands.bootstrap", "settings"),
    **of("answers.disks.", "free fullness fullness[] log_dirs nearly_full size unread used", *DISK),
    **of("answers.reclaim.now.", WINDOW, *DUE),
    **of("answers.reclaim.restart.", WINDOW, *DUE),
    **of("answers.reclaim.approval.", WINDOW, *DUE),
    **of("answers.reclaim.later.", WINDOW, *DUE),
    **of("answers.reclaim.", "barred", *DUE),
    **of("answers.reclaim.", "marked open_removed unexplained", *DISK, *PROCESSES),
    **of("answers.reclaim.", "open_unread", *DISK, *PROCESSES),
    **of("answers.reclaim.", "unread_hosts", *HOST, *PROCESSES),
    **of("answers.risk.", "no_copy no_copy_replicas missing_elsewhere", *REPLICAS),
    **of("answers.risk.", "only_copies.bytes only_copies.dirs", *DIRS),
    **of("answers.risk.", "full_soon full_later next_full_days pace_unknown", *DISK, *PAST),
    **of("answers.risk.", "offline read_only full", *HOST, "log dir"),
    **of("answers.risk.", "unknown unknown[].hosts", *COUNTS),
    **of("answers.replicas.", "no_copy not_compared not_compared[].hosts not_compared[].replicas", *REPLICAS),
    **of("answers.replicas.total.", COPIES, *REPLICAS),
    **of("answers.steps[].", "bytes days hosts node_id requestable", *DISK, *DUE, *PAST, *REPLICAS),
    "answers.steps": (*DISK, *DUE, *PAST, *REPLICAS),
    "answers.changes": (*DISK, *ACTS, *REPLICAS),
    **of("answers.changes[].", "days", "run", *HOST, *PAST),
    **of("answers.changes[].", "log_dirs used offline", *DISK, *PAST),
    **of("answers.changes[].", "orphans orphan_bytes cleared cleared_bytes", *DIRS, *PAST),
    **of("answers.changes[].", "no_copy", *REPLICAS, *PAST),
    **of("answers.changes[].by_agents.", "dirs bytes otherwise otherwise_bytes unknown_hosts left_out", *ACTS),
}
CASES = (
    {name: (name,) for name in WITHHELD}
    if FULL
    else {"some": ("acts", "earlier snapshot", "absent replicas", "some processes")}
)
"""The default run withholds four at once: a report takes ten seconds."""


def test_every_figure_of_the_report_has_a_row_and_every_input_is_withheld() -> None:
    assert_complete(FleetReport, REPORT, dict.fromkeys([*WITHHELD, *GIVEN]))


def land(these: Given, store: Path) -> None:
    for (name, at), rows in these.images.items():
        nodes = NODES[name]
        these.kafkas[name].assignments(rows, at=at - MINUTE, brokers=nodes, offset=3 if at == BEFORE else 7)
    for (name, node, at), look in these.looks.items():
        last = max((row["id"] for row in look.acts), default=0)
        acts = {"since": instant(at - timedelta(days=8)), "rows": len(look.acts), "left_out": 0, "last_id": last}
        head = {"acts": acts} | look.head
        rows = [*look.dirs, *(look.acts if head["acts"] else ())]
        path = these.kafkas[name].snapshot(node, rows, at=at, log_dirs=[look.log_dir], **head)
        if (name, node, at) == ("a", 1, AT):
            for befall in these.landed:
                befall(path)
    if these.request:
        cluster = these.kafkas["a"].cluster_id
        asked = RequestedTopic("clicks", "A" * 22, (RequestedPartition(0, (1, 2, 3)),))
        until = instant(NOW + timedelta(days=1))
        of = Request(cluster, "topics", "a" * 24, "ops", instant(NOW), until, f"{1:032x}", topics=(asked,))
        write_request(ControlFolder(store, cluster), of, KEY)


@dataclass
class Said:
    content: dict[str, Any]
    page: str

    @property
    def first_screen(self) -> str:
        return self.page[self.page.index('<main id="main"') :].partition('id="browse"')[0]


def say(spark: SparkSession, folder: Path, withheld: Iterable[str]) -> Said:
    store = folder / "store"
    store.mkdir(parents=True)
    these = given(store)
    for each in withheld:
        WITHHELD[each][0](these)
    land(these, store)
    opened = Store.open(spark, str(store))
    ingest_dates(opened, None)
    content = report(Job(opened, str(folder / "out"), NOW, **these.job))
    return Said(content, (folder / "out" / content["run_id"] / "index.html").read_text())


def values(content: Any, path: str) -> Any:
    """What stands at a path of `figures`; of each element or key of a list or an object, together."""
    here, _, rest = path.partition("[]")
    for name in filter(None, here.split(".")):
        content = None if content is None else content[name]
    if "[]" not in path or content is None:
        return content
    each = content.items() if isinstance(content, dict) else enumerate(content)
    return {key: values(value, rest) for key, value in each}


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Said:
    return say(spark, tmp_path_factory.mktemp("whole"), ())


def test_with_every_input_nothing_needs_anybody(whole: Said) -> None:
    assert CALM in whole.first_screen and whole.content["warnings"] == []


@pytest.mark.parametrize("case", CASES)
def test_without_an_input_report_and_page_say_so(spark: SparkSession, tmp_path: Path, whole: Said, case: str) -> None:
    inputs = CASES[case]
    now = say(spark, tmp_path, inputs)
    differs = {path for path in REPORT if values(whole.content, path) != values(now.content, path)}
    says = {path for each in inputs for path in WITHHELD[each][1]}
    assert says <= differs, "each input is missed where it should be"
    strange = {path for path in differs if not {*inputs} & {*REPORT[path]}}
    assert not strange, "what differs rests on it"
    for change in now.content["answers"]["changes"]:
        then = whole.content["answers"]["changes"][0]
        assert change["cleared"] <= then["cleared"], "what is not seen is not gone"
        assert change["orphans"] <= then["orphans"], "nor new"
    assert whole.first_screen != now.first_screen and brief(whole.content) != brief(now.content)
    assert CALM not in now.first_screen
