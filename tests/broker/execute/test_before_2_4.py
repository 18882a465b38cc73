"""The seed's story with real brokers: on 2.1.0 a topic with a long name is deleted, and the broker stays down.

`check` has warned of it, and says in the middle of the loop what it is and what helps; the other commands work on a
host whose log dirs have no cluster.id. Then a 3.5.2 starts on the same disk: it stays up, and the topic is gone. The
broker is its own: it dies.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.rig.jars import kafka_jars
from tests.broker.rig.kafka import KafkaNode, ZooKeeper
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig
from tests.command_line import Ran
from tests.disk.conftest import loop_fs
from tests.host import FREELY, Host

__all__ = ["loop_fs"]

LONG, LONGEST_THAT_GOES = "l" * 249, "g" * 213


class OldHost(Host):
    """A 2.1.0 on xfs with a ZooKeeper, installed as its archive unpacks: `config/` and `logs/` side by side."""

    def __init__(self, rig: Rig, root: Path, disk: Path) -> None:
        super().__init__(root, disk / "data")
        self.log_dir, self.quarantine, install = self.d1, disk / "quarantine", root / "install"
        self.quarantine.mkdir()
        zookeeper = ZooKeeper(root / "zookeeper", "3.5.2", rig.ports)
        self.zookeeper = f"127.0.0.1:{zookeeper.port}"
        self.node: KafkaNode = rig.kafka("2.1.0", [self.log_dir], "zookeeper", zookeeper=zookeeper)
        self.properties, self.log = install / "config" / "server.properties", install / "logs" / "server.log"
        for file in self.properties, self.log:
            file.parent.mkdir(parents=True)
        shutil.copy(self.node.config, self.properties)
        self.use("2.1.0")

    def use(self, version: str) -> None:
        settings: dict[str, object] = {
            "kafka.version": version,
            "cleanup.quarantine_dirs": [str(self.quarantine)], "cleanup.max_fraction": 1.0, "cleanup.max_dirs": 100,
            "cleanup.leftover_grace": "0s", "delete.file_delete_delay_ms": 0,
        }  # fmt: skip
        self.configure(**settings)

    def run(self, *arguments: str) -> Ran:
        shutil.copy(self.node.log_path, self.log)  # what log4j writes there
        return super().run(*arguments)

    def findings(self) -> dict[str, Any]:
        """By code, of the directory with the long name."""
        found = self.run("check", "--json").json["findings"]
        return {f["severity"]: f for f in found if f["code"] == "too-long-to-delete"}

    def dies(self) -> None:
        assert self.node.wait_exit(90) == 1, self.node.log_tail()


def test_the_loop_of_a_long_name_is_predicted_explained_and_ended_by_a_newer_release(
    loop_fs: Callable[..., Path], rig: Rig, tmp_path: Path
) -> None:
    host = OldHost(rig, tmp_path, loop_fs("xfs"))
    node = host.node.start()
    for topic in (LONG, LONGEST_THAT_GOES, "marked", "kept", "aside"):
        node.create_topic(topic)
    assert "cluster.id" not in (host.log_dir / "meta.properties").read_text()
    assert list(host.findings()) == ["warning"]
    assert host.findings()["warning"]["path"] == f"{host.log_dir}/{LONG}-0"
    node.delete_topic(LONGEST_THAT_GOES)

    node.ask(lambda admin: admin.delete_topics([LONG]))
    host.dies()
    fatal = host.findings()["fatal"]
    assert "KAFKA-4893" in fatal["says"] and str(host.log) in fatal["says"]
    assert "2.2.2" in fatal["hint"] and f"delete /admin/delete_topics/{LONG}" in fatal["hint"]

    everything_else_works_without_a_cluster_id(host)
    shutil.rmtree(host.log_dir / f"{LONG}-0")
    node.start_async()
    host.dies()
    assert (host.log_dir / f"{LONG}-0").is_dir(), "it was made anew, as the finding says"
    assert "fatal" in host.findings()

    node.use_version("3.5.2").start()
    host.use("3.5.2")
    wait_until(lambda: f"{LONG}-0" not in node.dir_names(), 60, "the broker marks the directory")
    assert node.alive and node.offline_dirs() == []
    assert node.topics() == sorted(["kept", "aside", "marked"])
    assert "cluster.id" in (host.log_dir / "meta.properties").read_text()
    node.stop()
    assert host.findings() == {}
    after = host.run("cleanup", "--json", "--execute")
    assert after.status == 0, f"the journal goes with the upgrade: {after}"


def test_without_its_marker_the_topic_lives_again(loop_fs: Callable[..., Path], rig: Rig, tmp_path: Path) -> None:
    """The other cure of the finding, as its hint says it."""
    host = OldHost(rig, tmp_path, loop_fs("xfs"))
    node = host.node.start()
    node.create_topic(LONG)
    records = node.produce(LONG, n=10)
    node.ask(lambda admin: admin.delete_topics([LONG]))
    host.dies()
    (command,) = re.findall(
        r"zookeeper-shell ZOOKEEPER (delete /admin/delete_topics/\S+)", host.findings()["fatal"]["hint"]
    )
    newer = kafka_jars("3.5.2")
    newer.run("org.apache.zookeeper.ZooKeeperMain", "-server", host.zookeeper, *command.split())

    node.start()
    assert [r.value for r in node.read_all(LONG)] == records
    assert node.alive and list(host.findings()) == ["warning"]


def everything_else_works_without_a_cluster_id(host: OldHost) -> None:
    """Each command; nothing is judged, so only what an operator names goes."""
    scanned = host.run("scan", "--json").json
    verdicts = {d["name"]: d.get("verdict") for d in scanned["dirs"]}
    assert scanned["cluster_id"] is None and verdicts["kept-0"] == "unknown"
    (gone,) = [q["name"] for q in host.run("queue", "--json").json["entries"]]
    assert gone.startswith("g" * 200) and gone.endswith("-delete")
    assert host.run("delete", "--json", "--partition", "marked-0", "--execute").guards() == {"marked-0": "assigned"}
    marked = host.run("delete", "--json", "--partition", "marked-0", *FREELY, "--execute")
    assert marked.outcomes() == {"marked-0": "done"}, marked
    aside = host.run("delete", "--json", "--quarantine", "--partition", "aside-0", *FREELY, "--execute")
    assert aside.outcomes() == {"aside-0": "done"}, aside
    assert [p.name[:8] for p in host.quarantine.iterdir() if p.is_dir()] == ["aside-0."]
    for mark in marked, aside:
        back = host.run("restore", "--json", "--plan", mark.json["plan_id"], "--retention-will-delete", "--execute")
        assert list(back.outcomes().values()) == ["done"], back
    assert {"marked-0", "aside-0"} <= set(host.node.dir_names())
    rescued = host.run("rescue", "--json")
    assert gone in [a["name"] for a in rescued.json["actions"]], rescued
    assert host.run("cleanup", "--json", "--execute").outcomes() == {gone: "done"}
    assert gone not in host.node.dir_names()
