"""Publishing: inventory snapshots and assignments, spooled in the state dir and sent to the fleet store from there.

Two halves that never wait for each other. `Publisher.spool` is called right after an inventory; it only touches the
state dir. `Publisher.send` is called only by the publish loop; it alone touches the store, so a hung store blocks
nothing else. What could not be sent stays spooled and is sent later; the spool is bounded, and when it is full the
oldest files are dropped (and counted).

The first snapshot of a day is whole, the base of those that follow, which have only what has changed since
(`store/snapshots.py`). A copy of it is kept, and is sent again if the store has lost it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.advice.scan.command import dir_row, scan_head, step_row
from logagent.base.clock import Clock
from logagent.base.config.settings import is_uri
from logagent.base.errors import JournalError, LogAgentError, UnreadableError
from logagent.base.files.safe_open import PART, read_regular
from logagent.base.records import DirKey, Identity, Kind, Verdict
from logagent.base.units import DAY_MS, rfc3339, rfc3339_or_none
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.plan_documents import act_row
from logagent.cleanup.session.recall import boot_id
from logagent.cleanup.session.session import Session
from logagent.kafka.files.exported import landing_lines, landing_stem
from logagent.kafka.image import AssignmentImage
from logagent.service.summary import PublishSummary
from logagent.store import landing_files as landing
from logagent.store.contract import ASSIGNMENTS, DATA, DELTA, MANIFEST, SNAPSHOT, is_plain
from logagent.store.landing_files import SNAPSHOT_FILE, ManifestHead
from logagent.store.shared import SharedStore, check_store, open_store
from logagent.store.snapshots import ACTS_DAYS, MOST_ACTS, SNAPSHOT_SCHEMA, Base, Rest, delta_of, dir_line, whole_lines
from logagent.verdict.evidence.stray_questions import log_ends
from logagent.verdict.facts import Facts
from logagent.verdict.without_directory import can_enclose, still_assigned, without_directory

SPOOL_BYTES = 256 << 20
# The journal is on the same file system and needs the space more than a snapshot does.
LEAVE_FREE_BYTES = 64 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Spool:
    """Files of `landing/` with their manifests, side by side in one directory, sorted by age.

    One thread writes (`put`, `keep`), one other reads and removes (`waiting`, `remove`). `limit_bytes` bounds what is
    kept (one snapshot always is); `dropped` counts the dropped snapshots. Below `base/` is a second name of the newest
    base, sent or not. Methods raise OSError.
    """

    def __init__(self, path: Path, *, limit_bytes: int = SPOOL_BYTES, leave_free_bytes: int = LEAVE_FREE_BYTES) -> None:
        self.path = path
        self.dropped = 0
        self._bases = path / "base"
        self._limit = limit_bytes
        self._leave_free = leave_free_bytes

    def prepare(self) -> None:
        """Create the directory, and remove half-written files left by a kill. Raises LogAgentError for lack of
        space."""
        self._bases.mkdir(mode=0o750, parents=True, exist_ok=True)
        for entry in self.path.iterdir():
            lonely = entry.name.endswith(DATA) and not landing.manifest_of(entry).exists()
            if entry.name[0].isdecimal() and (lonely or entry.name.endswith(PART)):
                entry.unlink(missing_ok=True)
        while self._free() < self._leave_free and (unneeded := self._unneeded()):
            self.drop(unneeded[0])
        if self._free() < self._leave_free:
            self._forget_bases()
        if self._free() < self._leave_free:
            raise LogAgentError(
                f"nothing is published for lack of space: {self._free() >> 20} MiB are free below {self.path}"
            )

    def put(self, claim: ManifestHead, lines: Iterable[str | bytes]) -> None:
        """Add a file, and drop the oldest if there are too many bytes now."""
        data = landing.put(self.path / _stem(claim), claim, lines)
        total = sum(map(size_of, self.waiting()))
        while total > self._limit and (unneeded := [each for each in self._unneeded() if each != data]):
            total -= size_of(unneeded[0])
            self.drop(unneeded[0])

    def waiting(self) -> list[Path]:
        """Complete data files (those with a manifest), oldest first."""
        if not self.path.is_dir():
            return []
        names = sorted(entry.name for entry in self.path.iterdir())
        whole = {name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST)}
        return [self.path / n for n in names if n.endswith(DATA) and n.removesuffix(DATA) in whole]

    def _unneeded(self) -> list[Path]:
        """What may be dropped, oldest first: not the base of another file that waits, without which that says
        nothing."""
        waiting = self.waiting()
        claims = {data: claim for data in waiting if (claim := self.claim(data)) is not None}
        needed = {claim.base.snapshot_id for claim in claims.values() if claim.base is not None}
        return [data for data in waiting if data not in claims or claims[data].snapshot_id not in needed]

    def claim(self, data: Path) -> ManifestHead | None:
        """What the manifest of a file says; None for one that is gone or damaged."""
        manifest = landing.manifest_of(data)
        try:
            return landing.claim_of(manifest.read_bytes(), str(manifest))
        except (FileNotFoundError, UnreadableError):
            return None

    def keep(self, claim: ManifestHead) -> None:
        """Keep the snapshot that was just put as the base of those that follow."""
        self._forget_bases()
        data = self.path / (_stem(claim) + DATA)
        kept = self._bases / (claim.snapshot_id + DATA)
        for source, target in ((data, kept), (landing.manifest_of(data), landing.manifest_of(kept))):
            with suppress(FileNotFoundError):  # sent meanwhile
                os.link(source, target)

    def _forget_bases(self) -> None:
        for entry in self._bases.iterdir():
            entry.unlink(missing_ok=True)

    def base_of(self, claim: ManifestHead) -> tuple[Base, bytes] | None:
        """The kept base that a snapshot can change, with its file: one of the same node and day, and not a later one.
        Whether the file is still what its manifest says is for `delta_of` to see."""
        for manifest in self._bases.glob(f"*{MANIFEST}"):
            data = manifest.with_name(manifest.name.removesuffix(MANIFEST) + DATA)
            kept = self.claim(data)
            if kept is not None and landing.place(kept) == landing.place(claim) and kept.at < claim.at:
                with suppress(FileNotFoundError, UnreadableError):
                    sha256 = landing.sha256_of(manifest.read_bytes())
                    return Base(kept.snapshot_id, sha256), read_regular(data, SNAPSHOT_FILE)
        return None

    def kept(self, snapshot_id: str) -> Path:
        return self._bases / (snapshot_id + DATA)

    def drop(self, data: Path) -> None:
        """Drop one and count it."""
        self.remove(data)
        if data.name.endswith(f"-snapshot{DATA}"):
            self.dropped += 1

    def remove(self, data: Path) -> None:
        """The manifest first: data without one is cleaned up, but a manifest without data would be sent."""
        landing.manifest_of(data).unlink(missing_ok=True)
        data.unlink(missing_ok=True)

    def _free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


def _stem(claim: ManifestHead) -> str:
    """Sorting by name also sorts by age."""
    kind = ASSIGNMENTS if claim.kind == ASSIGNMENTS else SNAPSHOT
    return f"{(claim.at - _EPOCH) // timedelta(milliseconds=1):015d}-{kind}"


def size_of(path: Path) -> int:
    """Its size in bytes; 0 if it no longer exists."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


