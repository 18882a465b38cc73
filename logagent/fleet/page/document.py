"""Puts the page together: head with its content security policy, the first screen, growth, and the compressed tables to
browse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logagent.fleet.page import first_screen, growth_chart, shell
from logagent.fleet.page.columns import LAYOUT, Show
from logagent.fleet.page.commands import place_to_paste
from logagent.fleet.page.coverage import nobody_reported, undecided_clusters, unknown_total
from logagent.fleet.page.packed import packed
from logagent.fleet.page.table_rows import Row, page_rows
from logagent.fleet.page.text import esc, visible
from logagent.fleet.page.units import exact, plural
from logagent.fleet.page.words import NAVIGATION, WORDS
from logagent.store.contract import PAGE_ROWS, PageTable

MOST_BYTES = 6_000_000
"""The page is never larger, however many hosts, orphans and long names there are."""
_DATA_BYTES = MOST_BYTES - 400_000
WHOLE = ("usage_clusters", "usage_hosts", "usage_log_dirs")
SHOWN_WARNINGS = 30


@dataclass
class _Packed:
    name: str
    columns: Sequence[Show]
    rows: Sequence[Row]
    total: int
    data: str

    def cut(self, limit: int) -> None:
        """Fewer rows, so that the data has at most `limit` bytes."""
        while len(self.data) > limit and self.rows:
            keep = min(len(self.rows) * limit // len(self.data), len(self.rows) * 9 // 10)
            self.rows = self.rows[:keep]
            self.data = packed(self.rows, self.columns)


def render(report: Mapping[str, Any], tables: Mapping[str, PageTable]) -> str:
    """The whole page, as `logagent.store.contract` defines what goes in.

    Guarantees: the text encodes as UTF-8 and has at most `MOST_BYTES` bytes; it loads nothing from anywhere; no text
    from `report` or `tables` reaches the markup unescaped; rows left out of a table are counted, and the page says
    where they are. The same input gives the same page. Raises `KeyError` if a table or a total of the contract is
    missing.
    """
    made = _tables(report, tables)
    _fit(made, _DATA_BYTES)
    main = (
        f'<div id="unknown">{first_screen.unknown_html(report)}</div>{first_screen.answers_html(report)}'
        f"{_warnings(report)}{_growth(report, tables)}{_browse(report, made)}{shell.reading()}"
    )
    data = "".join(f'<script type="text/plain" id="d-{one.name}">{one.data}</script>' for one in made)
    return (
        f'{shell.head(report)}<body><a class="skip" href="#main">Skip to the report</a>{shell.header(report)}'
        f'<main id="main" tabindex="-1">{main}</main>{shell.footer(report)}'
        f'<p id="status" class="vh" role="status"></p>{data}<script>{shell.script()}</script></body></html>\n'
    )


def _tables(report: Mapping[str, Any], tables: Mapping[str, PageTable]) -> list[_Packed]:
    found = page_rows(report, tables)
    made = []
    for name, _ in NAVIGATION:
        rows, total = found[name]
        rows = rows[:PAGE_ROWS]
        made.append(_Packed(name, LAYOUT[name], rows, total, packed(rows, LAYOUT[name])))
    return made


def _fit(made: Sequence[_Packed], limit: int) -> None:
    """Space is shared max-min fairly: a table that needs little gets all it needs, the large ones share the rest
    evenly. Hosts and log dirs come first, so that many orphans elsewhere never push a host off the page."""
    room = limit
    waiting = sorted(made, key=lambda one: (one.name not in WHOLE, len(one.data)))
    for position, one in enumerate(waiting):
        one.cut(room * 4 // 5 if one.name in WHOLE else room // (len(waiting) - position))
        room -= len(one.data)


def _browse(report: Mapping[str, Any], made: Sequence[_Packed]) -> str:
    """The tables to browse. Without a script there is a list of the CSV files beside the page."""
    several = len(report["clusters"]) > 1
    described = {one.name: _described(report, one, several=several) for one in made}
    told = {
        "tables": described,
        "place": place_to_paste(report),
        "clusters": {
            visible(str(c["cluster_id"])): visible(str(c["name"])) for c in report["clusters"] if c.get("name")
        },
        "as_of": str(report.get("as_of")),
    }
    items = "".join(
        f'<li><a href="#{one.name}">{dict(NAVIGATION)[one.name]} <span class="count">{exact(one.total)}</span></a>'
        for one in made
    )
    files = ", ".join(shell.path_html(f"{name}.csv") for name in sorted(report["tables"]) if name != "usage_partitions")
    text = json.dumps(told, ensure_ascii=True).replace("<", "\\u003c")
    return (
        '<section id="browse" aria-labelledby="h-browse"><h2 id="h-browse">Browse</h2>'
        f'<nav aria-label="Tables"><ul>{items}</ul></nav>'
        '<div id="view"><p class="empty">The tables need JavaScript. Every row is in the files beside this page: '
        f"{files}</p></div></section>"
        f'<script type="application/json" id="told">{text}</script>'
    )


def _described(report: Mapping[str, Any], one: _Packed, *, several: bool) -> dict[str, Any]:
    words = WORDS[one.name]
    columns = [
        {
            "k": column.key, "l": column.label, "u": column.unit, "h": column.help, "to": column.to,
            "by": list(column.by), "only": dict(column.only), "pick": column.pick, "mono": column.mono,
            "hidden": column.hidden or (column.key == "cluster_id" and not several and one.name != "usage_clusters"),
        }
        for column in one.columns
    ]  # fmt: skip
    files = {"directories": ("orphans", "leftovers", "undecided")}.get(one.name, (one.name,))
    return {
        "title": words.title, "lead": words.lead, "order": words.order, "empty": _empty(one.name, report),
        "columns": columns, "rows": len(one.rows), "total": one.total, "files": [f"{name}.csv" for name in files],
    }  # fmt: skip


def _empty(name: str, report: Mapping[str, Any]) -> str:
    """Why there are no rows: "none found" is only said if somebody could look."""
    unknown, undecided = unknown_total(report), undecided_clusters(report)
    if nobody_reported(report) and name != "quarantined_input":
        return "No host reported, so nothing could be checked. That is not the same as none."
    sentence = WORDS[name].empty
    if name in ("directories", "missing_replicas") and undecided:
        count = plural(len(undecided), "cluster")
        if len(undecided) == len(report["clusters"]):
            return f"Nothing is listed because no verdict could be made ({count}). That is not the same as none."
        sentence += f" No verdict could be made for {count}."
    if unknown and name not in ("growth", "usage_clusters"):
        sentence += f" {plural(unknown, 'unknown host')} could not be asked."
    return sentence


def _growth(report: Mapping[str, Any], tables: Mapping[str, PageTable]) -> str:
    names = {cluster["cluster_id"]: cluster.get("name") for cluster in report["clusters"]}
    body = growth_chart.growth_html(tables["chart_growth"]["rows"], names) + growth_chart.filling_html(
        tables["growth"]["rows"]
    )
    if not body:
        return ""
    return f'<section id="ahead" aria-labelledby="h-ahead"><h2 id="h-ahead">When is it full</h2>{body}</section>'


def _warnings(report: Mapping[str, Any]) -> str:
    warnings = report["warnings"]
    if not warnings:
        return ""
    items = "".join(f"<li>{esc(str(warning), 1000)}" for warning in warnings[:SHOWN_WARNINGS])
    more = len(warnings) - SHOWN_WARNINGS
    rest = f"<li>and {exact(more)} more, in {shell.path_html('report.json')}" if more > 0 else ""
    title = plural(len(warnings), "thing") + " to know before you believe the figures"
    return f'<details class="warnings"><summary>{title}</summary><ul>{items}{rest}</ul></details>'
