"""What agents did, over dates: each act once, and all that were published; what the first screen counts of them.

The reference reads the landed files itself, with code that shares nothing with the job.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logagent.base.units import instant
from logagent.fleet.demo import topic_id
from tests.spark.conftest import Told, tell
from tests.spark.hand_made import AT, NOW, Kafka, dir_row

DAY = timedelta(days=1)
WEEK_AGO, YESTERDAY = AT - 7 * DAY, AT - DAY
HOUR = timedelta(hours=1)
GONE = topic_id("audit", "gone")
Row = dict[str, Any]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def act(number: int, at: datetime, name: str = "gone-0", **fields: Any) -> Row:
    topic, _, partition = name.partition(".")[0].rpartition("-")
    row: Row = {"row": "act", "id": number, "at": ms(at) - 1, "finished_at": ms(at), "action": "remove"}
    row |= {"outcome": "done", "log_dir": "/d0", "name": name, "new_name": None, "topic": topic, "topic_id": GONE}
    row |= {"partition": int(partition), "bytes": 10**number, "allocated": 3 * 10**number, "actor": "daemon"}
    row |= {"approved": False, "plan_id": "p1", "claim": "kept", "witness": "name", "as_of": ms(at) - 2}
    return row | {"claims": "kept by name", "error": None} | fields


def told(acts: Sequence[Row], since: datetime, **fields: Any) -> Row:
    last = max((row["id"] for row in acts), default=0)
    return {"since": instant(since), "rows": len(acts), "left_out": 0, "last_id": last, **fields}


def orphan(name: str) -> Row:
    return dir_row(name, GONE, bytes=5000, verdict="orphan", reason="topic-absent")


def plant(store: Path) -> Kafka:
    kafka = Kafka(store, "audit")
    kafka.topic("orders", [1, 2])
    for at in (WEEK_AGO, YESTERDAY, AT):
        kafka.assignments(at=at + timedelta(minutes=10), offset=ms(at) // 1000)

    def look(
        node: int, at: datetime, acts: Sequence[Row] | None, *dirs: Row, back: timedelta = 8 * DAY, left_out: int = 0
    ) -> None:
        header: Row = {} if acts is None else {"acts": told(acts, at - back, left_out=left_out)}
        kafka.snapshot(node, [*kafka.replicas_of(node), *dirs, *(acts or ())], at=at, **header)

    # 1: what was done is in each snapshot of the days after it. What is gone without an act went otherwise.
    old = [act(1, WEEK_AGO - HOUR), act(2, WEEK_AGO + HOUR, "gone-1")]
    new = act(3, AT - HOUR, "gone-2")
    renamed = act(4, AT - HOUR, "gone-3", action="quarantine", new_name=f"gone-3.{'0' * 32}-stray", partition=3)
    failed = act(5, AT - HOUR, "gone-4", outcome="failed", error="Input/output error")
    back = act(6, AT - HOUR, f"gone-5.{'0' * 32}-stray", action="restore", new_name="gone-5", actor="cli:anna")
    look(1, WEEK_AGO, old[:1])
    names = ("gone-2", "gone-3", "gone-4", "gone-5", "hand-0")
    look(1, YESTERDAY, old, *map(orphan, names))
    stray = dir_row(f"gone-3.{'0' * 32}-stray", GONE, kind="stray", topic="gone", partition=3)
    look(1, AT, [*old, new, renamed, failed, back], stray, orphan("gone-4"))
    # 2: an older agent, which does not say what it did.
    look(2, YESTERDAY, None, orphan("gone-6"))
    look(2, AT, None)
    # 3: its journal was lost: the ids begin anew, for other acts.
    look(3, YESTERDAY, [act(n, YESTERDAY - HOUR, f"gone-{n}") for n in (1, 2, 3)])
    look(3, AT, [act(n, AT - HOUR, f"gone-1{n}") for n in (1, 2)])
    # 4: it was replaced by a copy of before entry 3, which is another one now.
    first = [act(n, YESTERDAY - 2 * HOUR, f"gone-{n}") for n in (1, 2)]
    look(4, YESTERDAY, [*first, act(3, YESTERDAY - HOUR, "gone-3")])
    look(4, AT, [*first, act(3, AT - HOUR, "gone-33")])
    # 5: more than an agent says; it was heard of yesterday, and all is known since.
    look(5, YESTERDAY, [act(7, YESTERDAY - HOUR)], left_out=40, back=HOUR)
    look(5, AT, [act(8, AT - HOUR)], left_out=41, back=2 * HOUR)
    # 6: silent today; what it did stays.
    look(6, WEEK_AGO, [act(1, WEEK_AGO - HOUR)])
    # 7: names that are not UTF-8, and changes of a base.
    odd = act(1, AT - 2 * HOUR, "gone-7", log_dir="/d\udcff", error="\udcfe", actor="cli:jos\u00e9")
    kept = kafka.replicas_of(1)
    base = kafka.hourly(7, kept, at=AT - HOUR, done=[without_row(odd)], acts=told([odd], AT - 8 * DAY))
    kafka.hourly(7, [*kept, orphan("gone-9")], base=base, done=[without_row(odd)], acts=told([odd], AT - 8 * DAY))
    # 8: an act that is still to come; it would be new since each date, for ever.
    look(8, YESTERDAY, [])
    look(8, AT, [act(1, AT + 3 * DAY, "gone-8")])
    return kafka


def without_row(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "row"}


@pytest.fixture(scope="module")
def told_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    store = tmp_path_factory.mktemp("audit") / "store"
    store.mkdir()
    plant(store)
    return tell(spark, store, store.parent / "out")


# The reference


def landed(told_of: Told) -> list[tuple[int, Row, list[Row]]]:
    """Node, head and acts of the newest snapshot of each host and date."""
    newest: dict[tuple[str, str], tuple[int, Row, list[Row]]] = {}
    landing = Path(str(told_of.store.files.local(told_of.store.landing)))
    for data in sorted(landing.glob("*/*/[0-9]*/*.jsonl.gz")):
        head, *rows = map(json.loads, gzip.decompress(data.read_bytes()).splitlines())
        newest[data.parts[-3], data.parts[-2]] = head["node_id"], head, [row for row in rows if row["row"] == "act"]
    return list(newest.values())


def published(told_of: Told) -> Counter[str]:
    """Every act that any of them has, once: as JSON with the fields that the table has too."""
    found = {_key(node, row) for node, _, acts in landed(told_of) for row in acts}
    return Counter(found)


def _key(node: int, row: Row) -> str:
    text = {name: value for name, value in row.items() if name != "row"}
    spelled = {k: v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for k, v in text.items()}
    return json.dumps({"node_id": node, **spelled}, sort_keys=True)


def reported(told_of: Told) -> list[Row]:
    return told_of.rows("audit")


def test_each_act_that_was_published_is_there_once(told_of: Told) -> None:
    """Neither doubled by the snapshots that repeat it, nor hidden by another one with its id."""
    found: Counter[str] = Counter()
    for row in reported(told_of):
        same = {"id": row["act_id"]} | {name: ms_of(row[column]) for name, column in TIMES.items()}
        rest = {name: row[name] for name in act(0, AT) if name not in ("row", "id", *TIMES)}
        found[_key(row["node_id"], same | rest)] += 1
        assert row["host"] == f"audit-{row['node_id']}"
    assert found == published(told_of)
    assert sum(found.values()) == 6 + 5 + 4 + 2 + 1 + 1 + 1


TIMES = {"at": "began_at", "finished_at": "finished_at", "as_of": "as_of"}


def ms_of(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def since(told_of: Told) -> dict[tuple[int, int, str], str | None]:
    """By node, id and name: the newest of the earlier dates after whose snapshot it was done, on hosts of today too."""
    looks = {(node, head["at"][:10]): ms(datetime.fromisoformat(head["at"])) for node, head, _ in landed(told_of)}
    today = {node for node, date in looks if date == str(AT.date())}
    found: dict[tuple[int, int, str], str | None] = {}
    for node, _, acts in landed(told_of):
        for row in acts:
            dates = [
                date
                for (host, date), at in looks.items()
                if host == node and node in today and at < row["finished_at"] <= ms(NOW) and date != str(AT.date())
            ]
            found[node, row["id"], spelled(row["name"])] = max(dates, default=None)
    return found


def spelled(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def test_an_act_is_counted_since_the_snapshot_that_it_came_after(told_of: Told) -> None:
    found = {
        (r["node_id"], r["act_id"], r["name"]): None if r["since"] is None else str(r["since"])
        for r in reported(told_of)
    }
    assert found == since(told_of)
    assert set(found.values()) == {None, str(WEEK_AGO.date()), str(YESTERDAY.date())}


def test_the_figure_is_the_sum_of_its_rows_and_says_what_it_leaves_out(told_of: Told) -> None:
    with (told_of.out / "audit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    day, week = told_of.content["answers"]["changes"]
    assert (day["date"], week["date"]) == (str(YESTERDAY.date()), str(WEEK_AGO.date()))
    for change in (day, week):
        mine = [r for r in rows if (r["action"], r["outcome"]) == ("remove", "done") and r["since"] >= change["date"]]
        acts = change["by_agents"]
        assert (acts["dirs"], acts["bytes"]) == (len(mine), sum(int(r["allocated"]) for r in mine))
    assert day["by_agents"]["dirs"] == 1 + 2 + 1 + 1
    assert week["by_agents"]["dirs"] == 6, "what was done since yesterday was done since last week, too"
    # Gone since yesterday: two by acts (removed, restored), one by hand, one by an agent that does not say.
    acts = day["by_agents"]
    assert (day["cleared"], acts["otherwise"], acts["otherwise_bytes"]) == (4, 2, 10_000)
    # 2 does not say, 3 and 4 are of another journal, 5 has left out what was done before it was looked at today, and 8
    # tells of what is to come.
    assert (acts["unknown_hosts"], acts["left_out"]) == (5, 41)
    assert (week["by_agents"]["unknown_hosts"], week["by_agents"]["left_out"]) == (0, 0)
    assert told_of.content["hosts"]["acts_unknown"] == 1


def test_a_commit_of_an_earlier_build_has_no_acts_and_is_read(told_of: Told, spark: SparkSession) -> None:
    """Its snapshots said nothing of them: what they did is unknown, and the report is made."""
    root = Path(str(told_of.store.files.local(told_of.store.uri)))
    for commit in (root / "commits").glob("*/*.json"):
        whole = json.loads(commit.read_bytes())
        whole["tables"].pop("acts")
        commit.write_text(json.dumps(whole))
    again = tell(spark, root, root.parent / "again")
    assert again.content["tables"]["audit"]["rows"] == 0
    assert again.content["answers"]["changes"][0]["by_agents"]["otherwise"] == 4
