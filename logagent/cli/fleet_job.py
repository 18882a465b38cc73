"""One run of the fleet job for `logagent fleet`: its Spark session, its progress and its summary on the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from logagent.cli.fleet_options import conf_of
from logagent.cli.render import human_bytes, visible
from logagent.fleet.extra import need_pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logagent.fleet.tables.store import Store


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

    ours = not running()
    shown = options["verbose"] or sys.stderr.isatty()
    spark = build_session(master=options["master"], conf=conf, progress=sys.stderr.isatty(), small=small)
    try:
        with explained("the fleet job failed", verbose=options["verbose"]):
            yield Opened.open(spark, store), (tell if shown else _silent)
    finally:
        if ours:
            spark.stop()


def has_little_to_ingest(store: str) -> bool:
    from logagent.fleet.jvm import is_small_landing

    return "://" not in store and is_small_landing(store.removeprefix("file:"))


def has_little_to_report(store: str) -> bool:
    from logagent.fleet.jvm import is_small_report

    return "://" not in store and is_small_report(store.removeprefix("file:"))


def tell(message: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    click.echo(visible(message)[:width], err=True)


def _silent(message: str) -> None:
    del message


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
