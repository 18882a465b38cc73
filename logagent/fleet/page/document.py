"""Puts the page together: head with its policy, summary, one section a table with its chart, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logagent.fleet.page import bars, growth, shell, summary
from logagent.fleet.page.cells import Show
from logagent.fleet.page.columns import LAYOUT
from logagent.fleet.page.tables import Grid, cut_html, fit, grid, rest_of, table_html
from logagent.fleet.page.text import esc
from logagent.fleet.page.units import exact
from logagent.fleet.page.words import NAVIGATION, WORDS
from logagent.store.contract import PageTable

MOST_BYTES = 3_000_000
"""The page is never larger, however many hosts, orphans and long names there are."""

# What the rows of all tables may take of it where charts and sentences leave them that much, and what the sentences
# below the tables may grow by when it is known how many rows they speak of.
_ROW_BYTES = 2_300_000
_SLACK = 10_000

_UNKNOWN_COLUMNS = (
    Show("node_id", "Node", "id", link="log_dir_health", by=("cluster_id", "node_id")),
    Show("why", "Why", pick=True),
    Show("cluster_id", "Cluster", mono=True, pick=True),
)


def render(report: Mapping[str, Any], tables: Mapping[str, PageTable]) -> str:
    """The whole page, as `logagent.store.contract` defines what goes in.

    Guarantees: the text encodes as UTF-8 and has at most `MOST_BYTES` bytes; it loads nothing from anywhere; no text
    from `report` or `tables` reaches the markup unescaped; what is left out of a table is counted, with the place where
    it is. The same input gives the same page. Raises `KeyError` where a table or a total of the contract is missing.
    """
    grids = _grids(report, tables)
    charts = {name: _chart(name, tables) for name, _ in NAVIGATION}
    for item in grids.values():
        item.keep = 0
    bare = len(_page(report, tables, grids, charts).encode())
    fit(list(grids.values()), min(_ROW_BYTES, MOST_BYTES - bare - _SLACK))
    return _page(report, tables, grids, charts)


def _page(
    report: Mapping[str, Any],
    tables: Mapping[str, PageTable],
    grids: Mapping[str, Grid],
    charts: Mapping[str, str],
) -> str:
    sections = "".join(_section(name, report, tables, grids[name], charts[name]) for name, _ in NAVIGATION)
    unknown = grids["unknown_hosts"]
    attention = summary.attention_html(report, table_html(unknown), cut_html(unknown))
    main = (
        '<section id="summary" aria-labelledby="h-summary"><h2 id="h-summary" class="vh">Summary</h2>'
        f"{summary.tiles_html(report, tables)}</section>"
        '<section id="attention" aria-labelledby="h-attention"><h2 id="h-attention">Before you read on</h2>'
        f"{attention}</section>{sections}{shell.reading()}"
    )
    return (
        f'{shell.head(report)}<body><a class="skip" href="#main">Skip to the report</a>{shell.header(report)}'
        f'{shell.navigation(tables)}<main id="main" tabindex="-1">{main}</main>{shell.footer(report)}'
        f'<p id="status" class="vh" role="status"></p><script>{shell.script()}</script></body></html>\n'
    )


def _grids(report: Mapping[str, Any], tables: Mapping[str, PageTable]) -> dict[str, Grid]:
    many_clusters = len(report["clusters"]) > 1
    grids = {}
    for name, _ in NAVIGATION:
        columns = [c for c in LAYOUT[name] if many_clusters or c.key != "cluster_id" or name == "usage_clusters"]
        table = _with_verdicts(report, tables[name]) if name == "usage_clusters" else tables[name]
        words = WORDS[name]
        grids[name] = grid(
            name, words.title, table, columns, order=words.order, rest=rest_of(report, name), limit=_ROW_BYTES
        )
    unknown: PageTable = {
        "columns": [column.key for column in _UNKNOWN_COLUMNS],
        "rows": list(report["hosts"]["unknown"]),
        "total": summary.unknown_total(report),
    }
    health = rest_of(report, "log_dir_health")
    grids["unknown_hosts"] = grid(
        "unknown_hosts",
        "Unknown hosts",
        unknown,
        _UNKNOWN_COLUMNS,
        order="by cluster and node",
        rest=health,
        limit=_ROW_BYTES,
    )
    return grids


def _with_verdicts(report: Mapping[str, Any], table: PageTable) -> PageTable:
    """The table of clusters, with what the report says of their assignments and how full they are."""
    known = {cluster["cluster_id"]: cluster for cluster in report["clusters"]}
    rows = []
    for row in table["rows"]:
        cluster = known.get(row.get("cluster_id"), {})
        used, size = row.get("used"), row.get("size")
        share = used / size if isinstance(used, int) and size else None
        judged = {"verdicts": cluster.get("verdicts"), "assignments_age": summary.assignments_age(cluster)}
        rows.append({**row, **judged, "used_share": share})
    return {**table, "rows": rows}


def _chart(name: str, tables: Mapping[str, PageTable]) -> str:
    rows = tables[name]["rows"]
    if name == "growth":
        return growth.growth_html(tables["chart_growth"]["rows"])
    if not rows:
        return ""
    drawn = bars.drawn_html(rows, tables[name]["total"], WORDS[name].order)
    if name == "usage_hosts":
        return drawn + bars.legend_html() + bars.ledger_bars(rows, is_shared_scale=True, link=name, named_by=("host",))
    if name == "usage_log_dirs":
        stacked = bars.ledger_bars(rows, is_shared_scale=False, link=name, named_by=("host", "log_dir"))
        return drawn + bars.legend_html() + stacked
    if name == "deletion_progress":
        several = len({row.get("cluster_id") for row in rows}) > 1
        return drawn + bars.progress_bars(rows, of_cluster=several)
    return ""


def _section(name: str, report: Mapping[str, Any], tables: Mapping[str, PageTable], item: Grid, chart: str) -> str:
    words = WORDS[name]
    count = f' <span class="count">{exact(item.total)}</span>'
    table = f"{table_html(item)}{cut_html(item)}" if item.total else f'<p class="empty">{_empty(name, report)}</p>'
    note = _growth_note(tables) if name == "growth" and item.total else ""
    return (
        f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{esc(words.title)}{count}</h2>'
        f'<p class="lead">{esc(words.lead)}{note}</p>{chart}{table}</section>'
    )


def _empty(name: str, report: Mapping[str, Any]) -> str:
    """Why there are no rows: "none found" is only said where somebody could look."""
    unknown, undecided = summary.unknown_total(report), summary.undecided_clusters(report)
    if summary.nobody_reported(report) and name != "quarantined_input":
        return "No host reported, so nothing could be looked at. That is not the same as none."
    sentence = WORDS[name].empty
    if name in ("orphans", "missing_replicas") and undecided:
        count = summary.plural(len(undecided), "cluster")
        if len(undecided) == len(report["clusters"]):
            return (
                f"Nothing is listed because no verdict could be made ({count}, see <a href=#attention>above</a>). "
                "That is not the same as none."
            )
        sentence += f" No verdict could be made for {count}."
    if unknown and name not in ("growth", "usage_clusters"):
        sentence += f" {summary.plural(unknown, 'unknown host')} could not be asked."
    return sentence


def _growth_note(tables: Mapping[str, PageTable]) -> str:
    rows = tables["growth"]["rows"]
    if rows and all(row.get("days_to_full") is None for row in rows):
        return " No number of days where growth is zero or less: nothing here is growing towards full."
    return ""
