"""A copy counts as covering another one only as it is when that one is about to go."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from logagent.base.records import Kind
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.rescue.plan_rescue import plan_rescue
from logagent.cleanup.session.gather import reads_of, rule_on_strays
from logagent.cleanup.session.session import Session
from logagent.disk.bounded_calls import BoundedCalls
from logagent.kafka.extents import EpochEnd
from logagent.kafka.files.log_extent import SegmentReading, SegmentReadings, parse_leader_epochs
from logagent.verdict.evidence.assignment_sources import Answering
from logagent.verdict.evidence.stray_questions import CopyReads
from tests.disk.messes import NODE, Mess, Sort, Thing, ThisNodeLeads, make
from tests.disk.sessions import FailingHost


@contextmanager
def session_on(mess: Mess) -> Iterator[Session]:
    """A session of the daemon's kind."""
    host = FailingHost(mess.root / "state", *mess.log_dirs)
    with host.session() as session:
        shutil.copy(mess.assignments, host.assignments)
        session.read_assignments()
        session.take_inventory()
        asking(session, ThisNodeLeads())
        yield session


def asking(session: Session, leaders: object) -> None:
    session.assignments.reader = cast(Any, leaders)
    session.assignments.answering = Answering(NODE, own=False, on_disk={})
    session._read_until = None  # it is not asked again who answers


def going_and_other(mess: Mess) -> tuple[Path, Path]:
    """What may go because of the other one, which stays."""
    ((going,),) = [(path,) for path in mess.if_led] or mess.may_go
    return going, mess.stays[0]


def planned(session: Session) -> Plan:
    found = plan_rescue(session, session.facts(), need=None).plan.actions
    return replace(session.plan(found, facts=session.facts()), needs_approval=None)


@pytest.mark.parametrize(
    ("sort", "edited"), [("stray-covered", "covering"), ("double", "covering"), ("double", "covered")]
)
def test_a_copy_whose_topic_id_was_edited_since_it_was_judged_does_not_count(
    tmp_path: Path, sort: Sort, edited: str
) -> None:
    """An in-place edit changes no time of the directory, so the inventory does not see it."""
    mess = make(tmp_path, [Thing(sort), Thing("assigned"), Thing("assigned")])
    going, other = going_and_other(mess)
    with session_on(mess) as session:
        plan = planned(session)
        assert [p.dir.name for p in plan.actions] == [going.name]
        metadata = (other if edited == "covering" else going) / "partition.metadata"
        with metadata.open("r+") as file:
            file.write("version: 0\ntopic_id: LivesLivesLivesLivesLA\n")
        done = session.log_manager().execute(plan)
    assert [(r.key.name, r.why.code) for r in done.refusals] == [(going.name, "assigned")]
    assert going.exists() and other.exists()


