"""One log, replayed by us and by the `MetadataDelta` of each release: the same image. That is why levels of
`metadata.version` count as tested (`logagent.kafka.image`)."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from logagent.kafka.metadata_log.replay import Replay
from tests import metadata_writer as writer
from tests.broker.rig.jars import QUICK_FLAGS, kafka_jars
from tests.long_form import versions
from tests.metadata_model import Model
from tests.needs import need_command

SOURCE = Path(__file__).with_name("ImageOfRecords.java")
# The newest level that each can be formatted with, unstable ones too.
LEVELS = {"3.9.1": 23, "4.3.1": 31, "4.4.0": 34}


def of_kafka(version: str, values: Iterable[bytes]) -> list[str]:
    need_command("javac")  # `java` runs a source file only where a compiler is
    done = subprocess.run(
        ["java", *QUICK_FLAGS, "-cp", kafka_jars(version).classpath, str(SOURCE)],
        input="".join(value.hex() + "\n" for value in values),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def of_ours(values: Iterable[bytes]) -> list[str]:
    replay = Replay()
    for offset, value in enumerate(values):
        replay.add(offset, value)
    lines = []
    for topic_id, topic in sorted(replay.topics.items()):
        for number, p in sorted(topic.partitions.items()):
            nodes = [_list(each) for each in (p.replicas, p.isr, p.adding, p.removing, p.elr)]
            words = ["partition", topic_id, topic.name, str(number), *nodes, str(p.leader), ",".join(p.directories)]
            lines.append(" ".join(words).strip())
    for node, b in sorted(replay.brokers.items()):
        words = ["broker", str(node), str(b.epoch), str(b.fenced).lower(), b.incarnation or ""]
        lines.append(" ".join([*words, ",".join(sorted(b.directory_ids))]).strip())
    return lines


def _list(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"


@pytest.mark.parametrize("version", versions("4.4.0", "4.3.1", "3.9.1"))
def test_every_release_makes_the_image_that_we_make(version: str) -> None:
    model = Model(random.Random(4711), levels=(7, LEVELS[version]))
    values = [value for _ in range(1500) for value in model.step()]
    values += [writer.BEGIN, *model.step(), writer.END]
    gone = [writer.remove_topic(topic_id) for topic_id in model.topics]
    values += [writer.BEGIN, *gone, writer.ABORT]
    ours, theirs = of_ours(values), of_kafka(version, values)
    assert len(ours) > 30
    assert ours == theirs
