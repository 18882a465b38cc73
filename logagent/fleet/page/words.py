"""The page's words: what each table is, how its rows are ordered, and why it is empty when it is; how much of the fleet
a report covers; names, figures, times and links as people read them.

A directory name can contain any bytes: control characters, right-to-left overrides, markup, bytes that are not UTF-8
(which reach us as lone surrogates and cannot be encoded). `visible` spells all of those out, so that two different
names never look the same because of a character that cannot be seen; `esc` makes text safe in HTML and SVG, in element
content and in double-quoted attributes alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from html import escape
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import urlencode

from logagent.base.units import in_units
from logagent.store.contract import NOT_COMPARED
from logagent.verdict.rules import ORPHAN_REASONS

MISSING = "–"
# Days beyond which a trend says only "not soon".
LONG_AHEAD = 3650
MINUS = "\u2212"
MINUTE, HOUR, DAY = 60, 3600, 86400


def exact(number: int) -> str:
    """1234567 -> "1,234,567", with a real minus sign."""
    return f"{number:,}".replace("-", MINUS)


def size(number: int) -> str:
    """Bytes in binary units with three significant digits: "0 B", "1,023 B", "1.50 GiB", "15.0 TiB", "150 MiB"."""
    sign, value = (MINUS, -number) if number < 0 else ("", number)
    if value < 1024:
        return f"{sign}{value:,} B"
    scaled, unit = in_units(value, below=1023.5)
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{sign}{scaled:,.{digits}f} {unit}"


def percent(share: float) -> str:
    """0.123 -> "12.3 %"; a share above zero never reads as 0 %, one below 1 never as 100 %."""
    value = share * 100
    if 0 < value < 0.05:
        return "< 0.1 %"
    if 99.95 <= value < 100:
        return "> 99.9 %"
    return f"{value:.1f} %"


def age(seconds: float) -> str:
    """A length of time in its two largest units: "45 s", "12 min", "3 h 20 min", "3 d 4 h", from ten days on "12 d"."""
    sign, left = (MINUS, -seconds) if seconds < 0 else ("", seconds)
    whole = int(left)
    if whole < MINUTE:
        return f"{sign}{whole} s"
    if whole < HOUR:
        return f"{sign}{whole // MINUTE} min"
    if whole < DAY:
        return f"{sign}{whole // HOUR} h" + _rest(whole % HOUR // MINUTE, "min")
    if whole < 10 * DAY:
        return f"{sign}{whole // DAY} d" + _rest(whole % DAY // HOUR, "h")
    return f"{sign}{whole // DAY:,} d"


def days(value: float) -> str:
    """Days ahead: "< 1 d", "4.5 d", "120 d"; beyond ten years "> 10 y", because no trend reaches that far."""
    if value < 1:
        return "< 1 d"
    if value > LONG_AHEAD:
        return "> 10 y"
    return f"{value:.1f} d" if value < 10 else f"{value:,.0f} d"


def ratio(value: float) -> str:
    """1.0 is the mean: "1.30×"."""
    return f"{value:.2f}×" if value < 100 else f"{value:,.0f}×"


def _rest(value: int, unit: str) -> str:
    return f" {value} {unit}" if value else ""


def moment(value: str) -> str:
    """An RFC 3339 time as "21 Nov 2026, 13:37 UTC"; anything else is returned as it is."""
    parsed = parse_time(value)
    return value if parsed is None else f"{parsed.day} {parsed:%b %Y, %H:%M} UTC"


def day(value: str) -> str:
    """An ISO date as "21 Nov 2026"; anything else is returned as it is."""
    try:
        parsed = datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return value
    return f"{parsed.day} {parsed:%b %Y}"


def weekday(value: str) -> str:
    """An ISO date as "Sat 21 Nov"."""
    parsed = date.fromisoformat(value)
    return f"{parsed:%a} {parsed.day} {parsed:%b}"


def parse_time(value: str) -> datetime | None:
    """The UTC time that an RFC 3339 text names; None for anything else (a time without an offset does not count)."""
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if parsed.tzinfo is None else parsed.astimezone(UTC)


def plural(count: int, one: str, many: str = "") -> str:
    return f"{exact(count)} {one if count == 1 else many or one + 's'}"


# Longest name shown in full: a directory name has at most 255 bytes, a path 4,095. The CSV has the whole name.
LONGEST = 300

_PLAIN = re.compile(r"[!-\[\]-~]+(?: [!-\[\]-~]+)*")
_LONE_BYTE = re.compile(r"\\udc[89a-f][0-9a-f]")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Letters and marks by category that nevertheless draw nothing: joiners, fillers, variation selectors, blank braille.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_MARKS = frozenset({"Mn", "Mc", "Me"})
# More combining marks than this on one letter climb over the neighbouring lines; no script needs them.
_MOST_MARKS = 2


def spelled(char: str) -> str:
    r"""`char` as an escape: `\u202e`, `\udcff`, `\U000e0041`; the same form as our JSON and CSV use."""
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_hidden(char: str) -> bool:
    if char == " ":
        return False
    if char in _BLANK or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return True
    if "\u180b" <= char <= "\u180f":
        return True
    return unicodedata.category(char) in _HIDDEN_CATEGORIES


def _pieces(name: str) -> list[tuple[str, bool]]:
    """`name` cut into (text, is an escape). A backslash doubles, so that an escape cannot be forged, except in the six
    characters `\\udcXX` by which the fleet store spells a byte that is not UTF-8: those are an escape."""
    pieces: list[tuple[str, bool]] = []
    done = 0
    for byte in _LONE_BYTE.finditer(name):
        pieces += _char_pieces(name[done : byte.start()], starts=done == 0, ends=False)
        pieces.append((byte.group(), True))
        done = byte.end()
    pieces += _char_pieces(name[done:], starts=done == 0, ends=True)
    return [
        ("".join(text for text, _ in run), is_escape) for is_escape, run in groupby(pieces, key=lambda piece: piece[1])
    ]


def _char_pieces(name: str, *, starts: bool, ends: bool) -> Iterator[tuple[str, bool]]:
    """Each character of a part of a name, spelled out if it is invisible. `starts`, `ends`: whether the part is at that
    end of the name."""
    marks = 0
    last = len(name) - 1
    for index, char in enumerate(name):
        is_mark = unicodedata.category(char) in _MARKS
        marks = marks + 1 if is_mark else 0
        stacked = is_mark and (marks > _MOST_MARKS or index == 0)
        at_edge = (index == 0 and starts) or (index == last and ends)
        blank = char == " " and (at_edge or (index > 0 and name[index - 1] == " "))
        if char == "\\":
            yield "\\\\", True
        elif blank or stacked or _is_hidden(char):
            yield spelled(char), True
        else:
            yield char, False


def shortened(name: str, longest: int) -> str:
    """`name` with at most `longest` characters; what is cut off shows as an ellipsis."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


