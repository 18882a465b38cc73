"""The directory-name grammar: properties that hold for all names, and the cases that once hurt somebody."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logagent.base import dir_names as names
from logagent.base.records import Kind
from tests.host_files import future_name

HEX = "0123456789abcdef0123456789abcdef"
LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

topics = st.text(LEGAL, min_size=1, max_size=249).filter(lambda topic: topic not in (".", "..", names.METADATA_TOPIC))
long_topics = st.text(LEGAL, min_size=200, max_size=249)
partitions = st.integers(0, 2**31 - 1)
uuids = st.uuids().map(lambda uuid: uuid.hex)
# Names that are nearly right find more than arbitrary text does.
PIECES = ("-", ".", "-delete", "-stray", "-future", HEX, "0", "1", "٣", "a", "+", " ", "\n", "\u00a0", "\udcff", "𝟎")
lookalikes = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)


@given(topics | long_topics, partitions, uuids)
@example("a", 0, HEX)
@example("t" * 249, 2**31 - 1, HEX)
@example("x-0.0123456789abcdef0123456789abcdef-delete", 0, HEX)
def test_every_built_name_parses_back(topic: str, partition: int, uuid: str) -> None:
    current = names.parse(names.current_name(topic, partition))
    assert (current.kind, current.topic, current.partition, current.uuid) == (Kind.CURRENT, topic, partition, None)
    future = names.parse(future_name(topic, partition, uuid))
    assert (future.kind, future.topic, future.partition, future.uuid) == (Kind.FUTURE, topic, partition, uuid)
    assert not current.truncated
    assert not future.truncated
    for kind, built in (
        (Kind.DELETE, names.delete_name(topic, partition, uuid)),
        (Kind.STRAY, names.stray_name(topic, partition, uuid)),
    ):
        parsed = names.parse(built)
        assert (parsed.kind, parsed.partition, parsed.uuid) == (kind, partition, uuid)
        assert parsed.topic is not None
        assert topic.startswith(parsed.topic)
        # What was cut says so; what does not say so is whole.
        assert parsed.topic == topic or parsed.truncated


@given(topics | long_topics, partitions, uuids)
def test_no_marked_name_of_a_legal_topic_is_longer_than_255_bytes(topic: str, partition: int, uuid: str) -> None:
    for built in (names.delete_name(topic, partition, uuid), names.stray_name(topic, partition, uuid)):
        assert len(built.encode()) <= 255
        full = f"{topic}-{partition}.{uuid}-delete"
        assert len(built) >= min(255, len(full)) - 1  # nothing is cut without need


@given(st.text(max_size=300) | lookalikes)
@example("")
@example("-")
@example(".-0.x-delete")
@example("a-" + "0" * 5000 + "1")
@example("a-" + "9" * 5000)
@example("\udcff-0")
def test_no_text_stops_classify_and_parse_agrees_with_it(name: str) -> None:
    classified = names.classify(name)
    try:
        parsed = names.parse(name)
    except names.InvalidDirName as error:
        assert classified.kind is Kind.INVALID
        assert classified.error == str(error)
        assert (classified.topic, classified.partition, classified.uuid) == (None, None, None)
    else:
        assert classified == parsed
        assert parsed.error is None
        assert parsed.topic
        assert parsed.partition is not None
        assert parsed.partition >= 0 or name.count("-") > 1


MARKED = {
    suffix: re.compile(rf"^([^ \t\n\v\f\r]+)-([^ \t\n\v\f\r]+)\.([^ \t\n\v\f\r]+){suffix}\Z")
    for suffix in ("-delete", "-future", "-stray")
}


def kafka_says(name: str) -> tuple[str, int] | None:
    """`parseTopicPartitionName` written down step by step, slowly, with regular expressions: None where it throws."""
    if "-" not in name:
        return None
    for suffix, pattern in MARKED.items():
        if name.endswith(suffix):
            if pattern.match(name) is None:
                return None
            name = name[: name.rindex(".")]
            break
    topic, _, number = name.rpartition("-")
    if not topic or re.fullmatch(r"[+-]?\d+", number) is None or any(c > "\uffff" for c in number):
        return None
    value = int(number)
    return (topic, value) if -(2**31) <= value < 2**31 else None


@given(lookalikes)
@example("a-b.c-0.-delete")
@example("a-1.-delete")
@example("a.b-1.x-delete")
@example("a-.x-delete")
@example("-1.x-delete")
def test_parse_is_what_the_rules_say(name: str) -> None:
    try:
        parsed = names.parse(name)
    except names.InvalidDirName:
        assert kafka_says(name) is None
    else:
        assert kafka_says(name) == (parsed.topic, parsed.partition)


@pytest.mark.parametrize(
    ("partition", "delete_keeps", "stray_keeps"), [(0, 213, 214), (17, 212, 213), (12345, 209, 210)]
)
def test_the_cap_keeps_as_much_of_the_topic_as_fits(partition: int, delete_keeps: int, stray_keeps: int) -> None:
    topic = "plant.north_line-3." * 13 + "ab"
    assert len(topic) == 249
    delete = names.delete_name(topic, partition, HEX)
    stray = names.stray_name(topic, partition, HEX)
    assert delete == f"{topic[:delete_keeps]}-{partition}.{HEX}-delete"
    assert stray == f"{topic[:stray_keeps]}-{partition}.{HEX}-stray"
    assert len(delete) == len(stray) == 255


def test_truncated_means_may_have_lost_its_end() -> None:
    fits_exactly = "t" * 213
    assert names.classify(names.delete_name(fits_exactly, 0, HEX)).truncated  # nobody can tell that it is whole
    assert not names.classify(names.delete_name("t" * 212, 0, HEX)).truncated
    assert not names.classify(f"{'t' * 249}-0").truncated
    assert not names.classify(f"{'t' * 249}-12345").truncated  # 255 characters, but a current name is never cut
    by_hand = f"{'t' * 244}-0.x-delete"
    assert len(by_hand) == 255
    assert names.classify(by_hand).truncated  # in doubt, yes
    whole = names.parse(f"{'t' * 249}-0.x-delete")
    assert not whole.truncated  # 249 characters cannot have been more


@pytest.mark.parametrize("name", ["zzz-1", "zzz-01", "zzz-+1", "zzz-١", "zzz-000000000000000000000000001"])
def test_many_names_are_one_partition(name: str) -> None:
    parsed = names.parse(name)
    assert (parsed.topic, parsed.partition, parsed.kind) == ("zzz", 1, Kind.CURRENT)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "no '-'"),
        ("lost+found", "no '-'"),
        (".trash", "no '-'"),
        ("-0", "before the last '-'"),
        ("a-", "after the last '-'"),
        ("a-1~", "'1~' is not a partition number"),
        ("a-2147483648", "'2147483648' is not a partition number"),
        ("a-0.x-DELETE", "is not a partition number"),
        ("zzz-0-delete", "ends in -delete"),
        ("a b-0.x-delete", "without whitespace"),
        ("a-0.x.y-stray", "'0.x' is not a partition number"),
    ],
)
def test_a_refused_name_says_what_is_wrong_with_it(name: str, says: str) -> None:
    with pytest.raises(names.InvalidDirName, match=re.escape(says)) as caught:
        names.parse(name)
    assert repr(name) in str(caught.value)


def test_an_old_broker_reads_a_stray_as_nonsense_and_we_do_not() -> None:
    # KAFKA-5232: dots and dashes in topics; 3.6.0 has no -stray and dies of it.
    parsed = names.parse(f"my.dotted-topic-3.{HEX}-stray")
    assert (parsed.topic, parsed.partition, parsed.uuid) == ("my.dotted-topic", 3, HEX)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("__cluster_metadata-0", Kind.METADATA),
        ("__cluster_metadata-7", Kind.METADATA),
        (f"__cluster_metadata-0.{HEX}-delete", Kind.METADATA),
        ("__cluster_metadata-x", Kind.INVALID),
        ("__cluster_metadata-2-0", Kind.CURRENT),  # a topic of its own, and the broker loads it as one
        ("remote-log-index-cache", Kind.CACHE),
        ("remote-log-index-cache-0", Kind.CURRENT),
        ("archive-0.0123456789abcdef0123456789abcdef-delete-0", Kind.CURRENT),
    ],
)
def test_special_directories_have_their_kind(name: str, kind: Kind) -> None:
    assert names.classify(name).kind is kind


@pytest.mark.parametrize("uuid", ["", "x" * 32, HEX.upper(), HEX[:-1], HEX + "0", HEX[:16] + "-" + HEX[17:]])
def test_only_32_lower_case_hex_digits_make_a_marked_name(uuid: str) -> None:
    for build in (names.delete_name, names.stray_name):
        with pytest.raises(ValueError, match="32 lower-case hex digits"):
            build("a", 0, uuid)


@given(topics)
def test_legal_topics_are_legal(topic: str) -> None:
    names.validate_topic(topic)
    assert names.is_valid_topic(topic)


@given(st.text())
def test_a_topic_is_legal_or_says_why(topic: str) -> None:
    if names.is_valid_topic(topic):
        assert 1 <= len(topic) <= 249
        assert set(topic) <= set(LEGAL)
    else:
        with pytest.raises(ValueError, match=r"^Topic name is invalid: "):
            names.validate_topic(topic)
