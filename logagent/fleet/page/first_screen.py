"""The first screen: where the bytes are, what can be reclaimed, what is at risk, what to do next. Needs no script.

Every figure is one of `answers` in `report.json`, so it covers all rows of its table, and links to those rows.

The commands that it offers (`command_…`) only show a plan until an operator adds --execute.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from logagent.fleet.page.words import (
    MEANT,
    UNKNOWN_WORDS,
    WINDOWS,
    at_least,
    can_be_pasted,
    cluster_name,
    day,
    days,
    esc,
    exact,
    figure,
    full_words,
    is_all_compared,
    link,
    name_html,
    nobody_reported,
    not_compared,
    not_compared_words,
    percent,
    plural,
    replica_words,
    size,
    undecided_clusters,
    unknown_total,
    visible,
)
from logagent.store.contract import LATER_DAYS, SOON_DAYS

COMMAND_ON_HOST = "logagent cleanup"
"""Run on the host itself: its agent knows the log dirs, its own configuration and what is due."""


def command_on_full_log_dir(log_dir: str) -> str:
    """On the host, for a log dir without room: what can be freed there, from safest to least safe. The path is left out
    if it is not a plain one: what a terminal executes must not come from a disk."""
    plain = re.fullmatch(r"/[A-Za-z0-9._/-]*", log_dir) is not None
    return f"logagent rescue --log-dir {log_dir}" if plain else "logagent rescue"


def place_of(report: Mapping[str, Any]) -> str:
    """The report's location, as `--report` takes it: a path, or a URI if it is not on a local disk."""
    place = str(report["place"])
    return place.removeprefix("file://").removeprefix("file:") if place.startswith("file:") else place


def purge_words(report: Mapping[str, Any]) -> list[str] | None:
    """`topics purge` for this report with what it needs on the machine that made the page: store, key, and where each
    cluster is reached. None if a path could not be pasted."""
    ways = report["commands"]
    named = (("--report", place_of(report)), ("--store", ways["store"]), ("--key", ways["key"]))
    words = [word for option, value in named if value is not None for word in (option, value)]
    words += [word for cluster, servers in ways["bootstrap"].items()
              for word in ("--bootstrap-server", f"{cluster}={servers}")]  # fmt: skip
    return ["logagent", "topics", "purge", *words] if all(map(can_be_pasted, words)) else None


def purge(report: Mapping[str, Any], cluster_id: str | None, *options: str) -> str | None:
    """That for the rows that `options` select, in one cluster or (None) in all."""
    words = purge_words(report)
    if words is None:
        return None
    cluster = () if cluster_id is None else ("--cluster", cluster_id)
    return " ".join(map(shlex.quote, (*words, *cluster, *options)))


def where_signed(report: Mapping[str, Any]) -> str:
    """Where these commands run as they are, else what they lack; and what has to be on for them to do anything."""
    ways = report["commands"]
    needs = (("store", "--store STORE"), ("key", "--key FILE, where the order key is"))
    lacks = [words for name, words in needs if ways[name] is None]
    unknown = [
        cluster["cluster_id"] for cluster in report["clusters"] if cluster["cluster_id"] not in ways["bootstrap"]
    ]
    lost = [cluster_name(report, each) for each in unknown]
    if lost:
        some = f"{', '.join(lost[:3])}{' and others' if len(lost) > 3 else ''}"
        lacks.append(f"--bootstrap-server ID=HOST:PORT for {some} (or kafka.bootstrap_servers is set; a cluster that is"
                     " not asked makes each directory an only copy)")  # fmt: skip
    where = f"on {ways['host']}" + (f", with {'; '.join(lacks)}" if lacks else ", as it is")
    return (
        f"{visible(where, MOST_WHERE)}; hosts carry it out that have orders.accept = true and this key in orders.keys;"
        " the plan says what wants an approval"
    )


def command_by_window(report: Mapping[str, Any], window: str) -> str | None:
    """For the whole fleet, exactly what the figure counts that can be requested; None if somebody has to look first."""
    return purge(report, None, "--window", window) if window in ("now", "restart") else None


def command_of_topic(report: Mapping[str, Any], cluster_id: str, topic: str, window: str) -> str | None:
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


Report = Mapping[str, Any]
MOST_WHERE = 1000


def copy_html(command: str | None, where: str = "") -> str:
    """A command to copy: text that can be selected, which the script turns into a button. `where`: shown with it. The
    text is the command, to the letter."""
    if command is None:
        return ""
    attribute = f' data-where="{esc(where, MOST_WHERE)}"' if where else ""
    return f'<code class="cmd"{attribute}>{escape(command)}</code>'


