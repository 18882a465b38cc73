"""Which directory an operator means: its name or path, that as a table prints it, TOPIC-PARTITION, or a beginning."""

from __future__ import annotations

import re
from collections.abc import Sequence

from logagent.base.console.render import did_you_mean, visible
from logagent.base.dir_names import classify
from logagent.base.errors import UsageError
from logagent.base.records import Kind, PartitionDir

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
    parsed = classify(text)
    if CUT in text:
        pattern = re.compile(".*".join(map(re.escape, text.split(CUT))))
        found = [d for d in dirs if pattern.fullmatch(visible(d.name)) or pattern.fullmatch(visible(path_of(d)))]
    elif parsed.kind is Kind.CURRENT and "/" not in text:
        found = [d for d in dirs if (d.topic, d.partition) == (parsed.topic, parsed.partition)]
    else:
        found = [d for d in dirs if d.name.startswith(text) or path_of(d).startswith(text)]
    if len(found) > 1:
        shown = ", ".join(sorted(map(path_of, found))[:_LISTED]) + (f", {CUT}" if len(found) > _LISTED else "")
        raise UsageError(f"{text} may mean {len(found)} directories: {shown}", hint="name one of them in full")
    return found[0] if found else None


def no_such(text: str, dirs: Sequence[PartitionDir]) -> UsageError:
    """The error where nothing is meant, with the nearest names."""
    near = did_you_mean(text, (d.name for d in dirs))
    return UsageError(f"no directory {text} in the log dirs{near}", hint="logagent scan lists them")


def path_of(d: PartitionDir) -> str:
    return f"{d.log_dir}/{d.name}"
