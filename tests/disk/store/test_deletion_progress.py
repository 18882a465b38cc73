"""How far deletions have come, as the fleet report tells it from the files of a store on a real disk."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.store.answers import write_answer
from logagent.store.deletion import Answer, Closed, Identity, RequestedPartition, Result
from logagent.store.deletion_progress import SHOWN, clusters, deletion_progress
from logagent.store.orders import instant, write_closed, write_request
from logagent.store.signing import PrivateKey
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, KEY, TOPIC_ID, SmallFleet


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path).everywhere()


def rows(fleet: SmallFleet) -> list[dict[str, Any]]:
    return deletion_progress(str(fleet.store), CLUSTER, fleet.keys, fleet.now)


def answer(
    fleet: SmallFleet, node: int, result: Any, partition: int = 0, directory: Identity | None = DIRECTORY, **more: Any
) -> None:
    found = Result("request-1", TOPIC_ID, partition, result, directory=directory, **more)
    write_answer(fleet.control, Answer(
        "0000000001-0000000001", 1, 1, CLUSTER, node, f"{node:032x}", 0, "delete", instant(fleet.now), "1", (found,)
    ))  # fmt: skip


def test_a_request_is_reported_from_asked_to_done(fleet: SmallFleet) -> None:
    assert rows(fleet) == []
    fleet.request(topics=(fleet.topic(),))
    (row,) = rows(fleet)
    assert clusters(str(fleet.store)) == [CLUSTER]
    assert (row["topic"], row["marked"], row["removed"], row["remaining"]) == ("clicks", 3, 0, 3)
    assert (row["marked_bytes"], row["hosts"], row["hosts_done"], row["done_share"]) == (300, 3, 0, 0.0)
    fleet.hosts[3].silent = True
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    (row,) = rows(fleet)
    assert (row["removed"], row["remaining"], row["hosts_done"]) == (2, 1, 2)
    fleet.hosts[3].silent = False
    fleet.publish(3)
    fleet.rounds(controller, 30)
    (row,) = rows(fleet)
    assert (row["removed"], row["remaining"], row["done_share"]) == (3, 0, 1.0)
    fleet.now += SHOWN + timedelta(days=1)
    assert rows(fleet) == []


def test_bytes_are_back_when_a_later_snapshot_of_an_online_log_dir_shows_them_no_more(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic((1, 2)),))
    answer(fleet, 1, "removed")
    aside = f"clicks-0.{'a' * 32}-stray"
    answer(fleet, 2, "renamed", new_name=aside)
    (row,) = rows(fleet)
    assert (row["removed"], row["removed_bytes"]) == (2, 100)
    fleet.now += timedelta(minutes=5)
    fleet.hosts[2].disk = {(TOPIC_ID, 0): replace(DIRECTORY, name=aside)}
    fleet.publish(2, log_dirs={"/d1": "online"})
    assert rows(fleet)[0]["removed_bytes"] == 100, "it is still there"
    fleet.now += timedelta(minutes=5)
    fleet.hosts[2].disk = {}
    fleet.publish(2, log_dirs={"/d1": "offline"})
    assert rows(fleet)[0]["removed_bytes"] == 100, "nobody looked"
    fleet.now += timedelta(minutes=5)
    fleet.publish(2, log_dirs={"/d1": "online"})
    assert rows(fleet)[0]["removed_bytes"] == 200


def test_a_copy_that_the_request_did_not_list_counts_too(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic((1, 2)),))
    answer(fleet, 3, "removed")
    assert (rows(fleet)[0]["marked"], rows(fleet)[0]["removed"]) == (3, 1)


def test_made_up_copies_do_not_count(fleet: SmallFleet) -> None:
    """Or one host could report a deletion as good as done that nobody has begun."""
    fleet.request(topics=(fleet.topic((1, 2)),))
    before = rows(fleet)
    answer(fleet, 3, "absent", directory=None)
    answer(fleet, 4, "removed", partition=7)
    answer(fleet, 5, "removed", asked_log_dir="/d1", asked_name="clicks-0")
    assert rows(fleet) == before
    answer(fleet, 1, "absent", directory=None)
    assert (rows(fleet)[0]["marked"], rows(fleet)[0]["removed"]) == (2, 1)


def test_forged_and_cancelled_requests_are_not_reported(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    closed = Closed("request-1", CLUSTER, 1, "cancelled", "ops", instant(fleet.now))
    write_closed(fleet.control, closed, KEY)
    write_request(fleet.control, replace(request, request_id="request-2"), PrivateKey("ops", b"\x02" * 32))
    replicas = (RequestedPartition(0, (1,)),)
    write_request(fleet.control, replace(request, request_id="request-3", cluster_id="another", topics=(
        replace(request.topics[0], partitions=replicas),)), KEY)  # fmt: skip
    assert rows(fleet) == []


def test_what_one_host_or_writer_of_the_store_says_cannot_end_the_report(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic((1, 2)),))
    answer(fleet, 1, "renamed", new_name=f"clicks-0.{'a' * 32}-stray")
    (file,) = (fleet.store / "control" / CLUSTER / "answers" / "1").iterdir()
    at = instant(fleet.now)
    file.write_bytes(file.read_bytes().replace(at.encode(), f"2026-02-30{at[10:]}".encode()))
    assert (rows(fleet)[0]["removed"], rows(fleet)[0]["marked"]) == (0, 2), "an answer of the 30th of February"
    odd: list[dict[str, Any]] = [{"bytes": "many"}, {"bytes": 1 << 70}, {"bytes": math.nan}, {"partition": 1 << 40}]
    for more in [*odd, {"bytes": (1 << 63) - 1}]:
        fleet.now += timedelta(minutes=5)

        def change(row: dict[str, Any], more: dict[str, Any] = more) -> None:
            row.update(more)

        for node in (1, 2):
            fleet.publish(node, log_dirs={"/d1": "online"}, change=change)
        assert 0 <= rows(fleet)[0]["marked_bytes"] < 1 << 63, more
