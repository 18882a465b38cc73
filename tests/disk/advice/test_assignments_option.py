"""`--assignments FILE` that was asked for and cannot be used is an error: never "nothing to do" with status 0."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.kafka.files.exported import read_assignments, write_assignments
from logagent.kafka.image import AssignmentImage
from tests.command_line import run_here
from tests.forked import run_forked
from tests.host import Host

COMMANDS = [
    "scan",
    "cleanup",
    "cleanup --execute",
    "delete --topic x",
    "delete --partition orders-1 --execute",
    "restore STRAY",
    "check --quick",
    "prestart --budget 10m",
    "prestart --budget 10m --dry-run",
    "run --once",
]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host.from_disk(tmp_path)
    made.with_assignments()
    made.configure()
    return made


def exported(host: Host, change: Callable[[AssignmentImage], AssignmentImage]) -> Path:
    """What `host.with_assignments` wrote, changed, under another name."""
    file = host.root / "export.json"
    write_assignments(str(file), change(read_assignments(str(host.root / "assignments.json"))))
    return file


def socket_at(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(file))


PLANTED: dict[str, tuple[Callable[[Path], object] | None, int]] = {
    "missing": (None, 78),
    "empty": (Path.touch, 1),
    "object": (lambda f: f.write_text("{}"), 1),
    "list": (lambda f: f.write_text("[]"), 1),
    "directory": (Path.mkdir, 1),
    "fifo": (os.mkfifo, 1),
    "socket": (socket_at, 1),
    "device": (lambda f: f.symlink_to("/dev/zero"), 1),
    "dangling": (lambda f: f.symlink_to("nowhere"), 78),
}
OF_ANOTHER: dict[str, Callable[[AssignmentImage], AssignmentImage]] = {
    "old": lambda image: replace(image, at_ms=image.at_ms - 6 * 3_600_000),
    "future": lambda image: replace(image, at_ms=image.at_ms + 6 * 3_600_000),
    "cluster": lambda image: replace(image, cluster_id="AnotherClusterAnother1"),
    "no topics": lambda image: replace(image, by_id={}, by_name={}),
    # Of a clone, or exported before: our own log, which is days old here, has more.
    "past": lambda image: replace(image, offset=(image.offset or 0) - 1),
}


def refuses(host: Host, command: str, file: Path, status: int) -> None:
    command = command.replace("STRAY", next(iter(host.find("", "-stray")), "none"))
    before = host.partitions()
    # Apart, with a time limit: nobody ever writes to that FIFO.
    ran = run_forked(*host.arguments(*command.split(), "--assignments", str(file)))
    assert ran.status == status, ran.err
    assert "--assignments" in ran.err
    assert host.partitions() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_so(host: Host, command: str) -> None:
    """No command waits for the other end of a FIFO either."""
    file = host.root / "export.json"
    os.mkfifo(file)
    refuses(host, command, file, 1)


@pytest.mark.parametrize("command", ["prestart --budget 10m", "run --once"])
def test_also_those_that_nobody_watches(host: Host, command: str) -> None:
    refuses(host, command, host.root / "export.json", 78)


@pytest.mark.parametrize("planted", PLANTED)
def test_an_assignments_file_that_cannot_be_used_is_refused(host: Host, planted: str) -> None:
    make, status = PLANTED[planted]
    file = host.root / "export.json"
    if make is not None:
        make(file)
    refuses(host, "cleanup --execute", file, status)


@pytest.mark.parametrize("change", OF_ANOTHER)
def test_an_export_that_is_not_of_this_cluster_now(host: Host, change: str) -> None:
    refuses(host, "cleanup --execute", exported(host, OF_ANOTHER[change]), 1)


@pytest.mark.parametrize("command", ["queue", "history", "status"])
def test_a_command_that_reads_no_assignments_does_not_take_it(host: Host, command: str) -> None:
    ran = host.run(*command.split(), "--assignments", str(host.root / "assignments.json"))
    assert ran.status == 2
    assert "--assignments" in ran.err
    # A group: the options come after its command.
    checked = run_here("config", "check", "--assignments", str(host.root / "assignments.json"))
    assert checked.status == 2 and "--assignments" in checked.err


def test_doctor_reads_it_beside_a_configuration_that_is_wrong(host: Host) -> None:
    file = exported(host, lambda image: image)
    host.toml.write_text('[cleanup]\nmode = "nonsense"\n')
    told = ("--config", str(host.toml), "--kafka-config", str(host.properties), "--state-dir", str(host.state))
    document = run_here("doctor", *told, "--assignments", str(file), "--json").json
    assert document["assignments_source"] == "file", document["findings"]
