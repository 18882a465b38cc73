"""A `server.properties` that lost a log dir (cut short, or empty, while it was being written) makes nothing current
twice, and nothing is done that rests on having seen all of them: the state dir remembers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.kafka.files.exported import read_assignments, write_assignments
from logagent.kafka.image import AssignmentImage
from logagent.verdict.evidence.version_seen import LOG_DIRS_FILE_NAME, forget_other_log_dirs
from tests.command_line import LOCKER, Ran, process
from tests.disk.conftest import run, unmount
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete
from tests.kafka_disks import metadata_dir

LATER = {**NO_LIMITS, "delete.file_delete_delay_ms": 7 * 86_400_000}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host.from_disk(tmp_path)
    host.configure(**LATER)
    assert host.run("cleanup", "--execute").status in (0, 3)  # 3: the disk has strays of topics that live here
    return host


def seen(host: Host) -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads((host.state / LOG_DIRS_FILE_NAME).read_text())["log_dirs"]
    return found


def lose(host: Host) -> None:
    """As a file looks whose end is not written yet."""
    host.set_property(f"log.dirs={host.d1}")


def without_directory_ids(host: Host) -> None:
    """Before 3.7: the cluster's metadata names no log dir either."""
    for meta in host.disk.glob("*/meta.properties"):
        lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id")]
        meta.write_text("\n".join(lines) + "\n")
    host.configure(**LATER, **{"assignments.sources": ["admin"]})


def restore(host: Host, name: str, *arguments: str) -> Ran:
    return host.run("restore", "--json", "--retention-will-delete", name, *arguments)


def twice(host: Host) -> str:
    """orders-1 is current in d2, and an older copy of it is marked in d1."""
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0
    (name,) = host.find("orders-1.", "-delete")
    shutil.copytree(host.d2 / name, host.d2 / "orders-1")
    shutil.move(host.d2 / name, host.d1 / name)
    return name


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("execute", [(), ("--execute",)])
def test_no_partition_is_current_twice_after_a_restore(host: Host, execute: tuple[str, ...], old: bool) -> None:
    name = twice(host)
    if old:
        without_directory_ids(host)
    lose(host)
    ran = restore(host, name, *execute)
    (refusal,) = ran.json["refusals"]
    assert refusal["name"] == name and ran.deeds == [] and not (host.d1 / "orders-1").exists()
    assert f"does not name log dir {host.d2} any more" in refusal["fact"] and "restart logagent" in refusal["hint"]
    assert str(host.d2) in seen(host), "it is not forgotten by being looked at"


def test_nor_is_it_said_that_there_is_nothing_to_delete(host: Host) -> None:
    lose(host)
    ran = host.run("delete", "--partition", "orders-1", *FREELY, "--execute")
    assert ran.status == 5 and f"does not name log dir {host.d2} any more" in ran.err
    assert (host.d2 / "orders-1").is_dir()


def test_what_the_broker_marked_waits(host: Host) -> None:
    """It may be the source of a move to the log dir that is not seen."""
    name = f"orders-3.{'0123456789abcdef' * 2}-delete"
    (host.d1 / "orders-3").rename(host.d1 / name)
    without_directory_ids(host)
    host.configure(**NO_LIMITS, **ALL_DUE, **{"assignments.sources": ["admin"]})
    lose(host)
    ran = host.run("cleanup", "--json", "--execute")
    assert {w["name"]: w["claim"] for w in ran.json["waiting"]}[name] == "configuration", ran.out
    assert (host.d1 / name).is_dir()


def test_an_empty_file_forgets_nothing(host: Host) -> None:
    host.properties.write_text("")
    assert host.run("cleanup", "--json", "--execute").status in (0, 3, 5)
    assert set(seen(host)) == {str(host.d1), str(host.d2)}


def test_doctor_says_it(host: Host) -> None:
    lose(host)
    found = {f["code"]: f for f in host.run("doctor", "--json").json["findings"]}
    assert f"log dir {host.d2}" in found["log-dir-forgotten"]["says"]


def test_a_log_dir_under_another_path_is_no_loss(host: Host) -> None:
    """By its directory.id, and before 3.7 by what it is."""
    name = twice(host)
    (host.disk / "link").symlink_to(host.d2)
    host.set_property(f"log.dirs={host.d1},{host.disk}/link")
    for _ in range(2):
        (refusal,) = restore(host, name).json["refusals"]
        assert "any more" not in refusal["fact"], refusal
        without_directory_ids(host)


