"""A broker dies of a full disk: `logagent rescue`, with its own state dir on that disk, and the broker starts again.

3.9.1 on ext4; with `tests/run --full` also 2.5.1, 4.3.1 and 4.4.0, and all of them on xfs. The brokers are their own,
as their disks are filled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.command_line import Ran
from tests.disk.conftest import loop_fs
from tests.disk.messes import fill_bytes, free
from tests.forked import run_forked
from tests.host_files import GONE_ID, write_partition
from tests.hosts import HEX
from tests.long_form import FULL

__all__ = ["loop_fs"]

CASES = (
    [(v, kind) for v in ("2.5.1", "3.9.1", "4.3.1", "4.4.0") for kind in ("ext4", "xfs")]
    if FULL
    else [("3.9.1", "ext4")]
)
MIB = 1 << 20


def leftover(log_dir: Path, name: str, size: int) -> Path:
    made = write_partition(log_dir / name, {0: os.urandom(size)}, topic_id=GONE_ID)
    # Older than what a metadata log can know that ended with its broker.
    os.utime(made, (1, 1))
    return made


def fill_but(point: Path, room: int) -> None:
    with (point / "most").open("wb") as file:
        found = os.statvfs(point)
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - room)


def write_until_it_dies(node: KafkaNode, topic: str) -> list[bytes]:
    """What was acknowledged before the broker ended."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(
        bootstrap_servers=node.bootstrap, acks="all", retries=0, request_timeout_ms=4000, delivery_timeout_ms=5000
    )
    acknowledged: list[bytes] = []
    try:
        for batch in range(500):
            values = [f"{batch}-{n}".encode().ljust(20_000, b".") for n in range(20)]
            sent = [(value, producer.send(topic, value=value, partition=0)) for value in values]
            with suppress(KafkaError):
                producer.flush(timeout=6)
            acknowledged += [value for value, future in sent if future.is_done and future.succeeded()]
            if not node.alive or not all(future.is_done and future.succeeded() for _, future in sent):
                break
    finally:
        with suppress(KafkaError):
            producer.close(timeout=1)
    wait_until(lambda: not node.alive, 60, "the broker dies of its full disk")
    return acknowledged


def rescue_command(node: KafkaNode, state: Path, *arguments: str) -> Ran:
    where = ("--kafka-config", str(node.config), "--state-dir", str(state), "--json")
    settings = {
        "LOGAGENT_KAFKA__VERSION": node.version,
        "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
        "LOGAGENT_GUARD__SETTLE": "0s",
    }
    return run_forked("rescue", *where, *arguments, environment=settings)


def rescue(node: KafkaNode, state: Path, *arguments: str) -> Any:
    ran = rescue_command(node, state, *arguments)
    assert ran.status in (0, 3, 4), ran.err
    return ran.json


@pytest.mark.parametrize(("version", "kind"), CASES, ids=str)
def test_every_record_is_there_after_the_rescue(
    loop_fs: Callable[..., Path], kafka: Callable[..., KafkaNode], version: str, kind: str
) -> None:
    point = loop_fs(kind)
    log_dir, state = point / "logs", point / "state"
    state.mkdir()
    mode = "zookeeper" if version == "2.5.1" else "kraft"
    node = kafka(version, log_dirs=[log_dir], mode=mode).start()
    node.create_topic("live")
    node.stop()
    rescue(node, state, "--execute", "--need", "1")
    node.start()
    fill_but(point, 8 * MIB)
    acknowledged = write_until_it_dies(node, "live")
    assert acknowledged
    # Laid out now, in room of our own: a broker that loads them truncates what holds no records.
    os.truncate(point / "most", (point / "most").stat().st_size - 45 * MIB)
    left = [leftover(log_dir, f"gone-0.{HEX}-delete", 20 * MIB)]
    if mode == "kraft":
        left.append(leftover(log_dir, f"gone-1.{HEX}-stray", 20 * MIB))
    fill_bytes(point)
    shown = rescue(node, state)
    assert {a["name"] for a in shown["actions"]} == {path.name for path in left}, shown
    room = free(point)
    done = rescue(node, state, "--execute", "--approve", shown["plan_id"])
    assert {a["outcome"] for a in done["actions"]} == {"done"}, done
    came, promised = free(point) - room, shown["rescue"]["gives_back"]
    assert abs(came - promised) <= 0.05 * promised, (came, promised)
    node.start()
    read = {record.value for record in node.read_all("live", 0)}
    assert [value for value in acknowledged if value not in read] == []


@pytest.mark.parametrize(("version", "kind"), [case for case in CASES if case[0] != "2.5.1"], ids=str)
def test_room_comes_back_beside_a_live_broker(
    loop_fs: Callable[..., Path], kafka: Callable[..., KafkaNode], tmp_path: Path, version: str, kind: str
) -> None:
    """A log dir has 1 MiB left while the broker serves, and gets room without a restart.

    With none left, the broker gives the log dir up at its next checkpoint of high watermarks, within 5 s.
    """
    full, other, state = loop_fs(kind) / "logs", tmp_path / "other", tmp_path / "state"
    node = kafka(version, log_dirs=[other, full]).start()
    node.create_topic("live", partitions=2)
    (full_partition,) = [int(d.name.rpartition("-")[2]) for d in full.glob("live-*")]
    before = node.produce("live", full_partition, n=50)
    here = ("--log-dir", str(full))
    rescue(node, state, "--execute", "--need", "1", *here)
    strays = [leftover(full, f"gone-{n}.{HEX}-stray", 20 * MIB) for n in range(2)]
    fill_but(full.parent, MIB)
    shown = rescue(node, state, "--need", "30MiB", *here)
    assert {a["name"] for a in shown["actions"]} == {path.name for path in strays}, json.dumps(shown)
    room = free(full.parent)
    done = rescue(node, state, "--need", "30MiB", "--execute", "--approve", shown["plan_id"], *here)
    assert {a["outcome"] for a in done["actions"]} == {"done"}, done
    assert free(full.parent) - room >= 30 * MIB
    after = node.produce("live", full_partition, n=50, prefix="after")
    assert node.alive and node.offline_dirs() == []
    fill_bytes(full.parent)
    wait_until(lambda: node.offline_dirs() == [str(full)], 30, "the broker gives its full log dir up")
    told = rescue_command(node, state)
    assert told.status == 5 and "stop the broker, run logagent rescue, start the broker" in told.err, told
    next(other.glob("live-*/*.log")).unlink()
    told = rescue_command(node, state)
    assert "copy what was removed by hand" in told.err and "stop the broker" not in told.err + told.out, told
    (full.parent / "ballast").unlink()
    node.restart()
    assert [record.value for record in node.read_all("live", full_partition)] == before + after
