"""What a shell offers for a value: bash, zsh and fish ask `logagent` itself, by click's own completion.

Nothing here may fail or hang: an answer is empty where a file cannot be read or a disk does not answer in time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from logagent.errors import LogAgentError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_LOGAGENT_COMPLETE"
_SECONDS = 1.0
# Whatever else a directory is called, no shell is given it to expand.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_Offers = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def answer(cli: click.Command, instruction: str) -> int:
    """Carry out what the script of a shell asks for; the exit status."""
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "logagent", VARIABLE, instruction)


def script(cli: click.Command, shell: str) -> str:
    """The script that a shell (`bash`, `zsh`, `fish`) loads to complete `logagent`."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    return found(cli, {}, "logagent", VARIABLE).source()


def paths(kind: str) -> _Offers:
    """Paths of this host; `kind`: `file` or `dir`."""

    def offer(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]

    return offer


def documents(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from logagent.documents import SCHEMAS as OF_A_HOST
    from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET

    return _items([*OF_A_HOST, *OF_THE_FLEET], incomplete)


def restorable(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of strays and marked directories."""
    return _items([n for n, kind in _on_disk(context) if kind in ("stray", "delete")], incomplete)


def deletable(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Partitions, and names of strays."""
    return _items([n for n, kind in _on_disk(context) if kind in ("current", "stray")], incomplete)


def _items(words: list[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in sorted(set(words)) if word.startswith(incomplete)]


def _on_disk(context: click.Context) -> list[tuple[str, str]]:
    """Name and kind of what is in the log dirs that the command line so far means, as a command would find them."""
    from logagent.agent.config import load_valid_part
    from logagent.broker.files.server_properties import read_server_properties
    from logagent.host.brokers.discovery import USUAL_SERVER_PROPERTIES
    from logagent.host.linux.child import work_in_child
    from logagent.model.naming.dir_names import classify

    given = context.params
    with suppress(LogAgentError, OSError, TimeoutError):
        named = given.get("kafka_config") or load_valid_part(given.get("config_file"))[0].settings.kafka.config
        config = named or next(filter(os.path.isfile, USUAL_SERVER_PROPERTIES), None)
        log_dirs = given.get("log_dirs") or (read_server_properties(config).log_dirs if config is not None else ())
        names = work_in_child(lambda: [n for d in log_dirs for n in _listed(d) if _PLAIN.fullmatch(n)], _SECONDS)
        return [(name, classify(name).kind.value) for name in names]
    return []


def _listed(log_dir: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(log_dir)
    return []
