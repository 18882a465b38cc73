"""`meta.properties` against Kafka's own answers."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from logagent.base.errors import UnreadableError
from logagent.kafka.files.properties import MetaProperties, parse_meta_properties
from tests.kafka_answers import content, rows


def test_every_file_is_read_or_refused_as_kafka_does() -> None:
    asked = rows("meta_properties")
    assert len(asked) == 103
    for row in asked:
        if "error" not in row:
            assert asdict(parse_meta_properties(content(row))) == row["meta"], row["id"]
            continue
        with pytest.raises(UnreadableError) as caught:
            parse_meta_properties(content(row))
        assert str(caught.value).startswith("meta.properties: "), row["id"]
        assert row["message"] in str(caught.value), row["id"]


def test_what_brokers_write() -> None:
    kraft = (
        b"#\n#Sat Nov 21 10:00:00 UTC 2026\ncluster.id=c\nversion=1\ndirectory.id=Xs6gS0pIR5yNqcAe2bBqwQ\nnode.id=3\n"
    )
    assert parse_meta_properties(kraft) == MetaProperties(1, "c", 3, "Xs6gS0pIR5yNqcAe2bBqwQ")
    assert parse_meta_properties(b"version=0\nbroker.id=1\ncluster.id=c\n") == MetaProperties(0, "c", 1, None)


def test_an_empty_file_knows_no_cluster() -> None:
    assert parse_meta_properties(b"") == MetaProperties(0, None, None, None)
