"""What counts as reclaimable now is what hosts would remove now: strays ask for another copy like anything else.

The command beside the figure, as the page has it, plans exactly its rows and bytes.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.base.units import instant
from logagent.cli import run
from logagent.fleet.demo import topic_id
from logagent.fleet.page.words import size
from logagent.store.shared import init_store
from tests.command_line import run_here
from tests.spark.conftest import Told, tell
from tests.spark.hand_made import AT, Kafka, dir_row

HEX = "0123456789abcdef" * 2
OLD, LONGER = 5, 50


def stray(topic: str, id_: str | None, partition: int, length: int, number: int, **fields: Any) -> dict[str, Any]:
    """Set aside long ago; its `number` makes its bytes tell it apart from every sum of others."""
    marked = {"kind": "stray", "marked_at": instant(AT - timedelta(days=30)), "partition": partition}
    place = {"inode": 100 + number, "bytes": 2**number * 1024, "last_segment_offset": length}
    return dir_row(f"{topic}-{partition}.{HEX}-stray", id_, topic=topic, **marked, **place, **fields)


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Node 3 has strays of every kind; nodes 1 and 2 have what is assigned. Of another cluster no assignments came."""
    root = tmp_path_factory.mktemp("strays")
    store = root / "store"
    store.mkdir()
    init_store(str(store))
    kafka = Kafka(store, "strays")
    orders, lost = kafka.topic("orders", [1, 2], [1, 2], [1, 2], [1, 2, 3]), kafka.topic("lost", [1])
    gone = topic_id("strays", "gone")
    ours = [row | {"last_segment_offset": LONGER} for row in kafka.replicas_of(1) if row["topic"] == "orders"]
    kafka.snapshot(1, ours)
    kafka.snapshot(2, kafka.replicas_of(2))
    kafka.snapshot(
        3,
        [
            *kafka.replicas_of(3),
            stray("gone", gone, 0, OLD, 0),
            stray("orders", orders, 0, OLD, 1),  # another copy is longer
            stray("orders", orders, 1, LONGER + 1, 2),  # none is
            stray("orders", orders, 3, LONGER + 1, 3),  # assigned here, and longer than what is served
            stray("lost", lost, 0, OLD, 4),  # the only copy of a partition that lives
            # Whoever lives says so: their agents answer for these.
            stray("orders", orders, 2, LONGER + 1, 5, window="now", covered="yes"),
            stray("said", orders, 2, OLD, 6, window="approval", covered="unknown", obstacle="assigned"),
            stray("nameless", None, 0, OLD, 7),
        ],
    )
    kafka.assignments()
    silent = Kafka(store, "silent")
    silent.snapshot(
        1,
        [
            stray("what", topic_id("silent", "what"), 0, OLD, 8),
            stray("what", topic_id("silent", "what"), 1, OLD, 9, verdict="orphan", reason="topic-absent"),
        ],
    )
    return tell(spark, store, root / "out")


def windows(told: Told) -> dict[str, tuple[Any, ...]]:
    rows = told.rows("leftovers")
    names = ("window", "copies_elsewhere", "only_copy", "longest_copy")
    return {row["name"].partition(".")[0]: tuple(row[name] for name in names) for row in rows}


def test_a_stray_is_due_now_only_if_its_host_would_let_it_go(told: Told) -> None:
    assert windows(told) == {
        "gone-0": ("now", 0, True, True),
        "orders-0": ("now", 2, False, False),
        "orders-1": ("approval", 2, False, True),
        "orders-3": ("approval", 3, False, True),
        "lost-0": ("approval", 0, True, True),
        "orders-2": ("now", 3, False, True),
        "said-2": ("approval", 3, False, False),
        "nameless-0": ("approval", None, None, None),
        "what-0": ("approval", 0, True, True),
        "what-1": ("now", 0, True, True),
    }


def test_what_is_beside_a_stray_keeps_its_verdict(told: Told) -> None:
    for table in ("orphans", "undecided", "missing_replicas"):
        assert {row["topic"] for row in told.rows(table)} <= {"lost"}, table


def test_the_line_its_command_and_its_rows_agree(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = told.content["answers"]["reclaim"]["now"]
    wanted = {
        name: 2**number * 1024 for name, number in (("gone-0", 0), ("orders-0", 1), ("orders-2", 5), ("what-1", 9))
    }
    assert (now["dirs"], now["bytes"]) == (len(wanted), sum(wanted.values()))
    html = (told.out / "index.html").read_text()
    line = next(line for line in html.split("<li>") if 'data-answer="now"' in line)
    assert size(sum(wanted.values())) in line and f"{len(wanted)} dirs on 2 hosts" in line
    found = re.search(r'<code class="cmd"[^>]*>([^<]*)</code>', line)
    assert found is not None
    words = unescape(found[1]).split()
    assert run(["topics", "keygen", str(tmp_path / "key")]) == 0
    (tmp_path / "fleet").mkdir()
    init_store(str(tmp_path / "fleet"))
    monkeypatch.setenv("LOGAGENT_PUBLISH__STORE", str(tmp_path / "fleet"))
    monkeypatch.setenv("LOGAGENT_ORDERS_KEY_FILE", str(tmp_path / "key"))
    ran = run_here(*words[1:], "--json")
    assert ran.status in (0, 4), ran.err
    planned = {
        d["name"].partition(".")[0]: d["bytes"] for plan in json.loads(ran.out)["plans"] for d in plan["directories"]
    }
    assert planned == wanted
