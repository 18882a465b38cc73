"""Writes a metadata log of any size, and measures the reading of one in a process of its own.

    python -m tests.bench.gen_metadata_log DIR [--partitions N] [--per-topic N] [--brokers N] [--form FORM] [--measure]

FORM says where the partitions lie: `log` (no snapshot; creation and an ISR change each), `snapshot` (all in a
snapshot, little behind it), or `idle` (a snapshot at the end of a week of NoOp records, 1.2 million batches, as an
idle cluster has). `--measure` reads it back in a fresh Python process and prints seconds, CPU seconds and peak RSS of
that whole process, imports included.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import metadata_writer as writer
from tests.metadata_writer import id_of

BATCH_RECORDS = 1000
START_MS = 1_790_000_000_000
NOOPS_OF_A_WEEK = 7 * 24 * 3600 * 2
INDEX_INTERVAL = 4096

_MEASURED = """
import json, sys, time
began = time.perf_counter()
from logagent.kafka.metadata_log.log import read_metadata_log
image = read_metadata_log(sys.argv[1], node_id=1, cluster_id="c", now_ms=0)
# Not ru_maxrss: across fork and exec that keeps the peak of the process that started this one.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
print(json.dumps({
    "seconds": round(time.perf_counter() - began, 3),
    "cpu_seconds": round(time.process_time(), 3),
    "rss_mb": round(peak / 1024, 1),
    "topics": image.assignments.topic_count,
    "partitions": image.assignments.partition_count,
    "offset": image.assignments.offset,
}))
"""


def records(partitions: int, per_topic: int, brokers: int, *, changes: bool) -> Iterator[bytes]:
    """Everything a controller writes for these topics; every partition has three replicas in one of four dirs each."""
    rng = random.Random(partitions)
    yield writer.feature_level("metadata.version", 21)
    dirs = [[id_of(1_000_000_000 + 10 * node + n) for n in range(4)] for node in range(brokers)]
    for node in range(brokers):
        yield writer.register_broker(node, dirs[node], fenced=False)
    for number in range(partitions):
        topic_id = id_of(number // per_topic)
        if number % per_topic == 0:
            yield writer.topic(f"team-{number % 97}.orders-and-payments.v{number // per_topic}", topic_id)
        nodes = rng.sample(range(brokers), 3)
        directories = [rng.choice(dirs[node]) for node in nodes]
        yield writer.partition(topic_id, number % per_topic, nodes, leader=nodes[0], directories=directories, version=1)
        if changes:
            yield writer.partition_change(topic_id, number % per_topic, isr=nodes[:2])


def noops(count: int) -> Iterator[tuple[int, bytes]]:
    """(offset, batch) of NoOp records half a second apart."""
    for offset in range(count):
        yield offset, writer.batch(offset, [writer.NO_OP], START_MS + 500 * offset)


def batches(values: Iterator[bytes], offset: int) -> Iterator[tuple[int, bytes]]:
    piece: list[bytes] = []
    for value in values:
        piece.append(value)
        if len(piece) == BATCH_RECORDS:
            yield offset, writer.batch(offset, piece, START_MS + offset)
            offset, piece = offset + len(piece), []
    if piece:
        yield offset, writer.batch(offset, piece, START_MS + offset)


def write_log(directory: Path, written: Iterator[tuple[int, bytes]]) -> None:
    """The segment from offset 0, with an index as Kafka's `OffsetIndex` has it (an entry every 4 KiB)."""
    position = since = 0
    with (directory / f"{0:020}.log").open("wb") as log, (directory / f"{0:020}.index").open("wb") as index:
        for offset, data in written:
            if since > INDEX_INTERVAL:
                index.write(struct.pack(">ii", offset, position))
                since = 0
            log.write(data)
            position += len(data)
            since += len(data)


def generate(directory: Path, form: str, partitions: int, per_topic: int, brokers: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    writer.write_quorum_state(directory, 1, [1])
    values = records(partitions, per_topic, brokers, changes=form == "log")
    if form == "log":
        write_log(directory, batches(values, 0))
        return
    count = NOOPS_OF_A_WEEK if form == "idle" else 1000
    write_log(directory, noops(count))
    time_ms = START_MS + 500 * count
    writer.write_snapshot(directory, count - 10, writer.snapshot(list(values), time_ms, voters=[1]))


def measure(directory: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _MEASURED, str(directory)]
    answer: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--per-topic", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=30)
    parser.add_argument("--form", choices=("log", "snapshot", "idle"), default="snapshot")
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    generate(options.directory, options.form, options.partitions, options.per_topic, options.brokers)
    if options.measure:
        print(json.dumps({"form": options.form, **measure(options.directory)}))


if __name__ == "__main__":
    main()