@lru_cache(maxsize=16_384)
def visible(name: str, longest: int = LONGEST) -> str:
    """`name` as plain text (not yet HTML) in which every character can be seen; always encodable as UTF-8.

    Names of plain ASCII come back unchanged. Names longer than `longest` characters end in an ellipsis.
    """
    if len(name) <= longest and _PLAIN.fullmatch(name):
        return name
    return "".join(text for text, _ in _pieces(shortened(name, longest)))


def can_be_pasted(text: str) -> bool:
    """Whether every character can be seen and is what it seems: what is pasted into a shell is then what was read."""
    return visible(text, len(text)) == text.replace("\\", "\\\\")


def esc(text: str, longest: int = LONGEST) -> str:
    """`text` made visible and escaped for HTML or SVG content and double-quoted attributes."""
    return escape(visible(text, longest), quote=True)


@lru_cache(maxsize=16_384)
def name_html(name: str) -> str:
    """`name` as HTML content, its escapes marked up so that they cannot be mistaken for the name's own text."""
    if len(name) <= LONGEST and _PLAIN.fullmatch(name):
        return escape(name, quote=True)
    return "".join(
        f'<span class="x">{escape(text)}</span>' if is_escape else escape(text, quote=True)
        for text, is_escape in _pieces(shortened(name, LONGEST))
    )


def link(table: str, content: str, **wanted: Any) -> str:
    """A link with the HTML `content` to the rows of a table that have exactly these values; `key__min` and `key__max`
    bound a figure, `sort` names a column (`-`: largest first)."""
    words = urlencode({key.replace("__", "."): visible(str(value)) for key, value in wanted.items()})
    return f'<a href="#{table}{"?" + esc(words, 2000) if words else ""}">{content}</a>'


def figure(count: int, table: str, content: str, **wanted: Any) -> str:
    """`content` as a link to its rows; plain where there are none: no link leads to an empty table."""
    return link(table, content, **wanted) if count else content


