"""Puts the page together: head with its content security policy, the first screen, growth (one small chart a cluster,
as SVG in percent of its width), and the compressed tables to browse.

`brief` is the first screen as ten lines of text, for a mail or a chat: the same figures in the same words, without
commands.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from logagent.fleet.page import first_screen
from logagent.fleet.page.columns import LAYOUT, Row, Show, full_on, packed, page_rows
from logagent.fleet.page.first_screen import purge_words, where_signed
from logagent.fleet.page.words import (
    LONG_AHEAD,
    MINUS,
    NAVIGATION,
    READING,
    UNKNOWN_WORDS,
    WINDOWS,
    WORDS,
    acts_unknown_words,
    at_least,
    cluster_name,
    day,
    days,
    esc,
    exact,
    full_words,
    link,
    moment,
    name_html,
    nobody_reported,
    not_compared,
    percent,
    plural,
    size,
    undecided_clusters,
    unknown_total,
    visible,
    weekday,
)
from logagent.store.contract import LATER_DAYS, NOT_COMPARED, PAGE_ROWS, SOON_DAYS, PageTable
from logagent.verdict.rules import ORPHAN_REASONS

SHOWN_CLUSTERS = 6
SHOWN_LOG_DIRS = 10
MOST_AHEAD = 2.0
"""The line to full is drawn at most this many times as far ahead as there is history."""
_HEIGHT = 150
_TOP, _BOTTOM = 8, 142


class _Point(NamedTuple):
    x: float
    y: float
    row: Row


def growth_html(rows: Sequence[Row], names: Mapping[str, str | None]) -> str:
    """A chart for each of the largest clusters that has at least two dates; empty where none has. `names`: of clusters
    by id."""
    by_cluster: dict[str, list[Row]] = {}
    for row in rows:
        by_cluster.setdefault(str(row.get("cluster_id")), []).append(row)
    able = {cluster: dated for cluster, found in by_cluster.items() if len(dated := _dated(found)) >= 2}
    largest = sorted(able.items(), key=lambda item: -item[1][-1]["used"])
    charts = "".join(_chart(names.get(cluster) or cluster, dated) for cluster, dated in largest[:SHOWN_CLUSTERS])
    left_out = len(largest) - SHOWN_CLUSTERS
    note = (
        f'<p class="cut part">Showing {SHOWN_CLUSTERS} of {len(largest)} clusters, largest first.</p>'
        if left_out > 0
        else ""
    )
    return f'<div class="charts">{charts}</div>{note}' if charts else ""


def _dated(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if _ordinal(row) is not None and isinstance(row.get("used"), int)]


def _ordinal(row: Row) -> int | None:
    try:
        return date.fromisoformat(str(row.get("date"))).toordinal()
    except ValueError:
        return None


def _chart(cluster: str, rows: Sequence[Row]) -> str:
    first, last = rows[0], rows[-1]
    most = max(row.get("hosts") or 0 for row in rows)
    ceiling, capacity = _ceiling(rows)
    ahead = _days_to_full(rows, capacity)
    drawn = min(ahead, MOST_AHEAD * max(_span(rows), 7)) if ahead is not None else 0.0
    points = _points(rows, ceiling, drawn)
    full_words = _full_words(rows, ahead)
    silent = sum(1 for row in rows if (row.get("hosts") or 0) < most)
    note = (
        f"Hollow: {exact(silent)} of {exact(len(rows))} dates with fewer than {exact(most)} hosts; "
        "no line is drawn where their number changes."
        if silent
        else f"{exact(most)} hosts on each of {exact(len(rows))} dates."
    )
    words = (
        f"from {size(first['used'])} on {day(str(first['date']))} to {size(last['used'])} on {day(str(last['date']))}"
    )
    return (
        f"<figure><figcaption><b>{name_html(cluster)}</b> <span>{esc(_change(first, last))}</span></figcaption>"
        f'<svg role="img" width="100%" height="{_HEIGHT}" aria-label="{esc(words)}">'
        f'<line class="axis" x1="0" x2="100%" y1="{_BOTTOM}" y2="{_BOTTOM}"/>'
        f'<line class="grid" x1="0" x2="100%" y1="{_TOP}" y2="{_TOP}"/>'
        f"{_capacity_line(capacity, ceiling)}{_to_full(rows, points, ahead, drawn, capacity, ceiling)}{_line(points)}"
        f'<text x="0" y="{_TOP + 12}">{size(ceiling)}</text><text x="0" y="{_BOTTOM - 4}">0</text></svg>'
        f'<div class="ends"><span>{day(str(first["date"]))}</span><span>{_end(last, drawn)}</span></div>'
        f"<p>{full_words}{note}{_capacity_words(capacity, ceiling)}</p></figure>"
    )


def _change(first: Row, last: Row) -> str:
    """What changed between the first and the last date, of the log dirs that both have."""
    if not first.get("log_dirs"):
        return f"{size(last['used'])}; no log dir has figures on both dates"
    change = first["now"] - first["was"]
    sign = "+" if change > 0 else "" if change < 0 else "±"
    some = "" if first["log_dirs"] == last["log_dirs"] else f" on {plural(first['log_dirs'], 'log dir')}"
    return f"{size(last['used'])}, {sign}{size(change)} in {_span([first, last])} d{some}".replace("-", MINUS)


def _span(rows: Sequence[Row]) -> int:
    return (_ordinal(rows[-1]) or 0) - (_ordinal(rows[0]) or 0)


def _days_to_full(rows: Sequence[Row], capacity: int | None) -> float | None:
    """Days from the last date until `capacity` at the pace since the first one; None if it does not grow."""
    first, last = rows[0], rows[-1]
    grown = (first["now"] - first["was"]) if first.get("log_dirs") else 0
    if capacity is None or grown <= 0:
        return None
    return float(max(capacity - last["used"], 0) * _span(rows) / grown)


def _full_words(rows: Sequence[Row], ahead: float | None) -> str:
    if ahead is None:
        return f"No line to full: {'it does not grow' if rows[0].get('log_dirs') else 'its growth is not known'}. "
    if ahead > LONG_AHEAD:
        return "At this pace not full within ten years. "
    when = date.fromordinal(_ordinal(rows[-1]) or 1) + timedelta(days=round(ahead))
    return f"<b>Full in {days(ahead)}</b> at this pace ({day(when.isoformat())}). "


def _end(last: Row, drawn: float) -> str:
    return day((date.fromordinal(_ordinal(last) or 1) + timedelta(days=round(drawn))).isoformat())


def _to_full(
    rows: Sequence[Row], points: Sequence[_Point], ahead: float | None, drawn: float, capacity: int | None, ceiling: int
) -> str:
    """The line from the last figure towards full, as far as drawn."""
    if ahead is None or capacity is None or not drawn:
        return ""
    last = points[-1]
    reached = rows[-1]["used"] + (capacity - rows[-1]["used"]) * drawn / ahead
    y = _BOTTOM - min(reached / ceiling, 1) * (_BOTTOM - _TOP)
    return f'<line class="ahead" x1="{last.x:.2f}%" y1="{last.y:.1f}" x2="98%" y2="{y:.1f}"/>'


def filling_html(rows: Sequence[Row]) -> str:
    """Log dirs that will be full within 7 and 30 days, with the names of the first few. `rows`: of the table
    `growth`."""
    dirs = [row for row in rows if row.get("scope") == "log_dir" and row.get("days_to_full") is not None]
    ahead = [row for row in dirs if row["days_to_full"] <= LATER_DAYS]
    ahead.sort(key=lambda row: row["days_to_full"])
    lists = []
    for title, low, high in (("Full within 7 days", -1.0, SOON_DAYS), ("Full in 7 to 30 days", SOON_DAYS, LATER_DAYS)):
        found = [row for row in ahead if low < row["days_to_full"] <= high]
        if not found:
            continue
        items = "".join(
            f"<li><span>{_place(row)}</span><span>{_when(row)}, +{size(row['bytes_per_day'] or 0)} a day</span>"
            for row in found[:SHOWN_LOG_DIRS]
        )
        # Days have two digits: the next figure above `low` is a hundredth more.
        bounds = {"days_to_full__max": f"{high:g}"} | ({"days_to_full__min": f"{low + 0.01:g}"} if low > 0 else {})
        rest = link("growth", f"All {exact(len(found))}", scope="log_dir", **bounds, sort="days_to_full")
        more = f"<p>{rest}</p>" if len(found) > SHOWN_LOG_DIRS else ""
        lists.append(f'<div><h3>{title}: {exact(len(found))}</h3><ol class="filling">{items}</ol>{more}</div>')
    return f'<div class="fillings">{"".join(lists)}</div>' if lists else ""


def _when(row: Row) -> str:
    """ "Sun 22 Nov, in 2.8 d": what a reader compares with a calendar, whenever the page is opened."""
    on = full_on(row)
    ahead = days(row["days_to_full"])
    return ahead if on is None else f"{weekday(on)}, in {ahead}"


def _place(row: Row) -> str:
    """A host and its log dir, as a link to what lies there."""
    name = f"{name_html(str(row['host']))} {name_html(str(row['log_dir']))}"
    wanted = {key: row[key] for key in ("cluster_id", "node_id", "log_dir")}
    return link("usage_log_dirs", name, **wanted)


def _ceiling(rows: Sequence[Row]) -> tuple[int, int | None]:
    """The top of the scale, and the capacity: drawn if the data reach half of it, else given in words."""
    top = max(row["used"] for row in rows)
    sizes = [row["size"] for row in rows if isinstance(row.get("size"), int)]
    capacity = sizes[-1] if sizes else None
    if capacity and top * 2 >= capacity:
        return max(top, capacity), capacity
    # Room above the line, so that it does not run through the figure of the scale.
    return max(top * 5 // 4, 1), capacity


def _points(rows: Sequence[Row], ceiling: int, drawn: float) -> list[_Point]:
    ordinals = [_ordinal(row) or 0 for row in rows]
    start, span = ordinals[0], max(ordinals[-1] - ordinals[0] + drawn, 1)
    return [
        _Point(
            2 + (ordinal - start) / span * 96,
            _BOTTOM - min(max(row["used"] / ceiling, 0), 1) * (_BOTTOM - _TOP),
            row,
        )
        for ordinal, row in zip(ordinals, rows, strict=True)
    ]


def _line(points: Sequence[_Point]) -> str:
    """Segments between dates on which the same number of hosts answered, and a dot a date."""
    most = max(point.row.get("hosts") or 0 for point in points)
    lines, dots = [], []
    for before, point in zip([None, *points], points, strict=False):
        hosts = point.row.get("hosts") or 0
        if before is not None and before.row.get("hosts") == point.row.get("hosts"):
            lines.append(
                f'<line class="line" x1="{before.x:.2f}%" y1="{before.y:.1f}" x2="{point.x:.2f}%" y2="{point.y:.1f}"/>'
            )
        words = f"{day(str(point.row['date']))}: {size(point.row['used'])}, {exact(hosts)} hosts"
        shape = "dot hollow" if hosts < most else "dot"
        dots.append(
            f'<circle class="{shape}" cx="{point.x:.2f}%" cy="{point.y:.1f}" r="3"><title>{esc(words)}</title></circle>'
        )
    return "".join(lines) + "".join(dots)


def _capacity_line(capacity: int | None, ceiling: int) -> str:
    if capacity is None or capacity > ceiling:
        return ""
    y = _BOTTOM - capacity / ceiling * (_BOTTOM - _TOP)
    return f'<line class="full" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'


def _capacity_words(capacity: int | None, ceiling: int) -> str:
    if capacity is None:
        return ""
    return (
        f" Dashed: capacity, {size(capacity)}."
        if capacity <= ceiling
        else f" Capacity ({size(capacity)}) is above this scale."
    )


_STYLES = ("base.css", "panels.css", "charts.css", "tables.css", "print.css")
_SCRIPTS = ("start.js", "units.js", "data.js", "grid.js", "browse.js", "search.js", "commands.js")
_SAFE_PATH = re.compile(r"(?!/)(?:[A-Za-z0-9_][A-Za-z0-9._=-]*/)*[A-Za-z0-9_][A-Za-z0-9._=-]*")


def header(report: Mapping[str, Any]) -> str:
    """Title, time, number of clusters; the script adds the search and the theme."""
    as_of = str(report.get("as_of", report["at"]))
    clusters = len(report["clusters"])
    named = [str(one.get("name") or one["cluster_id"]) for one in report["clusters"][:6]]
    more = f" and {exact(clusters - 6)} more" if clusters > 6 else ""
    count = f"{exact(clusters)} cluster{'' if clusters == 1 else 's'}"
    return (
        f'<header><div><h1>Kafka disks</h1><p><time datetime="{esc(as_of)}">{esc(moment(as_of))}</time> · {count}'
        f"{': ' if named else ''}{', '.join(map(name_html, named))}{more}</p></div></header>"
    )


def reading() -> str:
    items = "".join(f"<dt>{esc(term)}<dd>{esc(meaning)}" for term, meaning in READING)
    return (
        '<section id="reading" aria-labelledby="h-reading"><h2 id="h-reading">How to read this page</h2>'
        f"<dl>{items}</dl></section>"
    )


def path_html(path: str) -> str:
    """A path beside the page, as a link if it is a plain relative one, else as text."""
    if _SAFE_PATH.fullmatch(path):
        return f'<a href="{path}">{path}</a>'
    return f"<code>{esc(path)}</code>"


def footer(report: Mapping[str, Any]) -> str:
    return (
        f"<footer><p>Run <code>{esc(str(report['run_id']))}</code>, made {esc(moment(str(report['at'])))} by logagent. "
        'Totals are of the whole fleet; figures for programs are in <a href="report.json">report.json</a>.</p></footer>'
    )


def head(report: Mapping[str, Any]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer"><meta name="generator" content="logagent">'
        f"<title>Kafka disks, {esc(day(str(report['date'])))}</title><style>{_style()}</style></head>\n"
    )


@cache
def _policy() -> str:
    """The content security policy: nothing is loaded, and only inline code shipped in this package runs."""
    return (
        f"default-src 'none'; style-src '{_digest(_style())}'; script-src '{_digest(script())}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (resources.files("logagent.fleet") / "assets" / name).read_text("utf-8")


@cache
def _style() -> str:
    """The dark colours are written once and used twice: if the system asks for them, and if the reader does."""
    dark = _asset("dark.css")
    return "".join(_asset(name) for name in _STYLES) + (
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )


@cache
def script() -> str:
    return "'use strict';(()=>{" + "".join(_asset(name) for name in _SCRIPTS) + "})();"


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
        f"{_warnings(report)}{_growth(report, tables)}{_browse(report, made)}{reading()}"
    )
    data = "".join(f'<script type="text/plain" id="d-{one.name}">{one.data}</script>' for one in made)
    return (
        f'{head(report)}<body><a class="skip" href="#main">Skip to the report</a>{header(report)}'
        f'<main id="main" tabindex="-1">{main}</main>{footer(report)}'
        f'<p id="status" class="vh" role="status"></p>{data}<script>{script()}</script></body></html>\n'
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
    data = {
        "tables": described,
        "purge": purge_words(report),
        "where": where_signed(report),
        "clusters": {
            visible(str(c["cluster_id"])): visible(str(c["name"])) for c in report["clusters"] if c.get("name")
        },
        "as_of": str(report.get("as_of")),
        "reasons": ORPHAN_REASONS,
    }
    items = "".join(
        f'<li><a href="#{one.name}">{dict(NAVIGATION)[one.name]} <span class="count">{exact(one.total)}</span></a>'
        for one in made
    )
    files = ", ".join(path_html(f"{name}.csv") for name in sorted(report["tables"]) if name != "usage_partitions")
    text = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c")
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
    lead = f"{words.lead} {acts_unknown_words(report)}".rstrip() if one.name == "audit" else words.lead
    files = {"directories": ("orphans", "leftovers", "undecided")}.get(one.name, (one.name,))
    return {
        "title": words.title, "lead": lead, "order": words.order, "empty": _empty(one.name, report),
        "columns": columns, "rows": len(one.rows), "total": one.total, "files": [f"{name}.csv" for name in files],
    }  # fmt: skip


def _empty(name: str, report: Mapping[str, Any]) -> str:
    """Why there are no rows: "none found" is only said if somebody could look."""
    unknown, undecided = unknown_total(report), undecided_clusters(report)
    if nobody_reported(report) and name != "quarantined_input":
        return "No host reported, so nothing could be checked. That is not the same as none."
    sentence = WORDS[name].empty
    if name == "audit":
        sentence = f"{sentence} {acts_unknown_words(report)}".rstrip()
    if name == "missing_replicas" and not_compared(report):
        sentence = f"None is known to be missing. {plural(not_compared(report), 'replica')} could not be compared."
    if name in ("directories", "missing_replicas", "undecided_replicas") and undecided:
        count = plural(len(undecided), "cluster")
        if len(undecided) == len(report["clusters"]):
            return f"Nothing is listed because no verdict could be made ({count}). That is not the same as none."
        sentence += f" No verdict could be made for {count}."
    if (unread := report["answers"]["risk"]["offline"]) and name in ("directories", "missing_replicas", "duplicates"):
        sentence += f" {plural(unread, 'log dir')} could not be read."
    if unknown and name not in ("growth", "usage_clusters"):
        sentence += f" {plural(unknown, 'unknown host')} could not be asked."
    return sentence


def _growth(report: Mapping[str, Any], tables: Mapping[str, PageTable]) -> str:
    names = {cluster["cluster_id"]: cluster.get("name") for cluster in report["clusters"]}
    body = growth_html(tables["chart_growth"]["rows"], names) + filling_html(tables["growth"]["rows"])
    if not body:
        return ""
    return f'<section id="ahead" aria-labelledby="h-ahead"><h2 id="h-ahead">When is it full</h2>{body}</section>'


def _warnings(report: Mapping[str, Any]) -> str:
    warnings = report["warnings"]
    if not warnings:
        return ""
    items = "".join(f"<li>{esc(str(warning), 1000)}" for warning in warnings[:SHOWN_WARNINGS])
    more = len(warnings) - SHOWN_WARNINGS
    rest = f"<li>and {exact(more)} more, in {path_html('report.json')}" if more > 0 else ""
    title = plural(len(warnings), "thing") + " to know before you believe the figures"
    return f'<details class="warnings"><summary>{title}</summary><ul>{items}{rest}</ul></details>'


Report = Mapping[str, Any]
STEPS = 3


def brief(report: Report) -> str:
    """The content of `report.json` as lines that end in a newline. Names from disks are escaped."""
    return "".join(f"{visible(line)}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    known = f"; {plural(len(report['warnings']), 'warning')}, see the page" if report["warnings"] else ""
    yield f"Kafka disks, {moment(report['as_of'])}, {plural(len(report['clusters']), 'cluster')}{known}"
    if nobody_reported(report):
        yield "No host reported: nothing is known."
        return
    answers, least = report["answers"], at_least(report)
    unknown, reporting = unknown_total(report), report["hosts"]["reporting"]
    if unknown:
        causes = (
            f"{exact(c['hosts'])} {UNKNOWN_WORDS.get(c['cause'], c['cause'])}" for c in answers["risk"]["unknown"]
        )
        yield f"{exact(reporting)} of {exact(reporting + unknown)} hosts reporting; unknown: {', '.join(causes)}"
    for cluster in undecided_clusters(report):
        why = cluster.get("why") or "no reason given"
        yield f"No verdicts for {cluster_name(report, cluster['cluster_id'])}: {why}"
    disks = answers["disks"]
    share = f", {percent(disks['used'] / disks['size'])}" if disks["size"] else ""
    unread = f"; {plural(disks['unread'], 'log dir')} without figures" if disks["unread"] else ""
    yield f"Used: {least}{size(disks['used'])} of {size(disks['size'])}{share}; {size(disks['free'])} free{unread}"
    windows = ", ".join(f"{label.lower()} {size(answers['reclaim'][key]['bytes'])}" for key, label in WINDOWS)
    whole = sum(answers["reclaim"][key]["bytes"] for key, _ in WINDOWS)
    blocked = f"; blocked until something is fixed {size(barred)}" if (barred := answers["reclaim"]["barred"]) else ""
    yield f"Reclaimable: {least}{size(whole)}: {windows}{blocked}"
    yield from _risks(report, answers["risk"])
    # Ten lines in all.
    for number, step in enumerate(answers["steps"][: STEPS - bool(not_compared(report))], 1):
        yield f"Next {number}: {_step(report, step)}"
    for change in answers["changes"][:1]:
        used = f"{'+' if change['used'] > 0 else ''}{size(change['used'])}"
        some = f" on {plural(change['log_dirs'], 'log dir')}" if change["log_dirs"] != disks["log_dirs"] else ""
        orphans = plural(change["orphans"], "new orphan")
        yield f"Since {day(change['date'])}: used {used}{some}, {orphans}, {first_screen.cleared_words(change)}"


def _risks(report: Report, risk: Mapping[str, Any]) -> Iterator[str]:
    where = "on hosts that report" if unknown_total(report) else "anywhere"
    if len(undecided_clusters(report)) < len(report["clusters"]):
        only, more = risk["only_copies"], report["answers"]["replicas"]["no_copy"]
        rest = f" ({exact(more)} more could not be compared)" if more else ""
        dirs = report["tables"]["undecided"]["rows"]
        undecided = f"; {plural(dirs, 'directory', 'directories')} undecided" if dirs else ""
        yield (
            f"At risk: {plural(risk['no_copy'], 'partition')} with no copy {where}{rest}, "
            f"{plural(risk['missing_elsewhere'], 'replica')} missing with copies elsewhere, "
            f"{plural(only['dirs'], 'orphan')} ({size(only['bytes'])}) without another copy{undecided}"
        )
        yield from _not_compared(report)
    rows = report["tables"]["duplicates"]["rows"]
    twice = f"; {plural(rows, 'partition')} in two log dirs of a host" if rows else ""
    unpaced = f" ({plural(risk['pace_unknown'], 'log dir')} not known)" if risk["pace_unknown"] else ""
    yield (
        f"Log dirs: full in 7 days {exact(risk['full_soon'])}, in 30 days {exact(risk['full_later'])}{unpaced}, "
        f"offline {exact(risk['offline'])}, read-only {exact(risk['read_only'])}, full {exact(risk['full'])}{twice}"
    )


def _not_compared(report: Report) -> Iterator[str]:
    """What the zeros above are short of, with the reason of most of it."""
    answer = report["answers"]["replicas"]
    if not answer["not_compared"]:
        return
    most = max(answer["not_compared"], key=lambda row: row["replicas"])
    says = f"{plural(most['replicas'], 'replica')} on {plural(most['hosts'], 'host')} ({NOT_COMPARED[most['reason']]})"
    rest = not_compared(report) - most["replicas"]
    more = f" and {exact(rest)} for other reasons" if rest else ""
    total = answer["total"]
    yield f"Not compared: {says}{more}; found {exact(total['found'])} of {exact(total['expected'])}"


def _step(report: Report, step: Mapping[str, Any]) -> str:
    if step["what"] in ("offline", "read-only"):
        return f"{plural(step['hosts'], 'log dir')} {step['what']}"
    if step["what"] == "no-copy":
        return f"{plural(step['hosts'], 'partition')} without any copy"
    frees = f"frees {size(step['bytes'])} {'now' if step['window'] == 'now' else 'at restart'}"
    if step["what"] == "topic":
        where = f" in {cluster_name(report, step['cluster_id'])}" if len(report["clusters"]) > 1 else ""
        return f"topic {step['topic']}{where} on {plural(step['hosts'], 'host')} {frees}"
    if step["what"] == "host":
        return f"{step['host']} {frees}"
    gives = f", {frees}" if step["bytes"] else ""
    return f"{step['host']} {step['log_dir']} {full_words(step['days'])}{gives}"