SPOOL = "spool"


class Stopped(LogAgentError):
    """The daemon is shutting down: what was being spooled or sent is left for its next start."""


class Publisher:
    """Snapshots of one host for one fleet store. One per daemon; its construction does no I/O.

    `interval_ms` is `publish.interval`: assignments, which are the same on every host of a cluster, are left out while
    some host's file arrived less than half of it ago. `limit_bytes` bounds the spool.
    """

    def __init__(
        self, store: str, state_dir: str, clock: Clock, *, host: str, interval_ms: int, limit_bytes: int = SPOOL_BYTES
    ) -> None:
        self.store = store
        self._spool = Spool(Path(state_dir) / SPOOL, limit_bytes=limit_bytes)
        self._clock = clock
        self._host = host
        self._interval_ms = interval_ms
        self._cluster: tuple[str, int] | None = None
        self._last_sent_ms: int | None = None
        # Paths and (device, inode) of the log dirs, as they were when something was last spooled.
        self._log_dirs: dict[str, tuple[int, int]] = {}
        self._ends: dict[tuple[Identity, int, int], int | None] = {}

    # The half that looks at the host

    def spool(
        self,
        session: Session,
        facts: Facts,
        plan: Plan | None,
        stop: Callable[[], bool] = lambda: False,
        seen: Sequence[str] = (),
    ) -> str:
        """Write a snapshot of what `session` has just seen (inventory taken, assignments read) into the spool, with
        what the cycle's `plan` says of each directory, and the assignments if they are usable. Returns its snapshot id.
        `seen`: ids of the deletion requests that this agent knew before the inventory.

        Rows are written as they are produced; only what has changed since the base is in memory. Raises
        LogAgentError if it is unknown which cluster and node this host is, or if there is no space; `Stopped` when
        `stop` says so.
        """
        cluster_id, node_id = self._whose(session)
        for path in session.target.log_dirs:
            opened = session.log_dirs.by_path.get(path)
            here = opened.identity if opened is not None else None
            self._log_dirs[path] = (here.device, here.inode) if here is not None else self._log_dirs.get(path, (0, 0))
        at = _EPOCH + timedelta(milliseconds=facts.now_ms)
        claim = ManifestHead(
            f"{_stamp(at)}-{node_id}", SNAPSHOT, cluster_id, node_id, self._host, at, boot_id=boot_id()
        )
        ids = {known.directory_id for known in facts.log_dirs.values() if known.directory_id is not None}
        claim = replace(
            claim, booted_at=at - timedelta(seconds=self._clock.boottime()), directory_ids=tuple(sorted(ids))
        )
        image = session.assignments.first
        try:
            self._spool.prepare()
            if image is not None and image.incomplete_because is None and image.untested_because is None:
                self._spool_assignments(image, cluster_id, node_id)
            self._spool_snapshot(session, facts, plan, claim, stop, seen)
        except OSError as e:
            raise LogAgentError(f"cannot spool a snapshot in {self._spool.path}: {e.strerror or e}") from e
        return claim.snapshot_id

    def _whose(self, session: Session) -> tuple[str, int]:
        """Cluster and node; the last known ones if every log dir is offline, because exactly that has to be published
        then."""
        cluster = session.log_dirs.cluster
        if cluster.cluster_id is not None and cluster.node_id is not None:
            self._cluster = (cluster.cluster_id, cluster.node_id)
        if self._cluster is None:
            raise LogAgentError(
                "cannot publish: the log dirs do not say which cluster and node they belong to",
                hint="logagent check says what is wrong with meta.properties",
            )
        if not is_plain(self._cluster[0]):
            raise LogAgentError(f"cannot publish: the cluster id {self._cluster[0]!r} cannot name a directory")
        return self._cluster

    def _spool_snapshot(
        self,
        session: Session,
        facts: Facts,
        plan: Plan | None,
        claim: ManifestHead,
        stop: Callable[[], bool],
        seen: Sequence[str],
    ) -> None:
        """As the changes of today's base, or whole, as the next base."""
        head, rest = self._head(session, facts, claim, seen)
        # Where the logs of orphans and strays end: what a report lists, and a request is identified by. They hardly
        # ever change, so each is read once.
        stamps = {
            d.key: (d.identity, d.bytes, d.newest_mtime_ns)
            for d in session.dirs
            if d.kind is Kind.STRAY or ((r := facts.rulings.get(d.key)) is not None and r.verdict is Verdict.ORPHAN)
        }
        new = [d for d in session.dirs if d.key in stamps and stamps[d.key] not in self._ends]
        read = log_ends(new, session.log_dirs.opened(), session.calls)
        ends = {key: self._ends[stamp] for key, stamp in stamps.items() if stamp in self._ends} | read
        self._ends = {stamps[key]: end for key, end in ends.items()}
        kept = self._spool.base_of(claim)
        delta = delta_of(*kept, self._dirs(session, facts, plan, ends, stop)) if kept is not None else None
        if delta is not None:
            self._spool.put(replace(claim, kind=DELTA, base=delta.base), delta.lines(head, rest))
            return
        dirs = (line for _, line in self._dirs(session, facts, plan, ends, stop))
        self._spool.put(claim, whole_lines(head, rest, dirs))
        self._spool.keep(claim)

    def _head(
        self, session: Session, facts: Facts, claim: ManifestHead, seen: Sequence[str]
    ) -> tuple[dict[str, Any], Rest]:
        """The first row of a snapshot, and those of its log dirs and absent replicas."""
        head = scan_head(session, facts, self._host)
        log_dirs = head.pop("log_dirs")
        for row in log_dirs:  # one that is offline keeps the device that it was last seen on
            row["device"] = row["device"] or self._log_dirs.get(row["path"], (0, 0))[0] or None
        whose = {"cluster_id": claim.cluster_id, "node_id": claim.node_id}
        of_host = {"snapshot_id": claim.snapshot_id, "boot_id": boot_id(), **whose, "seen": list(seen)}
        looked, absent = _images_and_absent(session, facts)
        looked["began"] = rfc3339_or_none(session.inventory.began_ms)
        orders = session.settings.orders
        looked["mode"] = session.settings.cleanup.mode
        keys = [key.partition(":")[0] for key in orders.keys if orders.accept and not key.endswith(":retired")]
        looked["accepts"] = ",".join(keys) or "none"
        looked["acts"], acts = acts_told(session, facts.now_ms)
        return {**head, "schema": SNAPSHOT_SCHEMA, **of_host, **looked}, Rest(log_dirs, absent, acts)

    def _dirs(
        self,
        session: Session,
        facts: Facts,
        plan: Plan | None,
        ends: Mapping[DirKey, int | None],
        stop: Callable[[], bool],
    ) -> Iterator[tuple[DirKey, bytes]]:
        """Keys and lines of the directories, by log dir and name: the order of a base and of its changes."""
        planner = session.planner(facts)
        planner = planner.after(plan) if plan is not None else planner
        for number, d in enumerate(sorted(session.dirs, key=lambda d: d.key)):
            if number % 512 == 0 and stop():
                raise Stopped("the snapshot was not finished: the daemon is stopping")
            told = planner.says(d)
            row = dir_row(told, facts) | {"inode": d.inode, "end_offset": ends.get(d.key)}
            yield d.key, dir_line(row, step_row(told))

    def _spool_assignments(self, image: AssignmentImage, cluster_id: str, node_id: int) -> None:
        # Two hosts never write the same file, and one host never writes a file twice: that would mix the data of one
        # with the manifest of the other.
        at = _EPOCH + timedelta(milliseconds=image.at_ms)
        name = f"{landing_stem(image)}-{_stamp(at)}-{node_id}"
        claim = ManifestHead(name, ASSIGNMENTS, cluster_id, node_id, self._host, at)
        self._spool.put(claim, (line.rstrip(b"\n") for line in landing_lines(image)))

    # The half that looks at the store

    def send(
        self, *, stop: Callable[[], bool] = lambda: False, beat: Callable[[], None] = lambda: None
    ) -> PublishSummary:
        """Send what is spooled to the store, newest first; what fails stays spooled. Raises nothing.

        It may block as long as the store does. Between pieces of work it calls `beat` and asks `stop`.
        """

        def go_on() -> None:
            beat()
            if stop():
                raise Stopped("the daemon is stopping")

        started, sent, error = self._clock.monotonic(), 0, None
        try:
            waiting = self._spool.waiting()
            if waiting:
                # Raises ServiceUnreachable if the store does not exist, or is an unmounted mount point (which has no
                # marker): files written there would fill the wrong disk, and be hidden once the store is mounted again.
                if not is_uri(self.store):
                    # First, so that nobody is told to make a log dir a store.
                    self._keep_out()
                check_store(self.store)
            for data in self._in_order(waiting):
                go_on()
                sent += self._send(data, go_on)
        except Stopped:
            pass
        except OSError as e:
            error = f"the fleet store {self.store} failed: {e.strerror or e}"
        except LogAgentError as e:
            error = str(e)
        if sent:
            self._last_sent_ms = self._clock.now_ms()
        left = self._spool.waiting()
        return PublishSummary(
            at_ms=self._clock.now_ms(),
            seconds=self._clock.monotonic() - started,
            sent=sent,
            waiting=len(left),
            waiting_bytes=sum(map(size_of, left)),
            dropped=self._spool.dropped,
            last_sent_ms=self._last_sent_ms,
            error=error,
        )

    def _in_order(self, waiting: list[Path]) -> list[Path]:
        """The newest first, but after its base."""
        claims = {data: claim for data in waiting if (claim := self._spool.claim(data)) is not None}
        by_id = {claim.snapshot_id: data for data, claim in claims.items()}
        found: dict[Path, None] = {}
        for data in reversed(waiting):
            base = claims[data].base if data in claims else None
            for each in (by_id.get(base.snapshot_id) if base is not None else None, data):
                if each is not None:
                    found[each] = None
        return list(found)

    def _send(self, data: Path, go_on: Callable[[], None]) -> int:
        """Send one file and remove it from the spool; returns how many arrived (0 or 1)."""
        try:
            manifest = landing.manifest_of(data).read_bytes()
            claim = landing.claim_of(manifest, str(landing.manifest_of(data)))
        except FileNotFoundError:
            return 0  # dropped since, to make space
        except UnreadableError:
            self._spool.drop(data)
            return 0
        try:
            with open_store(self.store) as store:
                if claim.kind == "assignments" and self._has_recent_assignments(store, claim):
                    self._spool.remove(data)
                    return 0
                if not self._send_base(store, claim, go_on):
                    self._spool.drop(data)
                    return 0
                landing.deliver(store, claim, data, manifest, go_on)
        except FileNotFoundError:
            if data.exists():
                raise
            return 0  # dropped since
        self._spool.remove(data)
        return 1

    def _send_base(self, store: SharedStore, claim: ManifestHead, go_on: Callable[[], None]) -> bool:
        """Whether the base of a delta is in the store; the one that was kept is sent again if it is not."""
        if claim.base is None or landing.has_base(store, claim):
            return True
        kept = self._spool.kept(claim.base.snapshot_id)
        manifest = landing.manifest_of(kept)
        if self._spool.claim(kept) is None or not kept.exists():
            return False
        of_base = replace(claim, snapshot_id=claim.base.snapshot_id, kind=SNAPSHOT, base=None)
        landing.deliver(store, of_base, kept, manifest.read_bytes(), go_on)
        return True

    def _has_recent_assignments(self, store: SharedStore, claim: ManifestHead) -> bool:
        now = self._clock.now_ms() / 1000
        return landing.has_recent_assignments(store, claim, now - self._interval_ms / 2000, now)

    def _keep_out(self) -> None:
        """Refuse a store in a log dir: by device and inode, as for the state dir, and by path if a log dir cannot be
        opened. No log dir is touched. Raises LogAgentError."""
        above = os.path.realpath(self.store)
        while True:
            try:
                status = os.stat(above)
                here = (status.st_dev, status.st_ino)
            except OSError:
                here = None  # What is not there is `check_store`'s to say.
            for log_dir, identity in self._log_dirs.items():
                if above == log_dir or (here is not None and here == identity):
                    raise LogAgentError(
                        f"the fleet store {self.store} is inside the log dir {log_dir}: no broker would start with"
                        " published files there",
                        hint="set publish.store to a directory elsewhere",
                    )
            if above == "/":
                return
            above = os.path.dirname(above)


