"""One run of the fleet job for `logagent fleet`: its Spark session, its progress and its summary on the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from logagent.cli.fleet_options import conf_of
from logagent.cli.render import human_bytes, visible
from logagent.fleet.extra import need_pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logagent.fleet.tables.store import Store


_OTHER_JVM = {"spark.driver.extraJavaOptions", "spark.driver.extraClassPath"}
"""Settings whose classes other runs could not use. Java's options are one setting: a user's own replace ours."""


@contextmanager
def run_job(
    store: str, options: dict[str, Any], *, small: bool = False
) -> Iterator[tuple[Store, Callable[[str], None]]]:
    """A session and an opened store; Spark's errors become ours. The session is stopped if it was created here.

    `small`: there are few directories. The second run of a user dumps the class archive, once everything is printed.
    """
    conf = conf_of(options["conf"])
    need_pyspark()
    from logagent.fleet.class_archive import dumped_by_second_run
    from logagent.fleet.spark_session import build_session, end_jvm, explained, running, starts_jvm
    from logagent.fleet.tables.store import Store as Opened

    ours = not running()
    shown = options["verbose"] or sys.stderr.isatty()
    dumps = starts_jvm() and not _OTHER_JVM & conf.keys()
    with dumped_by_second_run(end_jvm) if dumps else nullcontext() as dump:
        spark = build_session(master=options["master"], conf=conf, progress=sys.stderr.isatty(), small=small, dump=dump)
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
