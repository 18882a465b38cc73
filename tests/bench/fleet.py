"""`python -m tests.bench.fleet [SIZE…]`: the fleet job as rows grow, beside a plain Spark read and DuckDB.

Sizes are partition dirs (default 400k; the goals are stated for 4M and 40M). Every job runs in a process of its own;
memory is the peak of its JVM (or of DuckDB's process). Nothing fails because a machine was slow, but what the report
finds has to be what was planted. `--report` makes compacted stores (`tests.bench.stores`) and measures the report on
them, `--one-topic` one topic with a million directories; `--store DIR` takes a store that was made before.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from logagent.fleet.demo import Fleet
from tests.fleets.planted import generate

DIRS_PER_HOST = 4000
HOSTS_PER_CLUSTER = 100
GOAL_SECONDS_40M = 60
MOST_GENERATED = 4_000_000
"""Generating takes 45 µs of CPU a row; beyond this many, the clusters are copied under other ids."""
GOAL_MEMORY = 16 << 30


@dataclass
class Run:
    """One job: wall and CPU seconds of its whole process tree, peak resident bytes of its largest process."""

    name: str
    rows: int
    wall: float
    cpu: float
    peak: int
    first: float = 0.0
    """CPU seconds of the process that was started: of a job, the driver's Python."""

    def line(self) -> str:
        per_row = 1e6 * self.wall / self.rows
        gib = self.peak / (1 << 30)
        return (
            f"| {self.rows:>11,} | {self.name:<34} | {self.wall:8.1f} | {self.cpu:8.1f} | {gib:6.2f} | {per_row:8.2f} |"
        )


def measure(name: str, rows: int, command: list[str]) -> Run:
    """Runs a command and watches it. Raises CalledProcessError with what it said."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=Path(__file__).parents[2])
        peak, cpu = 0, {}
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                for each in [watched, *watched.children(recursive=True)]:
                    peak = max(peak, _high_water(each.pid))
                    times = each.cpu_times()
                    cpu[each.pid] = times.user + times.system
            except psutil.NoSuchProcess:
                pass
            time.sleep(0.1)
        wall = time.monotonic() - began
        if process.returncode:
            said.seek(0)
            raise subprocess.CalledProcessError(process.returncode, command, said.read()[-4000:])
    return Run(name, rows, wall, sum(cpu.values()), peak, cpu.get(process.pid, 0.0))


def _high_water(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


PLAIN = """
import sys
from logagent.fleet.tables.frames import DIR_LINE
from pyspark.sql import SparkSession, functions as fn
spark = SparkSession.builder.master(sys.argv[2]).config('spark.driver.memory', sys.argv[4]).getOrCreate()
frame = spark.read.schema(DIR_LINE).json(sys.argv[1] + '/landing/*/*/[0-9]*/*.jsonl.gz')
for name in ('newest_mtime', 'marked_at', 'first_seen'):
    frame = frame.withColumn(name, fn.timestamp_millis(name))
