"""Landing → a run of one date: check, choose, parse, reconcile, compact, commit.

The result depends only on what is in landing: the same files give the same rows in the same order in the same number of
files, however many executors ran. A file is taken if its bytes, SHA-256, rows and identity agree with its manifest and
none of its rows is bad; the newest such file of each host counts. Everything else is listed with its reason. Nothing
ingested before is touched: a run counts once its commit exists (`tables/store.py`).

Which dates are to be ingested, and which may leave landing.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from logagent.errors import LogAgentError, ServiceUnreachable
from logagent.fleet.ingest.ingest_lock import NAME, IngestLock
from logagent.fleet.ingest.landing import UNREADABLE, Landed, Landing, Listing, Skipped
from logagent.fleet.ingest.settle import (
    ASIDE,
    DIR_ORDER,
    ROWS_PER_FILE,
    Checked,
    check,
    frame_of,
    key_of,
    quarantine,
    rows_of,
    settle,
    without,
)
from logagent.fleet.page import text as units
from logagent.fleet.tables.choice import HEARD_DAYS, Choice, ReportScope, chosen_rows, silent_frame
from logagent.fleet.tables.choice import choose as choose_hosts
from logagent.fleet.tables.frames import happened, local_frame, reject, tune
from logagent.fleet.tables.parts import KEY, parts, seen, topics
from logagent.fleet.tables.store import Commit, Run, Store
from logagent.store.names import ASSIGNMENTS

MOST_TWICE = 10_000
"""Partitions with two directories on one host that are looked up fast."""
MAX_AGE = timedelta(hours=26)
"""The maximum age of snapshots in `parts`: a report with another age leaves hosts out, or computes its own."""

Say = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ingested:
    """What happened to the files of one date; `rows` are those of the files taken."""

    date: date
    taken: int = 0
    superseded: int = 0
    waiting: int = 0
    rejected: int = 0
    rows: int = 0

    def document(self) -> dict[str, str | int]:
        """For `--json`."""
        return {**asdict(self), "date": self.date.isoformat()}


def ingest(
    store: Store,
    day: date,
    landing: Landing,
    listing: Listing,
    *,
    say: Say = lambda _: None,
    still_ours: Callable[[], None] = lambda: None,
    pinned: frozenset[int] | None = None,
) -> Ingested:
    """Turns what landing has for `day` into a run, and commits it. Raises what Spark raises; then nothing has changed.

    `still_ours` raises if another ingest has taken over the store.
    """
    say(f"{day}: checking files")
    run = store.new_run()
    try:
        found = check(run, landing, listing, day, pinned)
        _write(store, run, found, landing, say)
        still_ours()
        store.add_commit(run.as_commit(day, store.next_number(day)))
    except BaseException:
        run.drop()
        raise
    counts = Counter(e["status"] for e in found.entries)
    taken = sum(e["rows"] for e in found.entries if e["status"] == "taken")
    return Ingested(day, counts["taken"], counts["superseded"], counts["waiting"], counts["rejected"], taken)


def _write(store: Store, run: Run, found: Checked, landing: Landing, say: Say) -> None:
    tune(store.spark, sum(e.get("dirs") or 0 for e in found.chosen("snapshot")))
    say(f"{found.day}: reading {len(found.chosen('assignments'))} assignment files")
    replicas = settle(run, found, landing, "assignments", frame_of(run, found.chosen("assignments"), "assignments"))
    run.write_small("nodes", _nodes(found, replicas))
    frame = frame_of(run, found.chosen("snapshot"), "dirs")
    while True:  # until no host is left out
        say(f"{found.day}: reading {len(found.chosen('snapshot'))} snapshots")
        sums = settle(run, found, landing, "dirs", frame)
        dirs = run.read("dirs")
        said_other = fn.coalesce(fn.col("verdict") != "assigned", fn.lit(False))
        run.write("others", _one_file(dirs.where((fn.col("kind") != "current") | said_other), DIR_ORDER))
        say(f"{found.day}: comparing partitions")
        run.write_small("files", found.files())
        chosen = _choice(store, run, found)
        _parts(store, run, found, chosen)
        twice = _listed_twice(run)
        entries = [e for e in found.chosen("snapshot") if key_of(e) in twice]
        if not entries:
            break
        for entry in entries:
            reject(entry, "directory-twice", f"it lists a directory twice: {twice[key_of(entry)]}")
        frame = without(run, "dirs", entries)
    run.write_small("choice", chosen.rows())
    run.write_small("log_dirs", _log_dirs(found, sums))
    run.write_small("files", found.files())
    run.write_small("quarantine", quarantine(found))
    store.files.delete(f"{run.uri}/{ASIDE}")
    _reconcile(run, found)


def _listed_twice(run: Run) -> dict[tuple[str, int | None], str]:
    """Hosts whose snapshot lists a directory of the same log dir and name twice, each with such a name."""
    place = ["cluster_id", "node_id", "log_dir", "name"]
    odd = run.read("parts").where(fn.size(fn.array_distinct("nodes")) < fn.size("nodes"))
    keys = odd.select(*(fn.col(name).alias(f"k_{name}") for name in KEY))
    few = [row.asDict() for row in keys.limit(MOST_TWICE + 1).collect()]
    others = run.read("others").where(fn.col("kind") != "current").select(*place)
    if few:
        if len(few) <= MOST_TWICE:
            ddl = "k_cluster_id string, k_topic string, k_topic_id string, k_partition int"
            keys = fn.broadcast(local_frame(run.store.spark, few, ddl))
        same = fn.lit(True)
        for name in KEY:
            same = same & fn.col(name).eqNullSafe(fn.col(f"k_{name}"))
        dirs = run.read("dirs").where(fn.col("kind") == "current")
        others = others.unionByName(dirs.join(keys, same, how="left_semi").select(*place))
    twice = others.groupBy(*place).count().where(fn.col("count") > 1)
    one = fn.min(fn.struct("log_dir", "name")).alias("one")
    found = twice.groupBy("cluster_id", "node_id").agg(one).collect()
    return {(row.cluster_id, row.node_id): f"{row.one.log_dir}/{row.one.name}" for row in found}


def _one_file(frame: DataFrame, order: tuple[str, ...]) -> DataFrame:
    return frame.coalesce(1).sortWithinPartitions(*order)


def _nodes(found: Checked, replicas: list[Row]) -> list[Row]:
    """Every node that the assignments name: as a registered broker, as a replica, or both."""
    counted = {(row["cluster_id"], row["node_id"]): row["count"] for row in replicas}
    registered = {(e["cluster_id"], n) for e in found.chosen("assignments") for n in found.brokers[e["file"]]}
    return [
        {"cluster_id": c, "node_id": n, "registered": (c, n) in registered, "replicas": counted.get((c, n), 0)}
        for c, n in sorted(registered | counted.keys())
    ]


def _choice(store: Store, run: Run, found: Checked) -> Choice:
    """The newest snapshots of this date and of earlier dates that were still fresh when the last one arrived."""
    whole = [e for e in found.entries if e["status"] == "taken"]
    as_of = max((happened(e) for e in whole), default=0)
    asked = ReportScope(found.day, as_of, MAX_AGE)
    commits = _commits(store, asked, found.day)
    files = {day: store.small("files", commit) for day, commit in commits.items()}
    nodes = {day: store.small("nodes", commit) for day, commit in commits.items()}
    files[found.day] = found.files()
    nodes[found.day] = store.small("nodes", run.as_commit(found.day, 0))
    return choose_hosts(asked, files, nodes)


def _commits(store: Store, asked: ReportScope, but: date) -> dict[date, Commit]:
    known = {day: store.commit_of(day) for day in asked.heard if day != but and day in store.dates()}
    return {day: commit for day, commit in known.items() if commit is not None}


def _parts(store: Store, run: Run, found: Checked, chosen: Choice) -> None:
    """Writes `parts` and `topics`."""
    commits: dict[date, Commit] = {found.day: run.as_commit(found.day, 0)}
    for row in [*chosen.counting, *chosen.decided]:
        if row["day"] not in commits:
            commit = store.commit_of(row["day"])
            if commit is not None:
                commits[row["day"]] = commit
    dirs = chosen_rows(store, commits, chosen, "dirs")
    assigned = chosen_rows(store, commits, chosen, "assignments")
    number = max(1, -(-(rows_of(found.chosen("snapshot"))) // ROWS_PER_FILE))
    made = parts(dirs, assigned, number).sortWithinPartitions(*KEY)
    rows_seen = seen(run.write("parts", made), silent_frame(store, chosen))
    others = chosen_rows(store, commits, chosen, "others")
    run.write("topics", _one_file(topics(rows_seen, others), ("cluster_id", "topic", "topic_id")))


def _log_dirs(found: Checked, sums: list[Row]) -> list[Row]:
    """Per log dir: its ledger, and the sums of its directories."""
    by_place = {(r["cluster_id"], r["node_id"], r["log_dir"]): r for r in sums}
    result = []
    for entry in found.chosen("snapshot"):
        for row in found.log_dirs[entry["file"]]:
            own = by_place.pop((row["cluster_id"], row["node_id"], row["log_dir"]), {})
            result.append(row | {name: own.get(name) or 0 for name in ("dirs", "bytes", "allocated")})
    return result + list(by_place.values())


def _reconcile(run: Run, found: Checked) -> None:
    """Before the commit: checks that the Parquet footers have as many rows as the driver counted."""
    expected = rows_of(found.chosen("snapshot"))
    if run.count("dirs") != expected:
        raise LogAgentError(
            f"{found.day}: {run.count('dirs')} of {expected} directories were written",
            hint="run `logagent fleet ingest` again; nothing has changed",
        )


KEEP_RUNS = timedelta(hours=24)
"""A superseded or uncommitted run is kept this long: a report may still be reading it."""
LONG_AGO = timedelta(days=400)
"""Dates so much older than the newest one in landing are ingested only by name (`--date`): each of them costs seconds,
and one host can make thousands of them."""
AHEAD = timedelta(days=2)
"""Nor are dates that are later than this from now: the clock of their host is wrong."""
MOST_LATE = 1000
_RUN = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[0-9a-f]{12}")


def ingest_dates(
    store: Store, day: date | None, *, say: Say = lambda _: None, pinned: frozenset[int] | None = None
) -> list[Ingested]:
    """Ingests `day`, or every date in landing whose files have changed since they were ingested (`in_order`).

    Raises `ServiceUnreachable` if there is no landing, `LogAgentError` for a date that is missing from landing or was
    trimmed, and while another ingest of this store is running.
    """
    _need_landing(store)
    with IngestLock(store, say) as lock, Landing(store) as landing:
        store.refresh()
        sweep(store, datetime.now(UTC))
        listing = landing.listed(day)
        commits = {each: store.commit_of(each) for each in store.dates()}
        trimmed = {each for each, commit in commits.items() if commit is not None and commit.trimmed}
        if day is not None and day in trimmed:
            raise LogAgentError(
                f"{day} was removed from landing after it was ingested", hint="its result in the store stays"
            )
        if day is not None and day not in with_files(listing):
            raise LogAgentError(f"landing has nothing for {day}", hint="omit --date to ingest what is there")
        wanted = [day] if day is not None else _wanted(store, listing, trimmed, say)
        done: list[Ingested] = []
        bytes_of = {each: sum(one.data.bytes for one in listing.landed[each] if one.data) for each in wanted}
        began = time.monotonic()
        for each in wanted:
            if done:
                read = sum(bytes_of[one] for one in wanted[: len(done)])
                say(pace(len(done), len(wanted), read, sum(bytes_of.values()), time.monotonic() - began))
            store.spark.sparkContext.setJobDescription(f"logagent fleet ingest {each}")
            done.append(ingest(store, each, landing, listing, say=say, still_ours=lock.check, pinned=pinned))
        for each in sorted(trimmed & listing.landed.keys()):
            _late(store, each, listing.landed[each], say)
        return done


def with_files(listing: Listing) -> set[date]:
    """Dates with a file, or with a host's folder that cannot be read. Anybody can make empty folders: they say
    nothing."""
    unread = {s.day for s in listing.skipped if None not in (s.day, s.node_id) and s.reason == UNREADABLE}
    return {day for day, landed in listing.landed.items() if landed or day in unread}


def _wanted(store: Store, listing: Listing, trimmed: set[date], say: Say) -> list[date]:
    """The dates to ingest. What is left out goes to `listing.skipped`, which the reports of these dates list."""
    stale = set(changed(store, listing)) - trimmed
    wanted = [day for day in in_order(with_files(listing), datetime.now(UTC).date()) if day in stale]
    left_out: dict[str, set[date]] = {}
    for day in stale.difference(wanted):
        for each in listing.landed[day]:
            left_out.setdefault(each.cluster_id, set()).add(day)
    for cluster, days in sorted(left_out.items()):
        what = f"dates in the future, or over {LONG_AGO.days} days before the newest one, are not ingested: {len(days)}"
        says = f"{what}; to ingest them nevertheless name each with --date"
        listing.skipped.append(Skipped(f"{cluster}/{min(days)}", "not-this-date", says, cluster))
        say(f"{cluster}/{min(days)}: {says}")
    return wanted


def in_order(days: Iterable[date], today: date) -> list[date]:
    """Which of these dates are ingested, in this order: the last ones first, the older of them before the newer, whose
    comparison uses them; then those before them. Pure."""
    near = [day for day in days if day <= today + AHEAD]
    newest = max((day for day in near if day <= today), default=max(near, default=today))
    recent = newest - timedelta(days=HEARD_DAYS)
    return sorted((day for day in near if day >= newest - LONG_AGO), key=lambda day: (day < recent, day))


def pace(done: int, dates: int, read: int, size: int, seconds: float) -> str:
    """Progress of an ingest, its speed, and how long the rest will take at that speed. Sizes are of landing."""
    rate = read / seconds if seconds > 0 else 0
    left = f", about {units.age((size - read) / rate)} left" if rate else ""
    return f"{done} of {dates} dates, {units.size(read)} of {units.size(size)}, {units.size(int(rate))}/s{left}"


def _need_landing(store: Store) -> None:
    if not store.files.exists(store.landing):
        raise ServiceUnreachable(
            f"there is no landing/ in {store.uri}", hint="check --store; agents publish into it with publish.store"
        )


def changed(store: Store, listing: Listing) -> list[date]:
    """Dates whose files, by name, size and time, differ from those that were ingested; oldest first."""
    found = []
    for day in with_files(listing):
        landed = listing.landed[day]
        commit = store.commit_of(day)
        if commit is None or {_seen(each) for each in landed} != _ingested(store, commit):
            found.append(day)
    return sorted(found)


_State = tuple[str, int | None, int | None, bool]


def _seen(landed: Landed) -> _State:
    received = landed.data or landed.manifest
    size = landed.data.bytes if landed.data else None
    return landed.file, size, received.modified_ms if received else None, landed.manifest is not None


def _ingested(store: Store, commit: Commit) -> set[_State]:
    return {
        (row["file"], row["bytes"], row["received_at"], bool(row["received_manifest"]))
        for row in store.small("files", commit)
        if row["received_at"] is not None
    }


def _removable(store: Store, commit: Commit, landed: list[Landed]) -> list[Landed]:
    """The files of an ingested date that are no longer needed, deltas before their bases: those that were taken or
    superseded. What was rejected stays for somebody to inspect, and with it the base that it names. (After a killed
    trim some manifests are gone.)"""
    rows = {_known(row): row for row in store.small("files", commit)}
    refused = [row for row in rows.values() if row["status"] in ("rejected", "waiting")]
    named = {(row["cluster_id"], row["node_id"], row.get("base")) for row in refused}
    found = [
        each
        for each in landed
        if (row := rows.get(_seen(each)[:3])) is not None
        and row["status"] in ("taken", "superseded")
        and (each.cluster_id, each.node_id, each.stem) not in named
    ]
    return sorted(found, key=lambda each: rows[_seen(each)[:3]].get("base") is None)


def _known(row: Row) -> tuple[str, int | None, int | None]:
    return row["file"], row["bytes"], row["received_at"]


def _late(store: Store, day: date, landed: list[Landed], say: Say) -> None:
    """Files that arrived after their date was trimmed: reported, and listed as not taken."""
    commit = store.commit_of(day)
    if commit is None:
        return
    known = {_known(row) for row in store.small("files", commit)}
    landed = [each for each in landed if _seen(each)[:3] not in known]
    late: list[Row] = [
        {
            "cluster_id": each.cluster_id,
            "node_id": each.node_id,
            "kind": ASSIGNMENTS if each.place == ASSIGNMENTS else "snapshot",
            "file": each.file,
            "reason": "late",
            "detail": f"it came after {day} was removed from landing",
            "record": None,
        }
        for each in sorted(landed, key=lambda one: one.file)[:MOST_LATE]
    ]
    if late and late != commit.late:
        say(f"{day}: {len(landed)} files came after the date was removed from landing: not taken")
        store.add_commit(replace(commit, number=store.next_number(day), late=late))


def trim_landing(store: Store, before: date, *, say: Say = lambda _: None, warn: Say = lambda _: None) -> list[date]:
    """Removes from landing what is no longer needed of the dates before `before` that are ingested and unchanged since;
    returns those dates. Such a date can no longer be ingested.

    Only files that were listed and ingested are removed (`_removable`), also those that an earlier trim left. What
    cannot be removed is told to `warn` and left to the next trim: it holds up no other file. Raises `LogAgentError`
    while another ingest of this store is running.
    """
    _need_landing(store)
    with IngestLock(store, say) as lock, Landing(store) as landing:
        store.refresh()
        listing = landing.listed()
        stays = set(changed(store, listing))
        gone = []
        for day, folders in sorted(listing.folders.items()):
            commit = store.commit_of(day) if day < before else None
            landed = listing.landed.get(day, [])
            if commit is None or not (commit.trimmed or day not in stays):
                continue
            removable = _removable(store, commit, landed) if landed else []
            if not (removable or commit.trimmed):
                continue
            lock.check()
            if not commit.trimmed:
                say(f"{day}: removing from landing")
                store.add_commit(replace(commit, number=store.next_number(day), trimmed=True))
                gone.append(day)
            _remove(landing, day, removable, folders, warn)
        return gone


def _remove(landing: Landing, day: date, landed: list[Landed], folders: list[list[str]], warn: Say) -> None:
    """Removes these files in this order, and these folders where they are empty. Any host may have made one that nobody
    else may remove: then everything there stays that comes after it, the bases of deltas above all."""
    kept: list[str] = []
    stuck: set[tuple[str, str]] = set()
    for each in landed:
        if (each.cluster_id, each.place) in stuck:
            continue
        try:
            landing.remove(each)
        except (OSError, Py4JError) as error:
            stuck.add((each.cluster_id, each.place))
            kept.append(f"{each.file}: {str(error).splitlines()[0]}")
    for folder in folders:
        with suppress(OSError):
            landing.remove_empty(folder)
    if kept:
        says = f"{day}: files of {len(kept)} hosts could not be removed from landing, the first one {kept[0]}"
        warn(f"{says}; run this as a user who may, or with --keep-landing off")


def sweep(store: Store, now: datetime, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Removes runs that no valid commit names, `KEEP_RUNS` after they were superseded, or created but never committed;
    and private files of killed ingests.

    Returns their names. Only the holder of the ingest lock does this, so no current run is taken for garbage.
    """
    idle_since: dict[str, datetime] = {}
    in_force = set()
    for day in store.dates():
        last = store.commit_of(day)
        if last is not None:
            in_force.add(last.run)
            for number in range(1, last.number):
                old = store.commit_of(day, number)
                if old is not None:
                    idle_since[old.run] = datetime.fromisoformat(last.at)
    gone = []
    for name in store.files.names(f"{store.uri}/runs"):
        made = _RUN.fullmatch(name)
        if made is None or name in in_force:
            continue
        at = datetime.strptime(made.group(1), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if now - idle_since.get(name, at) > KEEP_RUNS:
            say(f"removing run {name}: no date needs it")
            store.files.delete(f"{store.uri}/runs/{name}")
            gone.append(name)
    _sweep_private(store, now)
    return gone


def _sweep_private(store: Store, now: datetime) -> None:
    """Removes the private files of killed ingests (`Files.create_new`, a lock that was being taken over), `KEEP_RUNS`
    after their last write."""
    places = {store.uri: rf"{re.escape(NAME)}\.[0-9a-f]{{32}}(\.tmp)?"}
    places |= {f"{store.uri}/commits/{day}": r"[0-9]+\.json\.[0-9a-f]{32}\.tmp" for day in store.dates()}
    for folder, private in places.items():
        for name in store.files.names(folder):
            if re.fullmatch(private, name):
                with suppress(OSError, Py4JError):
                    if now.timestamp() - store.files.modified_ms(f"{folder}/{name}") / 1000 > KEEP_RUNS.total_seconds():
                        store.files.delete(f"{folder}/{name}")
