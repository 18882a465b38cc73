"""`logagent explain` on the disks of real brokers: every byte has a reason, and nothing is changed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import Exit
from tests.command_line import LOCKER, process
from tests.disk.cli.test_documents import DISKS, valid
from tests.disk.conftest import LoopFs
from tests.disk.doctor_host import PROPERTIES, doctor_host
from tests.disk.messes import lock_held
from tests.forked import run_forked
from tests.host import Host
from tests.terminal import on_a_terminal, plain


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def allocated(path: Path) -> int:
    return sum(p.lstat().st_blocks * 512 for p in (path, *path.rglob("*")))


@pytest.mark.parametrize("disk", DISKS)
def test_every_byte_of_a_file_system_has_a_reason_or_is_unexplained(tmp_path: Path, disk: str) -> None:
    host = Host.from_disk(tmp_path, disk)
    before = host.snapshot()
    document = valid(host.run("explain", "--log-dirs-only", "--json").json, "explain")
    assert host.snapshot() == before and not host.state.exists()
    (system,) = document["file_systems"]
    assert system["log_dirs"] == [str(host.d1), str(host.d2)]
    assert sum(r["allocated"] for r in system["reasons"]) == system["used"]
    in_log_dirs = sum(r["allocated"] for r in system["reasons"] if r["reason"] != "unexplained")
    assert in_log_dirs == sum(allocated(p) for d in (host.d1, host.d2) for p in d.iterdir())
    sizes = [r["allocated"] for r in system["reasons"]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("disk", DISKS)
def test_every_byte_of_a_directory_is_in_one_group(tmp_path: Path, disk: str) -> None:
    host = Host.from_disk(tmp_path, disk)
    document = valid(host.run("explain", str(host.d1), str(host.d2), "--json").json, "explain")
    on_disk = {(str(d), p.name) for d in (host.d1, host.d2) for p in d.iterdir() if p.is_dir()}
    assert {(d["log_dir"], d["name"]) for d in document["dirs"]} == on_disk
    for d in document["dirs"]:
        path = Path(d["log_dir"]) / d["name"]
        assert sum(g["allocated"] for g in d["groups"]) == d["allocated"] == allocated(path), d
        logs = [p.stat().st_size for p in path.glob("*.log")]
        if d["kind"] == "current" and d["verdict"] != "orphan":
            assert sum(g["segments"] for g in d["groups"]) == len(logs)
            assert sum(g["bytes"] for g in d["groups"] if g["segments"]) == sum(logs)


def groups(host: Host, *names: str) -> dict[str, dict[str, Any]]:
    """By directory, its groups by reason."""
    document = host.run("explain", *names, "--json").json
    return {d["name"]: {g["reason"]: g for g in d["groups"]} for d in document["dirs"]}


def test_a_directory_is_named_as_it_is_printed_by_its_partition_its_topic_or_a_path(host: Host) -> None:
    everything = [p.name for d in (host.d1, host.d2) for p in d.iterdir() if p.is_dir()]
    of_topic = {n for n in everything if n.startswith("orders-") and "2019" not in n}
    assert set(groups(host, "orders")) == of_topic
    stray = next(n for n in of_topic if n.endswith("-stray"))
    assert set(groups(host, stray)) == {stray}
    partition = stray.partition(".")[0]
    assert stray in groups(host, partition) and set(groups(host, partition)) <= of_topic
    (place,) = (d for d in (host.d1, host.d2) if (d / stray).exists())
    assert set(groups(host, f"{place}/{stray}/")) == {stray}
    assert set(groups(host, stray, partition, "orders")) == of_topic
    # As a table of 80 columns prints it, and as `restore` takes it.
    assert set(groups(host, f"{stray[:12]}…-stray")) == set(groups(host, stray[:-9])) == {stray}
    nobody = host.run("explain", "absent-0", "--json")
    assert nobody.json["dirs"] == [] and nobody.json["names"][0]["topic"] == "absent" and "absent-0" in nobody.err
    assert "does not start with it" in " ".join(host.run("explain", "lost+found").out.split())


def test_settings_are_the_topics_from_the_metadata_log_and_nothing_goes_while_the_broker_is_down(host: Host) -> None:
    document = valid(host.run("explain", "clicks", "--json").json, "explain")
    assert document["settings_as_of"] is not None
    assert [d["waits_for"] for d in document["log_dirs"]] == ["the broker runs"] * 2
    due = [g for d in document["dirs"] for g in d["groups"] if g["reason"] == "due"]
    assert due
    assert [g for g in due if g["setting"] != {"key": "retention.bytes", "value": "1", "source": "topic"}] == []
    assert {g["first"] for g in due} == {"the broker runs"}


@pytest.mark.parametrize(("value", "cordoned"), [("{d1}", [True, False]), ("*", [True, True]), ("", [False, False])])
def test_cordoned_log_dirs_delete_as_before(host: Host, value: str, cordoned: list[bool]) -> None:
    host.set_property(f"cordoned.log.dirs={value.format(d1=host.d1)}")
    document = valid(host.run("explain", "clicks", "--json").json, "explain")
    assert [d["cordoned"] for d in document["log_dirs"]] == cordoned
    assert [g for d in document["dirs"] for g in d["groups"] if g["reason"] == "due"]
    assert ("retention goes on" in host.run("explain", "clicks").err) is any(cordoned)


def test_settings_near_those_that_count_are_named_if_they_are_not_considered(host: Host) -> None:
    set_here = {"log.cleaner.careful": "yes", "log.retention.days": "3", "remote.log.days": "1024"}
    for key, value in set_here.items():
        host.set_property(f"{key}={value}")
    ran = host.run("explain", "clicks", "--json")
    assert valid(ran.json, "explain")["not_considered"] == [
        {"setting": {"key": key, "value": set_here[key], "source": "server.properties"}, "topics": []}
        for key in sorted(set_here)
    ]
    for names in ((), ("clicks",)):
        says = host.run("explain", "--log-dirs-only", *names).err
        assert "not considered, and may change reasons and dates: log.cleaner.careful=yes (server.properties); " in says
    assert "not considered" not in host.run("explain", "no-such-topic").err


def test_what_if_says_what_would_go_and_what_would_stay_and_changes_nothing(host: Host) -> None:
    before = host.snapshot()
    asked = ("--what-if", "retention.ms=1h", "--what-if", "retention.bytes=-1")
    document = valid(host.run("explain", "clicks", "customer.state", *asked, "--json").json, "explain")
    assert host.snapshot() == before
    for found in document["what_if"]:
        assert [(s["key"], s["value"]) for s in found["settings"]] == [
            ("retention.ms", "3600000"),
            ("retention.bytes", "-1"),
        ]
        add = f"--entity-name {found['topic']} --add-config retention.ms=3600000,retention.bytes=-1"
        assert found["command"].startswith("kafka-configs.sh --bootstrap-server 127.0.0.1:") and add in found["command"]
    clicks, state = ([f for f in document["what_if"] if f["topic"] == topic] for topic in ("clicks", "customer.state"))
    assert sum(f["goes"] for f in clicks) > 0 and sum(f["goes"] for f in state) == 0
    assert {r["reason"] for f in state for r in f["unchanged"]} <= {
        "compacted",
        "active",
        "cleanable",
        "not-yet-compacted",
    }
    says = host.run("explain", "customer.state", *asked)
    assert "stay as now" in says.out and "kafka-configs.sh" not in says.out
    # `rescue` foretells the same, of what is being moved, too, and shows the same line.
    for a in host.run("rescue", "--json").json["rescue"]["retention"]:
        asked_again = ("--what-if", f"retention.ms={a['retention_ms']}", a["topic"])
        answers = host.run("explain", "--json", *asked_again).json["what_if"]
        assert (a["gives_back"], {a["command"]}) == (sum(w["goes"] for w in answers), {w["command"] for w in answers})
    everything = host.run("explain", "--what-if", "retention.ms=1h", "--json").json
    assert {f["topic"] for f in everything["what_if"]} > {"clicks", "customer.state"} and everything["dirs"] == []
    # What goes anyway is what goes now.
    topic = next(f["topic"] for f in clicks)
    now = [g for d in host.run("explain", topic, "--json").json["dirs"] for g in d["groups"]]
    assert sum(g["allocated"] for g in now if g["reason"] in ("due", "below-log-start")) == sum(
        f["goes_anyway"] for f in clicks
    )


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("retention=3d", "not a setting of topics"),
        ("retention.ms", "the value is missing"),
        ("retention.ms=soon", "retention.ms=soon"),
        ("retention.ms=-2", "at least -1"),
        ("cleanup.policy=keep", "delete, compact or compact,delete"),
        ("min.cleanable.dirty.ratio=2", "a number from 0 to 1"),
        ("remote.storage.enable=maybe", "true or false"),
    ],
)
def test_what_if_of_what_no_topic_can_have(host: Host, asked: str, says: str) -> None:
    ran = host.run("explain", "--what-if", asked)
    assert ran.status == Exit.USAGE and says in ran.err


def test_the_role_is_that_of_the_assignments(host: Host) -> None:
    document = valid(host.run("explain", str(host.d1), "--json").json, "explain")
    roles = {d["role"] for d in document["dirs"] if d["kind"] == "current"}
    assert roles & {"leader", "follower"}
    assert {d["role"] for d in document["dirs"] if d["kind"] != "current"} == {None}


def test_where_the_settings_of_topics_are_not_known_that_is_said(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path, "3.5.2-zookeeper/broker-clean")
    ran = host.run("explain", "--log-dirs-only", "--json")
    assert ran.json["settings_as_of"] is None and "the settings of topics are not known here" in ran.err


def test_what_kafka_deleted_and_has_not_yet_unlinked_is_told_apart(host: Host) -> None:
    name = next(p.name for p in host.d1.iterdir() if p.name.startswith("orders-") and len(p.name) < 12)
    (host.d1 / name / f"{0:020d}.log.deleted").write_bytes(b"x" * 100_000)
    found = groups(host, name)[name]["deleted-files"]
    assert found["bytes"] == 100_000 and found["allocated"] >= 100_000
    assert found["first"] == "the broker loads the log, at its next start"
    assert found["setting"]["key"] == "log.segment.delete.delay.ms"


def test_the_copy_of_a_move_of_a_deleted_topic_goes_when_cleanup_takes_it(host: Host) -> None:
    host.with_assignments()
    (source,) = [p for p in host.log_dirs if (p / "shipments-1").is_dir()]
    shutil.rmtree(source / "shipments-1")
    futures = [d for d in host.run("explain", "labels", "shipments", "--json").json["dirs"] if d["kind"] == "future"]
    orphans = [d for d in futures if d["verdict"] == "orphan"]
    others = [d for d in futures if d["verdict"] != "orphan"]
    assert orphans and others, futures
    of_orphans = [(d["groups"][0]["reason"], d["groups"][0]["first"]) for d in orphans]
    assert [(r, f) for r, f in of_orphans if r != "orphan" or "cleanup" not in f] == []
    assert [d for d in others if "may be the only copy here" not in d["groups"][0]["first"]] == []


def said(host: Host, *names: str) -> tuple[str, str]:
    ran = host.run("explain", *names)
    return " ".join(ran.out.split()), ran.err


def test_an_orphan_is_set_aside_at_its_date_and_removed_later(host: Host) -> None:
    """`goes` was the date of a rename, also of what nothing lets go before its leader has it."""
    host.with_assignments()
    gone, err = said(host, "returns-2")
    assert re.search(r"set aside by cleanup after \d{4}-\d\d-\d\d [\d:]+Z, removed 7d after that", gone), gone
    assert "its leader" not in gone and "until the broker runs" not in err
    for name in ("invoices-0", "invoices-1"):
        assert "once its leader has all of it" in said(host, name)[0]
    waiting = {w["name"]: w["reason"] for w in host.run("cleanup", "--json").json["waiting"]}
    (stray,) = (name for name in waiting if name.startswith("invoices-1."))
    assert waiting[stray] == "stray-retention, and that its leader has all of it"
    assert "until the broker runs" in said(host, "orders-3")[1], "which its broker deletes from"
    with process(LOCKER, host.d1, host.d2):
        assert re.search(
            r"set aside by cleanup after \d{4}-\S+ \S+Z, not before the broker stops, removed 7d",
            said(host, "returns-2")[0],
        )
        waiting = {w["name"]: w["reason"] for w in host.run("cleanup", "--json").json["waiting"]}
    assert waiting["returns-2"].endswith("then for the broker's next stop")


def test_no_line_promises_once_never_nor_one_date_twice(host: Host) -> None:
    host.with_assignments()
    lines = host.run("explain", "--log-dirs-only").out
    assert "once never" not in lines and "differs: logagent explain NAME" in " ".join(lines.split())
    dates = re.findall(r"(\d{4}-\S+ [\d:]+Z) to (\d{4}-\S+ [\d:]+Z)", lines)
    assert [d for d in dates if d[0] == d[1]] == []


@pytest.mark.parametrize("names", [("--log-dirs-only",), ("orders",)])
def test_a_terminal_of_80_columns(host: Host, names: tuple[str, ...]) -> None:
    lines = plain(on_a_terminal(host.arguments("explain", *names), columns=80))
    paths = (str(host.d1), str(host.d2))
    long = [line for line in lines if len(line) > 80 and not any(path in line for path in paths)]
    assert long == []
    assert any("active segment" in line for line in lines), lines


@pytest.fixture
def own_file_system(loop_fs: LoopFs) -> Host:
    """A host on a file system of its own, with the log dir of an older configuration and something large beside it."""
    root = loop_fs("ext4")
    host = Host.from_disk(root)
    shutil.copytree(host.d1, root / "kafka-logs-old")
    (root / "dumps").mkdir()
    (root / "dumps/heap.hprof").write_bytes(os.urandom(1 << 16) * 160)
    return host


def test_what_else_is_on_the_file_system_is_listed(own_file_system: Host) -> None:
    host = own_file_system
    root = host.d1.parent
    while not root.is_mount():
        root = root.parent
    document = valid(host.run("explain", "--json").json, "explain")
    (system,) = document["file_systems"]
    outside = system["outside"]
    assert (outside["root"], outside["unfinished"], outside["unread_directories"]) == (str(root), None, 0)
    assert outside["places"][0] == {
        "path": f"{root}/dumps/heap.hprof",
        "kind": "file",
        "allocated": 160 << 16,
        "files": 1,
    }
    old, meta = outside["log_dirs"]
    assert meta["whose"] == "metadata-log-dir"
    assert (old["path"], old["whose"], old["in_use"]) == (f"{root}/kafka-logs-old", "this-node", False)
    assert (old["cluster_id"], old["node_id"]) == (document["cluster_id"], document["node_id"])
    assert old["partitions"] > 3
    # The file system's own is in no file.
    (unexplained,) = (r["allocated"] for r in system["reasons"] if r["reason"] == "unexplained")
    parts = (outside["rest"], *(x["allocated"] for x in (*outside["places"], *outside["log_dirs"])))
    assert 0 < sum(parts) <= unexplained
    assert "outside" not in host.run("explain", "--log-dirs-only", "--json").json["file_systems"][0]


def test_what_else_is_there_fits_80_columns(own_file_system: Host) -> None:
    text = plain(on_a_terminal(own_file_system.arguments("explain"), columns=80))
    table = text[next(i for i, line in enumerate(text) if line.startswith("Outside the log dirs")) :]
    assert "of this node, not" in " ".join(" ".join(table).split())
    assert any("heap.hprof" in line for line in table), table
    assert all(len(line) <= 80 for line in table if str(own_file_system.root) not in line), table


@pytest.mark.parametrize(("segments", "named"), [(30, False), (30, True), (17, False)])
def test_of_a_large_partition_the_middle_is_read_if_it_is_named(host: Host, segments: int, named: bool) -> None:
    """Its bytes are counted either way. Of segment 15 the time index says that it is of the future."""
    host.set_property("log.retention.hours=168")
    directory = host.d1 / "large-0"
    directory.mkdir()
    now_ms = int(time.time() * 1000)
    for number in range(segments):
        base = directory / f"{number * 10:020d}"
        at_ms = now_ms + 30 * 86_400_000 if number == 15 else now_ms - 1000
        base.with_suffix(".log").write_bytes(b"x" * 5000)
        base.with_suffix(".timeindex").write_bytes(struct.pack(">qi", at_ms, 9))
    (directory / f"{segments * 10:020d}.log").touch()
    document = host.run("explain", "large-0" if named else "--log-dirs-only", "--json").json
    if named:
        found = document["dirs"][0]["groups"]
        assert "future-timestamps" in {g["reason"] for g in found}
        assert sum(g["allocated"] for g in found) == allocated(directory)
    else:
        reasons = {r["reason"] for r in document["file_systems"][0]["reasons"]}
        assert ("future-timestamps" in reasons) is (segments == 17)
        (system,) = document["file_systems"]
        everything = sum(r["allocated"] for r in system["reasons"] if r["reason"] != "unexplained")
        assert everything == sum(allocated(p) for d in (host.d1, host.d2) for p in d.iterdir())


def test_where_more_than_the_oldest_go_the_middle_is_read(host: Host) -> None:
    host.set_property("log.retention.hours=168")
    directory = host.d1 / "large-0"
    directory.mkdir()
    now_ms = int(time.time() * 1000)
    for number in range(40):
        base = directory / f"{number * 10:020d}"
        at_ms = now_ms - (60 * 86_400_000 if number < 20 else 1000)
        base.with_suffix(".log").write_bytes(b"x" * 5000)
        base.with_suffix(".timeindex").write_bytes(struct.pack(">qi", at_ms, 9))
    named = groups(host, "large-0")["large-0"]
    before = host.run("explain", "--log-dirs-only", "--json").json
    shutil.rmtree(directory)
    after = host.run("explain", "--log-dirs-only", "--json").json

    def segments(document: dict[str, Any], reason: str) -> int:
        return sum(r["segments"] for r in document["file_systems"][0]["reasons"] if r["reason"] == reason)

    assert named["due"]["segments"] == 20
    assert segments(before, "due") - segments(after, "due") == 20


def test_offline_nobody_is_asked(host: Host) -> None:
    """The configured cluster, and our own broker, which seems to run: somebody holds the lock of a log dir."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        host.configure(**{"kafka.bootstrap_servers": address, "assignments.sources": ["admin", "kraft-log"]})
        host.set_property(f"listeners=PLAINTEXT://{address}")
        with lock_held(host.d1), lock_held(host.d2):
            assert run_forked(*host.arguments("explain", "--log-dirs-only", "--offline", "--json")).status == 0
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_an_offline_log_dir_leaves_the_others_explained(host: Host) -> None:
    shutil.rmtree(host.d2)
    ran = host.run("explain", "--log-dirs-only", "--json")
    assert ran.status == Exit.OFFLINE
    document = valid(ran.json, "explain")
    assert [(d["health"], d["waits_for"]) for d in document["log_dirs"]] == [
        ("online", "the broker runs"),
        ("offline", "the log dir is online again"),
    ]
    assert document["file_systems"][0]["log_dirs"] == [str(host.d1)]


