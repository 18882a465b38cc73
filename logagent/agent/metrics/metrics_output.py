"""Where the daemon's metrics go: over HTTP, into a textfile, or both. Nothing here may stop the work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logagent.agent.daemon.events import Events
from logagent.errors import LogAgentError
from logagent.host.brokers.broker_process import BrokerProcess
from logagent.model.daemon_summary import CycleSummary, HealthSummary, OrdersSummary, PublishSummary
from logagent.settings import MetricsSettings

if TYPE_CHECKING:
    from logagent.agent.metrics.metrics import Metrics
    from logagent.agent.metrics.metrics_server import MetricsServer


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
        before, self._settings = self._settings, settings
        if settings != before:
            self.close()
            if settings.listen or settings.textfile:
                self._open(settings)
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

    def orders(self, s: OrdersSummary) -> None:
        if self._metrics is not None:
            self._metrics.observe_orders(s)

    def _open(self, settings: MetricsSettings) -> None:
        from logagent.agent.metrics.metrics import Metrics
        from logagent.agent.metrics.metrics_server import MetricsServer, is_loopback

        if self._metrics is None:
            self._metrics = Metrics()
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
