"""`logagent topics`: deletions across the fleet, carried out on every host (Kafka's TopicDeletionManager)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from logagent.cli.deletions.values import seconds, size, topic_regex
from logagent.cli.options import Call, common
from logagent.errors import LogAgentError, UsageError

F = TypeVar("F", bound=Callable[..., Any])
ROUND_SECONDS = 5.0
REASONS = ("topic-absent", "topic-recreated", "not-a-replica")


@click.group()
def topics() -> None:
    """Delete topics and leftover directories on every host of the fleet, until every copy is gone.

    The plan is shown first; nothing happens without --execute. Agents carry it out where orders.accept = true.
    """


def _places(command: F) -> F:
    from logagent.cli.deletions.opening import place_options

    return place_options(command)


def _acting(command: F) -> F:
    for option in reversed(
        [
            click.option(
                "--include-internal",
                is_flag=True,
                help="Include internal topics, all that begin with '_'.",
            ),
            click.option("--execute", is_flag=True, help="Request the deletion; without this the plan is only shown."),
            click.option("--approve", metavar="PLAN_ID", help="Approve exactly this plan (within 24 h)."),
            click.option(
                "--timeout",
                default="1m",
                show_default=True,
                metavar="TIME",
                help="Wait this long for it to finish; 0 returns as soon as it is requested.",
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
    """Delete existing topics, by topic id, and remove every replica from its disk."""
    from logagent.cli.deletions.asking import ask, lately, topics_of_cluster
    from logagent.cli.deletions.opening import Place
    from logagent.controller.deletion_plan import plan_topics

    opened = Place(call, **place)
    pattern, allowed = topic_regex(topic), seconds(timeout)
    rounds = opened.rounds(signing=execute)
    rounds.look()
    plan = plan_topics(
        pattern,
        topics_of_cluster(opened, rounds),
        rounds.setting.control.cluster_id,
        include_internal=include_internal,
        open_requests=rounds.states.not_closed(),
        lately=lately(rounds),
        named=topic,
    )
    ask(call, opened, plan, execute=execute, approve=approve, timeout=allowed)


@topics.command()
@click.option("--report", required=True, metavar="DIR", help="A fleet report, or what `fleet report --out` was given.")
@click.option("--topic", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Only this host or node id (repeatable).")
@click.option(
    "--reason",
    "reasons",
    multiple=True,
    type=click.Choice(REASONS),
    help="Only orphans for this reason (repeatable).",
)
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
    from logagent.cli.deletions.asking import ask, ask_nothing, lately
    from logagent.cli.deletions.opening import Place
    from logagent.cli.deletions.report import Choice, choose, only_cluster
    from logagent.controller.deletion_plan import Dropped, plan_directories

    words = [word.strip() for text in ids for word in text.split(",")]
    if not all(words):
        raise UsageError("--id: one of the ids is empty", hint="a row without an id cannot be requested: leave it out")
    choice = Choice(
        topic_regex(topic) if topic is not None else None, place["cluster_id"], hosts, reasons,
        size(larger), kinds or ("orphan", "stray"), tuple(words),
    )  # fmt: skip
    allowed = seconds(timeout)
    chosen = choose(Path(report), choice)
    if not chosen.directories and not chosen.unusable:
        call.say("no row of the report was selected")
        ask_nothing(call, place["cluster_id"])
        return
    place["cluster_id"] = only_cluster(chosen)
    opened = Place(call, **place)
    rounds = opened.rounds(signing=execute)
    rounds.look()
    plan = plan_directories(
        chosen.directories,
        rounds.setting.control.cluster_id,
        rounds.copies({d.topic_id: d.topic for d in chosen.directories}),
        dirs_on_host=chosen.dirs_on_host,
        open_requests=rounds.states.not_closed(),
        lately=lately(rounds),
        include_internal=include_internal,
        no_retention=no_retention,
        unusable=tuple(Dropped(what, why) for what, why in chosen.unusable),
    )
    ask(call, opened, plan, execute=execute, approve=approve, timeout=allowed)


@topics.command()
@click.argument("topic", required=False)
@click.option("--watch", is_flag=True, help="Refresh every few seconds until nothing is open (Ctrl-C stops).")
@click.option("--interval", default="5s", show_default=True, metavar="TIME", help="How often --watch refreshes.")
@_places
@common
def status(call: Call, topic: str | None, watch: bool, interval: str, **place: Any) -> None:
    """Show requests, replicas by state, the hosts still missing and why, and the bytes freed."""
    from logagent.cli.deletions.opening import Place
    from logagent.cli.deletions.progress import follow

    opened = Place(call, **place)
    opened.check_cluster()
    follow(call, opened, topic, watch=watch, pause=max(seconds(interval), 0.5))


@topics.command()
@click.argument("request_id")
@_places
@common
def cancel(call: Call, request_id: str, **place: Any) -> None:
    """Cancel a request. What was done stays done; the output says what `restore` can bring back."""
    from logagent.cli.deletions.asking import close

    close(call, request_id, "cancelled", place)


@topics.command()
@click.argument("request_id")
@_places
@common
def resume(call: Call, request_id: str, **place: Any) -> None:
    """Resume a request that has expired, or that is held up because the store was restored to an older state."""
    from logagent.cli.deletions.asking import close

    close(call, request_id, "resumed", place)


@topics.command()
@click.option("--once", is_flag=True, help="Do one round and exit.")
@click.option("--interval", metavar="TIME", help="Run until stopped, with a round every TIME.")
@_places
@common
def run(call: Call, once: bool, interval: str | None, **place: Any) -> None:
    """Carry out open requests: rounds until nothing is left."""
    from logagent.cli.deletions.opening import Place
    from logagent.cli.deletions.round_loop import run_rounds

    if once and interval is not None:
        raise UsageError("--once and --interval are mutually exclusive")
    opened = Place(call, **place)
    if interval is None:  # a service may be set up before the first host of its cluster has published
        opened.check_cluster()
    pause = seconds(interval) if interval is not None else ROUND_SECONDS
    run_rounds(call, opened, once=once, interval=interval, pause=pause)


@topics.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key-id", metavar="ID", help="The key's id in orders.keys (default: a random one).")
@common
def keygen(call: Call, file: Path, key_id: str | None) -> None:
    """Create a key that signs orders: the private half goes to FILE (0600), the public line to stdout."""
    from logagent.cli.render import dump
    from logagent.store.signing import generate

    try:
        key = generate(key_id or f"ops-{secrets.token_hex(4)}", file)
    except FileExistsError:
        raise UsageError(f"{file} exists already; keys are never overwritten") from None
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
        call.say("add this line to orders.keys of every agent, and set orders.accept = true there")
