"""What a snapshot says of replicas that are not there: images on a real metadata log, read before and after."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.service.publish import Publisher
from tests.disk.cleanup.session.host_in_cluster import PARTITION, HostInCluster
from tests.documents import assert_promised
from tests.living_cluster import NAME, OTHER

HEX = "0" * 31 + "1"


@pytest.fixture
def host(tmp_path: Path) -> HostInCluster:
    return HostInCluster(tmp_path, 1)


def published(
    host: HostInCluster, between: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head of a snapshot, and its rows of absent replicas. `between`: what happens after the inventory."""
    with host.session(inventory=True) as session:
        facts = session.facts()
        between()
        publisher = Publisher(str(host.root / "store"), str(host.state), session.clock, host="host1", interval_ms=1000)
        name = publisher.spool(session, facts, None)
    for data in (host.state / "spool").glob("*-snapshot.jsonl.gz"):
        lines = gzip.decompress(data.read_bytes()).splitlines()
        head, *rows = map(json.loads, lines)
        if head["snapshot_id"] == name:
            for line in lines:
                assert_promised(line.decode(), "snapshot")
            return head, [row for row in rows if row["row"] == "absent"]
    raise AssertionError("nothing was spooled")


def test_what_both_images_assign_and_is_not_there(host: HostInCluster) -> None:
    head, absent = published(host)
    assert (absent, head["absent"]) == ([], 0)
    assert head["began"] <= head["at"]
    before, after = head["images"]["before"], head["images"]["after"]
    assert before["source"] == "kraft-log" and before["offset"] <= after["offset"] == host.cluster.offset
    shutil.rmtree(host.d1 / PARTITION)
    host.cluster.create("made", at_ms=host.cluster.begins_ms)
    host.cluster.reassign("made", OTHER)
    host.sync()
    head, absent = published(host)
    row = {"row": "absent", "topic": NAME, "topic_id": host.topic.topic_id, "partition": 0, "left": None}
    assert (absent, head["absent"]) == ([row], 1)


def test_what_was_made_or_deleted_in_between_is_not_missing(host: HostInCluster) -> None:
    shutil.rmtree(host.d1 / PARTITION)
    shutil.rmtree(host.d2 / "kept-0")

    def change() -> None:
        host.cluster.delete(NAME)
        host.cluster.create("made")
        host.sync()

    head, absent = published(host, change)
    assert [row["topic"] for row in absent] == ["kept"]
    assert head["images"]["before"]["offset"] < head["images"]["after"]["offset"]


def test_what_is_marked_or_set_aside_is_told_apart(host: HostInCluster) -> None:
    (host.d1 / PARTITION).rename(host.d1 / f"{PARTITION}.{HEX}-delete")
    (host.d2 / "kept-0").rename(host.d2 / f"kept-0.{HEX}-stray")
    head, absent = published(host)
    assert [(row["topic"], row["left"]) for row in absent] == [("kept", "stray")]
    assert head["absent"] == 1


def test_a_future_directory_alone_counts_as_found(host: HostInCluster) -> None:
    """A start may take it for the current one, and it can be the only readable copy; `check` says what it may lose."""
    (host.d1 / PARTITION).rename(host.d1 / f"{PARTITION}.{HEX}-future")
    head, absent = published(host)
    assert (absent, head["absent"]) == ([], 0)


def test_with_a_log_dir_that_was_not_read_nothing_is_said_to_be_absent(host: HostInCluster) -> None:
    shutil.rmtree(host.d1 / PARTITION)
    (host.d2 / "meta.properties").unlink()
    head, absent = published(host)
    assert (absent, head["absent"]) == ([], None)
    assert head["images"] is not None


def test_an_image_that_went_back_encloses_nothing(host: HostInCluster) -> None:
    """The log was replaced by one that ends earlier: nobody knows what was assigned in between."""
    shutil.rmtree(host.d1 / PARTITION)
    head, absent = published(host, lambda: host.roll_back(fresh=False))
    assert (absent, head["absent"], head["images"]) == ([], None, None)
