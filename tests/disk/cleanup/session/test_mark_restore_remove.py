"""async_delete, restore and removal on ext4, xfs and tmpfs: outcomes, checkpoints, names, and a broker that comes."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.base.clock import SystemClock
from logagent.base.config.settings import CleanupSettings, DeleteSettings, KafkaSettings, Settings
from logagent.base.dir_names import CHECKPOINTS, LOG_START_OFFSET
from logagent.base.errors import KafkaStorageError
from logagent.base.records import ActionKind, Kind, Outcome, PartitionDir, TopicPartition
from logagent.cleanup.commands import cleanup
from logagent.cleanup.execute.renames import PlanJournal
from logagent.cleanup.plan.plan import Flags, Plan, Proposal, action_id
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.session.session import Session, new_uuid, open_session
from logagent.kafka.files.checkpoint_files import parse_checkpoint
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.kafka.processes.target import resolve_target
from logagent.verdict.evidence.assignment_sources import Assignments
from logagent.verdict.facts import Facts
from tests.disk.killed import HEX, LONG, deleting, in_process, lay_out, under_strace
from tests.host_files import image_of, whole_partition
from tests.needs import need_command, need_root
from tests.waiting import pause

Spawn = Callable[..., Any]
ORDERS = TopicPartition("orders", 0)
FREELY = Flags(allow_assigned=True, even_last_copy=True)
SETTINGS = Settings(
    kafka=KafkaSettings(version="3.9.1"),
    cleanup=CleanupSettings(max_fraction=1.0, stray_retention=0, leftover_grace=0),
    delete=DeleteSettings(file_delete_delay_ms=0),
)

# Takes the record lock as a broker does when told to, and says so.
HOLDER = """
import fcntl, sys
print("ready", flush=True)
sys.stdin.readline()
file = open(sys.argv[1] + "/.lock", "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["ext4", "xfs", "tmpfs"])
def root(request: pytest.FixtureRequest, folder_on: Callable[[str], Path]) -> Path:
    """A laid out host on each kind of file system; the state dir beside the log dir."""
    path = folder_on(request.param)
    lay_out(path)
    return path


@contextmanager
def session_of(root: Path, *more: Path, act: bool = True) -> Iterator[Session]:
    target = resolve_target(SETTINGS, [str(root / "d1"), *map(str, more)])
    with open_session(target, SETTINGS, SystemClock(), state_dir=str(root / "state"), act=act, actor="test") as session:
        session.take_inventory()
        yield session


def marking(found: PartitionDir) -> Proposal:
    return rename_away(found, is_stray=False, reason="test", new_uuid=new_uuid, flags=FREELY)


def removing(found: PartitionDir) -> Proposal:
    return Proposal(ActionKind.REMOVE, found, "test")


def plan_of(session: Session, kinds: tuple[Kind, ...], propose: Callable[[PartitionDir], Proposal]) -> Plan:
    chosen = [d for d in session.of_kind(*kinds) if d.topic != "payments"]
    return session.plan([propose(d) for d in sorted(chosen, key=lambda d: d.name)], facts=session.facts())


def names(root: Path, suffix: str = "") -> list[str]:
    return sorted(p.name for p in (root / "d1").iterdir() if p.is_dir() and p.name.endswith(suffix))


def entries(root: Path, file: str) -> dict[str, int]:
    return {str(tp): offset for tp, offset in parse_checkpoint((root / "d1" / file).read_bytes()).items()}


# async_delete and its three outcomes


def async_delete(session: Session, partition: TopicPartition, *, is_future: bool = False) -> dict[str, Outcome] | None:
    """As `logagent delete --execute` goes; None where there is no such log."""
    plan, absent = cleanup.async_delete(session, session.facts(), [partition], is_future=is_future, flags=FREELY)
    execution = session.log_manager().execute(plan)
    assert absent in ([], [partition])
    return None if absent else {key: r.outcome for key, r in execution.results.items()}


def test_a_log_that_is_there_is_renamed_in_its_log_dir(root: Path) -> None:
    before = {p.name: p.read_bytes() for p in (root / "d1" / "orders-0").iterdir()}
    inode = (root / "d1" / "orders-0").stat().st_ino
    with session_of(root) as session:
        outcomes = async_delete(session, ORDERS)
    assert outcomes is not None and list(outcomes.values()) == [Outcome.DONE]
    (marked,) = names(root, "-delete")
    assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-delete", marked)
    assert {p.name: p.read_bytes() for p in (root / "d1" / marked).iterdir()} == before
    assert (root / "d1" / marked).stat().st_ino == inode


def test_one_that_is_not_there_is_nothing_and_no_error(root: Path) -> None:
    with session_of(root) as session:
        assert async_delete(session, TopicPartition("nobody", 0)) is None
        assert async_delete(session, ORDERS, is_future=True) is None
        assert async_delete(session, ORDERS) is not None
        session.take_inventory()
        # Repeated: what makes a second StopReplica succeed.
        assert async_delete(session, ORDERS) is None


def test_one_that_may_be_in_an_offline_log_dir_is_an_error(root: Path) -> None:
    with session_of(root, root / "missing") as session:
        with pytest.raises(KafkaStorageError, match="may be in one of the offline directories"):
            async_delete(session, TopicPartition("nobody", 0))
        outcomes = async_delete(session, ORDERS)
    assert outcomes is not None and list(outcomes.values()) == [Outcome.DONE]


# Checkpoints


def test_entries_go_with_their_partition_and_come_back_with_owner_and_mode(root: Path) -> None:
    need_root()
    before = {file: entries(root, file) for file in CHECKPOINTS}
    for number, file in enumerate(CHECKPOINTS):
        os.chown(root / "d1" / file, 12345 + number, 23456)
        (root / "d1" / file).chmod(0o640 + number)
    status, document = in_process(root, deleting("orders"))
    assert status == 0
    kept = {"payments-0", f"{LONG}-0"}
    for file in CHECKPOINTS:
        # Stale replication entries do no harm and are the broker's own.
        gone = set() if file.startswith("replication") else {"orders-0", "orders-1"}
        assert entries(root, file).keys() == kept | {"orders-0", "orders-1"} - gone
    assert in_process(root, ["restore", "--retention-will-delete", "--plan", document["plan_id"], "--execute"])[0] == 0
    assert {file: entries(root, file) for file in CHECKPOINTS} == before
    for number, file in enumerate(CHECKPOINTS):
        found = (root / "d1" / file).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345 + number, 23456, 0o640 + number)
    assert not [p for p in (root / "d1").iterdir() if p.name.startswith(".logagent")]


