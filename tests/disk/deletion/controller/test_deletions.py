"""Requests carried out on a real store, and everything that somebody may do to it meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from logagent.base.errors import ConfigError, ServiceUnreachable
from logagent.base.units import human_time, instant
from logagent.deletion.controller.topic_deletion_manager import PartitionState, ReplicaState
from logagent.deletion.store.answers import Answer, Answers, DirectoryAnswer, TopicAnswer
from logagent.deletion.store.requests import (
    DECISION_SCHEMA,
    Decision,
    Filed,
    RequestedDirectory,
    RequestedPartition,
    RequestedTopic,
    encode,
)
from logagent.store.signing import PrivateKey, public_key
from tests.disk.deletion.controller.small_fleet import CLUSTER, KEY, NAME, NODES, TOPIC_ID, SmallFleet
from tests.long_form import FULL

STRANGER = PrivateKey("ops", b"\x02" * 32)


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path / "store")


def done(fleet: SmallFleet, number: str) -> None:
    """Rounds and looks until it is over, as three hosts and one process come to it."""
    process = fleet.process()
    for _ in range(4):
        process.round()
        fleet.brokers_delete()
        fleet.minute()
    process.round()
    assert fleet.state(number).state == "done", fleet.progress(number)


def test_a_topic_is_deleted_once_everywhere(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    assert fleet.admin.sent == [TOPIC_ID]
    (topic,) = fleet.progress(number)
    assert topic.states == {ReplicaState.INELIGIBLE: 3} and topic.partitions == {PartitionState.OFFLINE: 1}
    fleet.brokers_delete()
    fleet.minute()
    process.round()
    (topic,) = fleet.progress(number)
    assert topic.states == {ReplicaState.NON_EXISTENT: 3} and topic.partitions == {PartitionState.NON_EXISTENT: 1}
    assert fleet.state(number).state == "done" and fleet.admin.sent == [TOPIC_ID]


def test_a_broker_that_was_down_is_named_and_waited_for(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    fleet.admin.live.discard(3)
    process.round()
    fleet.brokers_delete()
    fleet.now += timedelta(hours=3)
    fleet.minute(1, 2)
    process.round()
    (topic,) = fleet.progress(number)
    (missing,) = topic.missing
    assert missing.node_id == 3 and "broker 3 is down" in missing.reason.fact and missing.reason.hint
    assert fleet.state(number).state == "deleting"
    fleet.admin.live.add(3)
    fleet.brokers_delete()
    fleet.minute()
    process.round()
    assert fleet.state(number).state == "done"


def test_a_host_that_is_silent_for_days_says_since_when(fleet: SmallFleet) -> None:
    """Its last snapshot is older than what is read each time."""
    fleet.publish(3)
    heard = human_time(fleet.now)
    fleet.now += timedelta(days=5)
    number = fleet.request(topics=(fleet.topic(),))
    fleet.process().round()
    fleet.brokers_delete()
    fleet.minute(1, 2)
    (missing,) = (m for t in fleet.progress(number) for m in t.missing)
    assert (missing.node_id, missing.reason.fact) == (3, f"its host has been silent since {heard}")


def test_disabled_deletion_is_final_whatever_is_enabled_later(fleet: SmallFleet) -> None:
    """It was "dropped", reopened, and the living topic was deleted with its records."""
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.enabled = False
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    assert fleet.state(number).state == "disabled" and len(fleet.admin.sent) == 1
    (topic,) = fleet.progress(number)
    assert (topic.result, topic.waits, topic.complete) == ("disabled", "TOPIC_DELETION_DISABLED", False)
    fleet.admin.enabled = True
    for node in NODES:
        fleet.publish(node)
    other = fleet.process("elsewhere")
    for _ in range(3):
        process.round()
        other.round()
        fleet.minute()
    assert len(fleet.admin.sent) == 1 and TOPIC_ID in fleet.admin.living


def test_a_cancellation_counts_until_the_cluster_is_asked(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the look, beside the decision to delete."""
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.says = "REQUEST_TIMED_OUT"
    process, other = fleet.process(), fleet.process("other")
    process.round()
    fleet.minute()
    assert len(fleet.admin.sent) == 1 and other.reader.read().filed[number].decision is not None
    filed = other.reader.read().filed[number]
    monkeypatch.setattr(fleet.admin, "clock", lambda: other.cancel(filed) and None)
    process.round()
    assert len(fleet.admin.sent) == 1 and fleet.state(number).state == "cancelled"