def test_an_operator_takes_it_away_by_a_restart(host: Host) -> None:
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


def test_a_memory_that_cannot_be_read_is_no_permission(host: Host) -> None:
    name = twice(host)
    (host.state / LOG_DIRS_FILE_NAME).write_text("{")
    (refusal,) = restore(host, name).json["refusals"]
    assert LOG_DIRS_FILE_NAME in refusal["fact"] and "remove it" in refusal["hint"]


# What a start would make anew.


def findings(ran: Ran, code: str = "log-dir-forgotten") -> list[Any]:
    return [f for f in ran.json["findings"] if f["code"] == code]


def assigned(host: Host, *, in_sync: set[int], ids: bool = True) -> None:
    """What the host's metadata log says, as an export of now, with these nodes in sync."""
    host.with_assignments(**LATER)
    file = str(host.root / "assignments.json")
    image = read_assignments(file)
    for topic in image.by_name.values():
        for number, p in topic.partitions.items():
            isr = tuple(n for n in p.replicas if n in in_sync) or p.replicas
            topic.partitions[number] = p._replace(isr=isr, directories=p.directories if ids else ())
    write_assignments(file, image)


def test_check_scan_and_doctor_say_the_same_of_a_log_dir_that_left(host: Host) -> None:
    lose(host)
    (checked,) = findings(host.run("check", "--json"))
    (scanned,) = host.run("scan", "--json").json["forgotten_log_dirs"]
    told = [f["says"] for f in findings(host.run("doctor", "--json")) if f["path"] == str(host.d2)]
    assert checked["path"] == scanned["path"] == str(host.d2) and scanned["known"] and told == [checked["says"]]
    assert "orders-1" in scanned["partitions"] and scanned["only_copies"] == 0
    assert "makes them anew, empty" in checked["says"] and "duplicates" in checked["says"]
    assert "put it back into log.dirs" in checked["hint"] and "once what is in it is elsewhere" in checked["hint"]
    assert checked["says"] in host.run("scan").err


@pytest.mark.parametrize(("in_sync", "severity", "status"), [({3}, "fatal", 6), ({1, 2, 3}, "warning", 0)])
def test_only_what_loses_records_keeps_a_broker_down(host: Host, in_sync: set[int], severity: str, status: int) -> None:
    """A dead disk is left out of log.dirs, and what has other replicas in sync is copied again."""
    assigned(host, in_sync=in_sync)
    lose(host)
    (finding,) = findings(host.run("check", "--json"))
    assert finding["severity"] == severity
    ran = host.run("prestart", "--strict", "--dry-run", "--budget", "60s", "--json")
    assert ran.status == status and len(findings(ran)) == 1


def gone(host: Host) -> None:
    shutil.rmtree(host.d2)


def unmounted(host: Host) -> None:
    gone(host)
    host.d2.mkdir()


def without_memory(host: Host) -> None:
    shutil.rmtree(host.state)


def by_the_journal(host: Host) -> None:
    """The state dir has a journal with entries about it, and no list of log dirs."""
    assert delete(host, "--partition", "orders-2", *FREELY).status == 0
    (host.state / LOG_DIRS_FILE_NAME).unlink()


@pytest.mark.parametrize("how", [gone, unmounted, without_memory, by_the_journal])
def test_it_is_known_by_its_id_whatever_became_of_its_disk(host: Host, how: Callable[[Host], None]) -> None:
    how(host)
    lose(host)
    (scanned,) = host.run("scan", "--json").json["forgotten_log_dirs"]
    assert scanned["known"] and scanned["directory_id"] and "orders-1" in scanned["partitions"]
    assert scanned["path"] == (None if how is without_memory else str(host.d2))


def test_before_directory_ids_it_is_known_by_what_lies_in_it(host: Host) -> None:
    assigned(host, in_sync={3}, ids=False)
    toml = host.toml.read_text()
    without_directory_ids(host)
    host.toml.write_text(toml)
    lose(host)
    for how, known in ((None, True), (gone, False)):
        if how is not None:
            how(host)
        (finding,) = findings(host.run("check", "--json"))
        assert finding["path"] == str(host.d2) and finding["severity"] == ("fatal" if known else "warning")


