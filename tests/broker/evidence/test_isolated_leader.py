"""A KRaft leader that lost its majority: what it wrote since is on an observer's disk, and nobody may act on it.

The two sides of KAFKA-15489, in the long form: four servers that wait for a minute. What the log on a disk proves by
then, without any: tests/unit/verdict and tests/disk/kafka/metadata_log.

The quorum is its own, as its majority is killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.kafka.admin.reader import AdminReader
from logagent.kafka.commitment import APPLY_MS, quorum_known_until_ms
from logagent.kafka.metadata_log.log import MetadataImage, read_metadata_log
from tests.broker.evidence.test_orphans_live import RECORDS, logagent, verdicts
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.ports import Ports
from tests.broker.rig.process import wait_until
from tests.broker.rig.quorum import FETCH_TIMEOUT_MS, OBSERVER, Quorum, wait_leader
from tests.long_form import long_form, versions
from tests.waiting import pause

VERSIONS = versions("4.3.1", "4.4.0", "3.5.2")
SETTLED_MS = 60_000


def read(quorum: Quorum, on: KraftNode | None = None) -> MetadataImage:
    """As the observer judges its own copy of the log, or the one `on` another node."""
    return read_metadata_log(
        str((on or quorum.broker).log_dirs[0] / "__cluster_metadata-0"),
        node_id=OBSERVER,
        cluster_id=quorum.broker.cluster_id,
        now_ms=time.time_ns() // 1_000_000,
        fetch_timeout_ms=FETCH_TIMEOUT_MS,
    )


@pytest.fixture
def quorum(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Quorum]:
    ports = Ports()
    made = Quorum(tmp_path, request.param, ports)
    try:
        made.start()
        wait_leader(made)
        yield made
    finally:
        made.close()
        ports.close()


def vouches_for_nothing_since(quorum: Quorum, lost_ms: int) -> None:
    """It may call itself and the observer caught up; but a majority of the voters fetched only before it was lost.

    (Their last fetch waits on the leader, and counts as of the moment in which the removal answers it.)
    """
    with AdminReader(quorum.broker.bootstrap) as reader:
        look, now_ms = reader.quorum(), time.time_ns() // 1_000_000
    until = quorum_known_until_ms(look, OBSERVER, now_ms)
    assert isinstance(until, str) or until <= lost_ms - APPLY_MS + 1_000


@long_form
@pytest.mark.parametrize("quorum", VERSIONS, indirect=True)
def test_what_an_isolated_leader_removed_is_held_back(quorum: Quorum) -> None:
    """Isolated once (before 3.7 it goes on for ever), then elected again by a voter that never fetches."""
    broker = quorum.broker
    for name in ("living", "kept"):
        broker.create_topic(name)
        broker.produce(name, 0, n=RECORDS)
    topic_id = read(quorum).assignments.by_name["living"].topic_id
    assert topic_id is not None

    with broker.admin() as admin:
        leader = quorum.isolate()
        quorum.delete_without_waiting(admin, "living")
        wait_until(
            lambda: "living" not in read(quorum).assignments.by_name, 30, "the removal is on the observer's disk"
        )
        removed_ms = read(quorum).assignments.at_ms
        assert quorum.leader() == leader != OBSERVER
        if broker.version < "3.7":
            wait_until(
                lambda: read(quorum).assignments.at_ms > removed_ms + SETTLED_MS + 1_000,
                240,
                "the isolated leader appends for over a minute",
                interval=1,
            )
            assert topic_id in read(quorum).assignments.uncommitted
            vouches_for_nothing_since(quorum, removed_ms)

    quorum.controllers[leader].kill()
    pause(max(0.0, removed_ms / 1000 + SETTLED_MS / 1000 + 1 - time.time()), "what was read before has settled")
    quorum.isolate_again(leader)
    # From 3.9 on the observer hears where the leader says that it is, and so gets no further either.
    farthest = quorum.controllers[leader] if quorum.tells_its_place else broker
    wait_until(
        lambda: read(quorum, farthest).assignments.at_ms > removed_ms + SETTLED_MS,
        240,
        "batches of a later epoch",
        interval=0.5,
    )
    for image in (read(quorum), read(quorum, farthest)):
        assert "living" not in image.assignments.by_name
        assert topic_id in image.assignments.uncommitted

    # The main window: the broker is down, and the operator asks for exactly that partition.
    broker.kill()
    assert verdicts(logagent(broker, "scan"))["living-0"] == ("unknown", "uncommitted")
    plan = logagent(broker, "delete", "--partition", "living-0", "--execute", allow=(3,))
    assert [(r["name"], r["guard"]) for r in plan["refusals"]] == [("living-0", "assigned")]
    for _ in range(3):
        assert logagent(broker, "cleanup", "--execute")["actions"] == []

    quorum.majority_without(leader)
    for name in ("living", "kept"):
        assert len(broker.read_all(name, 0)) == RECORDS
    assert read(quorum).assignments.by_name["living"].topic_id == topic_id
