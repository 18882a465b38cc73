"""The figures of the first screen, added up elsewhere: by DuckDB from the lines that the agents sent.

Nothing of our ingest, store or report is used: the rules below are those of docs/, written once more. To the byte.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from logagent.fleet import demo
from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.job import Job, report
from logagent.fleet.tables.store import Store
from tests.fleets import planted
from tests.long_form import FULL
from tests.spark.conftest import Told
from tests.spark.hand_made import AT, GIB, NOW, Kafka, dir_row, log_dir_row

LEDGER = {"current": 1, "future": 2, "stray": 3, "delete": 4, "other": 5, "open_removed": 6, "unexplained": 7}


def shared_disks(store: Path) -> None:
    """A cluster of our own: hourly changes on a base, two log dirs on one file system, one that fills up."""
    kafka = Kafka(store, "shared")
    kafka.topic("orders", *([1, 2] for _ in range(9)))
    kafka.topic("single", [1])
    gone, mark = "G" * 22, instant_ms(AT - timedelta(days=9))
    for days in (2, 1, 0):
        at = AT - timedelta(days=days)
        used = (60 - 10 * days) * GIB + days
        kafka.assignments(at=at + timedelta(minutes=10), offset=9 - days)
        for node in (1, 2):
            ledger = {"size": 100 * GIB + node, "used": used + node, "free": 100 * GIB - used, **LEDGER}
            places = [log_dir_row(f"/d{n}", device=5 if n < 2 else 6, ledger=ledger | {"other": n}) for n in range(3)]
            rows = [row | {"newest_mtime": mark} for row in kafka.replicas_of(node)]
            orphan = dir_row("gone-0", gone, bytes=7_777, allocated=12_288, newest_mtime=mark, log_dir="/d1")
            waste = [dir_row(f"gone-{n}.{'0' * 32}-stray", gone, kind="stray", topic="gone", partition=n, bytes=11 + n,
                             allocated=4096 << n,
                             marked_at=instant_ms(AT - timedelta(days=6 + n)), newest_mtime=mark)
                     for n in range(3)]  # fmt: skip
            base = kafka.hourly(node, [*rows, orphan, *waste], at=at - timedelta(hours=2), log_dirs=places)
            grown = [row | {"bytes": row["bytes"] + 3 + n, "allocated": 8192 + n} for n, row in enumerate(rows[1:])]
            new = dir_row("new-0", "N" * 22, bytes=1 << 33, allocated=16_384, newest_mtime=mark, log_dir="/d2")
            kafka.hourly(node, [*grown, orphan, new, *waste[:2]], at=at, base=base, log_dirs=places)


def instant_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


KINDS = ("current", "future", "stray", "delete")
FLEETS = ("planted", "demo") if FULL else ("planted",)


@pytest.fixture(scope="module", params=FLEETS)
def landing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp(request.param) / "store"
    store.mkdir()
    at = AT + timedelta(minutes=15)
    if request.param == "demo":
        demo.generate(store, demo.Fleet(at=at))
    else:
        planted.generate(
            store, demo.Fleet(at=at, clusters=2, hosts=8, partitions=150, days=3, seed=7, sick=0.04, broken=0.3)
        )
        shared_disks(store)
    return store


@pytest.fixture(scope="module")
def told(spark: SparkSession, landing: Path) -> Told:
    opened = Store.open(spark, str(landing))
    content = report(Job(opened, str(landing.parent / "out"), NOW))
    assert content
    return Told(opened, landing.parent / "out" / content["run_id"], content, [])


@pytest.fixture(scope="module", autouse=True)
def ingested(spark: SparkSession, landing: Path) -> None:
    ingest_dates(Store.open(spark, str(landing)), None)


def intact(store: Path) -> Iterator[dict[str, Any]]:
    """What each manifest says of a file that is what it says."""
    for path in sorted((store / "landing").rglob("*.manifest.json")):
        data = path.with_name(path.name.replace(".manifest.json", ".jsonl.gz"))
        try:
            said = json.loads(path.read_bytes())
            packed = data.read_bytes()
            lines = gzip.decompress(packed).splitlines() if hashlib.sha256(packed).hexdigest() == said["sha256"] else []
            assert len(lines) == said["rows"]
            assert [line for line in lines if not json.loads(line)] == []
        except (OSError, ValueError, EOFError, AssertionError):
            continue
        received = path.stat().st_mtime_ns // 1_000_000
        yield said | {"file": str(data), "date": path.parent.parent.name, "received": received}


@pytest.fixture(scope="module")
def duck(landing: Path) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    files = [
        (f["file"], f["cluster_id"], f["node_id"], f["date"], f["kind"], f["snapshot_id"], f["at"], f["received"],
         (f.get("base") or {}).get("snapshot_id"))
        for f in intact(landing)
    ]  # fmt: skip
    db.execute(
        "create table files(file text, cluster text, node int, dt date, kind text, id text, made timestamptz,"
        " got bigint, base text)"
    )
    db.executemany("insert into files values (?, ?, ?, ?, ?, ?, ?, ?, ?)", files)
    # A byte that is not UTF-8 is half a character in JSON: it stays as it is spelled.
    db.execute(
        """create table lines as
        select filename as file, row_number() over () as n, replace(line, '\\udc', '\\\\udc')::json as row
        from read_csv($files, columns = {line: 'text'}, delim = '\x01', quote = '', escape = '', header = false,
                      filename = true)""",
        {"files": [f[0] for f in files]},
    )
    db.execute("set variable as_of = $1", [round(NOW.timestamp() * 1000)])
    for statement in RULES.split(";"):
        if statement.strip():
            db.execute(statement)
    return db


RULES = """
create table newest as select *, epoch_ms(made) as at_ms from files
  where kind <> 'assignments'
  qualify row_number() over (partition by cluster, node, dt order by least(epoch_ms(made), got) desc) = 1;
