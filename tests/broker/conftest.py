"""Fixtures `kafka` and `kafka_cluster`: real brokers of any version, ended by process id when the test is over.

    def test_something(kafka):
        node = kafka("3.9.1", log_dirs=2).start()
        node.create_topic("orders", partitions=3)
        values = node.produce("orders", partition=0, n=100)
        node.stop()
        ...                                     # work on node.log_dirs
        node.start()
        assert [r.value for r in node.read_all("orders", 0)] == values
        assert node.offline_dirs() == []

When a test fails, the last output of each of its servers is part of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.rig import Rig

RIG = pytest.StashKey[Rig]()


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python forgets to close a socket on which it could not connect (brokers are down here on purpose).
    config.addinivalue_line("filterwarnings", "ignore:unclosed <(socket|ssl):ResourceWarning")


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """What `kafka` and `kafka_cluster` are made from, for tests that need more than they offer."""
    made = Rig(tmp_path)
    request.node.stash[RIG] = made
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def kafka(rig: Rig) -> Callable[..., KafkaNode]:
    """`kafka(version, log_dirs=2, mode="kraft", props={…})`: a formatted node, to be started (see `Rig.kafka`)."""
    return rig.kafka


@pytest.fixture
def kafka_cluster(rig: Rig) -> Callable[..., KafkaCluster]:
    """`kafka_cluster(version, nodes=3)`: a formatted KRaft cluster, to be started (see `Rig.cluster`)."""
    return rig.cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (rig := item.stash.get(RIG, None)) is not None:
        for server in rig.servers:
            state = "running" if server.alive else f"exit status {server.exit_status}"
            report.sections.append((f"{server.name} ({state}): {server.log_path}", server.log_tail()))
    return report
