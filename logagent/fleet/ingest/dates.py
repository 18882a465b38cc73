"""Which dates are to be ingested, and which may leave landing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from pyspark.sql import functions as fn

from logagent.errors import LogAgentError, ServiceUnreachable
from logagent.fleet.ingest import manifests
from logagent.fleet.ingest.ingest import Ingested, Say, ingest
from logagent.fleet.ingest.lock import IngestLock
from logagent.fleet.tables.store import Store

DATE_GLOB = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
TRIMMED = "trimmed"
"""Dates whose files left landing: the store is their only source now, so they are never ingested again."""


def ingest_dates(store: Store, day: date | None, *, say: Say = lambda _: None) -> list[Ingested]:
    """Ingests `day`, or every date of landing whose files are not those that the store was made from.

    Raises `ServiceUnreachable` without a landing, `LogAgentError` for a date that landing has nothing for or that
    was trimmed, and while another ingest of this store is running.
    """
    if not store.files.exists(store.landing):
        raise ServiceUnreachable(
            f"there is no landing in {store.uri}", hint="check --store; agents publish into it with publish.store"
        )
    with IngestLock(store, say) as lock:
        return _ingest_dates(store, day, say, lock.check)


def _ingest_dates(store: Store, day: date | None, say: Say, still_ours: Callable[[], None]) -> list[Ingested]:
    trimmed = trimmed_dates(store)
    if day is not None and day in trimmed:
        raise LogAgentError(
            f"{day} was removed from landing after it was ingested", hint="its result in the store stays"
        )
    if day is not None and day not in landed_dates(store):
        raise LogAgentError(f"landing has nothing for {day}", hint="leave out --date to ingest what is there")
    wanted = [day] if day is not None else [d for d in changed_dates(store) if d not in trimmed]
    done = []
    for each in wanted:
        store.spark.sparkContext.setJobDescription(f"logagent fleet ingest {each}")
        done.append(ingest(store, each, say=say, still_ours=still_ours))
    return done


def landed_dates(store: Store) -> list[date]:
    """Dates that any cluster has a directory for, oldest first."""
    names = {
        name for cluster in store.files.names(store.landing) for name in store.files.names(f"{store.landing}/{cluster}")
    }
    return sorted(found for found in map(as_date, names) if found is not None)


def as_date(text: str) -> date | None:
    """The date that a directory name says, None for any other name."""
    try:
        return date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        return None


def trimmed_dates(store: Store) -> set[date]:
    """Dates that `trim_landing` removed."""
    found = (as_date(name.removeprefix("dt=")) for name in store.files.names(store.table(TRIMMED)))
    return {day for day in found if day is not None}


def changed_dates(store: Store) -> list[date]:
    """Dates whose files, by name, size and time, differ from those that were ingested."""
    days = landed_dates(store)
    if not days:
        return []
    done = set(store.dates())
    # Manifests count by being there; a data file by its size and time.
    now = manifests.listing(store.spark, store.landing, DATE_GLOB).where(fn.col("suffix") == manifests.DATA)
    vouched = manifests.listing(store.spark, store.landing, DATE_GLOB).where(fn.col("suffix") == manifests.MANIFEST)
    manifest = vouched.select(fn.regexp_replace("file", r"\.manifest\.json$", manifests.DATA).alias("file")).distinct()
    now = now.join(manifest.withColumn("complete", fn.lit(True)), "file", how="full_outer")
    seen = store.read("files", [day for day in days if day in done])
    before = seen.select(
        "file",
        fn.col("bytes").alias("old_bytes"),
        fn.col("received_at").alias("old_received_at"),
        (fn.col("status") != "waiting").alias("old_complete"),
    )
    same = (
        fn.col("bytes").eqNullSafe(fn.col("old_bytes"))
        & fn.coalesce("complete", fn.lit(False)).eqNullSafe(fn.col("old_complete"))
        & (fn.col("bytes").isNull() | fn.col("received_at").eqNullSafe(fn.col("old_received_at")))
    )
    differ = now.join(before, "file", how="full_outer").where(~same)
    rows = differ.select(fn.get(fn.split("file", "/"), fn.lit(1)).alias("day")).distinct().collect()
    changed = {as_date(row.day or "") for row in rows} - {None}
    return sorted(day for day in days if day in changed or day not in done)


def trim_landing(store: Store, before: date, *, say: Say = lambda _: None) -> list[date]:
    """Removes the dates before `before` from landing that are ingested and unchanged since; which ones.

    A date goes as a whole. One that has files which were not taken stays: somebody should look at them. Raises
    `LogAgentError` while another ingest of this store is running.
    """
    with IngestLock(store, say):
        return _trim(store, before, say)


def _trim(store: Store, before: date, say: Say) -> list[date]:
    changed = set(changed_dates(store))
    old = [day for day in landed_dates(store) if day < before and day in set(store.dates()) - changed]
    refused = store.read("files", old).where(fn.col("status").isin("rejected", "waiting"))
    kept = {row.dt for row in refused.select("dt").distinct().collect()}
    gone = [day for day in old if day not in kept]
    for day in gone:
        say(f"{day}: removing from landing")
        store.files.write(f"{store.table(TRIMMED)}/dt={day}", b"")
        for cluster in store.files.names(store.landing):
            store.files.delete(f"{store.landing}/{cluster}/{day}")
    return gone
