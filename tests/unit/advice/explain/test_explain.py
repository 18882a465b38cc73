"""`logagent explain --names`: the document, and the command that prints it."""

from __future__ import annotations

import json
import os
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from logagent.advice.explain.command import explain as command
from logagent.advice.explain.command import explain_document as explain
from logagent.base.errors import UsageError
from logagent.cli import cli
from logagent.schemas import NameDoc
from tests.kafka_answers import rows

HEX = "0123456789abcdef0123456789abcdef"
EXPLAIN = TypeAdapter(NameDoc)
EXPLAIN_SCHEMA = EXPLAIN.json_schema()


def run(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
    # As the command line calls it: click keeps the names of --help that its first context has.
    result = CliRunner().invoke(command, list(arguments), input=stdin, env=env, **cli.context_settings)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_marked_directory_is_explained() -> None:
    assert explain(f"my.topic-3.{HEX}-delete") == {
        "schema": "logagent.explain/1",
        "name": f"my.topic-3.{HEX}-delete",
        "kind": "delete",
        "topic": "my.topic",
        "partition": 3,
        "uuid": HEX,
        "topic_truncated": False,
        "valid": True,
        "error": None,
    }


def test_what_a_broker_would_not_start_with() -> None:
    found = explain("lost+found")
    assert (found["kind"], found["valid"], found["topic"], found["partition"]) == ("invalid", False, None, None)
    assert found["error"] is not None
    assert "no '-'" in found["error"]


@pytest.mark.parametrize(("name", "kind"), [("remote-log-index-cache", "cache"), ("__cluster_metadata-0", "metadata")])
def test_what_the_broker_keeps_beside_its_logs_is_valid(name: str, kind: str) -> None:
    assert (explain(name)["kind"], explain(name)["valid"]) == (kind, True)


@given(st.text() | st.sampled_from([row["name"] for row in rows("dir_names")]))
def test_every_name_gives_a_document_of_its_schema(name: str) -> None:
    printed = json.dumps(explain(name), ensure_ascii=True)  # what a reader of our output has in hand
    EXPLAIN.validate_json(printed)
    jsonschema.validate(json.loads(printed), EXPLAIN_SCHEMA)


def test_one_name_is_one_object() -> None:
    result = run("--names", "--json", "foo-0")
    assert json.loads(result.stdout) == explain("foo-0")


def test_several_names_are_one_array_or_one_line_each() -> None:
    expected = [explain("foo-0"), explain("lost+found")]
    assert json.loads(run("--names", "--json", "foo-0", "lost+found").stdout) == expected
    assert lines(run("--jsonl", "foo-0", "lost+found")) == expected


def test_names_come_from_stdin_one_a_line() -> None:
    stdin = b"foo-0\nbar-1\r\nbaz-2"
    assert [found["name"] for found in lines(run("--jsonl", "-", stdin=stdin))] == ["foo-0", "bar-1\r", "baz-2"]
    assert len(json.loads(run("--json", "-", stdin=stdin).stdout)) == 3
    assert json.loads(run("--json", "-", stdin=b"").stdout) == []
    assert json.loads(run("--json", "-", stdin=b"foo-0\n").stdout) == [explain("foo-0")]


def test_names_that_end_in_nul_may_have_line_ends() -> None:
    found = lines(run("--jsonl", "-0", "-", stdin=b"a\n-0\0b-1\0"))
    assert [(row["name"], row["topic"], row["partition"]) for row in found] == [("a\n-0", "a\n", 0), ("b-1", "b", 1)]


def test_bytes_that_are_no_utf8_come_back_as_surrogate_escapes() -> None:
    result = run("--jsonl", "-", stdin=b"caf\xe9-0\n")
    assert b"caf\\udce9-0" in result.stdout_bytes
    (found,) = lines(result)
    assert os.fsencode(found["name"]) == b"caf\xe9-0"
    assert (found["topic"], found["partition"]) == ("caf\udce9", 0)


def test_more_names_than_one_read_holds() -> None:
    names = [f"topic.{number}-{number}" for number in range(20_000)]
    found = lines(run("--jsonl", "-", stdin="\n".join(names).encode()))
    assert [row["name"] for row in found] == names


@pytest.mark.parametrize("path", ["/data/kafka/foo-0", "foo-0/", "./foo-0", "/data/foo-0///"])
def test_of_a_path_the_last_part_counts(path: str) -> None:
    assert json.loads(run("--names", "--json", path).stdout) == explain("foo-0")


@pytest.mark.parametrize("arguments", [("-0", "foo-0"), ("-", "foo-0"), ("foo-0", "-")])
def test_stdin_and_arguments_do_not_mix(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        run(*arguments)


@pytest.mark.parametrize("option", ["--names", "--jsonl"])
def test_no_name_is_wrong_usage(option: str) -> None:
    with pytest.raises(UsageError):
        run(option)


def test_a_name_that_looks_like_an_option_follows_two_dashes() -> None:
    assert json.loads(run("--names", "--json", "--", "-0").stdout)["valid"] is False


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lost+found", "does not start"),
        (f"foo-0.{HEX}-stray", "before 3.6.1"),
        ("zzz-01", "another spelling of zzz-1"),
        (f"zzz-+1.{HEX}-delete", "another spelling of zzz-1"),
        ("zzz-0.x-delete", "not a UUID"),
        ("__cluster_metadata-0", "never touched"),
        ("remote-log-index-cache", "brokers ignore it"),
        (f"{'t' * 213}-0.{HEX}-delete", "may be truncated"),
    ],
)
def test_the_table_says_what_a_person_should_know(name: str, says: str) -> None:
    result = run("--names", name, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert says in " ".join(result.stdout.split())


def test_the_table_shows_a_hostile_name_and_does_not_interpret_it() -> None:
    result = run("-0", "-", stdin=b"a\x1b[2J\n-0\0")
    assert "\x1b" not in result.stdout
    assert "a\\x1b[2J\\n-0" in result.stdout
