"""The commands that the page offers. They only show a plan until an operator adds --execute."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from logagent.fleet.page.text import can_be_pasted

ON_HOST = "logagent cleanup"
"""Run on the host itself: its agent knows the log dirs, its own configuration and what is due."""


def on_full_log_dir(log_dir: str) -> str:
    """On the host, for a log dir without room: what can be freed there, from safest to least safe. The path is left out
    if it is not a plain one: what a terminal executes must not come from a disk."""
    plain = re.fullmatch(r"/[A-Za-z0-9._/-]*", log_dir) is not None
    return f"logagent rescue --log-dir {log_dir}" if plain else "logagent rescue"


def place_of(report: Mapping[str, Any]) -> str:
    """The report's location, as `--report` takes it: a path, or a URI if it is not on a local disk."""
    place = str(report["place"])
    return place.removeprefix("file://").removeprefix("file:") if place.startswith("file:") else place


def place_to_paste(report: Mapping[str, Any]) -> str | None:
    """The report's location for commands; None if it has a character that would be another one in a terminal."""
    place = place_of(report)
    return place if can_be_pasted(place) else None


def purge(report: Mapping[str, Any], cluster_id: str | None, *options: str) -> str | None:
    """`topics purge` for the rows of this report that `options` select, in one cluster or (None) in all."""
    place = place_to_paste(report)
    if place is None:
        return None
    cluster = () if cluster_id is None else ("--cluster", cluster_id)
    return " ".join(map(shlex.quote, ("logagent", "topics", "purge", "--report", place, *cluster, *options)))


def by_window(report: Mapping[str, Any], window: str) -> str | None:
    """For the whole fleet, exactly what the figure counts that can be requested; None if somebody has to look first."""
    return purge(report, None, "--window", window) if window in ("now", "restart") else None


def of_topic(report: Mapping[str, Any], cluster_id: str, topic: str, window: str) -> str | None:
    """What of a topic can be requested in a window. None for a name that Kafka would not allow: what a terminal
    executes must not come from a disk."""
    if not (is_plain(topic) and is_plain(cluster_id)):
        return None
    return purge(report, cluster_id, "--topic", regex(topic), "--window", window)


def is_plain(name: str) -> bool:
    """Whether a name has only characters that Kafka allows in topic names."""
    return re.fullmatch(r"[A-Za-z0-9._-]+", name) is not None


def regex(name: str) -> str:
    """A topic's name as an expression that matches nothing else: of the characters Kafka allows only the dot is
    special."""
    return name.replace(".", r"\.")
