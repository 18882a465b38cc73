"""`logagent topics`: deletions across the fleet, carried out on every host (Kafka's TopicDeletionManager).

`purge` chooses from the orphans and strays of a fleet report (`choose`).
"""

from __future__ import annotations

import csv
import hashlib
import re
import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import click

from logagent.base import records
from logagent.base.config.settings import parse_duration, parse_size
from logagent.base.console.options import Call, common, gathered, options, or_dry_run
from logagent.base.console.render import dump, said_on_stderr
from logagent.base.dir_names import classify
from logagent.base.errors import ConfigError, Exit, LogAgentError, ServiceUnreachable, UnreadableError, UsageError
from logagent.base.files.safe_open import MARKER, REPORT_TABLE, open_regular, read_regular
from logagent.base.records import Reason
from logagent.base.units import human_time, instant
from logagent.cleanup.plan.proposals import compile_topics
from logagent.deletion.command.requesting import (
    StoreAndCluster,
    ask,
    earlier_requests,
    place_options,
    progress_document,
    say_how_it_ends,
    show_progress,
    state_of,
    topics_of_cluster,
)
from logagent.deletion.controller.deletion_plan import plan_directories, plan_topics
from logagent.deletion.controller.deletions import Deletions
from logagent.deletion.controller.topic_deletion_manager import Sightings
from logagent.deletion.store.answers import Answer, TopicsPlanDoc
from logagent.deletion.store.requests import Filed, RequestedDirectory, checked, moment
from logagent.store.signing import generate
from logagent.verdict.rules import ORPHAN_REASONS

ROUND_SECONDS = 5.0
KINDS = ("orphan", "stray")
MAX_ROWS = 10_000_000


