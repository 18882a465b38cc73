"""`logagent setup`: the drop-ins that fit the service to this host's broker, and the service itself."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext

import click

from logagent.base.config.config import DEFAULT_CONFIG
from logagent.base.console.options import or_dry_run
from logagent.base.console.render import visible
from logagent.base.console.streams import whoever_reads
from logagent.base.errors import NotPermitted
from logagent.base.linux.state_dir import make_as_root
from logagent.service.setup.setup import Setup, plan_setup, start, verify, write


@click.command()
@click.argument("name", required=False)
@click.option("--execute", is_flag=True, help="Write it, then enable and start the service (only shown otherwise).")
@or_dry_run
@click.option("--prestart", is_flag=True, help="Let the broker's unit run logagent prestart before each start, too.")
@click.option("-y", "--yes", is_flag=True, help="With --execute on a terminal: do not ask.")
def setup(name: str | None, execute: bool, prestart: bool, yes: bool) -> None:
    """Show (with --execute: write) the service's broker, user and writable paths, then start it.

    With NAME, the drop-in is for logagent@NAME.service and /etc/logagent/NAME.toml: one of several brokers on a host.

    The broker is the one of kafka.config, else the only one that a unit starts or that is configured in a usual place;
    that one is set as kafka.config in /etc/logagent/logagent.toml, for the service and for every command.
    The user is that of the broker's unit, else the owner of the log dirs, never root. Only files are trusted that root
    (of server.properties: root or the owner of the log dirs) owns, in directories that nobody else can write; running
    processes are not. Needs root. Run it again when log.dirs or the user has changed: logagent doctor says so.

    With --execute the service is enabled and started, or started again if anything changed. Where systemd does not run
    (an image that is being built, a container), that is left to whoever boots the host. The broker is never restarted:
    what --prestart adds to its unit counts from its next start.

    \b
    Exit status:
      0   shown; or written, verified by systemd-analyze, and started
      1   not trusted, not written, or the service did not start
      2   wrong usage
      77  not root
      78  the configuration is wrong, or it is not clear which broker is meant
    """
    if os.geteuid() != 0:
        raise NotPermitted("setup needs root", hint="sudo logagent setup")
    made = plan_setup(name, prestart=prestart)
    with whoever_reads(_say) if execute else nullcontext():
        _show(made)
    unasked = verify(made)
    _say("systemd-analyze verify has no complaints" if unasked is None else f"not verified: {unasked}")
    changed = not made.service.is_in_place or made.names_it is not None
    complete = not changed and (made.prestart is None or made.prestart.is_in_place)
    if not execute:
        _say("it is already in place" if complete else "nothing was written yet; --execute writes it")
        return
    if sys.stdin.isatty() and not yes and not click.confirm(f"Write this and start {made.service.unit}?", err=True):
        _say("nothing was written")
        return
    _carry_out(made, complete=complete, changed=changed)


def _carry_out(made: Setup, *, complete: bool, changed: bool) -> None:
    write(made)
    # The broker's user may need its journal before the service has ever started (`logagent prestart`).
    make_as_root(made.state_dir, (made.uid, made.gid))
    _say("it was already in place" if complete else "written")
    if made.prestart is not None:
        _say(f"{made.prestart.unit} runs logagent prestart from its next start on")
    by_hand = f"systemctl daemon-reload && systemctl enable --now {made.service.unit}"
    _say(start(made, changed=changed) or f"systemd does not run here; once it does: {by_hand}")


def _show(made: Setup) -> None:
    for line in made.left_out:
        _say(f"left out: {line}")
    for drop_in in filter(None, (made.service, made.prestart)):
        click.echo(f"# {drop_in.place}")
        click.echo("\n".join(visible(line) for line in drop_in.text.splitlines()))
    if made.names_it is not None:
        click.echo(f"# {DEFAULT_CONFIG}: kafka.config\nconfig = {json.dumps(visible(made.broker), ensure_ascii=False)}")


def _say(message: str) -> None:
    click.echo(visible(message), err=True)
