"""The quorum was restored from a backup: it never heard of the topics that were made since, goes on and answers for the
cluster. The broker that follows it makes strays of them, and logagent keeps those: it remembers another history."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.evidence.test_orphans_live import logagent, verdicts, wait_serving
from tests.broker.evidence.test_rolled_back_metadata import RECORDS, where
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.process import wait_until

HOUR = 3_600


def remembered_offset(node: KraftNode) -> int:
    return int(json.loads((node.root / "state/metadata-seen.json").read_text())["offset"])


def snapshot_end(node: KraftNode) -> int:
    found = [int(p.name[:20]) for p in (node.metadata_dir / "__cluster_metadata-0").glob("*-*.checkpoint")]
    return max(found, default=0)


@pytest.mark.parametrize("version", ["3.9.1"])
def test_what_a_restored_quorum_answers_takes_no_topic_that_it_never_had(
    kafka: Callable[..., KraftNode], version: str, tmp_path: Path
) -> None:
    # Snapshots come every hour otherwise, and what is in them is not read again.
    node = kafka(version, props={"metadata.log.max.snapshot.interval.ms": "3000"}).start()
    node.create_topic("kept")
    node.produce("kept", n=RECORDS)
    node.stop()
    shutil.copytree(node.metadata_dir, tmp_path / "yesterday")
    node.start()
    node.create_topic("living")
    node.produce("living", n=RECORDS)
    admin = {"LOGAGENT_KAFKA__BOOTSTRAP_SERVERS": node.bootstrap}
    wait_serving(node)
    assert verdicts(logagent(node, "scan", settings=admin))["living-0"] == ("assigned", None)
    logagent(node, "cleanup", "--execute", settings=admin)
    node.stop()
    home = where(node, "living-0").parent
    os.utime(home / "living-0", (time.time() - HOUR, time.time() - HOUR))

    node.metadata_dir.rename(tmp_path / "true")
    shutil.copytree(tmp_path / "yesterday", node.metadata_dir)
    node.start()
    (stray,) = home.glob("living-0.*-stray")
    wait_until(lambda: snapshot_end(node) > remembered_offset(node), 60, "a snapshot covers what is remembered")
    wait_serving(node)
    for sources in ("kraft-log,admin", "admin"):
        settings = {**admin, "LOGAGENT_ASSIGNMENTS__SOURCES": sources}
        for _ in range(2):
            cycle = logagent(node, "cleanup", "--execute", settings=settings, allow=(0, 3))
            assert cycle["actions"] == [], cycle
        assert verdicts(logagent(node, "scan", settings=settings))[stray.name][0] == "unknown"
        exported = tmp_path / "assignments.json"
        logagent(node, "assignments", "export", str(exported), settings=settings, allow=(1,))
        assert not exported.exists(), "another host would believe it"
    assert stray.is_dir()

    node.stop()
    shutil.rmtree(node.metadata_dir)
    (tmp_path / "true").rename(node.metadata_dir)
    logagent(node, "restore", stray.name, "--execute")
    node.start()
    assert [len(node.read_all(topic)) for topic in ("kept", "living")] == [RECORDS, RECORDS]