def test_a_stray_takes_no_entries_of_the_log_that_lives_beside_it(root: Path) -> None:
    """Marking what the broker set aside: its partition is current again, with entries of its own."""
    whole_partition(root / "d1" / f"orders-0.{HEX}-stray", "EEEEEEEEEEEEEEEEEEEEEA")
    before = {file: entries(root, file) for file in CHECKPOINTS}
    with session_of(root) as session:
        session.log_dirs.read_cluster()
        cluster, now_ms = session.log_dirs.cluster, session.clock.now_ms()
        assert cluster.node_id is not None
        elsewhere = Topic("elsewhere", "AAAAAAAAAAAAAAAAAAAAEA", {0: PartitionAssignment((cluster.node_id, 99))})
        image = image_of(elsewhere, at_ms=now_ms, cluster_id=cluster.cluster_id)
        session.assignments = Assignments(usable=[image], mode_known=True)
        plan = plan_of(session, (Kind.STRAY,), marking)
        done = session.log_manager().execute(plan)
        assert [r.outcome for r in done.results.values()] == [Outcome.DONE]
    assert {file: entries(root, file) for file in CHECKPOINTS} == before


# Names


def test_the_longest_topic_comes_back_whole(root: Path) -> None:
    """KAFKA-4893, and the way back: the directory name has lost the end of the topic, the journal has not."""
    status, document = in_process(root, deleting(LONG))
    assert status == 0
    (marked,) = names(root, "-delete")
    assert len(marked) == 255 and LONG not in marked
    assert in_process(root, ["restore", "--retention-will-delete", marked, "--execute"])[0] == 0
    assert f"{LONG}-0" in names(root) and not names(root, "-delete")
    assert document["actions"][0]["topic"] == LONG


def test_a_number_with_zeros_comes_back_to_the_letter(root: Path) -> None:
    _, document = in_process(root, ["delete", "--partition", "orders-1", *deleting("")[3:]])
    assert [n[:9] for n in names(root, "-delete")] == ["orders-1."]
    assert "orders-01" not in names(root)
    assert in_process(root, ["restore", "--retention-will-delete", "--plan", document["plan_id"], "--execute"])[0] == 0
    assert "orders-01" in names(root) and not names(root, "-delete")


