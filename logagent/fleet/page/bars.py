"""Bar charts as lists: text a browser can wrap and a reader can copy, each with one SVG bar in percent of its width.

No style attributes (the page's policy forbids them): SVG sizes are presentation attributes, colours are classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from logagent.fleet.page.cells import Row
from logagent.fleet.page.links import link_html
from logagent.fleet.page.text import esc, name_html, unbroken
from logagent.fleet.page.units import exact, percent, size

SHOWN_BARS = 20
BAR_HEIGHT = 14

# The order of the stack, from what the broker knows to what nobody asked for. Names as in `contract.LEDGER`.
SEGMENTS = (
    ("current", "current"),
    ("future", "future"),
    ("stray", "stray"),
    ("delete", "delete"),
    ("other", "other files"),
    ("open_removed", "removed, still open"),
    ("unexplained", "unexplained"),
    ("free", "free"),
)
# What brokers do not report of their disks: DescribeLogDirs counts current and future logs only.
HIDDEN = ("stray", "delete", "other", "open_removed", "unexplained")


def legend_html() -> str:
    items = "".join(
        f'<li><svg class="key" width="12" height="12" aria-hidden="true">'
        f'<rect class="s-{key}" width="12" height="12"/></svg> {label}'
        for key, label in SEGMENTS
    )
    return f'<ul class="legend" aria-label="Colours of the bars">{items}</ul>'


def ledger_parts(row: Row) -> list[tuple[str, str, int]]:
    """(key, label, bytes) of the ledger's parts that can be drawn; negative and unknown ones cannot.

    What is used and in no part of the ledger is drawn as unexplained: a bar never looks emptier than its disk is.
    """
    parts = {key: row[key] for key, _ in SEGMENTS if isinstance(row.get(key), int) and row[key] > 0}
    used = row.get("used")
    if isinstance(used, int):
        rest = used - sum(value for key, value in parts.items() if key != "free")
        if rest > 0:
            parts["unexplained"] = parts.get("unexplained", 0) + rest
    return [(key, label, parts[key]) for key, label in SEGMENTS if key in parts]


def ledger_bars(rows: Sequence[Row], *, is_shared_scale: bool, link: str, named_by: Sequence[str]) -> str:
    """One stacked bar a row: to one scale for all rows, or each to its own size. `named_by`: columns of its name."""
    drawn = rows[:SHOWN_BARS]
    scales = [_scale(row) for row in drawn]
    top = max(scales, default=0)
    items = [
        _item(row, top if is_shared_scale else scale, link, named_by) for row, scale in zip(drawn, scales, strict=True)
    ]
    return f'<ol class="bars">{"".join(items)}</ol>'


def drawn_html(rows: Sequence[Row], total: int, order: str) -> str:
    """How many of all rows are drawn; nothing where they all are."""
    drawn = min(len(rows), SHOWN_BARS)
    return f'<p class="lead">Drawn: {exact(drawn)} of {exact(total)}, {order}.</p>' if drawn < total else ""


def _scale(row: Row) -> int:
    parts = sum(value for _, _, value in ledger_parts(row))
    total = row.get("size")
    return max(parts, total if isinstance(total, int) else 0)


def _item(row: Row, scale: int, link: str, named_by: Sequence[str]) -> str:
    name = '<span class="sep">: </span>'.join(
        f"<span>{name_html(str(row[column]))}</span>" for column in named_by if row.get(column) is not None
    )
    keys = _KEYS if link == "usage_log_dirs" else _KEYS[:2]
    head = link_html(link, {key: row.get(key) for key in keys}, name)
    parts = ledger_parts(row)
    if not parts or scale <= 0:
        return f'<li><div class="row">{head}<span class="none">no figures: {esc(_why(row))}</span></div>'
    words = ", ".join(f"{label} {size(value)}" for _, label, value in parts)
    return (
        f'<li><div class="row">{head}<span>{_summary(row)}</span></div>'
        f'<svg class="bar" role="img" width="100%" height="{BAR_HEIGHT}" aria-label="{esc(words)}">'
        f"{_rects(parts, scale)}</svg>"
    )


# What names a log dir in the fleet; without the last one, a host.
_KEYS = ("cluster_id", "node_id", "log_dir")


def _why(row: Row) -> str:
    return " ".join(str(row[key]) for key in ("health", "reason") if row.get(key)) or "the host did not give any"


def _rects(parts: Sequence[tuple[str, str, int]], scale: int) -> str:
    rects = []
    at = 0.0
    for key, label, value in parts:
        width = value / scale * 100
        rects.append(
            f'<rect class="s-{key}" x="{at:.3f}%" width="{width:.3f}%" height="{BAR_HEIGHT}">'
            f"<title>{label}: {size(value)} ({exact(value)} B)</title></rect>"
        )
        at += width
    return "".join(rects)


def _summary(row: Row) -> str:
    """ "1.20 TiB of 2.00 TiB used (60.0 %), 12.0 GiB hidden": what the bar says, for who cannot see it."""
    used, total = row.get("used"), row.get("size")
    hidden = sum(value for key, _, value in ledger_parts(row) if key in HIDDEN)
    words = ""
    if isinstance(used, int) and isinstance(total, int) and total > 0:
        words = f"{unbroken(size(used))} of {unbroken(size(total))} used ({unbroken(percent(used / total))})"
    if hidden:
        words += f"{', ' if words else ''}<b>{unbroken(size(hidden))} hidden</b>"
    return words


def progress_bars(rows: Sequence[Row], *, of_cluster: bool) -> str:
    """Deletion progress: one bar a topic (`of_cluster`: with its cluster), removed against marked."""
    items = []
    for row in rows[:SHOWN_BARS]:
        marked, removed = row.get("marked") or 0, row.get("removed") or 0
        whole = max(marked, removed)
        share = removed / whole if whole else 0.0
        words = (
            f"{exact(removed)} of {exact(whole)} directories removed ({percent(share)}), "
            f"done on {exact(row.get('hosts_done') or 0)} of {exact(row.get('hosts') or 0)} hosts"
        )
        cluster = f' <span class="sep">{name_html(str(row.get("cluster_id")))}</span>' if of_cluster else ""
        items.append(
            f'<li><div class="row"><span>{name_html(str(row.get("topic")))}{cluster}</span><span>{words}</span></div>'
            f'<svg class="bar" width="100%" height="{BAR_HEIGHT}" aria-hidden="true">'
            f'<rect class="s-free" width="100%" height="{BAR_HEIGHT}"/>'
            f'<rect class="s-done" width="{share * 100:.3f}%" height="{BAR_HEIGHT}"/></svg>'
        )
    return f'<ol class="bars">{"".join(items)}</ol>'
