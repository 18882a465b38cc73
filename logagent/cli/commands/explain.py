"""`logagent explain`: what Kafka reads in a directory name. Touches no disk."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, cast

import click

from logagent.cli.options import Call, common
from logagent.cli.render import dump, dump_line, short_name, table
from logagent.errors import UsageError
from logagent.model.naming.explain import Explanation
from logagent.model.naming.explain import explain as explained
from logagent.model.naming.names import current_name
from logagent.model.records import Kind

if TYPE_CHECKING:
    from io import BufferedReader

_UUID: Final = re.compile(r"[0-9a-f]{32}")
_CHUNK: Final = 1 << 16


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...|-")
@click.option("-0", "--null", "nul", is_flag=True, help="With '-': names end in NUL, as find -print0 writes them.")
@click.option("--jsonl", is_flag=True, help="One JSON object per line, one line per name.")
@common
def explain(call: Call, names: tuple[str, ...], nul: bool, jsonl: bool) -> None:
    """Say what Kafka reads in a directory name (LocalLog.parseTopicPartitionName), and whether it would start.

    Of a path only the last part counts. '-' reads names from stdin, one a line. --json prints one object for one
    NAME, and an array for several or for '-'.
    """
    if nul and names != ("-",):
        raise UsageError("-0 is about names from stdin", hint="logagent explain -0 -")
    if "-" in names and len(names) > 1:
        raise UsageError("'-' stands alone: names come from the command line or from stdin, not from both")
    from_stdin = names == ("-",)
    found = (explained(_last_part(name)) for name in (_stdin_names(b"\0" if nul else b"\n") if from_stdin else names))
    if jsonl:
        for explanation in found:
            dump_line(explanation)
    elif call.json and len(names) == 1 and not from_stdin:
        dump(next(found))
    elif call.json:
        _dump_array(found)
    else:
        _show(found, color=call.color)


def _last_part(path: str) -> str:
    """What `java.io.File.getName` gives: names are often pasted, or expanded by a shell, with their log dir."""
    return path.rstrip("/").rpartition("/")[2]


def _stdin_names(end: bytes) -> Iterator[str]:
    """Names from stdin as they come, not all in memory; bytes that are no UTF-8 stay what they are."""
    stdin = cast("BufferedReader", sys.stdin.buffer)
    rest = b""
    while chunk := stdin.read1(_CHUNK):
        *whole, rest = (rest + chunk).split(end)
        yield from map(os.fsdecode, whole)
    if rest:
        yield os.fsdecode(rest)


def _dump_array(found: Iterable[Explanation]) -> None:
    out = sys.stdout
    out.write("[")
    for number, explanation in enumerate(found):
        out.write(("\n" if number == 0 else ",\n") + json.dumps(explanation, ensure_ascii=True))
    out.write("\n]\n")


def _show(found: Iterable[Explanation], *, color: bool) -> None:
    columns = [("name", "left"), ("kind", "left"), ("topic", "left"), ("partition", "right"), ("says", "left")]
    rows = [
        (
            short_name(explanation["name"]),
            explanation["kind"],
            short_name(explanation["topic"] or ""),
            "" if explanation["partition"] is None else str(explanation["partition"]),
            _note(explanation),
        )
        for explanation in found
    ]
    table("", columns, rows, color=color)


def _note(explanation: Explanation) -> str:
    """What a person should know beside the parts."""
    if explanation["error"] is not None:
        return f"a broker refuses to start with it: {explanation['error'].partition(': ')[2]}"
    kind = Kind(explanation["kind"])
    notes = []
    if kind is Kind.METADATA:
        notes.append("the KRaft metadata log: never touched")
    if kind is Kind.CACHE:
        notes.append("index cache of tiered storage: brokers pass over it")
    if kind is Kind.STRAY:
        notes.append("brokers before 3.6.1 refuse to start with it")
    if explanation["topic_truncated"]:
        notes.append("the topic may have lost its end")
    topic, partition, uuid = explanation["topic"], explanation["partition"], explanation["uuid"]
    if topic is not None and partition is not None:
        plain = current_name(topic, partition)
        stem = explanation["name"] if uuid is None else explanation["name"].rpartition(".")[0]
        if stem != plain:
            notes.append(f"another spelling of {short_name(plain)}: one partition to the broker")
    if uuid is not None and _UUID.fullmatch(uuid) is None:
        notes.append("what stands before the mark is no UUID: no broker wrote this name")
    return "; ".join(notes)
