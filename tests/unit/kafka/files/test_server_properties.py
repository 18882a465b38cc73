"""Java properties and `server.properties`: against Kafka's answers, and what the answers leave open."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logagent.base.errors import ConfigError, Exit, UnreadableError
from logagent.kafka.files.properties import (
    ServerProperties,
    _variables,
    iter_properties,
    parse_properties,
    parse_server_properties,
)
from tests.kafka_answers import content, rows
from tests.waiting import within_cpu


def escaped(text: str) -> str:
    """`text` with nothing that a properties file could take for anything but itself."""
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"))


def problems_of(text: str | bytes) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_server_properties(text.encode() if isinstance(text, str) else text)
    assert caught.value.exit_status is Exit.CONFIG
    assert caught.value.problems[0] in str(caught.value)
    return caught.value.problems


def test_log_dirs_are_kafkas() -> None:
    asked = rows("log_dirs")
    assert len(asked) == 69
    for row in asked:
        data = content(row)
        assert parse_properties(data) == row["props"], row["id"]
        if "error" in row:
            (problem,) = problems_of(data)
            assert row["message"].removeprefix("requirement failed: ") in problem, row["id"]
            continue
        read = parse_server_properties(data)
        assert (read.log_dirs, read.metadata_log_dir) == (row["log_dirs"], row["metadata_log_dir"]), row["id"]
        assert read.props == row["props"], row["id"]


def test_meta_properties_files_are_read_as_java_reads_them() -> None:
    for row in rows("meta_properties"):
        if row.get("stage") == "read":
            with pytest.raises(UnreadableError, match=re.escape(row["message"])):
                parse_properties(content(row))
        else:
            assert parse_properties(content(row)) == row["props"], row["id"]


@given(st.dictionaries(st.text(), st.text()), st.sampled_from(["\n", "\r", "\r\n", "\n\n", "\n#x\\\n"]))
def test_whatever_is_escaped_comes_back(wanted: dict[str, str], end: str) -> None:
    text = "".join(f"{escaped(key)}={escaped(value)}{end}" for key, value in wanted.items())
    assert parse_properties(text.encode()) == wanted


@given(st.binary(max_size=60) | st.text("\\\n\r =:#!auf0041", max_size=40).map(str.encode))
def test_any_bytes_are_properties_or_unreadable(data: bytes) -> None:
    try:
        entries = list(iter_properties(data))
    except UnreadableError:
        return
    assert [entry.line for entry in entries] == sorted(entry.line for entry in entries)


# Where the last lines of a file end in a backslash, Java 17's answers are these.
@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"\\", {"": ""}),
        (b"\\\n", {"": ""}),
        (b"\\\r", {"": ""}),
        (b"\\\r\n", {}),
        (b"\\\n\n", {}),
        (b"\\\n# no comment?\na", {"a": ""}),
        (b"a\\\n# no comment", {"a#": "no comment"}),
        (b"a=1\\\r\n", {"a": "1"}),
        (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        (b"\\ud83d\\ude00=\\ud83d", {"\U0001f600": "\ud83d"}),
    ],
)
def test_a_file_that_ends_oddly_is_read_as_java_reads_it(data: bytes, wanted: dict[str, str]) -> None:
    assert parse_properties(data) == wanted


def test_entries_know_their_lines() -> None:
    data = b"# one\r\na=1\rb=\\\n  2\\\n  2\n\n\nc=3"
    assert [(entry.key, entry.value, entry.line) for entry in iter_properties(data)] == [
        ("a", "1", 2),
        ("b", "22", 3),
        ("c", "3", 8),
    ]


def test_an_empty_file_has_kafkas_defaults() -> None:
    assert parse_server_properties(b"") == ServerProperties(
        log_dirs=["/tmp/kafka-logs"],
        metadata_log_dir="/tmp/kafka-logs",
        node_id=None,
        process_roles=[],
        quorum_voters=[],
        file_delete_delay_ms=60_000,
        delete_topic_enable=True,
        props={},
    )


def test_every_setting_is_read_from_one_file() -> None:
    read = parse_server_properties(
        b"process.roles = controller , broker \nnode.id:3\n"
        b"controller.quorum.voters=1@one:9093, 2@two:9093,3@[::1]:9093\n"
        b"log.dirs=/d1,/d2\nmetadata.log.dir=/meta\n"
        b"log.segment.delete.delay.ms= 0 \ndelete.topic.enable=FALSE\n"
    )
    assert read.process_roles == ["controller", "broker"]
    assert read.node_id == 3
    assert read.quorum_voters == [1, 2, 3]
    assert (read.log_dirs, read.metadata_log_dir) == (["/d1", "/d2"], "/meta")
    assert read.file_delete_delay_ms == 0
    assert read.delete_topic_enable is False


@pytest.mark.parametrize(
    ("text", "node_id"),
    [
        ("broker.id=1", 1),
        ("node.id=1", 1),
        ("node.id=1\nbroker.id=1", 1),
        ("broker.id=-1", None),
        ("broker.id= +07 ", 7),
        ("process.roles=broker\nbroker.id=0", 0),
    ],
)
def test_node_id_is_either_of_two_keys(text: str, node_id: int | None) -> None:
    assert parse_server_properties(text.encode()).node_id == node_id


def test_all_problems_are_reported_at_once_each_with_its_line() -> None:
    text = (
        "log.dirs=\n"
        "\n"
        "broker.id=one\n"
        "process.roles=broker,zookeeper\n"
        "log.segment.delete.delay.ms=1m\n"
        "delete.topic.enable=yes\n"
        "controller.quorum.voters=1@one:9093,two\n"
    )
    problems = problems_of(text)
    assert [problem.split(": ")[:2] for problem in sorted(problems)] == [
        ["server.properties:1", "log.dirs"],
        ["server.properties:3", "broker.id"],
        ["server.properties:4", "process.roles"],
        ["server.properties:5", "log.segment.delete.delay.ms"],
        ["server.properties:6", "delete.topic.enable"],
        ["server.properties:7", "controller.quorum.voters"],
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node.id=1\nbroker.id=2", "differs from broker.id"),
        ("process.roles=broker", "must be set"),
        ("process.roles=broker\nnode.id=-1", "must be set"),
        ("broker.id=-5", "-5 is below -1"),
        ("process.roles=broker,broker\nnode.id=1", "names a role twice"),
        ("process.roles=broker,\nnode.id=1", "'' is not one of"),
        ("log.segment.delete.delay.ms=-1", "below 0"),
        ("log.segment.delete.delay.ms=", "not a number"),
        ("node.id=2147483648", "not a number up to 2147483647"),
        ("controller.quorum.voters=one@host:9093", "not a voter id"),
        ("controller.quorum.voters=1@host", "id@host:port"),
        ("log.dirs=/a\\u0000b", "NUL"),
        ("log.dirs=/a\\udc80", "surrogate"),
        ("metadata.log.dir=/a\\udc80", "surrogate"),
        ("log.dirs=\\uZZ", "line 1: Malformed"),
        ("config.providers=file\nlog.dirs=${file:/etc/secret:dirs}", "config provider"),
        ("config.providers=env, file\nlog.dirs=/a,${env:DIR}", "config provider"),
    ],
)
def test_what_the_broker_refuses_or_we_cannot_know_is_a_problem(text: str, says: str) -> None:
    (problem,) = problems_of(text)
    assert says in problem


def test_a_dollar_without_a_provider_is_text_as_for_kafka() -> None:
    read = parse_server_properties(b"config.providers=env\nlog.dirs=${x}/a,${file:/b:c}")
    assert read.log_dirs == ["${x}/a", "${file:/b:c}"]


@given(st.text("log.dirsnodeid=,\\u0\n /ab:#1@-", max_size=80))
@example("log.dirs=\\ud800")
def test_any_text_is_read_or_a_config_error(text: str) -> None:
    try:
        read = parse_server_properties(text.encode())
    except ConfigError as error:
        assert error.problems
    else:
        assert read.log_dirs
        assert all(read.log_dirs)


@pytest.mark.parametrize("value", ["${" * 100_000, "/a" + " " * 200_000 + "b", "${a" * 70_000 + "}" * 70_000])
def test_a_long_value_takes_no_longer_than_it_is_long(value: str) -> None:
    """The patterns of Kafka's own code would take minutes."""
    with within_cpu(5, "quadratic patterns take minutes"):
        parse_server_properties(f"log.dirs={value}\n".encode(), "server.properties")


