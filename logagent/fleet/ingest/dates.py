"""Which dates of landing are ingested, in which order, and what leaves landing and the store afterwards.

One ingest at a time per store: two would remove each other's half-written dates. The lock is a file in the store, so it
holds between machines. What it can promise is what the file system promises:

- created only if there is none (`Files.create_new`): `link()` on local and mounted ones, a rename on HDFS, a
  conditional write in object stores;
- taken over from a dead holder by a rename, which in object stores is a copy and a removal: if two take over there at
  the same moment, the one that creates the new lock wins.

The lock is only a courtesy that saves work. What keeps a date from mixing two ingests is its commit, which is created
only if absent (`tables/store.py`).

The holder rewrites the lock every minute. A lock that was not written for `STALE_SECONDS` by the store's own clock, or
whose process no longer runs on this machine, is taken over. So is one that is `AHEAD_SECONDS` ahead of that clock:
somebody gave it its time, or the clock was set back, and a holder that lives writes it again within a minute.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from py4j.protocol import Py4JError

from logagent.base.errors import Busy, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import parse_json
from logagent.fleet.ingest.ingest import Ingested, Say, ingest
from logagent.fleet.ingest.landing import UNREADABLE, Landed, Landing, Listing, Skipped
from logagent.fleet.page import words as units
from logagent.fleet.tables.choice import HEARD_DAYS, Row
from logagent.fleet.tables.delta_log import DeltaLogs, log_folder
from logagent.fleet.tables.files import Files
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import Commit, Store
from logagent.store.contract import ASSIGNMENTS

NAME = ".ingest-lock"
REFRESH_SECONDS = 60.0
STALE_SECONDS = 600.0
AHEAD_SECONDS = 300.0


def machine() -> str:
    """Identifies the boot and PID namespace of this machine: where it matches, the PID in the lock is one of ours."""
    found = [socket.gethostname()]
    with suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        found.append(os.readlink("/proc/self/ns/pid"))
    return "|".join(found)


class IngestLock:
    """Held inside `with`. Entering raises `LogAgentError` while another holds it, and what the file system raises."""

    def __init__(self, store: Store, say: Callable[[str], None] = lambda _: None) -> None:
        self._files: Files = store.files
        self._uri = f"{store.uri}/{NAME}"
        self._store = store
        self._say = say
        self._id = uuid4().hex
        self._stop = threading.Event()
        # A file that this process is writing is not another's.
        self._writing = threading.Lock()
        self._refresher = threading.Thread(target=self._refresh, name="logagent-ingest-lock", daemon=True)

    def __enter__(self) -> IngestLock:
        # Complete at once: an empty lock of a killed ingest would keep everybody out until it is stale.
        if not self._files.create_new(self._uri, self._content()):
            self._take_over()
        self.check()
        try:
            self._refresher.start()
        except RuntimeError as e:  # no thread: an exit is not called for what was not entered
            self._files.delete(self._uri)
            raise LogAgentError(f"cannot keep the lock of the store: {e}", hint="raise the limit of threads") from e
        # Only the holder creates these, so they were left by a killed ingest.
        for name in self._files.names(self._store.uri):
            if name.startswith(".scratch-"):
                self._files.delete(f"{self._store.uri}/{name}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._refresher.join(REFRESH_SECONDS)
        # The original error matters more than one from cleaning up.
        with suppress(OSError, Py4JError, UnreadableError):
            if self._holder().get("id") == self._id:
                self._files.delete(self._uri)

    def check(self) -> None:
        """Raises `LogAgentError` if another ingest has the lock by now."""
        with self._writing:
            holder = self._holder()
        if holder.get("id") != self._id:
            raise Busy(
                f"another ingest has taken the lock of this store: {_in_words(holder)}",
                hint="let one finish, then run `logagent fleet ingest` again: incomplete dates are repeated",
            )

    def _content(self) -> bytes:
        content = {"id": self._id, "machine": machine(), "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps(content | {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}).encode()

    def _write(self) -> None:
        with self._writing:
            self._files.overwrite(self._uri, self._content())

    def _refresh(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            with suppress(OSError, Py4JError, UnreadableError):
                if self._holder().get("id") != self._id:
                    return
                self._write()

    def _holder(self) -> dict[str, object]:
        """The content of the lock; empty if it is absent or being written."""
        return self._read(self._uri) if self._files.exists(self._uri) else {}

    def _read(self, uri: str) -> dict[str, object]:
        try:
            content = parse_json(self._files.read(uri))
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def _take_over(self) -> None:
        holder = self._holder()
        probe = f"{self._uri}.{self._id}"
        self._files.overwrite(probe, b"")
        try:
            silent = (self._files.modified_ms(probe) - self._files.modified_ms(self._uri)) / 1000
        finally:
            self._files.delete(probe)
        gone = holder.get("machine") == machine() and not _runs(holder.get("pid"))
        if not gone and -AHEAD_SECONDS <= silent < STALE_SECONDS:
            raise Busy(
                f"another ingest of this store is running: {_in_words(holder)}, heard from {max(silent, 0):.0f} s ago",
                hint=f"wait for it; one that is silent for {STALE_SECONDS:.0f} s is considered dead ({self._uri})",
            )
        self._say(f"taking over from a dead ingest: {_in_words(holder)}")
        # Renamed first: of two that take over, one gets it, and the other finds that it has moved a fresh lock.
        self._files.move(self._uri, probe)
        current = self._read(probe)
        self._files.delete(probe)
        if current.get("id") != holder.get("id") or not self._files.create_new(self._uri, self._content()):
            raise Busy("another ingest of this store has just started", hint="wait for it")


def _runs(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _in_words(holder: dict[str, object]) -> str:
    if not holder:
        return "one that has not identified itself yet"
    return f"process {holder.get('pid')} on {holder.get('host')}, {holder.get('at')}"


KEEP_RUNS = timedelta(hours=24)
"""A superseded or uncommitted run is kept this long: a report may still be reading it."""
LONG_AGO = timedelta(days=400)
"""Dates so much older than the newest one in landing are ingested only by name (`--date`): each of them costs seconds,
and one host can make thousands of them."""
AHEAD = timedelta(days=2)
"""Nor are dates that are later than this from now: the clock of their host is wrong."""
MOST_LATE = 1000


def ingest_dates(
    store: Store,
    day: date | None,
    *,
    say: Say = lambda _: None,
    warn: Say = lambda _: None,
    pinned: frozenset[int] | None = None,
) -> list[Ingested]:
    """Ingests `day`, or every date in landing whose files have changed since they were ingested (`in_order`).

    `warn` is told of a Delta log that cannot be written: the ingest goes on. Before anything is removed, these logs
    follow what an ingest committed that was killed then. Raises `ServiceUnreachable` if there is no landing,
    `LogAgentError` for a date that is missing from landing or was trimmed, and while another ingest is running.
    """
    _need_landing(store)
    with IngestLock(store, say) as lock, Landing(store.uri, store.files) as landing:
        store.refresh()
        commits = store.commits()
        logs = DeltaLogs(store, warn)
        logs.follow(commits)
        sweep(store, datetime.now(UTC), warn)
        listing = landing.listed(day)
        trimmed = {each for each, commit in commits.items() if commit.trimmed}
        wanted = [_asked(day, listing, trimmed)] if day is not None else _wanted(store, listing, trimmed, say)
        done: list[Ingested] = []
        bytes_of = {each: sum(one.data.bytes for one in listing.landed[each] if one.data) for each in wanted}
        began = time.monotonic()
        for each in wanted:
            if done:
                read = sum(bytes_of[one] for one in wanted[: len(done)])
                say(pace(len(done), len(wanted), read, sum(bytes_of.values()), time.monotonic() - began))
            store.spark.sparkContext.setJobDescription(f"logagent fleet ingest {each}")
            done.append(ingest(store, each, landing, listing, say=say, still_ours=lock.check, pinned=pinned))
            if (commit := store.commit_of(each)) is not None:
                commits[each] = commit
                logs.follow(commits)
        for each in sorted(trimmed & listing.landed.keys()):
            _late(store, each, listing.landed[each], say)
        return done


def _asked(day: date, listing: Listing, trimmed: AbstractSet[date]) -> date:
    """Raises LogAgentError unless landing has files of it."""
    if day in trimmed:
        raise LogAgentError(
            f"{day} was removed from landing after it was ingested", hint="its result in the store stays"
        )
    if day not in with_files(listing):
        raise LogAgentError(f"landing has nothing for {day}", hint="omit --date to ingest what is there")
    return day


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


def _removable(store: Store, commit: Commit, landed: list[Landed]) -> tuple[list[Landed], list[Landed]]:
    """The deltas of an ingested date that are no longer needed, and its other files: those that were taken or
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

    def has_base(each: Landed) -> bool:
        return rows[_seen(each)[:3]].get("base") is not None

    return [each for each in found if has_base(each)], [each for each in found if not has_base(each)]


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
        say(f"{day}: {len(landed)} files came after the date was removed from landing: rejected")
        store.add_commit(replace(commit, number=store.next_number(day), late=late))


