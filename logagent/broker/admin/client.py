"""A connection to a Kafka cluster for one round of questions, on kafka-python's network layer.

This is the one place that touches what kafka-python calls private (its event loop, its connection manager and the
request classes), for which the version is pinned: the public admin client swallows error codes that matter here, has
no time limit of its own, and leaves a thread behind when the first connection fails. Import it only where the Admin
API is asked; loading kafka-python takes a few hundred milliseconds.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

from logagent.broker.admin.client_log import Complaints
from logagent.errors import ServiceUnreachable, UnreadableError

with warnings.catch_warnings():
    # kafka-python 3.0.12 reads its schemas through functions that Python 3.11 and 3.12 call deprecated.
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    import kafka.errors as kafka_errors
    from kafka.net.selector import NetworkSelector
    from kafka.protocol.admin import DescribeLogDirsRequest, DescribeQuorumRequest, ListPartitionReassignmentsRequest
    from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
    from kafka.protocol.metadata import MetadataRequest

    from logagent.broker.admin.limited import BEFORE_AUTHENTICATION_BYTES, LimitedManager

__all__ = [
    "AdminClient",
    "DescribeLogDirsRequest",
    "DescribeQuorumRequest",
    "ListOffsetsRequest",
    "ListPartitionReassignmentsRequest",
    "MetadataRequest",
    "OffsetForLeaderEpochRequest",
    "cluster_request",
]

NOT_CONTROLLER = 41
_RETRY_SECONDS = 0.2

# What a broker says to a wrong password. Its answer is often lost (it closes the connection right after it, and
# kafka-python then sees only that), so with SASL a few closed connections to each server mean the same.
REFUSALS = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError)
CLOSED_CONNECTIONS = 3

# A wrong password, a missing authority and the wrong protocol all end in a closed connection or a time-out.
CAUSES = (
    "nobody listens there, or user and password (sasl.jaas.config), the certificate authority "
    "(ssl.truststore.location) or the protocol (security.protocol) do not fit that listener"
)
HINT = (
    "check kafka.bootstrap_servers and the file that kafka.client names; a wrong password, a certificate authority "
    "that did not sign the broker's certificate and the wrong security.protocol all look like this"
)


def cluster_request() -> Any:
    """A metadata request without topics: brokers, controller, cluster id."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


