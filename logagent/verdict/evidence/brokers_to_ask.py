"""Who can be asked what no file on this host says: whether its broker has loaded a log dir, and what leaders have.

`kafka.bootstrap_servers` where it is set and leads to our cluster. Otherwise this host's own broker, at the listeners
that its `server.properties` names; and, while it is stopped, the other brokers, at the addresses that the metadata log
on this host has for them. Whoever answers has to be proven ours first (`kafka.identity`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from logagent.base.clock import Patience
from logagent.base.config.settings import Settings
from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.base.linux.kernel import process_listens
from logagent.base.records import DirKey, HolderState, PartitionDir, TopicPartition
from logagent.base.units import human_time
from logagent.kafka.admin.responses import TOPIC_AUTHORIZATION_FAILED, BrokerSays
from logagent.kafka.config_in_force import in_force
from logagent.kafka.extents import EpochEnd
from logagent.kafka.files.properties import broker_listeners
from logagent.kafka.identity import Partition
from logagent.kafka.image import Endpoint
from logagent.kafka.processes.discovery import newest_change_ms
from logagent.kafka.processes.target import Target
from logagent.kafka.retention.reasons import OpenTransaction
from logagent.kafka.retention.settings import Layers
from logagent.verdict.evidence.assignment_sources import Assignments, settled_on_disk, shows_another_disk
from logagent.verdict.evidence.other_brokers import (
    CONNECT_SECONDS,
    SET_BOOTSTRAP,
    TIMEOUT_SECONDS,
    Address,
    Connect,
    OtherBrokers,
    address,
    client_config,
    connect_to,
    first_of,
)
from logagent.verdict.facts import LogDirFacts
from logagent.verdict.rules import Host

if TYPE_CHECKING:
    from logagent.kafka.admin.reader import AdminReader

T = TypeVar("T")

IN_FORCE_SECONDS = 2.0
SILENT_SECONDS = TIMEOUT_SECONDS / 2
"""Whoever accepts a connection and says nothing for so long says nothing at its other listeners either."""

NO_TIME_LEFT = "the time for questions to brokers is over"

_PARTITIONS_A_REQUEST = 500
_NAMED = 3
_LOGS_UNKNOWN = "what the broker itself has of these logs is not known"


class RunningBroker(NamedTuple):
    """What the running broker said. `layers`: what is set, as it is in force; None if it did not say, for the reason
    `why_not`, in words."""

    layers: Layers | None
    why_not: str | None
    says: BrokerSays


HeldUp = Callable[[Layers], Sequence[TopicPartition]]
"""The partitions in which an open transaction holds something up, with these settings."""


def _or_why(ask: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        return ask(), None
    except (ServiceUnreachable, UnreadableError) as e:
        return None, str(e)


@dataclass(slots=True)
class BrokersToAsk:
    """Finds them when first asked, and closes them with `close`.

    `held_by`: the processes that hold a log dir; `stopped`: none does, and none may. `on_disk`: see
    `partitions_on_disk`. `broker_problem`, `leader_problem`: why our own broker, or nobody, could be asked, in words,
    with what to do; None until that was tried. `explains`: what is answered permits nothing. `patience`: for all of
    their answers together.
    """

    assignments: Assignments
    target: Target
    settings: Settings
    host: Host
    on_disk: Mapping[str, frozenset[Partition]]
    held_by: frozenset[int]
    stopped: bool
    now_ms: int
    connect: Connect = connect_to
    clock: Callable[[], float] = time.monotonic
    broker_problem: str | None = None
    leader_problem: str | None = None
    explains: bool = False
    patience: Patience = field(default_factory=Patience)
    _until: float = math.inf
    _broker: AdminReader | None = None
    _others: AdminReader | None = None
    _client: dict[str, Any] | None = field(default=None)
    _silent: bool = False

    def serves(self, path: str) -> bool:
        """Whether our broker says, now, that it serves the log dir `path`: then it has loaded everything in it. Brokers
        answer DescribeLogDirs only once `LogManager.loadLogs` is over."""
        with self._in_time():
            reader = self._own_broker()
            return reader is not None and reader.log_dir_served(self.host.node_id or 0, path) is True

    def described(self) -> dict[str, frozenset[Partition]]:
        """What our running broker says that it has, by log dir; nothing if it cannot be asked."""
        reader = self._own_broker() if not self.stopped else None
        if reader is None or self.host.node_id is None:
            return {}
        try:
            found = reader.log_dirs(self.host.node_id)
        except (ServiceUnreachable, UnreadableError):
            return {}
        return {path: d.partitions or frozenset() for path, d in found.items()}

    def ask_running(self, layers: Layers, held_up: HeldUp | None = None) -> RunningBroker:
        """What the running broker says of itself, asked for at most 2 s in all: the settings it runs with, in `layers`;
        with `held_up` also of its logs, and of open transactions in the partitions that this gives for these settings.
        Whoever may not ask one of it is told of the rest. It explains only, so a broker that listens with our disks
        locked answers for itself, whatever else lies on them."""
        asked = replace(self, explains=True)
        with closing(asked), asked._in_time(IN_FORCE_SECONDS):
            reader, node_id = asked._own_broker(), self.host.node_id
            if reader is None or node_id is None:
                why = asked.broker_problem or "nobody answers"
                unknown = (f"{_LOGS_UNKNOWN}: {why}",) if held_up is not None else ()
                return RunningBroker(None, why, BrokerSays(unknown=unknown))
            found, why_not = _or_why(lambda: reader.broker_settings(node_id))
            if found is not None:
                dynamic, common, static = found
                layers = replace(layers, broker=dynamic, all_brokers=common, file=static)
            says = self._says_of_logs(reader, node_id, held_up(layers)) if held_up is not None else BrokerSays()
            return RunningBroker(layers if found is not None else None, why_not, says)

    @staticmethod
    def _says_of_logs(reader: AdminReader, node_id: int, held_up: Sequence[TopicPartition]) -> BrokerSays:
        log_dirs, why = _or_why(lambda: reader.held_log_dirs(node_id))
        unknown = [f"{_LOGS_UNKNOWN}: {why}"] if log_dirs is None else []
        transactions: dict[TopicPartition, OpenTransaction | None] = {}
        refused: dict[str, list[TopicPartition]] = {}
        for start in range(0, len(held_up), _PARTITIONS_A_REQUEST):
            part = held_up[start : start + _PARTITIONS_A_REQUEST]
            answer, why = _or_why(lambda part=part: reader.transactions(node_id, part))  # type: ignore[misc]
            if answer is None:
                refused.setdefault(why or "", []).extend(held_up[start:])
                break
            transactions |= answer[0]
            for code, partitions in answer[1].items():
                says = "it needs READ on the topic" if code == TOPIC_AUTHORIZATION_FAILED else f"error {code}"
                refused.setdefault(says, []).extend(partitions)
        for why, partitions in refused.items():
            topics = sorted({p.topic for p in partitions})
            named = ", ".join(topics[:_NAMED]) + (f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else "")
            unknown.append(f"open transactions of {named} are told by the disk, not by the broker: {why}")
        return BrokerSays(log_dirs, transactions, tuple(unknown))

    def by_file(
        self, layers: Layers, started_ms: int | None, why_not_asked: str | None, *, noted: bool
    ) -> tuple[Layers, str | None]:
        """`layers` as they are in force for our broker, and why that is not known, in words, without asking it: what is
        in `server.properties`, if it is `noted` for this process, or nothing of it changed since the broker started
        (`started_ms`); else nothing of it. A stopped broker would start with the file."""
        config = self.target.config
        if config is None or layers.file is None:
            return layers, None
        changed_ms = newest_change_ms(config)
        running = not self.stopped
        found = in_force(config, running=running, started_ms=started_ms, changed_ms=changed_ms, noted=noted)
        if found.doubt is None:
            return layers, None
        when = "may have changed" if changed_ms is None else f"changed at {human_time(changed_ms)}"
        since = "" if started_ms is None else f", at {human_time(started_ms)}"
        why = f" ({why_not_asked})" if why_not_asked is not None else ""
        unknown = f"{config} {when}, after the broker started{since}: what it runs with is not known{why}"
        return replace(layers, file=None), unknown

    def epoch_ends(
        self, asked: Mapping[DirKey, tuple[TopicPartition, int]], topic_ids: Mapping[str, str]
    ) -> dict[DirKey, EpochEnd]:
        """What the leaders answer (`AdminReader.epoch_ends`), but not our own broker: it knows less of our segments
        than the files show. Nothing: see `leader_problem`."""
        with self._in_time():
            reader = self.leaders()
            return reader.epoch_ends(asked, topic_ids, but_not=self.host.node_id) if reader is not None else {}

    def leaders(self) -> AdminReader | None:
        """A reader that may ask the leaders of our cluster; None: see `leader_problem`."""
        if self.patience.is_over:
            self.leader_problem = NO_TIME_LEFT
            return None
        if self.assignments.answering is not None and self.assignments.reader is not None:
            return self.assignments.reader
        if not self.stopped:
            own = self._own_broker()
            self.leader_problem = self.broker_problem
            return own
        if self._others is None and self.leader_problem is None:
            self.leader_problem = self._find_others()
        return self._others

    def same_as(self, other: BrokersToAsk) -> bool:
        """Whether whoever was found for this host as it was is right for it as it is now."""
        return (
            self.assignments is other.assignments
            and (self.held_by, self.stopped, self.host) == (other.held_by, other.stopped, other.host)
            and self.broker_problem is None  # or it is tried again
        )

    def not_again(self, before: BrokersToAsk | None) -> None:
        """A broker of these processes that accepted a connection `before`, a moment ago, and said nothing is not waited
        for once more."""
        if before is not None and before._silent and before.held_by == self.held_by:
            self.broker_problem = before.broker_problem

    def close(self) -> None:
        for reader in (self._broker, self._others):
            if reader is not None:
                reader.close()
        self._broker = self._others = None

    # Our own broker

    @contextmanager
    def _in_time(self, most: float = math.inf) -> Iterator[None]:
        """Within, whoever is asked is waited for as long as there is patience, and `most` seconds at most."""
        try:
            with self.patience.asking(self.clock, most) as until:
                self._stop_at(until)
                yield
        finally:
            self._stop_at(math.inf)

    def _stop_at(self, until: float) -> None:
        if until == self._until:
            return
        self._until = until
        for reader in (self._broker, self._others, self.assignments.reader):
            if reader is not None:
                reader.stop_at(until)

    def _connect(self, bootstrap_servers: str, client: Mapping[str, Any] | None) -> AdminReader:
        reader = self.connect(bootstrap_servers, client)
        if self._until < math.inf:
            reader.stop_at(self._until)
        return reader

    def _own_broker(self) -> AdminReader | None:
        if self.patience.is_over:
            self.broker_problem = self.broker_problem or NO_TIME_LEFT
            return None
        answering = self.assignments.answering
        if answering is not None and answering.own and self.assignments.reader is not None:
            return self.assignments.reader
        if self._broker is None and self.broker_problem is None:
            self.broker_problem = self._find_own_broker()
        return self._broker

    def _find_own_broker(self) -> str | None:
        if self.host.node_id is None:
            return "the broker's node id is unknown"
        problems: list[str] = []
        try:
            self._broker = first_of(self._own_addresses(problems), self._connect, self._not_this_broker, problems)
        except ConfigError as e:
            problems.append(str(e))
        return None if self._broker is not None else "; ".join(dict.fromkeys(problems)) or SET_BOOTSTRAP

    def _own_addresses(self, problems: list[str]) -> Iterator[Address]:
        if self.target.config is None:
            problems.append("the broker's server.properties was not read: name it with --kafka-config")
        listeners = broker_listeners(self.target.server.props) if self.target.config is not None else ()
        client = self._client_config()
        usable: list[tuple[Endpoint, Mapping[str, Any] | None]] = []
        if client is not None:
            usable += [(e, client) for e in listeners if e.protocol == client["security_protocol"]]
        usable += [(e, None) for e in listeners if e.protocol == "PLAINTEXT" and (e, client) not in usable]
        if listeners and not usable:
            protocols = ", ".join(dict.fromkeys(e.protocol for e in listeners))
            problems.append(
                f"the broker listens with {protocols} only: set kafka.client to a client properties file for that"
            )
        for endpoint, config in usable:
            # It may recover for hours, with its ports open, and every look would wait for each of them.
            if self._silent:
                break
            # Whoever else listens there answers for somebody else, or lies.
            if any(process_listens(pid, endpoint.port) for pid in self.held_by):
                yield address(endpoint), config, True
            else:
                problems.append(
                    f"the broker does not listen on port {endpoint.port} yet, or not in this network namespace"
                )
        if self.settings.kafka.bootstrap_servers is not None:
            yield self.settings.kafka.bootstrap_servers, client, False
        else:
            problems.append(SET_BOOTSTRAP)

    def _not_this_broker(self, reader: AdminReader, is_its_own: bool) -> str | None:
        began = self.clock()
        try:
            cluster_id = reader.cluster_id()
        except LogAgentError:
            self._silent |= self.clock() - began >= SILENT_SECONDS
            raise
        if cluster_id != self.host.cluster_id:
            return f"it is of cluster {cluster_id}"
        assert self.host.node_id is not None
        on_disk = {} if self.explains and is_its_own else self.on_disk
        return shows_another_disk(reader, self.host.node_id, on_disk, is_its_own=is_its_own)

    # The others, while ours is stopped

    def _find_others(self) -> str | None:
        """Not those of a copy: the disks of a stopped clone name the original's brokers, of which one has our id."""
        if self.assignments.tried_others and self.assignments.nobody is not None:
            return self._with_hint(self.assignments.nobody)
        own_log, ours = self.assignments.own_log, self.assignments.stopped_broker
        if own_log is None or ours is None:
            return self._with_hint("no metadata log on this host says where the other brokers are")
        try:
            others = OtherBrokers(own_log, ours, self.target, self._client_config(), self.now_ms, self._connect)
        except ConfigError as e:
            return str(e)
        others.connect_seconds = max(0.0, min(CONNECT_SECONDS, self._until - self.clock()))
        found = others.find()
        if isinstance(found, str):
            return self._with_hint(found)
        self._others = found
        return None

    def _with_hint(self, nobody: str) -> str:
        servers = self.settings.kafka.bootstrap_servers
        if servers is not None:
            return f"{nobody}: logagent doctor says whether kafka.bootstrap_servers ({servers}) is asked, and answers"
        return nobody if SET_BOOTSTRAP in nobody else f"{nobody}: {SET_BOOTSTRAP}"

    def _client_config(self) -> dict[str, Any] | None:
        """The settings of `kafka.client`, if that is set. Raises ConfigError."""
        if self._client is None:
            self._client = client_config(self.settings.kafka)
        return self._client


def brokers_to_ask(
    assignments: Assignments,
    target: Target,
    settings: Settings,
    host: Host,
    dirs: Sequence[PartitionDir],
    log_dirs: Mapping[str, LogDirFacts],
    now_ms: int,
    patience: Patience,
) -> BrokersToAsk:
    """For the host as it was just looked at: `log_dirs` with their holders, `dirs` on them."""
    ours = [f for f in log_dirs.values() if not f.quarantine]
    on_disk = settled_on_disk(dirs, log_dirs, assignments, now_ms)
    holders = frozenset(f.holder.pid for f in ours if f.holder.pid is not None)
    stopped = bool(ours) and all(f.holder.state is HolderState.FREE for f in ours)
    asked = BrokersToAsk(assignments, target, settings, host, on_disk, holders, stopped, now_ms)
    return replace(asked, patience=patience)
