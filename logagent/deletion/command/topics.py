"""`logagent topics`: deletions across the fleet, carried out on every host (Kafka's TopicDeletionManager)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from logagent.base.config.settings import parse_duration, parse_size
from logagent.base.console.options import Call, common, gathered, options, or_dry_run
from logagent.base.console.render import dump
from logagent.base.console.streams import said_on_stderr
from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError, UsageError
from logagent.cleanup.plan.proposals import compile_topics
from logagent.deletion.command.asking import ask, ask_nothing, standing, topics_of_cluster
from logagent.deletion.command.opening import Place, place_options
from logagent.deletion.command.progress import follow
from logagent.deletion.command.report import Choice, choose
from logagent.deletion.command.running import cancel as cancel_request
from logagent.deletion.command.running import run_rounds
from logagent.deletion.controller.deletion_plan import Dropped, plan_directories, plan_topics
from logagent.deletion.controller.deletions import Deletions
from logagent.store.signing import PrivateKey, generate
from logagent.verdict.rules import ORPHAN_REASONS


def topic_regex(text: str) -> re.Pattern[str]:
    try:
        return compile_topics(text)
    except re.error as error:
        raise UsageError(f"--topic {text!r} is not a regular expression: {error}") from error


def seconds(text: str) -> float:
    if text.strip() == "0":
        return 0.0
    try:
        return timedelta(milliseconds=parse_duration(text)).total_seconds()
    except ValueError as error:
        raise UsageError(str(error)) from error


def pause(text: str) -> float:
    """Seconds between two rounds."""
    found = seconds(text)
    if found == 0:
        raise UsageError(f"--interval {text}: that is no pause at all", hint="--interval 5s")
    return found


def size(text: str | None) -> int:
    """At least one byte: 0, of a script's variable perhaps, would select everything."""
    try:
        found = 0 if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--larger: {error}") from error
    if text is not None and found == 0:
        raise UsageError(f"--larger {text} selects everything", hint="leave it out if that is meant")
    return found


ROUND_SECONDS = 5.0
KINDS = ("orphan", "stray")


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
    opened = Place(call, **place)
    pattern = topic_regex(topic)
    deletions = opened.deletions(signing=asked.execute)
    now = standing(deletions)
    plan = plan_topics(
        pattern,
        topics_of_cluster(opened, deletions),
        deletions.setting.control.cluster_id,
        include_internal=asked.include_internal,
        open_requests=now.open,
        lately=now.lately,
        named=topic,
    )
    ask(call, opened, plan, execute=asked.execute, approve=asked.approve, timeout=asked.timeout)


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
@gathered("choice", Choice)
@gathered("asked", Asked)
@common
def purge(call: Call, report: str, choice: Choice, no_retention: bool, asked: Asked, **place: Any) -> None:
    """Quarantine orphans of a fleet report, and remove strays, on the hosts that have them: in every cluster that the
    selected rows are of, or in the one that --cluster names."""
    chosen = choose(Path(report), replace(choice, cluster=place["cluster_id"]))
    for what, why in chosen.left_out:
        call.say(f"topics: {what} is left out: {why}")
    if not chosen.clusters:
        call.say("no row of the report was selected")
        ask_nothing(call, place["cluster_id"])
        return
    for cluster in sorted(chosen.clusters):
        opened = Place(call, **{**place, "cluster_id": cluster})
        deletions = opened.deletions(signing=asked.execute)
        now, directories = standing(deletions), chosen.directories.get(cluster, [])
        plan = plan_directories(
            directories,
            cluster,
            _copies(call, deletions, {d.topic_id: d.topic for d in directories}),
            dirs_on_host={node: count for (its, node), count in chosen.dirs_on_host.items() if its == cluster},
            open_requests=now.open,
            lately=now.lately,
            include_internal=asked.include_internal,
            no_retention=no_retention,
            unusable=tuple(Dropped(what, why) for what, why in chosen.unusable.get(cluster, ())),
        )
        ask(call, opened, plan, execute=asked.execute, approve=asked.approve, timeout=asked.timeout)


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
    rest, opened = max(pause(interval), 0.5), Place(call, **place)
    opened.check_cluster()
    follow(call, opened, topic, watch=watch, pause=rest)


@topics.command()
@click.argument("request_id")
@place_options
@common
def cancel(call: Call, request_id: str, **place: Any) -> None:
    """Cancel a request. What was done stays done; the output says what `restore` can give back and what nothing can."""
    cancel_request(call, request_id, place)


@topics.command()
@click.option("--once", is_flag=True, help="Do what can be done now and exit.")
@click.option("--interval", metavar="TIME", help="Run until stopped, with a round every TIME.")
@place_options
@common
def run(call: Call, once: bool, interval: str | None, **place: Any) -> None:
    """Carry out open requests until nothing is left. Any number of these may run, anywhere."""
    if once and interval is not None:
        raise UsageError("--once and --interval are mutually exclusive")
    rest = pause(interval) if interval is not None else ROUND_SECONDS
    opened = Place(call, **place)
    if interval is None:  # a service may be set up before the first host of its cluster has published
        opened.check_cluster()
    run_rounds(call, opened, once=once, interval=interval, pause=rest)


@topics.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key-id", metavar="ID", help="The key's id in orders.keys (default: a random one).")
@common
def keygen(call: Call, file: Path, key_id: str | None) -> None:
    """Create a key that signs orders: the private half goes to FILE (0600), the public line to stdout."""
    try:
        key = generate(key_id or f"ops-{secrets.token_hex(4)}", file)
    except FileExistsError:
        raise UsageError(f"{file} exists already; keys are never overwritten") from None
    except OSError as error:
        raise LogAgentError(f"{file} cannot be written: {error.strerror or error}") from error
    with said_on_stderr(call.say, f"{file} has the private key; its public line: {key.public()}"):
        _show_key(call, key, file)


def _show_key(call: Call, key: PrivateKey, file: Path) -> None:
    if call.json:
        names = {"key_id": key.key_id, "public_key": key.public(), "private_key_file": str(file)}
        dump({"schema": "logagent.key/1", **names})
    else:
        click.echo(key.public())
        call.say("add this line to orders.keys of every agent, and set orders.accept = true there")