def answers_html(report: Report) -> str:
    """The four panels in the order for a narrow screen; a wide one lays them out two by two."""
    if nobody_reported(report):
        return (
            '<div class="note bad"><h2>No host reported</h2><p>There is no usable snapshot of any host. An empty table '
            "below means that nobody could look, not that nothing is there.</p></div>"
        )
    panels = (_risk(report), _reclaim(report), _bytes(report), _next(report))
    return f'<div class="panels">{"".join(panels)}</div>{_new(report)}'


def unknown_html(report: Report) -> str:
    """Hosts about which nothing is known, by cause, and clusters without verdicts. Empty if everything is known."""
    unknown, reporting = unknown_total(report), report["hosts"]["reporting"]
    html = ""
    if unknown:
        causes = ", ".join(
            link("log_dir_health", _of_cause(cause), finding="unknown-host", cause=cause["cause"])
            for cause in report["answers"]["risk"]["unknown"]
        )
        html += (
            f'<p class="banner"><b>{exact(reporting)} of {exact(reporting + unknown)} hosts reporting.</b> '
            f"{exact(unknown)} unknown: {causes}. Not in any figure. "
            f"{link('log_dir_health', 'Show', finding='unknown-host')}</p>"
        )
    undecided = undecided_clusters(report)
    if undecided:
        named = ", ".join(name_html(cluster_name(report, cluster["cluster_id"])) for cluster in undecided[:5])
        more = f" and {exact(len(undecided) - 5)} more" if len(undecided) > 5 else ""
        html += (
            f'<p class="banner"><b>No verdicts for {plural(len(undecided), "cluster")}</b>: {named}{more} '
            f"({esc(str(undecided[0].get('why') or 'no reason given'))}). Nothing there is called an orphan or "
            f"missing; that is not the same as none. {link('usage_clusters', 'Show', verdicts='unknown')}</p>"
        )
    return html


def _of_cause(cause: Mapping[str, Any]) -> str:
    return f"{exact(cause['hosts'])} {UNKNOWN_WORDS.get(cause['cause'], esc(str(cause['cause'])))}"


def _panel(name: str, title: str, body: str) -> str:
    return (
        f'<section class="panel" id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{title}</h2>{body}</section>'
    )


def _bytes(report: Report) -> str:
    disks = report["answers"]["disks"]
    share = disks["used"] / disks["size"] if disks["size"] else 0.0
    words = f"{_exactly(disks['used'])} used of {size(disks['size'])}, {percent(share)}"
    rows = [
        f'<p class="big">{link("usage_hosts", _capital(at_least(report)) + words)}</p>',
        f"<p>{size(disks['free'])} free</p>",
    ]
    for change in report["answers"]["changes"]:
        sign = "+" if change["used"] > 0 else "" if change["used"] < 0 else "±"
        some = "" if change["log_dirs"] == disks["log_dirs"] else f" on {plural(change['log_dirs'], 'log dir')}"
        rows.append(f"<p>since {day(change['date'])} <b>{sign}{size(change['used'])}</b>{some}</p>")
    unread = f", {plural(disks['unread'], 'log dir')} without figures" if disks["unread"] else ""
    over = f"{exact(disks['nearly_full'])} over 95 %"
    nearly = figure(disks["nearly_full"], "usage_log_dirs", over, used_share__min=0.95, sort="-used_share")
    everything = link("usage_log_dirs", plural(disks["log_dirs"], "log dir"))
    rows.append(f"{_histogram(disks['fullness'])}<p>{everything} by fullness: {nearly}{unread}</p>")
    return _panel("disks", "Where are my bytes", "".join(rows))


def _exactly(number: int) -> str:
    return f'<span title="{exact(number)} B">{size(number)}</span>'


def _capital(html: str) -> str:
    return html[:1].upper() + html[1:]


