"""`logagent history`: the journal, for people and programs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from logagent.base.config.settings import parse_duration
from logagent.base.console.options import Call, common
from logagent.base.console.render import dump, dump_line, human_bytes, table, visible
from logagent.base.errors import UsageError
from logagent.base.records import Outcome
from logagent.base.units import human_time, rfc3339
from logagent.cleanup.plan_documents import history_row
from logagent.cleanup.state.journal import Journal, undoable
from logagent.cleanup.state.journal_schema import Entry
from logagent.kafka.files.properties import read_server_properties


@click.command()
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N entries.")
@click.option("--since", metavar="AGE", help="Only entries younger than this, for example 24h (0s: none).")
@click.option("--jsonl", is_flag=True, help="One JSON object per line.")
@click.option("-f", "--follow", is_flag=True, help="Then wait for what is added, until Ctrl-C.")
@click.option("--undoable", is_flag=True, hidden=True, help="For the system package, before it is purged.")
@common
def history(call: Call, limit: int | None, since: str | None, jsonl: bool, follow: bool, undoable: bool) -> None:
    """Show what was done, oldest first: who, what, when, and the outcome."""
    if follow and call.json:
        raise UsageError(
            "--json and --follow exclude each other: one document would never end", hint="logagent history --jsonl -f"
        )
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
        of = " of these log dirs" if log_dirs else ""
        has = (
            f"the journal in {directory} has no entries{of}"
            if os.path.isdir(directory)
            else f"{directory} is not there"
        )
        call.say(f"{has}: another --state-dir has a journal of its own")
    else:
        _show(call, entries)
    if follow:
        _follow(directory, log_dirs, jsonl=jsonl)


def _show(call: Call, entries: Sequence[Entry]) -> None:
    columns = [("id", "right"), ("at", "left"), ("action", "left"), ("directory", "dir")]
    columns += [("outcome", "left"), *[("error", "text")] * call.verbose]
    columns += [("plan", "above?"), ("allocated", "right?"), ("by", "left?"), ("size", "right?")]
    rows = [
        [str(e.id), human_time(e.at_ms), e.intent.action.value, f"{e.intent.log_dir}/{e.intent.name}",
         e.outcome.value if e.outcome else "unfinished", *[e.error or ""] * call.verbose, e.intent.plan_id,
         "" if e.intent.allocated is None else human_bytes(e.intent.allocated), e.intent.actor,
         human_bytes(e.intent.bytes)]
        for e in entries
    ]  # fmt: skip
    table("History", columns, rows, color=call.color)


_EVERY_SECONDS = 1.0
# Read each time. Where more was added since, all of it is.
_NEWEST = 1000


def _follow(directory: str, log_dirs: Sequence[str], *, jsonl: bool) -> NoReturn:
    """One line for each action that begins from now on, and one for its outcome."""
    seen: dict[int, Outcome | None] | None = None
    sys.stdout.flush()
    while True:
        with Journal.open_read_only(directory) as journal:
            entries = journal.history(limit=_NEWEST)
            if seen and entries and entries[0].id > max(seen) + 1:
                entries = journal.history()
        if seen is None:
            seen = {e.id: e.outcome for e in entries}
        for entry in _of(entries, log_dirs) if log_dirs else entries:
            if entry.id not in seen or seen[entry.id] is not entry.outcome:
                seen[entry.id] = entry.outcome
                dump_line(history_row(entry)) if jsonl else click.echo(visible(_line(entry)))
        sys.stdout.flush()
        time.sleep(_EVERY_SECONDS)


def _line(e: Entry) -> str:
    outcome = e.outcome.value if e.outcome is not None else "started"
    error = f": {e.error}" if e.error else ""
    size = human_bytes(e.intent.bytes if e.intent.allocated is None else e.intent.allocated)
    path = f"{e.intent.log_dir}/{e.intent.name}"
    return f"{human_time(e.at_ms)} {e.intent.action.value} {path} ({size}) by {e.intent.actor}: {outcome}{error}"


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
