"""A real broker loses one of its log dirs: the daemon beside it says the same as the broker, without asking it.

The brokers are their own: each gives a log dir up, and is stopped and killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.disk.conftest import DEFAULT_SIZE, mounted, run
from tests.disk.daemons import DaemonProcess
from tests.disk.failing import pulled_out, put_back, shut_down
from tests.long_form import versions

VERSIONS = versions("3.9.1", "4.4.0", "4.3.1")
# A broker writes its checkpoints every second, and so meets a log dir that it cannot write to.
PROPERTIES = {
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}
# What its checkpoint is written to first; a directory of that name fails it, and leaves the disk as good as it was.
OBSTACLE = "recovery-point-offset-checkpoint.tmp"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for a log dir."""
    (tmp_path / "mounts").mkdir()
    with ExitStack() as stack:
        yield mounted(tmp_path / "mounts", "xfs", DEFAULT_SIZE, stack)


def beside(node: KafkaNode, root: Path) -> DaemonProcess:
    """The daemon beside this broker; it only looks, and knows nothing of the broker but its configuration."""
    # In a round on a busy machine a broker that starts or stops has all its locks or none.
    settings = {"CLEANUP__MODE": "report", "HEALTH__PROBE_INTERVAL": "1s", "HEALTH__PROBE_TIMEOUT": "30s"}
    return DaemonProcess(
        root, "--kafka-config", str(node.config), settings={**settings, "KAFKA__VERSION": node.version}
    )


def fill(node: KafkaNode) -> None:
    """A few partitions, so that each log dir has some."""
    node.create_topic("orders", partitions=6)
    for partition in range(6):
        node.produce("orders", partition, n=10)


def offline_said(daemon: DaemonProcess) -> list[tuple[str, str]]:
    return [(line["log_dir"], line["reason"]) for line in daemon.said("log-dir", health="offline")]


def wait_offline(node: KafkaNode, path: Path) -> None:
    wait_until(lambda: node.offline_dirs() == [str(path)], 60, f"the broker calls {path} offline", interval=0.5)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_broker_gave_up_on_a_good_disk_is_told_by_its_lock_alone(
    kafka: Callable[..., KafkaNode], version: str, tmp_path: Path
) -> None:
    node = kafka(version, log_dirs=2, props=PROPERTIES).start()
    fill(node)
    one, two = node.log_dirs
    with beside(node, tmp_path) as daemon:
        daemon.wait_health((one, "online"), (two, "online"))
        (two / OBSTACLE).mkdir()
        wait_offline(node, two)
        assert node.alive
        daemon.wait_health((one, "online"), (two, "offline"))
        ((path, reason),) = offline_said(daemon)
        assert path == str(two)
        assert reason == f"the running broker (process {node.pid}) holds other log dirs but not this one: it gave it up"
        wait_until(
            lambda: daemon.metric("logagent_log_dir_state", two, state="offline") == 1.0, 60, "the metric says so"
        )
        assert daemon.metric("logagent_log_dir_state", one, state="offline") == 0.0

        # Mending it is not enough: Kafka waits for its restart, and so do we.
        (two / OBSTACLE).rmdir()
        rounds = len(daemon.said("log-dir"))
        wait_offline(node, two)
        node.restart()
        wait_until(lambda: node.offline_dirs() == [], 60, "the broker serves both again", interval=0.5)
        daemon.wait_health((one, "online"), (two, "online"))
        # Nothing else was said: neither while it was offline nor by the stop, the start, and being killed.
        node.kill()
        node.start()
        assert len(offline_said(daemon)) == 1
        assert len(daemon.said("log-dir")) == rounds + 1
        daemon.end()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dead_disk_under_the_broker_is_offline_to_both_and_back_after_mount_and_restart(
    disk: Path, kafka: Callable[..., KafkaNode], version: str, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", disk / "kafka"
    node = kafka(version, log_dirs=[good, bad], props=PROPERTIES).start()
    fill(node)
    run("sync", "--file-system", bad)
    with beside(node, tmp_path) as daemon:
        daemon.wait_health((good, "online"), (bad, "online"))
        shut_down(disk)
        daemon.wait_health((good, "online"), (bad, "offline"))
        wait_offline(node, bad)
        # Both stay up. The broker is stopped for the repair, and then nothing keeps the disk busy: not we either.
        node.stop()
        pulled_out(disk)
        put_back(disk)
        node.start()
        wait_until(lambda: node.offline_dirs() == [], 60, "the broker serves both again", interval=0.5)
        daemon.wait_health((good, "online"), (bad, "online"))
        assert [path for path, _ in offline_said(daemon)] == [str(bad)]
        daemon.end()