def trim_landing(store: Store, before: date, *, say: Say = lambda _: None, warn: Say = lambda _: None) -> list[date]:
    """Removes from landing what is no longer needed of the dates before `before` that are ingested and unchanged since;
    returns those dates. Such a date can no longer be ingested.

    Only files that were listed and ingested are removed (`_removable`), also those that an earlier trim left. What
    cannot be removed is told to `warn` and left to the next trim: it holds up no other file. Raises `LogAgentError`
    while another ingest of this store is running.
    """
    _need_landing(store)
    with IngestLock(store, say) as lock, Landing(store.uri, store.files) as landing:
        store.refresh()
        listing = landing.listed()
        stays = set(changed(store, listing))
        gone = []
        for day, folders in sorted(listing.folders.items()):
            commit = store.commit_of(day) if day < before else None
            landed = listing.landed.get(day, [])
            if commit is None or not (commit.trimmed or day not in stays):
                continue
            removable = _removable(store, commit, landed) if landed else ([], [])
            if not (any(removable) or commit.trimmed):
                continue
            lock.check()
            if not commit.trimmed:
                say(f"{day}: removing from landing")
                store.add_commit(replace(commit, number=store.next_number(day), trimmed=True))
                gone.append(day)
            _remove(landing, day, removable, folders, warn)
        return gone


