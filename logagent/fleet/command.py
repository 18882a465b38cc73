"""`logagent fleet`: the Spark job, its options, and one run of it with its progress and its summary on the terminal.
pyspark is imported when a command runs, never before. `submit.py` has the same options, without click.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logagent.base.config.settings import is_uri
from logagent.base.console.render import dump, human_bytes, said_on_stderr, visible
from logagent.base.errors import ConfigError, LogAgentError, UsageError
from logagent.base.linux.access import user_name
from logagent.base.units import counted
from logagent.fleet.job_options import OPTIONS, READ
from logagent.store.shared import init_store
from logagent.store.tree import ANSWERS, LANDING

if TYPE_CHECKING:
    from logagent.fleet.tables.store import Store


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
        problems = tuple(f"--conf {pair}: not K=V" for pair in wrong)
        raise ConfigError("invalid --conf", problems=problems, hint="for example --conf spark.driver.memory=4g")
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}


def value_of(option: str, text: str | None) -> Any:
    """The value of an option; None if it was not given."""
    if text is None:
        return None
    named = next(o for options in OPTIONS.values() for o in options if o.flag == option)
    read, says, hint = READ[named.metavar]
    try:
        return read(text)
    except ValueError as error:
        hint = hint and hint.format(default=named.default)
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
            yield Opened.open(spark, store), (tell if shown else lambda _: None)
    finally:
        if own_session:
            spark.stop()


def need_pyspark() -> None:
    """Raises ConfigError if the extra `fleet` is not installed."""
    if find_spec("pyspark") is None:
        # Not by the name of a package: whoever owns that in an index need not be us.
        hint = "in a checkout of logagent: pip install '.[fleet]' (and Java 17 or later)"
        raise ConfigError("pyspark is not installed", hint=hint)


def has_little_to_ingest(store: str, day: date | None = None) -> bool:
    need_pyspark()
    from logagent.fleet.spark_session import is_small_landing

    return "://" not in store and is_small_landing(store.removeprefix("file:"), day)


def has_little_to_report(store: str) -> bool:
    need_pyspark()
    from logagent.fleet.spark_session import is_small_report

    return "://" not in store and is_small_report(store.removeprefix("file:"))


def tell(message: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    click.echo(visible(message)[:width], err=True)


def show_summary(content: dict[str, Any], place: str) -> None:
    """What a person wants to know first, and where to find the rest."""
    sums, hosts = content["totals"], content["hosts"]
    click.echo(f"{content['date']}: {counted(hosts['reporting'], 'host')} reporting, {hosts['unknown_total']} unknown")
    click.echo(f"  used by logs      {human_bytes(sums['allocated'])} (file sizes: {human_bytes(sums['bytes'])})")
    undecided = content["tables"]["undecided"]["rows"]
    more = f"; {counted(undecided, 'more directory')} undecided" if undecided else ""
    click.echo(f"  orphans           {sums['orphans']} ({human_bytes(sums['orphan_bytes'])}){more}")
    left = sum(row["replicas"] for row in content["answers"]["replicas"]["not_compared"])
    for name in ("missing_replicas", "duplicates", "leftovers"):
        more = f" ({left} more could not be compared)" if left and name == "missing_replicas" else ""
        click.echo(f"  {name.replace('_', ' '):<17} {sums[name]}{more}")
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

    The mode of a directory decides who shares it: every folder in it gets the same bits. One that others may write to
    becomes sticky (3770 with a common group, or 1777): nobody then renames or removes what is others'.
    """
    try:
        made = init_store(store)
    except OSError as error:
        problem = f"{store} cannot be turned into a fleet store: {error.strerror or error}"
        hint = "name a directory that you may write to"
        if isinstance(error, FileNotFoundError):
            hint = "mount or create the directory first"
            if is_uri(store):  # a prefix needs not be there, so it is the bucket
                bucket = store.split("/")[2]
                problem = f"there is no bucket {bucket}: {problem}"
                hint = (
                    f"create {bucket} first, or check its name and the region, endpoint and account of your credentials"
                )
        raise LogAgentError(problem, hint=hint) from error
    what = f"{store} is a fleet store" if made else f"{store} is a fleet store already"
    with said_on_stderr(tell, what):
        click.echo(what)
    if not is_uri(store) and not (landing := Path(store, LANDING).stat()).st_mode & 0o022:
        places = " ".join(quote(str(Path(store, name))) for name in ("", LANDING, ANSWERS))
        tell(f"its folders belong to user {user_name(landing.st_uid)}, and agents of other users cannot publish there")
        tell(f"  hint: share it with a group that all agents have: chgrp kafka {places} && chmod 3770 {places}")


