"""What another broker's answer about a topic means for the broker of this host."""

from __future__ import annotations

import pytest

from logagent.kafka.retention.settings import (
    LOCAL_RETENTION,
    RETENTION,
    RETENTION_BYTES,
    DescribedConfig,
    TopicConfigs,
    as_answered,
)

STATIC = TopicConfigs(policy="delete", retention_ms=1000, retention_bytes=-1)


@pytest.mark.parametrize(
    ("answer", "ours", "retention_ms"),
    [
        (DescribedConfig("5", own=True), 1000, 5),
        (DescribedConfig("-1", own=True), 1000, -1),
        (DescribedConfig("5"), 1000, 1000),  # the other broker's own configuration
        (DescribedConfig("5", common=True), 1000, 5),
        (DescribedConfig("5000", common=True), 1000, 1000),  # this broker may have one of its own
        (DescribedConfig("-1", common=True), -1, 1000),
        (DescribedConfig("five", own=True), 1000, None),
        (DescribedConfig("5"), None, None),
    ],
)
def test_what_the_topic_has_holds_here_and_of_defaults_the_one_that_deletes_more(
    answer: DescribedConfig, ours: int | None, retention_ms: int | None
) -> None:
    last = TopicConfigs(policy="delete", retention_ms=ours, retention_bytes=-1)
    configs = as_answered("orders", {RETENTION: answer}, [TopicConfigs(policy="delete", retention_ms=1000), last])
    assert configs.retention_of("orders") == retention_ms


@pytest.mark.parametrize(
    ("answer", "ours", "keeps"),
    [
        (DescribedConfig("compact", own=True), "delete", True),
        (DescribedConfig("compact"), "delete", False),
        (DescribedConfig("compact", common=True), "delete", False),
        (DescribedConfig("delete", common=True), "compact", False),
        (DescribedConfig("compact"), "compact", True),
        (DescribedConfig("compact"), None, False),
    ],
)
def test_a_topic_keeps_everything_only_by_what_holds_here(
    answer: DescribedConfig, ours: str | None, keeps: bool
) -> None:
    assert as_answered("orders", {"cleanup.policy": answer}, [TopicConfigs(policy=ours)]).keeps_all("orders") is keeps


def test_sizes_and_tiers_come_along() -> None:
    own = {
        RETENTION_BYTES: DescribedConfig("7", own=True),
        LOCAL_RETENTION: DescribedConfig("3", own=True),
        "remote.storage.enable": DescribedConfig("true", own=True),
    }
    configs = as_answered("orders", own, [STATIC])
    assert configs.retention_bytes_of("orders") == 7 and configs.retention_of("orders") == 3
    assert configs.setting_of("orders") == LOCAL_RETENTION
