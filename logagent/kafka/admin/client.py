"""A connection to a Kafka cluster for one round of requests, on kafka-python's network layer.

Only the modules of this folder use private parts of kafka-python (its event loop, its connection manager and the
request classes), for which its version is pinned. Its public admin client swallows error codes that matter here, has no
time limit of its own, and leaves a thread behind if the first connection fails. Import this only where the Admin API is
needed; loading kafka-python takes a few hundred milliseconds.

Its exceptions often say only "timed out", and the reason is in its log: that is captured for our own messages
(`ClientLog`). What the other side may send is limited (`LimitedManager`).
"""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeGuard, TypeVar

import kafka.errors as kafka_errors
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from logagent.base.errors import ServiceUnreachable, UnreadableError

__all__ = [
    "AdminClient",
    "DescribeConfigsRequest",
    "DescribeLogDirsRequest",
    "DescribeProducersRequest",
    "DescribeQuorumRequest",
    "ListOffsetsRequest",
    "ListPartitionReassignmentsRequest",
    "MetadataRequest",
    "OffsetForLeaderEpochRequest",
    "cluster_request",
]

T = TypeVar("T")
_LOGGER: Final = logging.getLogger("kafka")


class ClientLog(logging.Handler):
    """Captures from `listen` to `close`; what kafka-python logs meanwhile goes nowhere else.

    `error` is the logged exception that says most of its cause, of those the first; not one of `ignored`. `wake` is set
    as soon as it logs a refusal of user or password, or the `failed_left`-th connection that would fail again, too.
    Callers may also set it to wake the waiting thread.
    """

    def __init__(self, *, protocol: str, ignored: tuple[type[BaseException], ...], failed_left: int) -> None:
        super().__init__(logging.WARNING)
        self.error: BaseException | None = None
        self.wake = threading.Event()
        self._protocol = protocol
        self._ignored = ignored
        self._failed_left = failed_left
        self._propagate = True

    def listen(self) -> None:
        self._propagate = _LOGGER.propagate
        _LOGGER.addHandler(self)
        _LOGGER.propagate = False

    def close(self) -> None:
        if self in _LOGGER.handlers:
            _LOGGER.removeHandler(self)
            _LOGGER.propagate = self._propagate
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if not isinstance(argument, BaseException) or isinstance(argument, self._ignored):
                continue
            rank = why_not_connected(argument)[0]
            if "Connection lost" in str(record.msg):
                closed = self._protocol.startswith("SASL") and "socket disconnected" in str(argument)
                self._failed_left -= closed or rank == CERTIFICATE
            if rank == AUTHENTICATION or self._failed_left <= 0:
                self.wake.set()
            if self.error is None or rank < why_not_connected(self.error)[0]:
                self.error = argument

    def why(self, error: BaseException) -> tuple[int, str, str]:
        """As `why_not_connected`, of `error` or of what was logged if that says more."""
        found = why_not_connected(error, self._protocol)
        if self.error is None:
            return found
        logged = why_not_connected(self.error, self._protocol)
        return logged if logged[0] < found[0] or isinstance(error, self._ignored) else found


# ApiVersions and SASL handshakes take a few hundred bytes.
BEFORE_AUTHENTICATION_BYTES = 64 << 10
# 200,000 partitions with their replicas are 20 MB.
MAX_RESPONSE_BYTES = 32 << 20
_READ_BYTES = 64 << 10
_MOST_AT_ONCE = 1 << 20


