"""What a shell offers for a value: bash, zsh and fish ask `logagent` itself, by click's own completion.

Nothing here may fail or hang: an answer is empty where a file cannot be read or a disk does not answer in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_LOGAGENT_COMPLETE"
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


def words(offered: Callable[[], Iterable[str]]) -> _Offers:
    """What `offered` gives, which is asked only when a shell asks."""

    def offer(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return items(offered(), incomplete)

    return offer


def items(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of `words` that begin like what was typed."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in sorted(set(words)) if word.startswith(incomplete)]
