"""How far deletions have come, as the fleet report tells it from the files of a store on a real disk."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.deletion.store.answers import SHOWN, DirectoryAnswer, clusters, deletion_progress
from logagent.deletion.store.requests import RequestedDirectory
from logagent.store.signing import PrivateKey
from tests.disk.deletion.controller.small_fleet import CLUSTER, NAME, TOPIC_ID, SmallFleet


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path / "store")


def rows(fleet: SmallFleet) -> list[dict[str, Any]]:
    return deletion_progress(str(fleet.store), CLUSTER, fleet.keys, fleet.now)


def test_a_request_is_reported_from_asked_to_done(fleet: SmallFleet) -> None:
    assert rows(fleet) == []
    fleet.request(topics=(fleet.topic(),))
    (row,) = rows(fleet)
    assert clusters(str(fleet.store)) == [CLUSTER]
    assert (row["topic"], row["marked"], row["removed"], row["remaining"]) == (NAME, 3, 0, 3)
    process = fleet.process()
    process.round()
    fleet.minute()
    process.round()
    fleet.admin.live.discard(3)
    fleet.brokers_delete()
    fleet.minute()
    (row,) = rows(fleet)
    assert (row["removed"], row["remaining"], row["hosts"], row["hosts_done"]) == (2, 1, 3, 2)
    fleet.now += SHOWN + timedelta(days=1)
    assert rows(fleet) == []


def test_directories_count_with_their_bytes(fleet: SmallFleet) -> None:
    asked = tuple(RequestedDirectory(n, "/d1", f"{NAME}-0", NAME, TOPIC_ID, 0, "stray", 7, bytes=100) for n in (1, 2))
    fleet.request("directories", directories=asked)
    fleet.agent(1, mine=[DirectoryAnswer("/d1", f"{NAME}-0", "done", "removed", bytes=100)])
    (row,) = rows(fleet)
    assert (row["marked"], row["removed"], row["marked_bytes"], row["removed_bytes"]) == (2, 1, 200, 100)
    assert row["done_share"] == 0.5


def test_what_lives_is_not_reported(fleet: SmallFleet) -> None:
    """Cancelled, disabled, or never signed."""
    number = fleet.request(topics=(fleet.topic(),))
    process = fleet.process()
    process.cancel(process.reader.read().filed[number])
    fleet.request(topics=(fleet.topic(topic_id="B" * 22),), key=PrivateKey("stranger", b"\x09" * 32))
    fleet.request(topics=(fleet.topic(topic_id="C" * 22),))
    fleet.admin.enabled = False
    process.round()
    assert fleet.admin.sent == ["C" * 22] and rows(fleet) == []
