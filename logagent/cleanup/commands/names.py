"""Which directory an operator means: its name or path, that as a table prints it, TOPIC-PARTITION, or a beginning; and
what a shell offers for it: what is on the disks that the command line so far means.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from logagent.base.console.options import items
from logagent.base.console.render import did_you_mean, visible
from logagent.base.dir_names import classify
from logagent.base.errors import LogAgentError, UsageError
from logagent.base.records import Kind, PartitionDir

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# A table prints it in place of what it leaves out.
CUT = "…"
_LISTED = 10


def exactly(text: str, dirs: Sequence[PartitionDir]) -> list[PartitionDir]:
    """Those of this name, in whatever log dir, or of this path."""
    return [d for d in dirs if text in (d.name, path_of(d))]


def meant(text: str, dirs: Sequence[PartitionDir]) -> PartitionDir | None:
    """The only one of `dirs` that `text` can mean, if it is the name or path of none; None if there is none.

    TOPIC-PARTITION means no other partition: `orders-1` is not the beginning of `orders-10.…-stray`. Raises UsageError,
    with their names, if there are several.
    """
    found = possible(text, dirs)
    if len(found) > 1:
        shown = ", ".join(sorted(map(path_of, found))[:_LISTED]) + (f", {CUT}" if len(found) > _LISTED else "")
        raise UsageError(f"{text} may mean {len(found)} directories: {shown}", hint="name one of them in full")
    return found[0] if found else None


def possible(text: str, dirs: Sequence[PartitionDir]) -> list[PartitionDir]:
    """All of `dirs` that `text` can mean, if it is the name or path of none."""
    parsed = classify(text)
    if CUT in text:
        pattern = re.compile(".*".join(map(re.escape, text.split(CUT))))
        return [d for d in dirs if pattern.fullmatch(visible(d.name)) or pattern.fullmatch(visible(path_of(d)))]
    if parsed.kind is Kind.CURRENT and "/" not in text:
        return [d for d in dirs if (d.topic, d.partition) == (parsed.topic, parsed.partition)]
    return [d for d in dirs if d.name.startswith(text) or path_of(d).startswith(text)]


def no_such(text: str, dirs: Sequence[PartitionDir]) -> UsageError:
    """The error where nothing is meant, with the nearest names."""
    near = did_you_mean(text, (d.name for d in dirs))
    return UsageError(f"no directory {text} in the log dirs{near}", hint="logagent scan lists them")


def path_of(d: PartitionDir) -> str:
    return f"{d.log_dir}/{d.name}"


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
    from logagent.base.linux.access import work_in_child
    from logagent.kafka.files.properties import read_server_properties
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
