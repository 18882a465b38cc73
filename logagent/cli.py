"""The entry point: finds the command, runs it, and turns every error into a message and a documented exit status."""

from __future__ import annotations

import errno
import importlib
import io
import os
import pkgutil
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from logagent import __version__
from logagent.base.console import options
from logagent.base.console.options import RUN_AS_BROKER
from logagent.base.console.render import did_you_mean, forget_stdout, secure_streams, visible
from logagent.base.errors import ConfigError, Exit, JournalError, LogAgentError, NotPermitted, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# By what somebody wants to do: command → (module below logagent, attribute, one line of help).
# A module is imported when its command runs, so that `logagent --version` and `logagent queue` load only what they
# need.
GROUPS = {
    "See what is there": {
        "scan": ("advice.scan.command", "scan", "Show every log dir and the directories in it."),
        "queue": ("cleanup.commands.queue", "queue", "Show what is marked for deletion and when it is due."),
        "check": ("advice.check.command", "check", "Show what would keep this broker from starting or cost it data."),
        "history": (
            "cleanup.commands.history",
            "history",
            "Show the journal: what was done, by whom, and the outcome.",
        ),
        "assignments": (
            "advice.assignments_command",
            "assignments",
            "Show or export the replica assignments of the cluster.",
        ),
        "explain": ("advice.explain.command", "explain", "Explain why bytes are still on disk, and when they go."),
    },
    "Delete and restore (a plan only, without --execute)": {
        "cleanup": ("cleanup.commands.cleanup", "cleanup", "Remove what is due."),
        "delete": (
            "cleanup.commands.delete",
            "delete",
            "Mark partitions for deletion, as LogManager.asyncDelete does.",
        ),
        "restore": ("cleanup.restore.command", "restore", "Rename marked and stray directories back."),
        "rescue": ("cleanup.rescue.command", "rescue", "Free space on a full disk, safest first."),
    },
    "Run it as a service": {
        "setup": ("service.setup.command", "setup", "Set up and start the service for this host's broker (root)."),
        "run": ("service.daemon.command", "run", "Run the daemon: watch log dirs, remove what is due."),
        "prestart": ("service.prestart.command", "prestart", "Rename what is due while the broker restarts."),
        "status": ("service.status.command", "status", "Show the state of the running daemon."),
        "doctor": ("service.doctor.command", "doctor", "Check logagent's setup on this host; show what to change."),
        "config": ("service.config_command", "config", "Check or show the configuration."),
    },
    "Across the fleet": {
        "topics": ("deletion.command.topics", "topics", "Delete topics and leftovers across the fleet."),
        "fleet": ("fleet.command", "fleet", "Disk usage and orphans on all hosts (needs pyspark)."),
    },
    "Try and build on it": {
        "demo": ("demo.command", "demo", "Run a demo on a temporary host made from real broker disks."),
        "schema": ("schemas.command", "schema", "Print the JSON Schema of a document."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def examples() -> dict[str, str]:
    """What the help of each command ends with, by its words (`assignments export`). A test runs every line."""
    text = (pkgutil.get_data("logagent", "base/console/examples.txt") or b"").decode()
    return {name: lines.strip() for name, lines in re.findall(r"^\[(.+)\]\n((?:[^\[\n].*\n)+)", text, re.MULTILINE)}


def _with_examples(command: click.Command, name: str, of: Mapping[str, str]) -> None:
    command.epilog = "\b\nExamples:\n" + textwrap.indent(of[name], "  ")
    for inner, below in command.commands.items() if isinstance(command, click.Group) else ():
        _with_examples(below, f"{name} {inner}", of)


class _Commands(click.Group):
    """A group whose commands are imported only when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"logagent.{module}"), attribute)
        assert isinstance(command, click.Command)
        words = ctx.find_root().obj
        if words is None or not {"-h", "--help"}.isdisjoint(words):
            _with_examples(command, cmd_name, examples())
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"No such command '{name}'{did_you_mean(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{wide}}", line) for name, (_, _, line) in group.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(status)), status.meaning) for status in Exit])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without importing a command for its line of help."""
        from click.shell_completion import CompletionItem

        found = [(name, line) for name, (_, _, line) in COMMANDS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=line) for name, line in found), *options]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="logagent")