class LimitedManager(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connections, with limits on what the other side may send. Create it with
    `receive_message_max_bytes` = `BEFORE_AUTHENTICATION_BYTES`.

    `kafka.bootstrap_servers` can lead to any server: an answer of 500 MB, read completely before it was parsed, took
    5 GB of memory. kafka-python reads a socket until it is empty, which never happens with a fast sender, so that is
    limited too. Uses the private `_build_transport`, `_sock`, `_sock_recv` and `_max_frame_size`.
    """

    def get_connection(self, node_id: Any, *args: Any, **kwargs: Any) -> Any:
        known = node_id in self._conns
        connection = super().get_connection(node_id, *args, **kwargs)
        if not known:
            connection.init_future.add_callback(lambda _: _allow_more(connection))
        return connection

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """As kafka-python's, but a connection that fails is closed, not left to the garbage collector: a broker that is
        down, or a listener with another protocol, would cost the daemon descriptors until then."""
        proxy_url = f"{ClosedOnFailure.SCHEMES[0]}://"
        options = self.config["socket_options"]
        sock = await create_connection(self._net, node.host, node.port, options, proxy_url, timeout_at)
        transport = None
        try:
            if self.ssl_enabled:
                tls = {key: value for key, value in self.config.items() if key.startswith("ssl_")}
                transport = KafkaSSLTransport(self._net, sock, host=node.host, **tls)
            else:
                transport = KafkaTCPTransport(self._net, sock, host=node.host)
            await transport.handshake()
        except BaseException as error:  # GeneratorExit, too: the attempt was cancelled
            if transport is not None:
                transport.close()
            sock.close()
            if transport is None or not isinstance(error, Exception):
                raise
            raise kafka_errors.KafkaConnectionError(f"Handshake failed: {error}") from error
        transport._sock_recv = lambda: receive(transport._sock)
        return transport


class ClosedOnFailure(KafkaNetSocket):  # type: ignore[misc]
    """kafka-python's sockets, closed when they do not connect. Chosen by the scheme of `proxy_url`; uses no proxy."""

    SCHEMES = ("direct",)

    async def sock_connect(self, net: Any, sock: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().sock_connect(net, sock, *args, **kwargs)
        except BaseException:  # GeneratorExit, too: the attempt was cancelled
            sock.close()
            raise


def _allow_more(connection: Any) -> None:
    if connection.parser is not None:
        connection.parser._max_frame_size = MAX_RESPONSE_BYTES


def receive(sock: Any) -> tuple[bytes, Exception | None]:
    """Read what a non-blocking socket has now, up to about `_MOST_AT_ONCE` bytes; returns it and the error, if any."""
    data = bytearray()
    # Selectors do not report data that TLS has already decrypted, so it must not be left behind.
    while len(data) < _MOST_AT_ONCE or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
        try:
            piece = sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            break
        except Exception as error:
            # Together with an error kafka-python drops the data: a broker's "invalid credentials", right before it
            # closes the connection. The next read meets the error again.
            return bytes(data), None if data else kafka_errors.KafkaConnectionError(error)
        if not piece:
            return bytes(data), None if data else kafka_errors.KafkaConnectionError("socket disconnected")
        data += piece
    return bytes(data), None


with warnings.catch_warnings():
    # kafka-python 3.0.12 reads its schemas with functions that are deprecated in Python 3.11 and 3.12.
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    from kafka.net.selector import NetworkSelector
    from kafka.protocol.admin import (
        DescribeConfigsRequest,
        DescribeLogDirsRequest,
        DescribeProducersRequest,
        DescribeQuorumRequest,
        ListPartitionReassignmentsRequest,
    )
    from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
    from kafka.protocol.metadata import MetadataRequest


NOT_CONTROLLER = 41
_RETRY_SECONDS = 0.2
_LEAST_SECONDS = 0.02

# A certificate that is not accepted now is not accepted later. A listener with another protocol closes connections, and
# so does a broker that refuses a password before its answer arrives: with SASL, trying on could lock the account.
FAILED_CONNECTIONS = 3

HINT = "check kafka.bootstrap_servers and the file that kafka.client names"
AUTHENTICATION, CERTIFICATE, PROTOCOL, CONNECTION, NAME, UNKNOWN = range(6)


def why_not_connected(error: BaseException, protocol: str = "PLAINTEXT") -> tuple[int, str, str]:
    """What a failed attempt says of its cause: its rank (the surest first), what the other side did, and what to do.

    kafka-python wraps what the socket raised, or has only its words."""
    chain, cause = [error], error
    while len(chain) < 9 and (inner := next((a for a in (cause.__cause__, *cause.args) if _is_error(a)), None)):
        cause = inner
        chain.append(cause)
    words = _words(error)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        hint = "set sasl.mechanism in the file of kafka.client to one of the listener's sasl.enabled.mechanisms"
        return AUTHENTICATION, f"the listener does not take this sasl.mechanism ({words})", hint
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        hint = "correct username and password of sasl.jaas.config in the file of kafka.client, or make that user"
        return AUTHENTICATION, f"authentication failed: {words}", hint
    tls = next((e for e in chain if isinstance(e, ssl.SSLError)), None)
    if isinstance(tls, ssl.SSLCertVerificationError):
        hint = "give the authority that signed it as ssl.truststore.location in the file of kafka.client"
        if "match" in tls.verify_message:
            hint = "name the broker in kafka.bootstrap_servers as its certificate does"
        return CERTIFICATE, f"the broker's certificate is not accepted: {tls.verify_message.rstrip('.')}", hint
    alert = (tls.reason or "") if tls is not None else ""
    if "ALERT" in alert and ("CERTIFICATE" in alert or "UNKNOWN_CA" in alert):
        hint = "give one that the listener's truststore knows as ssl.keystore.location in the file of kafka.client"
        return CERTIFICATE, f"the broker does not accept our client certificate, or wants one ({alert})", hint
    hint = "set security.protocol in the file of kafka.client to that of the listener"
    if tls is not None:
        return PROTOCOL, f"the listener does not speak TLS as security.protocol={protocol} does ({alert or tls})", hint
    if isinstance(error, (kafka_errors.IllegalSaslStateError, kafka_errors.KafkaProtocolError)):
        return PROTOCOL, f"the listener does not speak security.protocol={protocol} ({words})", hint
    if "socket disconnected" in words or any(isinstance(e, ConnectionResetError) for e in chain):
        says = "the connection was closed without an answer, as by a listener with another protocol than"
        return PROTOCOL, f"{says} {protocol}", hint
    if "DNS " in words:
        return NAME, "the host name is not known here (DNS)", "correct the name in kafka.bootstrap_servers"
    if "ECONNREFUSED" in words or any(isinstance(e, ConnectionRefusedError) for e in chain):
        return CONNECTION, "connection refused: nothing listens there", "start the broker, or correct the port"
    return UNKNOWN, words, HINT


def _is_error(thing: object) -> TypeGuard[BaseException]:
    return isinstance(thing, BaseException)


def _words(error: BaseException) -> str:
    """Without kafka-python's prefixes."""
    text = re.sub(r"^\[Error \d+\] ", "", str(error))
    while text.startswith(prefix := f"{type(error).__name__}: "):
        text = text.removeprefix(prefix)
    return text or type(error).__name__


def cluster_request() -> Any:
    """A metadata request without topics: brokers, controller, cluster id."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def retried(ask: Callable[[], T], seconds: float, pause: float) -> T:
    """`ask()`, repeated every `pause` seconds while nobody answers, for at most `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ServiceUnreachable:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)


class AdminClient:
    """Sends requests to a cluster; connects on the first one. `timeout` (seconds) limits each request, `until` (on the
    monotonic clock) all of them.

    Use one for one round and close it: it does not refresh what it knows about the cluster's brokers. Not thread-safe.
    Raises `ServiceUnreachable` for all connection problems, and `UnreadableError` if the broker's version does not
    support the request.
    """

    def __init__(self, bootstrap_servers: str, config: Mapping[str, Any], timeout: float = 10.0) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.until: float | None = None
        self._timeout = timeout
        self._config = dict(config)
        self._net: Any = None
        self._manager: Any = None
        self._client_log = self._new_client_log()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end their thread, if there are any."""
        if self._net is None:
            return
        net, manager = self._net, self._manager
        self._net = self._manager = None
        # Each step whatever became of the one before: the answers are read, and what stays open ends with the process.
        with contextlib.suppress(Exception):
            # Run it on the thread that owns the connections, which may be using one of them.
            net.run(lambda: manager.close())
        with contextlib.suppress(Exception):
            net.stop(timeout_ms=2000)
        with contextlib.suppress(Exception):
            net.close()
        self._client_log.close()

    @property
    def principal(self) -> str:
        """As whom brokers see us, as far as the file of kafka.client says it."""
        if user := self._config.get("sasl_plain_username"):
            return f"User:{user}"
        return "our certificate's principal" if "ssl_context" in self._config else "User:ANONYMOUS"

    @property
    def timeout(self) -> float:
        if self.until is None:
            return self._timeout
        return min(self._timeout, max(_LEAST_SECONDS, self.until - time.monotonic()))

    def connect(self) -> None:
        """Connect to the cluster through any of the bootstrap servers, within the time limit."""
        if self._manager is not None:
            return
        milliseconds = int(self.timeout * 1000)
        settings: dict[str, Any] = {
            "client_id": "logagent",
            "bootstrap_servers": [server.strip() for server in self.bootstrap_servers.split(",")],
            "request_timeout_ms": milliseconds,
            "receive_message_max_bytes": BEFORE_AUTHENTICATION_BYTES,
            "socket_connection_setup_timeout_ms": milliseconds,
            # Servers are tried in turn, so one that is down must not use up all the time.
            "reconnect_backoff_max_ms": 1000,
            # We request metadata when we need it; automatic refreshes would only be noise.
            "metadata_max_age_ms": 24 * 3600 * 1000,
            "allow_auto_create_topics": False,
            **self._config,
        }
        self._client_log = self._new_client_log()
        self._client_log.listen()
        try:
            self._net = NetworkSelector(**settings)
            self._manager = LimitedManager(self._net, **settings)
            self._net.start()
            self._bootstrap()
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):
                raise  # interrupted from outside; the thread has been ended
            _, reason, hint = self._client_log.why(error)
            raise ServiceUnreachable(
                f"cannot talk to Kafka at {self.bootstrap_servers}: {reason}", hint=hint
            ) from error

    def _new_client_log(self) -> ClientLog:
        return ClientLog(
            protocol=str(self._config.get("security_protocol", "PLAINTEXT")),
            ignored=(kafka_errors.KafkaTimeoutError, kafka_errors.NodeNotReadyError),
            failed_left=FAILED_CONNECTIONS * (self.bootstrap_servers.count(",") + 1),
        )

    def _bootstrap(self) -> None:
        """Wait for the first connection, but stop once a broker refuses user or password: retrying until the timeout
        could lock the account."""
        client_log = self._client_log
        future = self._manager.bootstrap_async(int(self.timeout * 1000))

        def wake_when_done() -> None:
            future.add_both(lambda _: client_log.wake.set())

        self._net.call_soon_with_future(wake_when_done)
        client_log.wake.wait(self.timeout + 0.1)
        if not future.is_done:
            raise client_log.error or TimeoutError(f"no answer within {self.timeout:g} s")
        if future.exception is not None:
            raise future.exception

    def send(self, make_request: Callable[[], Any], node_id: int | None = None) -> Any:
        """The answer of `node_id` to a request, or that of any broker. Each attempt builds a new request, because a
        request carries the version negotiated with one broker."""
        self.connect()
        if node_id is not None:
            return self._send(make_request(), node_id)
        # The manager avoids a broker that did not answer for a while, so the next attempt reaches another one.
        return retried(lambda: self._send(make_request(), None), self.timeout, _RETRY_SECONDS)

    def send_to_controller(self, make_request: Callable[[], Any]) -> Any:
        """The controller's answer (in KRaft that of any broker, which forwards); retried until the time limit."""

        def ask() -> Any:
            controller = self.send(cluster_request).controller_id
            if controller < 0:
                raise ServiceUnreachable(f"the cluster at {self.bootstrap_servers} has no controller now")
            response = self._send(make_request(), controller)
            if response.error_code == NOT_CONTROLLER:
                raise ServiceUnreachable(f"node {controller} is no longer the controller")
            return response

        self.connect()  # not within what is retried: a password that is refused would be sent again and again
        return retried(ask, self.timeout, _RETRY_SECONDS)

    def request_version(self, request_class: Any, node_id: int) -> int:
        """The version in which a request of this class would be sent to `node_id`; -1 if we have none in common."""
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
        self._client_log.error = None
        try:
            return self._run(ask)
        except kafka_errors.IncompatibleBrokerVersion as error:
            raise UnreadableError(f"{who} cannot answer this: {error}") from error
        except kafka_errors.UnknownBrokerIdError as error:
            known = ", ".join(str(broker.node_id) for broker in self._manager.cluster.brokers())
            raise ServiceUnreachable(
                f"{who} is not among the live brokers of the cluster at {self.bootstrap_servers} ({known})",
                hint="start it, or try again once it has joined the cluster",
            ) from error
        except Exception as error:
            rank, why, hint = self._client_log.why(error)
            if rank > CERTIFICATE:  # it spoke our protocol before
                why, hint = _words(self._client_log.error or error), HINT
            raise ServiceUnreachable(
                f"{who} of the cluster at {self.bootstrap_servers} does not answer: {why}", hint=hint
            ) from error

    def _run(self, ask: Callable[[], Any]) -> Any:
        """Run `ask` (which returns an awaitable) on the network thread, within the time limit.

        We need our own limit: kafka-python has none for a TLS handshake that the other side never answers.
        """

        async def limited() -> Any:
            future = self._net.call_soon_with_future(ask)
            return await self._manager.wait_for(future, int(self.timeout * 1000) + 100)

        return self._net.run(limited)