def _histogram(bins: Sequence[int]) -> str:
    """Log dirs by fullness, a bar every five per cent; its height is proportional to the number, but at least one is
    always visible."""
    most, high, step = max([*bins, 1]), 64, 100 / len(bins)
    bars = "".join(
        f'<rect class="{"h-full" if n == len(bins) - 1 else "h-near" if n >= len(bins) - 3 else "h"}" '
        f'x="{n * step + 0.4:.2f}%" width="{step - 0.8:.2f}%" y="{high - (tall := max(count / most * high, 2)):.1f}" '
        f'height="{tall:.1f}"><title>{n * 5} to {n * 5 + 5} % full: {plural(count, "log dir")}</title></rect>'
        for n, count in enumerate(bins)
        if count
    )
    words = ", ".join(f"{n * 5} to {n * 5 + 5} %: {exact(count)}" for n, count in enumerate(bins) if count)
    return (
        f'<svg class="histogram" role="img" width="100%" height="{high + 16}" '
        f'aria-label="Log dirs by fullness: {words}">'
        f'<line class="axis" x1="0" x2="100%" y1="{high}" y2="{high}"/>{bars}'
        f'<text x="0" y="{high + 13}">0 %</text><text x="50%" y="{high + 13}" text-anchor="middle">50 %</text>'
        f'<text x="100%" y="{high + 13}" text-anchor="end">full</text></svg>'
    )


def _reclaim(report: Report) -> str:
    found = report["answers"]["reclaim"]
    whole = sum(found[window]["bytes"] for window, _ in WINDOWS)
    rows = "".join(_window(report, window, label, found[window]) for window, label in WINDOWS)
    unread = plural(found["unread_hosts"], "host")
    more = f" (up to {size(found['open_unread'])} more: on {unread} some processes could not be read)"
    hidden = ", ".join(
        f"{link('usage_log_dirs', label, sort=f'-{column}')} {size(found[key])}{rest}"
        for key, column, label, rest in (
            ("marked", "delete", "marked", ""),
            ("open_removed", "open_removed", "removed but open", more if found["open_unread"] else ""),
            ("unexplained", "unexplained", "unexplained", ""),
        )
    )
    if found["barred"]:
        hidden = f"blocked until something is fixed {size(found['barred'])}, {hidden}"
    return _panel(
        "reclaim",
        "What can I reclaim",
        f'<p class="big">{_capital(at_least(report))}{_exactly(whole)} in '
        f"{link('directories', 'orphans and leftovers', window__known=1)}</p>"
        f'<ul class="lines">{rows}</ul><p class="dim">Not counted: {hidden}</p>',
    )


def _window(report: Report, window: str, label: str, found: Mapping[str, Any]) -> str:
    size_html = figure(found["dirs"], "directories", _exactly(found["bytes"]), window=window, sort="-allocated")
    act = ""
    if found["dirs"] and window in ("now", "restart"):
        command = command_by_window(report, window) if found["requestable"] else None
        act = copy_html(command, where_signed(report))
        act = act or link("usage_clusters", "By cluster", sort=f"-reclaim_{window}")
    elif found["dirs"] and window == "approval":
        act = link("directories", "Review", window=window, sort="-allocated")
    elif found["dirs"]:
        due = report["answers"]["reclaim"]["next_due"]
        act = link("directories", f"Next {esc(day(due[:10]))}" if due else "When", window=window, sort="due_at")
    dirs = f"{plural(found['dirs'], 'dir')} on {plural(found['hosts'], 'host')}"
    if window in ("now", "restart") and 0 < found["requestable"] < found["dirs"]:
        # Marked by a broker, internal, or without an inode: no request names them, so the command plans less.
        dirs += f"; the command: {plural(found['requestable'], 'dir')}, {size(found['asked_bytes'])}"
    figures = f'<b data-answer="{window}">{size_html}</b><small>{dirs}</small>'
    return f'<li><span title="{MEANT[window]}">{label}</span>{figures}<span class="act">{act}</span>'


