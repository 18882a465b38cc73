"""Every directory on the disks of real brokers gets the verdict that the scenario says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logagent.base.records import Kind, PartitionDir, Verdict
from logagent.kafka.image import AssignmentImage, PartitionAssignment, Source, Topic, make_image
from logagent.kafka.metadata_log.log import read_metadata_log
from logagent.verdict.rules import Host, decide
from tests.kafka_disks import KRAFT, ZOOKEEPER, expected, extract, metadata_dir, partition_dirs

MAX_AGE_MS = 900_000


def image_of(disk: Path, told: dict[str, Any]) -> AssignmentImage:
    return read_metadata_log(
        str(metadata_dir(disk)), node_id=told["node_id"], cluster_id=told["cluster_id"], now_ms=2_000_000_000_000
    ).assignments


def judge(
    disk: Path, told: dict[str, Any], image: AssignmentImage, absent: set[str] | None = None
) -> dict[str, tuple[str, str | None]]:
    """Verdict and reason of every directory that has one, by its path below the disk's root."""
    host = Host(told["node_id"], told["cluster_id"], MAX_AGE_MS)
    ids = {d["path"].rpartition("/")[2]: d.get("directory_id") for d in told["directories"]}
    found = {}
    for one in partition_dirs(disk):
        log_dir = one.log_dir.rpartition("/")[2]
        ruling = decide(one, image, host, now_ms=image.at_ms, directory_id=ids.get(log_dir), absent_by_id=absent)
        assert (ruling is None) == (one.kind not in (Kind.CURRENT, Kind.FUTURE))
        if ruling is not None:
            found[f"{log_dir}/{one.name}"] = (str(ruling.verdict), ruling.reason)
    return found


def wanted(disk: Path, told: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """From the scenario: what it calls an orphan, all else on the disk assigned."""
    left_over = {o["dir"]: o["cause"] for o in told["orphans"]}
    answer: dict[str, tuple[str, str | None]] = {}
    for one in partition_dirs(disk):
        path = f"{one.log_dir.rpartition('/')[2]}/{one.name}"
        cause = left_over.get(path)
        if one.kind in (Kind.CURRENT, Kind.FUTURE):
            is_orphan = cause in ("topic-absent", "topic-recreated", "not-a-replica")
            answer[path] = ("orphan", cause) if is_orphan else ("assigned", None)
        else:
            assert cause is not None
    return answer


@pytest.mark.parametrize("name", [name for name in KRAFT if name != "3.9.1/node3-down"])
def test_from_the_disks_own_metadata(name: str, tmp_path: Path) -> None:
    disk, told = extract(name, tmp_path), expected(name)
    assert judge(disk, told, image_of(disk, told)) == wanted(disk, told)


def test_a_stale_disk_knows_nothing_of_what_came_later(tmp_path: Path) -> None:
    disk, told = extract("3.9.1/node3-down", tmp_path), expected("3.9.1/node3-down")
    own = image_of(disk, told)
    assert {v for v, _ in judge(disk, told, own).values()} == {"assigned"}
    host = Host(told["node_id"], told["cluster_id"], MAX_AGE_MS)
    for one in partition_dirs(disk):
        ruling = decide(one, own, host, now_ms=own.at_ms + MAX_AGE_MS + 1)
        if ruling is not None:
            assert (ruling.verdict, ruling.reason) == (Verdict.UNKNOWN, "stale-assignments")


def image_from_admin(told: dict[str, Any], at_ms: int, *, complete: bool = False) -> AssignmentImage:
    topics = [
        Topic(
            name,
            topic["topic_id"],
            {
                int(n): PartitionAssignment(tuple(p["replicas"]), tuple(p["isr"]))
                for n, p in topic["partitions"].items()
            },
        )
        for name, topic in told["topics"].items()
    ]
    return make_image(
        topics,
        AssignmentImage(
            source=Source.ADMIN,
            cluster_id=told["cluster_id"],
            at_ms=at_ms,
            known_until_ms=at_ms,
            complete=complete,
        ),
    )


def newest(dirs: list[PartitionDir]) -> int:
    return max(one.mtime_ns for one in dirs) // 1_000_000 + 1000


@pytest.mark.parametrize("name", ZOOKEEPER)
def test_zookeeper_disks(name: str, tmp_path: Path) -> None:
    """3.5 has topic ids: all assigned. 2.5 has none: nothing can be told."""
    disk, told = extract(name, tmp_path), expected(name)
    image = image_from_admin(told, newest(partition_dirs(disk)))
    found = judge(disk, told, image)
    if name.startswith("2.5.1"):
        assert set(found.values()) == {("unknown", "no-topic-id")}
    else:
        assert found == wanted(disk, told)
        assert {verdict for verdict, _ in found.values()} == {"assigned"}


def test_admin_answers_prove_absence_only_by_id(tmp_path: Path) -> None:
    disk, told = extract("3.9.1/node3-down", tmp_path), expected("3.9.1/node3-down")
    image = image_from_admin(told, newest(partition_dirs(disk)))
    right = wanted(disk, told)
    gone = {o["topic_id_of_dir"] for o in told["orphans"] if o["cause"] in ("topic-absent", "topic-recreated")}
    assert judge(disk, told, image, gone) == right
    unproven = {
        path: ("unknown", "no-assignments") if reason in ("topic-absent", "topic-recreated") else (verdict, reason)
        for path, (verdict, reason) in right.items()
    }
    assert judge(disk, told, image) == unproven
    assert judge(disk, told, image, set()) == unproven
