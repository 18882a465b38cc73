"""Real brokers of any version, ended by process id.

`shared_node` is for tests that only ask: its broker runs as long as the tests do. `kafka` and `kafka_cluster` make what
one test stops, kills, fills, configures, or lets give a log dir up:

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
from functools import cache
from pathlib import Path

import pytest

from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Mode, Rig

RIG = pytest.StashKey[Rig]()
USED = pytest.StashKey[list[KafkaNode]]()


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


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Mode], KafkaNode]]:
    """For `shared_node`: each is started by the first test that wants it, and ended with the run of tests."""
    rig = Rig(tmp_path_factory.mktemp("shared"))
    try:
        yield cache(lambda version, mode: rig.kafka(version, mode=mode).start())
    finally:
        rig.close()


@pytest.fixture
def shared_node(
    started: Callable[[str, Mode], KafkaNode], request: pytest.FixtureRequest
) -> Iterator[Callable[..., KafkaNode]]:
    """`shared_node(version, mode="kraft")`: a running broker with two log dirs and no topic, to be asked. A test
    deletes the topics that it makes, and changes nothing else."""
    used: list[KafkaNode] = request.node.stash.setdefault(USED, [])

    def get(version: str, mode: Mode = "kraft") -> KafkaNode:
        node = started(version, mode)
        used.append(node if node.alive else node.start())
        return node

    yield get
    for node in used:
        left = node.topics()
        for topic in left:  # the next test is not to fail for it
            node.delete_topic(topic)
        assert left == [], f"a test left topics on the shared {node.name}: {left}"
        assert node.offline_dirs() == [], f"a test cost the shared {node.name} a log dir"
        wait_until(lambda node=node: only_marked(node), 60, f"the shared {node.name} has no directory of a topic left")  # type: ignore[misc]


def only_marked(node: KafkaNode) -> bool:
    """A log leaves the broker's memory a moment before its directory is renamed."""
    return all(name.endswith("-delete") for name in node.dir_names())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        rig = item.stash.get(RIG, None)
        for server in [*(rig.servers if rig is not None else []), *item.stash.get(USED, [])]:
            state = "running" if server.alive else f"exit status {server.exit_status}"
            report.sections.append((f"{server.name} ({state}): {server.log_path}", server.log_tail()))
    return report
