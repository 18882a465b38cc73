"""`python -m tests.bench.fleet_night [HOSTS…]`: a fleet's night with hourly snapshots and three days in landing.

First what a host publishes in a day: a whole snapshot each hour beside a base and its deltas, with 20% of the
directories written between two hours, chosen anew each hour; and the tables that either gives.
Then `fleet ingest --report`, when two of the three days were ingested before, beside ingest and report as two commands.
Older snapshots of a day are not read: all but the first and the last are links to the last.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logagent import __version__
from logagent.base.records import DirKey
from logagent.base.units import instant
from logagent.fleet.demo import Cluster, Fleet, _assignment_lines, _host_lines
from logagent.store.landing_files import ManifestHead, land, manifest_of
from logagent.store.snapshots import SNAPSHOT_SCHEMA, Base, Rest, delta_of, dir_line, whole_lines
from tests.bench.fleet import DIRS_PER_HOST, HOSTS_PER_CLUSTER, Run, measure

HOURS, DAYS = 24, 3
WRITTEN = 0.2
GOAL_SHARE = 0.3
GOALS = {10: 35, 100: 60, 1000: 200}
"""CPU seconds of ingest and report together, by hosts."""
Row = dict[str, Any]


def rows_of(cluster: Cluster, node: int, claim: ManifestHead) -> tuple[list[Row], list[Row]]:
    """Log dirs and directories of a host, with all fields."""
    rows = [json.loads(line) for line in _host_lines(cluster, node, 0, claim)]
    said = dict.fromkeys(("error", "window", "due_at", "covered", "obstacle"))
    log_dirs = [{k: v for k, v in row.items() if k != "row"} for row in rows if row["row"] == "log_dir"]
    return log_dirs, [{k: v for k, v in row.items() if k != "row"} | said for row in rows if row["row"] == "dir"]


def an_hour(dirs: list[Row], chance: random.Random, now_ms: int) -> None:
    """A fifth of the directories is written to; one write in ten begins a segment."""
    for row in chance.sample(dirs, int(len(dirs) * WRITTEN)):
        row["bytes"] += chance.randrange(1000, 100_000_000)
        row["allocated"] = -(-row["bytes"] // 4096) * 4096
        row["newest_mtime"] = now_ms - chance.randrange(3_600_000)
        if chance.random() < 0.1:
            row["files"] += 3
            row["segments"] += 1
            row["last_segment_offset"] += chance.randrange(1_000_000)


class Day:
    """One host's day. `whole`: as it was published before; else as a base and deltas."""

    def __init__(self, store: Path, cluster: Cluster, node: int, midnight: datetime) -> None:
        self.store = store
        self.midnight = midnight
        self.claim = ManifestHead("", "snapshot", cluster.cluster_id, node, cluster.host(node), midnight)
        self.as_before = 0
        """Bytes of the last whole snapshot, packed as quickly as they were."""
        self.log_dirs, self.dirs = rows_of(cluster, node, self.claim)

    def at(self, hour: int) -> ManifestHead:
        at = self.midnight + timedelta(hours=hour, seconds=(self.claim.node_id or 0) % 1800)
        return replace(self.claim, snapshot_id=f"{at:%Y%m%dT%H%M%S}000Z-{self.claim.node_id}", at=at)

    def head(self, claim: ManifestHead) -> Row:
        head: Row = {"schema": SNAPSHOT_SCHEMA, "snapshot_id": claim.snapshot_id, "at": instant(claim.at)}
        head |= {
            "host": claim.host,
            "cluster_id": claim.cluster_id,
            "node_id": claim.node_id,
            "agent_version": __version__,
        }
        return head | {"kafka_version": "3.9.1", "assignments": {"source": "kraft-log", "at": instant(claim.at)}}

    def publish_whole(self, hour: int) -> Path:
        claim = self.at(hour)
        head = {"row": "snapshot", **self.head(claim)}
        rows = [head, *({"row": "log_dir", **r} for r in self.log_dirs), *({"row": "dir", **r} for r in self.dirs)]
        data = land(self.store, claim, map(json.dumps, rows), received_at=claim.at + timedelta(seconds=2))
        self.as_before = len(gzip.compress(gzip.decompress(data.read_bytes()), 1))
        return data

    def publish(self, hour: int, base: Path | None) -> Path:
        claim = self.at(hour)
        keyed = [
            (DirKey(row["log_dir"], row["name"]), dir_line(row | {"inode": 1000 + number}, {}))
            for number, row in enumerate(self.dirs)
        ]
        keyed.sort()
        head = self.head(claim) | {"as_of": {}, "seen": []}
        lines = whole_lines(head, Rest(self.log_dirs), (line for _, line in keyed))
        if base is not None:
            packed = base.read_bytes()
            named = Base(base.name.removesuffix(".jsonl.gz"), hashlib.sha256(packed).hexdigest())
            delta = delta_of(named, packed, keyed)
            assert delta is not None
            claim, lines = replace(claim, kind="delta", base=named), delta.lines(head, Rest(self.log_dirs))
        return land(self.store, claim, lines, received_at=claim.at + timedelta(seconds=2))


