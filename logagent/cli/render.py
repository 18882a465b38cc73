"""Output: JSON for programs, tables for people. Names from disks are hostile: they are escaped, never interpreted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from logagent.model.times import rfc3339

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def dump(document: Any, out: IO[str] | None = None) -> None:
    """One JSON document and a newline. ASCII only: bytes that are not UTF-8 appear as `\\udcXX`."""
    stream = out if out is not None else sys.stdout
    json.dump(document, stream, ensure_ascii=True, indent=2)
    stream.write("\n")


def dump_line(row: Any, out: IO[str] | None = None) -> None:
    stream = out if out is not None else sys.stdout
    stream.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def visible(text: str) -> str:
    """`text` on one line, with everything a terminal could interpret escaped (`\\n`, `\\x1b`, `\\udc80`, …)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def human_bytes(count: int) -> str:
    """`1.5 GiB`; exact below 1024."""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def human_ms(ms: int) -> str:
    """A duration in its two largest units: `2d 3h`, `5m 10s`, `0s`."""
    seconds = abs(ms) // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    first = next((i for i, (n, _) in enumerate(parts) if n), 3)
    text = " ".join(f"{n}{unit}" for n, unit in parts[first : first + 2] if n or (unit == "s" and first == 3))
    return f"-{text}" if ms < 0 and seconds else text


def human_time(ms: int) -> str:
    """`2026-11-21 13:26:28Z`: a moment in UTC, for tables."""
    return f"{rfc3339(ms)[:19].replace('T', ' ')}Z"


def short_name(name: str, width: int = 60) -> str:
    """A long name with its middle left out: both what it is (front) and how it is marked (end) stay readable."""
    shown = visible(name)
    tail = min(28, width // 2)
    return shown if len(shown) <= width else f"{shown[: width - tail - 1]}…{shown[len(shown) - tail :]}"


def short_path(path: str, width: int) -> str:
    """A path of at most `width` characters: first its folder loses its front, then its name its middle."""
    shown = visible(path)
    folder, slash, name = shown.rpartition("/")
    if len(shown) <= width or not slash:
        return short_name(shown, width)
    room = max(width - len(name) - 2, min(len(folder), 4))
    if room < len(folder):
        folder = folder[len(folder) - room :]
        folder = "…" + folder[max(folder.find("/"), 0) :]
    return f"{folder}/{short_name(name, width - len(folder) - 1)}"


def table(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, color: bool) -> None:
    """A table on stdout. `columns` are (heading, kind); cells are plain text, never markup.

    Where the terminal is too narrow a "text" column is folded at words and a "path" loses its middle; "left" and
    "right" stay whole. Into a pipe or a file every row is one line with nothing left out, for `grep` and `awk` (but
    for a width in the environment variable COLUMNS). A column without a single word in it is not drawn.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[visible(cell) for cell in row] for row in rows]
    told = [i for i in range(len(columns)) if not cells or any(row[i] for row in cells)]
    columns, cells = [columns[i] for i in told], [[row[i] for i in told] for row in cells]
    widths = [max(map(len, column)) for column in zip([heading for heading, _ in columns], *cells, strict=True)]
    console = Console(no_color=not color, highlight=False, emoji=False)
    terminal = console.is_terminal
    space = _BETWEEN * (len(columns) - 1) + _EDGES
    if terminal or "COLUMNS" in os.environ:
        widths = fitted(widths, [kind for _, kind in columns], console.width - space)
    if not terminal or sum(widths) + space > console.width:
        console.width = sum(widths) + space
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for (heading, kind), width in zip(columns, widths, strict=True):
        drawn.add_column(heading, justify="right" if kind == "right" else "left", overflow="fold", width=width)
    for row in cells:
        fit = (short_path(c, w) if k == "path" else c for c, w, (_, k) in zip(row, widths, columns, strict=True))
        drawn.add_row(*map(Text, fit))
    # Not printed by rich: it exits with status 1 when the reader of a pipe has gone.
    with console.capture() as captured:
        console.print(drawn, crop=False)
    text = captured.get()
    sys.stdout.write(text if terminal else "".join(f"{line.rstrip()}\n" for line in text.splitlines()))
    sys.stdout.flush()


# What rich puts between columns, and around the table.
_BETWEEN, _EDGES = 3, 2
_LEAST = {"text": 18, "path": 24}


def fitted(widths: Sequence[int], kinds: Sequence[str], room: int) -> list[int]:
    """Column widths that fit into `room`, by shrinking the widest that may shrink; too wide if none may."""
    fit = list(widths)
    excess = sum(fit) - room
    while excess > 0:
        spare = [w - _LEAST.get(kind, w) for w, kind in zip(fit, kinds, strict=True)]
        widest = max(range(len(fit)), key=lambda i: (spare[i] > 0, fit[i]), default=None)
        if widest is None or spare[widest] <= 0:
            break
        fit[widest] -= 1
        excess -= 1
    return fit
