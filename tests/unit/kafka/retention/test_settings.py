"""Which value is in force: the topic's, this broker's, all brokers', the file's, Kafka's; ms, then minutes, hours."""

from __future__ import annotations

import pytest

from logagent.base.records import SetBy
from logagent.kafka.retention.settings import (
    BROKER_SETTINGS,
    NOTHING_SET,
    TOPIC_SETTINGS,
    Layers,
    is_not_considered,
    parsed_ms,
)

HOUR, MINUTE = 3_600_000, 60_000
EVERYWHERE = Layers(
    topics={"retention.ms": {"orders": "1"}},
    broker={"log.retention.ms": "2"},
    all_brokers={"log.retention.ms": "3"},
    file={"log.retention.ms": "4", "log.retention.minutes": "5", "log.retention.hours": "6"},
    complete=True,
)


@pytest.mark.parametrize(
    ("without", "number", "source"),
    [
        ((), 1, SetBy.TOPIC),
        (("topics",), 2, SetBy.BROKER),
        (("topics", "broker"), 3, SetBy.ALL_BROKERS),
        (("topics", "broker", "all_brokers"), 4, SetBy.FILE),
        (("topics", "broker", "all_brokers", "log.retention.ms"), 5 * MINUTE, SetBy.FILE),
        (("topics", "broker", "all_brokers", "log.retention.ms", "log.retention.minutes"), 6 * HOUR, SetBy.FILE),
        (("topics", "broker", "all_brokers", "file"), 168 * HOUR, SetBy.DEFAULT),
    ],
)
def test_precedence(without: tuple[str, ...], number: int, source: SetBy) -> None:
    file = {key: text for key, text in (EVERYWHERE.file or {}).items() if key not in without}
    layers = Layers(
        topics={} if "topics" in without else EVERYWHERE.topics,
        broker={} if "broker" in without else EVERYWHERE.broker,
        all_brokers={} if "all_brokers" in without else EVERYWHERE.all_brokers,
        file={} if "file" in without else file,
        complete=True,
    )
    found = layers.of("orders", "retention.ms")
    assert (found.number, found.source) == (number, source)


def test_a_dynamic_default_in_ms_comes_before_hours_of_the_file() -> None:
    layers = Layers(all_brokers={"log.retention.ms": "7"}, file={"log.retention.hours": "1"})
    assert str(layers.default("retention.ms")) == "log.retention.ms=7 (all brokers, dynamic)"


def test_where_the_file_was_not_read_its_values_and_the_defaults_are_unknown() -> None:
    found = NOTHING_SET.of("orders", "retention.ms")
    assert (found.number, found.source) == (None, SetBy.UNKNOWN) and "not known" in str(found)
    dynamic = Layers(broker={"log.retention.ms": "2"}).of("orders", "retention.ms")
    assert dynamic.number == 2


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_every_setting_has_a_default(name: str) -> None:
    found = Layers(file={}).default(name)
    assert found.source is SetBy.DEFAULT and found.text is not None
    assert name not in BROKER_SETTINGS or found.key in dict(BROKER_SETTINGS[name])


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        (" 5\t", 1, 5),
        ("5", MINUTE, 5 * MINUTE),
        ("-1", HOUR, -HOUR),
        ("", 1, None),
        ("9" * 11, HOUR, None),
        ("x", 1, None),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str, unit: int, expected: int | None) -> None:
    assert parsed_ms(text, unit) == expected


@pytest.mark.parametrize(
    "name",
    [
        # Of a release to come.
        "retention.records",
        "local.retention.records",
        "log.retention.days",
        "remote.copy.lag.records",
        "log.tiering.policy",
        "tiering.policy",
        "cleanup.interval.ms",
        "file.delete.batch.size",
        "delete.retention.bytes",
        "min.compaction.bytes",
        "compaction.strategy",
    ],
)
def test_a_setting_near_ours_that_is_not_read_is_not_considered(name: str) -> None:
    assert is_not_considered(name)


@pytest.mark.parametrize(
    "name",
    [
        *TOPIC_SETTINGS,
        *(key for keys in BROKER_SETTINGS.values() for key, _ in keys),
        *("cordoned.log.dirs", "log.dirs", "remote.log.storage.system.enable", "log4j.root", "logging"),
        *("offsets.topic.segment.bytes", "delete.topic.enable", "max.message.bytes", "retention"),
    ],
)
def test_what_is_read_and_what_is_far_from_it_is_not_named(name: str) -> None:
    assert not is_not_considered(name)


def test_what_is_not_considered_is_named_with_its_topics_and_where_it_is_set() -> None:
    topics = {"retention.records": {"a": "1", "b": "1", "c": "2", "elsewhere": "3"}, "retention.ms": {"a": "1"}}
    layers = Layers(
        topics=topics,
        broker={"log.cleaner.new.lag.ms": "4"},
        all_brokers={"log.cleaner.new.lag.ms": "5", "log.roll.new.ms": "6"},
        file={"log.cleaner.new.lag.ms": "7", "log.cleaner.careful": "false", "log.dirs": "/d"},
        complete=True,
    )
    assert [(str(n.setting), n.topics) for n in layers.not_considered({"a", "b", "c"})] == [
        ("retention.records=1 (topic)", ("a", "b")),
        ("retention.records=2 (topic)", ("c",)),
        ("log.cleaner.careful=false (server.properties)", ()),
        ("log.cleaner.new.lag.ms=4 (this broker, dynamic)", ()),
        ("log.roll.new.ms=6 (all brokers, dynamic)", ()),
    ]
    assert list(NOTHING_SET.not_considered({"a"})) == []
