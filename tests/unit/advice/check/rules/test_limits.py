"""Whether a release accepts the numbers that are set in `server.properties` and for topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.check.rules.linter import check
from logagent.advice.check.rules.releases import UNSTABLE
from logagent.advice.check.rules.start_facts import Mode, StartFacts, StartLogDirFacts, StartServerFacts
from logagent.advice.finding import Finding, Severity
from logagent.base.kafka_version import Version
from logagent.kafka.image import StartLevels
from logagent.kafka.release_table import RELEASES
from logagent.kafka.retention.settings import TOPIC_SETTINGS, Layers

BROKER = StartServerFacts(Mode.KRAFT, 1, None, "/meta", "/server.properties")
LEVELS = StartLevels({"metadata.version": (7,)})
SMALL, LEAST = "100000", 1 << 20


def findings(
    version: Version | None, server: StartServerFacts = BROKER, levels: StartLevels = LEVELS, **layers: object
) -> list[Finding]:
    meta = StartLogDirFacts("/meta", "/meta", holds_logs=False, holds_metadata=True, levels=levels)
    settings = Layers(**{"complete": True, **layers})  # type: ignore[arg-type]
    found = check(StartFacts(server, (meta,), settings=settings), version)
    return [f for f in found if f.why.code in ("setting-refused", "settings-not-compared", "feature-unsupported")]


def said(*args: object, **named: object) -> list[tuple[str, str, str]]:
    return [(f.severity.value, f.why.code, f.path) for f in findings(*args, **named)]  # type: ignore[arg-type]


FILE = [("fatal", "setting-refused", "/server.properties")]
TOPIC = [("fatal", "setting-refused", "/meta/__cluster_metadata-0")]


@pytest.mark.parametrize(
    ("name", "text", "version", "starts"),
    [
        ("log.segment.bytes", SMALL, (3, 9, 1), True),
        ("log.segment.bytes", SMALL, (4, 0, 2), False),
        ("log.segment.bytes", str(LEAST), (4, 4, 0), True),
        ("log.segment.bytes", "${file:/secrets:size}", (4, 4, 0), True),
        ("remote.log.manager.copier.thread.pool.size", "-1", (3, 9, 1), True),
        ("remote.log.manager.copier.thread.pool.size", "-1", (4, 0, 2), False),
        ("num.replica.fetchers", "0", (4, 1, 0), True),
        ("num.replica.fetchers", "0", (4, 2, 2), False),
        ("group.coordinator.append.linger.ms", " -1 ", (4, 2, 2), True),
        ("group.coordinator.append.linger.ms", " -1 ", (4, 1, 0), False),  # downwards
    ],
)
def test_what_the_file_has_is_compared_up_and_down(name: str, text: str, version: Version, starts: bool) -> None:
    """Each of these was started on a real node."""
    for server in (BROKER, replace(BROKER, runs_controller=True, controller_only=True)):
        assert said(version, server, file={name: text}) == ([] if starts else FILE)


def test_a_small_segment_of_any_topic_keeps_a_broker_down_and_no_controller() -> None:
    """Seen: 3.9.1 to 4.0.2 starts, to 4.1.0 and later does not; a controller does."""
    small = {"segment.bytes": {"small": SMALL, "large": str(LEAST)}}
    assert said((4, 0, 2), topics=small) == []
    (finding,) = findings((4, 1, 0), topics=small)
    assert (finding.severity.value, finding.why.code, finding.path) == TOPIC[0]
    assert "small (100000)" in finding.why.fact and "large" not in finding.why.fact
    assert f"--add-config segment.bytes={LEAST}" in finding.why.hint
    assert said((4, 1, 0), replace(BROKER, controller_only=True), topics=small) == []
    assert said((4, 1, 0), replace(BROKER, mode=Mode.ZOOKEEPER), topics=small) == []


def test_settings_of_topics_that_were_not_read_are_said() -> None:
    assert said((4, 4, 0), complete=False) == [("warning", "settings-not-compared", TOPIC[0][2])]
    assert said((4, 0, 2), complete=False) == said((4, 4, 0), levels=StartLevels(empty=True), complete=False) == []


def test_a_release_that_is_not_known_is_only_warned_of() -> None:
    (finding,) = findings(None, file={"log.segment.bytes": SMALL})
    assert finding.severity is Severity.WARNING and "Kafka >= 4.0.0 accepts 1048576 or more" in finding.why.fact


@given(number=st.integers(-2, 10**7), minor=st.sampled_from(sorted(RELEASES)), topic=st.booleans(), data=st.data())
def test_a_number_is_fatal_where_the_table_does_not_have_it(
    number: int, minor: tuple[int, int], topic: bool, data: st.DataObject
) -> None:
    tables = {key: row.topic_limits if topic else row.broker_limits for key, row in RELEASES.items()}
    name = data.draw(st.sampled_from(sorted({name for limits in tables.values() for name in limits})))
    low, high = tables[minor].get(name, (None, None))
    accepted = (low is None or low <= number) and (high is None or number <= high)
    given_so = {"topics": {name: {"t": str(number)}}} if topic else {"file": {name: str(number)}}
    assert said((*minor, 1), **given_so) == ([] if accepted else TOPIC if topic else FILE)


def test_every_setting_of_a_topic_that_is_compared_is_read_from_the_metadata_log() -> None:
    assert {name for row in RELEASES.values() for name in row.topic_limits} <= set(TOPIC_SETTINGS)


def test_what_is_not_stable_may_be_supported_where_it_is_enabled() -> None:
    """Seen: 4.4.0 starts with 34 if it is, and does not if it is not."""
    levels = StartLevels({"metadata.version": (34,)})
    assert [f.severity for f in findings((4, 4, 0), levels=levels)] == [Severity.FATAL]
    (finding,) = findings((4, 4, 0), levels=levels, file={UNSTABLE: "true"})
    assert finding.severity is Severity.WARNING and "unless unstable.feature.versions.enable" in finding.why.fact