@fleet.command()
@options_of("ingest")
def ingest(store: str, out: str | None, **given: Any) -> None:
    """Check and compact what the agents published: landing to typed Parquet.

    Ingesting a date again gives the same rows. Files that do not match their manifest are set aside with the reason.
    With --report, what `logagent fleet report` does follows, for half of what two commands cost.
    """
    wanted, keep = value_of("--date", given["day"]), value_of("--keep-landing", given["keep_landing"])
    pinned = value_of("--assignments-from", given["assignments_from"])
    share = value_of("--require-hosts", given["require_hosts"])
    if share is not None and out is None:
        raise UsageError("--require-hosts: there is no report without --report DIR", hint="add --report DIR")
    asked = None if out is None else _asked(given) | {"day": wanted}
    now = datetime.now(UTC)
    with run_job(store, given, small=has_little_to_ingest(store, wanted)) as (opened, say):
        from logagent.fleet.ingest.dates import ingest_dates, trim_landing

        done = ingest_dates(opened, wanted, say=say, warn=tell, pinned=pinned)
        content, place = (None, None) if out is None or asked is None else _reported(opened, out, say, asked)
        trimmed = [] if keep is None else trim_landing(opened, (now - keep).date(), say=say, warn=tell)
    done_all = f"{len(done)} dates are ingested" + ("" if place is None else f", and reported: {place}/index.html")
    with _hosts_needed(content, share), said_on_stderr(tell, done_all):
        if given["as_json"]:
            dates = [d.document() for d in done]
            document = {"schema": "logagent.fleet-ingest/1", "dates": dates, "trimmed": list(map(str, trimmed))}
            dump(document | ({} if place is None else {"report": place}))
        else:
            if not done:
                click.echo("nothing new in landing")
            for one in done:
                click.echo(
                    f"{one.date}: {counted(one.taken, 'file')} taken ({counted(one.rows, 'row')}), "
                    f"{one.superseded} older ones, {one.rejected} set aside, {one.waiting} incomplete"
                )
            for gone in trimmed:
                click.echo(f"{gone}: removed from landing")
            if content is not None and place is not None:
                show_summary(content, place)


@fleet.command()
@options_of("report")
@click.option("--brief", is_flag=True, help="Print the first screen as ten lines, for a mail or a chat.")
def report(store: str, out: str, brief: bool, **given: Any) -> None:
    """Report on the fleet: usage, orphans, missing replicas, leftovers, health, growth, one page.

    Writes index.html, report.json, and per table CSV and Parquet into DIR/<run>/; DIR/latest names the last whole one.
    A host or cluster about which too little is known is listed as unknown; nothing is concluded from its
    silence.
    """
    share = value_of("--require-hosts", given["require_hosts"])
    values = _asked(given) | {"day": value_of("--date", given["day"]), "commit": value_of("--commit", given["commit"])}
    with run_job(store, given, small=has_little_to_report(store)) as (opened, say):
        content, place = _reported(opened, out, say, values)
    with _hosts_needed(content, share), said_on_stderr(tell, f"the report is written: {place}/index.html"):
        if given["as_json"]:
            dump(content)
        elif brief:
            from logagent.fleet.page.document import brief as lines

            click.echo(f"{lines(content)}{place}/index.html")
        else:
            show_summary(content, place)


@contextmanager
def _hosts_needed(content: dict[str, Any] | None, share: float | None) -> Iterator[None]:
    """Raises `TooFewHosts` once everything was written and printed, also where nobody reads that."""
    try:
        yield
    finally:
        if content is not None:
            from logagent.fleet.job import need_hosts

            need_hosts(content, share)


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """What `ingest --report` and `report` have in common."""
    return {
        "max_age": value_of("--max-snapshot-age", given["max_snapshot_age"]),
        "names": value_of("--cluster-name", given["cluster_names"]) or {},
        "bootstrap": value_of("--bootstrap-servers", given["bootstrap_servers"]) or {},
        "order_keys": value_of("--order-keys", given["order_keys"]) or _order_keys(),
        "with_partitions": given["with_partitions"],
        "keep": value_of("--keep", given["keep"]),
    }


def _reported(opened: Store, out: str, say: Callable[[str], None], asked: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """A report, and where it is."""
    from logagent.fleet.job import Job
    from logagent.fleet.job import report as run

    content = run(Job(opened, out, datetime.now(UTC), say=say, **asked))
    return content, f"{opened.files.qualify(out)}/{content['run_id']}"


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
    tell(f"created {counted(hosts, 'host')} in {time.monotonic() - started:.1f} s: {folder}/landing")
    with run_job(str(folder), spark, small=has_little_to_ingest(str(folder))) as (opened, say):
        from logagent.fleet.ingest.dates import ingest_dates

        ingest_dates(opened, None, say=say, warn=tell)
        content, place = _reported(opened, f"{folder}/report", say, {"names": names})
    if spark["as_json"]:
        dump(content)
    else:
        show_summary(content, place)


@fleet.command()
@click.argument("folder", metavar="DIR")
def archive(folder: str) -> None:
    """Write the files that plain spark-submit needs (standalone, YARN, Kubernetes) to DIR, and print the commands."""
    need_pyspark()
    from logagent.fleet.submit import write_archive

    packed, main_file = (quote(str(path)) for path in write_archive(Path(folder)))
    with said_on_stderr(tell, f"written: {packed} and {main_file}"):
        click.echo(f"spark-submit --master URL --py-files {packed} {main_file} ingest --store STORE")
        click.echo(f"spark-submit --master URL --py-files {packed} {main_file} report --store STORE --out DIR")


def _order_keys() -> tuple[str, ...]:
    """`orders.keys` of this host's configuration; empty if there is none."""
    from logagent.base.config.config import load_valid_part

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
