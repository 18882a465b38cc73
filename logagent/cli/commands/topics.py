"""`logagent topics`: deletions across the fleet, seen through on every host (Kafka's TopicDeletionManager)."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from logagent.cli.options import Call, common
from logagent.errors import Exit, LogAgentError, ServiceUnreachable, UsageError
from logagent.model.planning.proposals import compile_topics
from logagent.settings import parse_duration, parse_size

F = TypeVar("F", bound=Callable[..., Any])
ROUND_SECONDS = 5.0
REASONS = ("topic-absent", "topic-recreated", "not-a-replica")


@click.group()
def topics() -> None:
    """Delete topics and leftover directories on every host of the fleet, and see it through.

    The plan is shown first; nothing happens without --execute. Agents obey where orders.accept = true.
    """


def _places(command: F) -> F:
    from logagent.cli.deletions.opening import place_options

    return place_options(command)


def _acting(command: F) -> F:
    for option in reversed(
        [
            click.option("--include-internal", is_flag=True, help="Topics whose names begin with '_' too."),
            click.option("--execute", is_flag=True, help="Ask for it; without this it is only a plan."),
            click.option("--approve", metavar="PLAN_ID", help="Allow exactly this plan (within 24 h)."),
            click.option(
                "--timeout",
                default="1m",
                show_default=True,
                metavar="TIME",
                help="See it through for so long; 0 answers at once: asked, not done.",
            ),
        ]
    ):
        command = option(command)
    return command


@topics.command()
@click.option("--topic", required=True, metavar="REGEX", help="Topics whose whole name matches.")
@_acting
@_places
@common
def delete(
    call: Call, topic: str, include_internal: bool, execute: bool, approve: str | None, timeout: str, **place: Any
) -> None:
    """Delete living topics, by topic id, and see every replica off its disk."""
    from logagent.cli.deletions.asking import ask, living_topics, open_requests
    from logagent.cli.deletions.opening import Place
    from logagent.controller.deletion_plan import plan_topics

    opened = Place(call, **place)
    pattern, allowed = _regex(topic), _seconds(timeout)
    rounds = opened.rounds(signing=execute)
    rounds.look()
    plan = plan_topics(
        pattern,
        living_topics(opened, rounds),
        rounds.setting.control.cluster_id,
        include_internal=include_internal,
        open_requests=open_requests(rounds),
        named=topic,
    )
    ask(call, opened, plan, execute=execute, approve=approve, timeout=allowed)


@topics.command()
@click.option("--report", required=True, metavar="DIR", help="A fleet report, or what `fleet report --out` was given.")
@click.option("--topic", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Only this host or node id (repeatable).")
@click.option("--reason", "reasons", multiple=True, type=click.Choice(REASONS), help="Only these orphans (repeatable).")
@click.option("--larger", metavar="SIZE", help="Only directories of at least this size (1GiB).")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(["orphan", "stray"]), help="Only this kind.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Exactly these rows (the page copies them).")
@click.option("--no-retention", is_flag=True, help="Mark orphans -delete, not -stray (never only copies).")
@_acting
@_places
@common
def purge(
    call: Call,
    report: str,
    topic: str | None,
    hosts: tuple[str, ...],
    reasons: tuple[str, ...],
    larger: str | None,
    kinds: tuple[str, ...],
    ids: tuple[str, ...],
    no_retention: bool,
    include_internal: bool,
    execute: bool,
    approve: str | None,
    timeout: str,
    **place: Any,
) -> None:
    """Set aside orphans of a fleet report, and remove strays, on the hosts that have them."""
    from logagent.cli.deletions.asking import ask, open_requests
    from logagent.cli.deletions.opening import Place
    from logagent.cli.deletions.report import Choice, choose, only_cluster
    from logagent.controller.deletion_plan import Dropped, plan_directories
    from logagent.controller.only_copies import copies_in

    words = [word for text in ids for word in text.split(",") if word]
    choice = Choice(
        _regex(topic) if topic is not None else None, place["cluster_id"], hosts, reasons,
        _size(larger), kinds or ("orphan", "stray"), tuple(words),
    )  # fmt: skip
    allowed = _seconds(timeout)
    chosen = choose(Path(report), choice)
    if not chosen.directories and not chosen.unusable:
        call.say("no row of the report was chosen; nothing to do")
        return
    place["cluster_id"] = only_cluster(chosen)
    opened = Place(call, **place)
    rounds = opened.rounds(signing=execute)
    rounds.look()
    plan = plan_directories(
        chosen.directories,
        rounds.setting.control.cluster_id,
        copies_in(rounds.rows({d.topic_id for d in chosen.directories})),
        dirs_on_host=chosen.dirs_on_host,
        open_requests=open_requests(rounds),
        include_internal=include_internal,
        no_retention=no_retention,
        unusable=tuple(Dropped(what, why) for what, why in chosen.unusable),
    )
    ask(call, opened, plan, execute=execute, approve=approve, timeout=allowed)


@topics.command()
@click.argument("topic", required=False)
@click.option("--watch", is_flag=True, help="Look again every few seconds until nothing is open (Ctrl-C ends it).")
@click.option("--interval", default="5s", show_default=True, metavar="TIME", help="How often --watch looks.")
@_places
@common
def status(call: Call, topic: str | None, watch: bool, interval: str, **place: Any) -> None:
    """Show requests, replicas by state, the hosts that are missing and why, and the bytes that came back."""
    from logagent.cli.deletions.opening import Place
    from logagent.cli.deletions.progress import progress_document, show_progress
    from logagent.cli.render import dump

    opened = Place(call, **place)
    pause = max(_seconds(interval), 0.5)
    while True:
        rounds = opened.rounds(signing=False)
        rounds.look()
        document = progress_document(rounds, topic)
        if call.json:
            dump(document)
        else:
            if watch and call.color:
                click.clear()
            show_progress(call, document)
        if not watch or not any(r["state"] in ("open", "on-hold") for r in document["requests"]):
            return
        time.sleep(pause)


@topics.command()
@click.argument("request_id")
@_places
@common
def cancel(call: Call, request_id: str, **place: Any) -> None:
    """End a request. What was done stays done; it says what `restore` gives back."""
    from logagent.cli.deletions.asking import close

    close(call, request_id, "cancelled", place)


@topics.command()
@click.argument("request_id")
@_places
@common
def resume(call: Call, request_id: str, **place: Any) -> None:
    """Let a request go on that has expired, or that a store put back to an older state holds up."""
    from logagent.cli.deletions.asking import close

    close(call, request_id, "resumed", place)


@topics.command()
@click.option("--once", is_flag=True, help="One round, whatever is left.")
@click.option("--interval", metavar="TIME", help="For ever, with a round every TIME.")
@_places
@common
def run(call: Call, once: bool, interval: str | None, **place: Any) -> None:
    """See open requests through: rounds until nothing is left."""
    from logagent.cli.deletions.opening import Place
    from logagent.store.epochs import EpochLost

    if once and interval is not None:
        raise UsageError("--once and --interval exclude each other")
    opened = Place(call, **place)
    pause = _seconds(interval) if interval is not None else ROUND_SECONDS
    rounds = opened.rounds(signing=True)
    rounds.start()
    while True:
        try:
            rounds.round()
        except ServiceUnreachable as error:
            if once or interval is None:
                raise
            call.say(f"topics: {error}; the next round tries again")
        except EpochLost as error:
            if interval is None:
                raise
            call.say(f"topics: {error}; taking over again in {interval}")
            time.sleep(pause)
            rounds = opened.rounds(signing=True)
            rounds.start()
            continue
        left = len(rounds.context.topics_to_be_deleted)
        call.detail(f"topics: epoch {rounds.epoch}, {left} topics left")
        if once or (interval is None and not left):
            break
        time.sleep(pause)
    if rounds.context.topics_to_be_deleted:
        call.record_status(Exit.REFUSED)


@topics.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key-id", metavar="ID", help="How the key is called in orders.keys (default: a random one).")
@common
def keygen(call: Call, file: Path, key_id: str | None) -> None:
    """Make a key that signs orders: the private half goes to FILE (0600), the public line to stdout."""
    from logagent.cli.render import dump
    from logagent.store.signing import generate

    try:
        key = generate(key_id or f"ops-{secrets.token_hex(4)}", file)
    except FileExistsError:
        raise UsageError(f"{file} exists already; a key is never overwritten") from None
    except OSError as error:
        raise LogAgentError(f"{file} cannot be written: {error.strerror or error}") from error
    if call.json:
        dump(
            {
                "schema": "logagent.key/1",
                "key_id": key.key_id,
                "public_key": key.public(),
                "private_key_file": str(file),
            }
        )
    else:
        click.echo(key.public())
        call.say("put this line into orders.keys of every agent, and set orders.accept = true there")


def _regex(text: str) -> re.Pattern[str]:
    try:
        return compile_topics(text)
    except re.error as error:
        raise UsageError(f"--topic {text!r} is not a regular expression: {error}") from error


def _seconds(text: str) -> float:
    if text.strip() == "0":
        return 0.0
    try:
        return timedelta(milliseconds=parse_duration(text)).total_seconds()
    except ValueError as error:
        raise UsageError(str(error)) from error


def _size(text: str | None) -> int:
    try:
        return 0 if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--larger: {error}") from error
