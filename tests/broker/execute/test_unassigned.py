"""What a KRaft broker before 3.7 does at its start with a directory that is not assigned to it, and what we say of it.

The default run takes one version; `tests/run --full` takes three. The broker is its own, as it is stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.evidence.test_orphans_live import logagent
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.long_form import versions

VERSIONS = versions("3.5.2", "3.3.2", "3.6.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_it_deletes_it_so_a_restore_needs_consent(
    kafka: Callable[..., KafkaNode], version: str, tmp_path: Path
) -> None:
    node = kafka(version, log_dirs=1).start()
    # Enough that stay for the one that goes to be within the blast radius.
    for number in range(12):
        node.create_topic(f"kept{number}")
    node.create_topic("gone")
    node.produce("gone", n=20)
    node.stop()
    (log_dir,) = node.log_dirs
    copy = shutil.copytree(log_dir / "gone-0", tmp_path / "copy")
    node.start()
    node.delete_topic("gone")
    node.stop()
    # Before 3.6 it removes what it marked half a minute after its start only.
    (marked,) = log_dir.glob("gone-0.*-delete")
    shutil.rmtree(marked)
    shutil.copytree(copy, log_dir / "gone-0")  # as an outage of its log dir leaves it

    aside = tmp_path / "aside"
    aside.mkdir()
    settings = {"LOGAGENT_KAFKA__VERSION": version, "LOGAGENT_CLEANUP__QUARANTINE_DIRS": str(aside)}
    found = logagent(node, "check", settings=settings, allow=(0, 4))["findings"]
    assert [f["path"] for f in found if f["code"] == "deleted-at-start"] == [str(log_dir / "gone-0")]
    logagent(node, "delete", "--topic", "gone", "--quarantine", "--execute", settings=settings)
    (stray,) = aside.iterdir()
    (refused,) = logagent(node, "restore", stray.name, "--execute", settings=settings, allow=(3,))["refusals"]
    assert "a KRaft broker deletes what is not assigned to it" in refused["fact"]

    logagent(node, "restore", stray.name, "--broker-will-delete", "--execute", settings=settings)
    assert (log_dir / "gone-0").is_dir()
    node.start()
    wait_until(lambda: not (log_dir / "gone-0").exists(), 90, "the broker deletes what is not assigned to it")
    assert len(list(log_dir.glob("gone-0.*-delete"))) == 1, list(log_dir.iterdir())
    assert node.offline_dirs() == []
