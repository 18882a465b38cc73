"""The treemap of the largest topics, drawn for three widths, because text in an SVG must not shrink with it."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from logagent.fleet.page.cells import Row
from logagent.fleet.page.links import link_html
from logagent.fleet.page.text import esc, name_html, unbroken, visible
from logagent.fleet.page.treemap import Box, squarify
from logagent.fleet.page.units import exact, percent, size

# (class, smallest width in px at which the browser shows it, height in px); charts.css switches between them.
_SHAPES = (("wide", 1040, 440), ("middle", 660, 440), ("narrow", 300, 520))
_GAP = 1
# Letters of a topic in a title: the table has all of them.
_TITLE = 250
_LETTER = 6.7
_LINE = 16
COLOURS = 6


def treemap_html(rows: Sequence[Row], colours: Mapping[str, int]) -> str:
    """All drawings. `colours` gives each cluster the number of its colour."""
    topics = [row for row in rows if row.get("topic") is not None and (row.get("bytes") or 0) > 0]
    if not topics:
        return ""
    total = sum(row.get("bytes") or 0 for row in rows)
    drawings = "".join(_drawing(topics, total, colours, *shape) for shape in _SHAPES)
    said = '<p class="said" aria-hidden="true" hidden></p>'
    return f"{_coverage(rows, topics, total)}{_legend(topics, colours)}{drawings}{said}"


def _coverage(rows: Sequence[Row], topics: Sequence[Row], total: int) -> str:
    """How much of the fleet the map shows, so that it is not taken for all."""
    drawn = sum(row["bytes"] for row in topics)
    others = [row for row in rows if row.get("topic") is None]
    smaller = sum(row.get("topics") or 0 for row in others)
    if not smaller:
        return f'<p class="lead">All {exact(len(topics))} topics, {size(drawn)}. Area is bytes.</p>'
    share = drawn / total
    return (
        f'<p class="lead">The {exact(len(topics))} largest topics hold {unbroken(size(drawn))}, '
        f"{unbroken(percent(share))} of all; "
        f"the other {exact(smaller)} hold {unbroken(size(total - drawn))} and are not drawn. Area is bytes.</p>"
        '<svg class="bar share" width="100%" height="6" aria-hidden="true">'
        '<rect class="s-free" width="100%" height="6"/>'
        f'<rect class="s-current" width="{share * 100:.2f}%" height="6"/></svg>'
    )


def _legend(topics: Sequence[Row], colours: Mapping[str, int]) -> str:
    """What the colours mean: clusters (where there are several), and the part of a topic that is orphaned."""
    clusters = dict.fromkeys(str(row.get("cluster_id")) for row in topics)
    keys = [(f"c{colours.get(cluster, 0) % COLOURS}", name_html(cluster)) for cluster in list(clusters)[:COLOURS]]
    if len(clusters) < 2:
        keys = []
    elif len(clusters) > COLOURS:
        keys.append(("c0", "more clusters, in the same colours again"))
    if any(row.get("orphan_bytes") for row in topics):
        keys.append(("s-delete", "share that is orphaned"))
    items = "".join(
        '<li><svg class="key" width="12" height="12" aria-hidden="true">'
        f'<rect class="{key}" width="12" height="12"/></svg> <span>{label}</span>'
        for key, label in keys
    )
    return f'<ul class="legend" aria-label="Colours of the map">{items}</ul>' if items else ""


def _drawing(topics: Sequence[Row], total: int, colours: Mapping[str, int], shape: str, width: int, height: int) -> str:
    boxes = squarify([row["bytes"] for row in topics], width, height)
    cells = "".join(_cell(box, topics[box.number], total, colours, width) for box in boxes)
    label = "Treemap of the largest topics; the table below has the same figures"
    drawing = f'<svg role="group" aria-label="{label}" width="100%" height="{height}">{cells}</svg>'
    return f'<div class="map {shape}">{drawing}</div>'


def _cell(box: Box, row: Row, total: int, colours: Mapping[str, int], width: int) -> str:
    """One topic: x and width in percent so that the map grows with the page, y and height in pixels."""
    name, number = str(row["topic"]), row["bytes"]
    cluster = row.get("cluster_id")
    facts = f"{size(number)}, {percent(number / total)} of all, {exact(row.get('partitions') or 0)} partitions"
    orphaned = row.get("orphan_bytes") or 0
    if orphaned:
        facts += f", {size(orphaned)} orphaned"
    across, down = max(box.width - _GAP, 0.2), max(box.height - _GAP, 0.2)
    x, share = box.x / width * 100, across / width * 100
    content = (
        f"<title>{esc(name, _TITLE)}: {esc(facts)}</title>"
        f'<svg x="{x:.3f}%" y="{box.y:.1f}" width="{share:.3f}%" height="{down:.1f}" aria-hidden="true">'
        f'<rect class="c{colours.get(str(cluster), 0) % COLOURS}" width="100%" height="100%"/>'
        f"{_orphan_strip(orphaned / number, down)}{_label(name, number, box)}</svg>"
    )
    return link_html("usage_topics", {"cluster_id": cluster, "topic": name}, content)


def _orphan_strip(share: float, down: float) -> str:
    if share <= 0 or down < 8:
        return ""
    return f'<rect class="s-delete" y="{down - 4:.1f}" width="{min(share, 1) * 100:.2f}%" height="4"/>'


def _label(name: str, number: int, box: Box) -> str:
    """Name and bytes where there is room for them; a cell without text has its title and the table."""
    room = int((box.width - 10) / _LETTER)
    if room < 4 or box.height < _LINE + 6:
        return ""
    lines = f'<text x="6" y="{_LINE}">{esc(cut(visible(name), room))}</text>'
    bytes_text = size(number)
    if box.height >= 2 * _LINE + 6 and len(bytes_text) <= room:
        lines += f'<text class="small" x="6" y="{2 * _LINE}">{bytes_text}</text>'
    return lines


def cut(text: str, room: int) -> str:
    """`text` cut to `room` letters of ordinary width; wide letters (CJK) count twice."""
    used = 0
    for index, char in enumerate(text):
        used += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > room:
            return text[: max(index - 1, 0)] + "…"
    return text
