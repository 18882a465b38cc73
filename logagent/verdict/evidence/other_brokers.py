"""The other brokers of this host's cluster, found without configuration while its own broker is stopped: at the
addresses that they registered with, by the metadata log on this host (`RegisterBrokerRecord`).

One rule for everybody who is asked in place of our own broker, whatever about: `why_not_ours`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logagent.base.config.settings import KafkaSettings
from logagent.base.dir_names import REPLICATION
from logagent.base.errors import LogAgentError
from logagent.kafka.files.properties import inter_broker_listener
from logagent.kafka.image import AssignmentImage, BrokerRegistration, Endpoint
from logagent.kafka.processes.target import Target
from logagent.kafka.retention.settings import parsed_ms
from logagent.verdict.brokers import SESSION_MS, StoppedBroker, why_live, why_not_our_quorum
from logagent.verdict.rules import Host

if TYPE_CHECKING:
    from logagent.kafka.admin.reader import AdminReader

TIMEOUT_SECONDS = 5.0
CONNECT_SECONDS = 2.0
MOST_OTHERS = 5
"""How many other brokers are tried: any one that is up knows the cluster."""

SET_BOOTSTRAP = "set kafka.bootstrap_servers, and kafka.client where it needs TLS or a password"
Connect = Callable[[str, Mapping[str, Any] | None], "AdminReader"]
# HOST:PORT, the settings to connect with, and whether it is known that our own broker listens there.
Address = tuple[str, Mapping[str, Any] | None, bool]


def connect_to(bootstrap_servers: str, client: Mapping[str, Any] | None) -> AdminReader:
    from logagent.kafka.admin.reader import AdminReader

    return AdminReader(bootstrap_servers, client, TIMEOUT_SECONDS)


def client_config(kafka: KafkaSettings) -> dict[str, Any] | None:
    """The settings of `kafka.client`, if that is set. Raises ConfigError."""
    if kafka.client is None:
        return None
    from logagent.kafka.admin.client_properties import read_client_properties

    return read_client_properties(kafka.client)


# Brokers write it every 5 s (`replica.high.watermark.checkpoint.interval.ms`) and when they stop; nobody else does.
_WRITTEN_WHILE_IT_RUNS = REPLICATION


def stopped_broker(own_log: AssignmentImage | None, host: Host, target: Target) -> StoppedBroker | None:
    """This host's broker by its own disk, for `why_not_ours`; None if there is no metadata log of ours to go by."""
    if own_log is None or host.node_id is None or own_log.cluster_id is None or own_log.cluster_id != host.cluster_id:
        return None
    written = [own_log.at_ms]
    for log_dir in target.log_dirs:
        with suppress(OSError):
            written.append(os.stat(os.path.join(log_dir, _WRITTEN_WHILE_IT_RUNS)).st_mtime_ns // 1_000_000)
    session_ms = parsed_ms(target.server.props.get("broker.session.timeout.ms", ""))
    return StoppedBroker(
        node_id=host.node_id,
        cluster_id=host.cluster_id,
        end=own_log.offset,
        epoch=own_log.leader_epoch,
        stopped_ms=max(written),
        session_ms=SESSION_MS if session_ms is None else session_ms,
    )


def why_not_ours(reader: AdminReader, ours: StoppedBroker, now_ms: int) -> str | None:
    """Why whoever answers is not known to be of the cluster of our broker, which is stopped; None if it is.

    Raises what a broker's answer raises."""
    if (answered := reader.cluster_id()) != ours.cluster_id:
        return f"it is of cluster {answered}"
    nodes = reader.nodes()
    if (why := why_live(nodes, ours, now_ms)) is not None:
        return why
    if not nodes or not reader.has_quorum(nodes[0]):
        return "it does not say how far its metadata log reaches (before Kafka 3.3, or in ZooKeeper mode)"
    return why_not_our_quorum(reader.quorum(), ours)


def first_of(
    addresses: Iterable[Address],
    connect: Connect,
    why_not: Callable[[AdminReader, bool], str | None],
    problems: list[str],
) -> AdminReader | None:
    """A reader of the first address whose broker is one of ours; why the others are not goes into `problems`."""
    for servers, client, is_its_own in addresses:
        reader = connect(servers, client)
        try:
            why = why_not(reader, is_its_own)
        except LogAgentError as e:
            why = str(e)
        except BaseException:
            reader.close()
            raise
        if why is None:
            return reader
        reader.close()
        problems.append(f"{servers}: {why}")
    return None


@dataclass(slots=True)
class OtherBrokers:
    """`own_log`: the metadata log on this host; `stopped_broker`: its broker. `client`: the settings of
    `kafka.client`."""

    own_log: AssignmentImage
    stopped_broker: StoppedBroker
    target: Target
    client: Mapping[str, Any] | None
    now_ms: int
    connect: Connect = connect_to
    connect_seconds: float = CONNECT_SECONDS
    problems: list[str] = field(default_factory=list)

    def find(self) -> AdminReader | str:
        """A reader of one of them that is proven ours, or why there is none."""
        tried = [*self._candidates()]
        silent = unreachable([endpoint for _, endpoint, _ in tried], self.connect_seconds)
        addresses: list[Address] = []
        for node_id, endpoint, config in tried:
            if (why := silent[endpoint]) is None:
                addresses.append((address(endpoint), config, False))
            else:
                self.problems.append(f"node {node_id} ({address(endpoint)}): {why}")
        found = first_of(
            addresses, self.connect, lambda r, _: why_not_ours(r, self.stopped_broker, self.now_ms), self.problems
        )
        if found is not None:
            return found
        return "; ".join(dict.fromkeys(self.problems)) or "the metadata log on this host names no other broker"

    def _candidates(self) -> Iterator[tuple[int, Endpoint, Mapping[str, Any] | None]]:
        wanted, tried = inter_broker_listener(self.target.server.props), 0
        others = (b for b in self.own_log.brokers.values() if b.node_id != self.stopped_broker.node_id)
        for broker in sorted(others, key=_live_first):
            endpoints = sorted(broker.endpoints, key=lambda e: e.listener != wanted)
            way = next(((e, c) for e in endpoints for c in _ways(e, self.client)), None)
            if way is None:
                protocols = ", ".join(dict.fromkeys(e.protocol for e in endpoints)) or "no protocol that is known"
                self.problems.append(
                    f"node {broker.node_id} listens with {protocols} only, and no password goes to an address that"
                    f" nobody configured unless TLS proves who it is: {SET_BOOTSTRAP}"
                )
            elif tried < MOST_OTHERS:
                tried += 1
                yield broker.node_id, *way


def _live_first(broker: BrokerRegistration) -> tuple[bool, int]:
    return broker.fenced is not False, broker.node_id


def _ways(endpoint: Endpoint, client: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any] | None]:
    """How an address that nobody configured may be connected to: without a secret, or with TLS that proves who it
    is."""
    matches = client is not None and client["security_protocol"] == endpoint.protocol
    if client is not None and matches and endpoint.protocol.endswith("SSL") and client["ssl_context"].check_hostname:
        yield client
    if endpoint.protocol == "PLAINTEXT":
        yield None


def unreachable(endpoints: Iterable[Endpoint], seconds: float) -> dict[Endpoint, str | None]:
    """By address: why nobody answers there, None if somebody does. All at once, and for `seconds` at most: a name
    server that is silent has a time limit of its own, and the client would try again until its time is over."""
    answers: dict[Endpoint, str | None] = dict.fromkeys(endpoints, f"no answer within {seconds:g} s")

    def try_one(endpoint: Endpoint) -> None:
        try:
            socket.create_connection((endpoint.host, endpoint.port), seconds).close()
            answers[endpoint] = None
        except (OSError, UnicodeError) as e:
            answers[endpoint] = getattr(e, "strerror", None) or str(e)

    # Not waited for at the end of the process.
    threads = [threading.Thread(target=try_one, args=(e,), daemon=True, name="find-brokers") for e in answers]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)


def address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
