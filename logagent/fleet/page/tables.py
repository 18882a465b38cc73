"""Report tables as HTML: headings, rows, and what was left out and where it lies.

Without JavaScript they are read and scrolled; `tables.js` adds sorting, filters and working links to what is here,
from the `data-` attributes of the headings. Which attribute means what is written at `heading`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logagent.fleet.page.cells import Row, Show, cell
from logagent.fleet.page.text import esc
from logagent.fleet.page.units import exact
from logagent.store.contract import PageTable

# Rows and columns of a table that go on paper; print.css hides those beyond them.
PRINTED_ROWS, PRINTED_COLUMNS = 60, 12
# How many columns tables.css can address; see the lists of nth-child selectors there.
MOST_COLUMNS = 30

_SAFE_PATH = re.compile(r"(?!/)(?:[A-Za-z0-9_][A-Za-z0-9._=-]*/)*[A-Za-z0-9_][A-Za-z0-9._=-]*")


@dataclass(slots=True)
class Grid:
    """A table on its way to the page: all its rows rendered; `keep` of them fit."""

    name: str
    title: str
    columns: Sequence[Show]
    rows: list[str]
    total: int
    order: str
    rest: str | None
    sizes: list[int] = field(init=False)
    keep: int = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [len(row.encode()) for row in self.rows]
        self.keep = len(self.rows)


def grid(
    name: str,
    title: str,
    table: PageTable,
    columns: Sequence[Show],
    *,
    order: str,
    rest: str | None,
    limit: int,
) -> Grid:
    """`table` with the columns given. `order` says how the rows are ordered; `rest` is where all rows are; rows
    beyond `limit` bytes are not rendered, as no page has room for them."""
    shown = tuple(columns)[:MOST_COLUMNS]
    rows: list[str] = []
    letters = 0
    for row in table["rows"]:
        if letters > limit:
            break
        rows.append(row_html(row, shown))
        letters += len(rows[-1])
    return Grid(name, title, shown, rows, table["total"], order, rest)


def row_html(row: Row, columns: Sequence[Show]) -> str:
    """One row, with its end tag: the line break after it would else belong to its last cell."""
    first, *others = columns
    return "<tr>" + cell(first, row, "th scope=row") + "".join(cell(column, row) for column in others) + "</tr>\n"


def fit(grids: Sequence[Grid], limit: int) -> None:
    """Set `keep` of each so that all kept rows together have at most `limit` bytes.

    Room is shared like water: a table that needs little gets all it needs, the large ones share the rest evenly.
    """
    waiting = sorted(grids, key=lambda g: sum(g.sizes))
    room = limit
    for position, item in enumerate(waiting):
        share = room // (len(waiting) - position)
        used = keep = 0
        for size in item.sizes:
            if used + size > share:
                break
            used += size
            keep += 1
        item.keep = keep
        room -= used


def heading(column: Show) -> str:
    """`data-k`: the column's key in links and filters; `data-n`: sorts by number; `data-by`: this row's columns that a
    link of this column filters the other table by; `data-pick`: its values are offered in a list."""
    marks = [f"data-k={column.key}"]
    if column.is_number:
        marks.append("data-n")
    if column.link is not None:
        marks.append(f'data-by="{" ".join(column.by)}"')
    if column.pick:
        marks.append("data-pick")
    if column.help:
        marks.append(f'title="{esc(column.help)}"')
    return f"<th scope=col {' '.join(marks)}>{esc(column.label)}"


def table_html(item: Grid) -> str:
    """The table in a box of its own that scrolls (and takes the keyboard's focus, so that arrows scroll it)."""
    marks = [f"n{i}" for i, column in enumerate(item.columns, 1) if column.is_number]
    marks += [f"m{i}" for i, column in enumerate(item.columns, 1) if column.mono]
    head = "".join(heading(column) for column in item.columns)
    body = "".join(item.rows[: item.keep])
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(item.title)}, table">'
        f'<table id="t-{item.name}" data-total="{item.total}" class="{" ".join(marks)}"'
        f' aria-label="{esc(item.title)}"><thead><tr>{head}</thead>\n<tbody>{body}</tbody></table></div>'
    )


def cut_html(item: Grid) -> str:
    """What of the table is here, in one sentence; nothing is left out silently."""
    printed = _printed(item)
    if item.keep >= item.total:
        everything = f"All {exact(item.total)} rows, {item.order}." if item.total > 1 else "1 row."
        return f'<p class="cut">{everything} {_also(item.rest)}{printed}</p>'
    where = f"the rest is in {path_html(item.rest)}" if item.rest else "the rest is in the Parquet files"
    return (
        f'<p class="cut part">Showing <b>{exact(item.keep)} of {exact(item.total)}</b> rows, {item.order}; {where}.'
        f" Sorting and filters work on the rows shown.{printed}</p>"
    )


def _printed(item: Grid) -> str:
    """What paper leaves out; shown on paper only."""
    limits = [
        f"the first {most} {what}"
        for most, what, there in (
            (PRINTED_ROWS, "rows", item.keep),
            (PRINTED_COLUMNS, "columns", len(item.columns)),
        )
        if there > most
    ]
    return f' <span class="onpaper">On paper: {" and ".join(limits)}.</span>' if limits else ""


def _also(rest: str | None) -> str:
    return f"With every column: {path_html(rest)}." if rest else ""


def path_html(path: str) -> str:
    """A path beside the page, as a link where it is a plain relative one, else as text."""
    if _SAFE_PATH.fullmatch(path):
        return f'<a href="{path}">{path}</a>'
    return f"<code>{esc(path)}</code>"


def rest_of(report: Mapping[str, object], name: str) -> str | None:
    """Where the whole table lies beside the page: its CSV, else its Parquet; None where the report does not say."""
    tables = report.get("tables")
    entry = tables.get(name) if isinstance(tables, Mapping) else None
    if not isinstance(entry, Mapping):
        return None
    path = entry.get("csv") or entry.get("parquet")
    return path if isinstance(path, str) else None