def test_without_assignments_it_is_possible(host: Host) -> None:
    without_directory_ids(host)
    lose(host)
    for how in (None, gone):
        if how is not None:
            how(host)
        (finding,) = findings(host.run("check", "--json"))
        assert finding["severity"] == "warning" and "no assignments say" in finding["says"]


def of_nothing(image: AssignmentImage) -> AssignmentImage:
    return replace(image, by_id={}, by_name={})


def of_yesterday(image: AssignmentImage) -> AssignmentImage:
    """Before what is in the log dir that left was made."""
    kept = {name: topic for name, topic in image.by_name.items() if name == "kept"}
    early_ms = image.at_ms - 86_400_000
    return replace(of_nothing(image), by_name=kept, at_ms=early_ms, known_until_ms=early_ms)


@pytest.mark.parametrize("made", [of_nothing, of_yesterday])
def test_nor_do_assignments_that_do_not_count_say_that_all_is_well(
    host: Host, made: Callable[[AssignmentImage], AssignmentImage]
) -> None:
    """Nothing was missing by them, so nobody asked what had left: less was said than with no assignments at all."""
    assigned(host, in_sync={3}, ids=False)
    write_assignments(file := str(host.assignments), made(read_assignments(file)))
    lose(host)
    ran = host.run("check", "--json")
    (left,), (unknown,) = findings(ran), findings(ran, "assignments-not-compared")
    assert left["path"] == str(host.d2) and "no assignments say" in left["says"]
    assert ("it has no topics" if made is of_nothing else "old, more than assignments.max_age") in unknown["says"]
    (scanned,) = host.run("scan", "--json").json["forgotten_log_dirs"]
    assert scanned["path"] == str(host.d2) and not scanned["known"]
    assert [f["says"] for f in findings(host.run("doctor", "--json")) if f["path"] == str(host.d2)] == [left["says"]]


def test_without_memory_or_ids_the_running_broker_says_which_log_dirs_it_has(host: Host) -> None:
    """Its `server.properties` lost one while it runs."""
    assigned(host, in_sync={3}, ids=False)
    toml = host.toml.read_text()
    without_directory_ids(host)
    host.toml.write_text(toml)
    lose(host)
    without_memory(host)
    assert findings(host.run("check", "--json")) == []
    with process(LOCKER, host.d1, host.d2) as pid:
        (finding,) = findings(host.run("check", "--json"))
        assert finding["path"] == str(host.d2) and finding["severity"] == "fatal"
        assert f"known by process {pid}, which has it locked" in finding["says"]
        (scanned,) = host.run("scan", "--json").json["forgotten_log_dirs"]
        assert scanned["path"] == str(host.d2) and scanned["known"]
        told = [f["says"] for f in findings(host.run("doctor", "--json")) if f["path"] == str(host.d2)]
        assert told == [finding["says"]]


def test_the_metadata_log_dir_that_a_broker_locks_did_not_leave(host: Host) -> None:
    without_memory(host)
    meta = metadata_dir(host.disk).parent
    (host.disk / "link").symlink_to(meta)
    host.set_property(f"metadata.log.dir={host.disk}/link")
    with process(LOCKER, host.d1, host.d2, meta):
        assert findings(host.run("check", "--json")) == []


def test_nor_does_a_fresh_install_act_beside_it(host: Host) -> None:
    name = twice(host)
    without_directory_ids(host)
    lose(host)
    shutil.rmtree(host.state)
    with process(LOCKER, host.d1, host.d2):
        (refusal,) = restore(host, name).json["refusals"]
    assert f"does not name log dir {host.d2} any more" in refusal["fact"]


def test_check_says_that_nothing_could_be_compared(host: Host) -> None:
    """Silence would be taken for "all is well"."""
    without_directory_ids(host)  # and with them, what names the cluster's brokers
    (finding,) = findings(host.run("check", "--json"), "assignments-not-compared")
    assert finding["severity"] == "warning" and "what is assigned to this broker is unknown" in finding["says"]
    assert "kafka.bootstrap_servers" in finding["hint"] and "--assignments FILE" in finding["hint"]
    host.with_assignments(**LATER)
    assert findings(host.run("check", "--json"), "assignments-not-compared") == []


