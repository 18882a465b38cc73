"""Names against the answers of Kafka's own code: not one divergence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logagent.base import dir_names
from logagent.base.records import Kind
from tests.host_files import future_name
from tests.kafka_answers import rows

HEX = "0123456789abcdef" * 2
KIND_OF_SUFFIX = {
    "delete": Kind.DELETE,
    "future": Kind.FUTURE,
    "stray": Kind.STRAY,
}


def divergence(row: dict[str, Any]) -> str | None:
    """How our reading of a directory name differs from Kafka's; None if it does not."""
    name = row["name"]
    if "error" in row:
        classified = dir_names.classify(name)
        try:
            parsed = dir_names.parse(name)
        except dir_names.InvalidDirName as error:
            # The one directory that loadLogs passes over before it parses.
            expected = (Kind.CACHE, None) if name == dir_names.CACHE_NAME else (Kind.INVALID, str(error))
            if (classified.kind, classified.error) != expected:
                return f"{name!r}: refused, but classified as {classified}"
            return None
        return f"{name!r}: Kafka refuses it, we read {parsed}"
    parsed = dir_names.parse(name)
    kind = KIND_OF_SUFFIX.get(row.get("suffix", ""), Kind.CURRENT)
    if parsed.topic == dir_names.METADATA_TOPIC:
        kind = Kind.METADATA
    if (parsed.topic, parsed.partition, parsed.kind) != (row["topic"], row["partition"], kind):
        return f"{name!r}: {parsed}"
    if dir_names.classify(name) != parsed:
        return f"{name!r}: parsed as {parsed}, classified as {dir_names.classify(name)}"
    return None


def test_every_directory_name_is_read_as_kafka_reads_it() -> None:
    asked = rows("dir_names")
    assert len(asked) == 3000
    assert sum("error" in row for row in asked) > 500  # both kinds of answers are in there
    assert [found for row in asked if (found := divergence(row)) is not None] == []


def test_every_name_is_built_as_kafka_builds_it() -> None:
    builders: dict[str, Callable[[str, int, str], str]] = {
        "delete": dir_names.delete_name,
        "stray": dir_names.stray_name,
        "future": future_name,
    }
    asked = rows("dir_name_build")
    assert len(asked) == 259
    for row in asked:
        topic, partition = row["topic"], row["partition"]
        assert dir_names.current_name(topic, partition) == row["current"]["name"]
        for kind, build in builders.items():
            assert build(topic, partition, HEX) == row[kind]["name"].replace("u" * 32, HEX), (row["id"], kind)


def test_topic_names_are_legal_where_kafka_says_so_and_with_its_words() -> None:
    asked = rows("topic_names")
    assert len(asked) == 99
    for row in asked:
        topic = row["topic"]
        message: str | None = None
        try:
            dir_names.validate_topic(topic)
        except ValueError as error:
            message = str(error)
        assert message == row.get("message"), row["id"]
        assert dir_names.is_valid_topic(topic) is row["is_valid"]
        assert dir_names.is_internal(topic) is row["internal"]


@pytest.mark.parametrize("row", rows("load_logs"), ids=lambda row: str(row["id"]))
def test_directories_are_classified_as_kafka_loads_them(row: dict[str, Any]) -> None:
    found = [
        dir_names.classify(entry["dir"] if "dir" in entry else entry["link"])
        for log_dir in row["log_dirs"]
        for entry in log_dir
        if "dir" in entry or "link" in entry
    ]
    if row.get("error") == "org.apache.kafka.common.KafkaException":
        assert Kind.INVALID in {parsed.kind for parsed in found}
        return
    assert Kind.INVALID not in {parsed.kind for parsed in found}
    if "error" in row:
        # Two directories of one partition: a name of its own each, but the same topic and partition.
        (first, second) = found
        assert (first.topic, first.partition, first.kind) == (second.topic, second.partition, second.kind)
        return
    for kind in (Kind.CURRENT, Kind.FUTURE, Kind.STRAY):
        expected = sorted((topic, partition) for topic, partition, _ in row[kind.value])
        assert sorted((p.topic, p.partition) for p in found if p.kind is kind) == expected
    assert sum(parsed.kind is Kind.DELETE for parsed in found) == len(row["to_be_deleted"])
