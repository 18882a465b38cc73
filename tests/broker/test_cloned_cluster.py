"""A cluster that was cloned with its disks answers under all our ids: it decides nothing here.

The clone runs in a mount namespace where its disks lie under our paths, so that it also has our log dirs. They are on
another device: who looks for open files on a device cannot tell what it has open there from what lies at these paths
here, and would refuse to act, the tests that run beside this one too. The brokers are their own: one is stopped, the
other has its disk.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.clock import SystemClock
from logagent.base.config.settings import AssignmentsSettings, KafkaSettings, Settings
from logagent.cleanup.session.session import Session, open_session
from logagent.kafka.processes.target import resolve_target
from tests.broker.rig.client import KafkaClient
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.ports import Ports
from tests.broker.rig.process import ServerProcess, wait_until
from tests.broker.rig.rig import Rig
from tests.needs import need_command

TOPICS = ("a", "b", "c", "d")


class Clone(ServerProcess, KafkaClient):
    """`of` (stopped), copied to `root` with everything, on ports of its own."""

    ready_line = r"Kafka Server started \("

    def __init__(self, of: KafkaNode, root: Path, ports: Ports) -> None:
        self.of, self.root = of, shutil.copytree(of.root, root)
        bootstrap = f"127.0.0.1:{ports.take()}"
        ServerProcess.__init__(self, f"clone of {of.name}", root.with_suffix(".log"))
        KafkaClient.__init__(self, bootstrap)
        text = of.config.read_text().replace(of.bootstrap, bootstrap)
        controller = re.search(r"CONTROLLER://(127\.0\.0\.1:\d+)", text)
        assert controller is not None
        (root / of.config.name).write_text(text.replace(controller[1], f"127.0.0.1:{ports.take()}"))

    def _command(self) -> list[str]:
        bound = 'mount --bind "$0" "$1" && shift && exec "$@"'
        kafka = self.of.jars.command("kafka.Kafka", str(self.of.config))
        return ["unshare", "--mount", "sh", "-c", bound, str(self.root), str(self.of.root), *kafka]

    def _environment(self) -> dict[str, str]:
        return self.of.jars.environment()


@contextmanager
def asking(node: KafkaNode, bootstrap: str) -> Iterator[Session]:
    settings = replace(
        Settings(),
        kafka=KafkaSettings(config=str(node.config), bootstrap_servers=bootstrap, version=node.version),
        assignments=AssignmentsSettings(sources=("admin",)),
    )
    state = str(node.root.with_suffix(".state"))
    with open_session(
        resolve_target(settings), settings, SystemClock(), state_dir=state, act=True, actor="test"
    ) as session:
        session.read_assignments()
        session.take_inventory()
        yield session


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as path:
        yield Path(path)


def test_a_clone_with_our_ids_and_paths_decides_nothing(
    in_memory: Path, kafka: Callable[..., KafkaNode], rig: Rig
) -> None:
    need_command("unshare")
    ours = kafka("4.3.1", log_dirs=1).start()
    for topic in TOPICS:
        ours.create_topic(topic)
        ours.produce(topic)
    ours.stop()
    clone = Clone(ours, in_memory / "clone", rig.ports)
    rig.servers.append(clone)
    ours.start_async()
    clone.start()
    ours.wait_ready()
    clone.create_topic("of the clone".replace(" ", "-"))
    for topic in TOPICS:
        clone.delete_topic(topic)
    # It says so of our very paths.
    assert list(clone.log_dirs_of(1)) == [str(ours.log_dirs[0])] == list(ours.describe_log_dirs())

    def says(bootstrap: str) -> tuple[set[str], str]:
        with asking(ours, bootstrap) as session:
            facts = session.facts()
            verdicts = {ruling.verdict.value for ruling in facts.rulings.values()}
            assert len(facts.rulings) == len(TOPICS)
            return verdicts, "; ".join(session.assignments.problems)

    with asking(ours, ours.bootstrap) as session:
        session.facts()
        assert session.assignments.answering is not None and session.assignments.answering.own
    stranger = "node 1 of the cluster that answers is not this host's broker: "
    verdicts, why = says(clone.bootstrap)
    assert verdicts == {"unknown"} and f"{stranger}it does not show a-0" in why
    # Also to a client that finds both, whichever it asks.
    assert says(f"{clone.bootstrap},{ours.bootstrap}")[0] <= {"unknown", "assigned"}

    ours.stop()
    wait_until(lambda: not ours.alive, 10, "ours is down")
    verdicts, why = says(clone.bootstrap)
    assert verdicts == {"unknown"} and "calls node 1 live" in why
