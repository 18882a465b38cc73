"""An orphan of a ZooKeeper-mode broker: proven by the Admin API, set aside outside its log dirs, brought back.

A broker before 3.6.1 does not start with a `-stray` dir in a log dir, and loads every orphan it finds. The cluster is
its own, as brokers are stopped.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.broker.evidence.test_orphans_live import logagent, orphans, verdicts
from tests.broker.rig.kafka import ZooKeeperNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig
from tests.long_form import long_form

RECORDS = 50


@long_form
def test_a_replica_that_was_reassigned_while_its_broker_was_down(rig: Rig, tmp_path: Path) -> None:
    """Also where `kafka.version = 3.9.1` was left over from an upgrade that was rolled back: for it a -stray was made,
    and 3.5.2 did not start."""
    one = rig.kafka("3.5.2", mode="zookeeper", node_id=1)
    assert isinstance(one, ZooKeeperNode)
    one.start()
    two = rig.kafka("3.5.2", mode="zookeeper", node_id=2, zookeeper=one.zookeeper)
    two.start()
    # While ours is down one other broker proves nothing: it may have lost its session. Two must agree.
    three = rig.kafka("3.5.2", mode="zookeeper", node_id=3, zookeeper=one.zookeeper)
    three.start()
    wait_until(lambda: one.live_nodes() == {1, 2, 3}, 30, "the brokers are registered")
    for name in ("kept", "moved"):
        one.create_topic(name, assignments={0: [1, 2]})
        one.produce(name, 0, n=RECORDS)
    two.stop()
    one.reassign("moved", {0: [1]})
    wait_until(lambda: not one.reassignments(), 60, "the reassignment ends", interval=0.2)

    quarantine = tmp_path / "quarantine"
    quarantine.mkdir()
    admin = {
        "LOGAGENT_KAFKA__BOOTSTRAP_SERVERS": f"{one.bootstrap},{three.bootstrap}",
        "LOGAGENT_CLEANUP__STRAY_RETENTION": "30d",
        "LOGAGENT_CLEANUP__SIGHTINGS": "1",
    }
    # Started again it loads the orphan and keeps it; beside it nothing may be renamed.
    two.start()
    # Directories younger than a minute are not judged by the Admin API: brokers may lag behind each other.
    (moved,) = [d / "moved-0" for d in two.log_dirs if (d / "moved-0").is_dir()]
    hour_ago = time.time() - 3600
    os.utime(moved, (hour_ago, hour_ago))
    # The brokers agree once each has heard that this one is back.
    wait_until(
        lambda: orphans(logagent(two, "scan", settings=admin)) == {"moved-0": "not-a-replica"},
        300,
        "the others agree that moved-0 is an orphan",
        interval=1,
    )
    assert verdicts(logagent(two, "scan", settings=admin))["kept-0"][0] == "assigned"
    beside = logagent(two, "cleanup", "--execute", allow=(0, 3), settings=admin)
    assert [w["name"] for w in beside["waiting"] if "next stop" in w["reason"]] == ["moved-0"]
    rolled_back = {**admin, "LOGAGENT_KAFKA__VERSION": "3.9.1"}
    # As the daemon does in either mode, this remembers what runs.
    logagent(two, "cleanup", "--execute", allow=(0, 3), settings=rolled_back)
    two.stop()

    os.utime(moved, (hour_ago, hour_ago))
    # Not as a -stray in the log dir: 3.5.2 would not start any more.
    refused = logagent(two, "cleanup", "--execute", allow=(3,), settings=admin)
    assert [(r["name"], r["guard"]) for r in refused["refusals"]] == [("moved-0", "version")]
    for mode in (("--dry-run",), ()):  # the preview is what happens
        done = logagent(two, "prestart", "--budget", "60s", *mode, allow=(0, 3), settings=rolled_back)
        assert done["plan"]["actions"] == [], done["plan"]
        (refusal,) = done["plan"]["refusals"]
        assert (refusal["name"], refusal["guard"]) == ("moved-0", "version")
        assert "the broker last ran as 3.5.2, but kafka.version is 3.9.1: the older one counts" in refusal["fact"]
        assert "version-contradicted" in {f["code"] for f in done["findings"]}

    outside = {**admin, "LOGAGENT_CLEANUP__QUARANTINE_DIRS": str(quarantine)}
    three.stop()
    wait_until(lambda: one.live_nodes() == {1}, 30, "the others are gone")
    assert verdicts(logagent(two, "scan", settings=outside))["moved-0"][0] == "unknown"
    three.start()
    wait_until(lambda: one.live_nodes() == {1, 3}, 30, "the third is back")
    (done,) = logagent(two, "cleanup", "--execute", settings=outside)["actions"][:1]
    assert (done["action"], done["name"], done["outcome"]) == ("quarantine", "moved-0", "done")
    assert [p.name for p in quarantine.iterdir()] == [done["new_name"]]

    two.start()
    assert two.offline_dirs() == []
    assert "moved-0" not in two.dir_names()
    assert len(two.read_all("kept", 0)) == RECORDS
    two.stop()

    (back,) = logagent(two, "restore", done["new_name"], "--execute", settings=outside)["actions"]
    assert back["outcome"] == "done"
    assert list(quarantine.iterdir()) == []
    two.start()
    assert two.offline_dirs() == []
    assert "moved-0" in two.dir_names()
    two.stop()
    three.stop()
    one.stop()
