"""A quorum that was restored from a backup writes fresh records, and its brokers set aside what it does not know. To
nobody that remembers the metadata log of before does it prove anything, whoever is asked and however long it runs.

The broker is its own, as its metadata log is exchanged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.evidence.test_orphans_live import logagent
from tests.broker.evidence.test_rolled_back_metadata import (
    CHECK_MS,
    RECORDS,
    all_records_after_a_restart_and_two_retention_checks,
    newest_record_ms,
)
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form, versions

VERSIONS = versions("4.3.1", "4.4.0", "3.9.1")
PROPERTIES = {
    "log.retention.check.interval.ms": str(CHECK_MS),
    # So that a snapshot soon covers what is remembered.
    "metadata.log.max.snapshot.interval.ms": "4000",
    "log.segment.delete.delay.ms": "0",
}


def metadata_end(node: KraftNode) -> tuple[int, int]:
    """Where its metadata log ends by its last cleanup's document, and where its newest snapshot does."""
    log = node.metadata_dir / "__cluster_metadata-0"
    snapshots = [int(path.name[:20]) for path in log.glob("*.checkpoint") if path.name[:20].isdigit()]
    end = logagent(node, "scan", allow=(0, 3))["assignments"]["offset"] or 0
    return end, max(snapshots, default=0)


@long_form
@pytest.mark.parametrize("version", VERSIONS)
def test_a_quorum_restored_from_a_backup_proves_nothing_of_what_was_made_since(
    kafka: Callable[..., KraftNode], version: str, tmp_path: Path
) -> None:
    node = kafka(version, props=PROPERTIES).start()
    node.create_topic("kept")
    node.produce("kept", n=RECORDS)
    node.stop()
    backup, true = tmp_path / "backup", tmp_path / "true"
    shutil.copytree(node.metadata_dir, backup)
    node.start()
    node.create_topic("living")
    node.produce("living", n=RECORDS)
    node.stop()
    logagent(node, "cleanup", "--execute")  # looks, and remembers
    remembered, _ = metadata_end(node)

    node.metadata_dir.rename(true)
    shutil.copytree(backup, node.metadata_dir)
    node.start()
    asked = {"LOGAGENT_KAFKA__BOOTSTRAP_SERVERS": node.bootstrap}
    (aside,) = [path for d in node.log_dirs for path in d.glob("living-0.*-stray")]

    def nothing_goes() -> None:
        admin = {**asked, "LOGAGENT_ASSIGNMENTS__SOURCES": "admin"}
        for settings, command in (({}, "cleanup"), (asked, "cleanup"), (admin, "cleanup"), (asked, "rescue")):
            found = logagent(node, command, "--execute", settings=settings, allow=(0, 3, 4))
            assert found["actions"] == [], (settings, found["actions"])
        assert list(aside.iterdir())

    nothing_goes()
    wait_until(lambda: metadata_end(node)[0] > remembered, 120, "the log goes on", interval=0.5)
    nothing_goes()
    wait_until(lambda: metadata_end(node)[1] > remembered, 120, "a snapshot covers it", interval=0.5)
    nothing_goes()
    node.stop()
    nothing_goes()

    shutil.rmtree(node.metadata_dir)
    true.rename(node.metadata_dir)
    logagent(node, "restore", aside.name, "--execute", "--retention-will-delete")
    assert newest_record_ms(node) > 0
    all_records_after_a_restart_and_two_retention_checks(node, ("kept", 0), ("living", 0))
