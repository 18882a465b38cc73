"""What a shell offers for the name of a directory: what is on the disks that the command line so far means."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from logagent.base.console.completion import items
from logagent.base.errors import LogAgentError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SECONDS = 1.0
# Whatever else a directory is called, no shell is given it to expand.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def restorable(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of strays and marked directories."""
    return items([n for n, kind in _on_disk(context) if kind in ("stray", "delete")], incomplete)


def deletable(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Partitions, and names of strays."""
    return items([n for n, kind in _on_disk(context) if kind in ("current", "stray")], incomplete)


def _on_disk(context: click.Context) -> list[tuple[str, str]]:
    """Name and kind of what is in the log dirs that the command line so far means, as a command would find them."""
    from logagent.base.config.config import load_valid_part
    from logagent.base.dir_names import classify
    from logagent.base.linux.child import work_in_child
    from logagent.kafka.files.server_properties import read_server_properties
    from logagent.kafka.processes.discovery import USUAL_SERVER_PROPERTIES

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
