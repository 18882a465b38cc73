"""The top of the page: one sentence, the tiles, and what needs attention before anything else is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from logagent.fleet.page.tables import path_html
from logagent.fleet.page.text import esc, name_html
from logagent.fleet.page.units import LONG_AHEAD, days, exact, size
from logagent.store.contract import PageTable

Tables = Mapping[str, PageTable]
SHOWN_WARNINGS = 30
_LONGEST_SENTENCE = 1000


class Tile(NamedTuple):
    label: str
    value: str
    note: str
    tone: str = ""
    link: str = ""


def unknown_total(report: Mapping[str, Any]) -> int:
    hosts = report["hosts"]
    return int(hosts.get("unknown_total", len(hosts["unknown"])))


def plural(count: int, one: str, many: str = "") -> str:
    return f"{exact(count)} {one if count == 1 else many or one + 's'}"


def nobody_reported(report: Mapping[str, Any]) -> bool:
    """Whether no host at all was heard: then no zero on the page means "none"."""
    return not report["hosts"]["reporting"]


def tiles_html(report: Mapping[str, Any], tables: Tables) -> str:
    """The tiles. Green is only what was looked at everywhere: a zero with unknown hosts beside it stays grey."""
    tiles = [
        _disk_tile(report),
        _hosts_tile(report),
        _orphans_tile(report, tables),
        _count_tile(report, "leftovers", "Leftovers", "strays, overdue deletions, abandoned moves"),
        _count_tile(report, "missing_replicas", "Missing replicas", "assigned, on no disk of that broker"),
        _count_tile(report, "duplicates", "Duplicates", "in two log dirs of one host"),
        _health_tile(report, tables),
        _full_tile(tables),
    ]
    return f'<ul class="tiles">{"".join(_tile(tile) for tile in tiles)}</ul>'


def _tile(tile: Tile) -> str:
    label = f'<a href="#{tile.link}">{esc(tile.label)}</a>' if tile.link else esc(tile.label)
    return f'<li class="tile {tile.tone}"><h3>{label}</h3><p class="big">{tile.value}</p><p>{tile.note}</p>'


def _disk_tile(report: Mapping[str, Any]) -> Tile:
    totals = report["totals"]
    hidden = totals["stray"] + totals["delete"]
    note = f"{size(totals['allocated'])} allocated"
    if hidden:
        note += f", {size(hidden)} of it stray or marked"
    return Tile("On disk", _bytes_html(totals["bytes"]), note, link="usage_hosts")


def _bytes_html(number: int) -> str:
    return f'<span title="{exact(number)} B">{size(number)}</span>'


def _hosts_tile(report: Mapping[str, Any]) -> Tile:
    reporting, unknown = report["hosts"]["reporting"], unknown_total(report)
    clusters = plural(len(report["clusters"]), "cluster")
    if unknown:
        note = f'<b><a href="#attention">{exact(unknown)} unknown</a></b>; {clusters}'
        return Tile(
            "Hosts reporting", f"{exact(reporting)} of {exact(reporting + unknown)}", note, "bad", "usage_hosts"
        )
    if nobody_reported(report):
        return Tile("Hosts reporting", "0", "nothing is known of any host", "bad", "attention")
    return Tile("Hosts reporting", exact(reporting), f"all of them; {clusters}", "good", "usage_hosts")


def _zero(report: Mapping[str, Any], label: str, link: str, *, is_verdict: bool) -> Tile:
    """A count of nothing: good only where everything was looked at, and unknown where nothing could be."""
    undecided = undecided_clusters(report) if is_verdict else []
    if nobody_reported(report):
        return Tile(label, UNKNOWN, "no host reported", "bad", link)
    if undecided and len(undecided) == len(report["clusters"]):
        return Tile(label, UNKNOWN, "no verdict could be made", "bad", link)
    limits = [f"no verdict for {plural(len(undecided), 'cluster')}"] if undecided else []
    if unknown_total(report):
        limits.append(f"{plural(unknown_total(report), 'host')} not looked at")
    return Tile(label, "0", "; ".join(limits) or "everything was looked at", "" if limits else "good", link)


UNKNOWN = "unknown"


def _orphans_tile(report: Mapping[str, Any], tables: Tables) -> Tile:
    totals = report["totals"]
    if not totals["orphans"]:
        return _zero(report, "Orphans", "orphans", is_verdict=True)
    table = tables["orphans"]
    only = sum(1 for row in table["rows"] if row.get("only_copy"))
    note = _bytes_html(totals["orphan_bytes"])
    if only:
        among = "" if len(table["rows"]) == table["total"] else f" among the {exact(len(table['rows']))} largest"
        note += f"; <b>{plural(only, 'only copy', 'only copies')}</b>{among}"
    return Tile("Orphans", exact(totals["orphans"]), note, "warn", "orphans")


def _count_tile(report: Mapping[str, Any], name: str, label: str, note: str) -> Tile:
    number = report["totals"][name]
    if not number:
        return _zero(report, label, name, is_verdict=name == "missing_replicas")
    return Tile(label, exact(number), note, "warn", name)


def _health_tile(report: Mapping[str, Any], tables: Tables) -> Tile:
    table = tables["log_dir_health"]
    if not table["total"]:
        return _zero(report, "Health findings", "log_dir_health", is_verdict=False)
    offline = sum(1 for row in table["rows"] if row.get("finding") == "offline")
    words = f"{plural(offline, 'log dir')} offline"
    note = words if len(table["rows"]) == table["total"] else f"at least {words}"
    return Tile("Health findings", exact(table["total"]), note, "bad" if offline else "warn", "log_dir_health")


def _full_tile(tables: Tables) -> Tile:
    soonest = [
        row for row in tables["growth"]["rows"] if row.get("scope") == "log_dir" and row.get("days_to_full") is not None
    ]
    if not tables["growth"]["rows"]:
        return Tile("First log dir full", "–", "needs snapshots of two dates", link="growth")
    if not soonest:
        return Tile("First log dir full", "none", "no log dir is growing", "good", "growth")
    first = min(soonest, key=lambda row: row["days_to_full"])
    where = f"{name_html(str(first.get('host')))}<br>{name_html(str(first.get('log_dir')))}"
    ahead = first["days_to_full"]
    when = days(ahead) if ahead > LONG_AHEAD else f"in {days(ahead)}"
    tone = "bad" if ahead < 7 else "warn" if ahead < 30 else ""
    return Tile("First log dir full", when, where, tone, "growth")


def undecided_clusters(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [cluster for cluster in report["clusters"] if cluster.get("verdicts") == "unknown"]


def attention_html(report: Mapping[str, Any], unknown_table: str, unknown_cut: str) -> str:
    """Unknown hosts, clusters without verdicts and warnings; says so when there are none."""
    unknown, undecided, warnings = unknown_total(report), undecided_clusters(report), report["warnings"]
    silence = _silence() if nobody_reported(report) else ""
    if not silence and not unknown and not undecided and not warnings:
        calm = "Every host reported, every cluster has current assignments, and nothing gave a warning."
        return f'<p class="calm">{calm}</p>'
    return "".join((silence, _undecided(undecided), _unknown(unknown, unknown_table, unknown_cut), _warnings(warnings)))


def _silence() -> str:
    return (
        '<div class="note bad"><h3>No host reported</h3>'
        "<p>There is no usable snapshot of any host. "
        "An empty table below means that nobody could look, not that nothing is there.</p></div>"
    )


def _undecided(clusters: Sequence[Mapping[str, Any]]) -> str:
    if not clusters:
        return ""
    items = "".join(
        f"<li><code>{name_html(str(cluster['cluster_id']))}</code>: "
        f"{esc(str(cluster.get('why') or 'no reason given'), _LONGEST_SENTENCE)}"
        for cluster in clusters[:SHOWN_WARNINGS]
    )
    more = len(clusters) - SHOWN_WARNINGS
    return (
        f'<div class="note bad"><h3>No verdicts for {plural(len(clusters), "cluster")}</h3>'
        "<p>Without complete, current assignments nothing is called an orphan or missing there. "
        "That is not the same as none.</p>"
        f"<ul>{items}</ul>{_more(more)}</div>"
    )


def _unknown(total: int, table: str, cut: str) -> str:
    if not total:
        return ""
    return (
        f'<div class="note bad" id="unknown_hosts"><h3>{plural(total, "unknown host")}</h3>'
        "<p>Nothing about them is in the figures below, and no verdict that would need them was made.</p>"
        f"{table}{cut}</div>"
    )


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{esc(str(warning), _LONGEST_SENTENCE)}" for warning in warnings[:SHOWN_WARNINGS])
    return (
        f'<div class="note warn"><h3>{plural(len(warnings), "warning")}</h3><ul>{items}</ul>'
        f"{_more(len(warnings) - SHOWN_WARNINGS)}</div>"
    )


def _more(count: int) -> str:
    return f'<p class="cut part">and {exact(count)} more, in {path_html("report.json")}.</p>' if count > 0 else ""


def assignments_age(cluster: Mapping[str, Any]) -> int | None:
    """Age of the assignments a cluster was judged by, in seconds; None where there were none."""
    assignments = cluster.get("assignments")
    return None if not assignments else assignments.get("age_seconds")
