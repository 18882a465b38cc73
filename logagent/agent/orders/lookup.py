"""What this host has of an ordered partition: its directories and the identity of each."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from logagent.agent.orders.results import IDENTITY, RESTORED, in_utf8, refused, result_of
from logagent.agent.session.clock_watch import clocks_now
from logagent.agent.session.session import Session
from logagent.broker.files.log_look import look_at_log
from logagent.errors import LogAgentError
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.model.facts import Facts
from logagent.model.naming.dir_names import classify
from logagent.model.records import ActionKind, DirKey, Kind, PartitionDir, Verdict
from logagent.model.times import rfc3339
from logagent.store.contract import CLOCKS_APART
from logagent.store.deletion import LARGEST_COUNT, Identity, Order, OrderedPartition, Result
from logagent.store.orders import moment

LIVE = (Kind.CURRENT, Kind.FUTURE)
# A request is stamped by the operator's clock, a restore by this host's.
_APART_MS = CLOCKS_APART // timedelta(milliseconds=1)


@dataclass(slots=True)
class Lookup:
    """Looks up a session's directories for one order, as the inventory found them."""

    session: Session
    facts: Facts
    _by_name: dict[DirKey, PartitionDir] = field(default_factory=dict)
    _by_partition: dict[tuple[str | None, int | None], list[PartitionDir]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for d in self.session.dirs:
            self._by_name[d.key] = d
            self._by_partition.setdefault((d.topic_id, d.partition), []).append(d)

    def named(self, log_dir: str, name: str) -> PartitionDir | None:
        return self._by_name.get(DirKey(log_dir, name))

    def of(self, topic_id: str | None, partition: int) -> list[PartitionDir]:
        """Every directory of a partition, whatever its kind. `topic_id` None: of every topic, those without an id."""
        return self._by_partition.get((topic_id, partition), [])

    def answer_stop(self, order: Order) -> list[Result]:
        """What this host has of each ordered partition, with the identity of each directory."""
        found = {i: self.sought(p) for i, p in enumerate(order.partitions)}
        identities = self.identities([d for dirs in found.values() for d in dirs])
        results: list[Result] = []
        for i, p in enumerate(order.partitions):
            if not found[i]:
                results.append(self.not_there(p))
            for d in found[i]:
                results.append(self._seen(order, p, d, identities.get(d.key)))
        return results

    def sought(self, p: OrderedPartition) -> list[PartitionDir]:
        """The directories that the order is about. For a whole topic: its current and future ones, by topic id (strays
        and marked ones are already on their way out). For a row of a report: that directory, or what a broker's start
        renamed it to. One without a topic id is counted by its name: it cannot be identified, and is not absent."""
        mine, without_id = self.of(p.topic_id, p.partition), self.of(None, p.partition)
        if p.asked_name is None or p.asked_log_dir is None:
            return [d for d in mine if d.kind in LIVE] + [
                d for d in without_id if d.kind in LIVE and d.topic == p.topic
            ]
        asked = posixpath.normpath(p.asked_log_dir)
        here = [d for d in [*mine, *without_id] if posixpath.normpath(d.log_dir) == asked]
        kind = classify(p.asked_name).kind
        named = [d for d in here if d.name == p.asked_name]
        return named or [d for d in here if d.topic_id is not None and d.kind is kind and kind in LIVE]

    def _seen(
        self, order: Order, p: OrderedPartition, d: PartitionDir, identity: Identity | LogAgentError | None
    ) -> Result:
        path = f"{d.log_dir}/{d.name}"
        if d.topic_id is None:
            hint = "look at it by hand; logagent deletes by topic id only"
            return refused(p, IDENTITY, f"{path} has no topic id to identify it", hint)
        if in_utf8(path) != path:
            return refused(p, IDENTITY, f"{path} is not UTF-8, so no order can name it", "look at it by hand")
        restored = self.restored(order, p, d)
        if restored is not None:
            return restored
        if not isinstance(identity, Identity):
            return result_of(p, "offline", fact=str(identity or f"{d.log_dir} cannot be read"))
        return result_of(p, "waiting", directory=identity)

    def not_there(self, p: OrderedPartition) -> Result:
        """The result for a partition that was not found: absent, if everything that could hold it was looked at."""
        moved = self._moved(p)
        if moved is not None:
            return moved
        hidden = self.facts.not_seen()
        if hidden is not None:
            return result_of(p, "offline", fact=hidden.fact)
        if not self.session.whole:
            return result_of(p, "offline", fact="not every directory was looked at")
        return result_of(p, "absent")

    def _moved(self, p: OrderedPartition) -> Result | None:
        """The refusal of a row of a report if its disk has another path now, or none. What is assigned under another
        path is not what the row was about."""
        if p.asked_name is None or p.asked_log_dir is None:
            return None
        current = classify(p.asked_name).kind in LIVE
        for d in [*self.of(p.topic_id, p.partition), *self.of(None, p.partition)]:
            same = d.name == p.asked_name or (current and d.kind in LIVE and d.topic_id is not None)
            if same and self.facts.ruling(d).verdict is not Verdict.ASSIGNED:
                hint = "cancel the request; to delete it after all, request it again from a report of today"
                return refused(p, IDENTITY, f"it is {d.log_dir}/{d.name} now", hint)
        ours = {posixpath.normpath(path) for path in (*self.facts.log_dirs, *self.facts.left_out)}
        if posixpath.normpath(p.asked_log_dir) in ours:
            return None
        hint = "cancel the request, unless the log dir comes back"
        return refused(p, IDENTITY, f"this host has no log dir {p.asked_log_dir}", hint)

    def restored(self, order: Order, p: OrderedPartition, d: PartitionDir) -> Result | None:
        """A restore on this host voids every order for that directory, unless the order was certainly requested
        afterwards. A request that claims to be made after its order was issued comes from a wrong clock, which proves
        nothing."""
        entry = self.session.journal.renames().get((d.name, d.inode))
        if entry is None or entry.intent.action is not ActionKind.RESTORE:
            return None
        issued_ms = moment(order.issued_at).timestamp() * 1000
        asked_ms = moment(p.requested_at).timestamp() * 1000 if p.requested_at is not None else None
        at, hint = rfc3339(entry.at_ms), "cancel the request; to delete it after all, request it again "
        if asked_ms is not None and asked_ms > issued_ms + _APART_MS:
            fact = f"restored at {at}; the request says {p.requested_at}, its order was issued at {order.issued_at}"
            return refused(p, RESTORED, fact, hint + "once the clock that it was made by is right")
        if asked_ms is not None and entry.at_ms < min(asked_ms, issued_ms) - _APART_MS:
            return None
        return refused(p, RESTORED, f"restored at {at}", hint + "5 minutes after the restore")

    def identities(self, dirs: Iterable[PartitionDir]) -> dict[DirKey, Identity | LogAgentError]:
        """The identity of each directory, with its log end offset where it can be read."""
        by_log_dir: dict[str, list[PartitionDir]] = {}
        for d in dirs:
            by_log_dir.setdefault(d.log_dir, []).append(d)
        opened = self.session.log_dirs.online()
        jobs = {path: partial(_ends, opened[path], there) for path, there in by_log_dir.items() if path in opened}
        found: dict[DirKey, Identity | LogAgentError] = {}
        boot = clocks_now(self.session.clock).boot_id
        for path, ends in self.session.calls.looks(jobs).items():
            where = self.facts.log_dirs.get(path)
            for d in by_log_dir[path]:
                if isinstance(ends, LogAgentError):
                    found[d.key] = ends
                    continue
                found[d.key] = Identity(
                    path, d.name, d.inode, d.device, where.directory_id if where is not None else None, boot,
                    min(d.bytes, LARGEST_COUNT), ends.get(d.name),
                )  # fmt: skip
        return found


def _ends(log_dir: OpenLogDir, dirs: Sequence[PartitionDir]) -> dict[str, int | None]:
    ends: dict[str, int | None] = {}
    for d in dirs:
        with log_dir.acting("reading", d.name):
            fd = log_dir.open_child(d.name, d.identity)
            try:
                end = look_at_log(fd).log_end
                ends[d.name] = None if end is None or end > LARGEST_COUNT else end
            finally:
                os.close(fd)
    return ends
