"""Growth lines: bytes by day, one small chart a cluster, as SVG in percent of its width."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from logagent.fleet.page.cells import Row
from logagent.fleet.page.text import esc, name_html
from logagent.fleet.page.units import MINUS, day, exact, size

SHOWN_CLUSTERS = 6
_HEIGHT = 150
_TOP, _BOTTOM = 8, 142


class _Point(NamedTuple):
    x: float
    y: float
    row: Row


def growth_html(rows: Sequence[Row]) -> str:
    """A chart for each of the largest clusters that has at least two dates; empty where none has."""
    by_cluster: dict[str, list[Row]] = {}
    for row in rows:
        by_cluster.setdefault(str(row.get("cluster_id")), []).append(row)
    able = {cluster: dated for cluster, found in by_cluster.items() if len(dated := _dated(found)) >= 2}
    largest = sorted(able.items(), key=lambda item: -item[1][-1]["bytes"])
    charts = "".join(_chart(cluster, dated) for cluster, dated in largest[:SHOWN_CLUSTERS])
    left_out = len(largest) - SHOWN_CLUSTERS
    note = (
        f'<p class="cut part">Showing {SHOWN_CLUSTERS} of {len(largest)} clusters, largest first.</p>'
        if left_out > 0
        else ""
    )
    return f'<div class="lines">{charts}</div>{note}' if charts else ""


def _dated(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if _ordinal(row) is not None and isinstance(row.get("bytes"), int)]


def _ordinal(row: Row) -> int | None:
    try:
        return date.fromisoformat(str(row.get("date"))).toordinal()
    except ValueError:
        return None


def _chart(cluster: str, rows: Sequence[Row]) -> str:
    first, last = rows[0], rows[-1]
    most = max(row.get("hosts") or 0 for row in rows)
    ceiling, capacity = _ceiling(rows)
    points = _points(rows, ceiling)
    silent = sum(1 for row in rows if (row.get("hosts") or 0) < most)
    note = (
        f"Hollow: {exact(silent)} of {exact(len(rows))} dates with fewer than {exact(most)} hosts; "
        "no line is drawn where their number changes."
        if silent
        else f"{exact(most)} hosts on each of {exact(len(rows))} dates."
    )
    words = (
        f"from {size(first['bytes'])} on {day(str(first['date']))} to {size(last['bytes'])} on {day(str(last['date']))}"
    )
    return (
        f"<figure><figcaption><b>{name_html(cluster)}</b> <span>{esc(_change(first, last))}</span></figcaption>"
        f'<svg role="img" width="100%" height="{_HEIGHT}" aria-label="{esc(words)}">'
        f'<line class="axis" x1="0" x2="100%" y1="{_BOTTOM}" y2="{_BOTTOM}"/>'
        f'<line class="grid" x1="0" x2="100%" y1="{_TOP}" y2="{_TOP}"/>'
        f"{_capacity_line(capacity, ceiling)}{_line(points)}"
        f'<text x="0" y="{_TOP + 12}">{size(ceiling)}</text><text x="0" y="{_BOTTOM - 4}">0</text></svg>'
        f'<div class="ends"><span>{day(str(first["date"]))}</span><span>{day(str(last["date"]))}</span></div>'
        f"<p>{note}{_capacity_words(capacity, ceiling)}</p></figure>"
    )


def _change(first: Row, last: Row) -> str:
    """What changed between the first and the last date, if the same number of hosts answered."""
    if first.get("hosts") != last.get("hosts"):
        return (
            f"{size(last['bytes'])} on {exact(last.get('hosts') or 0)} hosts (before: {exact(first.get('hosts') or 0)})"
        )
    change = last["bytes"] - first["bytes"]
    sign = "+" if change > 0 else "" if change < 0 else "±"
    days = (_ordinal(last) or 0) - (_ordinal(first) or 0)
    return f"{size(last['bytes'])}, {sign}{size(change)} in {days} d".replace("-", MINUS)


def _ceiling(rows: Sequence[Row]) -> tuple[int, int | None]:
    """The top of the scale, and the capacity: in the picture where the data reach half of it, else said in words."""
    top = max(row["bytes"] for row in rows)
    sizes = [row["size"] for row in rows if isinstance(row.get("size"), int)]
    capacity = sizes[-1] if sizes else None
    if capacity and top * 2 >= capacity:
        return max(top, capacity), capacity
    # Room above the line, so that it does not run through the figure of the scale.
    return max(top * 5 // 4, 1), capacity


def _points(rows: Sequence[Row], ceiling: int) -> list[_Point]:
    ordinals = [_ordinal(row) or 0 for row in rows]
    start, span = ordinals[0], max(ordinals[-1] - ordinals[0], 1)
    return [
        _Point(
            2 + (ordinal - start) / span * 96,
            _BOTTOM - min(max(row["bytes"] / ceiling, 0), 1) * (_BOTTOM - _TOP),
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
        words = f"{day(str(point.row['date']))}: {size(point.row['bytes'])}, {exact(hosts)} hosts"
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
