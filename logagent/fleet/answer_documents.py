"""The answers in a fleet report: what an operator asks first, each schema defined once."""

from __future__ import annotations

from typing import Literal

from logagent.documents.base import Size, Time, TypedDict, strict

DateText = str


@strict
class DiskAnswer(TypedDict):
    """Where the bytes are; `fullness`: number of log dirs by fullness of their file system, in steps of 5 %; `unread`:
    those without figures."""

    size: Size
    used: Size
    free: Size
    log_dirs: int
    fullness: list[int]
    nearly_full: int
    unread: int


@strict
class DirsAndBytes(TypedDict):
    dirs: int
    bytes: Size


@strict
class WindowAnswer(DirsAndBytes):
    """`requestable`: how many of the directories `topics purge` can request."""

    hosts: int
    requestable: int


@strict
class ReclaimAnswer(TypedDict):
    """What can be reclaimed, by what it has to wait for (`WINDOWS` of the contract). `barred`: what needs a repair
    first. The windows do not include `barred` and the figures after it."""

    now: WindowAnswer
    restart: WindowAnswer
    approval: WindowAnswer
    later: WindowAnswer
    next_due: Time | None
    barred: Size
    marked: Size
    open_removed: Size
    unexplained: Size


@strict
class UnknownCause(TypedDict):
    cause: str
    hosts: int


@strict
class RiskAnswer(TypedDict):
    """`no_copy`: partitions that no reporting host has; `missing_elsewhere`: missing replicas with copies elsewhere;
    `full_soon` and `full_later`: log dirs that are full within 7 and 30 days at their present rate."""

    no_copy: int
    missing_elsewhere: int
    only_copies: DirsAndBytes
    full_soon: int
    full_later: int
    next_full_days: float | None
    offline: int
    read_only: int
    full: int
    unknown: list[UnknownCause]


@strict
class Step(TypedDict):
    """What to do next: it frees `bytes` in `window`. `days`: until the log dir is full. `requestable`: how many
    directories of the topic `topics purge` can request."""

    what: Literal["log-dir", "host", "topic", "offline"]
    cluster_id: str | None
    node_id: int | None
    host: str | None
    log_dir: str | None
    topic: str | None
    bytes: Size
    window: Literal["now", "restart"] | None
    days: float | None
    hosts: int
    requestable: int | None


@strict
class Change(TypedDict):
    """Since an earlier date, on the hosts that reported on both: used bytes of `log_dirs` log dirs; new orphans; former
    orphans, strays and marked directories that are none of these any more; log dirs that went offline; partitions that
    lost their last copy (null: too many to check)."""

    date: DateText
    days: int
    log_dirs: int
    used: int
    offline: int
    orphans: int
    orphan_bytes: Size
    cleared: int
    cleared_bytes: Size
    no_copy: int | None


@strict
class ReportAnswers(TypedDict):
    """What an operator asks first; every figure is over all rows of its table."""

    disks: DiskAnswer
    reclaim: ReclaimAnswer
    risk: RiskAnswer
    steps: list[Step]
    changes: list[Change]
