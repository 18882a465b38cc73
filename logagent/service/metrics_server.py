"""The HTTP side of the metrics: prometheus-client's WSGI application, served by a thread that can be stopped.

It answers `/metrics` and nothing else, has no secrets, and changes nothing. Anybody who can connect can read it, so it
listens on loopback unless an operator names another address: that is allowed (for a Prometheus on another host), and
the daemon logs it once.

Where the daemon's metrics go: over HTTP, into a textfile, or both. Nothing here may stop the work.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from logagent.base.config.settings import MetricsSettings
from logagent.base.errors import LogAgentError
from logagent.kafka.processes.broker_process import BrokerProcess
from logagent.service.events import Events
from logagent.service.metrics import Metrics
from logagent.service.summary import CycleSummary, HealthSummary, PublishSummary

if TYPE_CHECKING:
    from logagent.deletion.agent.node_requests import RequestsSummary


class MetricsOutput:
    """The metrics of one daemon; `configure` opens them, and changes them after a reload.

    What is not available (the port is in use, the file cannot be written) is reported once, and the daemon goes on
    without it. prometheus-client is not imported if no metrics are wanted.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._settings: MetricsSettings | None = None
        self._metrics: Metrics | None = None
        self._server: MetricsServer | None = None

    def configure(self, settings: MetricsSettings) -> None:
        """Serve according to `settings` from now on. The counters stay."""
        if settings != self._settings:
            self.close()
            if settings.listen or settings.textfile:
                self._open(settings)
        # Last: other threads write the textfile that these name, and by then all else has changed.
        self._settings = settings
        if self._metrics is not None:
            self._metrics.observe_reload(successful=True)

    def reload_failed(self) -> None:
        if self._metrics is not None:
            self._metrics.observe_reload(successful=False)

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def cycle(self, s: CycleSummary) -> None:
        if self._metrics is not None:
            self._metrics.observe_cycle(s)
            self._write_textfile()

    def health(self, s: HealthSummary, brokers: Iterable[BrokerProcess]) -> None:
        if self._metrics is not None:
            self._metrics.observe_health(s)
            self._metrics.observe_brokers(brokers)
            self._write_textfile()

    def published(self, s: PublishSummary) -> None:
        if self._metrics is not None:
            self._metrics.observe_publish(s)

    def requests(self, s: RequestsSummary) -> None:
        if self._metrics is not None:
            self._metrics.observe_requests(s)

    def _open(self, settings: MetricsSettings) -> None:
        from logagent.service.metrics import Metrics

        if self._metrics is None:
            self._metrics = Metrics()
        self._metrics.kafka_names = settings.kafka_names
        if not settings.listen:
            return
        try:
            self._server = MetricsServer(self._metrics, settings.listen)
        except LogAgentError as e:
            self._events.say("no-metrics", "warning", reason=str(e), hint=e.hint)
            return
        self._events.say("metrics", listen=self._server.address)
        if not is_loopback(settings.listen):
            self._events.say("metrics-exposed", "warning", reason="anybody who can reach that address can read them")

    def _write_textfile(self) -> None:
        path = self._settings.textfile if self._settings is not None else None
        if path is None or self._metrics is None:
            return
        try:
            self._metrics.write_textfile(path)
        except OSError as e:
            if self._events.changed("textfile", e.errno):
                self._events.say("no-textfile", "warning", path=path, reason=e.strerror or str(e))
        else:
            self._events.changed("textfile", None)


# A client that connects and sends nothing is dropped after this time, or sooner if more than this many are connected.
_CLIENT_SECONDS = 10.0
_MOST_CLIENTS = 32
_SHORTAGE_SECONDS = 0.2


def split_listen(listen: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` (`[::1]:9640` for IPv6); the form has been checked with the configuration."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(listen: str) -> bool:
    """Whether only this host can connect there. A name other than `localhost` is not resolved and counts as not
    loopback."""
    host, _ = split_listen(listen)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class MetricsServer:
    """Serves `metrics` on `listen` from construction until `close`.

    `address` is where it listens, with the actual port if 0 was requested. Raises LogAgentError if it cannot listen
    there; that is not a reason to end a daemon that deletes and watches, so the caller goes on without it.
    """

    def __init__(self, metrics: Metrics, listen: str) -> None:
        host, port = split_listen(listen)
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _server_class(family)((str(where[0]), port), _Handler)
        except OSError as e:
            raise LogAgentError(
                f"cannot serve metrics on {listen}: {e.strerror or e}",
                hint="choose another metrics.listen (it may be taken by another daemon on this host)",
            ) from e
        self._server.set_app(_only_metrics(make_wsgi_app(metrics.registry)))
        bound = self._server.server_address
        self.address = f"{bound[0]!s}:{bound[1]}" if family == socket.AF_INET else f"[{bound[0]!s}]:{bound[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="metrics", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as e:
            self._server.server_close()
            hint = "the limit of threads (TasksMax, RLIMIT_NPROC) is too low"
            raise LogAgentError(f"cannot serve metrics on {listen}: {e}", hint=hint) from e

    def close(self) -> None:
        """Stop listening. Requests being answered finish on their own."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def _only_metrics(app: Any) -> App:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"logagent: the metrics are at /metrics\n"]
        response: Iterable[bytes] = app(environ, start_response)
        return response

    return answer


class _Server(ThreadingWSGIServer):
    """A thread per connection, at most `_MOST_CLIENTS`. One more replaces the oldest, which is dropped: any local user
    can hold connections open, but a scrape takes milliseconds and is never the oldest for long."""

    # Connections that the kernel completes before we accept them; further ones wait for seconds.
    request_queue_size = 4 * _MOST_CLIENTS

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        # In order of arrival; a socket in here is not closed yet.
        self._open: dict[socket.socket, None] = {}
        self._mutex = threading.Lock()
        super().__init__(address, handler)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                # The pending connection makes `accept` return at once again.
                time.sleep(_SHORTAGE_SECONDS)
            raise

    def server_bind(self) -> None:
        """As in HTTPServer, without asking a name server for our own name: it may take minutes to answer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._mutex:
            if len(self._open) >= _MOST_CLIENTS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                # Its thread reads end of file and closes it.
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._mutex:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is not logged; anything else is a bug and must be."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _server_class(family: int) -> type[_Server]:
    return type("_FamilyServer", (_Server,), {"address_family": family})


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
