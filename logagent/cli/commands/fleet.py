"""`logagent fleet`: the Spark job. pyspark is imported when a command runs, never before."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logagent.cli.render import dump, human_bytes, visible
from logagent.errors import ConfigError, LogAgentError, UsageError
from logagent.fleet.extra import need_pyspark
from logagent.fleet.job_options import OPTIONS, parse_age, parse_keys, parse_names, parse_nodes
from logagent.store.shared import init_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logagent.fleet.tables.store import Store

MOST_DIGITS = 9
Command = TypeVar("Command", bound=Callable[..., Any])


def spark_options(command: Command) -> Command:
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


def options_of(name: str) -> Callable[[Command], Command]:
    """The options that `submit.py` has too, and those of Spark."""

    def add(command: Command) -> Command:
        command = spark_options(command)
        for o in reversed(OPTIONS[name]):
            # Even None would count as a default: click treats a required option with a default as given.
            default: dict[str, Any] = {} if o.default is None else {"default": o.default, "show_default": True}
            kind = {"is_flag": True} if o.is_flag else {"metavar": o.metavar, **default}
            command = click.option(o.flag, o.name, help=o.help, required=o.required, **kind)(command)
        return command

    return add


def conf_of(pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if not pair.partition("=")[0].strip() or "=" not in pair]
    if wrong:
        raise ConfigError("invalid --conf", problems=tuple(f"--conf {pair}: not K=V" for pair in wrong))
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise ValueError(text)
    return int(text)


_READ: dict[str, tuple[Callable[[str], Any], str, str | None]] = {
    "--date": (date.fromisoformat, "{0!r} is not a date", "write it as YYYY-MM-DD"),
    "--assignments-from": (parse_nodes, "{0!r} is not a list of node ids", "write it as 1,2,3"),
    "--cluster-name": (parse_names, "{0!r} cannot be read", "write it as ID=NAME,ID=NAME"),
    "--commit": (_number, "{1!r} is not a number", "report.json of a report names its commit"),
    "--order-keys": (parse_keys, "{2}", None),
    "--keep-landing": (parse_age, "{2}", None),
    "--max-snapshot-age": (parse_age, "{2}", None),
}
"""How each value is read, and what is said of one that cannot be: {0} is the text, {1} its beginning, {2} the error."""


def value_of(option: str, text: str | None) -> Any:
    """The value of an option; None if it was not given."""
    if text is None:
        return None
    read, says, hint = _READ[option]
    try:
        return read(text)
    except ValueError as error:
        raise UsageError(f"{option}: {says.format(text, text[:40], error)}", hint=hint) from error


@contextmanager
def run_job(
    store: str, options: dict[str, Any], *, small: bool = False
) -> Iterator[tuple[Store, Callable[[str], None]]]:
    """A session and an opened store; Spark's errors become ours. The session is stopped if it was created here.

    `small`: there are few directories.
    """
    conf = conf_of(options["conf"])
    need_pyspark()
    from logagent.fleet.spark_session import build_session, explained, running
    from logagent.fleet.tables.store import Store as Opened

    own_session = not running()
    shown = options["verbose"] or sys.stderr.isatty()
    spark = build_session(master=options["master"], conf=conf, progress=sys.stderr.isatty(), small=small)
    try:
        with explained("the fleet job failed", verbose=options["verbose"]):
            yield Opened.open(spark, store), (print_progress if shown else lambda _: None)
    finally:
        if own_session:
            spark.stop()


def has_little(store: str, *, to_report: bool = False) -> bool:
    """Whether a job over this store is so small that a quick start counts for more than quick work."""
    need_pyspark()
    from logagent.fleet.spark_session import is_small_landing, is_small_report

    is_small = is_small_report if to_report else is_small_landing
    return "://" not in store and is_small(store.removeprefix("file:"))


def print_progress(message: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    click.echo(visible(message)[:width], err=True)


def show_summary(content: dict[str, Any], place: str) -> None:
    """What a person wants to know first, and where to find the rest."""
    sums, hosts = content["totals"], content["hosts"]
    click.echo(f"{content['date']}: {hosts['reporting']} hosts reporting, {hosts['unknown_total']} unknown")
    click.echo(f"  used by logs      {human_bytes(sums['bytes'])} ({human_bytes(sums['allocated'])} allocated)")
    click.echo(f"  orphans           {sums['orphans']} ({human_bytes(sums['orphan_bytes'])})")
    for name in ("missing_replicas", "duplicates", "leftovers"):
        click.echo(f"  {name.replace('_', ' '):<17} {sums[name]}")
    for warning in content["warnings"]:
        click.echo(f"warning: {visible(warning)}", err=True)
    click.echo(f"page: {place}/index.html")


@click.group()
def fleet() -> None:
    """Disk usage and orphaned directories across all hosts, from what the agents published.

    Needs the extra `fleet` (pyspark) and Java 17 or later. Runs on local[*], or wherever --master says.
    """


@fleet.command()
@click.option(
    "--store",
    required=True,
    metavar="STORE",
    help="A directory that every host mounts, or s3://, gs:// or az://BUCKET/PREFIX.",
)
def init(store: str) -> None:
    """Mark a directory, or a prefix of an object store, as a fleet store: agents publish to nothing else.

    The mode of a directory decides who shares it: every folder in it gets the same bits (2770 with a common group, or
    1777).
    """
    try:
        made = init_store(store)
    except OSError as error:
        problem = f"{store} cannot be turned into a fleet store: {error.strerror or error}"
        hint = "mount or create the directory first" if isinstance(error, FileNotFoundError) else None
        raise LogAgentError(problem, hint=hint) from error
    click.echo(f"{store} is a fleet store" if made else f"{store} is a fleet store already")


@fleet.command()
@options_of("ingest")
def ingest(store: str, day: str | None, keep_landing: str | None, assignments_from: str | None, **spark: Any) -> None:
    """Check and compact what the agents published: landing to typed Parquet.

    Ingesting a date again gives the same rows. Files that do not match their manifest are set aside with the reason.
    """
    wanted, keep = value_of("--date", day), value_of("--keep-landing", keep_landing)
    pinned = value_of("--assignments-from", assignments_from)
    from_now = datetime.now(UTC)
    with run_job(store, spark, small=has_little(store)) as (opened, say):
        from logagent.fleet.ingest.ingest import ingest_dates, trim_landing

        done = ingest_dates(opened, wanted, say=say, pinned=pinned)
        trimmed = [] if keep is None else trim_landing(opened, (from_now - keep).date(), say=say, warn=print_progress)
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
@options_of("report")
@click.option("--brief", is_flag=True, help="Print the first screen as ten lines, for a mail or a chat.")
def report(store: str, out: str, brief: bool, **given: Any) -> None:
    """Report on the fleet: usage, orphans, missing replicas, leftovers, health, growth, one page.

    Writes index.html, report.json, and per table CSV and Parquet into DIR/<run>/; DIR/latest names the last whole one.
    A host or cluster about which too little is known is listed as unknown; nothing is concluded from its
    silence.
    """
    values = {
        "day": value_of("--date", given["day"]),
        "max_age": value_of("--max-snapshot-age", given["max_snapshot_age"]),
        "commit": value_of("--commit", given["commit"]),
        "names": value_of("--cluster-name", given["cluster_names"]) or {},
        "order_keys": value_of("--order-keys", given["order_keys"]) or _order_keys(),
        "with_partitions": given["with_partitions"],
    }
    with run_job(store, given, small=has_little(store, to_report=True)) as (opened, say):
        from logagent.fleet.job import Job
        from logagent.fleet.job import report as run

        content = run(Job(opened, out, datetime.now(UTC), say=say, **values))
        place = f"{opened.files.qualify(out)}/{content['run_id']}"
    if given["as_json"]:
        dump(content)
    elif brief:
        from logagent.fleet.page.brief import brief as lines

        click.echo(f"{lines(content)}{place}/index.html")
    else:
        show_summary(content, place)


@fleet.command()
@click.option(
    "--dir", "wanted", metavar="DIR", help="Where to create it (a new or empty directory; default: a temporary one)."
)
@click.option("--hosts", default=24, show_default=True, type=click.IntRange(3), help="Hosts in all.")
@click.option("--partitions", default=2400, show_default=True, type=click.IntRange(1), help="Partition dirs in all.")
@spark_options
def demo(wanted: str | None, hosts: int, partitions: int, **spark: Any) -> None:
    """Create a fleet with planted problems, ingest it, report on it, and print the path of the page.

    The snapshots of three clusters are made up and describe terabytes; ingest and report are the real ones.
    """
    from logagent.fleet.demo import CLUSTERS, Fleet, generate

    started = time.monotonic()
    folder = _empty_folder(wanted)
    now = datetime.now(UTC).replace(microsecond=0)
    clusters = generate(folder, Fleet(at=now, hosts=hosts, partitions=partitions))
    names = {cluster.cluster_id: name for cluster, name in zip(clusters, CLUSTERS, strict=True)}
    print_progress(f"created {hosts} hosts in {time.monotonic() - started:.1f} s: {folder}/landing")
    with run_job(str(folder), spark, small=has_little(str(folder))) as (opened, say):
        from logagent.fleet.ingest.ingest import ingest_dates
        from logagent.fleet.job import Job
        from logagent.fleet.job import report as run

        ingest_dates(opened, None, say=say)
        content = run(Job(opened, f"{folder}/report", now, say=say, names=names))
    if spark["as_json"]:
        dump(content)
    else:
        show_summary(content, f"{folder}/report/{content['run_id']}")


@fleet.command()
@click.argument("folder", metavar="DIR")
def archive(folder: str) -> None:
    """Write the files that plain spark-submit needs (standalone, YARN, Kubernetes) to DIR, and print the commands."""
    need_pyspark()
    from logagent.fleet.submit import write_archive

    packed, main_file = (quote(str(path)) for path in write_archive(Path(folder)))
    click.echo(f"spark-submit --master URL --py-files {packed} {main_file} ingest --store STORE")
    click.echo(f"spark-submit --master URL --py-files {packed} {main_file} report --store STORE --out DIR")


def _order_keys() -> tuple[str, ...]:
    """`orders.keys` of this host's configuration; empty if there is none."""
    from logagent.agent.config import load_valid_part

    try:
        return load_valid_part()[0].settings.orders.keys
    except ConfigError:
        return ()


def _empty_folder(wanted: str | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="logagent-fleet-"))
    folder = Path(wanted).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="use a new or empty directory")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