def _remove(
    landing: Landing, day: date, removable: tuple[list[Landed], ...], folders: list[list[str]], warn: Say
) -> None:
    """Removes these files, deltas first, and these folders where they are empty. Any host may have made one that nobody
    else may remove: then the bases beside it stay."""
    kept: dict[str, str] = {}
    for batch in removable:
        stuck = {file.rpartition("/")[0] for file in kept}
        kept |= {each.file: "" for each in batch if each.file.rpartition("/")[0] in stuck}
        kept |= landing.remove([each for each in batch if each.file not in kept])
    landing.remove_empty(folders)
    if kept:
        first = min(f"{file}: {why}" for file, why in kept.items() if why)
        count = f"{len(kept)} of {sum(map(len, removable))}"
        says = f"{count} files could not be removed from landing, the first one {first}"
        warn(f"{day}: {says}; run this as a user who may, or with --keep-landing off")


def sweep(store: Store, now: datetime, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Removes runs that no valid commit names, `KEEP_RUNS` after they were superseded, or created but never committed;
    and private files of killed ingests.

    Returns their names. Only the holder of the ingest lock does this, so no current run is taken for garbage. While the
    newest commit of any date cannot be read nothing is removed: it may name any of them.
    """
    _sweep_private(store, now)
    latest = {day: store.commit_of(day) for day in store.dates()}
    unread = [day for day, commit in latest.items() if commit is None or commit.number + 1 != store.next_number(day)]
    if unread:
        say(f"the newest commit of {min(unread)} cannot be read: no run is removed; ingesting that date again mends it")
        return []
    commits = [commit for commit in latest.values() if commit is not None]
    in_force = {commit.run for commit in commits}
    idle = [name for name in store.runs() if name not in in_force]
    idle_since: dict[str, datetime] = {}
    for last in commits if idle else ():
        idle_since |= {old.run: datetime.fromisoformat(last.at) for old in store.commits_of(last.day) if old != last}
    gone = []
    for name in idle:
        at = datetime.strptime(name.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if now - idle_since.get(name, at) > KEEP_RUNS:
            say(f"removing run {name}: no date needs it")
            store.delete_run(name)
            gone.append(name)
    return gone


_PRIVATE_LOCK = rf"{re.escape(NAME)}\.[0-9a-f]{{32}}(\.tmp)?"
_PRIVATE = r"(\d{4}-\d\d-\d\d/)?[0-9]+\.(json\.[0-9a-f]{32}|checkpoint\.parquet)\.tmp"


def _sweep_private(store: Store, now: datetime) -> None:
    """Removes the private files of killed ingests (`Files.create_new`, a lock that was being taken over), `KEEP_RUNS`
    after their last write."""
    files = store.files
    found = {f"{store.uri}/{name}" for name in files.names(store.uri) if re.fullmatch(_PRIVATE_LOCK, name)}
    for folder in (f"{store.uri}/commits", *(f"{store.uri}/{log_folder(table)}" for table in STORE)):
        names = files.paths(folder) if folder.endswith("/commits") else files.names(folder)
        found |= {f"{folder}/{name}" for name in names if re.fullmatch(_PRIVATE, name)}
    for uri in found:
        with suppress(OSError, Py4JError):
            if now.timestamp() - files.modified_ms(uri) / 1000 > KEEP_RUNS.total_seconds():
                files.delete(uri)