def _risk(report: Report) -> str:
    risk, unknown = report["answers"]["risk"], unknown_total(report)
    where = "on hosts that report" if unknown else "anywhere"
    judged = len(undecided_clusters(report)) < len(report["clusters"])
    only = risk["only_copies"]
    lost = figure(risk["no_copy"], "missing_replicas", plural(risk["no_copy_replicas"], "replica"), copies_elsewhere=0)
    lost = f"{plural(risk['no_copy'], 'partition')} with no copy {where}" + (f": {lost}" if risk["no_copy"] else "")
    more = report["answers"]["replicas"]["no_copy"]
    lost += f"; {exact(more)} more could not be compared" if more else ""
    elsewhere = f"{plural(risk['missing_elsewhere'], 'replica')} missing, copies elsewhere"
    only_words = plural(only["dirs"], "orphan is the only copy", "orphans are the only copy")
    undecided = report["tables"]["undecided"]["rows"]
    only_words += f", {size(only['bytes'])}"
    only_html = figure(only["dirs"], "directories", only_words, list="orphan", standing="only copy")
    if undecided:
        dirs = plural(undecided, "directory", "directories")
        only_html += f"; {figure(undecided, 'directories', dirs, list='undecided')} undecided"
    full = ", ".join(_full_within(d, risk[n]) for d, n in ((SOON_DAYS, "full_soon"), (LATER_DAYS, "full_later")))
    if unpaced := risk["pace_unknown"]:
        full += f"; not known for {plural(unpaced, 'log dir')}"
    findings = (("offline", risk["offline"]), ("read-only", risk["read_only"]), ("full", risk["full"]))
    ill = ", ".join(figure(n, "log_dir_health", f"{name}: {exact(n)}", finding=name) for name, n in findings)
    lines = [
        _line("no_copy", lost, risk["no_copy"] or more, "bad" if risk["no_copy"] else "warn"),
        _line(
            "missing_elsewhere",
            figure(risk["missing_elsewhere"], "missing_replicas", elsewhere, copies_elsewhere__min=1),
            risk["missing_elsewhere"],
        ),
        _line(
            "not_compared",
            figure(not_compared(report), "undecided_replicas", _capital(not_compared_words(report))),
            not_compared(report),
        ),
        _line("replicas", replica_words(report), 0),
        _line("only_copies", only_html, only["dirs"] or undecided),
        _line("full", f"Log dirs full {full}", risk["full_later"], "bad" if risk["full_soon"] else "warn"),
        _line("ill", f"Log dirs {ill}", sum(n for _, n in findings), "bad"),
    ]
    if not judged:
        lines[:5] = ['<li class="warn">No verdict could be made: missing replicas and only copies are unknown']
    return _panel("risk", "What is at risk", f'<ul class="lines risks">{"".join(lines)}</ul>')


def _full_within(span: int, count: int) -> str:
    words = f"in {span} days: {exact(count)}"
    return figure(count, "growth", words, scope="log_dir", days_to_full__max=span, sort="days_to_full")


def _line(name: str, html: str, count: int, tone: str = "warn") -> str:
    return f'<li class="{tone if count else "calm"}" data-answer="{name}">{html}'


def _next(report: Report) -> str:
    steps = report["answers"]["steps"]
    risk = report["answers"]["risk"]
    if not steps:
        soonest = risk["next_full_days"]
        ahead = "No log dir grows towards full." if soonest is None else f"Next log dir full: in {days(soonest)}."
        if unpaced := risk["pace_unknown"]:
            ahead = f"How fast {plural(unpaced, 'log dir')} grow is not known: that needs two dates."
        calm = not (
            risk["no_copy"] or risk["missing_elsewhere"] or risk["full_soon"] or risk["read_only"] or risk["full"]
        )
        left = _for_a_person(report)
        words = "Nothing to reclaim by a command. See what is at risk."
        if left:
            words = f"Nothing to reclaim by a command. See {', '.join(left)}."
        elif calm and is_all_compared(report):
            words = "Nothing needs you today."
        agents = f'<p class="dim">{agents_html(report)}</p>'
        return _panel("next", "What next", f'<p class="big">{words}</p><p>{ahead}</p>{agents}')
    items = "".join(f"<li>{_step(report, step)}" for step in steps)
    return _panel(
        "next",
        "What next",
        f'<ol class="steps">{items}</ol><p class="dim">Commands preview; add --execute. {agents_html(report)}</p>',
    )


def agents_html(report: Report) -> str:
    """What has to be on for anything to happen, and where it is."""
    hosts = report["hosts"]
    refuse = figure(hosts["refusing"], "usage_hosts", f"{exact(hosts['refusing'])} do not", accepts="none")
    act = figure(hosts["enforcing"], "usage_hosts", plural(hosts["enforcing"], "cleans", "clean"), mode="enforce")
    accept = f"{exact(hosts['accepting'])} of {plural(hosts['reporting'], 'host')} carry out requests"
    unsaid = hosts["reporting"] - hosts["accepting"] - hosts["refusing"]
    refuse += f", {plural(unsaid, 'does', 'do')} not say" if unsaid else ""
    return f"{accept}, {refuse} (orders.accept); {act} up without being asked (cleanup.mode = enforce)."


def _for_a_person(report: Report) -> list[str]:
    """What no step names and somebody has to look at or to approve, as links to it."""
    tables, reclaim = report["tables"], report["answers"]["reclaim"]
    ill, twice, approve = tables["log_dir_health"]["rows"], tables["duplicates"]["rows"], reclaim["approval"]["dirs"]
    found = [
        (ill, figure(ill, "log_dir_health", plural(ill, "finding") + " on hosts and log dirs")),
        (twice, figure(twice, "duplicates", plural(twice, "partition") + " in two log dirs of a host")),
        (approve, figure(approve, "directories", plural(approve, "directory", "directories") + " to approve",
                         window="approval")),
        (reclaim["barred"], f"{size(reclaim['barred'])} blocked until something is fixed"),
    ]  # fmt: skip
    return [words for count, words in found if count]