Report = Mapping[str, Any]
UNKNOWN_WORDS = {
    "silent": "silent",
    "never heard": "never heard of",
    "broken file": "with a broken file",
    "contradiction": "that contradict each other",
    "moved": "whose log dirs moved to another node",
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
    unread = report["answers"]["disks"]["unread"]
    return "at least " if unknown_total(report) or undecided_clusters(report) or unread else ""


WINDOWS = (
    ("now", "Now"),
    ("restart", "At next broker restart"),
    ("approval", "Only with approval"),
    ("later", "Not yet due"),
)
"""What stands in the way of reclaiming, as the page calls it."""
MEANT = {
    "now": "can be reclaimed now: the host would remove it",
    "restart": "can be reclaimed at the next start of the broker",
    "approval": "can be reclaimed only with approval: the only copy left, or its host refuses it without",
    "later": "can be reclaimed when its retention is over",
}


def not_compared(report: Mapping[str, Any]) -> int:
    """How many replicas are not known to be missing, nor not to be, on hosts that report."""
    return sum(row["replicas"] for row in report["answers"]["replicas"]["not_compared"])


def not_compared_words(report: Mapping[str, Any]) -> str:
    """How many these are, on how many hosts, and why."""
    rows = report["answers"]["replicas"]["not_compared"]
    if not rows:
        return "0 replicas could not be compared"
    # Several reasons have their total first: it is how many rows the words open.
    whole = plural(not_compared(report), "replica") if len(rows) > 1 else None
    each = (
        f"{exact(row['replicas']) if whole else plural(row['replicas'], 'replica')}"
        f" on {plural(row['hosts'], 'host')} ({NOT_COMPARED[row['reason']]})"
        for row in rows
    )
    some = report["answers"]["replicas"]["no_copy"]
    lost = f"; of {plural(some, 'partition')} among them no copy was found" if some else ""
    return f"{f'{whole} ' if whole else ''}could not be compared: {', '.join(each)}{lost}"


def replica_words(report: Mapping[str, Any]) -> str:
    """What the expected replicas come to: all of them, in one line."""
    total = report["answers"]["replicas"]["total"]
    known = (
        f"{exact(total['found'])} found, {exact(total['missing'])} missing, {exact(not_compared(report))} not compared"
    )
    others = f"{exact(total['gone'])} not assigned any more, {exact(total['not_heard'])} on unknown hosts"
    return f"{plural(total['expected'], 'replica')} expected: {known}, {others}"


def acts_unknown_words(report: Mapping[str, Any]) -> str:
    """How many agents do not say what they did; empty if all do."""
    unknown = report["hosts"]["acts_unknown"]
    return f"What {plural(unknown, 'agent')} did is not known: older, or without a journal." if unknown else ""


def is_all_compared(report: Mapping[str, Any]) -> bool:
    """Whether nothing is left that could not be compared, and nothing to know before the figures are believed: else no
    figure of zero is an all-clear."""
    answers, tables = report["answers"], report["tables"]
    left = (
        not_compared(report),
        answers["disks"]["unread"],
        answers["risk"]["pace_unknown"],
        tables["undecided"]["rows"],
        report["warnings"],
        any(change["by_agents"]["unknown_hosts"] for change in answers["changes"]),
    )
    return not (any(left) or unknown_total(report) or undecided_clusters(report))


def full_words(ahead: float | None) -> str:
    """How full a log dir is that is one of the first things to do: `ahead` days until it is full, if that is known."""
    if ahead is None:
        return "nearly full"
    if not ahead:
        return "full"
    return f"full in {max(round(ahead * 24), 1)} h" if ahead < 2 else f"full in {days(ahead)}"


class Words(NamedTuple):
    """`title` heads the section, `lead` says what it shows, `order` completes "All 12 rows, …", `empty` says why there
    are none."""

    title: str
    lead: str
    order: str
    empty: str


WORDS: dict[str, Words] = {
    "log_dir_health": Words(
        "Log dirs, hosts and agents that need attention",
        "Offline, read-only and full log dirs; hosts not heard from; agents that are too old, whose clock "
        "is off, or whose verdicts differ from this report's.",
        "by finding",
        "Every host that reported has its log dirs online and writable, a current agent and a clock in step.",
    ),
    "usage_clusters": Words(
        "Clusters",
        "What the disks of each cluster hold. Verdicts are “unknown” where no complete, current assignment "
        "file of the cluster was there to decide by.",
        "largest first",
        "No cluster has a snapshot that counts.",
    ),
    "usage_hosts": Words(
        "Hosts",
        "What the disks of each host hold, and what can be reclaimed there. A host leads to its log dirs.",
        "largest first",
        "No host has a snapshot that counts.",
    ),
    "usage_log_dirs": Words(
        "Log dirs",
        "Everything used is accounted for; what remains is called unexplained. A log dir leads to the topics that "
        "have something to reclaim in it.",
        "fullest first",
        "No host has a snapshot that counts.",
    ),
    "usage_topics": Words(
        "Topics",
        "All copies of all partitions of a topic, on every host that reported.",
        "largest first",
        "No partition directory was seen on any host that reported.",
    ),
    "growth": Words(
        "Growth and days until full",
        "By least squares over the stored figures of at least two dates. A topic is counted over the hosts that "
        "reported on each of its dates: one that is new, or was silent, is no growth and no shrinkage.",
        "soonest full first",
        "No figure yet: growth needs snapshots of at least two dates of the same log dir or topic.",
    ),
    "directories": Words(
        "Directories: orphans, leftovers, undecided",
        "Orphans: their topic is gone, was created anew, or has no replica on this broker. Leftovers: strays, overdue "
        "deletions. Undecided ones are never acted on. A copy that is the only or the longest one left in the fleet is "
        "marked: removing it may lose records.",
        "largest first",
        "No orphan, no leftover and nothing undecided on the hosts that reported.",
    ),
    "missing_replicas": Words(
        "Missing replicas",
        "Assigned to a broker before its agent looked and afterwards, and on none of its disks.",
        "by topic and partition",
        "Every assigned replica that could be compared was found on the disks of its broker.",
    ),
    "undecided_replicas": Words(
        "Replicas that could not be compared",
        "Assigned and not found, but not known to be missing: only assignments that are younger than the snapshot have "
        "them (not_yet), they may be in a log dir that could not be read (not_read), or nothing shows whether they had "
        "to be there (unproven). Those without any copy elsewhere come first.",
        "fewest copies first",
        "Every assigned replica of the hosts that reported was found, or is known to be missing.",
    ),
    "duplicates": Words(
        "Duplicates",
        "The same partition in two log dirs of one host: older brokers refuse to start with it.",
        "largest first",
        "No partition lies in two log dirs of one host.",
    ),
    "deletion_progress": Words(
        "Deletion progress",
        "Copies that requests of logagent topics ask for, open or ended within 30 days. Done: set aside, removed or "
        "absent.",
        "least done first",
        "No request of logagent topics that this report could read is open or ended within 30 days (it reads them "
        "with orders.keys). Directories that brokers marked themselves are in Log dirs, column Delete.",
    ),
    "audit": Words(
        "What agents did",
        "What agents set aside, marked, removed and restored in the last 90 days, by whom and on which claim, also "
        "where it failed: as far as the stored snapshots tell, of the eight days before each. What brokers and people "
        "did without an agent is not here.",
        "newest first",
        "The stored snapshots tell of no act in the last 90 days; each tells of the eight days before it.",
    ),
    "quarantined_input": Words(
        "Rejected input",
        "Files and rows of the landing area that were set aside at ingest, and why. A host with such input "
        "counts as unknown until it delivers a whole snapshot.",
        "by cluster and node",
        "Nothing that the agents delivered was rejected.",
    ),
}

# The order of the sections, and the short names that lead to them.
NAVIGATION: tuple[tuple[str, str], ...] = (
    ("usage_clusters", "Clusters"),
    ("usage_hosts", "Hosts"),
    ("usage_log_dirs", "Log dirs"),
    ("usage_topics", "Topics"),
    ("directories", "Directories"),
    ("growth", "Growth"),
    ("log_dir_health", "Health"),
    ("missing_replicas", "Missing"),
    ("undecided_replicas", "Not compared"),
    ("duplicates", "Duplicates"),
    ("deletion_progress", "Deletion"),
    ("audit", "Audit"),
    ("quarantined_input", "Input"),
)

READING: tuple[tuple[str, str], ...] = (
    (
        "Bytes and allocated",
        "Every figure of bytes is allocated space: what the file system gave the files, and what removing them gives "
        "back. File sizes stand beside it where they differ most: Kafka preallocates the indexes of each active "
        "segment, up to 20 MiB that are hardly there. Point at a figure for the exact one.",
    ),
    (
        "Unknown host",
        "A host whose newest snapshot is missing, incomplete, damaged or too old. It is listed, and left "
        "out of every verdict that would need it.",
    ),
    (
        "Orphan",
        " ".join(f"{reason}: {meaning}." for reason, meaning in ORPHAN_REASONS.items())
        + " __cluster_metadata and caches are never orphans.",
    ),
    (
        "Only copy, longest copy",
        "Among all directories of the same topic id and partition in the fleet, by largest last segment "
        "offset, then newest write. Never remove one without knowing why.",
    ),
    (
        "When",
        "now: the host would remove it. at restart: when its broker starts next, which loads or sets aside what it has "
        "open. approval: only if a person approves it, because it is the only copy left, or no other copy is known to "
        "have all of it. not yet due: when its retention is over.",
    ),
    (
        "Age",
        "How long an orphan has been seen as one, and since when a stray or marked directory has been set aside, on "
        "the host's own clock at the time of its snapshot: a wrong clock does not make anything look old.",
    ),
    (
        "Hidden bytes",
        "Strays, marked deletions, other files, removed files still open, and what nothing explains. "
        "DescribeLogDirs counts current and future logs only.",
    ),
    (
        "Days until full",
        "Free bytes at the pace of all stored dates together (least squares). There is no number where growth is zero "
        "or less.",
    ),
)