-- A host counts with its newest snapshot, if that is no more than 26 hours old.
create table hosts as from (
  from newest where true
  qualify row_number() over (partition by cluster, node order by least(at_ms, got) desc) = 1)
  where least(at_ms, got) >= getvariable('as_of') - 26 * 3600000;
create table images as select *, epoch_ms(made) as at_ms from files
  where kind = 'assignments'
  qualify row_number() over (partition by cluster order by least(epoch_ms(made), got) desc) = 1;
create table assigned as
  select i.cluster, row->>'topic' as topic, row->>'topic_id' as topic_id, (row->>'partition')::int as partition,
    (row->'replicas')::int[] as replicas
  from images i join lines l using (file) where row->>'row' = 'partition';
-- The directories of a whole snapshot, and of changes on one: how many to pass, then by how much each number grew.
create table whole as
  select h.cluster, h.node, h.file, l.row,
    row_number() over (partition by h.cluster, h.node order by l.n) as place
  from hosts h join files f
    on f.cluster = h.cluster and f.node = h.node and f.dt = h.dt and f.id = coalesce(h.base, h.id)
  join lines l on l.file = f.file where l.row->>'row' = 'dir';
create table changes as
  select cluster, node, c as grown, sum(c[1] + 1) over (partition by cluster, node order by n, m) as place
  from (select h.cluster, h.node, l.n, unnest((row->'dirs')::bigint[][]) as c,
          generate_subscripts((row->'dirs')::bigint[][], 1) as m
        from hosts h join lines l using (file) where h.base is not null and row->>'row' = 'changes');
create table dirs as
  select cluster, node, row, (row->>'bytes')::bigint + coalesce(grown[2], 0) as bytes,
    (row->>'allocated')::bigint + coalesce(grown[2], 0) + coalesce(grown[3], 0) as allocated
    from whole left join changes using (cluster, node, place) where coalesce(len(grown), 2) > 1
  union all
  select h.cluster, h.node, row, (row->>'bytes')::bigint, (row->>'allocated')::bigint
    from hosts h join lines l using (file) where h.base is not null and row->>'row' = 'dir';
create table seen as
  select d.cluster, d.node, row->>'log_dir' as log_dir, row->>'name' as name, row->>'kind' as kind,
    row->>'topic' as topic, row->>'topic_id' as topic_id, (row->>'partition')::int as partition, bytes, allocated,
    (row->>'newest_mtime')::bigint as written, (row->>'first_seen')::bigint as first_seen,
    (row->>'marked_at')::bigint as marked, h.at_ms as at_ms
  from dirs d join hosts h using (cluster, node);
create table copies as
  select cluster, topic_id, partition, count(*) as copies from seen
  where kind in ('current', 'future', 'stray') and topic_id is not null group by all;
-- What nobody assigned to its host, and the assignments can know of.
create table orphans as
  select s.*, c.copies = 1 as only_copy, case
      when exists (from assigned a where a.cluster = s.cluster and a.topic_id = s.topic_id) then 'not-a-replica'
      when exists (from assigned a where a.cluster = s.cluster and a.topic = s.topic) then 'topic-recreated'
      else 'topic-absent' end as reason
  from seen s join images i on i.cluster = s.cluster
  join copies c on c.cluster = s.cluster and c.topic_id = s.topic_id and c.partition = s.partition
  where s.kind in ('current', 'future')
    and not exists (from assigned a where a.cluster = s.cluster and a.topic_id = s.topic_id
      and a.partition = s.partition and list_contains(a.replicas, s.node))
    and least(s.at_ms, s.written, coalesce(s.first_seen, s.written)) <= i.at_ms;
