"""A metadata log of a made-up future, through the commands: what is proven by it, what is refused, and what helps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from logagent.kafka.files.properties import parse_meta_properties
from logagent.kafka.image import NEWEST_METADATA_VERSION
from logagent.kafka.metadata_log.log import read_metadata_log
from tests import metadata_writer as writer
from tests.host import Host
from tests.kafka_disks import metadata_dir

KNOWN = writer.feature_level("metadata.version", NEWEST_METADATA_VERSION)
UNTESTED = writer.feature_level("metadata.version", 99)
UNKNOWN_TYPE = writer.frame(99, 0, writer.tags({}))


def with_log(root: Path, *records: bytes) -> tuple[Host, str, str]:
    """A host whose own metadata log goes on until now: a topic of it was deleted, and a partition of another one was
    reassigned to others, then `records`. The names of the two directories."""
    host = Host.from_disk(root)
    host.configure(**{"assignments.max_age": "1h"})
    folder, now_ms = metadata_dir(host.disk), time.time_ns() // 1_000_000
    meta = parse_meta_properties((folder.parent / "meta.properties").read_bytes())
    image = read_metadata_log(str(folder), node_id=meta.node_id, cluster_id=meta.cluster_id, now_ms=now_ms).assignments
    assert meta.node_id is not None and image.offset is not None and image.leader_epoch is not None
    living = [
        (topic, number)
        for topic in image.by_id.values()
        for number, partition in topic.partitions.items()
        if (host.d1 / f"{topic.name}-{number}").is_dir()
        and meta.node_id in partition.replicas
        and not topic.name.startswith("__")
    ]
    (gone, gone_number), (moved, moved_number) = living[0], next(each for each in living if each[0] is not living[0][0])
    assert gone.topic_id is not None and moved.topic_id is not None
    replicas = [node for node in (1, 2, 3) if node != meta.node_id]
    changes = [
        writer.remove_topic(gone.topic_id),
        writer.partition_change(moved.topic_id, moved_number, replicas=replicas, isr=replicas, removing=[], adding=[]),
        *records,
    ]
    segment = max(folder.glob("0*.log"))
    with segment.open("ab") as file:
        # Two batches of one epoch, far enough apart for what is before the first to be committed.
        file.write(writer.batch(image.offset, changes, now_ms - 200_000, epoch=image.leader_epoch))
        rest = image.offset + len(changes)
        file.write(writer.batch(rest, [writer.NO_OP], now_ms - 100_000, epoch=image.leader_epoch))
        file.write(writer.batch(rest + 1, [writer.NO_OP], now_ms - 1_000, epoch=image.leader_epoch))
    return host, f"{gone.name}-{gone_number}", f"{moved.name}-{moved_number}"


def verdicts(document: Any) -> dict[str, tuple[str, str | None]]:
    return {d["name"]: (d["verdict"], d["reason"]) for d in document["dirs"]}


@pytest.mark.parametrize(
    ("records", "gone", "moved", "proves"),
    [
        ([KNOWN], ("orphan", "topic-absent"), ("orphan", "not-a-replica"), None),
        ([UNTESTED], ("orphan", "topic-absent"), ("unknown", "no-assignments"), "removals"),
        ([KNOWN, UNKNOWN_TYPE], ("unknown", "no-assignments"), ("unknown", "no-assignments"), "nothing"),
    ],
    ids=["tested", "untested level", "unknown record"],
)
def test_what_a_log_proves_and_who_says_that_it_does_not(
    tmp_path: Path, records: list[bytes], gone: tuple[str, str], moved: tuple[str, str], proves: str | None
) -> None:
    host, gone_name, moved_name = with_log(tmp_path, *records)
    ran = host.run("scan", "--json")
    found = verdicts(ran.json)
    assert (found[gone_name], found[moved_name]) == (gone, moved)
    doubt = ran.json["assignments"].get("log_doubt")
    assert (doubt["proves"] if doubt is not None else None) == proves
    said = [host.run("scan"), host.run("cleanup"), host.run("doctor")]
    for each in said:
        words = " ".join((each.out + each.err).split())
        assert ("the metadata log on this host proves" in words) is (proves is not None), words
        assert proves is None or ("set kafka.bootstrap_servers" in words and "install a newer logagent" in words)
    codes = {f["code"] for f in host.run("doctor", "--json").json["findings"]}
    assert ("metadata-log" in codes) is (proves is not None)
