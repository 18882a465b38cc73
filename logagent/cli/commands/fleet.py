"""`logagent fleet`: the Spark job. pyspark is imported when a command runs, never before."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logagent.cli.render import dump, human_bytes, visible
from logagent.errors import ConfigError, LogAgentError, UsageError
from logagent.fleet.options import OPTIONS, parse_age, parse_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logagent.fleet.tables.store import Store

LARGEST_ON_DISK = 5000
"""Directories up to which the demo makes real disks."""
Command = TypeVar("Command", bound=Callable[..., Any])


def _spark_options(command: Command) -> Command:
    options = [
        click.option("--master", metavar="URL", help="Spark master (default: local[*], or what spark-submit set)."),
        click.option("--conf", "conf", multiple=True, metavar="K=V", help="Spark setting (repeatable)."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
        click.option(
            "-v", "--verbose", is_flag=True, help="Report every step on stderr, and Spark's own error messages."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _options(name: str) -> Callable[[Command], Command]:
    """The options that `submit.py` has too, and those of Spark."""

    def add(command: Command) -> Command:
        command = _spark_options(command)
        for o in reversed(OPTIONS[name]):
            # A default of None would be one: click takes a required option with a default for given.
            default: dict[str, Any] = {} if o.default is None else {"default": o.default, "show_default": True}
            kind = {"is_flag": True} if o.is_flag else {"metavar": o.metavar, **default}
            command = click.option(o.flag, o.name, help=o.help, required=o.required, **kind)(command)
        return command

    return add


@click.group()
def fleet() -> None:
    """Disk usage and orphaned directories across all hosts, from what the agents published.

    Needs the extra `fleet` (pyspark) and Java 17 or later. Runs on local[*], or wherever --master says.
    """


@fleet.command()
@click.option("--store", required=True, metavar="PATH", help="A directory that every host mounts.")
def init(store: str) -> None:
    """Mark a directory as a fleet store: agents publish to nothing else, least of all to an empty mount point.

    Its mode decides who shares it: every folder in it gets the same bits (2770 with a common group, or 1777).
    """
    from logagent.store.tree import init_store

    try:
        made = init_store(store)
    except OSError as error:
        raise LogAgentError(f"{store} cannot be made a fleet store: {error.strerror or error}") from error
    click.echo(f"{store} is a fleet store" if made else f"{store} is a fleet store already")


@fleet.command()
@_options("ingest")
def ingest(store: str, day: str | None, keep_landing: str | None, assignments_from: str | None, **spark: Any) -> None:
    """Check and compact what the agents published: landing to typed Parquet.

    Ingesting a date again gives the same rows. Files that do not match their manifest are set aside with the reason.
    """
    wanted = None if day is None else _date(day)
    keep = None if keep_landing is None else _age("--keep-landing", keep_landing)
    pinned = None if assignments_from is None else _nodes(assignments_from)
    from_now = datetime.now(UTC)
    with _job(store, spark, _rows_to_ingest(store)) as (opened, say):
        from logagent.fleet.ingest.dates import ingest_dates, trim_landing

        done = ingest_dates(opened, wanted, say=say, pinned=pinned)
        trimmed = [] if keep is None else trim_landing(opened, (from_now - keep).date(), say=say)
    if spark["as_json"]:
        dump(
            {
                "schema": "logagent.fleet-ingest/1",
                "dates": [d.document() for d in done],
                "trimmed": list(map(str, trimmed)),
            }
        )
        return
    if not done:
        click.echo("nothing new in landing")
    for one in done:
        click.echo(
            f"{one.date}: {one.taken} files taken ({one.rows} rows), {one.superseded} older ones, "
            f"{one.rejected} set aside, {one.waiting} incomplete"
        )
    for gone in trimmed:
        click.echo(f"{gone}: removed from landing")


@fleet.command()
@_options("report")
def report(
    store: str,
    out: str,
    day: str | None,
    max_snapshot_age: str,
    with_partitions: bool,
    commit: str | None,
    **spark: Any,
) -> None:
    """Report on the fleet: usage, orphans, missing replicas, leftovers, health, growth, one page.

    Writes index.html, report.json, and per table CSV and Parquet into DIR/<run>/; DIR/latest names the last whole one.
    A host or cluster about which too little is known is listed as unknown, and no conclusions are drawn from its
    silence.
    """
    wanted = None if day is None else _date(day)
    max_age = _age("--max-snapshot-age", max_snapshot_age)
    number = None if commit is None else _number("--commit", commit)
    with _job(store, spark, _rows_to_report(store)) as (opened, say):
        from logagent.fleet.job import Job
        from logagent.fleet.job import report as run

        content = run(Job(opened, out, datetime.now(UTC), wanted, max_age, say, with_partitions, number))
        place = f"{opened.files.qualify(out)}/{content['run_id']}"
    if spark["as_json"]:
        dump(content)
    else:
        _summary(content, place)


@fleet.command()
@click.option(
    "--dir", "wanted", metavar="DIR", help="Where to create it (a new or empty directory; default: a temporary one)."
)
@click.option("--clusters", default=3, show_default=True, type=click.IntRange(1), help="Kafka clusters.")
@click.option("--hosts", default=24, show_default=True, type=click.IntRange(1), help="Hosts in all.")
@click.option("--partitions", default=2400, show_default=True, type=click.IntRange(1), help="Partition dirs in all.")
@click.option("--days", default=3, show_default=True, type=click.IntRange(1), help="Dates with snapshots.")
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same fleet.")
@click.option("--workers", default=os.cpu_count() or 1, type=click.IntRange(1), help="Processes to use.")
@click.option("--disks/--no-disks", default=None, help="Create real disks and scan them (default: up to 5000 dirs).")
@click.option("--only-make", is_flag=True, help="Create the fleet and its truth.json; do not ingest or report.")
@_spark_options
def demo(wanted: str | None, disks: bool | None, only_make: bool, workers: int, days: int, **options: Any) -> None:
    """Create a fleet with planted problems, ingest it, report on it, and print where the page is.

    Small fleets are disks in Kafka's own format (see disks/), and what is published is what `logagent scan` says of
    them.
    Any size: --hosts 10000 --partitions 40000000. What was planted is written to truth.json.
    """
    if options["hosts"] < options["clusters"]:
        raise UsageError("fewer hosts than clusters")
    spark = {name: options.pop(name) for name in ("master", "conf", "as_json", "verbose")}
    from logagent.broker.exported.file import write_assignments
    from logagent.fleet.demo.generate import generate
    from logagent.fleet.demo.planted import Fleet

    began = time.monotonic()
    folder = _empty_folder(wanted)
    now = datetime.now(UTC).replace(microsecond=0)
    real = options["partitions"] <= LARGEST_ON_DISK if disks is None else disks
    generate(folder, Fleet(at=now, days=days, **options), workers=workers, disks=write_assignments if real else None)
    _say(f"created {options['hosts']} hosts in {time.monotonic() - began:.1f} s: {folder}/landing, {folder}/truth.json")
    if only_make:
        return
    with _job(str(folder), spark, options["partitions"]) as (opened, say):
        from logagent.fleet.ingest.dates import ingest_dates
        from logagent.fleet.job import Job
        from logagent.fleet.job import report as run

        ingest_dates(opened, None, say=say)
        content = run(Job(opened, f"{folder}/report", now, say=say))
    if spark["as_json"]:
        dump(content)
    else:
        _summary(content, f"{folder}/report/{content['run_id']}")


@fleet.command()
def warm() -> None:
    """Make Spark start faster on this machine, for this user: dump the classes it loads into an archive (AppCDS).

    It runs a small demo once. Without it everything works the same, and starts some seconds later.
    """
    _need_pyspark()
    from logagent.fleet.warm import warm as dump_classes

    click.echo(f"sessions of this user start from {dump_classes()}")


@fleet.command()
@click.argument("folder", metavar="DIR")
def archive(folder: str) -> None:
    """Write the files that plain spark-submit needs (standalone, YARN, Kubernetes) to DIR, and print the commands."""
    _need_pyspark()
    from logagent.fleet.submit import write_archive

    packed, main_file = write_archive(Path(folder))
    click.echo(f"spark-submit --master URL --py-files {packed} {main_file} ingest --store STORE")
    click.echo(f"spark-submit --master URL --py-files {packed} {main_file} report --store STORE --out DIR")


def _need_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "pyspark is not installed", hint="pip install 'logagent[fleet]' (and Java 17 or later)"
        ) from error


@contextmanager
def _job(store: str, options: dict[str, Any], rows: int | None = None) -> Iterator[tuple[Store, Callable[[str], None]]]:
    """A session and an opened store; Spark's errors become ours. The session is stopped if it was made here."""
    conf = _conf(options["conf"])
    _need_pyspark()
    from logagent.fleet.session import build_session, explained, running
    from logagent.fleet.tables.store import Store as Opened

    ours = not running()
    shown = options["verbose"] or sys.stderr.isatty()
    spark = build_session(master=options["master"], conf=conf, progress=sys.stderr.isatty(), rows=rows)
    try:
        with explained("the fleet job failed", verbose=options["verbose"]):
            yield Opened.open(spark, store), (_say if shown else _silent)
    finally:
        if ours:
            spark.stop()