def directory_id_of(row: Mapping[str, str]) -> str:
    """The stable id of a report's row, as `--id` takes it: the report's own if it has one."""
    if row.get("id"):
        return row["id"]
    parts = [row.get(name) or "" for name in ("cluster_id", "node_id", "log_dir", "name", "topic_id")]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows to take: every given condition must hold."""

    topic: re.Pattern[str] | None = None
    cluster: str | None = None
    hosts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    larger: int = 0
    kinds: tuple[str, ...] = ("orphan", "stray")
    ids: tuple[str, ...] = ()
    window: str | None = None

    def takes(self, row: Mapping[str, str], kind: str) -> bool:
        return (
            kind in self.kinds
            and (not self.ids or directory_id_of(row) in self.ids)
            and (self.cluster is None or row["cluster_id"] == self.cluster)
            and (not self.hosts or row["host"] in self.hosts or row["node_id"] in self.hosts)
            and (self.window is None or row.get("window") == self.window)
            and (not self.reasons or row.get("reason") in self.reasons)
            and int(row["allocated"] or 0) > self.larger - 1
            and (self.topic is None or (bool(row["topic"]) and self.topic.fullmatch(row["topic"]) is not None))
        )


@dataclass(slots=True)
class Chosen:
    """The rows chosen from a report; `unusable` lists those that cannot be requested, and why."""

    directories: dict[str, list[RequestedDirectory]] = field(default_factory=dict)
    """By cluster id."""
    clusters: set[str] = field(default_factory=set)
    unusable: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What was named and is not chosen, and why."""
    known_ids: set[str] = field(default_factory=set)
    """The ids of all rows that `--id` takes, chosen or not."""
    found_ids: set[str] = field(default_factory=set)
    dirs_on_host: dict[tuple[str, int], int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """Every cluster, host and node id that the report names."""


def choose(report: Path, choice: RowFilter) -> Chosen:
    """Read a report's `orphans` and `leftovers`. Raises UsageError if `report` is not a report, or names no such
    host, cluster or row; UnreadableError for an invalid table (which never counts as empty)."""
    folder = _folder(report)
    chosen = Chosen()
    kinds: tuple[tuple[str, Literal["orphan", "stray"]], ...] = (("orphans", "orphan"), ("leftovers", "stray"))
    for table, kind in kinds:
        with _sound(folder / f"{table}.csv") as rows:
            for row in rows:
                chosen.named |= {row["cluster_id"], row.get("host") or "", row["node_id"]}
                if table == "leftovers" and row.get("kind") != "stray":
                    continue
                if choice.ids:
                    chosen.known_ids.add(directory_id_of(row))
                if choice.takes(row, kind):
                    _take(row, kind, chosen)
    with _sound(folder / "usage_hosts.csv") as rows:
        for row in rows:
            chosen.named |= {row["cluster_id"], row.get("host") or "", row["node_id"]}
            if row["cluster_id"] in chosen.clusters:
                chosen.dirs_on_host[row["cluster_id"], int(row["node_id"])] = int(row["dirs"] or 0)
    for option, names in (("--host", choice.hosts), ("--cluster", (choice.cluster,) if choice.cluster else ())):
        unknown = [name for name in names if name not in chosen.named]
        if unknown:
            raise UsageError(f"{option} {', '.join(unknown)}: the report does not name it", hint="see its usage_hosts")
    unknown_ids = sorted(set(choice.ids) - chosen.known_ids)
    if unknown_ids:
        raise UsageError(
            f"--id {', '.join(unknown_ids)}: the report has no such row that can be requested",
            hint="it may be of another report: copy the command again from the newest page",
        )
    missing = sorted(set(choice.ids) - chosen.found_ids)
    chosen.left_out += [(f"--id {one}", "another option excludes it") for one in missing]
    return chosen


def _take(row: Mapping[str, str], kind: Literal["orphan", "stray"], chosen: Chosen) -> None:
    chosen.clusters.add(row["cluster_id"])
    chosen.found_ids.add(directory_id_of(row))
    where = f"{row['log_dir']}/{row['name']} of node {row['node_id']}"
    unusable = chosen.unusable.setdefault(row["cluster_id"], [])
    topic = row["topic"] or classify(row["name"]).topic
    if not re.fullmatch(records.ID_SHAPE, row["topic_id"] or ""):
        unusable.append((where, "it has no topic id: only its host can decide on it (logagent cleanup)"))
    elif not topic or not row["partition"]:
        unusable.append((where, "its name does not tell its topic"))
    elif not row.get("inode"):
        why = "the report does not carry its inode: it, or the agent there, is of an earlier version"
        unusable.append((where, why))
    else:
        numbers = {"node_id": row["node_id"], "partition": row["partition"], "bytes": row["allocated"] or 0,
                   "inode": row["inode"]}  # fmt: skip
        if row.get("end_offset"):
            numbers["end_offset"] = row["end_offset"]
        names = {name: row[name] for name in ("log_dir", "name", "topic_id")}
        if row.get("directory_id"):
            names["directory_id"] = row["directory_id"]
        try:
            values = {**names, "topic": topic, "kind": kind, **{name: int(text) for name, text in numbers.items()}}
            chosen.directories.setdefault(row["cluster_id"], []).append(checked(RequestedDirectory, values))
        except ValueError as error:
            unusable.append((where, f"the report's row cannot be used: {error}"))


def _folder(report: Path) -> Path:
    for folder in (report, report / "latest"):
        if (folder / "report.json").is_file():
            return folder
    with suppress(OSError, LogAgentError, UnicodeError):
        newest = read_regular(report / "latest", MARKER).decode("utf-8").strip()
        if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", newest) and (report / newest / "report.json").is_file():
            return report / newest
    raise UsageError(f"{report} has no fleet report", hint="create one with logagent fleet report --out DIR")


@contextmanager
def _sound(path: Path) -> Iterator[Iterator[dict[str, str]]]:
    """The rows of a table. Raises UnreadableError if the file or one of its rows is invalid."""
    try:
        with open(open_regular(path, REPORT_TABLE), newline="", encoding="utf-8", errors="surrogateescape") as file:
            yield islice(csv.DictReader(file), MAX_ROWS)
            if next(file, None) is not None:
                raise UnreadableError(f"{path} has more than {MAX_ROWS} rows")
    except (OSError, csv.Error, UnicodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"{path} cannot be read: {error or type(error).__name__}") from error


def topic_regex(text: str) -> re.Pattern[str]:
    try:
        return compile_topics(text)
    except re.error as error:
        raise UsageError(
            f"--topic {text!r} is not a regular expression: {error}", hint="it must match whole names"
        ) from error


def seconds(text: str, option: str = "--timeout") -> float:
    if text.strip() == "0":
        return 0.0
    try:
        return timedelta(milliseconds=parse_duration(text)).total_seconds()
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 5s") from error


def pause(text: str) -> float:
    """Seconds between two rounds."""
    found = seconds(text, "--interval")
    if found == 0:
        raise UsageError(f"--interval {text}: that is no interval", hint="--interval 5s")
    return found


def size(text: str | None) -> int:
    """At least one byte: 0, of a script's variable perhaps, would select everything."""
    try:
        found = 0 if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--larger: {error}", hint="--larger 1GiB") from error
    if text is not None and found == 0:
        raise UsageError(f"--larger {text} selects everything", hint="leave it out if that is meant")
    return found


@click.group()
def topics() -> None:
    """Delete topics and leftover directories on every host of the fleet, until every copy is gone.

    The plan is shown first; nothing happens without --execute. Agents carry it out where orders.accept = true.
    """


def _read(parse: Callable[[Any], Any], absent: Any = None) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that reads an option's value; `absent` if it is not given."""
    return lambda context, option, given: parse(given) if given else absent


@dataclass(frozen=True, slots=True)
class Asked:
    """Whether to request the deletion, of what, and how long to wait for it (seconds)."""

    include_internal: bool
    execute: bool
    approve: tuple[str, ...]
    timeout: float


_acting = options(
    click.option("--include-internal", is_flag=True, help="Include internal topics, all that begin with '_'."),
    click.option("--execute", is_flag=True, help="Request the deletion; without this the plan is only shown."),
    or_dry_run,
    click.option(
        "--approve",
        multiple=True,
        metavar="ID:WORD,…",
        help="Approve exactly this plan (within 24 h): only-copy, limit, no-retention, each by its word.",
    ),
    click.option(
        "--timeout",
        default="3m",
        show_default=True,
        metavar="TIME",
        callback=_read(seconds),
        help="Wait this long for it to finish; 0 returns as soon as it is requested.",
    ),
)


@topics.command()
@click.option("--topic", required=True, metavar="REGEX", help="Topics whose whole name matches.")
@_acting
@place_options
@gathered("asked", Asked)
@common
def delete(call: Call, topic: str, asked: Asked, **place: Any) -> None:
    """Delete existing topics, by topic id, and remove every replica from its disk."""
    opened = StoreAndCluster(call, **place)
    pattern = topic_regex(topic)
    deletions = opened.deletions(signing=asked.execute)
    now = earlier_requests(deletions)
    plan = plan_topics(
        pattern,
        topics_of_cluster(opened, deletions),
        deletions.setting.control.cluster_id,
        include_internal=asked.include_internal,
        open_requests=now.open,
        lately=now.lately,
        named=topic,
    )
    document = ask(call, opened, plan, execute=asked.execute, approve=asked.approve, timeout=asked.timeout)
    if call.json:
        dump(document)


def _ids(given: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for text in given for word in text.split(","))
    if not all(words):
        raise UsageError("--id: one of the ids is empty", hint="a row without an id cannot be requested: leave it out")
    return words


@topics.command()
@click.option("--report", required=True, metavar="DIR", help="A fleet report, or what `fleet report --out` was given.")
@click.option("--topic", metavar="REGEX", callback=_read(topic_regex), help="Only topics whose whole name matches.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Only this host or node id (repeatable).")
@click.option(
    "--reason",
    "reasons",
    multiple=True,
    type=click.Choice([reason.value for reason in ORPHAN_REASONS]),
    help="Only orphans for this reason (repeatable).",
)
@click.option(
    "--larger", metavar="SIZE", callback=_read(size, 0), help="Only directories of at least this size (1GiB)."
)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS, help="Only this kind.")
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    callback=_read(_ids, ()),
    help="Exactly these rows (the page copies them).",
)
@click.option(
    "--window", type=click.Choice(("now", "restart")), help="Only what the report can free now, or at the next start."
)
@click.option("--no-retention", is_flag=True, help="Remove strays at once (never only copies).")
@_acting
@place_options
@gathered("choice", RowFilter)
@gathered("asked", Asked)
@common
def purge(call: Call, report: str, choice: RowFilter, no_retention: bool, asked: Asked, **place: Any) -> None:
    """Quarantine orphans of a fleet report, and remove strays, on the hosts that have them: in every cluster that the
    selected rows are of, or in the one that --cluster names."""
    chosen = choose(Path(report), replace(choice, cluster=place["cluster_id"]))
    for what, why in chosen.left_out:
        call.say(f"topics: {what} is left out: {why}")
    if not chosen.clusters:
        call.say("no row of the report was selected: nothing to do")
    plans: list[TopicsPlanDoc] = []
    try:
        for cluster in sorted(chosen.clusters):
            opened = StoreAndCluster(call, **{**place, "cluster_id": cluster})
            deletions = opened.deletions(signing=asked.execute)
            now, directories = earlier_requests(deletions), chosen.directories.get(cluster, [])
            plan = plan_directories(
                directories,
                cluster,
                _copies(call, deletions, {d.topic_id: d.topic for d in directories}),
                dirs_on_host={node: count for (its, node), count in chosen.dirs_on_host.items() if its == cluster},
                open_requests=now.open,
                lately=now.lately,
                include_internal=asked.include_internal,
                no_retention=no_retention,
                unusable=tuple((what, Reason(why)) for what, why in chosen.unusable.get(cluster, ())),
            )
            shown = ask(call, opened, plan, execute=asked.execute, approve=asked.approve, timeout=asked.timeout)
            plans.append(shown)
    finally:
        if call.json and (plans or not chosen.clusters):
            dump({"schema": "logagent.topics-plans/1", "at": instant(datetime.now(UTC)), "plans": plans})


