"""What may differ between two runs, and is masked: a short list of kinds, each with its pattern.

A run is compared with another one of the same checkout on another host at another time. Of most kinds only what
differs between the two is masked, so that what comes from the fixture stays readable and compared. Verdicts, reasons,
guards, hints and order are never masked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import eq


@dataclass(frozen=True)
class Raw:
    """What a case printed on one host. `started`: seconds since the epoch."""

    root: str
    started: float
    text: str


@dataclass(frozen=True)
class Mask:
    """`pattern` finds a value in its group `value`. Without `always` it is masked only where the other run has another
    one in that place. `numbered`: equal values get equal numbers, by first appearance."""

    kind: str
    pattern: re.Pattern[str]
    always: bool = False
    numbered: bool = False
    shown: Callable[[str, float], str] | None = None


NOW = "<time>"


def _offset(seconds: float) -> str:
    """A moment as its distance from the case's beginning, to ten minutes: that a thing is due a day later is kept."""
    tens = round(seconds / 600)
    if tens == 0:
        return NOW
    days, rest = divmod(abs(tens), 144)
    hours, minutes = divmod(rest * 10, 60)
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    return f"<time{'+' if tens > 0 else '-'}{''.join(parts)}>"


def _moment(value: str, started: float) -> str:
    at = datetime.fromisoformat(value.replace(" ", "T").replace("Z", "+00:00")).replace(tzinfo=UTC)
    return _offset(at.timestamp() - started)


def _epoch(value: str, started: float) -> str:
    at = float(value)
    return _offset((at / 1000 if at > 1e11 else at) - started)


def _today(value: str, started: float) -> str:
    """The day of the run; the days of fixtures stay."""
    return "<date>" if abs(datetime.fromisoformat(f"{value}T12Z").timestamp() - started) < 86_400 else value


def _overdue(value: str, _: float) -> str:
    """Seconds past a moment, as that moment."""
    return _offset(-float(value))


def _m(kind: str, pattern: str, **more: object) -> Mask:
    return Mask(kind, re.compile(pattern), **more)  # type: ignore[arg-type]


MASKS = (
    # Random or hashed over inodes and times; a number each, so that rows still point to each other.
    _m("uuid", r"(?<![0-9a-f])(?P<value>[0-9a-f]{32})(?![0-9a-f])", numbered=True),
    _m("sha256", r"(?<![0-9a-f])(?P<value>[0-9a-f]{64})(?![0-9a-f])", numbered=True),
    _m("id", r"(?<![0-9a-f.])(?P<value>[0-9a-f]{16})(?![0-9a-f])", numbered=True),
    _m("id", r'(?:"id": ?"|\bid=)(?P<value>[0-9a-f]{12})(?![0-9a-f])', numbered=True),
    _m("snapshot", r"(?P<value>\b20\d{6}T\d{9}Z)", numbered=True),
    _m("run", r"\b(?P<value>20\d{6}T(?:\d{12}Z-[0-9a-f]{8}|\d{6}Z-[0-9a-f]{12}))\b", numbered=True),
    _m("boot", r'"boot_id": ?"(?P<value>[0-9a-f-]{36})', always=True),
    _m("boot", r'"booted_at": ?"(?P<value>[^"]+)', always=True),
    # A snapshot as it is packed, times and all.
    _m("packed", r'"rows": \d+, "bytes": (?P<value>\d+), "sha256"', always=True),
    _m("time", r"(?P<value>\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?)", shown=_moment),
    _m("time", r"(?<![\d.])(?P<value>1[789]\d{8}(?:\.\d+)?|1[789]\d{11}|1\.[789]\d+e\+09)(?![\d.])", shown=_epoch),
    _m("time", r'"overdue_seconds": ?(?P<value>-?\d+(?:\.\d+)?)', always=True, shown=_overdue),
    _m("time", r"\bmade (?P<value>\d+ \w+ \d{4}, \d\d:\d\d UTC)", always=True),
    _m("date", r"/(?P<value>20\d\d-\d\d-\d\d)/", always=True, shown=_today),
    # Ages of fixtures, and how long something took: they go on between two runs, and between two days.
    _m("age", r"\b(?P<value>\d+(?:\.\d+)?(?:\s+s|[smhd](?: \d+[smhd])?))\s+old\b", always=True),
    _m("age", r'"(?:age_seconds|assignments_age_seconds)": ?(?P<value>\d+(?:\.\d+)?)', always=True),
    _m("duration", r"(?<![\d.])(?P<value>\d+(?:\.\d+)? ms)\b", always=True),
    _m("duration", r'"(?:probe_ms|spent_ms|seconds)": ?(?P<value>\d+(?:\.\d+)?)', always=True),
    _m("duration", r"(?<=  )(?P<value>\d+\.\d s)(?=  )", always=True),
    _m("duration", r"(?:(?<=  )|\bup )(?P<value>\d+s)(?=  | \()", always=True),
    _m("duration", r"(?<!\w)(?:health|cleanup|publish) in (?P<value>\d[\dhms ]*[hms])", always=True),
    _m("duration", r"\bseconds=(?P<value>\d+(?:\.\d+)?)", always=True),
    _m("duration", r"logagent_(?:log_dir_probe|health_round)_seconds(?:\{[^}]*\})? (?P<value>\S+)", always=True),
    _m("duration", r"logagent_\w+_seconds_sum(?:\{[^}]*\})? (?P<value>\S+)", always=True),
    _m("duration", r'logagent_\w+_seconds_bucket\{[^}]*le="[\d.]+"\} (?P<value>\S+)', always=True),
    # Numbers that the kernel gave, and what a process uses.
    _m("pid", r'(?:"pid": ?|\bpid |\bpid=|\bprocess |\b(?:starting|held|hidden) by )(?P<value>\d+)\b', always=True),
    _m("process", r"\nlogagent_process_\w+ (?P<value>\S+)", always=True),
    _m("inode", r'"inode": ?(?P<value>\d+)', always=True),
    _m("device", r'"device": ?(?P<value>\d+)', always=True),
)


