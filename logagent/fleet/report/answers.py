"""What an operator asks first: where the bytes are, what can be reclaimed, what is at risk, what to do next.

Pure: rows in, the section `answers` of `report.json` out. Every figure covers all rows of its table, not only those
shown on the page.

What can be reclaimed, and what prevents it: now, at the next restart, only with approval, not yet due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from logagent.base import records
from logagent.base.config.settings import CleanupSettings
from logagent.base.units import LAST_MS, counted, in_units
from logagent.fleet.report.output import Output
from logagent.fleet.report.usage import total
from logagent.fleet.tables.choice import Choice, Row
from logagent.fleet.tables.frames import Scratch, at_most
from logagent.store.contract import LATER_DAYS, SOON_DAYS, WINDOWS

KEPT_SECONDS = CleanupSettings().stray_retention // 1000
"""How long a stray is kept where its agent does not say when it is due: the default of `cleanup.stray_retention`."""
TOPIC = ["cluster_id", "topic", "topic_id"]
PLACE = ["cluster_id", "node_id", "log_dir"]
SUMS = (
    *("orphans", "orphan_bytes", "overdue", "barred", "dirs_only", "bytes_only"),
    *(f"{kind}_{window}" for kind in ("dirs", "reclaim", "requestable", "asked") for window in WINDOWS),
)
"""`requestable`: what `topics purge` plans of it without another option, and `asked`: its bytes. All bytes are
allocated ones: what a file system gives back. A preallocated index is 10 MiB long and has next to none."""
SOONER = ("now", "restart")
"""The windows that `topics purge --window` takes."""
MOST_TOPICS = 5
_SPELLED = r"\\udc[89a-f][0-9a-f]"


def windowed(rows: DataFrame, held: Column | None = None) -> DataFrame:
    """`rows` with `window` and `due_at` filled in; they have `kind`, `age_seconds`, `marked_at`, `only_copy`.

    The agent's answer counts, because it knows the holder of the log dir and its own retention; the fleet knows one
    thing better: an orphan that is the only copy left needs approval. If the agent does not say, the broker is assumed
    to be running: at its next start it loads current dirs, moves future dirs and purges marked ones; strays are due
    after their retention, but for those that are `held`, which their host would not remove unless somebody approves it.
    An obstacle without a window must be repaired first, and stays as it is.
    """
    kept = fn.coalesce(fn.col("age_seconds") >= KEPT_SECONDS, fn.lit(False))
    stray = fn.col("kind") == "stray"
    derived = (
        fn.when(fn.col("obstacle").isNotNull(), fn.lit(None))
        .when(stray & kept, "now" if held is None else fn.when(held, "approval").otherwise("now"))
        .when(stray, "later")
        .otherwise("restart")
    )
    named = fn.coalesce("window", derived)
    only = ~stray & fn.coalesce("only_copy", fn.lit(False)) & named.isNotNull()
    window = fn.when(only, "approval").otherwise(named)
    kept_until = at_most(fn.unix_millis("marked_at") + KEPT_SECONDS * 1000, LAST_MS)
    due = fn.when(fn.col("window") == "later", fn.timestamp_millis(kept_until))
    return rows.withColumn("window", window).withColumn("due_at", fn.coalesce("due_at", due))


def row_id() -> Column:
    """The stable id of a directory: what `topics purge --id` takes; null for what cannot be requested. For a report
    without it that command computes the same (`deletion/command/topics.py`)."""
    parts = ("cluster_id", fn.col("node_id").cast("string"), "log_dir", "name", fn.coalesce("topic_id", fn.lit("")))
    return fn.when(_is_requestable(), fn.substring(fn.sha2(fn.concat_ws("\n", *parts), 256), 1, 16))


def _is_requestable() -> Column:
    """Whether a request can name the directory, which agents find by topic id, name and log dir (`RequestedDirectory`).
    A byte that is not UTF-8 is spelled out in the store: no such name is on the disk."""
    named = fn.col("topic").rlike("^[a-zA-Z0-9._-]{1,249}$") & fn.col("topic_id").rlike(f"^{records.ID_SHAPE}$")
    spelled = fn.col("name").rlike(_SPELLED) | fn.col("log_dir").rlike(_SPELLED)
    return named & (fn.col("partition") >= 0) & ~spelled & (fn.length("log_dir") <= 4096)


@dataclass
class Reclaimable:
    """`places`: `SUMS` of every log dir that has any; `topics`: the same by topic, a frame; `largest`: the names with
    the most to reclaim, whatever their topic ids, and on how many nodes something can be requested (`nodes_<window>`),
    rows of the driver; `next_due_ms`: when the next directory falls due."""

    places: dict[tuple[str, int, str], dict[str, int]]
    topics: DataFrame
    largest: list[dict[str, Any]]
    next_due_ms: int | None


def reclaim(output: Output, scratch: Scratch) -> Reclaimable:
    """Sums of the tables `orphans` and `leftovers` as they were written. An abandoned move is in both, and counts
    once."""
    columns = [*PLACE, "topic", "topic_id", "kind", "allocated", "window", "due_at", "id", "inode"]
    orphans = output.written("orphans").select(*columns, fn.lit(True).alias("is_orphan"), "only_copy")
    others = output.written("leftovers").where(fn.col("why") != "abandoned")
    none = [fn.lit(False).alias("is_orphan"), fn.lit(False).alias("only_copy")]
    whole = orphans.unionByName(others.select(*columns, *none))
    sums = [_sum(name) for name in SUMS]
    due = fn.min(fn.when(fn.col("window") == "later", fn.unix_millis("due_at"))).alias("due")
    rows = whole.groupBy(*PLACE).agg(*sums, due).collect()
    places = {(r["cluster_id"], r["node_id"], r["log_dir"]): {name: r[name] for name in SUMS} for r in rows}
    dues = [r["due"] for r in rows if r["due"] is not None]
    nodes = [
        fn.collect_set(fn.when(_asked_in(window), fn.col("node_id"))).alias(f"nodes_{window}") for window in SOONER
    ]
    topics = scratch.keep("reclaim_topics", whole.groupBy(*TOPIC).agg(*sums, *nodes))
    return Reclaimable(places, topics, _largest(topics), min(dues, default=None))


def _largest(topics: DataFrame) -> list[dict[str, Any]]:
    """By name, as `topics purge --topic` selects: a recreated topic has directories of several ids."""
    sums = [fn.try_sum(name).alias(name) for name in SUMS]
    nodes = [fn.size(fn.array_distinct(fn.flatten(fn.collect_list(f"nodes_{w}")))).alias(f"nodes_{w}") for w in SOONER]
    most = fn.col("reclaim_now") + fn.col("reclaim_restart")
    named = topics.where(fn.col("topic").isNotNull()).groupBy("cluster_id", "topic").agg(*sums, *nodes)
    largest = named.where(most > 0).orderBy(most.desc(), "cluster_id", "topic").limit(MOST_TOPICS)
    return [row.asDict() for row in largest.collect()]


def _asked_in(window: str) -> Column:
    """Whether `topics purge` plans the row for this window: it has an id, it is still known which directory it is, and
    its topic is not spared (`dir_names.why_spared`)."""
    spared = fn.coalesce(fn.startswith("topic", fn.lit("_")), fn.lit(False))
    return (fn.col("window") == window) & fn.col("id").isNotNull() & fn.col("inode").isNotNull() & ~spared


def _sum(name: str) -> Column:
    kind, _, window = name.partition("_")
    if name in ("orphans", "orphan_bytes"):
        rows: Column = fn.col("is_orphan")
    elif window == "only":
        rows = fn.col("only_copy")
    elif name == "barred":
        rows = fn.col("window").isNull()
    elif name == "overdue":
        rows = fn.col("kind") == "delete"
    elif kind in ("requestable", "asked"):
        rows = _asked_in(window)
    else:
        rows = fn.col("window") == window
    counts = name == "orphans" or kind in ("dirs", "requestable")
    value = fn.try_sum(fn.when(rows, fn.lit(1) if counts else fn.col("allocated")).otherwise(0))
    return fn.coalesce(value, fn.lit(0)).cast("bigint").alias(name)


BINS = 20
"""Log dirs are counted by fullness in steps of five per cent."""
NEARLY_FULL = 0.95
STEPS, MOST_URGENT = 6, 2


def disks(by_log_dir: Iterable[Row]) -> Row:
    """Where the bytes are. `fullness[n]`: log dirs that are from 5n % to 5(n+1) % full; the last one includes full
    ones."""
    rows = list(by_log_dir)
    bins = [0] * BINS
    for row in rows:
        if row["used_share"] is not None:
            bins[min(int(row["used_share"] * BINS), BINS - 1)] += 1
    sums = {name: total(rows, name) or 0 for name in ("size", "used", "free")}
    nearly = sum(_is_nearly_full(row) for row in rows)
    return {**sums, "log_dirs": len(rows), "fullness": bins, "nearly_full": nearly, "unread": len(rows) - sum(bins)}


def reclaimable(
    by_log_dir: Iterable[Row],
    places: Mapping[tuple[str, int, str], Mapping[str, int]],
    next_due: str | None,
    by_host: Iterable[Row],
) -> Row:
    """What can be reclaimed, by window: directories, bytes, and on how many hosts; and what is not counted in it."""
    found: Row = {}
    for window in WINDOWS:
        hosts = {key[:2] for key, sums in places.items() if sums[f"dirs_{window}"]}
        dirs, size = (sum(sums[f"{kind}_{window}"] for sums in places.values()) for kind in ("dirs", "reclaim"))
        able, asked = (sum(sums[f"{kind}_{window}"] for sums in places.values()) for kind in ("requestable", "asked"))
        found[window] = {"dirs": dirs, "bytes": size, "hosts": len(hosts), "requestable": able, "asked_bytes": asked}
    rows = list(by_log_dir)
    overdue = sum(sums["overdue"] for sums in places.values())
    marked = max(0, (total(rows, "delete") or 0) - overdue)
    hidden = {name: max(0, total(rows, name) or 0) for name in ("open_removed", "open_unread", "unexplained")}
    barred = sum(sums["barred"] for sums in places.values())
    unread = sum(host["unread_processes"] != 0 for host in by_host)
    return found | {"next_due": next_due, "barred": barred, "marked": marked, **hidden, "unread_hosts": unread}


OF_NO_ACCOUNT = 0.01
"""Of a file system, what is unexplained anyway, such as its own metadata. An agent that is not root hardly ever reads
every process: were each of them a warning, nobody would read it."""


def doubts(by_log_dir: Sequence[Row], unread: int, pace_unknown: int) -> Iterator[str]:
    """What the figures here are short of, as lines of `warnings`. `unread`, `pace_unknown`: of `disks` and `risks`."""
    if unread:
        yield f"{counted(unread, 'log dir')} without figures: what is used and free there is not counted"
    if pace_unknown:
        some = f"{pace_unknown} of {len(by_log_dir)}"
        yield f"how fast a log dir fills is not known of {some}: that needs figures of two dates"
    hiding = [row for row in by_log_dir if row["open_unread"] > OF_NO_ACCOUNT * (row["size"] or 0)]
    if hiding:
        hosts = counted(len({(row["cluster_id"], row["node_id"]) for row in hiding}), "host")
        most, unit = in_units(sum(row["open_unread"] for row in hiding))
        yield (
            f"removed files that processes hold open: on {hosts} up to {most:.1f} {unit} more than counted, as agents"
            " could not read every process there (logagent scan --json as root counts all: open_removed)"
        )


def risks(
    choice: Choice,
    by_log_dir: Iterable[Row],
    growth: Iterable[Row],
    lost: tuple[int, int],
    elsewhere: int,
    only: tuple[int, int],
) -> Row:
    """What is at risk. `lost`: partitions without a copy, and their replicas; `elsewhere`: replicas missing that have
    one; `only`: orphans that are the only copy, and their bytes."""
    paces, places = list(growth), list(by_log_dir)
    ahead = sorted(row["days_to_full"] for row in paces if row["days_to_full"] is not None)
    health = Counter(row["health"] for row in places)
    known = {tuple(row[name] for name in PLACE) for row in paces}
    causes = Counter(host["cause"] for host in choice.hosts if not host["counts"])
    return {
        "no_copy": lost[0],
        "no_copy_replicas": lost[1],
        "missing_elsewhere": elsewhere,
        "only_copies": {"dirs": only[0], "bytes": only[1]},
        "full_soon": sum(days <= SOON_DAYS for days in ahead),
        "full_later": sum(days <= LATER_DAYS for days in ahead),
        "next_full_days": ahead[0] if ahead else None,
        "pace_unknown": sum(tuple(row[name] for name in PLACE) not in known for row in places),
        "offline": health["offline"],
        "read_only": health["read-only"],
        "full": health["full"],
        "unknown": [{"cause": cause, "hosts": hosts} for cause, hosts in causes.most_common()],
    }


def steps(by_log_dir: list[Row], growth: Iterable[Row], topics: Iterable[Row], risk: Mapping[str, Any]) -> list[Row]:
    """The few things to do next, in order of need: log dirs that are full or filling up, by the time that is left; what
    is offline, read-only or without any copy; then the host and the topics with the most to reclaim."""
    urgent = _filling(by_log_dir, growth)
    found = urgent[:MOST_URGENT]
    for what, count in (("offline", "offline"), ("read-only", "read_only"), ("no-copy", "no_copy")):
        if risk[count]:
            found.append(_step(what, {}, 0, None, hosts=risk[count]))
    hosts, names = Counter[tuple[str, int]](), dict[tuple[str, int], Row]()
    for row in by_log_dir:
        key = (row["cluster_id"], row["node_id"])
        names[key] = row
        hosts[key] += row["reclaim_now"]
    seen = {(step["cluster_id"], step["node_id"]) for step in found}
    largest = [key for key, gives in hosts.most_common(STEPS) if gives and key not in seen]
    found += [_step("host", names[key], hosts[key], "now") for key in largest[:1]]
    of_topics = [_of_topic(row) for row in list(topics)[:2]]
    # However much is urgent, one step says what a request gives back.
    return [*found[: STEPS - bool(of_topics)], *of_topics][:STEPS]


def _filling(by_log_dir: Iterable[Row], growth: Iterable[Row]) -> list[Row]:
    """Steps for log dirs that are full, nearly full, or filling up with something to reclaim; a file system once. How
    fast one fills that is nearly full may not be known: it comes after those with less than a day."""
    ahead = {
        (row["cluster_id"], row["node_id"], row["log_dir"]): row["days_to_full"]
        for row in growth
        if row["days_to_full"] is not None and row["days_to_full"] <= LATER_DAYS
    }
    found = []
    for row in by_log_dir:
        is_full = row.get("health") == "full"
        days = 0.0 if is_full else ahead.get((row["cluster_id"], row["node_id"], row["log_dir"]))
        window = _sooner(row)
        gives = row[f"reclaim_{window}"]
        if row.get("shares_with") or not (is_full or _is_nearly_full(row) or (days is not None and gives)):
            continue
        step = _step("log-dir", row, gives, window if gives else None, days=days)
        found.append(((1.0 if days is None else days, -(row["used_share"] or 0), -gives), step))
    return [step for _, step in sorted(found, key=lambda each: each[0])]


def _of_topic(row: Mapping[str, Any]) -> Row:
    """What `topics purge` plans for it in one window; where it plans nothing, what can be reclaimed by other means."""
    window = max(SOONER, key=lambda each: (row[f"asked_{each}"], row[f"reclaim_{each}"]))
    able = row[f"requestable_{window}"]
    gives = row[f"asked_{window}" if able else f"reclaim_{window}"]
    return _step("topic", row, gives, window, hosts=row[f"nodes_{window}"]) | {"requestable": able}


def _is_nearly_full(row: Row) -> bool:
    """As the page rounds it: the figure and the rows that it leads to are the same."""
    return row["used_share"] is not None and round(row["used_share"], 4) >= NEARLY_FULL


def _sooner(row: Row) -> str:
    """The window that gives back more: the figure beside it is of this window alone."""
    return "now" if row["reclaim_now"] >= row["reclaim_restart"] else "restart"


def _step(
    what: str, row: Mapping[str, Any], gives: int, window: str | None, *, days: float | None = None, hosts: int = 1
) -> Row:
    named = {name: row.get(name) for name in ("cluster_id", "node_id", "host", "topic")}
    log_dir = row.get("log_dir") if what == "log-dir" else None
    made = {"what": what, **named, "log_dir": log_dir, "bytes": gives, "window": window, "days": days, "hosts": hosts}
    return made | {"requestable": None}