@pytest.mark.parametrize("stands_there", ["empty directory", "file", "dangling symlink"])
def test_what_appears_at_the_old_name_meanwhile_is_never_replaced(root: Path, stands_there: str) -> None:
    """After the plan was made, before it is carried out: nothing but the rename itself can see it."""
    assert in_process(root, deleting("orders"))[0] == 0
    place = root / "d1" / "orders-0"
    with session_of(root) as session:
        found = next(d for d in session.of_kind(Kind.DELETE) if d.partition == 0)
        back = Proposal(ActionKind.RESTORE, found, "test", new_name="orders-0", full_topic="orders")
        plan = session.plan([back], facts=session.facts())
        if stands_there == "empty directory":
            place.mkdir()
        elif stands_there == "file":
            place.write_bytes(b"theirs")
        else:
            place.symlink_to("nowhere")
        seen = place.lstat()
        done = session.log_manager().execute(plan)
        (result,) = done.results.values()
    assert result.outcome is Outcome.FAILED and "exists" in (result.error or "")
    assert (place.lstat().st_ino, place.lstat().st_mtime_ns) == (seen.st_ino, seen.st_mtime_ns)
    assert (root / "d1" / found.name).is_dir()


# Batches


def test_a_batch_is_one_fsync(tmp_path: Path) -> None:
    need_command("strace")
    lay_out(tmp_path)
    for file in CHECKPOINTS:
        (tmp_path / "d1" / file).unlink()
    log = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,renameat2,rename,renameat"
    done = under_strace(tmp_path, deleting(f"orders|{LONG}"), "-y", "-o", str(log), "-e", calls)
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines() if f"{tmp_path}/d1" in line]
    assert [line.partition("(")[0] for line in lines] == ["renameat2"] * 3 + ["fsync"]


# A broker that comes


def come(holder: Any) -> None:
    """The broker takes its lock now."""
    holder.tell("now")
    assert holder.line() == "locked"
    pause(0.003, "longer than a look is good for")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_broker_that_comes_in_mid_batch_is_left_alone_with_the_rest(root: Path, spawn: Spawn, after: int) -> None:
    holder = spawn(HOLDER, root / "d1")
    (root / "d1" / "empty-9").mkdir()
    came: list[bool] = []

    def stop() -> bool:
        """Asked before each rename. The log start offsets are out of their checkpoint by then."""
        started = "orders-0" not in entries(root, LOG_START_OFFSET)
        if started and not came and len(names(root, "-delete")) == after:
            came.append(True)
            come(holder)
        return False

    with session_of(root) as session:
        plan = plan_of(session, (Kind.CURRENT,), marking)
        assert len(plan.actions) == 4
        execution = session.log_manager(stop=stop).execute(plan)
        outcomes = [r.outcome for r in execution.results.values()]
        assert outcomes == [Outcome.DONE] * after + [Outcome.YIELDED] * (4 - after)
        assert session.journal.unsettled() == []
        # Had it an entry that went before its turn came, it is told what the broker does not see.
        for p in plan.actions[after:]:
            said = next(r.error for key, r in execution.results.items() if key == action_id(p)) or ""
            assert f"process {holder.pid} holds the lock" in said
            assert ("could not be put back" in said) == (p.dir.topic != "empty")
    assert len(names(root, "-delete")) == after
    assert [n for n in names(root) if not n.endswith("-delete")] == sorted(
        [*(p.dir.name for p in plan.actions[after:]), "payments-0"]
    )
    with session_of(root) as session:
        assert plan_of(session, (Kind.CURRENT,), marking).actions == ()


def test_a_broker_that_comes_before_the_batch_finds_its_checkpoints_untouched(root: Path, spawn: Spawn) -> None:
    holder = spawn(HOLDER, root / "d1")
    before = {file: (root / "d1" / file).read_bytes() for file in CHECKPOINTS}
    with session_of(root) as session:
        plan = plan_of(session, (Kind.CURRENT,), marking)
        manager = session.log_manager()

        def look_then_come(dirs: Sequence[PartitionDir]) -> Facts:
            facts = session.facts(dirs)
            come(holder)
            return facts

        execution = replace(manager, read_facts=look_then_come).execute(plan)
        assert {r.outcome for r in execution.results.values()} == {Outcome.YIELDED}
    assert {file: (root / "d1" / file).read_bytes() for file in CHECKPOINTS} == before
    assert not names(root, "-delete")


