"""Growth lines: bytes by day, one small chart a cluster, as SVG in percent of its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from logagent.fleet.page.columns import full_on
from logagent.fleet.page.text import LONG_AHEAD, MINUS, day, days, esc, exact, link, name_html, plural, size, weekday
from logagent.store.contract import LATER_DAYS, SOON_DAYS

Row = Mapping[str, Any]
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
        return "No line to full: it does not grow. "
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