def test_nothing_is_said_of_one_whose_partitions_are_elsewhere(host: Host) -> None:
    for directory in host.d2.glob("*-[0-9]"):
        if not (host.d1 / directory.name).exists():
            shutil.move(directory, host.d1)
    lose(host)
    assert findings(host.run("check", "--json")) == []
    assert host.run("scan", "--json").json["forgotten_log_dirs"] == []


@pytest.mark.parametrize(("in_sync", "severity"), [({3}, "warning"), ({1, 2, 3}, "info")])
def test_but_what_is_assigned_to_an_id_that_no_log_dir_has_may_have_no_leader(
    host: Host, in_sync: set[int], severity: str
) -> None:
    """Moved by hand before the log dir left, or the `directory.id` was changed."""
    assigned(host, in_sync=in_sync)
    assert findings(host.run("check", "--json"), "wrong-directory") == []
    for directory in host.d2.glob("*-[0-9]"):
        if not (host.d1 / directory.name).exists():
            shutil.move(directory, host.d1)
    assert {f["severity"] for f in findings(host.run("check", "--json"), "wrong-directory")} == {"info"}
    lose(host)
    assert {f["severity"] for f in findings(host.run("check", "--json"), "wrong-directory")} == {severity}


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize("ids", [True, False])
def test_a_file_in_the_place_of_an_assigned_directory_is_in_the_way(host: Host, ids: bool, link: bool) -> None:
    """In the log dir that it is assigned to; where that is unknown, it may be."""
    assigned(host, in_sync={3}, ids=ids)
    (host.d1 / "clicks-0").touch()
    shutil.rmtree(host.d2 / "orders-1")
    assert findings(host.run("check", "--json"), "name-taken") == []
    if link:
        (host.d2 / "orders-1").symlink_to("/nonexistent/x")
    else:
        (host.d2 / "orders-1").touch()
    (finding,) = findings(host.run("check", "--json"), "name-taken")
    assert (finding["path"], finding["severity"]) == (str(host.d2 / "orders-1"), "fatal" if ids else "warning")
    assert ("a symlink that leads nowhere" if link else "a file") in finding["says"]


@pytest.mark.parametrize(
    ("topic_id", "below", "severity"),
    [
        (None, False, "fatal"),
        ("Xs6gS0pIR5yNqcAe2bBqwQ", False, "fatal"),
        ("ours", False, "warning"),
        (None, True, "warning"),
    ],
)
def test_a_mount_point_that_is_not_ours_cannot_be_set_aside(
    host: Host, topic_id: str | None, below: bool, severity: str
) -> None:
    assigned(host, in_sync={3})
    metadata = (host.d2 / "orders-1" / "partition.metadata").read_text()
    if topic_id != "ours":
        metadata = f"version: 0\ntopic_id: {topic_id}\n"
    place = host.d1 / "zzz-1"
    point = place / "inside" if below else place
    point.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "tmpfs", point)
    try:
        if topic_id is not None:
            (place / "partition.metadata").write_text(metadata)
        found = findings(host.run("check", "--json", "--kafka-version", "4.3.1"), "mounted-partition")
    finally:
        unmount(point)
    assert [(f["path"], f["severity"]) for f in found] == [(str(place), severity)]


@pytest.mark.parametrize("mount", [False, True])
@pytest.mark.parametrize("where", ["d1", "d2"])
@pytest.mark.parametrize(("name", "severity"), [("zzz-7", "warning"), ("orders-2", "fatal")])
def test_a_link_or_mount_to_the_directory_of_another_partition_is_no_replica(
    host: Host, where: str, mount: bool, name: str, severity: str
) -> None:
    shutil.rmtree(host.d2 / "orders-2")
    link = host.disk / where / name
    if mount:
        link.mkdir()
        run("mount", "--bind", host.d2 / "orders-1", link)
    else:
        link.symlink_to(host.d2 / "orders-1")
    try:
        found = findings(host.run("check", "--json", "--kafka-version", "4.3.1"), "linked-partition")
    finally:
        if mount:
            unmount(link)
    assert [(f["path"], f["severity"]) for f in found if f["severity"] != "info"] == [(str(link), severity)]


