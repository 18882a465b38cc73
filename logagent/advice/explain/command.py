"""`logagent explain`: why bytes are still on this host's disks; and how Kafka parses a directory name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import click

from logagent.base.console import options
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, dump_line, dump_rows, short_name, table
from logagent.base.dir_names import classify, current_name
from logagent.base.errors import UsageError
from logagent.base.records import Kind

if TYPE_CHECKING:
    from io import BufferedReader

    from logagent.advice.explain.documents import NameDoc

_CHUNK: Final = 1 << 16
_UUID: Final = re.compile(r"[0-9a-f]{32}")


def _topic_settings() -> Iterator[str]:
    from logagent.kafka.retention.settings import TOPIC_SETTINGS

    return (f"{key}=" for key in TOPIC_SETTINGS)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|TOPIC-PARTITION|TOPIC|PATH]...|-")
@click.option("--names", "only_names", is_flag=True, help="Only explain how Kafka parses each NAME; look at no disk.")
@click.option(
    "--what-if",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=options.words(_topic_settings),
    help="What would go if topics had this setting (repeatable), such as retention.ms=3d.",
)
@click.option("--log-dirs-only", is_flag=True, help="Do not search for what else is on their file systems.")
@click.option("--offline", is_flag=True, help="Ask nobody, this host's running broker included.")
@click.option("-0", "--null", "nul", is_flag=True, help="With '-': names end with NUL, as from find -print0.")
@click.option("--jsonl", is_flag=True, help="With names only: one JSON object per line, one line per name.")
@reads_assignments
@common
def explain(
    call: Call,
    names: tuple[str, ...],
    only_names: bool,
    settings: tuple[str, ...],
    log_dirs_only: bool,
    offline: bool,
    nul: bool,
    jsonl: bool,
) -> None:
    """Explain why bytes are still on this host's disks, by which setting, and when they go.

    Without arguments: each file system that has log dirs, the fullest first, and what else takes space there, other
    brokers' log dirs included (searched for at most 10 seconds). A NAME is a directory in a log dir, a topic with or
    without its partition, or a path. This host's disks are read: log dirs, server.properties, the metadata log. Its
    running broker is asked which settings are in force, what it has of each log, and whose transactions are open (for
    at most 2 seconds), and the cluster whose each directory is: for at most 10 seconds in all, and not with --offline.

    --what-if retention.ms=3d says of each topic (or of TOPIC) and log dir what would go then, how much and when, and
    what would stay all the same, and why. It changes nothing: it prints the kafka-configs.sh line that would.

    With --names, --jsonl or '-' (names from stdin, one per line) it explains how Kafka parses each name
    (LocalLog.parseTopicPartitionName; of a path the last component counts), and whether a broker would start.
    """
    if nul and names != ("-",):
        raise UsageError("-0 only applies to names from stdin", hint="logagent explain -0 -")
    if "-" in names and len(names) > 1:
        raise UsageError(
            "'-' takes no names beside it", hint="'-' reads names from stdin: write yours there, or leave it out"
        )
    if (only_names or jsonl) and not names:
        raise UsageError("no name was given", hint="logagent explain --names NAME")
    from_stdin = names == ("-",)
    if settings and (only_names or jsonl or from_stdin):
        hint = "leave out one of the two"
        raise UsageError("--what-if is about log dirs; --names, --jsonl and '-' look at no disk", hint=hint)
    if not (only_names or jsonl or from_stdin):
        from logagent.advice.explain.host import explain_host

        parsed = [explain_document(last_part(name)) for name in names]
        explain_host(
            call,
            names,
            parsed,
            partial(show_names, color=call.color),
            outside=not log_dirs_only,
            offline=offline,
            own=parsed_settings(settings),
        )
        return
    explanations = (
        explain_document(last_part(name)) for name in (_stdin_names(b"\0" if nul else b"\n") if from_stdin else names)
    )
    if jsonl:
        for explanation in explanations:
            dump_line(explanation)
    elif call.json and len(names) == 1 and not from_stdin:
        dump(next(explanations))
    elif call.json:
        dump_rows(explanations)
    else:
        show_names(explanations, color=call.color)


def _stdin_names(end: bytes) -> Iterator[str]:
    """Names from stdin as they arrive, never all in memory; bytes that are not UTF-8 are kept."""
    stdin = cast("BufferedReader", sys.stdin.buffer)
    rest = b""
    while chunk := stdin.read1(_CHUNK):
        *whole, rest = (rest + chunk).split(end)
        yield from map(os.fsdecode, whole)
    if rest:
        yield os.fsdecode(rest)


def explain_document(name: str) -> NameDoc:
    """`logagent.explain/1`: what Kafka makes of a directory name (`names.classify`). Never raises.

    `remote-log-index-cache` is valid although Kafka's parser would refuse it: the broker skips that directory. `valid`:
    whether a broker starts if a log dir contains a directory of this name; `error` says why not.
    """
    parsed = classify(name)
    return {
        "schema": "logagent.explain/1",
        "name": name,
        "kind": parsed.kind,
        "topic": parsed.topic,
        "partition": parsed.partition,
        "uuid": parsed.uuid,
        "topic_truncated": parsed.truncated,
        "valid": parsed.kind is not Kind.INVALID,
        "error": parsed.error,
    }


def last_part(path: str) -> str:
    """As `java.io.File.getName`: names are often pasted, or expanded by a shell, with their log dir."""
    return path.rstrip("/").rpartition("/")[2]


def show_names(explanations: Iterable[NameDoc], *, color: bool) -> None:
    columns = [("name", "left"), ("kind", "left"), ("topic", "left"), ("partition", "right"), ("note", "left")]
    rows = [
        (short_name(e["name"]), e["kind"], short_name(e["topic"] or ""),
         "" if e["partition"] is None else str(e["partition"]), _note(e))
        for e in explanations
    ]  # fmt: skip
    table("", columns, rows, color=color)


def _note(explanation: NameDoc) -> str:
    """Remarks for a person, besides the parts."""
    if explanation["error"] is not None:
        return f"a broker does not start with it: {explanation['error'].partition(': ')[2]}"
    kind = explanation["kind"]
    notes = []
    if kind is Kind.METADATA:
        notes.append("the KRaft metadata log: never touched")
    if kind is Kind.CACHE:
        notes.append("index cache of tiered storage: brokers ignore it")
    if kind is Kind.STRAY:
        notes.append("brokers before 3.6.1 do not start with it")
    if explanation["topic_truncated"]:
        notes.append("the topic name may be truncated")
    topic, partition, uuid = explanation["topic"], explanation["partition"], explanation["uuid"]
    if topic is not None and partition is not None:
        plain = current_name(topic, partition)
        stem = explanation["name"] if uuid is None else explanation["name"].rpartition(".")[0]
        if stem != plain:
            notes.append(f"another spelling of {short_name(plain)}: the same partition to the broker")
    if uuid is not None and _UUID.fullmatch(uuid) is None:
        notes.append("the part before the suffix is not a UUID: no broker wrote this name")
    return "; ".join(notes)


def parsed_settings(given: Iterable[str]) -> dict[str, str]:
    """By setting, the text as a topic would have it: `3d` and `10GiB` in ms and bytes. Raises UsageError."""
    from logagent.base.config.settings import parse_duration, parse_size
    from logagent.kafka.retention import settings as names

    parsed: dict[str, str] = {}
    for text in given:
        key, has_value, value = text.partition("=")
        key, value = key.strip(), value.strip()
        if key not in names.TOPIC_SETTINGS:
            hint = f"KEY=VALUE, with one of {', '.join(sorted(names.TOPIC_SETTINGS))}"
            raise UsageError(f"--what-if {text}: not a setting of topics that explain knows", hint=hint)
        try:
            if not has_value:
                raise ValueError("the value is missing")
            parsed[key] = value
            if key == names.CLEANUP_POLICY:
                words = [word.strip() for word in value.strip("[]").split(",")]
                if not {"delete", "compact"}.issuperset(words):
                    raise ValueError("delete, compact or compact,delete")
                parsed[key] = ",".join(words)
            elif key in (names.TIERED, names.COPY_DISABLED):
                if value not in ("true", "false"):
                    raise ValueError("true or false")
            elif key == names.MIN_DIRTY_RATIO:
                if not 0 <= float(value) <= 1:
                    raise ValueError("a number from 0 to 1")
            else:
                number = names.parsed_ms(value)
                if number is None:
                    number = parse_duration(value) if key.endswith(".ms") else parse_size(value)
                if number < (least := names.AS_RETENTION if key.startswith("local.") else -1):
                    raise ValueError(f"at least {least}")
                parsed[key] = str(number)
        except ValueError as e:
            raise UsageError(f"--what-if {text}: {e}", hint=f"logagent explain --what-if {key}=VALUE") from None
    return parsed
