"""`logagent demo`: the whole story on a temporary host made from a real broker's disk."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import chdir

import click

from logagent.cli import run
from logagent.demo.host import SHELL, lay_out, make_folder
from logagent.demo.stage import Stage, own_environment
from logagent.demo.story import run_story


@click.command()
@click.option("--dir", "wanted", metavar="DIR", help="Where to create the host (a new or empty directory).")
@click.option("--keep/--no-keep", default=True, help="Keep the directory afterwards (the default), or remove it.")
@click.option("--only-host", is_flag=True, help="Only create the host, and leave the commands to you.")
@click.option("--no-color", is_flag=True, help="No colors (same as NO_COLOR).")
def demo(wanted: str | None, keep: bool, only_host: bool, no_color: bool) -> None:
    """Run scan, plan, delete, restore, queue and removal on a temporary host, and show what each changes on disk; then
    one request that the agents of three hosts carry out.

    The host is the disk of a real Kafka 3.9.1 broker that comes with this package. Everything printed was done by the
    real commands and checked: the exit status is 0 only if every step did what it should. It needs no broker, no root
    and no network, and touches nothing outside the directory. With --only-host the host is as the broker left it, for
    the tutorial of the first day.
    """
    started = time.monotonic()
    color = not no_color and "NO_COLOR" not in os.environ and sys.stdout.isatty()
    folder = make_folder(wanted)
    lay_out(folder)
    if only_host:
        click.echo(f"A Kafka host to try things on: cd {folder} && . ./{SHELL}")
        click.echo("From then on, logagent means this host in that shell. Remove the directory when you are done.")
        return
    stage = Stage(folder, run, color)
    try:
        with own_environment(color=color), chdir(folder):
            stage.explain(f"A Kafka host to try things on, in {folder} (all commands below run there):")
            click.echo(f"\n$ cd {folder}")
            run_story(stage)
    finally:
        if not keep:
            shutil.rmtree(folder)
    seconds = time.monotonic() - started
    click.echo(f"\n{stage.checks} checks in {seconds:.1f} s, {len(stage.failures)} failed.")
    if keep:
        click.echo(
            f"Look around in {folder}: log dirs d1 and d2, the journal in state/, more hosts in fleet/."
            " Remove it when you are done."
        )
    if stage.failures:
        for failure in stage.failures:
            click.echo(f"failed: {failure}", err=True)
        click.get_current_context().exit(1)