def _copies(call: Call, deletions: Deletions, topics: dict[str, str]) -> Mapping[tuple[str, int], Collection[int]]:
    """The copies that would be left; none, and it is said why, if the cluster cannot be asked."""
    try:
        return deletions.reader.copies(topics)
    except (ConfigError, ServiceUnreachable, UnreadableError) as error:
        hint = f" ({error.hint})" if error.hint else ""
        call.say(f"topics: which brokers are in sync is not known, so each is an only copy: {error}{hint}")
        return {}


@topics.command()
@click.argument("topic", required=False)
@click.option("--watch", is_flag=True, help="Refresh every few seconds until nothing is open (Ctrl-C stops).")
@click.option("--interval", default="5s", show_default=True, metavar="TIME", help="How often --watch refreshes.")
@place_options
@common
def status(call: Call, topic: str | None, watch: bool, interval: str, **place: Any) -> None:
    """Show requests, replicas by state, the hosts still missing and why, and the bytes freed."""
    rest, opened = max(pause(interval), 0.5), StoreAndCluster(call, **place)
    opened.check_cluster()
    shown, deletions = False, opened.deletions(signing=False)
    while True:
        try:
            document = progress_document(deletions.reader.read(), deletions, topic=topic)
            if topic is not None and not document["requests"]:
                raise UsageError(f"no request names the topic {topic}", hint="without TOPIC every request is shown")
        except ServiceUnreachable as error:  # what passes does not end a watch that has shown something
            if not shown:
                raise
            call.say(f"topics: {error}; trying again")
            time.sleep(rest)
            continue
        if call.json:
            dump(document)
        else:
            if watch and call.color:
                click.clear()
            show_progress(call, document)
        shown = watch
        sys.stdout.flush()  # whoever reads a pipe sees each look when it was made
        if not watch or not any(r["state"] in ("open", "deleting", "on-hold") for r in document["requests"]):
            return
        time.sleep(rest)


