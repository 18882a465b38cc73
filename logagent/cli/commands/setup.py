"""`logagent setup`: the drop-in that fits the service to this host's broker."""

from __future__ import annotations

import json
import os

import click

from logagent.agent.config import DEFAULT_CONFIG
from logagent.agent.setup.setup import existing_drop_in, plan_setup, verify, write
from logagent.cli.render import visible
from logagent.errors import NotPermitted
from logagent.host.state.state_dir import make_as_root


@click.command()
@click.argument("name", required=False)
@click.option("--execute", is_flag=True, help="Write it (only shown otherwise).")
def setup(name: str | None, execute: bool) -> None:
    """Show, or write, what sets which broker logagent.service is for, its user, and where it may write.

    With NAME, the drop-in is for logagent@NAME.service and /etc/logagent/NAME.toml: one of several brokers on a host.

    The broker is the one of kafka.config, else the only one that a unit starts or that is configured in a usual place;
    that one is set as kafka.config in /etc/logagent/logagent.toml, for the service and for every command.
    The user is that of the broker's unit, else the owner of the log dirs, never root. Only files are trusted that root
    (of server.properties: root or the owner of the log dirs) owns, in directories that nobody else can write; running
    processes are not. Needs root. Run it again when log.dirs or the user has changed: logagent doctor says so.

    \b
    Exit status:
      0   shown, or written and verified by systemd-analyze
      1   something was not trusted, or could not be written
      2   wrong usage
      77  not root
      78  the configuration is wrong, or it is not clear which broker is meant
    """
    if os.geteuid() != 0:
        raise NotPermitted("setup needs root", hint="sudo logagent setup")
    made = plan_setup(name)
    for line in made.left_out:
        _say(f"left out: {line}")
    click.echo(f"# {made.place}")
    click.echo("\n".join(visible(line) for line in made.text.splitlines()))
    if made.names_it is not None:
        click.echo(f"# {DEFAULT_CONFIG}: kafka.config\nconfig = {json.dumps(visible(made.broker), ensure_ascii=False)}")
    unasked = verify(made)
    _say("systemd-analyze verify has no complaints" if unasked is None else f"not verified: {unasked}")
    same = existing_drop_in(made.place) == made.text and made.names_it is None
    restart = f"systemctl daemon-reload && systemctl restart {made.service}"
    if not execute:
        _say("it is already in place" if same else "nothing was written yet; --execute writes it")
        return
    write(made)
    # The broker's user may need its journal before the service has ever started (`logagent prestart`).
    make_as_root(made.state_dir, (made.uid, made.gid))
    _say(f"it was already in place; if the service has not read it: {restart}" if same else f"written; now: {restart}")


def _say(message: str) -> None:
    click.echo(visible(message), err=True)