def spoil(directory: Path) -> None:
    """Zeros in the middle of its first segment, which neither its end nor its size shows."""
    path = directory / f"{0:020d}.log"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(before.st_size // 3)
        file.write(bytes(4096))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("sort", ["stray-covered", "stray-covered-elsewhere", "double", "copy-stray"])
def test_a_copy_that_is_damaged_in_the_middle_does_not_count(tmp_path: Path, sort: Sort) -> None:
    mess = make(tmp_path, [Thing(sort), Thing("assigned"), Thing("assigned")])
    going, other = going_and_other(mess)
    spoil(other)
    size = (other / f"{0:020d}.log").stat().st_size
    with session_on(mess) as session:
        plan = planned(session)
        assert [p.dir.name for p in plan.actions] == [going.name], "a plan reads nothing"
        done = session.log_manager().execute(plan)
        assert [(r.key.name, r.why.code) for r in done.refusals] == [(going.name, "assigned")]
        assert (
            f"{other} does not count ({0:020d}.log has no sound batch at byte {size // 4} of {size}"
            in done.refusals[0].why.fact
        )
        # What was found is remembered.
        assert planned(session).actions == ()
    assert going.exists() and other.exists()


@pytest.mark.parametrize("sort", ["stray-covered", "stray-covered-elsewhere", "double"])
def test_a_copy_whose_checkpoint_is_not_true_of_its_records_does_not_count(tmp_path: Path, sort: Sort) -> None:
    """It ends the same epoch as late, but its first records are of another leader."""
    mess = make(tmp_path, [Thing(sort), Thing("assigned"), Thing("assigned")])
    going, other = going_and_other(mess)
    path = other / "leader-epoch-checkpoint"
    (epoch, start), *later = parse_leader_epochs(path.read_bytes())
    with session_on(mess) as session:
        path.write_text("".join(f"{line}\n" for line in (0, 1 + len(later), f"{epoch} {start + 1}")))
        with path.open("a") as file:
            file.writelines(f"{e} {at}\n" for e, at in later)
        plan = planned(session)
        assert [p.dir.name for p in plan.actions] == [going.name]
        done = session.log_manager().execute(plan)
    (refusal,) = done.refusals
    assert f"is of leader epoch {epoch} at offset {start}, its leader-epoch-checkpoint says none" in refusal.why.fact
    assert going.exists() and other.exists()


@pytest.mark.parametrize("sort", ["stray-covered", "double"])
def test_a_copy_is_read_as_far_as_there_is_time(tmp_path: Path, sort: Sort) -> None:
    """The next cycle of the daemon goes on where one ended."""
    mess = make(tmp_path, [Thing(sort), Thing("assigned"), Thing("assigned")])
    going, other = going_and_other(mess)
    first, _ = (path.stat().st_size for path in sorted(other.glob("*.log")))
    with session_on(mess) as session:
        plan = planned(session)
        refused = []
        for left in (first - 1, first):
            reads_of(session).left = left
            refused += [r.why.fact for r in session.log_manager().execute(plan).refusals]
    (fact,) = refused
    assert fact.endswith(f"{other} does not count (not verified: {first} bytes to read)")
    assert other.exists() and not going.exists()


def test_reading_ends_when_it_is_told_to(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray-covered"), Thing("assigned"), Thing("assigned")])
    with session_on(mess) as session:
        (stray,) = (p.dir for p in planned(session).actions)
        facts = session.again([stray], lambda: True)
        assert "bytes to read" in facts.strays[stray.key].why.fact
        assert session.again([stray]).strays[stray.key].may_go


def test_a_later_cycle_remembers_what_was_read(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray-covered"), Thing("assigned"), Thing("assigned")])
    spoil(mess.stays[0])
    read: SegmentReadings = {}
    with session_on(mess) as session:
        session.reads = CopyReads(read)
        plan = planned(session)
        assert [r.outcome.value for r in session.log_manager().execute(plan).results.values()] == ["skipped"]
    with session_on(mess) as session:
        session.reads = CopyReads(read)
        assert planned(session).actions == ()


def test_where_a_leader_covers_it_no_copy_here_is_read(tmp_path: Path) -> None:
    class Leader:
        def epoch_ends(self, asked: Mapping[Any, Any], *_: Any, **__: Any) -> dict[Any, EpochEnd]:
            return {key: EpochEnd("the leader", epoch, 100, 0, high_watermark=100) for key, (_, epoch) in asked.items()}

        def close(self) -> None:
            pass

    mess = make(tmp_path, [Thing("stray-covered"), Thing("assigned"), Thing("assigned")])
    spoil(mess.stays[0])
    with session_on(mess) as session:
        (stray,) = session.of_kind(Kind.STRAY)
        session.facts()
        asking(session, Leader())
        with reads_of(session).allowed(lambda: False) as has_read:
            ruling = rule_on_strays(session, [stray], session.clock.now_ms(), to_act=True)
        assert ruling[stray.key].may_go and not has_read()


def test_a_disk_that_hangs_while_a_copy_is_read_is_given_up(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray-covered-elsewhere"), Thing("assigned"), Thing("assigned")])
    over = threading.Event()
    with session_on(mess) as session:
        (stray,) = session.of_kind(Kind.STRAY)
        assert isinstance(session.calls, BoundedCalls)
        failures = session.calls.failures

        def hang() -> bool:
            """As the prober finds it, while a read of that disk does not return."""
            failures.mark_offline(str(mess.log_dirs[1]), "it hangs")
            return over.wait(60)

        facts = session.again([stray], hang)
        assert not over.is_set()
        assert not facts.strays[stray.key].may_go
        over.set()


def test_the_newest_segment_is_read_again_in_a_later_cycle() -> None:
    """It grows, so only its inode identifies it, and another file may have that by then."""
    known = {
        (1, 10): SegmentReading((5, 0, 0), 40, whole=True),
        (1, 11): SegmentReading((5, 0, 0), 80, whole=False, is_last=True),
    }
    assert CopyReads(known).known.keys() == {(1, 10)}