def acts_told(session: Session, now_ms: int) -> tuple[dict[str, Any] | None, list[dict[str, object]]]:
    """What the head says of what was done, and its rows. A snapshot without them does not say that nothing was."""
    if session.journal_problem is not None:
        return None, []
    try:
        done = session.journal.done_since(now_ms - ACTS_DAYS * DAY_MS, MOST_ACTS)
    except JournalError:  # what is on the disks is published all the same
        done = None
    if done is None:
        return None, []
    rows = [act_row(entry) for entry in done.entries]
    told = {"since": rfc3339(done.since_ms), "rows": len(rows), "left_out": done.left_out, "last_id": done.last_id}
    return told, rows


def _images_and_absent(session: Session, facts: Facts) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the head says of the images between which the inventory lies, and the rows of replicas that both assign to
    this node and that lie nowhere."""
    before, node_id = session.inventory.image_before, session.log_dirs.cluster.node_id
    after = session.image_now()
    if before is None or after is None or node_id is None or not can_enclose(before, after):
        return {"images": None, "absent": None}, []
    images = {"before": _image(before), "after": _image(after)}
    # What is in a log dir that was not seen is not known to be missing.
    if not session.inventory.whole or facts.not_seen() is not None:
        return {"images": images, "absent": None}, []
    found = still_assigned(without_directory(before, node_id, session.dirs), after, node_id)
    rows = [
        {"topic": w.topic, "topic_id": w.topic_id, "partition": w.partition, "left": w.left}
        for w in found
        # A broker takes a `-future` directory for the current one where it may, and it can be the only readable copy.
        if w.left is not Kind.DELETE and w.future is None
    ]
    return {"images": images, "absent": len(rows)}, rows


def _image(image: AssignmentImage) -> dict[str, Any]:
    return {"source": image.source.value, "at": rfc3339(image.at_ms), "offset": image.offset}


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"