def _step(report: Report, step: Mapping[str, Any]) -> str:
    what = step["what"]
    if what in ("offline", "read-only"):
        ill = f"{plural(step['hosts'], 'log dir')} {what}"
        return f"<span>{link('log_dir_health', ill, finding=what)}</span>"
    if what == "no-copy":
        replicas = link("missing_replicas", "their replicas", copies_elsewhere=0)
        return f"<span>{plural(step['hosts'], 'partition')} without any copy: find the disks of {replicas}</span>"
    if what == "topic":
        return _topic_step(report, step)
    when = "now" if step["window"] == "now" else "at restart"
    frees = f"frees <b>{size(step['bytes'])}</b> {when}"
    where = "on " + visible(str(step["host"]))
    key = {"cluster_id": step["cluster_id"], "node_id": step["node_id"]}
    if what == "host":
        name = link("usage_log_dirs", name_html(str(step["host"])), **key)
        return f"<span>{name} {frees}</span>{copy_html(COMMAND_ON_HOST, where)}"
    name = link("usage_log_dirs", f"{name_html(str(step['host']))} {name_html(str(step['log_dir']))}", **key)
    gives = f", {frees}" if step["bytes"] else ""
    act = copy_html(command_on_full_log_dir(str(step["log_dir"])), where)
    return f"<span>{name} {full_words(step['days'])}{gives}</span>{act}"


def _topic_step(report: Report, step: Mapping[str, Any]) -> str:
    cluster, topic, window = step["cluster_id"], step["topic"], step["window"]
    name = link("directories", name_html(topic), cluster_id=cluster, topic=topic, window=window)
    if len(report["clusters"]) > 1:
        name += f" in {name_html(cluster_name(report, cluster))}"
    hosts = f", {plural(step['hosts'], 'host')}" if step["hosts"] else ""
    command = command_of_topic(report, cluster, topic, window) if step["requestable"] else None
    when = "now" if window == "now" else "at restart"
    act = copy_html(command, where_signed(report))
    return f"<span>topic {name}{hosts}, frees <b>{size(step['bytes'])}</b> {when}</span>{act}"


def _new(report: Report) -> str:
    changes = report["answers"]["changes"]
    if not changes:
        return '<p class="new dim">Nothing to compare with yet: changes need snapshots of two dates.</p>'
    return "".join(_since(change, report["answers"]["replicas"]["no_copy"]) for change in changes)


def _since(change: Mapping[str, Any], more: int) -> str:
    """Figures of what is new: only what agents cleared has exactly the rows of a table, and is a link. `more`:
    partitions that may have no copy, new or not."""
    lost = change["no_copy"]
    rest = f" ({exact(more)} more could not be compared)" if more else ""
    parts = [
        ("unknown partitions with no copy" if lost is None else plural(lost, "partition") + " with no copy") + rest,
        plural(change["offline"], "log dir") + " offline",
        f"{plural(change['orphans'], 'orphan')} ({size(change['orphan_bytes'])})",
        cleared_words(change, link_rows=True),
    ]
    span = "" if change["days"] == 1 else f" ({change['days']} days)"
    youngest = link("directories", "Orphans, youngest first", list="orphan", sort="age_seconds")
    shown = f" · {youngest}" if change["orphans"] else ""
    return f'<p class="new"><b>New since {day(change["date"])}{span}:</b> {" · ".join(parts)}{shown}</p>'


def cleared_words(change: Mapping[str, Any], *, link_rows: bool = False) -> str:
    """What agents removed since a date, what went otherwise, and of how many agents it is not known."""
    acts = change["by_agents"]
    dirs = f"{plural(acts['dirs'], 'dir')} ({size(acts['bytes'])})"
    if link_rows:
        dirs = figure(acts["dirs"], "audit", dirs, since__min=change["date"], action="remove", outcome="done")
    words = f"cleared by agents {dirs}"
    if acts["otherwise"] or not acts["dirs"]:
        words += f", otherwise {plural(acts['otherwise'], 'dir')} ({size(acts['otherwise_bytes'])})"
    if acts["unknown_hosts"]:
        left = f", {plural(acts['left_out'], 'act')} left out" if acts["left_out"] else ""
        words += f"; what {plural(acts['unknown_hosts'], 'agent')} did is not known in full{left}"
    return words
