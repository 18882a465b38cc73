"""What a lower retention.ms would give back, by Kafka's rule."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import DirKey, Health, Verdict
from logagent.base.units import HOUR_MS
from logagent.cleanup.rescue.rules import Expired, RetentionAdvice, advise, loaded
from logagent.kafka.retention.reasons import Offsets, bytes_due, settings_of
from logagent.kafka.retention.settings import (
    LOCAL_RETENTION,
    RETENTION,
    STEPS_MS,
    Layers,
    LogSegment,
    SegmentAge,
    Tiering,
    TopicConfigs,
    kafka_configs,
)
from logagent.verdict.facts import Ruling
from tests.hosts import LOG_DIR, directory, facts, log_dir

NOW = 1_800_000_000_000


UNTIERED = Tiering(on_broker=False)
UNKNOWN = TopicConfigs(tiering=UNTIERED)
"""Neither a metadata log nor a default was read, only that the broker has no remote storage."""


def segment(size: int, hours: float) -> SegmentAge:
    return SegmentAge(size, NOW - int(hours * HOUR_MS))


def advised(
    topics: Mapping[str, Sequence[Sequence[SegmentAge]]],
    sizes: Mapping[str, int],
    now_ms: int,
    need: int | None,
    configs: TopicConfigs,
) -> tuple[list[RetentionAdvice], list[Expired]]:
    """By the rules that `explain --what-if` has."""
    tiering = {
        "remote.storage.enable": configs.tiering.enabled,
        "remote.log.copy.disable": configs.tiering.copy_disabled,
    }
    layers = Layers(topics=tiering, file={"remote.log.storage.system.enable": "true"}, complete=True)

    def freed(topic: str, own: Mapping[str, str]) -> int:
        known = configs.policy_of(topic)
        policy = {"cleanup.policy": "delete" if known is None else known}
        settings = settings_of(layers.with_own({topic}, policy | dict(own)), topic)
        return sum(
            bytes_due(
                [LogSegment(10 * n, s.bytes, s.bytes, s.largest_ms, s.active) for n, s in enumerate(log)],
                settings,
                Offsets(),
                now_ms,
            )
            for log in topics[topic]
        )

    return advise(freed, topics, sizes, need, configs)


def test_segments_go_oldest_first_until_one_is_young_enough() -> None:
    # The third is old, but stands behind one that is not: Kafka stops there.
    log = [segment(100, 200), segment(10, 2), segment(1, 100)]
    ((found,), _) = advised({"t": [log]}, {"t": 500}, NOW, None, UNKNOWN)
    assert found.gives_back[168 * HOUR_MS] == 100 and found.gives_back[HOUR_MS] == 111
    assert found.retention_ms == 168 * HOUR_MS
    assert (found.topic, found.setting, found.retention_ms) == ("t", "retention.ms", 604_800_000)


def test_the_active_segment_goes_once_all_the_others_do() -> None:
    """`UnifiedLog.deletableSegments`: it is rolled first. Of a tiered topic it has to be copied first."""
    log = [segment(100, 200), replace(segment(10, 30), active=True)]
    ((found,), _) = advised({"t": [log, [replace(segment(5, 99), active=True)]]}, {}, NOW, None, UNKNOWN)
    assert {step // HOUR_MS: size for step, size in found.gives_back.items()} == {
        168: 100, 72: 105, 24: 115, 12: 115, 6: 115, 1: 115,
    }  # fmt: skip
    assert advised({"t": [log]}, {}, NOW, None, known(24))[1] == [Expired("t", 110, 24 * HOUR_MS)]
    ((found,), _) = advised({"t": [log]}, {}, NOW, None, tiered())
    assert set(found.gives_back.values()) == {100}


def test_the_longest_retention_that_gives_what_is_needed() -> None:
    log = [segment(100, 200), segment(100, 80), segment(100, 30), segment(100, 2)]
    chosen = {
        need: advised({"t": [log]}, {}, NOW, need, UNKNOWN)[0][0].retention_ms // HOUR_MS
        for need in (1, 150, 250, 350, 999)
    }
    assert chosen == {1: 168, 150: 72, 250: 24, 350: 1, 999: 1}


def test_topics_that_have_nothing_to_give_are_left_out_and_the_others_ordered() -> None:
    topics = {"young": [[segment(9, 0.5)]], "small": [[segment(1, 99)]], "big": [[segment(5, 99)]]}
    found, _ = advised(topics, {}, NOW, None, UNKNOWN)
    assert [a.topic for a in found] == ["big", "small"]


@pytest.mark.parametrize(
    ("own", "default", "policy", "keeps_all"),
    [
        ("compact", "delete", "compact", True),
        ("compact,delete", "compact", "compact,delete", False),
        ("delete, compact", None, "delete, compact", False),
        ("", "delete", "", True),
        (None, "compact", "compact", True),
        (None, "delete", "delete", False),
        (None, None, None, False),
    ],
)
def test_what_retention_frees_of_a_topic(
    own: str | None, default: str | None, policy: str | None, keeps_all: bool
) -> None:
    configs = TopicConfigs({} if own is None else {"t": own}, default, tiering=UNTIERED)
    assert (configs.policy_of("t"), configs.keeps_all("t")) == (policy, keeps_all)
    found, _ = advised({"t": [[segment(9, 99)]]}, {}, NOW, None, configs)
    assert [a.policy for a in found] == ([] if keeps_all else [policy])


@given(st.lists(st.lists(st.builds(segment, st.integers(0, 1000), st.floats(0, 300)), max_size=8), max_size=4))
def test_a_shorter_retention_never_gives_less(logs: list[list[SegmentAge]]) -> None:
    for found in advised({"t": logs}, {}, NOW, None, UNKNOWN)[0]:
        gives = [found.gives_back[step] for step in STEPS_MS]
        assert gives == sorted(gives)


def known(default_hours: float | None = None, **hours: float | None) -> TopicConfigs:
    """Of a host whose metadata log was read."""

    def ms(hours: float | None) -> int | None:
        return None if hours is None else int(hours * HOUR_MS)

    return TopicConfigs({}, "delete", {t: ms(h) for t, h in hours.items()}, ms(default_hours), complete=True)


LOG = [segment(1000, 720), segment(100, 80), segment(10, 30), segment(1, 2)]


@pytest.mark.parametrize(
    ("configs", "now_hours", "steps"),
    [
        (known(168), 168, [72, 24, 12, 6, 1]),
        (known(168, t=24), 24, [12, 6, 1]),
        (known(1, t=168), 168, [72, 24, 12, 6, 1]),
        (known(1), 1, []),
        (known(0.5), 0.5, []),
        (known(-1), -1, [168, 72, 24, 12, 6, 1]),
        (known(1, t=-1), -1, [168, 72, 24, 12, 6, 1]),
        (known(), None, [168, 72, 24, 12, 6, 1]),
        (known(1, t=None), None, [168, 72, 24, 12, 6, 1]),
        (UNKNOWN, None, [168, 72, 24, 12, 6, 1]),
        (replace(UNKNOWN, retention_ms=24 * HOUR_MS), None, [12, 6, 1]),
        (replace(UNKNOWN, retention_ms=HOUR_MS), None, []),
    ],
)
def test_only_a_lower_retention_is_offered(configs: TopicConfigs, now_hours: float | None, steps: list[int]) -> None:
    now_ms = None if now_hours is None else int(now_hours * HOUR_MS)
    assert configs.retention_of("t") == now_ms
    assert configs.steps("t") == [hours * HOUR_MS for hours in steps]
    found, _ = advised({"t": [LOG]}, {}, NOW, None, configs)
    assert [(a.now_ms, list(a.gives_back)) for a in found] == ([(now_ms, configs.steps("t"))] if steps else [])


def test_what_is_past_the_present_retention_is_no_gain() -> None:
    """A broker that was down for a while deletes it when it runs again."""
    found, expired = advised({"t": [LOG]}, {}, NOW, None, known(168))
    assert expired == [Expired("t", 1000, 168 * HOUR_MS)]
    assert found[0].gives_back == {h * HOUR_MS: size for h, size in {72: 100, 24: 110, 12: 110, 6: 110, 1: 111}.items()}
    # Unlimited, or not known: nothing is past it.
    for configs in known(-1), UNKNOWN, replace(UNKNOWN, retention_ms=168 * HOUR_MS), known():
        found, expired = advised({"t": [LOG]}, {}, NOW, None, configs)
        assert (expired, found[0].gives_back[72 * HOUR_MS]) == ([], 1100)
    # What may be compacted may not go either.
    assert advised({"t": [LOG]}, {}, NOW, None, TopicConfigs(retention_ms=HOUR_MS, complete=True)) == ([], [])


def tiered(own_hours: float | None = None, **changes: Any) -> TopicConfigs:
    """Of a host whose metadata log was read: `t` is tiered, its retention is 30 days."""
    own = {} if own_hours is None else {"t": int(own_hours * HOUR_MS)}
    return replace(known(t=720), tiering=replace(Tiering({"t": "true"}, {}, own), **changes))


@pytest.mark.parametrize(
    ("configs", "setting", "now_hours"),
    [
        (tiered(), LOCAL_RETENTION, 720),
        (tiered(24), LOCAL_RETENTION, 24),
        (tiered(local_ms={"t": -2}, default_local_ms=HOUR_MS), LOCAL_RETENTION, 720),
        (tiered(default_local_ms=HOUR_MS), LOCAL_RETENTION, 1),
        (tiered(default_local_ms=None), LOCAL_RETENTION, None),
        (tiered(24, copy_disabled={"t": " FALSE"}), LOCAL_RETENTION, 24),
        (tiered(24, copy_disabled={"t": "true"}), None, 720),
        (tiered(24, enabled={"t": " False "}), RETENTION, 720),
        (tiered(24, enabled={"other": "true"}), RETENTION, 720),
        # Only the broker's settings are known.
        (replace(tiered(on_broker=False), complete=False), RETENTION, None),
        (replace(tiered(on_broker=None), complete=False), None, None),
        (replace(tiered(on_broker=True), complete=False), None, None),
        (tiered(enabled={}, on_broker=True), RETENTION, 720),
    ],
)
def test_the_retention_of_a_topic_that_may_be_tiered_is_never_lowered(
    configs: TopicConfigs, setting: str | None, now_hours: float | None
) -> None:
    now_ms = None if now_hours is None else int(now_hours * HOUR_MS)
    assert (configs.setting_of("t"), configs.retention_of("t")) == (setting, now_ms)
    assert (configs.why_no_setting("t") is None) == (setting is not None)
    found, _ = advised({"t": [[*LOG, segment(5, 0.1)]]}, {}, NOW, None, replace(configs, policy="delete"))
    assert {a.setting for a in found} <= {setting} - {None}


def test_what_of_a_tiered_topic_is_past_its_local_retention_may_not_have_been_copied() -> None:
    found, expired = advised({"t": [LOG]}, {}, NOW, 1, tiered(168))
    assert (expired, found[0].retention_ms, found[0].gives_back[72 * HOUR_MS]) == ([], 72 * HOUR_MS, 100)


@pytest.mark.parametrize(("need", "hours"), [(1000, None), (1001, 72), (1105, 24), (1111, 1), (9999, 1), (0, None)])
def test_no_advice_where_nothing_more_is_needed(need: int, hours: int | None) -> None:
    found, _ = advised({"t": [LOG]}, {}, NOW, need, known(168))
    assert [a.retention_ms for a in found] == ([] if hours is None else [hours * HOUR_MS])


@given(st.text(), st.integers())
def test_a_shell_takes_the_command_apart_as_it_is_meant(topic: str, retention_ms: int) -> None:
    words = shlex.split(kafka_configs(topic, "--alter", "--add-config", f"retention.ms={retention_ms}"))
    assert words[words.index("--entity-name") + 1] == topic and words[-1] == f"retention.ms={retention_ms}"
    assert len(words) == 10


def test_only_what_its_broker_loads_and_the_plan_leaves_counts() -> None:
    ruled = {
        "ok-0": Ruling(Verdict.ASSIGNED),
        "planned-0": Ruling(Verdict.ASSIGNED),
        "__consumer_offsets-0": Ruling(Verdict.ASSIGNED),
        "__remote_log_metadata-0": Ruling(Verdict.ASSIGNED),
        "$(reboot)-0": Ruling(Verdict.ASSIGNED),
        "no-id-0": Ruling(Verdict.UNKNOWN, "no-topic-id"),
        "gone-0": Ruling(Verdict.ORPHAN, "topic-absent"),
        "moved-0": Ruling(Verdict.ORPHAN, "not-a-replica"),
        f"moving-0.{'0' * 32}-future": Ruling(Verdict.ASSIGNED),
    }
    dirs = [directory(name, inode=n, topic_id=f"id-{n}") for n, name in enumerate(ruled)]
    rulings = {DirKey(LOG_DIR, name): ruling for name, ruling in ruled.items()}
    planned = {DirKey(LOG_DIR, "planned-0")}

    def names(**changes: Any) -> list[str]:
        return [d.name for d in loaded(dirs, facts(log_dir(**changes), rulings=rulings), planned)]

    assert names() == names(health=Health.FULL) == ["ok-0"]
    for health in Health.OFFLINE, Health.READ_ONLY, Health.UNFORMATTED:
        assert names(health=health) == []
    foreign = facts(rulings=rulings, cluster_problems={LOG_DIR: "another cluster"})
    assert loaded(dirs, foreign, planned) == []


def test_a_double_counts_once_its_copy_is_planned_and_not_before() -> None:
    one = directory("t-0", topic_id="id")
    two = directory("t-0", log_dir="/data/d2", inode=101, topic_id="id")
    rulings = {d.key: Ruling(Verdict.ASSIGNED) for d in (one, two)}
    known_facts = facts(log_dir(), log_dir("/data/d2"), rulings=rulings)
    assert loaded([one, two], known_facts, ()) == []
    assert loaded([one, two], known_facts, [DirKey(LOG_DIR, "t-0")]) == [two]
    started = replace(one, removal_started=True)
    assert loaded([started, two], known_facts, ()) == [two]