def cli() -> None:
    """Find, set aside and delete orphaned Kafka partition directories without harming the broker."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    secure_streams()
    status = run(arguments)
    try:
        sys.stdout.flush()
    except OSError:
        forget_stdout()  # or Python would end with 120
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. Messages go to stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and options.COMPLETION_VARIABLE in os.environ:
        return options.complete(cli, os.environ[options.COMPLETION_VARIABLE])
    try:
        refuse_empty(words)
        # Not `cli`: it handles a closed pipe and Ctrl-C in its own way.
        with cli.make_context("logagent", list(words), obj=tuple(words)) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return int(Exit.OK)
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        # As click does it, except for names that a shell's `*` may have put among the arguments.
        usage = io.StringIO()
        e.show(usage)
        for line in usage.getvalue().splitlines():
            click.echo(visible(line), err=True)
        if isinstance(e, click.NoSuchOption) and not e.possibilities and (place := _place_of(e.option_name)):
            click.echo(f"  hint: {place}", err=True)
        return int(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("logagent: interrupted; logagent history shows what was done on this host", err=True)
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        forget_stdout()
        return int(Exit.OK)
    except LogAgentError as e:
        # A file of the broker's, or of its agent's, that this user may not read: then no other status says what to do.
        if isinstance(e, ConfigError | JournalError) and isinstance(e.__cause__, PermissionError):
            forbidden = e.__cause__.errno == errno.EPERM  # by an attribute, whoever it is
            e = NotPermitted(str(e), hint=e.hint if forbidden else RUN_AS_BROKER)
        _show(e)
        return int(e.exit_status)
    except OSError as e:
        # Errors of a log dir or the journal are LogAgentErrors. What is left is the machine's, such as a full disk
        # behind stdout.
        where = f": {e.filename}" if e.filename is not None else ""
        try:
            sys.stdout.flush()
        except OSError:
            where = " (writing to stdout)"
        click.echo(visible(f"logagent: {e.strerror or e}{where}"), err=True)
        forget_stdout()
        return int(Exit.FAILED)


def refuse_empty(words: Sequence[str]) -> None:
    """Raises UsageError for an empty argument, of whatever command and option: it is what a shell makes of a variable
    that is not set, and must never select what would be selected without it."""
    for before, word in zip(["logagent", *words], words, strict=False):
        option, given, value = word.partition("=")
        if not word.strip():
            problem = f"the argument after {before} is empty"
        elif option.startswith("--") and given and not value.strip():
            problem = f"the argument of {option} is empty"
        else:
            continue
        raise UsageError(problem, hint="an empty value never means all: leave it out, or say what is meant")


def _place_of(option: str) -> str | None:
    """Where there is what this command has no option for: a setting of that name, or other commands."""
    from logagent.base.config.config import known_settings

    key = option.lstrip("-").replace("-", "_")
    settings = sorted(section for section, its_key in known_settings() if its_key == key)
    if settings:
        variables = " or ".join(f"LOGAGENT_{section}__{key}".upper() for section in settings)
        return f"{' or '.join(f'{s}.{key}' for s in settings)} is a setting, of logagent.toml or in {variables}"
    context = click.Context(cli)
    commands = {name: command for name in COMMANDS if (command := cli.get_command(context, name)) is not None}
    for name, group in list(commands.items()):
        if isinstance(group, click.Group):
            commands |= {f"{name} {sub}": command for sub, command in group.commands.items()}
    have = [name for name, command in commands.items() if any(option in p.opts for p in command.params)]
    return f"{option} is an option of {', '.join(have)}" if have else None


def _show(error: LogAgentError) -> None:
    if isinstance(error, ConfigError) and error.problems not in ((), (str(error),)):
        click.echo("logagent: invalid configuration", err=True)
        for problem in error.problems:
            click.echo(f"  {visible(problem)}", err=True)
    else:
        click.echo(visible(f"logagent: {error}"), err=True)
    if error.hint:
        click.echo(f"  hint: {visible(error.hint)}", err=True)