def _rows_to_ingest(store: str) -> int | None:
    from logagent.fleet.launch import rows_to_ingest

    return None if "://" in store else rows_to_ingest(store.removeprefix("file:"))


def _rows_to_report(store: str) -> int | None:
    from logagent.fleet.launch import rows_to_report

    return None if "://" in store else rows_to_report(store.removeprefix("file:"))


def _conf(pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if not pair.partition("=")[0].strip() or "=" not in pair]
    if wrong:
        raise ConfigError("invalid --conf", problems=tuple(f"--conf {pair}: not K=V" for pair in wrong))
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--date: {text!r} is not a date", hint="write it as YYYY-MM-DD") from error


def _nodes(text: str) -> frozenset[int]:
    try:
        return parse_nodes(text)
    except ValueError as error:
        raise UsageError(f"--assignments-from: {text!r} is not a list of node ids", hint="write it as 1,2,3") from error


def _number(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{option}: {text!r} is not a number", hint="report.json of a report names its commit")
    return int(text)


def _age(option: str, text: str) -> timedelta:
    try:
        return parse_age(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _empty_folder(wanted: str | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="logagent-fleet-"))
    folder = Path(wanted).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="use a new or empty directory")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _say(message: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    click.echo(visible(message)[:width], err=True)


def _silent(message: str) -> None:
    del message


def _summary(content: dict[str, Any], place: str) -> None:
    """What a person wants to know first, and where the rest is."""
    sums, hosts = content["totals"], content["hosts"]
    click.echo(f"{content['date']}: {hosts['reporting']} hosts reporting, {hosts['unknown_total']} unknown")
    click.echo(f"  used by logs      {human_bytes(sums['bytes'])} ({human_bytes(sums['allocated'])} allocated)")
    click.echo(f"  orphans           {sums['orphans']} ({human_bytes(sums['orphan_bytes'])})")
    for name in ("missing_replicas", "duplicates", "leftovers"):
        click.echo(f"  {name.replace('_', ' '):<17} {sums[name]}")
    for warning in content["warnings"]:
        click.echo(f"warning: {visible(warning)}", err=True)
    click.echo(f"page: {place}/index.html")
