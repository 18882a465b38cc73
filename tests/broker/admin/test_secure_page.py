"""docs/how-to/sasl-tls.md, with a real broker: its files as they stand there, and the rights that it lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.security import Certificates, SecureListener, acl_properties, add_scram_user, allow
from tests.command_line import Ran, run_here
from tests.markdown import ROOT, blocks
from tests.pasted import compare
from tests.waiting import wait_until

PAGE = ROOT / "docs/how-to/sasl-tls.md"
SASL, MUTUAL = (block.text for block in blocks(PAGE) if block.language == "properties")
RIGHTS = next(block.text for block in blocks(PAGE) if "kafka-acls.sh" in block.text)
(SAYS,) = (block for block in blocks(PAGE) if block.language == "console")


def _doctor(node: KafkaNode, client: Path, *options: str, addressed: bool = True) -> Ran:
    address = f'bootstrap_servers = "{node.secure_bootstrap}"\n' if addressed else ""
    config = client.with_name("logagent.toml")
    config.write_text(
        f'[kafka]\nconfig = "{node.config}"\n{address}client = "{client}"\n[assignments]\nsources = ["admin"]\n'
    )
    return run_here("doctor", *options, "--config", str(config), "--state-dir", str(client.with_name("state")))


def _problems(node: KafkaNode, client: Path) -> list[str]:
    """What `doctor` says of the assignments that it asks for with these properties, but for what works."""
    ran = _doctor(node, client, "--json")
    document = ran.json
    assert isinstance(document, dict), ran.err
    return [f["says"] for f in document["findings"] if f["area"] == "assignments" and f["state"] != "works"]


def test_the_file_with_sasl_and_the_rights(kafka: Callable[..., KafkaNode], tmp_path: Path) -> None:
    """A broker of its own, as nothing may be allowed there but what the page allows."""
    tls = Certificates.make(tmp_path / "tls")
    node = kafka("3.9.1", listener=SecureListener("SCRAM-SHA-512", {}, tls), props=acl_properties()).start()
    add_scram_user(node, "logagent", "of the user", "SCRAM-SHA-512")
    node.create_topic("orders")
    client = tmp_path / "client.properties"
    client.write_text(SASL.replace("/etc/logagent/ca.pem", str(tls.authority)).replace("PASSWORD", "of the user"))
    assert _problems(node, client), "without the rights it says so"
    assert "--allow-principal User:logagent" in _doctor(node, client, "--json").out
    # Where it is not set, the line to add has the listener that the file is for, not the plain one.
    assert f'bootstrap_servers = "{node.secure_bootstrap}"' in _doctor(node, client, addressed=False).out
    for line in RIGHTS.replace("\\\n", " ").splitlines():
        kind, name = ("CLUSTER", "kafka-cluster") if line.endswith("--cluster") else ("TOPIC", "*")
        for operation in re.findall(r"--operation (\w+)", line):
            allow(
                node, "logagent", {"Describe": "DESCRIBE", "DescribeConfigs": "DESCRIBE_CONFIGS"}[operation], kind, name
            )
    wait_until(lambda: _problems(node, client) == [], "it is answered", seconds=60)
    # What the page shows of doctor: this answer, and that to a wrong password.
    printed = _doctor(node, client).out
    client.write_text(client.read_text().replace("of the user", "another"))
    printed += _doctor(node, client).out
    assert node.secure_bootstrap is not None
    compare(SAYS, printed.replace(node.secure_bootstrap, "localhost:9093"))


def test_the_file_with_a_certificate(kafka: Callable[..., KafkaNode], tmp_path: Path) -> None:
    """A broker of its own, as it has to ask for certificates."""
    tls = Certificates.make(tmp_path / "tls")
    node = kafka("3.9.1", listener=SecureListener(None, {}, tls, client_auth=True)).start()
    node.create_topic("orders")
    client = tmp_path / "client.properties"
    text = MUTUAL.replace("/etc/logagent/ca.pem", str(tls.authority))
    client.write_text(text.replace("/etc/logagent/client.pem", str(tls.client)))
    wait_until(lambda: _problems(node, client) == [], "it is answered", seconds=60)
    client.write_text(text.partition("ssl.keystore")[0])
    assert _problems(node, client) != []
