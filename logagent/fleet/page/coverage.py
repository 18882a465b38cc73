"""How much of the fleet a report covers: hosts about which nothing is known, clusters without verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Any]
UNKNOWN_WORDS = {
    "silent": "silent",
    "never heard": "never heard of",
    "broken file": "with a broken file",
    "contradiction": "that contradict each other",
}


def unknown_total(report: Report) -> int:
    return int(report["hosts"]["unknown_total"])


def undecided_clusters(report: Report) -> list[Mapping[str, Any]]:
    return [cluster for cluster in report["clusters"] if cluster.get("verdicts") == "unknown"]


def nobody_reported(report: Report) -> bool:
    """Whether no host at all has reported: then a zero on the page does not mean "none"."""
    return not report["hosts"]["reporting"]


def cluster_name(report: Report, cluster_id: str | None) -> str:
    """The operators' name for a cluster, else its id."""
    names = {one["cluster_id"]: one.get("name") for one in report["clusters"]}
    return str(names.get(cluster_id) or cluster_id)


def at_least(report: Report) -> str:
    return "at least " if unknown_total(report) or undecided_clusters(report) else ""
