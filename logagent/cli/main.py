"""The entry point: finds the command, runs it, and turns every error into a message and a documented exit status."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

import click

from logagent import __version__
from logagent.cli.render import visible
from logagent.errors import ConfigError, Exit, LogAgentError

# Command → (module, attribute, one line of help). Modules are imported when their command is asked for, so that
# `logagent --version` and `logagent queue` load nothing they do not need.
COMMANDS = {
    "scan": ("scan", "scan", "Show every log dir and every directory in it."),
    "queue": ("queue", "queue", "Show what is marked for deletion, and when it falls due."),
    "cleanup": ("cleanup", "cleanup", "Remove what is due (only a plan, unless --execute)."),
    "delete": ("delete", "delete", "Mark partitions for deletion, as LogManager.asyncDelete does."),
    "restore": ("restore", "restore", "Give marked and stray directories their names back."),
    "history": ("history", "history", "Show the journal: what was done, by whom, and what came of it."),
    "prestart": ("prestart", "prestart", "Rename what is due between a broker's stop and its start."),
    "run": ("run", "run", "Run as a daemon: watch, clean up when due, keep the delete queue."),
    "status": ("status", "status", "Ask the running daemon how it is."),
    "check": ("check", "check", "Say what would make this broker refuse to start, and how its log dirs are."),
    "doctor": ("doctor", "doctor", "Say what was found on this host, what does not work yet, and the line to change."),
    "assignments": ("assignments", "assignments", "Show or export which replicas the cluster has."),
    "explain": ("explain", "explain", "Say what Kafka reads in a directory name."),
    "config": ("config", "config", "Check or show the configuration."),
    "schema": ("schema", "schema", "Print the JSON Schema of a document."),
    "demo": ("demo", "demo", "Show it all on a temporary host made of real broker disks."),
    "fleet": ("fleet", "fleet", "Disk usage and orphans across every host (needs logagent[fleet])."),
}

_EXIT_HELP = """\b
Exit status:
  0   done, or the plan was made
  1   something failed
  2   wrong usage
  3   --execute: done, but a guard refused something
  4   the plan needs approval (--approve)
  5   a log dir concerned is offline
  6   check: the broker would not start
  7   halted: all log dirs are offline
  69  a service that is needed cannot be reached
  78  configuration is wrong
"""


class _Commands(click.Group):
    """A group whose commands are imported one by one, when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(f"logagent.cli.commands.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(cls=_Commands, epilog=_EXIT_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="logagent")
def cli() -> None:
    """Find, set aside and delete Kafka partition directories without hurting the broker they belong to."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit status."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. Messages go to stderr."""
    try:
        # Not `cli.main`: it would answer a closed pipe and Ctrl-C in its own way.
        with cli.make_context("logagent", list(sys.argv[1:] if arguments is None else arguments)) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return int(Exit.OK)
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        _show_usage(e)
        return int(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("logagent: interrupted; what was done is in the journal (logagent history)", err=True)
        return int(Exit.FAILED)
    except BrokenPipeError:
        _forget_stdout()
        return int(Exit.OK)
    except LogAgentError as e:
        _show(e)
        return int(e.exit_status)
    except OSError as e:
        # Of a log dir or the journal it would be one of ours. What is left is the machine: a full disk below stdout, …
        where = f": {e.filename}" if e.filename is not None else ""
        click.echo(visible(f"logagent: {e.strerror or e}{where}"), err=True)
        _forget_stdout()
        return int(Exit.FAILED)


def _forget_stdout() -> None:
    from logagent.cli.options import forget_stdout

    forget_stdout()


def _show_usage(error: click.ClickException) -> None:
    """As click does it, but for what a shell's `*` may have put among the arguments."""
    said = io.StringIO()
    error.show(said)
    for line in said.getvalue().splitlines():
        click.echo(visible(line), err=True)


def _show(error: LogAgentError) -> None:
    if isinstance(error, ConfigError) and error.problems:
        click.echo("logagent: the configuration is wrong", err=True)
        for problem in error.problems:
            click.echo(f"  {visible(problem)}", err=True)
    else:
        click.echo(visible(f"logagent: {error}"), err=True)
    if error.hint:
        click.echo(f"  hint: {visible(error.hint)}", err=True)
