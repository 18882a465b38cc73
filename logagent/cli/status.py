"""`logagent status`: what the running daemon says of itself."""

from __future__ import annotations

import os

import click

from logagent.agent.status_socket import ask_status
from logagent.cli.options import Call, common
from logagent.cli.render import dump
from logagent.host.state_dir import default_state_dir


@click.command()
@common
def status(call: Call) -> None:
    """Ask the daemon that uses this state dir: its log dirs, its queue, its last cycles, and what comes next."""
    document = ask_status(call.state_dir if call.state_dir is not None else default_state_dir(os.environ))
    dump(document)