UUID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("ids", "in_sync", "where", "severity"),
    [
        (True, {3}, "d1", "fatal"),
        (True, {1, 2, 3}, "d1", "warning"),
        (False, {3}, "d1", "warning"),
        (False, {3}, "d2", "warning"),
        (True, {3}, "d2", None),
    ],
)
def test_a_future_directory_alone_is_no_replica(
    host: Host, ids: bool, in_sync: set[int], where: str, severity: str | None
) -> None:
    """A start truncates it to the empty directory that it makes; from 3.7.1 on not where it is assigned to."""
    assigned(host, in_sync=in_sync, ids=ids)
    shutil.copytree(host.d2 / "orders-1", host.d1 / f"orders-1.{UUID}-future")
    assert findings(host.run("check", "--json"), "future-without-current") == [], "a move that goes on"
    shutil.rmtree(host.d1 / f"orders-1.{UUID}-future")
    future = host.disk / where / f"orders-1.{UUID}-future"
    shutil.move(host.d2 / "orders-1", future)
    found = findings(host.run("check", "--json", "--kafka-version", "4.3.1"), "future-without-current")
    assert [(f["path"], f["severity"]) for f in found] == ([(str(future), severity)] if severity else [])
    rows = [w for w in host.run("scan", "--json").json["without_directory"] if w["topic"] == "orders"]
    assert [(w["partition"], w["future"]) for w in rows] == ([(1, str(future))] if severity else [])


@pytest.mark.parametrize("how", [lose, gone])
def test_no_future_directory_hides_that_the_whole_replica_left(host: Host, how: Callable[[Host], None]) -> None:
    """Renamed, it would be a part of the log, and a duplicate once the log dir is back."""
    assigned(host, in_sync={3})
    for name in ("orders-1", "orders-2"):
        shutil.copytree(host.d2 / name, host.d1 / f"{name}.{UUID}-future")
    how(host)
    checked = host.run("check", "--json", "--kafka-version", "4.3.1")
    futures = findings(checked, "future-without-current")
    assert {"orders-1", "orders-2"} <= {Path(f["path"]).name.partition(".")[0] for f in futures}
    assert [f for f in futures if not (f"put {host.d2} back" in f["hint"] and "mv " not in f["hint"])] == []
    scan = host.run("scan", "--json").json
    rows = {f"{w['topic']}-{w['partition']}": w["future"] for w in scan["without_directory"]}
    assert rows["orders-1"] == str(host.d1 / f"orders-1.{UUID}-future") and rows["clicks-0"] is None
    if how is lose:
        assert "orders-1" in scan["forgotten_log_dirs"][0]["partitions"]
        told = [f["says"] for f in findings(host.run("doctor", "--json")) if f["path"] == str(host.d2)]
        assert told == [f["says"] for f in findings(checked)]


def test_nor_of_one_at_another_path(host: Host) -> None:
    shutil.move(host.d2, host.disk / "moved")
    host.set_property(f"log.dirs={host.d1},{host.disk}/moved")
    assert findings(host.run("check", "--json")) == []


def test_one_that_is_named_on_the_command_line_is_still_none_of_a_start(host: Host) -> None:
    lose(host)
    both = ("--log-dir", str(host.d1), "--log-dir", str(host.d2))
    (finding,) = findings(host.run("check", "--json", *both))
    assert finding["path"] == str(host.d2) and "makes them anew" in finding["says"]


def test_a_log_dir_that_cannot_be_read_takes_no_finding_away(host: Host) -> None:
    """What is assigned and has no directory may be there: that is said, and once."""
    gone(host)
    (finding,) = findings(host.run("check", "--json"), "no-directory")
    assert finding["severity"] == "warning" and finding["path"] == str(host.d2) and "12 partitions" in finding["says"]
    host.run("check", "--log-dir", str(host.d1))
    named = findings(host.run("check", "--json", "--log-dir", str(host.d1)), "no-directory")
    assert [f["path"] for f in named] == [str(host.d2)], "not inspected"


def test_a_memory_that_cannot_be_read_is_a_doubt_and_no_obstacle(host: Host) -> None:
    (host.state / LOG_DIRS_FILE_NAME).write_text("{")
    ran = host.run("prestart", "--strict", "--dry-run", "--budget", "60s", "--json")
    assert ran.status == 0 and [LOG_DIRS_FILE_NAME in f["says"] for f in findings(ran, "not-verified")] == [True]