frame = frame.where("row = 'dir'").repartition(max(1, int(sys.argv[3]) // 4000000), 'log_dir', 'topic')
frame = frame.sortWithinPartitions('topic', 'partition')
frame.write.option('compression', 'zstd').mode('overwrite').parquet(sys.argv[1] + '/plain')
spark.stop()
"""

DUCK = """
import sys, duckdb
store, day = sys.argv[1], sys.argv[2]
duck = duckdb.connect()
duck.execute(f"set threads = {int(sys.argv[3])}")
for name in ("dirs", "assignments"):
    duck.execute(f"create view {name} as select * from read_parquet('{store}/tables/{name}/run={day}/*.parquet')")
for key in ("cluster_id", "cluster_id, node_id", "cluster_id, node_id, log_dir", "cluster_id, topic, topic_id"):
    duck.execute(f"create table a as select {key}, count(*), sum(bytes), sum(allocated) from dirs group by all")
    duck.execute("drop table a")
duck.execute('''create table parts as select cluster_id, topic, topic_id, partition, count(*) as copies, sum(bytes),
                sum(allocated), min(bytes), max(bytes) from dirs where kind = 'current' group by all''')
duck.execute('''create table assigned as select cluster_id, topic_id, partition, unnest(replicas) as node_id
                from assignments''')
duck.execute('''create table orphans as select * from dirs d where kind in ('current', 'future') and not exists
                (select 1 from assigned a where a.cluster_id = d.cluster_id and a.topic_id = d.topic_id
                 and a.partition = d.partition and a.node_id = d.node_id)''')
duck.execute('''create table missing as select * from assigned a where not exists
                (select 1 from dirs d where a.cluster_id = d.cluster_id and a.topic_id = d.topic_id
                 and a.partition = d.partition and a.node_id = d.node_id and kind in ('current', 'future'))''')
"""


def copy_clusters(landing: Path, copies: int, workers: int) -> None:
    """Copies of every cluster under ids of their own, as their agents would have published them."""
    jobs = [(landing, path.name, f"{n:03d}{path.name[3:]}") for path in landing.iterdir() for n in range(1, copies)]
    with ProcessPoolExecutor(workers) as pool:
        for _ in pool.map(_copy_cluster, *zip(*jobs, strict=True)) if jobs else ():
            pass


def _copy_cluster(landing: Path, old: str, new: str) -> None:
    for manifest in (landing / old).rglob("*.manifest.json"):
        data = manifest.with_name(manifest.name.replace(".manifest.json", ".jsonl.gz"))
        rows = gzip.compress(gzip.decompress(data.read_bytes()).replace(old.encode(), new.encode()), 1)
        said = json.loads(manifest.read_text().replace(old, new))
        said |= {"bytes": len(rows), "sha256": hashlib.sha256(rows).hexdigest()}
        folder = landing / new / manifest.parent.relative_to(landing / old)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / data.name.replace(old, new)).write_bytes(rows)
        (folder / manifest.name.replace(old, new)).write_text(json.dumps(said))


def bench(rows: int, where: Path, threads: int) -> list[Run]:
    """All jobs on one fleet of `rows` directories."""
    hosts = max(3, rows // DIRS_PER_HOST)
    clusters = max(1, hosts // HOSTS_PER_CLUSTER)
    copies = max(1, rows // MOST_GENERATED)
    now = datetime.now(UTC).replace(microsecond=0)
    fleet = Fleet(
        at=now,
        clusters=max(1, clusters // copies),
        hosts=hosts // copies,
        partitions=rows // copies,
        days=1,
        sick=0.001,
        broken=0.0,
    )
    truths = generate(where, fleet, workers=threads)
    planted = sum(len(truth.orphans) for truth in truths) * copies
    copy_clusters(where / "landing", copies, threads)
    master = f"local[{threads}]"
    memory = "10g" if rows > 10_000_000 else "4g"
    ingest = [sys.executable, "-m", "logagent", "fleet", "ingest", "--store", str(where), "--master", master]
    ingest += ["--conf", f"spark.driver.memory={memory}"]
    plain = [sys.executable, "-c", PLAIN, str(where), master, str(rows), memory]
    runs = [
        measure("plain Spark read and write", rows, plain),
        measure("logagent fleet ingest", rows, ingest),
        *reporting(rows, where, threads),
    ]
    found = _totals(where)
    assert found["orphans"] == planted, f"{found['orphans']} orphans reported, {planted} planted"
    return runs


def reporting(rows: int, where: Path, threads: int) -> list[Run]:
    """The report and DuckDB on one store."""
    memory = f"spark.driver.memory={'10g' if rows > 10_000_000 else '4g'}"
    job = [sys.executable, "-m", "logagent", "fleet", "report", "--store", str(where), "--out", str(where / "report")]
    day = max(path.name for path in (where / "runs").iterdir())
    return [
        measure("logagent fleet report", rows, [*job, "--master", f"local[{threads}]", "--conf", memory, "--json"]),
        measure("DuckDB: usage, orphans, missing", rows, [sys.executable, "-c", DUCK, str(where), day, str(threads)]),
    ]


def bench_report(rows: int, where: Path, threads: int, *, one_topic: bool) -> list[Run]:
    """The report on a store that Spark made."""
    make = [sys.executable, "-m", "tests.bench.stores", str(rows), str(where), "--threads", str(threads)]
    make += ["--one-topic"] if one_topic else []
    done = subprocess.run(make, stdout=subprocess.PIPE, check=True, text=True, cwd=Path(__file__).parents[2])
    planted = json.loads(done.stdout.splitlines()[-1])
    runs = reporting(planted["dirs"], where, threads)
    found = _totals(where)
    for name in ("orphans", "missing_replicas"):
        assert found[name] == planted[name], f"{found[name]} {name} reported, {planted[name]} planted"
    return runs


def _totals(where: Path) -> dict[str, int]:
    totals: dict[str, int] = json.loads((where / "report" / "latest" / "report.json").read_text())["totals"]
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[400_000], help="partition dirs, e.g. 400000 4000000")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--dir", type=Path, help="where to work (40M rows need about 8 GB)")
    parser.add_argument("--report", action="store_true", help="only the report, on a store that Spark makes")
    parser.add_argument("--one-topic", action="store_true", help="as --report; one topic with a million directories")
    parser.add_argument("--store", type=Path, help="only the report, on this store (of SIZE rows)")
    chosen = parser.parse_args()
    print(f"{chosen.threads} threads; goals: 40M rows in {GOAL_SECONDS_40M} s, at most {GOAL_MEMORY >> 30} GiB")
    print("|        rows | job                                | wall s   | CPU s    | GiB    | µs a row |")
    print("|-------------|------------------------------------|----------|----------|--------|----------|")
    for rows in chosen.sizes:
        if chosen.store:
            runs = reporting(rows, chosen.store, chosen.threads)
        else:
            with tempfile.TemporaryDirectory(prefix="logagent-fleet-bench-", dir=chosen.dir) as folder:
                if chosen.report or chosen.one_topic:
                    runs = bench_report(rows, Path(folder), chosen.threads, one_topic=chosen.one_topic)
                else:
                    runs = bench(rows, Path(folder), chosen.threads)
        for run in runs:
            print(run.line(), flush=True)


if __name__ == "__main__":
    main()