@pytest.mark.parametrize("then", ["cancelled", "on-hold"])
def test_what_becomes_of_it_while_the_fleet_is_read_counts(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The cluster is asked for its brokers after the requests were read, and before anything is sent."""
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.says = "REQUEST_TIMED_OUT"
    process, other = fleet.process(), fleet.process("other")
    process.round()
    fleet.minute()
    filed, live_brokers = other.reader.read().filed[number], fleet.admin.live_brokers

    def meanwhile() -> Collection[int]:
        if then == "cancelled":
            other.cancel(filed)
        else:
            fleet.place(number, "decision.json").write_bytes(b"")
        return live_brokers()

    with monkeypatch.context() as patch:
        patch.setattr(fleet.admin, "live_brokers", meanwhile)
        process.round()
    assert len(fleet.admin.sent) == 1 and fleet.state(number).state == then
    if then == "cancelled":  # which this process has seen, also if the store falls back
        for path in fleet.place(number).glob("decision-*.json"):
            path.unlink()
        process.round()
        assert len(fleet.admin.sent) == 1


def test_without_a_key_nothing_is_written(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process(key=None)
    with pytest.raises(ConfigError, match="no private key"):
        process.cancel(process.reader.read().filed[number])
    assert fleet.state(number).state == "open"


def test_the_last_topic_is_closed_by_whoever_carries_out(fleet: SmallFleet) -> None:
    """Its cluster lists nothing else by then, so it does not show that it knows ids; who sent it is gone."""
    fleet.admin.shows_ids = False
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    assert fleet.admin.sent == [TOPIC_ID] and fleet.admin.living == {}
    fleet.brokers_delete()
    fleet.minute()
    (topic,) = fleet.progress(number)
    assert fleet.state(number).state == "deleting" and "topics run" in (topic.waits or "")
    late = fleet.process("late")
    late.round()
    fleet.minute()
    late.round()
    assert fleet.state(number).state == "done" and fleet.admin.sent == [TOPIC_ID] * 2


def test_what_a_broker_lists_refutes_its_agent(fleet: SmallFleet) -> None:
    """A host that lies about having nothing: its broker says otherwise; about others it can say nothing."""
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    liar = Answer(CLUSTER, 3, number, "kafka-3", f"{3:032x}", instant(fleet.now), (), (TopicAnswer(TOPIC_ID, 0, 0),))
    fleet.answers.write(liar)
    assert [m.node_id for t in fleet.progress(number) for m in t.missing] == [1, 2], "nobody else can tell"
    fleet.admin.described = {3}
    (_, _, refuted) = (m for t in fleet.progress(number) for m in t.missing)
    assert (refuted.node_id, refuted.reason.fact) == (3, "broker 3 still has it")
    fleet.admin.described = set()
    assert fleet.state(number).state == "deleting"
    forged = Answer(CLUSTER, 1, number, "kafka-3", f"{3:032x}", instant(fleet.now), (), (TopicAnswer(TOPIC_ID, 0, 0),))
    path = fleet.store / "answers" / CLUSTER / "2" / f"{number}.json"
    fleet.answers.write(forged)
    shutil.copy(fleet.store / "answers" / CLUSTER / "1" / f"{number}.json", path)
    assert [m.node_id for t in fleet.progress(number) for m in t.missing] == [2], "another node's file is no answer"


def test_one_lying_host_stops_no_request(fleet: SmallFleet) -> None:
    """Whatever is in its folder: junk, huge numbers, decisions that nobody signed, times from the future."""
    number = fleet.request(topics=(fleet.topic(),))
    folder = fleet.store / "answers" / CLUSTER / "3"
    process = fleet.process()
    process.round()
    fleet.minute()
    forged = STRANGER.sign(DECISION_SCHEMA, encode(Decision(number, CLUSTER, "cancelled", "x", instant(fleet.now))))
    (folder / "seen.json").write_bytes(forged)
    os.utime(folder / "seen.json", (fleet.now.timestamp() + 10**6,) * 2)
    (folder / f"{number}.json").write_bytes(b"\x00" * 1000)
    for each in range(500):
        (folder / f"{each:064x}.json").write_bytes(b"[" * 1000)
    process.round()
    assert fleet.admin.sent == [TOPIC_ID]


def test_what_would_hang_whoever_opens_it_hangs_nobody(fleet: SmallFleet) -> None:
    """FIFOs in every place that is read."""
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute(1, 2)
    for path in (
        fleet.store / "answers" / CLUSTER / "3" / "seen.json",
        fleet.store / "answers" / CLUSTER / "1" / f"{number}.json",
        fleet.store / "control" / CLUSTER / "runners" / "x.json",
        fleet.place(number, "decision-" + "0" * 32 + ".json"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    process.round()
    assert fleet.admin.sent == [TOPIC_ID]


def test_two_hosts_on_one_node_id_are_named(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    fleet.brokers_delete()
    fleet.publish(3, host="kafka-9")
    fleet.minute()
    (missing,) = (m for t in fleet.progress(number) for m in t.missing)
    assert (missing.node_id, missing.reason.fact) == (3, "two hosts claim node id 3: kafka-3 and kafka-9")
    assert missing.reason.hint


def test_a_recreated_name_is_another_topic(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    fleet.admin.described = {3}
    fleet.brokers_delete()
    fleet.topic((3,), topic_id="B" * 22)
    fleet.minute(1, 2)
    (topic,) = fleet.progress(number)
    assert [m.node_id for m in topic.missing] == [3], "the broker lists the new topic under that name"
    fleet.minute(3)
    process.round()
    assert fleet.state(number).state == "done" and fleet.admin.living.keys() == {"B" * 22}
    assert fleet.admin.sent == [TOPIC_ID]


def test_an_id_under_another_name_is_dropped(fleet: SmallFleet) -> None:
    asked = fleet.topic()
    number = fleet.request(topics=(asked,))
    fleet.admin.living[TOPIC_ID] = replace(asked, topic="renamed")
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    assert fleet.state(number).state == "dropped" and fleet.admin.sent == []


def test_replicas_that_came_after_the_request_belong_to_the_decision(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic((1, 2)),))
    fleet.admin.living[TOPIC_ID] = replace(fleet.topic((1, 2, 3)), partitions=(RequestedPartition(0, (1, 2, 3)),))
    process = fleet.process()
    process.round()
    # Before any snapshot or answer of node 3 shows it.
    assert sorted(m.node_id for t in fleet.progress(number) for m in t.missing) == [1, 2, 3]
    fleet.minute()
    process.round()
    assert sorted(m.node_id for t in fleet.progress(number) for m in t.missing) == [1, 2, 3]


def test_a_copy_in_a_later_snapshot_belongs_to_it_too(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic((1, 2)),))
    process = fleet.process()
    process.round()
    fleet.minute(1, 2)
    process.round()
    fleet.brokers_delete()
    fleet.disks[3].add((TOPIC_ID, 0))
    fleet.now += timedelta(minutes=1)
    fleet.publish(3)
    fleet.minute(1, 2)
    (missing,) = (m for t in fleet.progress(number) for m in t.missing)
    assert missing.node_id == 3 and "it was there at" in missing.reason.fact
    assert fleet.state(number).state == "deleting"


UNREAD = {"row": "dir", "kind": "current", "log_dir": "/d1", "name": f"{NAME}-0", "topic": NAME, "topic_id": None,
          "partition": 0, "bytes": 100, "allocated": 200, "error": "partition.metadata is empty"}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (UNREAD, True),
        ({k: v for k, v in UNREAD.items() if k != "topic_id"}, True),
        # An id of its own, whose directory is nobody's business here.
        ({**UNREAD, "topic_id": "B" * 22}, False),
        ({**UNREAD, "topic": "views", "name": "views-0"}, False),
        ({**UNREAD, "kind": "stray"}, False),
        # One host's bad row stops nobody.
        ({k: v for k, v in UNREAD.items() if k != "kind"}, False),
        ({**UNREAD, "kind": ["current"]}, False),
        ({**UNREAD, "topic": {"of": NAME}}, False),
    ],
    ids=[
        "of its name, without an id",
        "as agents publish it",
        "another id",
        "another name",
        "stray",
        "no kind",
        "odd kind",
        "odd topic",
    ],
)
def test_a_directory_of_its_name_whose_id_a_snapshot_does_not_know_keeps_the_replica_open(
    fleet: SmallFleet, row: dict[str, object], holds: bool
) -> None:
    """Nothing but snapshots is heard of node 3, whose broker is down: an empty `partition.metadata` was read as a
    replica that is gone."""
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.round()
    fleet.minute(1, 2)
    process.round()
    fleet.admin.live.discard(3)
    fleet.disks[3].clear()
    fleet.brokers_delete()
    fleet.now += timedelta(minutes=10)
    fleet.publish(3, more=[row])
    fleet.minute(1, 2)
    missing = [m for t in fleet.progress(number) for m in t.missing]
    assert [m.node_id for m in missing] == ([3] if holds else [])
    assert [m for m in missing if not ("topic id" in m.reason.fact and "could not be read" in m.reason.fact)] == []


def test_a_snapshot_that_shows_no_log_dir_is_no_witness(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.process().round()
    fleet.disks[3].clear()
    fleet.brokers_delete()
    fleet.now += timedelta(minutes=10)
    fleet.publish(3, shows_log_dirs=False)
    fleet.minute(1, 2)
    assert [m.node_id for t in fleet.progress(number) for m in t.missing] == [3]
    fleet.now += timedelta(minutes=1)
    fleet.publish(3)
    assert [m for t in fleet.progress(number) for m in t.missing] == []


def test_an_answer_that_is_taken_away_as_it_is_read_is_none(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.process().round()
    fleet.brokers_delete()
    fleet.minute()
    path, answer_by = fleet.store / "answers" / CLUSTER / "3" / f"{number}.json", Answers.answer_by

    def gone(answers: Answers, node: int, number: str) -> tuple[Answer | None, frozenset[int]]:
        if node == 3:
            path.unlink()
        return answer_by(answers, node, number)

    monkeypatch.setattr(Answers, "answer_by", gone)
    assert [m.node_id for t in fleet.progress(number) for m in t.missing] == [3]


def test_what_is_not_in_the_decision_is_never_sent(fleet: SmallFleet) -> None:
    """Its id belonged to another name when it was decided, whatever is listed later."""
    first, second = fleet.topic(), fleet.topic(topic_id="B" * 22, name="views")
    number = fleet.request(topics=(first, second))
    fleet.admin.living["B" * 22] = replace(second, topic="renamed")
    fleet.admin.says = "THROTTLING_QUOTA_EXCEEDED"
    process = fleet.process()
    process.round()
    fleet.admin.living["B" * 22], fleet.admin.says = second, None
    fleet.minute()
    process.round()
    assert fleet.admin.sent == [TOPIC_ID] * 2 and fleet.admin.living.keys() == {"B" * 22}
    assert [t.result for t in fleet.progress(number)] == ["deleted", None]


def test_a_reassignment_holds_it_up_and_says_so(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.moving = {TOPIC_ID}
    process = fleet.process()
    process.round()
    assert fleet.admin.sent == [] and "being reassigned" in process.waits[number]
    fleet.admin.moving = set()
    process.round()
    assert fleet.admin.sent == [TOPIC_ID]


def test_quota_and_timeouts_are_asked_again_and_only_for_a_day(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.says = "THROTTLING_QUOTA_EXCEEDED"
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    assert len(fleet.admin.sent) == 2 and "THROTTLING" in process.waits[number]
    fleet.now += timedelta(hours=24)
    fleet.minute()
    process.round()
    assert len(fleet.admin.sent) == 2 and fleet.state(number).state == "refused"


def test_nothing_is_sent_a_day_after_the_request(fleet: SmallFleet) -> None:
    """Not by the process that made it either."""
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    fleet.now += timedelta(hours=25)
    fleet.minute()
    process.round()
    assert fleet.admin.sent == [] and fleet.state(number).state == "expired"
    assert fleet.place(number, "decision.json").exists(), "for good, whatever a clock says later"


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_wrong_clock_decides_and_sends_nothing(fleet: SmallFleet, hours: int) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.ahead = timedelta(hours=hours)
    with pytest.raises(ConfigError, match="the store's"):
        fleet.process().round()
    fleet.ahead = timedelta(0)
    fleet.admin.at = fleet.now + timedelta(hours=hours)
    with pytest.raises(ConfigError, match="the cluster's"):
        fleet.process().round()
    assert fleet.admin.sent == [] and not fleet.place(number, "decision.json").exists()


def test_a_request_from_the_future_waits(fleet: SmallFleet) -> None:
    fleet.now += timedelta(hours=2)
    number = fleet.request(topics=(fleet.topic(),))
    fleet.now -= timedelta(hours=2)
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    assert fleet.admin.sent == [] and "in the future" in process.waits[number]


FORGED: dict[str, Callable[[str], bytes]] = {
    "empty": lambda number: b"",
    "junk": lambda number: b"\x00" * 5000,
    "a stranger's cancellation": lambda number: STRANGER.sign(
        DECISION_SCHEMA, encode(Decision(number, CLUSTER, "cancelled", "x", "2026-11-21T00:00:00.000Z"))
    ),
    "another request's": lambda number: KEY.sign(
        DECISION_SCHEMA, encode(Decision("f" * 64, CLUSTER, "delete", "x", "2026-11-21T00:00:00.000Z"))
    ),
    "of a later version": lambda number: KEY.sign("logagent.decision/9", b"{}"),
}


@pytest.mark.parametrize("name", ["decision.json", "outcome.json", "request.json"])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_nobody_can_read_holds_the_request(fleet: SmallFleet, forged: Callable[[str], bytes], name: str) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.place(number, name).write_bytes(forged(number))
    process = fleet.process("late")
    for _ in range(3):
        process.round()
        fleet.minute()
    assert fleet.admin.sent == [] and fleet.state(number).state == "on-hold"
    process.cancel(process.reader.read().filed[number])
    assert fleet.state(number).state == "cancelled"


def test_a_request_that_is_gone_from_its_folder_is_on_hold(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.place(number, "request.json").unlink()
    fleet.process().round()
    assert fleet.admin.sent == [] and fleet.state(number).state == "on-hold"


def test_thousands_of_junk_files_hold_up_nothing(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    for folder in (fleet.place(number).parent, fleet.place(number), fleet.store / "answers" / CLUSTER / "2"):
        folder.mkdir(parents=True, exist_ok=True)
        for each in range(50_000 if FULL else 1_000):
            os.close(os.open(folder / f"junk-{each}.json", os.O_CREAT | os.O_WRONLY))
    done(fleet, number)


def test_a_full_store_decides_nothing(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()

    def full(*_: object) -> bool:
        raise ServiceUnreachable("no space left")

    create = type(fleet.control).create
    monkeypatch.setattr(
        type(fleet.control), "create",
        lambda self, folder, name, content: full() if name == "decision.json" else create(self, folder, name, content),
    )  # fmt: skip
    process.round()
    assert fleet.admin.sent == [] and "no space left" in process.waits[number]


def test_a_store_that_is_gone_is_not_an_empty_one(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    shutil.rmtree(fleet.store)
    with pytest.raises(ServiceUnreachable):
        fleet.process().round()


def test_killed_between_its_decision_and_the_cluster_another_goes_on(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()

    def killed() -> None:
        raise KeyboardInterrupt

    fleet.admin.before_sending = killed
    with pytest.raises(KeyboardInterrupt):
        process.round()
    assert fleet.place(number, "decision.json").exists() and fleet.admin.sent == []
    fleet.admin.before_sending = lambda: None
    done(fleet, number)


def test_a_copy_counts_where_its_host_is_heard_and_its_broker_in_sync(fleet: SmallFleet) -> None:
    """A directory on a host that is heard may be behind a leader that is dead: then its ISR is of nobody."""
    fleet.topic()
    for node in NODES:
        fleet.publish(node)
    reader, topics = fleet.process().reader, {TOPIC_ID: NAME}
    assert reader.copies(topics) == {(TOPIC_ID, 0): {1, 2, 3}}
    fleet.admin.isr[TOPIC_ID, 0] = frozenset({2})
    assert reader.copies(topics) == {(TOPIC_ID, 0): {2}}
    assert reader.copies({TOPIC_ID: "clicks-backup"}) == {}, "by another name no broker takes it for that partition"
    fleet.now += timedelta(minutes=61)
    assert reader.copies(topics) == {}, "nobody was heard within the hour"
    fleet.publish(2)
    fleet.admin.isr[TOPIC_ID, 0] = frozenset()
    assert reader.copies(topics) == {}


def directory(node: int, name: str = f"{NAME}-0", inode: int = 7) -> RequestedDirectory:
    return RequestedDirectory(node, "/d1", name, NAME, TOPIC_ID, 0, "orphan", inode, bytes=100)


def test_an_agent_that_looked_and_did_not_take_it_is_asked_for_its_keys(fleet: SmallFleet) -> None:
    fleet.minute()
    number = fleet.request("directories", directories=(directory(1),))
    fleet.now += timedelta(seconds=5)
    fleet.keys = (public_key(PrivateKey("another", b"\x09" * 32).public()),)
    fleet.agent(1)
    fleet.keys = (public_key(KEY.public()),)
    (topic,) = fleet.progress(number)
    (missing,) = topic.missing
    assert "did not accept it" in missing.reason.fact and "orders.keys" in missing.reason.hint


def test_directories_are_done_by_agents_and_closed_here(fleet: SmallFleet) -> None:
    fleet.minute()
    number = fleet.request("directories", directories=(directory(1), directory(2)))
    process = fleet.process()
    process.round()
    (topic,) = fleet.progress(number)
    assert [m.reason.fact for m in topic.missing] == ["its agent has not read the request yet"] * 2
    fleet.minute()
    state = fleet.state(number)
    assert state.state == "open" and state.carried_out_by == "the agents of node 1, 2, 3"
    (topic,) = fleet.progress(number)
    assert [m.reason.fact for m in topic.missing] == ["its agent has accepted the request"] * 2
    fleet.agent(1, mine=[DirectoryAnswer("/d1", f"{NAME}-0", "done", "quarantined", bytes=100)])
    waits = DirectoryAnswer("/d1", f"{NAME}-0", "waits", claim="window", fact="its broker runs", next_try_at=None)
    fleet.agent(2, mine=[waits])
    (topic,) = fleet.progress(number)
    assert topic.bytes_quarantined == 100 and [m.reason.fact for m in topic.missing] == ["its broker runs"]
    assert topic.states == {ReplicaState.SUCCESSFUL: 1, ReplicaState.OFFLINE: 1}
    process.round()
    assert fleet.state(number).state == "open" and fleet.admin.sent == []
    fleet.agent(2, mine=[DirectoryAnswer("/d1", f"{NAME}-0", "done", "removed", bytes=100)])
    process.round()
    (topic,) = fleet.progress(number)
    assert (topic.bytes_quarantined, topic.bytes_back) == (100, 100) and topic.complete
    assert fleet.place(number, "outcome.json").exists() and fleet.state(number).state == "done"
    shutil.rmtree(fleet.store / "answers")
    (topic,) = fleet.progress(number)
    assert (topic.bytes_quarantined, topic.bytes_back) == (100, 100) and topic.complete, "the outcome says it too"


def test_two_requests_of_one_directory_do_not_refuse_each_other(fleet: SmallFleet) -> None:
    first = fleet.request("directories", directories=(directory(1),))
    second = fleet.request("directories", directories=(directory(1),))
    fleet.minute()
    fleet.agent(1, mine=[DirectoryAnswer("/d1", f"{NAME}-0", "done", "quarantined", bytes=100)])
    fleet.process().round()
    assert fleet.state(first).state == fleet.state(second).state == "done"


def test_a_directory_lasts_a_week(fleet: SmallFleet) -> None:
    number = fleet.request("directories", directories=(directory(1),))
    process = fleet.process()
    process.round()
    fleet.now += timedelta(days=7, minutes=1)
    process.round()
    assert fleet.state(number).state == "expired"


def test_whoever_runs_it_is_named_and_nobody_is_said(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    asked = fleet.process()
    asked.round()
    asked.stop()
    assert "run `logagent topics run`" in fleet.state(number).next
    process = fleet.process("shell-1")
    process.round()
    state = fleet.state(number)
    assert (state.next, state.carried_out_by) == ("", "ops on shell-1")
    process.stop()
    assert fleet.state(number).carried_out_by == ""


def test_what_killed_runs_left_goes_after_a_day(fleet: SmallFleet) -> None:
    runners = fleet.store / "control" / CLUSTER / "runners"
    fleet.process("of today").round()
    (today,) = runners.iterdir()
    for days in (0.9, 1.1):
        (runners / f"{days}.json").write_bytes(today.read_bytes())
        os.utime(runners / f"{days}.json", (fleet.now.timestamp() - days * 86400,) * 2)
    process = fleet.process()
    process.round()
    process.stop()
    assert sorted(path.name for path in runners.iterdir()) == sorted([today.name, "0.9.json"])


# Who asks decides: whatever happens to the store afterwards, nobody else may


def undecided(fleet: SmallFleet) -> str:
    """A request whose process ended before it decided."""
    number = fleet.request(topics=(fleet.topic(),))
    fleet.wrote.clear()
    return number


def nothing_is_sent(fleet: SmallFleet) -> None:
    """Not by any `topics run`, new or running, with agents or without."""
    processes = [fleet.process(host) for host in ("late", "kafka-1", "elsewhere")]
    for _ in range(3):
        for each in processes:
            each.round()
        fleet.minute()
    assert fleet.admin.sent == [] and TOPIC_ID in fleet.admin.living


def test_what_its_process_did_not_decide_nobody_decides(fleet: SmallFleet) -> None:
    number = undecided(fleet)
    nothing_is_sent(fleet)
    state = fleet.state(number)
    assert state.state == "open" and "not decided" in state.why and "ask again" in state.next, state
    other = fleet.process("late")
    other.cancel(other.reader.read().filed[number])
    assert fleet.state(number).state == "cancelled"


def test_within_its_minute_nobody_is_told_that_it_is_not_decided_any_more(fleet: SmallFleet) -> None:
    number = undecided(fleet)
    state = fleet.state(number)
    assert state.state == "open" and "may still decide it" in state.why and "cancel" in state.next, state
    fleet.now += timedelta(seconds=61)
    assert "nobody may decide it any more" in fleet.state(number).why


def test_an_undecided_request_expires(fleet: SmallFleet) -> None:
    number = undecided(fleet)
    fleet.now += timedelta(hours=25)
    fleet.process("late").round()
    assert fleet.state(number).state == "expired" and fleet.admin.sent == []


def test_a_store_put_back_by_a_minute_while_an_agent_was_down_deletes_nothing(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    number = undecided(fleet)
    fleet.minute(1, 2)
    shutil.copytree(fleet.store, tmp_path / "backup")
    other = fleet.process("other")
    other.cancel(other.reader.read().filed[number])
    fleet.minute(1, 2)
    shutil.rmtree(fleet.store)
    shutil.copytree(tmp_path / "backup", fleet.store)
    nothing_is_sent(fleet)


def test_a_store_that_fell_back_under_a_running_process_deletes_nothing(fleet: SmallFleet, tmp_path: Path) -> None:
    """Also not by the process that asked, within its minute: it has seen how the request ended."""
    number = fleet.request(topics=(fleet.topic(),))
    shutil.copytree(fleet.store, tmp_path / "backup")
    process, running = fleet.process(), fleet.process("running")
    running.cancel(running.reader.read().filed[number])
    process.round()
    running.round()
    shutil.rmtree(fleet.store)
    shutil.copytree(tmp_path / "backup", fleet.store)
    process.round()
    running.round()
    nothing_is_sent(fleet)


def test_a_folder_replaced_by_a_copy_without_the_decision_deletes_nothing(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process("other")
    process.cancel(process.reader.read().filed[number])
    fleet.process().round()
    folder = fleet.place(number)
    folder.rename(folder.parent / "aside")
    folder.mkdir()
    shutil.copy(folder.parent / "aside" / "request.json", folder)
    fleet.process().round()
    process.round()
    nothing_is_sent(fleet)


def test_with_all_agents_new_nothing_is_deleted(fleet: SmallFleet) -> None:
    undecided(fleet)
    shutil.rmtree(fleet.store / "answers", ignore_errors=True)
    fleet.born = dict.fromkeys(NODES, fleet.now + timedelta(minutes=1))
    nothing_is_sent(fleet)


def test_the_process_that_asks_decides_within_a_minute_and_closes_it_later(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.unreachable = True
    process = fleet.process()
    process.round()
    assert fleet.state(number).state == "open"
    fleet.now += timedelta(seconds=61)
    fleet.admin.unreachable = False
    process.round()
    state = fleet.state(number)
    assert state.state == "dropped" and "within a minute: the cluster could not be asked: nobody" in state.why
    nothing_is_sent(fleet)


def test_a_cluster_that_takes_a_minute_to_answer_is_too_late(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    process, now = fleet.process(), fleet.admin.topics_now
    again = process.reader.folder.again

    def slow(topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        fleet.now += timedelta(seconds=61)
        return now(topics)

    def then_slow(number: str) -> Filed:  # what comes right before the act is the last that is quick
        monkeypatch.setattr(fleet.admin, "topics_now", slow)
        return again(number)

    monkeypatch.setattr(type(process.reader.folder), "again", lambda _, number: then_slow(number))
    process.round()
    monkeypatch.undo()
    assert fleet.state(number).state == "dropped"
    nothing_is_sent(fleet)


def test_a_fleet_that_takes_more_than_a_minute_to_read_keeps_nobody_from_deciding(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest snapshots of a thousand hosts: they say what is left, and nothing of them is needed to decide."""
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    read = process.reader.heard.read

    def slow(now: datetime) -> None:
        fleet.now += timedelta(seconds=61)
        read(now)

    monkeypatch.setattr(type(process.reader.heard), "read", lambda _, now: slow(now))
    process.round()
    monkeypatch.undo()
    assert fleet.admin.sent == [TOPIC_ID] and fleet.state(number).state == "deleting"


def test_a_process_that_ends_undecided_closes_its_request(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.moving = {TOPIC_ID}
    process = fleet.process()
    process.round()
    process.give_up(number)
    assert fleet.state(number).state == "dropped" and "being reassigned" in fleet.state(number).why
    fleet.admin.moving = set()
    nothing_is_sent(fleet)


def test_killed_right_before_the_acknowledgement_another_sends_again(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))

    def killed() -> None:
        fleet.admin.living.pop(TOPIC_ID)
        raise KeyboardInterrupt

    fleet.admin.before_sending = killed
    with pytest.raises(KeyboardInterrupt):
        fleet.process().round()
    fleet.admin.before_sending = lambda: None
    fleet.brokers_delete()
    fleet.minute()
    fleet.process("late").round()
    assert fleet.state(number).state == "done"


def test_what_a_running_process_saw_cancelled_stays_so_in_a_store_that_fell_back(fleet: SmallFleet) -> None:
    """Also behind a decision to delete, whose process was killed before it sent anything."""
    number = fleet.request(topics=(fleet.topic(),))

    def killed() -> None:
        raise KeyboardInterrupt

    fleet.admin.before_sending = killed
    with pytest.raises(KeyboardInterrupt):
        fleet.process().round()
    fleet.admin.before_sending = lambda: None
    running = fleet.process("running")
    running.cancel(running.reader.read().filed[number])
    running.round()
    for path in fleet.place(number).glob("decision-*.json"):
        path.unlink()
    running.round()
    assert fleet.admin.sent == [] and TOPIC_ID in fleet.admin.living


def test_a_cancellation_in_the_place_of_a_lost_decision_counts_for_a_running_process_too(fleet: SmallFleet) -> None:
    """The store fell back to before the decision; then somebody cancelled, and was not told that it is too late."""
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.says = "TIMEOUT"
    process, running = fleet.process(), fleet.process("running")
    process.round()
    running.round()
    sent = len(fleet.admin.sent)
    fleet.place(number, "decision.json").unlink()
    other = fleet.process("other")
    assert other.cancel(other.reader.read().filed[number]).decision == "cancelled"
    fleet.admin.says = None
    process.round()
    running.round()
    assert len(fleet.admin.sent) == sent and TOPIC_ID in fleet.admin.living


def test_what_a_running_process_saw_disabled_stays_so_in_a_store_that_fell_back(fleet: SmallFleet) -> None:
    number = fleet.request(topics=(fleet.topic(),))
    fleet.admin.enabled = False
    process, running = fleet.process(), fleet.process("running")
    process.round()
    running.round()
    fleet.place(number).rename(fleet.store / "aside")
    process.round()
    running.round()
    (fleet.store / "aside" / "outcome.json").unlink()
    (fleet.store / "aside").rename(fleet.place(number))
    fleet.admin.enabled = True
    process.round()
    running.round()
    assert fleet.admin.sent == [TOPIC_ID] and TOPIC_ID in fleet.admin.living


def test_a_decision_that_took_a_store_a_minute_is_too_late(fleet: SmallFleet) -> None:
    """A mount that hangs, a process that was stopped: the operator may have gone by then."""
    number = fleet.request(topics=(fleet.topic(),))
    create = fleet.control.create

    def hangs(folder: str, name: str, content: bytes) -> bool:
        fleet.now += timedelta(seconds=61) if name == "decision.json" else timedelta(0)
        return create(folder, name, content)

    fleet.control.create = hangs  # type: ignore[method-assign]
    fleet.process().round()
    nothing_is_sent(fleet)
    state = fleet.state(number)
    assert state.state == "cancelled" and "more than a minute" in state.why, state


def test_another_ones_decision_that_comes_too_late_is_none(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is wrong, beside the decision of whoever asked."""
    number, listed = fleet.request(topics=(fleet.topic(),)), fleet.admin.topics_now
    late = Decision(number, CLUSTER, "delete", "x", instant(fleet.now + timedelta(seconds=61)), topics=(fleet.topic(),))

    def meanwhile(topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        fleet.control.create(f"requests/{number}", "decision.json", KEY.sign(DECISION_SCHEMA, encode(late)))
        return listed(topics)

    monkeypatch.setattr(fleet.admin, "topics_now", meanwhile)
    fleet.process().round()
    assert fleet.place(number, "decision.json").exists() and fleet.state(number).state == "on-hold"
    nothing_is_sent(fleet)


def test_sizes_are_what_is_allocated_and_unknown_where_a_snapshot_does_not_say(fleet: SmallFleet) -> None:
    """`topics delete` ended with a traceback as soon as any agent had published."""
    fleet.topic()
    for node in NODES:
        fleet.publish(node)
    assert fleet.process().reader.sizes({TOPIC_ID}) == {TOPIC_ID: 3 * 200}
    for allocated, sizes in ((0, {TOPIC_ID: 400}), (None, {})):
        fleet.now += timedelta(minutes=1)
        fleet.publish(1, allocated=allocated)
        assert fleet.process().reader.sizes({TOPIC_ID}) == sizes
