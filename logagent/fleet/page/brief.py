"""The first screen as ten lines of text, for a mail or a chat: the same figures in the same words, without commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from logagent.fleet.page.text import day, days, exact, moment, percent, plural, size, visible
from logagent.fleet.page.words import (
    UNKNOWN_WORDS,
    WINDOWS,
    at_least,
    cluster_name,
    nobody_reported,
    undecided_clusters,
    unknown_total,
)

Report = Mapping[str, Any]
STEPS = 3


def brief(report: Report) -> str:
    """The content of `report.json` as lines that end in a newline. Names from disks are escaped."""
    return "".join(f"{visible(line)}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"Kafka disks, {moment(report['as_of'])}, {plural(len(report['clusters']), 'cluster')}"
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
    yield f"Used: {least}{size(disks['used'])} of {size(disks['size'])}{share}; {size(disks['free'])} free"
    windows = ", ".join(f"{label.lower()} {size(answers['reclaim'][key]['bytes'])}" for key, label in WINDOWS)
    whole = sum(answers["reclaim"][key]["bytes"] for key, _ in WINDOWS)
    yield f"Reclaimable: {least}{size(whole)}: {windows}"
    yield from _risks(report, answers["risk"])
    for number, step in enumerate(answers["steps"][:STEPS], 1):
        yield f"Next {number}: {_step(report, step)}"
    for change in answers["changes"][:1]:
        used = f"{'+' if change['used'] > 0 else ''}{size(change['used'])}"
        cleared = f"cleared {plural(change['cleared'], 'dir')} ({size(change['cleared_bytes'])})"
        yield f"Since {day(change['date'])}: used {used}, {plural(change['orphans'], 'new orphan')}, {cleared}"


def _risks(report: Report, risk: Mapping[str, Any]) -> Iterator[str]:
    where = "on hosts that report" if unknown_total(report) else "anywhere"
    if len(undecided_clusters(report)) < len(report["clusters"]):
        only = risk["only_copies"]
        yield (
            f"At risk: {plural(risk['no_copy'], 'partition')} with no copy {where}, "
            f"{plural(risk['missing_elsewhere'], 'replica')} missing with copies elsewhere, "
            f"{plural(only['dirs'], 'orphan')} ({size(only['bytes'])}) without another copy"
        )
    yield (
        f"Log dirs: full in 7 days {exact(risk['full_soon'])}, in 30 days {exact(risk['full_later'])}, "
        f"offline {exact(risk['offline'])}, read-only {exact(risk['read_only'])}, full {exact(risk['full'])}"
    )


def _step(report: Report, step: Mapping[str, Any]) -> str:
    if step["what"] in ("offline", "read-only"):
        return f"{plural(step['hosts'], 'log dir')} {step['what']}"
    if step["what"] == "no-copy":
        return f"{plural(step['hosts'], 'partition')} without any copy"
    frees = f"frees {size(step['bytes'])} {'now' if step['window'] == 'now' else 'at restart'}"
    if step["what"] == "topic":
        where = f"in {cluster_name(report, step['cluster_id'])}" if len(report["clusters"]) > 1 else ""
        return f"topic {step['topic']} {where} on {plural(step['hosts'], 'host')} {frees}"
    if step["what"] == "host":
        return f"{step['host']} {frees}"
    full = "nearly full" if not step["days"] else f"full in {days(step['days'])}"
    return f"{step['host']} {step['log_dir']} {full}, {frees}"