create table leftovers as
  select s.*, case when kind = 'delete' then 'restart' when at_ms - marked < 7 * 86400000 then 'later'
    when exists (from assigned a where a.cluster = s.cluster and a.topic_id = s.topic_id) then 'approval'
    else 'now' end as due
  from seen s where kind = 'stray' or (kind = 'delete' and at_ms - marked > 3660000);
create table reclaim as
  select cluster, node, log_dir, allocated, case when only_copy then 'approval' else 'restart' end as due from orphans
  union all select cluster, node, log_dir, allocated, due from leftovers;
-- Log dirs of every date. Those on one file system have its figures in common.
create table log_dirs as
  select h.cluster, h.node, h.dt, row->>'path' as log_dir, row->>'health' as health,
    (row->'ledger'->>'size')::bigint as size, (row->'ledger'->>'used')::bigint as used,
    (row->'ledger'->>'free')::bigint as free,
    row_number() over (partition by h.cluster, h.node, h.dt, coalesce(row->>'device', l.n::text) order by l.n) = 1
      as own
  from newest h join lines l using (file) where row->>'row' = 'log_dir';
create table disks as select l.* from log_dirs l join hosts h using (cluster, node, dt)
"""


def one(duck: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = duck.execute(query).fetchone()
    assert row is not None
    return tuple(int(value) if value is not None else 0 for value in row)


def test_the_hosts_that_count(told: Told, landing: Path, duck: duckdb.DuckDBPyConnection) -> None:
    """Unknown is whoever ever sent something, intact or not, or is a broker of the cluster, and does not count."""
    hosts = told.content["hosts"]
    everyone = {(path.parts[-3], int(path.name)) for path in landing.glob("landing/*/*/*") if path.name.isdigit()}
    brokers = (
        "select i.cluster, (row->>'node_id')::int from images i join lines using (file) where row->>'row' = 'broker'"
    )
    everyone |= {*duck.execute(brokers).fetchall()}
    counting = {*duck.execute("select cluster, node from hosts").fetchall()}
    assert hosts["reporting"] == len(counting)
    assert hosts["unknown_total"] == len(everyone - counting)
    assert {(h["cluster_id"], h["node_id"]) for h in told.rows("usage_hosts")} == counting


def test_disks_count_once(told: Told, duck: duckdb.DuckDBPyConnection) -> None:
    disks = told.content["answers"]["disks"]
    sums = "sum(size) filter (own), sum(used) filter (own), sum(free) filter (own)"
    nearly = "count(*) filter (round(used / size, 4) >= 0.95)"
    found = one(duck, f"select {sums}, count(*), {nearly}, count(*) filter (used is null) from disks")
    names = ("size", "used", "free", "log_dirs", "nearly_full", "unread")
    assert tuple(disks[name] for name in names) == found and found[0] > 0
    by_cluster = {row[0]: tuple(map(int, row[1:])) for row in duck.execute(
        f"select cluster, {sums} from disks group by all").fetchall()}  # fmt: skip
    rows = told.rows("usage_clusters")
    assert {row["cluster_id"]: (row["size"], row["used"], row["free"]) for row in rows} == by_cluster
    risk = told.content["answers"]["risk"]
    ill = one(duck, "select " + ", ".join(f"count(*) filter (health = '{h}')" for h in ("offline", "read-only", "full"))
              + " from disks")  # fmt: skip
    assert (risk["offline"], risk["read_only"], risk["full"]) == ill


def test_bytes_by_cluster_and_verdict(told: Told, duck: duckdb.DuckDBPyConnection) -> None:
    totals = told.content["totals"]
    assert (totals["bytes"],) == one(duck, "select sum(bytes) from seen")
    by_cluster = duck.execute("select cluster, count(*), sum(bytes) from seen group by all").fetchall()
    rows = told.rows("usage_clusters")
    assert {r["cluster_id"]: (r["dirs"], r["bytes"]) for r in rows} == {c: (n, int(b)) for c, n, b in by_cluster}
    by_reason = duck.execute("select cluster, reason, count(*), sum(allocated) from orphans group by all").fetchall()
    mine: dict[tuple[str, str], tuple[int, int]] = {}
    for row in told.rows("orphans"):
        count, size = mine.get((row["cluster_id"], row["reason"]), (0, 0))
        mine[row["cluster_id"], row["reason"]] = (count + 1, size + row["allocated"])
    assert mine == {(c, reason): (n, int(b)) for c, reason, n, b in by_reason} and mine
    assert (totals["orphans"], totals["orphan_bytes"]) == one(duck, "select count(*), sum(allocated) from orphans")
    only = told.content["answers"]["risk"]["only_copies"]
    found = one(duck, "select count(*), sum(allocated) from orphans where only_copy")
    assert (only["dirs"], only["bytes"]) == found


def test_what_can_be_reclaimed(told: Told, duck: duckdb.DuckDBPyConnection) -> None:
    reclaim = told.content["answers"]["reclaim"]
    for window in ("now", "restart", "approval", "later"):
        found = one(
            duck,
            f"select count(*), sum(allocated), count(distinct (cluster, node)) from reclaim where due = '{window}'",
        )
        assert (reclaim[window]["dirs"], reclaim[window]["bytes"], reclaim[window]["hosts"]) == found, window
    assert reclaim["barred"] == 0
    by_log_dir = duck.execute("select cluster, node, log_dir, sum(allocated) from reclaim group by all").fetchall()
    windows = ("reclaim_now", "reclaim_restart", "reclaim_approval", "reclaim_later")
    mine = {(r["cluster_id"], r["node_id"], r["log_dir"]): sum(r[w] for w in windows)
            for r in told.rows("usage_log_dirs")}  # fmt: skip
    assert {key: size for key, size in mine.items() if size} == {(c, n, d): int(b) for c, n, d, b in by_log_dir}


def test_what_has_changed_since(told: Told, duck: duckdb.DuckDBPyConnection) -> None:
    changes = told.content["answers"]["changes"]
    assert changes
    for change in changes:
        found = one(
            duck,
            f"""select count(*), sum(d.used - o.used) filter (d.own) from disks d
            join log_dirs o using (cluster, node, log_dir)
            where o.dt = date '{change["date"]}' and d.used is not null and o.used is not null""",
        )
        assert (change["log_dirs"], change["used"]) == found and found[0]


def test_growth_and_days_until_full(told: Told, duck: duckdb.DuckDBPyConnection) -> None:
    rows = duck.execute(
        """select cluster, node, log_dir, count(*), arg_max(used, o.dt), regr_slope(o.used, o.dt - date '2025-01-01'),
             any_value(d.free)
           from disks d join log_dirs o using (cluster, node, log_dir) where o.used is not null
           group by all having count(*) > 1""".replace("arg_max(used", "arg_max(o.used")
    ).fetchall()
    mine = {
        (r["cluster_id"], r["node_id"], r["log_dir"]): (r["dates"], r["bytes"], r["bytes_per_day"], r["days_to_full"])
        for r in told.rows("growth")
        if r["scope"] == "log_dir"
    }
    assert {*mine} == {row[:3] for row in rows} and mine
    soon = later = 0
    for cluster, node, log_dir, dates, last, slope, free in rows:
        days = free / slope if slope > 0 and free is not None else None
        soon += days is not None and round(days, 2) <= 7
        later += days is not None and round(days, 2) <= 30
        said = mine[cluster, node, log_dir]
        assert said[:2] == (dates, last)
        assert said[2] is None if slope <= 0 else said[2] == pytest.approx(slope, abs=1)
        assert said[3] is None if days is None else said[3] == pytest.approx(days, abs=0.01)
    risk = told.content["answers"]["risk"]
    assert (risk["full_soon"], risk["full_later"]) == (soon, later)


def test_what_a_topic_and_a_partition_hold_is_what_is_allocated(told: Told, duck: duckdb.DuckDBPyConnection) -> None:
    """By kind; of the file sizes only the column of that name."""
    kinds = ", ".join(f"coalesce(sum(allocated) filter (kind = '{kind}'), 0)" for kind in KINDS)
    rows = duck.execute(
        f"select cluster, topic, topic_id, sum(bytes), sum(allocated), {kinds} from seen where topic is not null"
        " group by all"
    ).fetchall()
    names = ("bytes", "allocated", *KINDS)
    mine = {
        (r["cluster_id"], r["topic"], r["topic_id"]): tuple(r[name] for name in names)
        for r in told.rows("usage_topics")
    }
    assert mine == {row[:3]: tuple(map(int, row[3:])) for row in rows} and mine
    assert any(row[3] != row[4] for row in rows), rows
