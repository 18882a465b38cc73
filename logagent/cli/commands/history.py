"""`logagent history`: the journal, for people and programs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click

from logagent.broker.files.server_properties import read_server_properties
from logagent.cli.options import Call, common
from logagent.cli.plan_documents import history_row
from logagent.cli.render import dump, dump_line, human_bytes, human_time, table
from logagent.errors import UsageError
from logagent.host.state.journal import Journal
from logagent.host.state.journal_schema import Entry
from logagent.host.state.peek import undoable
from logagent.model.times import rfc3339
from logagent.settings import parse_duration


@click.command()
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N entries.")
@click.option("--since", metavar="AGE", help="Only entries younger than this, for example 24h (0s: none).")
@click.option("--jsonl", is_flag=True, help="One JSON object per line.")
@click.option("--undoable", is_flag=True, hidden=True, help="For the system package, before it is purged.")
@common
def history(call: Call, limit: int | None, since: str | None, jsonl: bool, undoable: bool) -> None:
    """Show what was done, oldest first: who, what, when, and the outcome."""
    now = time.time_ns() // 1_000_000
    since_ms = None
    if since is not None:
        try:
            since_ms = now - parse_duration(since)
        except ValueError as e:
            raise UsageError(f"--since: {e}", hint="logagent history --since 24h") from e
    directory = call.state_dir
    with Journal.open_read_only(directory) as journal:
        if undoable:
            _show_undoable(journal, directory)
            return
        log_dirs = call.log_dirs
        if not log_dirs and call.kafka_config is not None:
            log_dirs = tuple(read_server_properties(call.kafka_config).log_dirs)
        if log_dirs:
            entries = _of(journal.history(since_ms=since_ms), log_dirs)[-(limit or 0) :]
        else:
            entries = journal.history(limit=limit, since_ms=since_ms)
    if jsonl:
        for entry in entries:
            dump_line(history_row(entry))
    elif call.json:
        dump({"schema": "logagent.history/1", "at": rfc3339(now), "entries": [history_row(e) for e in entries]})
    elif not entries:
        call.say(f"the journal in {directory} has no entries{' of these log dirs' if log_dirs else ''}")
    else:
        columns = [("id", "right"), ("at", "left"), ("action", "left"), ("directory", "dir")]
        columns += [("allocated", "right?"), ("size", "right?")]
        columns += [("outcome", "left"), ("by", "left?"), ("plan", "left?")] + [("error", "text")] * call.verbose
        rows = [
            [str(e.id), human_time(e.at_ms), e.intent.action.value, f"{e.intent.log_dir}/{e.intent.name}",
             "" if e.intent.allocated is None else human_bytes(e.intent.allocated), human_bytes(e.intent.bytes),
             e.outcome.value if e.outcome else "unfinished", e.intent.actor,
             e.intent.plan_id, *[e.error or ""] * call.verbose]
            for e in entries
        ]  # fmt: skip
        table("History", columns, rows, color=call.color)


def _of(entries: list[Entry], log_dirs: Sequence[str]) -> list[Entry]:
    """Those of `log_dirs`, which the journal has by the paths of `log.dirs`."""
    named = {os.path.abspath(path) for path in log_dirs}
    return [e for e in entries if {e.intent.log_dir, e.intent.new_dir} & named]


def _show_undoable(journal: Journal, state_dir: str) -> None:
    """One line each: state dir, device number (or "unknown"), path, as the package's postrm reads them."""
    for path, device in undoable(journal):
        odd = device is None or "\n" in path or path != path.strip()
        click.echo(
            f"{state_dir} {'unknown' if odd else device} {'-' if odd else path}".encode("utf-8", "surrogateescape")
        )
