"""One run of the fleet job for `logagent fleet`: its Spark session, its progress and its summary on the terminal.

The options of `logagent fleet`, and the parsing of their values. `submit.py` has the same options, without click.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager
from datetime import date
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logagent.base.console.render import human_bytes, visible
from logagent.base.errors import ConfigError, UsageError
from logagent.fleet.job_options import (
    OPTIONS,
    parse_age,
    parse_keep,
    parse_keys,
    parse_names,
    parse_nodes,
    parse_servers,
    parse_share,
)

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
    "--bootstrap-servers": (parse_servers, "{0!r} cannot be read", "write it as ID=HOST:PORT,HOST:PORT;ID=HOST:PORT"),
    "--commit": (_number, "{1!r} is not a number", "report.json of a report names its commit"),
    "--order-keys": (parse_keys, "{2}", None),
    "--keep-landing": (parse_keep, "{2}", "write 3d, or off"),
    "--max-snapshot-age": (parse_age, "{2}", None),
    "--keep": (parse_keep, "{2}", "write 90d, or off"),
    "--require-hosts": (parse_share, "{2}", None),
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
    click.echo(f"{content['date']}: {hosts['reporting']} hosts reporting, {hosts['unknown_total']} unknown")
    click.echo(f"  used by logs      {human_bytes(sums['allocated'])} (file sizes: {human_bytes(sums['bytes'])})")
    undecided = content["tables"]["undecided"]["rows"]
    more = f"; {undecided} more directories undecided" if undecided else ""
    click.echo(f"  orphans           {sums['orphans']} ({human_bytes(sums['orphan_bytes'])}){more}")
    left = sum(row["replicas"] for row in content["answers"]["replicas"]["not_compared"])
    for name in ("missing_replicas", "duplicates", "leftovers"):
        more = f" ({left} more could not be compared)" if left and name == "missing_replicas" else ""
        click.echo(f"  {name.replace('_', ' '):<17} {sums[name]}{more}")
    for warning in content["warnings"]:
        click.echo(f"warning: {visible(warning)}", err=True)
    click.echo(f"page: {place}/index.html")
