"""How one value of a report table is shown in a cell, by its unit: text for people, the exact figure in the title.

The script of the page sorts by the title where there is one, else by the text: numbers by the first number in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logagent.fleet.page import units
from logagent.fleet.page.text import esc, name_html

Row = Mapping[str, Any]
NOTHING = units.MISSING


@dataclass(frozen=True, slots=True)
class Show:
    """One column as the page shows it.

    `key` names the column of the report table (and the filter of the page), `label` heads it, `help` explains it.
    `unit` is the contract's unit, or "id" for numbers that name something. `link` is the table that the cell leads
    to, filtered by this row's columns `by`. `pick` offers the column's values in a list. `mono` is for names from
    disks. `html` replaces the cell's content (for cells made from several columns).
    """

    key: str
    label: str
    unit: str = "text"
    help: str = ""
    link: str | None = None
    by: tuple[str, ...] = ()
    pick: bool = False
    mono: bool = False
    html: Callable[[Row], str] | None = None

    @property
    def is_number(self) -> bool:
        return self.unit not in ("text", "time", "date", "bool", "badge")


def number_title(value: Any, unit: str) -> str | None:
    """The exact figure where the text is rounded; None where the text is exact already."""
    if unit == "bytes":
        return f"{units.exact(value)} B" if abs(value) >= 1024 else None
    if unit == "seconds":
        return f"{units.exact(int(value))} s" if abs(value) >= units.MINUTE else None
    if unit == "days":
        return f"{value:.2f} days".replace("-", units.MINUS)
    if unit in ("share", "ratio"):
        return f"{value:.5f}".replace("-", units.MINUS)
    return None


def value_text(value: Any, unit: str) -> str:
    """A value that is not None as plain text, by its unit. A value that is not of its unit is shown as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "time" and isinstance(value, str):
        return units.moment(value)
    if unit == "date" and isinstance(value, str):
        return units.day(value)
    if not isinstance(value, int | float):
        return str(value)
    return _FORMATS.get(unit, _plain)(value)


def _plain(value: float) -> str:
    return units.exact(value) if isinstance(value, int) else f"{value:,.2f}"


_FORMATS: dict[str, Callable[[Any], str]] = {
    "bytes": units.size,
    "seconds": units.age,
    "days": units.days,
    "share": units.percent,
    "ratio": units.ratio,
    "id": str,
}


def cell(column: Show, row: Row, tag: str = "td") -> str:
    """One table cell (its end tag left out, as HTML allows)."""
    value = row.get(column.key)
    if column.html is not None:
        return f"<{tag}>{column.html(row)}"
    if value is None or value == "":
        return f"<{tag}>{NOTHING}"
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    if value == 0 and is_figure and column.unit in ("bytes", "int"):
        return f"<{tag} class=z>0"
    title = number_title(value, column.unit) if is_figure else None
    if column.unit == "time":
        title = str(value)
    text = name_html(str(value)) if column.unit == "text" else esc(value_text(value, column.unit))
    if column.link is not None:
        text = f"<a href=#{column.link}>{text}</a>"
    attribute = "" if title is None else f' title="{esc(title)}"'
    return f"<{tag}{attribute}>{text}"


def badge(text: str, tone: str) -> str:
    """A short word on a coloured ground; `tone` is one of bad, warn, good, calm."""
    return f"<b class={tone}>{esc(text)}</b>"
