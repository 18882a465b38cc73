"""The text of offset checkpoints against Kafka's own answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.errors import UnreadableError
from logagent.base.records import TopicPartition
from logagent.kafka.files.checkpoint_files import parse_checkpoint, render_checkpoint
from tests.kafka_answers import content, rows

JAVA_BLANKS = " \t\n\v\f\r"
any_topics = st.text(st.characters(exclude_characters=JAVA_BLANKS, exclude_categories=["Cs"]), max_size=20)
entries = st.dictionaries(
    st.builds(TopicPartition, any_topics, st.integers(-(2**31), 2**31 - 1)),
    st.integers(-(2**63), 2**63 - 1),
)


def test_every_file_is_read_or_refused_as_kafka_does() -> None:
    asked = rows("offset_checkpoints")
    assert len(asked) == 123
    for row in asked:
        if "error" in row:
            with pytest.raises(UnreadableError):
                parse_checkpoint(content(row))
            continue
        read = parse_checkpoint(content(row))
        listed = sorted([tp.topic, tp.partition, offset] for tp, offset in read.items())
        assert listed == row["entries"], row["id"]
        assert parse_checkpoint(render_checkpoint(read)) == read, row["id"]


@given(entries)
def test_what_is_written_is_read_in_the_same_order(wanted: dict[TopicPartition, int]) -> None:
    assert list(parse_checkpoint(render_checkpoint(wanted)).items()) == list(wanted.items())


def test_it_is_kafkas_own_form() -> None:
    wanted = {TopicPartition("a.b", 0): 10, TopicPartition("__consumer_offsets", 49): 0}
    assert render_checkpoint(wanted) == b"0\n2\na.b 0 10\n__consumer_offsets 49 0\n"
    assert render_checkpoint({}) == b"0\n0\n"


@given(st.binary(max_size=40) | st.text("0123 \n\ra+-", max_size=30).map(str.encode))
def test_any_bytes_are_entries_or_unreadable(data: bytes) -> None:
    try:
        read = parse_checkpoint(data)
    except UnreadableError:
        return
    assert len(read) <= data.count(b"\n") + data.count(b"\r")


@pytest.mark.parametrize("blank", JAVA_BLANKS)
def test_a_topic_with_a_blank_is_never_written(blank: str) -> None:
    with pytest.raises(ValueError, match="contains whitespace"):
        render_checkpoint({TopicPartition(f"a{blank}b", 0): 1})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"1\n0\n", "line 1: unrecognised version 1"),
        (b"0\nx\n", "line 2: malformed: 'x'"),
        (b"0\n2\na 0 1\n", "line 2: expected 2 entries, found 1"),
        (b"0\n2147483647\na 0 1\n", "expected 2147483647 entries, found 1"),
        (b"0\n1\na 0\n", "line 3: malformed: 'a 0'"),
        (b"0\n1\na 0 9223372036854775808\n", "line 3: For input string"),
        (b"0\n1\na 0 1\xff\n", "byte 9 is not UTF-8"),
    ],
)
def test_refusals_name_the_line(data: bytes, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        parse_checkpoint(data)


@pytest.mark.parametrize("data", [b"\0" * 1_000_000, b"0\n1\na 0 " + b"9" * 1_000_000, b"0\n1\n" + b"a" * 1_000_000])
def test_a_refusal_is_a_sentence_however_long_the_line(data: bytes) -> None:
    with pytest.raises(UnreadableError) as refused:
        parse_checkpoint(data)
    assert len(str(refused.value)) < 500, len(str(refused.value))