@topics.command()
@click.argument("request_id")
@place_options
@common
def cancel(call: Call, request_id: str, **place: Any) -> None:
    """Cancel a request. What was done stays done; the output says what `restore` can give back and what nothing can."""
    deletions = StoreAndCluster(call, **place).deletions(signing=True)
    seen = deletions.reader.read()
    filed = _named(seen, request_id)
    state = state_of(seen, deletions, filed.request_id)
    if filed.outcome is not None or (state.is_over and state.state != "done"):
        hint = "on each host `logagent restore` gives back what is still set aside" if state.state == "done" else None
        raise UsageError(f"request {filed.request_id} is {state.state} already", hint=hint)
    counts = deletions.cancel(filed)
    seen = deletions.reader.read()
    if counts.decision == "delete":
        call.say(
            f"too late for the topics: they were to be deleted since {human_time(moment(counts.at))};"
            " hosts that have not acted yet stop"
        )
    else:
        call.say(f"request {filed.request_id} is {counts.decision}")
    for line in _what_is_gone([a for (number, _), a in seen.answers.items() if number == filed.request_id]):
        call.say(line)
    if call.json:
        dump(progress_document(seen, deletions, filed.request_id))


def _named(seen: Sightings, given: str) -> Filed:
    """The request with this id, or with one that begins so."""
    found = [f for number, f in seen.filed.items() if number.startswith(given)] if len(given) >= 8 else []
    if len(found) != 1:
        known = ", ".join(n for n, f in seen.filed.items() if not f.is_over) or "none is open"
        raise UsageError(f"there is no request {given}", hint=f"open requests: {known}")
    return found[0]


