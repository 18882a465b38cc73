"""`logagent explain`: why bytes are still on this host's disks; and how Kafka parses a directory name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

import click

from logagent.advice.explain.names import explain_document, last_part, show_names
from logagent.base.console.options import Call, common, reads_assignments
from logagent.base.console.render import dump, dump_line, dump_rows
from logagent.base.errors import UsageError

if TYPE_CHECKING:
    from io import BufferedReader

_CHUNK: Final = 1 << 16


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|TOPIC-PARTITION|TOPIC|PATH]...|-")
@click.option("--names", "only_names", is_flag=True, help="Only explain how Kafka parses each NAME; look at no disk.")
@click.option("--log-dirs-only", is_flag=True, help="Do not search for what else is on their file systems.")
@click.option("-0", "--null", "nul", is_flag=True, help="With '-': names end with NUL, as from find -print0.")
@click.option("--jsonl", is_flag=True, help="With names only: one JSON object per line, one line per name.")
@reads_assignments
@common
def explain(call: Call, names: tuple[str, ...], only_names: bool, log_dirs_only: bool, nul: bool, jsonl: bool) -> None:
    """Explain why bytes are still on this host's disks, by which setting, and when they go.

    Without arguments: each file system that has log dirs, the fullest first, and what else takes space there, other
    brokers' log dirs included (searched for at most 10 seconds). A NAME is a directory in a log dir, a topic with or
    without its partition, or a path. Only this host's disks are read: log dirs, server.properties, the metadata log.

    With --names, --jsonl or '-' (names from stdin, one per line) it explains how Kafka parses each name
    (LocalLog.parseTopicPartitionName; of a path the last component counts), and whether a broker would start.
    """
    if nul and names != ("-",):
        raise UsageError("-0 only applies to names from stdin", hint="logagent explain -0 -")
    if "-" in names and len(names) > 1:
        raise UsageError("'-' cannot be combined with names: they come from the command line or from stdin, not both")
    if (only_names or jsonl) and not names:
        raise UsageError("no name was given", hint="logagent explain --names NAME")
    from_stdin = names == ("-",)
    if not (only_names or jsonl or from_stdin):
        from logagent.advice.explain.host import explain_host

        explain_host(call, names, outside=not log_dirs_only)
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
