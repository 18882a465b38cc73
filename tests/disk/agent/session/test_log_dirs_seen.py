"""A `server.properties` that lost a log dir (cut short, or empty, while it was being written) makes nothing current
twice, and nothing is done that rests on having seen all of them: the state dir remembers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from logagent.host.state.version_seen import LOG_DIRS_FILE_NAME, forget_other_log_dirs
from tests.cli_host import ALL_DUE, FREELY, NO_LIMITS, CliHost, Ran, delete

LATER = {**NO_LIMITS, "delete.file_delete_delay_ms": 7 * 86_400_000}


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    host = CliHost(tmp_path)
    host.configure(**LATER)
    assert host.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here
    return host


def seen(host: CliHost) -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads((host.state / LOG_DIRS_FILE_NAME).read_text())["log_dirs"]
    return found


def lose(host: CliHost) -> None:
    """As a file looks whose end is not written yet."""
    host.set_property(f"log.dirs={host.d1}")


def without_directory_ids(host: CliHost) -> None:
    """Before 3.7: the cluster's metadata names no log dir either."""
    for meta in host.disk.glob("*/meta.properties"):
        lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id")]
        meta.write_text("\n".join(lines) + "\n")
    host.configure(**LATER, **{"assignments.sources": ["admin"]})


def restore(host: CliHost, name: str, *arguments: str) -> Ran:
    return host.run("restore", "--json", "--retention-will-delete", name, *arguments)


def twice(host: CliHost) -> str:
    """orders-1 is current in d2, and an older copy of it is marked in d1."""
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0
    (name,) = host.find("orders-1.", "-delete")
    shutil.copytree(host.d2 / name, host.d2 / "orders-1")
    shutil.move(host.d2 / name, host.d1 / name)
    return name


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("execute", [(), ("--execute",)])
def test_no_partition_is_current_twice_after_a_restore(host: CliHost, execute: tuple[str, ...], old: bool) -> None:
    name = twice(host)
    if old:
        without_directory_ids(host)
    lose(host)
    ran = restore(host, name, *execute)
    (refusal,) = ran.json["refusals"]
    assert refusal["name"] == name and ran.deeds == [] and not (host.d1 / "orders-1").exists()
    assert f"does not name log dir {host.d2} any more" in refusal["fact"] and "restart logagent" in refusal["hint"]
    assert str(host.d2) in seen(host), "it is not forgotten by being looked at"


def test_nor_is_it_said_that_there_is_nothing_to_delete(host: CliHost) -> None:
    lose(host)
    ran = host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    assert ran.status == 5 and f"does not name log dir {host.d2} any more" in ran.err
    assert (host.d2 / "orders-1").is_dir()


def test_what_the_broker_marked_waits(host: CliHost) -> None:
    """It may be the source of a move to the log dir that is not seen."""
    name = f"orders-3.{'0123456789abcdef' * 2}-delete"
    (host.d1 / "orders-3").rename(host.d1 / name)
    without_directory_ids(host)
    host.configure(**NO_LIMITS, **ALL_DUE, **{"assignments.sources": ["admin"]})
    lose(host)
    ran = host.run("cleanup", "--json", "--execute")
    assert {w["name"]: w["claim"] for w in ran.json["waiting"]}[name] == "configuration", ran.out
    assert (host.d1 / name).is_dir()


def test_an_empty_file_forgets_nothing(host: CliHost) -> None:
    host.properties.write_text("")
    assert host.run("cleanup", "--json", "--execute").status in (0, 3, 5)
    assert set(seen(host)) == {str(host.d1), str(host.d2)}


def test_doctor_says_it(host: CliHost) -> None:
    lose(host)
    found = {f["code"]: f for f in host.run("doctor", "--json").json["findings"]}
    assert f"log dir {host.d2}" in found["log-dir-forgotten"]["says"]


def test_a_log_dir_under_another_path_is_no_loss(host: CliHost) -> None:
    """By its directory.id, and before 3.7 by what it is."""
    name = twice(host)
    (host.disk / "link").symlink_to(host.d2)
    host.set_property(f"log.dirs={host.d1},{host.disk}/link")
    for _ in range(2):
        (refusal,) = restore(host, name).json["refusals"]
        assert "any more" not in refusal["fact"], refusal
        without_directory_ids(host)


def test_an_operator_takes_it_away_by_a_restart(host: CliHost) -> None:
    name = twice(host)
    shutil.rmtree(host.d2 / "orders-1")
    without_directory_ids(host)
    lose(host)
    assert restore(host, name).json["refusals"] != []
    assert forget_other_log_dirs(str(host.state), [str(host.d1)]) == [str(host.d2)]
    assert restore(host, name, "--broker-will-delete").json["refusals"] == []
    # A configuration of something else is no word of an operator.
    assert forget_other_log_dirs(str(host.state), ["/tmp/kafka-logs"]) == []
    assert set(seen(host)) == {str(host.d1)}


def test_a_memory_that_cannot_be_read_is_no_permission(host: CliHost) -> None:
    name = twice(host)
    (host.state / LOG_DIRS_FILE_NAME).write_text("{")
    (refusal,) = restore(host, name).json["refusals"]
    assert LOG_DIRS_FILE_NAME in refusal["fact"] and "remove it" in refusal["hint"]