def _what_is_gone(answers: list[Answer]) -> list[str]:
    """What hosts did before: what `restore` can give back, and what nothing can."""
    kept = sorted({a.node_id for a in answers for d in a.directories if d.result == "quarantined"}
                  | {a.node_id for a in answers for t in a.topics if t.strays_left})  # fmt: skip
    gone = sorted({a.node_id for a in answers for d in a.directories if d.result == "removed"})
    lines = []
    if kept:
        lines.append(f"on nodes {', '.join(map(str, kept))} `logagent restore` gives back what is still quarantined")
    if gone:
        lines.append(f"on nodes {', '.join(map(str, gone))} directories were removed and cannot be restored")
    return lines or ["no host says that it has quarantined or removed anything"]


@topics.command()
@click.option("--once", is_flag=True, help="Do what can be done now and exit.")
@click.option("--interval", metavar="TIME", help="Run until stopped, with a round every TIME.")
@place_options
@common
def run(call: Call, once: bool, interval: str | None, **place: Any) -> None:
    """Carry out open requests until nothing is left. Any number of these may run, anywhere."""
    if once and interval is not None:
        raise UsageError("--once and --interval are mutually exclusive", hint="leave out one of the two")
    rest = pause(interval) if interval is not None else ROUND_SECONDS
    opened = StoreAndCluster(call, **place)
    if interval is None:  # a service may be set up before the first host of its cluster has published
        opened.check_cluster()
    deletions = opened.deletions(signing=True)
    was_open: set[str] | None = None
    try:
        while True:
            try:
                was_open = _say_states(call, deletions, deletions.round(), was_open or set())
                if interval is None and (not was_open or once):
                    break
            except (ServiceUnreachable, ConfigError) as error:
                if interval is None or (was_open is None and isinstance(error, ConfigError)):
                    raise
                call.say(f"topics: {error}; the next round tries again")
            time.sleep(rest)
    finally:
        deletions.stop()
    if was_open:
        for number in sorted(was_open):
            why = deletions.waits.get(number, "`logagent topics status` shows what is missing")
            call.say(f"topics: request {number} is still open: {why}")
        call.record_status(Exit.REFUSED)


def _say_states(call: Call, deletions: Deletions, seen: Sightings, was_open: set[str]) -> set[str]:
    """Say what the requests that were open have come to; those that are open now."""
    states = {number: state_of(seen, deletions, number) for number in sorted(seen.filed)}
    for number, state in states.items():
        if not state.is_over:
            call.detail(f"topics: request {number} is {state.state}: {deletions.waits.get(number, state.why)}")
        elif number in was_open and state.state == "done":
            call.say(f"topics: request {number} is done")
        elif number in was_open or number in deletions.closed:
            say_how_it_ends(call, number, state, deletions)
    return {number for number, state in states.items() if not state.is_over}


@topics.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key-id", metavar="ID", help="The key's id in orders.keys (default: a random one).")
@common
def keygen(call: Call, file: Path, key_id: str | None) -> None:
    """Create a key that signs orders: the private half goes to FILE (0600), the public line to stdout."""
    try:
        key = generate(key_id or f"ops-{secrets.token_hex(4)}", file)
    except FileExistsError:
        raise UsageError(f"{file} exists already; keys are never overwritten", hint="name another file") from None
    except OSError as error:
        hint = "name a file in a folder that exists and that you may write to"
        raise LogAgentError(f"{file} cannot be written: {error.strerror or error}", hint=hint) from error
    with said_on_stderr(call.say, f"{file} has the private key; its public line: {key.public()}"):
        if call.json:
            names = {"key_id": key.key_id, "public_key": key.public(), "private_key_file": str(file)}
            dump({"schema": "logagent.key/1", **names})
        else:
            click.echo(key.public())
            call.say("add this line to orders.keys of every agent, and set orders.accept = true there")
