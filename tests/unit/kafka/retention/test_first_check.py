"""What retention deletes of a restored log at the broker's first check, by Kafka's rule, and what is said of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

import pytest

from logagent.base.records import Reason
from logagent.kafka.retention.settings import SegmentAge, Tiering, TopicConfigs, first_check
from tests.hosts import NOW

DAY = 86_400_000
SIZES = (100, 200, 300)
KNOWN = TopicConfigs(policy="delete", retention_ms=7 * DAY, retention_bytes=-1, complete=True)


def goes(configs: TopicConfigs, *days: float, sizes: tuple[int, ...] = SIZES) -> Reason | None:
    ages = [SegmentAge(4096, NOW - int(old * DAY)) for old in days]
    return first_check("orders", ages, sizes, NOW, configs, "nobody was asked")


def deleted_of(found: Reason | None) -> int | None:
    said = re.search(r"deletes (?:all its )?(\d+) ", found.fact) if found is not None else None
    return int(said[1]) if said is not None else None


@pytest.mark.parametrize(
    ("days", "deleted"),
    [((9, 9, 8), 600), ((9, 8, 1), 300), ((9, 1, 9), 100), ((6, 6, 6), None), ((7, 7, 7), None)],
)
def test_whole_segments_go_from_the_oldest_on(days: tuple[float, ...], deleted: int | None) -> None:
    found = goes(KNOWN, *days)
    assert deleted_of(found) == deleted


@pytest.mark.parametrize(("limit", "deleted"), [(599, None), (500, 100), (299, 300), (0, 600)])
def test_what_exceeds_the_size_goes_too(limit: int, deleted: int | None) -> None:
    found = goes(replace(KNOWN, retentions_bytes={"orders": limit}), 1, 1, 1)
    assert deleted_of(found) == deleted
    assert found is None or "retention.bytes=-1" in found.hint


def test_what_is_old_behind_what_exceeds_the_size_goes_with_the_checks_that_follow() -> None:
    found = goes(replace(KNOWN, retentions_bytes={"orders": 300}), 1, 1, 9)
    assert found is not None and deleted_of(found) == 600


def test_a_topic_has_its_own_settings_before_the_brokers() -> None:
    assert goes(replace(KNOWN, retentions_ms={"orders": -1}), 9, 9, 9) is None
    own = goes(replace(KNOWN, retentions_ms={"orders": 1000}), 1, 1, 1)
    assert own is not None and deleted_of(own) == 600 and "retention.ms=1000 (of the topic)" in own.fact
    default = goes(KNOWN, 9, 9, 9)
    assert default is not None and f"retention.ms={7 * DAY} (the broker's default)" in default.fact


@pytest.mark.parametrize(("policy", "stays"), [("compact", True), ("compact,delete", False), ("delete", False)])
def test_what_is_only_compacted_is_not_deleted(policy: str, stays: bool) -> None:
    assert (goes(replace(KNOWN, policies={"orders": policy}), 9, 9, 9) is None) is stays


@pytest.mark.parametrize(
    "configs",
    [
        TopicConfigs(retention_ms=-1, retention_bytes=-1, policy="compact", tiering=Tiering(on_broker=False)),
        replace(KNOWN, retention_ms=None),
        replace(KNOWN, retention_bytes=None),
        replace(KNOWN, retentions_ms={"orders": None}),
    ],
)
def test_what_is_not_known_may_delete_everything(configs: TopicConfigs) -> None:
    found = goes(configs, 0, 0, 0)
    assert found is not None and deleted_of(found) is None and "may delete its 600 bytes" in found.fact
    assert "--describe" in found.hint and "--retention-will-delete" in found.hint


def test_there_is_nothing_to_lose_in_an_empty_log() -> None:
    assert goes(TopicConfigs(), sizes=(0,)) is None


def test_a_tiered_topic_goes_by_its_local_retention() -> None:
    tiering = Tiering(enabled={"orders": "true"}, local_ms={"orders": DAY})
    found = goes(replace(KNOWN, tiering=tiering, retention_bytes=1), 2, 2, 0.5)
    assert found is not None and deleted_of(found) == 300 and f"local.retention.ms={DAY} (of the topic)" in found.fact
    assert "--add-config retention.ms=-1,local.retention.ms=-1" in found.hint


@pytest.mark.parametrize(("topic", "policy"), [("__consumer_offsets", "delete"), ("orders", "compact,delete")])
def test_what_is_never_tiered_goes_by_its_whole_retention_and_size(topic: str, policy: str) -> None:
    tiering = Tiering(enabled={topic: "true"}, local_ms={topic: 9 * DAY})
    configs = replace(KNOWN, policies={topic: policy}, tiering=tiering, retention_bytes=1)
    found = first_check(topic, [SegmentAge(4096, NOW)] * 3, SIZES, NOW, configs, "")
    assert found is not None and "retention.bytes=1" in found.fact and "local" not in found.hint


def test_the_command_that_keeps_everything_can_be_pasted() -> None:
    found = goes(KNOWN, 9, 9, 9)
    assert found is not None
    words = shlex.split(found.command or "")
    assert words[0] == "kafka-configs.sh" and words[-4:] == [
        "--entity-name",
        "orders",
        "--add-config",
        "retention.ms=-1",
    ]


def test_no_more_is_read_than_decides() -> None:
    def ages() -> Iterator[SegmentAge]:
        yield SegmentAge(4096, NOW)
        raise AssertionError("the second segment was read")

    assert first_check("orders", ages(), SIZES, NOW, KNOWN, "") is None