def compare_sizes(folder: Path) -> None:
    """Bytes that one host publishes in a day, both ways, and what is stored of either."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    cluster = Cluster(Fleet(at=midnight, clusters=1, hosts=3, partitions=3 * DIRS_PER_HOST, days=1), 0)
    sizes: dict[str, int] = {}
    for way in ("whole", "deltas"):
        day, chance = Day(folder / way, cluster, 1, midnight), random.Random(7)
        _publish_assignments(folder / way, cluster, midnight)
        base: Path | None = None
        for hour in range(HOURS):
            data = day.publish_whole(hour) if way == "whole" else day.publish(hour, base)
            base = base or data
            size = day.as_before if way == "whole" else data.stat().st_size
            sizes[way] = sizes.get(way, 0) + size + manifest_of(data).stat().st_size
            now = midnight + timedelta(hours=hour + 1)
            an_hour(day.dirs, chance, int(now.timestamp() * 1000))
    share = sizes["deltas"] / sizes["whole"]
    print(f"{DIRS_PER_HOST} directories, {HOURS} snapshots, {WRITTEN:.0%} written between two, chosen anew each hour:")
    print(f"  whole {sizes['whole'] / 1e6:.2f} MB, base and deltas {sizes['deltas'] / 1e6:.2f} MB: {share:.3f}", end="")
    print(f" (goal: {GOAL_SHARE})")
    print(f"  tables of either: {'the same' if _tables(folder / 'whole') == _tables(folder / 'deltas') else 'DIFFER'}")


def _publish_assignments(store: Path, cluster: Cluster, midnight: datetime) -> None:
    at = midnight + timedelta(hours=22)
    claim = ManifestHead("kraft-log-1", "assignments", cluster.cluster_id, None, cluster.host(1), at)
    land(store, claim, _assignment_lines(cluster, at), received_at=at + timedelta(seconds=2))


def _tables(store: Path) -> list[str]:
    """The rows of what Spark stores, but for the inodes, which whole snapshots did not have."""
    import duckdb

    command = [sys.executable, "-m", "logagent", "fleet", "ingest", "--store", str(store), "--keep-landing", "off"]
    measure("", 1, command)
    found = []
    for table in ("dirs", "others", "parts", "topics"):
        what = "* exclude (inode)" if table in ("dirs", "others") else "*"
        with duckdb.connect() as duck:
            files = f"read_parquet('{store}/tables/{table}/run=*/*.parquet', hive_partitioning = false)"
            rows = duck.execute(f"select {what} from {files}").fetchall()
        found += [table, *sorted(map(str, rows))]
    return found


def plant(store: Path, hosts: int, days: int) -> None:
    """A landing of `days` days; the last one is yesterday."""
    clusters = max(1, hosts // HOSTS_PER_CLUSTER)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    fleet = Fleet(at=today, clusters=1, hosts=hosts // clusters, partitions=hosts // clusters * DIRS_PER_HOST, days=1)
    cluster = Cluster(replace(fleet, broken=0.0), 0)
    for day in range(days):
        midnight = today - timedelta(days=days - day)
        for number in range(clusters):
            cluster.cluster_id = f"cluster-{number}"
            _publish_assignments(store, cluster, midnight)
        for node in cluster.nodes:
            _plant_host(store, cluster, node, midnight, clusters)


def _plant_host(store: Path, cluster: Cluster, node: int, midnight: datetime, clusters: int) -> None:
    chance = random.Random(node)
    cluster.cluster_id = "cluster-0"
    day = Day(store, cluster, node, midnight)
    base = day.publish(0, None)
    for hour in range(1, HOURS):
        an_hour(day.dirs, chance, int((midnight + timedelta(hours=hour)).timestamp() * 1000))
    last = day.publish(HOURS - 1, base)
    for hour in range(1, HOURS - 1):
        claim = day.at(hour)
        data = last.with_name(claim.snapshot_id + ".jsonl.gz")
        os.link(last, data)
        said = json.loads(manifest_of(last).read_bytes()) | {"snapshot_id": claim.snapshot_id, "at": instant(claim.at)}
        manifest_of(data).write_text(json.dumps(said))
    for number in range(1, clusters):
        _copy(base.parent, number, base, last)


def _copy(folder: Path, number: int, base: Path, last: Path) -> None:
    """The same host in another cluster."""
    other = Path(str(folder).replace("cluster-0", f"cluster-{number}"))
    other.mkdir(parents=True)
    sha256: dict[Path, str] = {}
    for data in (base, last):
        text = gzip.decompress(data.read_bytes()).replace(b"cluster-0", f"cluster-{number}".encode())
        text = text.replace(
            hashlib.sha256(base.read_bytes()).hexdigest().encode(), sha256.get(base, "").encode() or b"-"
        )
        packed = gzip.compress(text, 1, mtime=0)
        sha256[data] = hashlib.sha256(packed).hexdigest()
        (other / data.name).write_bytes(packed)
    for manifest in folder.glob("*.manifest.json"):
        said = json.loads(manifest.read_bytes())
        source = base if "base" not in said else last
        target = other / (said["snapshot_id"] + ".jsonl.gz")
        if not target.exists():
            os.link(other / last.name, target)
        said |= {"cluster_id": f"cluster-{number}", "bytes": target.stat().st_size, "sha256": sha256[source]}
        if "base" in said:
            said["base"]["sha256"] = sha256[base]
        (other / manifest.name).write_text(json.dumps(said))


PLAIN = """
import sys
from logagent.fleet.tables.frames import DIR_LINE, PARTITION_LINE
from pyspark.sql import SparkSession, functions as fn
store, master, memory, rows = sys.argv[1:]
spark = SparkSession.builder.master(master).config('spark.driver.memory', memory).getOrCreate()
def read(ddl, files):
    frame = spark.read.schema(ddl).json(f'{store}/landing/*/*/{files}')
    return frame.withColumn('cluster_id', fn.split(fn.substring_index(fn.input_file_name(), '/', -4), '/')[0])