@given(st.text(alphabet="${}:ab", max_size=30))
def test_variables_are_those_of_kafkas_pattern(value: str) -> None:
    pattern = re.compile(r"\$\{([^}]*?):(?:[^}]*?:)?[^}]*?\}")
    assert list(_variables(value)) == [(found[1], found[0]) for found in pattern.finditer(value)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", 7 * 24 * 3_600_000),
        ("log.retention.hours=1", 3_600_000),
        ("log.retention.hours=1\nlog.retention.minutes=2", 120_000),
        ("log.retention.minutes=2\nlog.retention.ms= 3 \nlog.retention.hours=1", 3),
        ("log.retention.ms=99999999999", 99_999_999_999),
        ("log.retention.ms=-1", -1),
        ("log.retention.hours=-1", -1),
        ("log.retention.minutes=-1\nlog.retention.hours=1", -1),
        # No broker starts with these; none of them falls back to another key.
        ("log.retention.hours=99999999999", None),
        ("log.retention.ms=\nlog.retention.hours=1", None),
        ("config.providers=file\nlog.retention.ms=${file:/etc/kafka/x:ms}", None),
    ],
)
def test_retention_is_read_as_a_broker_reads_it(lines: str, expected: int | None) -> None:
    server = parse_server_properties(f"log.dirs=/d\n{lines}\n".encode())
    assert server.layers.default("retention.ms").number == expected
