"""Publishing to a store on real file systems: what arrives, and what happens when it cannot."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import LogAgentError
from logagent.cleanup.commands.cleanup import plan_ahead
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.identity import ClusterFacts
from logagent.service.publish import Publisher, Stopped
from logagent.store import landing_files as landing
from logagent.store.shared import init_store
from logagent.store.snapshots import dir_line, snapshot_lines
from tests.disk.conftest import LoopFs, run, unmount
from tests.documents import assert_promised
from tests.fake_time import SetClock
from tests.hosts import HEX
from tests.publish_host import HOUR_MS, Publishing, data_files, landed, looked_at, rows_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    init_store(str(path))
    return path


@pytest.fixture
def publishing(tmp_path: Path, store: Path) -> Publishing:
    return Publishing(tmp_path, store)


# What arrives


def test_a_snapshot_arrives_with_its_manifest(publishing: Publishing, store: Path) -> None:
    snapshot_id = publishing.look()
    told = publishing.publisher.send()
    assert (told.sent, told.waiting, told.error) == (2, 0, None)
    (snapshot,) = data_files(store, "snapshot")
    first, *rest = rows_of(snapshot)
    day = f"{snapshot_id[:4]}-{snapshot_id[4:6]}-{snapshot_id[6:8]}"
    assert snapshot.relative_to(store) == Path(
        "landing", first["cluster_id"], day, str(first["node_id"]), f"{snapshot_id}.jsonl.gz"
    )
    manifest = json.loads(landing.manifest_of(snapshot).read_bytes())
    assert set(manifest) == {
        "schema", "snapshot_id", "kind", "cluster_id", "node_id", "host", "at", "rows", "bytes", "sha256", "boot_id",
        "booted_at", "directory_ids",
    }  # fmt: skip
    up = datetime.fromisoformat(manifest["at"]) - datetime.fromisoformat(manifest["booted_at"])
    assert abs(up.total_seconds() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 600
    assert manifest["directory_ids"] == sorted(
        row["directory_id"] for row in rows_of(snapshot) if row["row"] == "log_dir"
    )
    assert manifest["schema"] == "logagent.manifest/1"
    for field in ("snapshot_id", "cluster_id", "node_id", "host", "at"):
        assert manifest[field] == first[field]
    assert first["host"] == "host7"
    assert [row["row"] for row in rest[:2]] == ["log_dir", "log_dir"]
    assert {row["row"] for row in rest[2:]} == {"dir"}
    for row in (first, *rest):
        # Bytes that are not UTF-8 are lone surrogates, which pydantic's strings cannot hold.
        assert_promised(re.sub(r"(?<!\\)\\udc..", "?", json.dumps(row)), "snapshot")


def test_the_rows_are_those_of_the_scan(publishing: Publishing, store: Path) -> None:
    publishing.look()
    publishing.publisher.send()
    first, *rest = rows_of(data_files(store, "snapshot")[0])
    scan = publishing.host.run("scan", "--json").json
    log_dirs = [dict(row) for row in rest if row.pop("row") == "log_dir"]
    dirs = [
        {k: v for k, v in row.items() if k not in ("row", "inode", "end_offset")} for row in rest if "log_dir" in row
    ]
    for row in rest:
        if "log_dir" in row:
            assert row["inode"] == Path(row["log_dir"], row["name"]).stat().st_ino
    assert {row["device"] for row in log_dirs} == {publishing.host.d1.stat().st_dev}
    assert first.pop("row") == "snapshot"
    assert first.pop("snapshot_id").endswith(f"-{first['node_id']}")
    assert first.pop("boot_id") == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (first.pop("base"), first.pop("seen")) == (None, [])
    assert (first.pop("images"), first.pop("absent")) == (None, None), "a file that was exported encloses nothing"
    assert first.pop("began") <= first["at"]
    assert (first.pop("mode"), first.pop("accepts")) == ("report", "none")
    assert first.pop("acts")["rows"] == 0
    document = {
        **first,
        "schema": "logagent.scan/2",
        "as_of": scan["as_of"],
        "log_dirs": log_dirs,
        "dirs": scan["dirs"],
    }
    assert_promised(document, "scan")
    for row in (*log_dirs, *scan["log_dirs"]):
        # The file system is shared with whoever else writes to it.
        row["ledger"] = {k: v for k, v in row["ledger"].items() if k not in ("used", "free", "unexplained")}
    told = [json.loads(dir_line({k: v for k, v in row.items() if k != "detail"}, {})) for row in scan["dirs"]]
    said = ("window", "due_at", "covered", "obstacle", "obstacle_detail")
    assert [{k: v for k, v in d.items() if k not in said} for d in dirs] == sorted(
        ({k: v for k, v in d.items() if k != "row"} for d in told), key=lambda d: (d["log_dir"], d["name"])
    )
    assert log_dirs == scan["log_dirs"]
    # What is assigned here without a directory is the scan's own: a snapshot tells of what is on the disks.
    assert {k for k in scan if k not in ("log_dirs", "dirs", "without_directory", "forgotten_log_dirs")} <= set(
        document
    )


def test_what_a_report_lists_says_where_its_log_ends(publishing: Publishing, store: Path) -> None:
    """Orphans and strays; nothing is read of the others, nor again of what has not changed."""
    asked: list[str] = []

    def seen_by(hook: str, arguments: tuple[object, ...]) -> None:
        if hook == "open" and str(arguments[0]).endswith(".log"):
            asked.append(str(arguments[0]))

    def spooled() -> int:
        with looked_at(publishing.host, publishing.clock) as (session, facts):
            plan = plan_ahead(session, facts)
            asked.clear()
            publishing.publisher.spool(session, facts, plan)
            return len(asked)

    sys.addaudithook(seen_by)
    first = spooled()
    publishing.clock.ahead_ms = HOUR_MS
    again = spooled()
    publishing.publisher.send()
    rows = [row for row in rows_of(data_files(store, "snapshot")[0]) if row["row"] == "dir"]
    listed = [row for row in rows if row["kind"] == "stray" or row.get("verdict") == "orphan"]
    assert {row["kind"] for row in listed} >= {"current", "stray"} and len(listed) < len(rows)
    for row in listed:
        fd = os.open(Path(row["log_dir"], row["name"]), os.O_RDONLY)
        try:
            assert row.get("end_offset") == read_log_extent(fd).log_end, row
        finally:
            os.close(fd)
    assert any(row.get("end_offset") for row in listed), listed
    assert [row for row in rows if row not in listed if "end_offset" in row] == []
    with_log = len([row for row in listed if row.get("segments")])
    assert first == 2 * with_log and again == 0, "each is opened once to see what it is, once to read"


def test_the_rows_say_what_the_plan_would_do(publishing: Publishing, store: Path) -> None:
    """Each directory as `logagent cleanup` sees it, and no sighting counts for it."""
    (publishing.host.d1 / f"orders-0.{HEX}-stray").mkdir()
    (publishing.host.d1 / f"orders-1.{HEX}-delete").mkdir()
    publishing.look()
    publishing.publisher.send()
    rows = {row["name"]: row for row in rows_of(data_files(store, "snapshot")[0]) if row["row"] == "dir"}
    plan = publishing.host.run("cleanup", "--json").json
    waiting = {w["name"]: w for w in plan["waiting"]}
    stray = rows[
        f"orders-0.{HEX}-stray"
    ]  # without a topic id: nobody knows whose it is, and no date stands beside that
    assert (stray.get("window"), stray.get("due_at"), waiting[stray["name"]]["until"]) == (None, None, None)
    assert (stray["obstacle"], stray["obstacle_detail"]) == ("no-topic-id", waiting[stray["name"]]["reason"])
    marked = rows[f"orders-1.{HEX}-delete"]
    assert (marked["window"], marked["obstacle"]) == ("later", "file.delete.delay.ms")
    assert "obstacle_detail" not in marked
    assigned = [r for r in rows.values() if r.get("verdict") == "assigned"]
    assert {(r.get("window"), r.get("obstacle")) for r in assigned} == {(None, None)}
    with looked_at(publishing.host, publishing.clock) as (session, _):
        assert session.recalled.sightings == {}


def test_the_assignments_arrive_beside_it(publishing: Publishing, store: Path) -> None:
    publishing.look()
    publishing.publisher.send()
    (assignments,) = data_files(store, "assignments")
    first, *rest = rows_of(assignments)
    assert (first["row"], first["schema"], first["source"]) == ("assignments", "logagent.assignments/1", "kraft-log")
    assert {row["row"] for row in rest} == {"broker", "partition"}
    assert assignments.parent.name == "assignments"
    snapshot = rows_of(data_files(store, "snapshot")[0])[0]
    manifest = json.loads(landing.manifest_of(assignments).read_bytes())
    assert (manifest["kind"], manifest["cluster_id"]) == ("assignments", snapshot["cluster_id"])
    # Two hosts that read the same offset must not write the same file, one's data and the other's manifest.
    assert assignments.name.startswith(f"kraft-log-{first['offset']}-")
    assert assignments.name.endswith(f"-{snapshot['node_id']}.jsonl.gz")


def test_without_usable_assignments_the_snapshot_arrives_alone(publishing: Publishing, store: Path) -> None:
    publishing.host.configure()
    publishing.look()
    assert publishing.publisher.send().sent == 1
    assert data_files(store, "assignments") == []
    assert rows_of(data_files(store, "snapshot")[0])[0]["assignments"]["source"] == "kraft-log"


def test_assignments_of_a_cluster_are_not_sent_by_every_host(tmp_path: Path, store: Path) -> None:
    """They are the same on every host; one file in half an interval is enough."""
    one = Publishing(tmp_path / "one", store)
    two = Publishing(tmp_path / "two", store)
    for each in (one, two):
        each.look()
        each.publisher.send()
    assert len(data_files(store, "snapshot")) == 2
    assert len(data_files(store, "assignments")) == 1
    two.clock.ahead_ms = HOUR_MS
    two.host.with_assignments(**{"assignments.max_age": "2h"})
    two.look()
    two.publisher.send()
    assert len(data_files(store, "assignments")) == 2
    assert two.spooled() == []


def _read(data: Path) -> list[dict[str, Any]]:
    stem = data.name.removesuffix(".jsonl.gz")
    return [
        json.loads(line) for line in snapshot_lines(lambda one: data.with_name(f"{one}.jsonl.gz").read_bytes(), stem)
    ]


def test_a_later_snapshot_of_a_day_is_small_and_reads_as_the_whole_one(publishing: Publishing, store: Path) -> None:
    """What was written, made, renamed and removed meanwhile is in it."""
    publishing.clock.ahead_ms = publishing.to_midnight_ms()
    for n in range(50):
        (publishing.host.d1 / f"many-{n}").mkdir()
    publishing.look()
    with (publishing.host.d1 / "many-3" / "00000000000000000000.log").open("wb") as file:
        file.write(b"x" * 5000)
    (publishing.host.d1 / "many-4").rmdir()
    (publishing.host.d1 / "many-5").rename(publishing.host.d1 / "other-5")
    publishing.clock.ahead_ms += HOUR_MS
    publishing.look()
    publishing.publisher.send()
    (base,), (delta,) = data_files(store, "snapshot"), data_files(store, "delta")
    assert delta.stat().st_size < base.stat().st_size / 2
    rows = [row for row in _read(delta) if row["row"] == "dir"]
    by_name = {row["name"]: row for row in rows}
    assert {"many-4", "many-5"}.isdisjoint(by_name)
    assert {"many-6", "other-5"} <= by_name.keys()
    assert (by_name["many-3"]["bytes"], by_name["many-3"]["segments"]) == (5000, 1)
    # The same hour, seen by a publisher without a base.
    for kept in (publishing.host.state / "spool" / "base").iterdir():
        kept.unlink()
    publishing.clock.ahead_ms += 1
    publishing.look()
    publishing.publisher.send()
    whole = data_files(store, "snapshot")[-1]
    seen = [r for r in _read(whole) if r["row"] == "dir"]
    assert _ageless(seen) == _ageless(sorted(rows, key=lambda r: (r["log_dir"], r["name"])))


def _ageless(rows: list[dict[str, Any]]) -> Any:
    """How old the assignments are is said in seconds, and those may pass between two snapshots."""
    return json.loads(re.sub(r"is \d+ \w+ old", "is old", json.dumps(rows)))


def test_the_next_day_begins_with_a_base(publishing: Publishing, store: Path) -> None:
    publishing.clock.ahead_ms = publishing.to_midnight_ms()
    for hours in (0, 1, 24):
        publishing.clock.ahead_ms = publishing.to_midnight_ms() + hours * HOUR_MS
        publishing.look()
    publishing.publisher.send()
    assert (len(data_files(store, "snapshot")), len(data_files(store, "delta"))) == (2, 1)


def test_a_base_that_the_store_has_lost_is_sent_again(publishing: Publishing, store: Path) -> None:
    publishing.clock.ahead_ms = publishing.to_midnight_ms()
    publishing.look()
    publishing.publisher.send()
    (base,) = data_files(store, "snapshot")
    base.unlink()
    publishing.clock.ahead_ms += HOUR_MS
    publishing.look()
    publishing.publisher = publishing.started()
    assert publishing.publisher.send().error is None
    assert data_files(store, "snapshot") == [base]
    assert len(data_files(store, "delta")) == 1


def test_a_kept_base_that_is_damaged_is_not_built_on(publishing: Publishing, store: Path) -> None:
    publishing.clock.ahead_ms = publishing.to_midnight_ms()
    publishing.look()
    publishing.publisher.send()
    (kept,) = (publishing.host.state / "spool" / "base").glob("*.jsonl.gz")
    kept.write_bytes(kept.read_bytes()[:-9])
    publishing.clock.ahead_ms += HOUR_MS
    publishing.look()
    publishing.publisher.send()
    assert (len(data_files(store, "snapshot")), data_files(store, "delta")) == (2, [])


def test_a_name_that_is_no_utf8_arrives(publishing: Publishing, store: Path) -> None:
    os.mkdir(os.fsencode(publishing.host.d1) + b"/bad-\xff-0")
    publishing.look()
    publishing.publisher.send()
    assert "bad-\udcff-0" in {row.get("name") for row in rows_of(data_files(store, "snapshot")[0])}


def test_log_dirs_that_are_all_gone_are_told_as_such(publishing: Publishing, store: Path) -> None:
    """That is the snapshot that matters; whose it is, is known from before."""
    publishing.look()
    for log_dir in (publishing.host.d1, publishing.host.d2):
        log_dir.rename(log_dir.with_suffix(".away"))
    publishing.clock.ahead_ms = 1000
    publishing.look()
    publishing.publisher.send()
    head, *log_dirs = _read(data_files(store, "snapshot", "delta")[-1])
    assert [row["health"] for row in log_dirs] == ["offline", "offline"]
    assert head["cluster_id"] is not None


def test_nobodys_snapshot_is_refused(publishing: Publishing) -> None:
    publishing.host.state.mkdir()
    for log_dir in (publishing.host.d1, publishing.host.d2):
        log_dir.rename(log_dir.with_suffix(".away"))
    with pytest.raises(LogAgentError, match="do not say which cluster"):
        publishing.look()


@pytest.mark.parametrize("cluster_id", ["../../../etc", ".", "..", "a/b", "a\nb", ".hidden", "", "x" * 250])
def test_a_cluster_id_leads_nowhere_else(publishing: Publishing, cluster_id: str) -> None:
    with looked_at(publishing.host, publishing.clock) as (session, facts):
        session.log_dirs.cluster = ClusterFacts(cluster_id, 7)
        with pytest.raises(LogAgentError, match="cannot name a directory"):
            publishing.publisher.spool(session, facts, plan_ahead(session, facts))


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    claim = landing.ManifestHead("s", "snapshot", "c", 1, "h", datetime(2026, 1, 2, tzinfo=UTC))
    lines = [f'{{"n": {n}}}' for n in range(100_000)]
    one = landing.put(tmp_path / "one", claim, lines)
    two = landing.put(tmp_path / "two", claim, iter(lines))
    assert one.read_bytes() == two.read_bytes()
    assert [row["n"] for row in rows_of(one)] == list(range(100_000))


# What happens when the store is away, full, or hangs


def test_a_store_that_is_away_gets_everything_later(publishing: Publishing, store: Path) -> None:
    store.rename(store.with_name("away"))
    ids = []
    for hour in range(3):
        publishing.clock.ahead_ms = hour * HOUR_MS
        ids.append(publishing.look())
        told = publishing.publisher.send()
        assert told.error is not None
        assert "does not exist" in told.error
        assert (told.sent, told.waiting, told.last_sent_ms) == (0, 2 + hour, None)
        assert told.waiting_bytes > 0
    store.with_name("away").rename(store)
    publishing.publisher = publishing.started()  # a restart in between forgets nothing
    told = publishing.publisher.send()
    assert (told.sent, told.waiting, told.error) == (4, 0, None)
    assert told.last_sent_ms is not None
    assert {p.name.removesuffix(".jsonl.gz") for p in data_files(store, "snapshot", "delta")} == set(ids)
    assert publishing.publisher.send().sent == 0


def test_the_newest_arrives_first_after_its_base(publishing: Publishing, store: Path) -> None:
    """After a long time away the state of now is what somebody waits for."""
    publishing.host.configure()
    ids = []
    midnight_ms = publishing.to_midnight_ms()
    for hour in range(3):
        publishing.clock.ahead_ms = midnight_ms + hour * HOUR_MS
        ids.append(publishing.look())
    sent = iter((False, False, False, False, True))
    told = publishing.publisher.send(stop=lambda: bool(data_files(store)) and next(sent))
    assert (told.sent, told.waiting, told.error) == (2, 1, None)
    assert [p.name.removesuffix(".jsonl.gz") for p in data_files(store)] == [ids[0], ids[2]]


def test_an_unmounted_store_is_not_written_into(tmp_path: Path, loop_fs: LoopFs) -> None:
    """Its mount point is an empty directory on the wrong disk; also for the very first publication."""
    point = loop_fs("tmpfs")
    init_store(str(point))
    unmount(point)
    publishing = Publishing(tmp_path, point)
    publishing.look()
    for publisher in (publishing.publisher, publishing.started()):
        told = publisher.send()
        assert told.error is not None
        assert f"{point} is not a fleet store" in told.error
        assert list(point.iterdir()) == []
    run("mount", "-t", "tmpfs", "tmpfs", point)
    init_store(str(point))
    assert publishing.publisher.send().error is None
    assert len(data_files(point, "snapshot")) == 1


def test_a_full_store_gets_everything_later_and_nothing_half(tmp_path: Path, loop_fs: LoopFs) -> None:
    store = loop_fs("tmpfs", size=1 << 20)
    init_store(str(store))
    publishing = Publishing(tmp_path, store)
    for n in range(200):
        (publishing.host.d1 / f"{os.urandom(90).hex()}-{n}").mkdir()
    publishing.look()
    filler = store / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 4096)
    os.truncate(filler, filler.stat().st_size - 3 * 4096)
    told = publishing.publisher.send()
    assert told.error is not None
    assert "No space left" in told.error
    assert told.waiting == 2
    assert landed(store) == []
    filler.unlink()
    assert publishing.publisher.send().sent == 2
    assert len(data_files(store)) == 2


def test_a_store_that_may_not_be_written_to_says_so(publishing: Publishing, store: Path) -> None:
    (store / "landing").rmdir()
    (store / "landing").write_text("not a directory")
    publishing.look()
    told = publishing.publisher.send()
    assert told.error is not None
    assert re.search("the fleet store .* failed: ", told.error)
    assert told.waiting == 2


def test_a_store_that_hangs_holds_up_nothing_else(tmp_path: Path, loop_fs: LoopFs) -> None:
    store = loop_fs("ext4")
    init_store(str(store))
    publishing = Publishing(tmp_path, store)
    publishing.look()
    told = []
    entered = threading.Event()
    run("fsfreeze", "--freeze", store)
    try:
        sender = threading.Thread(target=lambda: told.append(publishing.publisher.send(beat=entered.set)), daemon=True)
        sender.start()
        assert entered.wait(20)
        # Whatever else the daemon does goes on, looking at the host included.
        publishing.clock.ahead_ms = HOUR_MS
        second = publishing.look()
        assert sender.is_alive()
        assert told == []
    finally:
        run("fsfreeze", "--unfreeze", store)
    sender.join(60)
    assert [t.error for t in told] == [None]
    publishing.publisher.send()
    assert f"{second}.jsonl.gz" in {p.name for p in data_files(store)}


# The spool


def test_spooling_ends_when_the_daemon_does(publishing: Publishing) -> None:
    with looked_at(publishing.host, publishing.clock) as (session, facts), pytest.raises(Stopped):
        publishing.publisher.spool(session, facts, plan_ahead(session, facts), lambda: True)
    assert [name for name in publishing.spooled() if "-snapshot" in name] == []


def test_the_spool_is_bounded_and_the_oldest_go_but_not_the_base_of_others(tmp_path: Path) -> None:
    publishing = Publishing(tmp_path, tmp_path / "away")
    publishing.host.configure()
    publishing.clock.ahead_ms = midnight_ms = publishing.to_midnight_ms()
    first = publishing.look()
    size = publishing.publisher.send().waiting_bytes
    publishing.clock.ahead_ms = midnight_ms + HOUR_MS
    publishing.look()
    delta = publishing.publisher.send().waiting_bytes - size
    assert delta < size / 2
    publishing.limit_bytes = size + delta * 5 // 2
    publishing.publisher = publishing.started()
    ids = [first]
    for hour in range(2, 6):
        publishing.clock.ahead_ms = midnight_ms + hour * HOUR_MS
        ids.append(publishing.look())
    told = publishing.publisher.send()
    assert (told.waiting, told.dropped) == (3, 3)
    assert told.waiting_bytes <= publishing.limit_bytes
    publishing.store.mkdir()
    init_store(str(publishing.store))
    publishing.publisher.send()
    assert [p.name.removesuffix(".jsonl.gz") for p in data_files(publishing.store)] == [first, *ids[-2:]]


def test_one_snapshot_is_kept_however_large(tmp_path: Path) -> None:
    publishing = Publishing(tmp_path, tmp_path / "away", limit_bytes=1)
    publishing.host.configure()
    publishing.look()
    assert publishing.publisher.send().waiting == 1


def test_the_journals_room_is_left_alone(tmp_path: Path, loop_fs: LoopFs) -> None:
    publishing = Publishing(tmp_path, tmp_path / "away")
    publishing.host.configure()
    publishing.host.state = loop_fs("tmpfs", size=80 << 20) / "state"
    publishing.publisher = publishing.started()
    publishing.look()
    assert publishing.publisher.send().waiting == 1
    with (publishing.host.state.parent / "filler").open("wb") as file:
        file.write(b"x" * (20 << 20))
    publishing.clock.ahead_ms = HOUR_MS
    with pytest.raises(LogAgentError, match="for lack of space"):
        publishing.look()
    told = publishing.publisher.send()
    assert (told.waiting, told.dropped) == (0, 1)


def test_a_damaged_spool_stops_nothing(publishing: Publishing, store: Path) -> None:
    publishing.host.configure()
    publishing.look()
    (manifest,) = (publishing.host.state / "spool").glob("*.manifest.json")
    manifest.write_bytes(b'{"schema": "logagent.mani')
    publishing.clock.ahead_ms = HOUR_MS
    good = publishing.look()
    told = publishing.publisher.send()
    assert (told.sent, told.waiting, told.dropped, told.error) == (1, 0, 1, None)
    assert [p.name for p in data_files(store)] == [f"{good}.jsonl.gz"]


def test_a_spool_that_is_no_directory_is_said(publishing: Publishing) -> None:
    publishing.look()
    spool = publishing.host.state / "spool"
    spool.rename(spool.with_name("aside"))
    spool.write_text("")
    with pytest.raises(LogAgentError, match="cannot spool a snapshot"):
        publishing.look()


def test_making_a_publisher_touches_nothing(tmp_path: Path) -> None:
    """The daemon makes it in its main thread, which must never wait for a disk."""
    Publisher(str(tmp_path / "store"), str(tmp_path / "state"), SetClock(), host="h", interval_ms=1)
    assert list(tmp_path.iterdir()) == []
