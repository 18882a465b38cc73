"""Output: JSON for programs, tables for people. Names from disks are hostile input and are shown, never obeyed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def dump(document: Any, out: IO[str] | None = None) -> None:
    """One JSON document and a newline. ASCII only: bytes that are no UTF-8 come as `\\udcXX`."""
    stream = out if out is not None else sys.stdout
    json.dump(document, stream, ensure_ascii=True, indent=2)
    stream.write("\n")


def dump_line(row: Any, out: IO[str] | None = None) -> None:
    stream = out if out is not None else sys.stdout
    stream.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def visible(text: str) -> str:
    """`text` on one line with everything that a terminal could obey written out (`\\n`, `\\x1b`, `\\udc80`, …)."""
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


def short_name(name: str, width: int = 60) -> str:
    """A long name with its middle left out: both what it is (front) and how it is marked (end) stay readable."""
    shown = visible(name)
    return shown if len(shown) <= width else f"{shown[: width - 29]}…{shown[-28:]}"


def table(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, color: bool) -> None:
    """A table on stdout. `columns` are (heading, "left" or "right"); cells are plain text, never markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(no_color=not color, highlight=False, soft_wrap=False, emoji=False)
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, side in columns:
        drawn.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    if console.is_terminal:
        console.print(drawn)
    else:
        Console(no_color=True, highlight=False, emoji=False, width=200).print(drawn)