frame = read(DIR_LINE, '[0-9]*/*T00*.jsonl.gz').where("row = 'dir'")
frame = frame.withColumn('node_id', fn.split(fn.substring_index(fn.input_file_name(), '/', -2), '/')[0].cast('int'))
for name in ('newest_mtime', 'marked_at', 'first_seen'):
    frame = frame.withColumn(name, fn.timestamp_millis(name))
frame = frame.repartition(max(1, int(rows) // 2000000), 'cluster_id', 'topic')
frame = frame.sortWithinPartitions('cluster_id', 'topic', 'topic_id', 'partition', 'node_id', 'log_dir', 'name')
frame.write.option('compression', 'zstd').mode('overwrite').parquet(store + '/plain/dirs')
assigned = read(PARTITION_LINE, 'assignments/*.jsonl.gz').where("row = 'partition'")
assigned = assigned.select('cluster_id', 'topic_id', 'partition', fn.explode('replicas').alias('node_id'))
assigned.sortWithinPartitions('cluster_id', 'topic_id').write.mode('overwrite').parquet(store + '/plain/assigned')
dirs, assigned = (spark.read.parquet(f'{store}/plain/{name}') for name in ('dirs', 'assigned'))
key = ['cluster_id', 'topic_id', 'partition', 'node_id']
found = dirs.where("kind in ('current', 'future')")
sums = fn.count('*'), fn.sum('bytes').alias('sum'), fn.sum('allocated').alias('given')
keys = 'cluster_id', 'cluster_id node_id', 'cluster_id node_id log_dir', 'cluster_id topic topic_id'
tables = {by.replace(' ', '-'): dirs.groupBy(by.split()).agg(*sums) for by in keys}
tables['orphans'] = found.join(assigned, key, 'left_anti')
tables['missing'] = assigned.join(found, key, 'left_anti')
for name, table in tables.items():
    table.write.mode('overwrite').parquet(f'{store}/plain/report/{name}')
    table.coalesce(1).write.mode('overwrite').csv(f'{store}/plain/csv/{name}')
spark.stop()
"""
"""What anybody would write: the same number of rows, whole ones, read, sorted, written and reported."""


def beside_plain(store: Path, hosts: int, threads: int) -> list[Run]:
    """The night of a store that was planted, and the plain job on its first snapshots, in one run."""
    rows = hosts * DIRS_PER_HOST
    memory = "4g" if rows > 1_000_000 else "2g"
    where = [f"local[{threads}]", memory]
    job = [sys.executable, "-m", "logagent", "fleet", "ingest", "--store", str(store), "--keep-landing", "off"]
    job += ["--master", where[0], "--conf", f"spark.driver.memory={memory}", "--report", str(store / "report")]
    plain = measure("plain Spark job", rows, [sys.executable, "-c", PLAIN, str(store), *where, str(rows)])
    ours = measure("ingest --report", rows, job)
    report = json.loads((store / "report" / "latest" / "report.json").read_text())
    assert report["hosts"]["reporting"] == hosts, report["hosts"]
    print(f"{hosts} hosts: {ours.cpu / plain.cpu:.2f} times the CPU of the plain job (goal: 1.4)", flush=True)
    return [plain, ours]


def night(store: Path, hosts: int, days: int, threads: int) -> list[Run]:
    """The last day, when the days before were ingested."""
    plant(store, hosts, days)
    rows = hosts * DIRS_PER_HOST
    master = ["--master", f"local[{threads}]", "--conf", f"spark.driver.memory={'4g' if rows > 1_000_000 else '2g'}"]
    job = [sys.executable, "-m", "logagent", "fleet"]
    ingest = [*job, "ingest", "--store", str(store), *master, "--keep-landing", "off"]
    dates = sorted({path.name for path in (store / "landing").glob("*/*")})
    for date in dates[:-1]:
        measure("", rows, [*ingest, "--date", date])
    runs = [measure("ingest --report", rows, [*ingest, "--report", str(store / "report")])]
    report = json.loads((store / "report" / "latest" / "report.json").read_text())
    assert report["hosts"]["reporting"] == hosts, report["hosts"]
    last = f"{store}/commits/{dates[-1]}"
    os.rename(last, f"{last}-aside")
    runs.append(measure("ingest alone", rows, ingest))
    apart = [*job, "report", "--store", str(store), "--out", str(store / "report"), *master]
    return [*runs, measure("report alone", rows, apart)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_night", description=__doc__)
    parser.add_argument("hosts", nargs="*", type=int, default=[10, 100])
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--dir", type=Path, help="where to work")
    parser.add_argument("--no-sizes", action="store_true")
    parser.add_argument("--plain", action="store_true", help="one day, beside a plain Spark job")
    chosen = parser.parse_args()
    if chosen.plain:
        for hosts in chosen.hosts:
            with tempfile.TemporaryDirectory(prefix="logagent-fleet-night-", dir=chosen.dir) as folder:
                plant(Path(folder), hosts, 1)
                for run in beside_plain(Path(folder), hosts, chosen.threads):
                    print(f"{hosts} hosts {run.line()} driver {run.first:.1f} CPU s", flush=True)
        return
    if not chosen.no_sizes:
        with tempfile.TemporaryDirectory(prefix="logagent-fleet-night-", dir=chosen.dir) as folder:
            compare_sizes(Path(folder))
    for hosts in chosen.hosts:
        with tempfile.TemporaryDirectory(prefix="logagent-fleet-night-", dir=chosen.dir) as folder:
            for run in night(Path(folder), hosts, chosen.days, chosen.threads):
                print(f"{hosts} hosts {run.line()} goal for both: {GOALS.get(hosts, '-')}", flush=True)


if __name__ == "__main__":
    main()
