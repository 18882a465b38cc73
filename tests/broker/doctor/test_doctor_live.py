"""Real brokers in the layouts that people have: an archive in /opt, Confluent's packages, a distribution's package.

Each runs on a private host (`tests/private_host.py`), where its files are where such an installation has them, and
`logagent` has to find it, its version and its user without being told anything.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.broker.rig.jars import JVM_FLAGS, kafka_jars
from tests.disk.doctor_host import Diagnosis, DoctorHost
from tests.private_host import private_host
from tests.waiting import wait_until

VERSION = "3.9.1"
CONFLUENT = "7.9.1-ccs"
SCRIPT = """#!/bin/sh
base=$(dirname "$0")
for jar in "$base"/{libs}/*.jar; do CLASSPATH=$CLASSPATH:$jar; done
exec java {flags} -cp "${{CLASSPATH#:}}" ${{KAFKA_CLASS:-kafka.Kafka}} "$@"
"""
WRAPPER = """#!/bin/sh
exec /usr/share/kafka/bin/kafka-server-start.sh "$@"
"""
BROKER_UNIT = "[Service]\nUser=kafka\nExecStart={script} {config}\n"
SAMPLE = "process.roles={roles}\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\nlog.dirs={log_dirs}\n"
AGENT_UNIT = "[Service]\nUser=kafka\nGroup=kafka\nExecStart=/usr/bin/logagent run\nStateDirectory=logagent\n"
OVERRIDE = "/etc/systemd/system/logagent.service.d/override.conf"


@dataclass(frozen=True)
class Layout:
    """Where an installation has its things. `jars`: the directory; `libs`: as its start script reaches it."""

    name: str
    script: str
    config: str
    jars: str
    libs: str
    data: str
    port: int
    unit: str

    @property
    def version(self) -> str:
        """As its jars tell it. Confluent's 7.9.x is Apache's 3.9, of which the oldest patch is assumed."""
        return "3.9.0" if self.name == "confluent" else VERSION


TARBALL = Layout(
    "tarball",
    "/opt/kafka/bin/kafka-server-start.sh",
    "/opt/kafka/config/kraft/server.properties",
    "/opt/kafka_2.13-3.9.1/libs",
    "../libs",
    "/srv/kafka/tarball",
    9092,
    "kafka.service",
)
CONFLUENT_PACKAGES = Layout(
    "confluent",
    "/usr/bin/kafka-server-start",
    "/etc/kafka/server.properties",
    "/usr/share/java/kafka",
    "../share/java/kafka",
    "/srv/kafka/confluent",
    9192,
    "confluent-kafka.service",
)
DISTRIBUTION = Layout(
    "distribution",
    "/usr/bin/kafka-server-start.sh",
    "/etc/kafka/server.properties",
    "/usr/share/kafka/libs",
    "../libs",
    "/var/lib/kafka",
    9292,
    "kafka.service",
)


class LiveHost(DoctorHost):
    """A private host on which Kafka can be installed and started."""

    def install(self, layout: Layout) -> None:
        cached = Path(kafka_jars(VERSION).classpath.split(":")[0]).parent
        for above in (cached, *cached.parents):
            self.path(str(above)).chmod(self.path(str(above)).stat().st_mode | 0o055)
        self.path(layout.jars).mkdir(parents=True)
        if layout is TARBALL:
            self.path("/opt/kafka").symlink_to("kafka_2.13-3.9.1")
            self._samples()
        if layout is CONFLUENT_PACKAGES:
            for jar in cached.glob("*.jar"):
                theirs = self.path(layout.jars) / jar.name.replace(f"-{VERSION}.jar", f"-{CONFLUENT}.jar")
                if theirs.name != jar.name:
                    shutil.copyfile(jar, theirs)
                else:
                    theirs.symlink_to(jar)
        else:
            self.run("mount", "--bind", str(cached), layout.jars)
        script = SCRIPT.format(libs=layout.libs, flags=" ".join(JVM_FLAGS))
        if layout is DISTRIBUTION:
            self.write("/usr/share/kafka/bin/kafka-server-start.sh", script, 0o755)
            script = WRAPPER
        self.write(layout.script, script, 0o755)
        self.write(f"/usr/lib/systemd/system/{layout.unit}", BROKER_UNIT.format(**vars(layout)))
        log_dirs = f"{layout.data}/d1,{layout.data}/d2"
        listeners = f"PLAINTEXT://127.0.0.1:{layout.port},CONTROLLER://127.0.0.1:{layout.port + 1}"
        self.write(
            layout.config,
            f"process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{layout.port + 1}\nlisteners={listeners}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{layout.port}\nlog.dirs={log_dirs}\n"
            "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n",
        )
        self.path(layout.data).mkdir(parents=True)
        self.own(layout.data)

    def _samples(self) -> None:
        """What lies beside the configuration in the archive, as it came."""
        folder = "/opt/kafka/config"
        self.write(f"{folder}/server.properties", "broker.id=0\nlog.dirs=/tmp/kafka-logs\nzookeeper.connect=x:2181\n")
        self.write(
            f"{folder}/kraft/broker.properties", SAMPLE.format(roles="broker", log_dirs="/tmp/kraft-broker-logs")
        )
        text = SAMPLE.format(roles="controller", log_dirs="/tmp/kraft-controller-logs")
        self.write(f"{folder}/kraft/controller.properties", text)

    def format(self, layout: Layout) -> None:
        tool = ["env", "KAFKA_CLASS=kafka.tools.StorageTool", layout.script, "format", "-t", "abcdefghijklmnopqrstuw"]
        self.run(*tool, "-c", layout.config, user="kafka")

    @contextmanager
    def broker(self, layout: Layout, log: Path, *arguments: str, capability: str | None = None) -> Iterator[int]:
        """The broker, started by the layout's own script and serving; its process number inside."""
        options = [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"] if capability else []
        with self.process(layout.script, layout.config, *arguments, user="kafka", options=options, log=log) as pid:

            def started() -> object:
                assert self.path(f"/proc/{pid}").exists(), log.read_text()[-3000:]
                return re.search(r"Kafka Server started \(", log.read_text())

            wait_until(started, f"the broker starts: {log}", 600)
            yield pid

    def name(self, layout: Layout) -> None:
        """To the daemon, which looks for no broker."""
        self.write(OVERRIDE, f'[Service]\nEnvironment="LOGAGENT_KAFKA__CONFIG={layout.config}"\n')

    def agent(self) -> None:
        """The agent's unit and state dir, and nothing in /etc/logagent."""
        self.write("/usr/lib/systemd/system/logagent.service", AGENT_UNIT)
        self.path("/var/lib/logagent").mkdir(parents=True)
        self.own("/var/lib/logagent")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LiveHost]:
    with private_host(tmp_path / "host", LiveHost) as made:
        made.agent()
        yield made


def is_found(said: Diagnosis, layout: Layout, pid: int | None, version: str) -> None:
    """It is found as it is, and everything works."""
    document = said.document
    assert (said.status, said.codes("fails")) == (0, set()), said.findings
    assert (document["kafka_config"], document["kafka_version"]) == (layout.config, version)
    assert document["at_least"] is False
    assert [d["path"] for d in document["log_dirs"]] == [f"{layout.data}/d1", f"{layout.data}/d2"]
    assert {d["holder"]["pid"] for d in document["log_dirs"]} == {pid}
    (broker,) = (b for b in document["brokers"] if b["chosen"])
    assert (broker["pid"], broker["unit"]) == (pid, layout.unit)
    assert document["user"] == {"name": "kafka", "uid": 6092, "how": "the user of logagent.service", "service": True}
    if pid is not None:
        assert "descriptors" in said.codes("works")
        # Nobody has made a topic yet.
        assert "assignments-empty" in said.codes("warning")
        assert (document["assignments_source"], broker["user"]) == ("kraft-log", "kafka")


def scanned(host: LiveHost, *words: str) -> Any:
    ran = host.logagent("scan", "--json", *words, user="kafka")
    assert ran.status == 0, ran.err
    return json.loads(ran.out)


def test_a_distributions_package(host: LiveHost, tmp_path: Path) -> None:
    host.install(DISTRIBUTION)
    host.format(DISTRIBUTION)
    assert host.diagnose().codes("fails") == {"daemon-unnamed"}
    host.name(DISTRIBUTION)
    is_found(host.diagnose(), DISTRIBUTION, None, DISTRIBUTION.version)
    assert scanned(host)["kafka_version"] == DISTRIBUTION.version
    with host.broker(DISTRIBUTION, tmp_path / "broker.log", "--override", "delete.topic.enable=false") as pid:
        said = host.diagnose()
        # What only the command line says is said.
        change = said.change("broker-overrides")
        assert (said.status, change["file"], change["line"]) == (1, DISTRIBUTION.config, "delete.topic.enable=false")
        host.write(DISTRIBUTION.config, host.path(DISTRIBUTION.config).read_text() + "# changed since\n")
        assert said.document["log_dirs"][0]["holder"]["pid"] == pid
        assert said.document["kafka_version"] == VERSION
        # As another user the broker cannot be looked into, and then nothing can be done.
        said = host.diagnose("--user", "mallory")
        assert "other-user" in said.codes() and said.change("other-user")["line"] == "User=kafka"
        host.run("mount", "-o", "remount,hidepid=2", "/proc")
        assert "hidepid" in host.diagnose("--user", "mallory").codes("warning")
        # The broker's own user still sees it.
        assert "descriptors" in host.diagnose(user="kafka").codes("works")


def test_an_archive_in_opt_and_confluents_packages_beside_it(host: LiveHost, tmp_path: Path) -> None:
    with ExitStack() as stack:
        host.install(TARBALL)
        host.format(TARBALL)
        host.name(TARBALL)
        is_found(host.diagnose(), TARBALL, None, TARBALL.version)
        first = stack.enter_context(host.broker(TARBALL, tmp_path / "tarball.log"))
        is_found(host.diagnose(), TARBALL, first, TARBALL.version)
        assert scanned(host)["kafka_version"] == TARBALL.version

        host.install(CONFLUENT_PACKAGES)
        host.format(CONFLUENT_PACKAGES)
        capability = "net_bind_service"
        running = host.broker(CONFLUENT_PACKAGES, tmp_path / "confluent.log", capability=capability)
        second = stack.enter_context(running)
        is_asked_for(host, {TARBALL: first, CONFLUENT_PACKAGES: second})
        is_hidden_by_its_capabilities(host)
        is_another_brokers(host, second)

    # With the archive gone, what is left is Confluent's.
    host.name(CONFLUENT_PACKAGES)
    host.run("rm", "-rf", "/opt/kafka", TARBALL.data, f"/usr/lib/systemd/system/{TARBALL.unit}")
    is_found(host.diagnose(), CONFLUENT_PACKAGES, None, CONFLUENT_PACKAGES.version)


def is_asked_for(host: LiveHost, running: dict[Layout, int]) -> None:
    """Two brokers: neither is chosen, both are named, and either way of naming one picks it."""
    said = host.diagnose()
    assert said.status == 78
    found = {f["path"]: f for f in said.findings if f["code"] == "broker-ambiguous"}
    assert set(found) == {layout.config for layout in running}
    for layout, pid in running.items():
        assert f"process {pid} runs with it" in found[layout.config]["says"]
        assert found[layout.config]["change"]["line"] == f'config = "{layout.config}"'
    ran = host.logagent("scan", user="kafka")
    assert ran.status == 78
    assert [layout for layout in running if layout.config not in ran.err] == []
    for layout, pid in running.items():
        picked = host.diagnose("--kafka-config", layout.config).document
        assert {d["holder"]["pid"] for d in picked["log_dirs"]} == {pid}
        assert picked["kafka_version"] == layout.version
    host.configure("/etc/logagent/b.toml", kafka__config=CONFLUENT_PACKAGES.config, kafka__version=None)
    picked = scanned(host, "--config", "/etc/logagent/b.toml")
    host.path("/etc/logagent/b.toml").unlink()
    assert [d["path"] for d in picked["log_dirs"]] == [f"{CONFLUENT_PACKAGES.data}/d1", f"{CONFLUENT_PACKAGES.data}/d2"]


def is_hidden_by_its_capabilities(host: LiveHost) -> None:
    said = host.diagnose("--kafka-config", CONFLUENT_PACKAGES.config)
    change = said.change("broker-capabilities")
    assert said.status == 1 and change["file"] == OVERRIDE
    assert change["line"].splitlines() == ["AmbientCapabilities=CAP_SYS_PTRACE", "CapabilityBoundingSet=CAP_SYS_PTRACE"]
    # An agent with that capability sees it.
    words = host.logagent_command("doctor", "--json", "--kafka-config", CONFLUENT_PACKAGES.config)
    able = host.run("setpriv", "--reuid=kafka", "--regid=kafka", "--init-groups", *PTRACE, *words, check=False)
    assert able.returncode == 0, able.stdout


PTRACE = ("--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace")


def is_another_brokers(host: LiveHost, pid: int) -> None:
    """A configuration that names the log dirs of a broker which runs with another one."""
    host.write("/etc/kafka/copy.properties", host.path(CONFLUENT_PACKAGES.config).read_text())
    said = host.diagnose("--kafka-config", "/etc/kafka/copy.properties")
    assert f"process {pid} " in said.of("other-config")["says"]
    assert said.change("other-config")["line"] == f'config = "{CONFLUENT_PACKAGES.config}"'
    assert said.status == 1
