"""A broker that has every directory open, strays too, is still recovering them: a stray that goes now ends it.

The broker is its own: it is killed, and paused in the middle of its recovery.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.dir_names import stray_name
from tests.broker.evidence.test_orphans_live import RECORDS, logagent
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.hosts import HEX
from tests.long_form import versions
from tests.metadata_writer import batch
from tests.waiting import holds

# A second or two of a broker's recovery, which reads it whole.
STRAY_BYTES = 768 << 20


@pytest.mark.parametrize("version", versions("4.3.1", "4.4.0", "3.9.1"))
def test_a_stray_stays_until_its_broker_says_that_it_serves(
    kafka: Callable[..., KafkaNode], version: str, tmp_path: Path
) -> None:
    """By its listener; or by its registration, to a logagent that cannot ask it: it compares that with those of earlier
    starts."""
    checks = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "500"}
    node = kafka(version, props={**checks, "log.segment.delete.delay.ms": "100"}).start()
    for topic in ("kept", "gone"):
        node.create_topic(topic)
        node.produce(topic, n=RECORDS)
    unasked = tmp_path / "server.properties"
    unasked.write_text(node.config.read_text().replace("listeners=PLAINTEXT://", "listeners=SASL_SSL://"))

    def cleanup(config: Path) -> Any:
        return logagent(node, "cleanup", "--execute", config=config, allow=(0, 3))

    for config in (node.config, unasked):
        cleanup(config)
    node.stop()
    here = next(d for d in node.log_dirs if (d / "gone-0").is_dir())
    shutil.copytree(here / "gone-0", tmp_path / "gone-0")
    node.start()
    node.delete_topic("gone")
    wait_until(lambda: not [d for d in here.iterdir() if d.name.startswith("gone-0")], 30, "the broker purges it")
    node.kill()
    # The only directory of its log dir, so that the broker has all of them open.
    stray = here / stray_name("gone", 0, HEX)
    shutil.copytree(tmp_path / "gone-0", stray)
    lengthen(stray / f"{0:020d}.log")

    node.start_async()
    wait_until(lambda: has_open(node, stray), 60, "the broker recovers the stray", interval=0.001)
    node.pause()
    for config in (node.config, unasked):
        tried = cleanup(config)
        assert {(r["name"], r["guard"]) for r in tried["refusals"]} == {(stray.name, "window")}
        assert "does not say yet that it serves" in tried["refusals"][0]["fact"]
        assert "stop the broker" not in tried["refusals"][0]["hint"]
    node.resume()
    node.wait_ready()

    # On a slow machine it was stopped for longer than its session lasts, and is fenced once more until its next beat.
    # That it may go by the listener, too, is shown by test_orphans_live.
    removed = answer_until(lambda: cleanup(unasked), lambda answer: bool(answer["actions"]), 60)
    assert [(a["name"], a["outcome"]) for a in removed["actions"]] == [(stray.name, "done")], removed["refusals"]
    assert not stray.exists()
    holds(lambda: node.offline_dirs() == [], 2 * 1.5, "two checks of retention find nothing", interval=0.5)
    node.restart()
    assert node.offline_dirs() == [] and len(node.read_all("kept")) == RECORDS


def answer_until(ask: Callable[[], Any], good: Callable[[Any], bool], seconds: float) -> Any:
    """The first good answer."""
    answers = []

    def asked() -> bool:
        answers.append(ask())
        return good(answers[-1])

    wait_until(asked, seconds, "a good answer", interval=0.5)
    return answers[-1]


def lengthen(log: Path) -> None:
    """Append batches of another 16 KiB, which only differ in their base offset, up to `STRAY_BYTES`."""
    one = batch(0, [os.urandom(16_000)] * 1, 1_700_000_000_000, epoch=0)
    with log.open("ab") as file:
        for offset in range(RECORDS, RECORDS + STRAY_BYTES // len(one)):
            file.write(struct.pack(">q", offset) + one[8:])


def has_open(node: KafkaNode, directory: Path) -> bool:
    links = []
    for number in os.listdir(f"/proc/{node.pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{node.pid}/fd/{number}"))
        except FileNotFoundError:
            continue
    return any(link.startswith(f"{directory}/") and link.endswith(".log") for link in links)
