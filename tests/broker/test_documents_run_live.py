"""The ```bash blocks that want a fleet or a live broker, run as pasted: on a host with a real broker, whose agent
publishes to a store and takes signed requests, by its operator on another machine.

It is a long form: Spark is started three times. The default run has the lines of the fleet in
tests/spark/test_documents_run.py. The other ```bash blocks are listed in tests/disk/cli/test_documents_run.py, with the
reason why they are not run. The broker is its own, as it runs on a private host.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.rig.kafka import KafkaNode, KraftNode
from tests.broker.rig.process import wait_until
from tests.long_form import long_form
from tests.markdown import ROOT, blocks
from tests.needs import need_command
from tests.pasted import HOME, STORE, is_pasted_into, run
from tests.private_host import KAFKA_UID, PrivateHost, private_host

# A request for more than a tenth of the topics wants an approval.
TOPICS = ["clicks.eu", *(f"orders-{n}" for n in range(12))]
CREATE = """
import sys
from kafka.admin import KafkaAdminClient, NewTopic
with KafkaAdminClient(bootstrap_servers="broker1:9092") as admin:
    admin.create_topics([NewTopic(name, 1, 1) for name in sys.argv[1:]])
"""
# The machine of the agent is another one than that of the operator.
ELSEWHERE = ["unshare", "--uts", "sh", "-c", 'hostname kafka-1; exec setpriv "$@"', "sh",
             f"--reuid={KAFKA_UID}", f"--regid={KAFKA_UID}", "--clear-groups"]  # fmt: skip
FASTER = {"ORDERS__INTERVAL": "1s", "PUBLISH__INTERVAL": "5s", "CLEANUP__INTERVAL": "5s", "GUARD__SETTLE": "1s"}


@pytest.fixture
def host(kafka: Callable[..., KafkaNode], tmp_path: Path) -> Iterator[PrivateHost]:
    need_command("java")
    node = kafka("3.9.1", log_dirs=1)
    assert isinstance(node, KraftNode)
    node.configure({
        "listeners": f"PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:{node.controller[1]}",
        "advertised.listeners": "PLAINTEXT://broker1:9092",
    })  # fmt: skip
    with private_host(tmp_path / "host", PrivateHost) as one:
        is_pasted_into(one)
        for above in {above for jar in node.jars.classpath.split(":") for above in Path(jar).parents}:
            one.path(str(above)).chmod(0o755)
        one.write("/etc/hosts", f"127.0.0.1 localhost broker1 {os.uname().nodename}\n")
        one.run("cp", "-a", str(node.root), "/data")
        one.write("/etc/kafka/server.properties", node.config.read_text().replace(str(node.root), "/data"))
        one.run("mkdir", "-p", "/var/lib/logagent")
        one.run("chown", "-R", f"{KAFKA_UID}:{KAFKA_UID}", "/data", "/var/lib/logagent", HOME)
        environment = [f"CLASSPATH={node.jars.classpath}"]
        broker = ["env", *environment, *node.jars.command("kafka.Kafka", "/etc/kafka/server.properties")]
        log = tmp_path / "node.log"
        with one.process(*broker, user="kafka", log=log):
            wait_until(lambda: re.search(node.ready_line, log.read_text()) is not None, 90, "the broker serves")
            one.run(sys.executable, "-c", CREATE, *TOPICS)
            yield one


@long_form
def test_a_topic_is_deleted_on_every_host_and_the_fleet_reported_as_the_pages_say(
    host: PrivateHost, tmp_path: Path
) -> None:
    topics, report = ROOT / "docs/how-to/delete-a-topic.md", ROOT / "docs/how-to/fleet-report.md"
    once, delete, purge = (block.text for block in blocks(topics) if block.language in ("sh", "bash"))
    init, check, ingest, _ = (block.text for block in blocks(report) if block.language in ("sh", "bash"))
    (of_readme,) = (b.text for b in blocks(ROOT / "README.md") if b.language == "bash" and "fleet ingest" in b.text)
    pasted(host, init)
    (line,) = re.findall(r"^ops-\w+:\S+$", pasted(host, once), re.MULTILINE)
    settings = next(block.text for block in blocks(topics) if block.language == "toml")
    assert "KEY_ID:BASE64" in settings
    kafka = '[kafka]\nconfig = "/etc/kafka/server.properties"\nbootstrap_servers = "broker1:9092"\n'
    host.write("/etc/logagent/logagent.toml", kafka + settings.replace("KEY_ID:BASE64", line))
    pasted(host, check)
    with ExitStack() as stack:
        faster = [f"LOGAGENT_{name}={value}" for name, value in FASTER.items()]
        agent = ["env", *faster, *host.logagent_command("run", "--log-format", "json")]
        stack.enter_context(host.process(*ELSEWHERE, *agent, log=tmp_path / "agent.log"))
        landing = host.path(STORE) / "landing"
        wait_until(lambda: any(landing.rglob("*.manifest.json")), 120, "the agent publishes")
        ran = pasted(host, ingest)
        assert host.path(f"{HOME}/reports/latest/index.html").exists(), ran
        assert "clicks.eu" in pasted(host, of_readme)
        ran = pasted(host, delete)
        assert not list(host.path("/data/d1").glob("clicks.eu-0")), ran
        assert pasted(host, purge).count("no row of the report was selected") == 2


def pasted(host: PrivateHost, text: str) -> str:
    """What the lines of a block printed."""
    printed, exported = "", list[str]()
    for line in filter(str.strip, text.splitlines()):
        if line.startswith("export "):
            exported.append(line)
        else:
            printed += run(host, line, exported)
    return printed
