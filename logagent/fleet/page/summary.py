"""The top of the page: one sentence, the tiles, and what needs attention before anything else is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from logagent.fleet.contract import PageTable
from logagent.fleet.page.tables import path_html
from logagent.fleet.page.text import esc, name_html
from logagent.fleet.page.units import days, exact, size

Tables = Mapping[str, PageTable]
SHOWN_WARNINGS = 30


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


def tiles_html(report: Mapping[str, Any], tables: Tables) -> str:
    tiles = [
        _disk_tile(report, tables),
        _hosts_tile(report),
        _orphans_tile(report, tables),
        _count_tile(
            "Leftovers", report["totals"]["leftovers"], "strays, overdue deletions, abandoned moves", "leftovers"
        ),
        _count_tile(
            "Missing replicas",
            report["totals"]["missing_replicas"],
            "assigned, on no disk of that broker",
            "missing_replicas",
        ),
        _count_tile("Duplicates", report["totals"]["duplicates"], "in two log dirs of one host", "duplicates"),
        _health_tile(tables),
        _full_tile(tables),
    ]
    return f'<ul class="tiles">{"".join(_tile(tile) for tile in tiles)}</ul>'


def _tile(tile: Tile) -> str:
    label = f'<a href="#{tile.link}">{esc(tile.label)}</a>' if tile.link else esc(tile.label)
    return f'<li class="tile {tile.tone}"><h3>{label}</h3><p class="big">{tile.value}</p><p>{tile.note}</p>'


def _disk_tile(report: Mapping[str, Any], tables: Tables) -> Tile:
    totals = report["totals"]
    hidden = totals["stray"] + totals["delete"]
    note = f"{size(totals['allocated'])} allocated"
    if hidden:
        note += f", {size(hidden)} of it stray or marked"
    return Tile(
        "On disk", f'<span title="{exact(totals["bytes"])} B">{size(totals["bytes"])}</span>', note, link="usage_hosts"
    )


def _hosts_tile(report: Mapping[str, Any]) -> Tile:
    reporting, unknown = report["hosts"]["reporting"], unknown_total(report)
    clusters = plural(len(report["clusters"]), "cluster")
    if unknown:
        note = f'<b><a href="#attention">{exact(unknown)} unknown</a></b>; {clusters}'
        return Tile(
            "Hosts reporting", f"{exact(reporting)} of {exact(reporting + unknown)}", note, "bad", "usage_hosts"
        )
    return Tile("Hosts reporting", exact(reporting), f"all of them; {clusters}", "good", "usage_hosts")


def _orphans_tile(report: Mapping[str, Any], tables: Tables) -> Tile:
    totals = report["totals"]
    undecided = undecided_clusters(report)
    if not totals["orphans"]:
        note = "verdicts could not be made, see below" if undecided else "on the hosts that reported"
        return Tile(
            "Orphans",
            NOT_DECIDED if undecided and len(undecided) == len(report["clusters"]) else "0",
            note,
            "bad" if undecided else "good",
            "orphans",
        )
    table = tables["orphans"]
    only = sum(1 for row in table["rows"] if row.get("only_copy"))
    note = f'<span title="{exact(totals["orphan_bytes"])} B">{size(totals["orphan_bytes"])}</span>'
    if only:
        among = "" if len(table["rows"]) == table["total"] else f" among the {exact(len(table['rows']))} largest"
        note += f"; <b>{plural(only, 'only copy', 'only copies')}</b>{among}"
    return Tile("Orphans", exact(totals["orphans"]), note, "warn", "orphans")


NOT_DECIDED = "unknown"


def _count_tile(label: str, count: int, note: str, link: str) -> Tile:
    return Tile(label, exact(count), note, "warn" if count else "good", link)


def _health_tile(tables: Tables) -> Tile:
    table = tables["log_dir_health"]
    offline = sum(1 for row in table["rows"] if row.get("finding") == "offline")
    complete = len(table["rows"]) == table["total"]
    note = f"{plural(offline, 'log dir')} offline" if complete else f"at least {plural(offline, 'log dir')} offline"
    return Tile(
        "Health findings",
        exact(table["total"]),
        note,
        "bad" if offline else "warn" if table["total"] else "good",
        "log_dir_health",
    )


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
    return Tile(
        "First log dir full", f"in {days(ahead)}", where, "bad" if ahead < 7 else "warn" if ahead < 30 else "", "growth"
    )


def undecided_clusters(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [cluster for cluster in report["clusters"] if cluster.get("verdicts") == "unknown"]


def attention_html(report: Mapping[str, Any], unknown_table: str, unknown_cut: str) -> str:
    """Unknown hosts, clusters without verdicts and warnings; says so when there are none."""
    unknown, undecided, warnings = unknown_total(report), undecided_clusters(report), report["warnings"]
    if not unknown and not undecided and not warnings:
        calm = "Every host reported, every cluster has current assignments, and nothing gave a warning."
        return f'<p class="calm">{calm}</p>'
    return "".join((_undecided(undecided), _unknown(unknown, unknown_table, unknown_cut), _warnings(warnings)))


def _undecided(clusters: Sequence[Mapping[str, Any]]) -> str:
    if not clusters:
        return ""
    items = "".join(
        f"<li><code>{name_html(str(cluster['cluster_id']))}</code>: {esc(str(cluster.get('why') or 'no reason given'))}"
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
    items = "".join(f"<li>{esc(str(warning))}" for warning in warnings[:SHOWN_WARNINGS])
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
