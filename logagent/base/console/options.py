"""The options that every command has, and what is derived from them. And what a shell offers for a value: bash, zsh and
fish ask `logagent` itself, by click's own completion.

Completion never fails or hangs: an answer is empty where a file cannot be read or a disk does not answer in time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logagent.base.console.render import folded_at_words, forget_stdout, visible
from logagent.base.errors import ConfigError, Exit, UsageError, worst

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from logagent.base.config.config import Loaded
    from logagent.base.config.settings import Settings
    from logagent.base.records import Reason


COMPLETION_VARIABLE = "_LOGAGENT_COMPLETE"
_Offers = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def complete(cli: click.Command, instruction: str) -> int:
    """Carry out what the script of a shell asks for; the exit status."""
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "logagent", COMPLETION_VARIABLE, instruction)


def completion_script(cli: click.Command, shell: str) -> str:
    """The script that a shell (`bash`, `zsh`, `fish`) loads to complete `logagent`."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    return found(cli, {}, "logagent", COMPLETION_VARIABLE).source()


def paths(kind: str) -> _Offers:
    """Paths of this host; `kind`: `file` or `dir`."""

    def offer(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]

    return offer


def words(offered: Callable[[], Iterable[str]]) -> _Offers:
    """What `offered` gives, which is asked only when a shell asks."""

    def offer(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return items(offered(), incomplete)

    return offer


def items(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of `words` that begin like what was typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in sorted(set(words)) if word.startswith(incomplete)]


F = TypeVar("F", bound=Callable[..., Any])

_FILES, _DIRS = paths("file"), paths("dir")


@dataclass(slots=True)
class Call:
    """One invocation: the common options, the whole command line as it was given, and the exit status so far."""

    kafka_config: str | None
    config_file: str | None
    log_dirs: tuple[str, ...]
    state_dir_named: str | None
    assignments: str | None
    json: bool
    verbose: bool
    color: bool
    words: tuple[str, ...] = ()
    status: Exit = Exit.OK
    loaded_settings: Loaded | None = None

    def settings(self) -> Settings:
        """The validated settings, overridden by `--assignments` and `--kafka-config`. Raises ConfigError."""
        # Not at the top: a command that needs no configuration starts in half the time.
        from logagent.base.config import config

        if self.loaded_settings is None:
            self.loaded_settings = config.load(self.config_file)
        settings = self.overridden(self.loaded_settings.settings)
        if config.instance_of(self.config_file) is not None and settings.kafka.config is None and not self.log_dirs:
            # With several brokers on a host, two instances could find the same broker.
            problem = (
                f"{self.config_file}: kafka.config: not set; the configuration of an instance must name its broker"
            )
            raise ConfigError(problem, problems=(problem,), hint="logagent doctor lists the brokers on this host")
        return settings

    def valid_part(self) -> Settings:
        """The same with defaults in place of what is wrong; for reading, not for acting. Raises ConfigError if the file
        is not readable TOML."""
        from logagent.base.config import config

        loaded = self.loaded_settings or config.load_valid_part(self.config_file)[0]
        return self.overridden(loaded.settings)

    def overridden(self, settings: Settings) -> Settings:
        """`settings` with what `--assignments` and `--kafka-config` say instead."""
        if self.assignments is not None:
            assignments = replace(settings.assignments, sources=("file",), file=self.assignments)
            settings = replace(settings, assignments=assignments)
        if self.kafka_config is not None:
            settings = replace(settings, kafka=replace(settings.kafka, config=self.kafka_config))
        return settings

    @property
    def state_dir(self) -> str:
        """`--state-dir`, else the instance's own, else the default. Touches a disk, which may hang."""
        if self.state_dir_named is not None:
            return self.state_dir_named
        from logagent.base.linux.state_dir import default_state_dir

        own = self.state_dir_of_service
        return default_state_dir(os.environ, own, os.path.basename(own))

    @property
    def state_dir_of_service(self) -> str:
        """That of the daemon as it is packaged, whoever asks."""
        from logagent.base.config import config
        from logagent.base.linux.state_dir import DEFAULT_STATE_DIR

        instance = config.instance_of(self.config_file)
        return DEFAULT_STATE_DIR if instance is None else f"{DEFAULT_STATE_DIR}-{instance}"

    def record_status(self, status: Exit) -> None:
        """Record an exit status; the command ends with the first in `EXIT_PRECEDENCE` that was recorded."""
        self.status = worst(self.status, status)

    @property
    def host(self) -> str:
        return os.uname().nodename

    @property
    def progress(self) -> bool:
        """Whether to show progress: only if stderr is a terminal."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, message: str, *, folded: bool = False) -> None:
        """A message for the operator, on stderr: stdout is for results.

        Always one line, whatever names from a disk it contains; a terminal gets it `folded` at words if it has nothing
        in it to paste.
        """
        lines = folded_at_words(message) if folded and sys.stderr.isatty() else visible(message)
        click.echo(lines, err=True)

    def tell(self, why: Reason, before: str = "", *, folded: bool = False) -> None:
        """What is so, and what its reader does next."""
        self.say(before + why.fact, folded=folded)
        if why.hint:
            self.say(f"  hint: {why.hint}")

    def detail(self, message: str) -> None:
        if self.verbose:
            self.say(message)


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether to carry the plan out, and the id of the plan that was approved."""

    execute: bool
    approve: str | None


RUN_AS_BROKER = "run it as the broker's user (sudo -u USER), or as root"


def options(*declared: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, shown in this order by --help."""

    def add(command: F) -> F:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def gathered(name: str, kind: type) -> Callable[[F], F]:
    """Put between options and `common`: those that are fields of the dataclass `kind` reach the command as one value of
    it, the argument `name`."""

    def gather(command: F) -> F:
        @wraps(command)
        def with_value(**kwargs: Any) -> Any:
            value = kind(**{f.name: kwargs.pop(f.name) for f in fields(kind) if f.name in kwargs})
            return command(**kwargs, **{name: value})

        return with_value  # type: ignore[return-value]

    return gather


def or_dry_run(command: F) -> F:
    """Put above a command that has `--execute`: adds `--dry-run`, its default, for those who type it everywhere."""

    @wraps(command)
    def without_both(*args: Any, **kwargs: Any) -> Any:
        if kwargs["dry_run"] and kwargs["execute"]:
            raise UsageError("--dry-run and --execute are mutually exclusive", hint="without --execute nothing is done")
        return command(*args, **{name: value for name, value in kwargs.items() if name != "dry_run"})

    return click.option("-n", "--dry-run", is_flag=True, help="Only show the plan (the default).")(without_both)  # type: ignore[return-value]


carries_out = options(
    click.option("--execute", is_flag=True, help="Carry the plan out; without this the plan is only shown."),
    or_dry_run,
    click.option("--approve", metavar="PLAN_ID", help="Approve exactly this plan, which exceeds the blast radius."),
)

includes_internal = click.option(
    "--include-internal", is_flag=True, help="Include internal topics, all that begin with '_'."
)

# Put above `common` for commands that read assignments; other commands would silently ignore the file.
reads_assignments = click.option(
    "--assignments",
    metavar="FILE",
    shell_complete=_FILES,
    help="Read the assignments from this file (assignments export).",
)


_COMMON = options(
    click.option("--kafka-config", metavar="FILE", shell_complete=_FILES, help="The broker's server.properties."),
    click.option("--config", "config_file", metavar="FILE", shell_complete=_FILES, help="The logagent.toml to use."),
    click.option(
        "--log-dir",
        "log_dirs",
        multiple=True,
        metavar="DIR",
        shell_complete=_DIRS,
        help="Use this log dir instead of log.dirs (repeatable).",
    ),
    click.option(
        "--state-dir", "state_dir_named", metavar="DIR", shell_complete=_DIRS, help="The directory of the journal."
    ),
    click.option("--json", is_flag=True, help="Print one JSON document on stdout."),
    click.option("-v", "--verbose", is_flag=True, help="Print more on stderr."),
    click.option("--no-color", is_flag=True, help="No colors (same as NO_COLOR)."),
)
_OF_CALL = ("kafka_config", "config_file", "log_dirs", "state_dir_named", "assignments", "json", "verbose")


def _refuse_options_as_values(context: click.Context) -> None:
    """Raise UsageError for `--approve --execute`: what was left out must not make the next option its value."""
    for option in context.command.params:
        given = context.params.get(option.name or "")
        for value in given if isinstance(given, tuple) else (given,):
            if isinstance(option, click.Option) and isinstance(value, str) and value.startswith("--"):
                raise UsageError(f"{option.opts[0]} needs a value, and {value} is an option", hint="see --help")


def common(command: F) -> F:
    """Add the common options to a click command, which gets them as a `Call`, its first argument."""

    @wraps(command)
    def with_call(**kwargs: Any) -> Any:
        color = not kwargs.pop("no_color") and "NO_COLOR" not in os.environ
        _refuse_options_as_values(click.get_current_context())
        words = click.get_current_context().find_root().obj or ()
        call = Call(**{name: kwargs.pop(name, None) for name in _OF_CALL}, color=color, words=words)
        try:
            command(call, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output has exited (`logagent scan | head`). That is not an error, and the exit status is
            # still that of what was done.
            forget_stdout()
        click.get_current_context().exit(int(call.status))

    return _COMMON(with_call)  # type: ignore[return-value]