def test_hostile_files_are_counted_and_never_opened_or_followed(host: Host) -> None:
    directory = host.d1 / "evil-0"
    directory.mkdir()
    for number, name in enumerate((".log", ".index", ".timeindex")):
        os.mkfifo(directory / f"{number:020d}{name}")
        (directory / f"{10 + number:020d}{name}").symlink_to("/dev/zero")
    (directory / f"{20:020d}.log").write_bytes(os.urandom(5000))
    os.mkfifo(directory / f"{20:020d}.timeindex")
    os.mkfifo(directory / f"{20:020d}.index")
    with (directory / f"{99:020d}.log").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("replication-offset-checkpoint", "cleaner-offset-checkpoint"):
        (host.d1 / name).unlink(missing_ok=True)
        os.mkfifo(host.d1 / name)
    (host.d1 / "log-start-offset-checkpoint").write_bytes(b"\xff")
    ran = run_forked(*host.arguments("explain", "evil-0", "--json"))
    assert ran.status == 0, ran.err
    (found,) = valid(ran.json, "explain")["dirs"]
    assert found["allocated"] == allocated(directory)
    assert "unreadable" in {g["reason"] for g in found["groups"]}


def test_where_there_is_no_broker_the_names_are_explained(tmp_path: Path) -> None:
    with doctor_host(tmp_path / "host") as here:
        here.configure(kafka__config=None)
        here.path(PROPERTIES).unlink()
        ran = here.logagent("explain", "orders-1", "--json", user="kafka")
        document = valid(ran.json, "explain")
        assert (ran.status, document["names"][0]["topic"], document["dirs"]) == (0, "orders", [])
        assert "only the names are explained" in ran.err
        assert here.logagent("explain", user="kafka").status == Exit.CONFIG