class AdminClient:
    """Sends requests to a cluster; connects at the first one. `timeout` (seconds) bounds each question.

    Use one for one round and close it: what it knows of the cluster's brokers does not heal. Not thread-safe.
    Whatever goes wrong on the way is `ServiceUnreachable`; an answer that the broker's version cannot give is
    `UnreadableError`.
    """

    def __init__(self, bootstrap_servers: str, config: Mapping[str, Any], timeout: float = 10.0) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.timeout = timeout
        self._config = dict(config)
        self._net: Any = None
        self._manager: Any = None
        self._complaints = self._new_complaints()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections and the thread behind them; nothing if there are none."""
        if self._net is None:
            return
        net, manager = self._net, self._manager
        self._net = self._manager = None
        with contextlib.suppress(Exception):
            # On the thread that owns the connections: it may be working on one of them.
            net.run(lambda: manager.close())
        with contextlib.suppress(Exception):
            net.stop(timeout_ms=2000)
        with contextlib.suppress(Exception):
            net.close()
        self._complaints.close()

    def connect(self) -> None:
        """Find the cluster through any of the bootstrap servers, within the time limit."""
        if self._manager is not None:
            return
        milliseconds = int(self.timeout * 1000)
        settings: dict[str, Any] = {
            "client_id": "logagent",
            "bootstrap_servers": [server.strip() for server in self.bootstrap_servers.split(",")],
            "request_timeout_ms": milliseconds,
            "receive_message_max_bytes": BEFORE_AUTHENTICATION_BYTES,
            "socket_connection_setup_timeout_ms": milliseconds,
            # Several servers are tried in turn, so one that is down must not use up the time.
            "reconnect_backoff_max_ms": 1000,
            # This client asks what it wants to know; its own refreshing is only noise.
            "metadata_max_age_ms": 24 * 3600 * 1000,
            "allow_auto_create_topics": False,
            **self._config,
        }
        self._complaints = self._new_complaints()
        self._complaints.listen()
        try:
            self._net = NetworkSelector(**settings)
            self._manager = LimitedManager(self._net, **settings)
            self._net.start()
            self._bootstrap()
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):
                raise  # somebody has no more time for this, and leaves no thread behind
            reason = self._complaints.reason(error)
            raise ServiceUnreachable(
                f"cannot talk to Kafka at {self.bootstrap_servers}: {CAUSES} ({reason})", hint=HINT
            ) from error

    def _new_complaints(self) -> Complaints:
        sasl = str(self._config.get("security_protocol", "")).startswith("SASL")
        servers = self.bootstrap_servers.count(",") + 1
        return Complaints(
            refusals=REFUSALS,
            ignored=(kafka_errors.KafkaTimeoutError, kafka_errors.NodeNotReadyError),
            closed_left=CLOSED_CONNECTIONS * servers if sasl else None,
        )

    def _bootstrap(self) -> None:
        """Wait for the first connection, but not once a broker refused user or password: trying that again and again
        until the time is up would only lock the account."""
        complaints = self._complaints
        future = self._manager.bootstrap_async(int(self.timeout * 1000))

        def wake_when_done() -> None:
            future.add_both(lambda _: complaints.wake.set())

        self._net.call_soon_with_future(wake_when_done)
        complaints.wake.wait(self.timeout + 0.1)
        if not future.is_done:
            raise complaints.error or TimeoutError(f"no answer within {self.timeout:g} s")
        if future.exception is not None:
            raise future.exception

    def send(self, make_request: Callable[[], Any], node_id: int | None = None) -> Any:
        """The answer of `node_id` to a request, or of any broker that answers (each try makes the request anew: it
        carries the version that one broker speaks)."""
        self.connect()
        if node_id is not None:
            return self._send(make_request(), node_id)
        deadline = time.monotonic() + self.timeout
        while True:
            # A broker that does not answer is passed over for a while by the manager, so this ends at another one.
            try:
                return self._send(make_request(), None)
            except ServiceUnreachable:
                if time.monotonic() + _RETRY_SECONDS > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)

    def send_to_controller(self, make_request: Callable[[], Any]) -> Any:
        """The controller's answer (in KRaft any broker's, which forwards); tried until the time limit."""
        deadline = time.monotonic() + self.timeout
        while True:
            last: ServiceUnreachable
            try:
                controller = self.send(cluster_request).controller_id
                if controller < 0:
                    raise ServiceUnreachable(f"the cluster at {self.bootstrap_servers} has no controller now")
                response = self._send(make_request(), controller)
                if response.error_code != NOT_CONTROLLER:
                    return response
                last = ServiceUnreachable(f"node {controller} is no longer the controller")
            except ServiceUnreachable as error:
                last = error
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise last
            time.sleep(_RETRY_SECONDS)

    def request_version(self, request_class: Any, node_id: int) -> int:
        """The version in which `node_id` would be sent a request of this class; -1 if it knows none that we know."""
        self.connect()
        connection = self._guarded(lambda: self._connection(node_id), node_id)
        try:
            return int(connection.broker_version_data.api_version(request_class))
        except kafka_errors.IncompatibleBrokerVersion:
            return -1

    async def _connection(self, node_id: int) -> Any:
        return await self._manager.get_connection(node_id)

    def _send(self, request: Any, node_id: int | None) -> Any:
        return self._guarded(lambda: self._manager.send(request, node_id), node_id)

    def _guarded(self, ask: Callable[[], Any], node_id: int | None) -> Any:
        who = "a broker" if node_id is None else f"node {node_id}"
        self._complaints.error = None
        try:
            return self._run(ask)
        except kafka_errors.IncompatibleBrokerVersion as error:
            raise UnreadableError(f"{who} cannot answer this: {error}") from error
        except kafka_errors.UnknownBrokerIdError as error:
            known = ", ".join(str(broker.node_id) for broker in self._manager.cluster.brokers())
            raise ServiceUnreachable(
                f"{who} is not among the live brokers of the cluster at {self.bootstrap_servers} ({known})",
                hint="start it, or ask again when the cluster knows it",
            ) from error
        except Exception as error:
            reason = self._complaints.reason(error)
            raise ServiceUnreachable(
                f"{who} of the cluster at {self.bootstrap_servers} does not answer: {reason}", hint=HINT
            ) from error

    def _run(self, ask: Callable[[], Any]) -> Any:
        """Run `ask` (which gives an awaitable) on the network thread, never longer than the time limit.

        The limit of our own is needed: a TLS handshake that the other side never answers has none.
        """

        async def limited() -> Any:
            future = self._net.call_soon_with_future(ask)
            return await self._manager.wait_for(future, int(self.timeout * 1000) + 100)

        return self._net.run(limited)