# What these replace has another width each time, and the columns of a table follow the widest.
_UNEVEN = re.compile("<(?:age|duration|pid)>")


def _without_widths(text: str) -> str:
    """Tables in which something of an uneven width was masked, without the widths of their columns."""
    lines = text.split("\n")
    for rule in [at for at, line in enumerate(lines) if "────" in line]:
        rows = range(rule - 1, next(at for at in range(rule, len(lines)) if not lines[at] or lines[at][0] in "=-"))
        if any(_UNEVEN.search(lines[at]) for at in rows):
            for at in rows:
                lines[at] = re.sub("─+", "─", re.sub(" {2,}", "  ", lines[at]))
    return "\n".join(lines)


@dataclass
class Masked:
    text: str
    count: Counter[str] = field(default_factory=Counter)
    """How many values of each kind were masked."""


def _hide(
    m: re.Match[str], *, mask: Mask, same: Iterator[bool], numbers: dict[str, int], started: float, count: Counter[str]
) -> str:
    value = m["value"]
    shown = mask.shown(value, started) if mask.shown else f"<{mask.kind}>"
    # What is of the run's own moment is masked whatever the other run has: it may have been the same millisecond.
    if next(same) and shown != NOW:
        return m[0]
    count[mask.kind] += 1
    new = f"<{mask.kind} {numbers.setdefault(value, len(numbers) + 1)}>" if mask.numbered else shown
    at = m.start("value") - m.start()
    return m[0][:at] + new + m[0][at + len(value) :]


def _same(mask: Mask, values: list[str], others: list[str]) -> Iterator[bool]:
    """Of each value, whether the other run has it too: in the same place, because two moments of two runs may be the
    same millisecond in different ones; anywhere, if the runs differ so much that no place is the same."""
    if mask.always:
        return iter([False] * len(values))
    if len(values) == len(others):
        return map(eq, values, others)
    known = set(others)
    return (value in known for value in values)


def masked(own: Raw, other: Raw) -> Masked:
    """`own` with everything masked that may differ from `other`."""
    done, theirs = (Masked(raw.text.replace(raw.root, "<root>")) for raw in (own, other))
    done.count["root"] = own.text.count(own.root)
    for mask in MASKS:
        mine, others = ([m["value"] for m in mask.pattern.finditer(side.text)] for side in (done, theirs))
        for side, raw, values, against in ((done, own, mine, others), (theirs, other, others, mine)):
            same = _same(mask, values, against)
            hide = partial(_hide, mask=mask, same=same, numbers={}, started=raw.started, count=side.count)
            side.text = mask.pattern.sub(hide, side.text)
    done.text = _without_widths(done.text)
    return done