@pytest.mark.parametrize("after", [0, 3, 9, 14])
def test_a_removal_yields_to_a_broker_and_goes_on_when_it_is_gone(root: Path, spawn: Spawn, after: int) -> None:
    marked = [f"gone-{n}.{HEX}-delete" for n in range(2)]
    for name in marked:
        whole_partition(root / "d1" / name, "EEEEEEEEEEEEEEEEEEEEEA")
    whole = {name: sorted(p.name for p in (root / "d1" / name).iterdir()) for name in marked}
    holder = spawn(HOLDER, root / "d1")
    asked, threads = 0, set(threading.enumerate())

    def stop() -> bool:
        nonlocal asked
        if asked == after:
            come(holder)
        asked += 1
        return False

    with session_of(root) as session:
        plan = plan_of(session, (Kind.DELETE,), removing)
        execution = session.log_manager(stop=stop).execute(plan)
        outcomes = [r.outcome for r in execution.results.values()]
        assert outcomes[-1] is not Outcome.DONE and Outcome.FAILED not in outcomes
        # Begun with the first and not reached: its mark cannot be taken back beside a broker, so its intent stays open.
        assert {e.intent.name for e in session.journal.unsettled()} <= set(marked[1:])
        for entry in session.journal.unsettled():
            assert sorted(p.name for p in (root / "d1" / entry.intent.name).iterdir()) == whole[entry.intent.name]
    left = {name: sorted(p.name for p in (root / "d1" / name).iterdir()) for name in names(root, "-delete")}
    assert set(threading.enumerate()) <= threads, "nobody is left who could remove more"
    assert left
    assert [f for f in left.values() if len(f) == 8 and f"{100:020d}.index" in f and f"{100:020d}.log" not in f] == []
    status, document = in_process(root, ["cleanup", "--execute"])
    # The broker removes them itself, when its own delay after its start is over.
    assert (status, document["actions"], document["refusals"]) == (0, [], [])
    assert {w["name"]: w["reason"] for w in document["waiting"]} == dict.fromkeys(left, "the running broker removes it")
    holder.close()
    assert in_process(root, ["cleanup", "--execute"])[0] == 0
    assert not names(root, "-delete") and "payments-0" in names(root)
    with session_of(root) as session:
        assert session.journal.unsettled() == []


def test_no_garbage_is_collected_between_a_look_and_a_call(root: Path) -> None:
    """With 100,000 directories in memory a full collection takes tenths of a second: longer than a broker needs from
    its lock to the listing."""
    for n in range(20):
        whole_partition(root / "d1" / f"gone-{n}.{HEX}-delete", "EEEEEEEEEEEEEEEEEEEEEA")
    collections, counts = 0, []

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal collections
        collections += 1

    def stop() -> bool:
        """Asked before each file."""
        counts.append(collections)
        return False

    before = gc.get_threshold()
    with session_of(root) as session:
        plan = plan_of(session, (Kind.DELETE,), removing)
        gc.set_threshold(1, 1, 1)
        gc.callbacks.append(collected)
        try:
            execution = session.log_manager(stop=stop).execute(plan)
        finally:
            gc.callbacks.remove(collected)
            gc.set_threshold(*before)
    assert {r.outcome for r in execution.results.values()} == {Outcome.DONE} and gc.isenabled()
    assert len(counts) > len(plan.actions) and counts[-1] == counts[0]


def test_a_refused_restore_sets_nothing_aside(root: Path) -> None:
    """The living partition stays where it is when the stray that it should make room for cannot be trusted."""
    stray = f"orders-0.{HEX}-stray"
    whole_partition(root / "d1" / stray, "EEEEEEEEEEEEEEEEEEEEEA")
    before = names(root)
    (root / "d1" / stray / "partition.metadata").write_text("not what it should be")
    status, document = in_process(root, ["restore", "--retention-will-delete", stray, "--replace", "--execute"])
    assert status == 3 and document["actions"] == []
    assert {r["name"]: r["guard"] for r in document["refusals"]} == {stray: "inside"}
    assert names(root) == before


def test_a_whole_directory_whose_removal_yielded_comes_back(root: Path) -> None:
    """What has begun is said by the mark on disk, which comes before the first unlink: a removal that met a broker
    before that took nothing, and its intent in the journal kept a whole directory from coming back."""
    before = names(root)
    status, document = in_process(root, deleting("orders"))
    assert status == 0, document
    (marked,) = (a["new_name"] for a in document["actions"] if a["name"] == "orders-0" and a["new_name"])
    with session_of(root) as session:
        (found,) = (d for d in session.dirs if d.name == marked)
        journal = PlanJournal(session.journal, session.clock.now_ms, "removal", "test")
        journal.finish([(n, Outcome.YIELDED, "a broker came") for n in journal.begin([removing(found)])])
        assert session.recall().removal_intents.keys() == {(found.log_dir, marked)} and not found.removal_started
    status, document = in_process(
        root, ["restore", "--retention-will-delete", "--plan", document["plan_id"], "--execute"]
    )
    assert status == 0, document
    assert names(root) == before
    # Set aside again it has its whole retention before it: what was begun ended with its restore.
    status, document = in_process(root, [*deleting("orders"), "--quarantine"])
    assert status == 0, document
    with session_of(root) as session:
        assert session.recall().removal_intents == {}
