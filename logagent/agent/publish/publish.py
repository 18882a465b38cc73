"""Publishing: inventory snapshots and assignments, spooled in the state dir and brought to the fleet store from there.

Two halves that never wait for each other. `Publisher.spool` is called where an inventory has just been taken; it only
touches the state dir. `Publisher.send` is called by the publish loop alone; it is the only one that touches the store,
so a store that hangs holds up nothing else. What could not be sent stays spooled and is sent later; the spool is
bounded, and the oldest go first (and are counted) when it is full.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logagent.agent.clock import Clock
from logagent.agent.publish.spool import SPOOL_BYTES, Spool, size_of
from logagent.agent.session.rows import dir_rows, scan_head
from logagent.agent.session.session import Session
from logagent.broker.exported.file import landing_lines, landing_stem
from logagent.errors import LogAgentError, UnreadableError
from logagent.model.assignments.image import AssignmentImage
from logagent.model.facts import Facts
from logagent.model.summary import PublishSummary
from logagent.store import files as landing
from logagent.store.contract import SNAPSHOT_SCHEMA
from logagent.store.files import Claim
from logagent.store.names import is_plain
from logagent.store.tree import StoreTree, check_store

SPOOL = "spool"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stopped(LogAgentError):
    """The daemon ends: what was being spooled or sent is left for its next start."""


class Publisher:
    """Snapshots of one host for one fleet store (a mounted path). One daemon has one; it is made without any I/O.

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

    # The half that looks at the host

    def spool(self, session: Session, facts: Facts, stop: Callable[[], bool] = lambda: False) -> str:
        """Write a snapshot of what `session` has just seen (inventory taken, assignments read) into the spool, and the
        assignments beside it where there are usable ones. Returns its snapshot id.

        Rows are written as they are made: memory does not grow with the number of directories. Raises LogAgentError
        where it cannot be said whose host this is, or there is no room for it; `Stopped` when `stop` says so.
        """
        cluster_id, node_id = self._whose(session)
        self._note_log_dirs(session)
        at = _EPOCH + timedelta(milliseconds=facts.now_ms)
        claim = Claim(f"{_stamp(at)}-{node_id}", "snapshot", cluster_id, node_id, self._host, at)
        image = session.assignments.first
        try:
            self._spool.prepare()
            if image is not None and image.incomplete_because is None:
                self._spool_assignments(image, cluster_id, node_id)
            self._spool.put(claim, self._lines(session, facts, claim, stop))
        except OSError as e:
            raise LogAgentError(f"a snapshot cannot be spooled in {self._spool.path}: {e.strerror or e}") from e
        return claim.snapshot_id

    def _whose(self, session: Session) -> tuple[str, int]:
        """Cluster and node; as last known where every log dir is offline, for that is what has to be told then."""
        cluster = session.log_dirs.cluster
        if cluster.cluster_id is not None and cluster.node_id is not None:
            self._cluster = (cluster.cluster_id, cluster.node_id)
        if self._cluster is None:
            raise LogAgentError(
                "nothing can be published: the log dirs do not say which cluster and node they belong to",
                hint="logagent check says what is wrong with meta.properties",
            )
        if not is_plain(self._cluster[0]):
            raise LogAgentError(
                f"nothing can be published: the cluster id {self._cluster[0]!r} cannot name a directory"
            )
        return self._cluster

    def _note_log_dirs(self, session: Session) -> None:
        for path in session.target.log_dirs:
            opened = session.log_dirs.by_path.get(path)
            here = opened.identity if opened is not None else None
            self._log_dirs[path] = (here.device, here.inode) if here is not None else self._log_dirs.get(path, (0, 0))

    def _lines(self, session: Session, facts: Facts, claim: Claim, stop: Callable[[], bool]) -> Iterator[str]:
        head = scan_head(session, facts, self._host)
        log_dirs: list[dict[str, Any]] = head.pop("log_dirs")
        whose = {"cluster_id": claim.cluster_id, "node_id": claim.node_id}
        yield _line("snapshot", {**head, "schema": SNAPSHOT_SCHEMA, "snapshot_id": claim.snapshot_id, **whose})
        for log_dir in log_dirs:
            yield _line("log_dir", log_dir)
        for number, row in enumerate(dir_rows(session.dirs, facts, session.marks(), session.sightings())):
            if number % 512 == 0 and stop():
                raise Stopped("the snapshot was not finished: the daemon ends")
            yield _line("dir", landing.snapshot_row(row))

    def _spool_assignments(self, image: AssignmentImage, cluster_id: str, node_id: int) -> None:
        # Two hosts never write the same file, nor one host the same one anew: that would mix the data of one with the
        # manifest of the other.
        at = _EPOCH + timedelta(milliseconds=image.at_ms)
        name = f"{landing_stem(image)}-{_stamp(at)}-{node_id}"
        claim = Claim(name, "assignments", cluster_id, node_id, self._host, at)
        self._spool.put(claim, (line.rstrip(b"\n") for line in landing_lines(image)))

    # The half that looks at the store

    def send(
        self, *, stop: Callable[[], bool] = lambda: False, beat: Callable[[], None] = lambda: None
    ) -> PublishSummary:
        """Bring what is spooled to the store, the newest first; what fails stays spooled. Raises nothing.

        It may block for as long as the store does. `beat` is called between pieces of work, `stop` asked.
        """

        def go_on() -> None:
            beat()
            if stop():
                raise Stopped("the daemon ends")

        started, sent, error = self._clock.monotonic(), 0, None
        try:
            waiting = self._spool.waiting()
            if waiting:
                self._check_store()
            for data in reversed(waiting):
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

    def _send(self, data: Path, go_on: Callable[[], None]) -> int:
        """Send one file and forget it; how many arrived."""
        try:
            manifest = landing.manifest_of(data).read_bytes()
            claim = landing.claim_of(manifest, str(landing.manifest_of(data)))
        except FileNotFoundError:
            return 0  # dropped meanwhile, to make room
        except UnreadableError:
            self._spool.drop(data)
            return 0
        try:
            with StoreTree(self.store) as store:
                if claim.kind == "assignments" and self._has_recent_assignments(store, claim):
                    self._spool.remove(data)
                    return 0
                landing.deliver(store, claim, data, manifest, go_on)
        except FileNotFoundError:
            if data.exists():
                raise
            return 0  # dropped meanwhile
        self._spool.remove(data)
        return 1

    def _has_recent_assignments(self, store: StoreTree, claim: Claim) -> bool:
        now = self._clock.now_ms() / 1000
        return landing.has_recent_assignments(store, claim, now - self._interval_ms / 2000, now)

    def _check_store(self) -> None:
        """Raises ServiceUnreachable where the store is not there, an unmounted mount point included (it has no marker):
        what is written into one fills the wrong disk, and is hidden when the store comes back."""
        # First: nobody shall be told to make a log dir a store.
        self._keep_out()
        check_store(self.store)

    def _keep_out(self) -> None:
        """Told by device and inode, as for the state dir, and by its path where a log dir cannot be opened; none of
        them is touched. Raises LogAgentError."""
        above = os.path.realpath(self.store)
        while True:
            try:
                found = os.stat(above)
                here = (found.st_dev, found.st_ino)
            except OSError:
                here = None  # What is not there is `check_store`'s to say.
            for log_dir, identity in self._log_dirs.items():
                if above == log_dir or (here is not None and here == identity):
                    raise LogAgentError(
                        f"the fleet store {self.store} lies in the log dir {log_dir}, where no broker would start with"
                        " what is published",
                        hint="set publish.store to a directory elsewhere",
                    )
            if above == "/":
                return
            above = os.path.dirname(above)


def _line(kind: str, row: dict[str, Any]) -> str:
    return json.dumps({"row": kind, **row})


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"
