"""Every ```sh block of the README and of docs is run on a scratch host, as the broker's user.

The host is a real broker's disk (tests/fixtures/disks: node 3 of a 3.9.1 cluster, stopped while topics were deleted,
created again and reassigned) below /data, and what its cluster says now. A line ends with 0, or with the `exit status
N` of its comment. `PLAN_ID` stands for the id of a plan that the page has shown. A ```text block right after a ```sh
block is compared with what that printed: the words of each of its lines stand, in this order, in one line; `…` stands
for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host import Host
from tests.markdown import PAGES, blocks, name_of
from tests.pasted import HOME, Plans, compare, is_pasted_into, run
from tests.private_host import KAFKA_UID, PrivateHost, private_host

SHOWN = [page for page in PAGES if any(block.language == "sh" for block in blocks(page))]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PrivateHost]:
    disk = Host.from_disk(tmp_path / "disk")
    disk.with_assignments()
    with private_host(tmp_path / "host", PrivateHost) as one:
        one.run("cp", "-a", str(disk.disk), "/data")
        properties = disk.properties.read_text("latin-1").replace(str(disk.disk), "/data")
        one.write("/etc/kafka/server.properties", properties)
        one.write("/var/lib/logagent/assignments.json", (disk.root / "assignments.json").read_text())
        one.write("/etc/logagent/logagent.toml", _toml())
        is_pasted_into(one)
        one.run("chown", "-R", f"{KAFKA_UID}:{KAFKA_UID}", "/data", "/var/lib/logagent", HOME)
        one.run("cp", "-a", "/data", "/data.before")
        yield one


def _toml() -> str:
    return (
        '[kafka]\nconfig = "/etc/kafka/server.properties"\nversion = "3.9.1"\n'
        '[assignments]\nsources = ["file"]\nfile = "/var/lib/logagent/assignments.json"\n'
    )


def test_there_is_something_to_run() -> None:
    names = [name_of(page) for page in SHOWN]
    how_to = [name for name in names if name.startswith("docs/how-to/")]
    assert "README.md" in names and "docs/index.md" in names and len(how_to) > 8


def _full_again(host: PrivateHost) -> None:
    """The disk as it was, before what the page has freed, and the state dir that root makes."""
    host.run("sh", "-c", "rm -rf /data && cp -a /data.before /data")
    host.run("install", "-d", "-o", "kafka", "-g", "kafka", "-m", "750", "/run/logagent")


def _nothing_is_known(host: PrivateHost) -> None:
    """As on a host before 2.4: nobody says what is assigned here (the disk's own metadata log is too old)."""
    host.write("/etc/logagent/logagent.toml", _toml().replace('sources = ["file"]', 'sources = ["kraft-log"]'))


def _young(host: PrivateHost) -> None:
    """The records are as old as the disk: retention would delete what is restored."""
    properties = host.path("/etc/kafka/server.properties")
    properties.write_text(f"{properties.read_text()}\nlog.retention.hours=876000\n")


# What the text before a block supposes, by the beginning of the block.
GIVEN: dict[str, Callable[[PrivateHost], None]] = {
    "logagent rescue --state-dir /run": _full_again,
    "logagent queue    ": _nothing_is_known,
    "logagent delete --partition returns-2 --quarantine --execute\nlogagent history": _young,
}


# The ```bash blocks, by page and beginning: where they are run, or why not.
LIVE = "tests/broker/test_documents_run_live.py runs it as it is, with a real broker and Spark"
SECURE = "tests/broker/admin/test_secure_page.py has the page's files and rights, with a real broker"
ELSEWHERE = {
    ("README.md", "python3 -m venv"): ".ci/run ends with it",
    ("README.md", "sha256sum"): "tests/package/weeks.py runs these lines on a machine that boots",
    (
        "docs/how-to/containers.md",
        "packaging/build.sh",
    ): "tests/package/test_image.py makes the images so, and runs them",
    ("README.md", "logagent fleet ingest"): LIVE,
    ("docs/how-to/containers.md", "kubectl create"): "no cluster; tests/package/test_kubernetes.py reads the manifests",
    ("docs/how-to/containers.md", "kubectl annotate"): "no cluster, and no Strimzi: the page says so",
    ("docs/how-to/containers.md", "kubectl patch"): "no cluster, and no Strimzi: the page says so",
    ("docs/how-to/containers.md", "kubectl wait"): "no cluster, and no Strimzi: the page says so",
    ("docs/how-to/containers.md", "kubectl exec"): "not ours but `logagent status` and `scan`, which others run",
    ("docs/how-to/delete-a-topic.md", "export LOGAGENT_ORDERS_KEY_FILE"): LIVE,
    ("docs/how-to/delete-a-topic.md", "logagent topics purge"): LIVE,
    ("docs/first-day.md", "python3 -m venv"): ".ci/run ends with it",
    ("docs/first-day.md", "cd .."): "it removes the tutorial's directory",
    ("docs/how-to/fleet-report.md", "logagent fleet ingest"): LIVE,
    ("docs/how-to/fleet-report.md", "logagent fleet demo"): ".ci/run ends with it",
    (
        "docs/how-to/install.md",
        "sha256sum",
    ): "tests/package/booted.py installs it on a machine that boots",
    ("docs/how-to/install.md", "python3 -m venv"): ".ci/run ends with it",
    (
        "docs/how-to/install.md",
        "logagent setup NAME",
    ): "tests/package/test_installed.py: it wants the package, and root",
    (
        "docs/how-to/long-topic-names.md",
        "zookeeper-shell.sh",
    ): "Kafka's own, in tests/broker/execute/test_before_2_4.py",
    (
        "docs/how-to/object-stores.md",
        "logagent fleet ingest",
    ): "600 MB; tests/spark/ingest/test_object_store.py has less",
    (
        "docs/how-to/take-away.md",
        "kafka-reassign-partitions.sh",
    ): "Kafka's own, in tests/broker/check/test_leave_live.py",
    (
        "docs/how-to/from-report-to-enforce.md",
        "logagent config check",
    ): "tests/package/booted.py reloads the service of a machine that boots",
    ("docs/how-to/sasl-tls.md", "install -o root"): SECURE,
    ("docs/how-to/sasl-tls.md", "kafka-acls.sh"): SECURE,
    ("docs/how-to/sasl-tls.md", "kafka-configs.sh"): SECURE,
    ("docs/how-to/sasl-tls.md", "keytool"): "Java's and OpenSSL's own; tests/unit/kafka/admin has what is read",
    (
        "docs/reference/compatibility.md",
        "systemctl stop logagent && cp",
    ): "tests/package/weeks.py goes back with these lines on a machine that boots",
    ("docs/reference/compatibility.md", "systemctl stop logagent && mv"): "the same",
    ("docs/how-to/take-away.md", "kafka-cluster.sh"): "Kafka's own: nothing of it is ours",
}


def test_of_every_other_block_it_is_known_where_it_is_run_or_why_not() -> None:
    others = [(name_of(page), block.text) for page in PAGES for block in blocks(page) if block.language == "bash"]
    listed = {key for key in ELSEWHERE for page, text in others if page == key[0] and text.startswith(key[1])}
    assert len(others) == len(ELSEWHERE) and listed == ELSEWHERE.keys()


def test_every_given_is_of_a_block() -> None:
    texts = [block.text for page in SHOWN for block in blocks(page) if block.language == "sh"]
    assert [given for given in GIVEN if sum(text.startswith(given) for text in texts) != 1] == []


# All lines of these go through a shell, whatever they are.
PASTED = ("docs/index.md", "docs/how-to/install.md")


@pytest.mark.parametrize("page", SHOWN, ids=name_of)
def test_every_shell_block_works_as_pasted(page: Path, host: PrivateHost) -> None:
    printed, plans, entered = "", Plans(), list[str]()
    for block in blocks(page):
        if block.language == "sh":
            printed = ""
            for _, prepare in filter(lambda given: block.text.startswith(given[0]), GIVEN.items()):
                prepare(host)
            for line in filter(str.strip, block.text.splitlines()):
                if line.startswith("#"):
                    continue
                if line.startswith(("cd ", ". ", "export ")):
                    entered.append(line)  # into every later line's shell, too
                    continue
                out = run(host, plans.named(line), entered, shell=name_of(page) in PASTED)
                plans.remember(out)
                printed += out
        elif block.language == "text" and block.follows:
            compare(block, printed)
