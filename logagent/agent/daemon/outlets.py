"""Where the daemon's figures go: the metrics (HTTP, textfile) and the fleet store. None of it may stop the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from logagent.agent.clock import Clock
from logagent.agent.daemon.events import Events
from logagent.agent.session.session import Session
from logagent.errors import LogAgentError
from logagent.model.facts import Facts
from logagent.model.records import HolderState
from logagent.model.summary import CycleSummary, HealthSummary, PublishSummary
from logagent.settings import Settings

if TYPE_CHECKING:
    from logagent.agent.metrics.metrics import Metrics
    from logagent.agent.metrics.metrics_server import MetricsServer
    from logagent.agent.publish.publish import Publisher
    from logagent.host.brokers.process import BrokerProcess


class Outlets:
    """Metrics and publisher of one daemon, as the settings want them; changed by `configure`.

    What cannot be had (a port that is taken, a file that cannot be written) is said once, and done without.
    """

    def __init__(self, settings: Settings, *, state_dir: str, clock: Clock, host: str, events: Events) -> None:
        self._state_dir = state_dir
        self._clock = clock
        self._host = host
        self._events = events
        self._settings = settings
        self._metrics: Metrics | None = None
        self._server: MetricsServer | None = None
        self._publisher: Publisher | None = None
        self._wanted = False
        self._holders: frozenset[tuple[int, int]] = frozenset()
        self.brokers: tuple[BrokerProcess, ...] = ()

    def open(self) -> None:
        """Begin to serve. Not before: a daemon that is refused must not take the port of the one that runs."""
        self._open_metrics()
        self._open_publisher()

    def configure(self, settings: Settings) -> None:
        before, self._settings = self._settings, settings
        if settings.metrics != before.metrics:
            self._close_server()
            self._open_metrics()
        if settings.publish != before.publish:
            self._open_publisher()
        if self._metrics is not None:
            self._metrics.observe_reload(successful=True)

    def reload_failed(self) -> None:
        if self._metrics is not None:
            self._metrics.observe_reload(successful=False)

    def close(self) -> None:
        self._close_server()

    # Metrics

    def _open_metrics(self) -> None:
        wanted = self._settings.metrics
        if not wanted.listen and not wanted.textfile:
            return
        from logagent.agent.metrics.metrics import Metrics
        from logagent.agent.metrics.metrics_server import MetricsServer, is_loopback

        if self._metrics is None:
            self._metrics = Metrics()
            self._metrics.observe_reload(successful=True)
        if not wanted.listen:
            return
        try:
            self._server = MetricsServer(self._metrics, wanted.listen)
        except LogAgentError as e:
            self._events.say("no-metrics", "warning", reason=str(e), hint=e.hint)
            return
        self._events.say("metrics", listen=self._server.address)
        if not is_loopback(wanted.listen):
            self._events.say("metrics-open", "warning", reason="anybody who can reach that address can read them")

    def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def observed(self, s: CycleSummary) -> CycleSummary:
        if self._metrics is not None:
            self._metrics.observe_cycle(s)
            self._write_textfile()
        return s

    def observe_health(self, s: HealthSummary) -> None:
        from logagent.host.brokers.process import look_at_process

        found = (look_at_process(pid, started or None) for pid, started in sorted(self._holders))
        self.brokers = tuple(b for b in found if b is not None)
        if self._metrics is None:
            return
        self._metrics.observe_health(s)
        self._metrics.observe_brokers(self.brokers)
        self._write_textfile()

    def _write_textfile(self) -> None:
        path = self._settings.metrics.textfile
        if path is None or self._metrics is None:
            return
        try:
            self._metrics.write_textfile(path)
        except OSError as e:
            if self._events.changed("textfile", e.errno):
                self._events.say("no-textfile", "warning", path=path, reason=e.strerror or str(e))
        else:
            self._events.changed("textfile", None)

    # The fleet store

    def _open_publisher(self) -> None:
        wanted = self._settings.publish
        self._publisher = None
        if wanted.store is not None:
            from logagent.agent.publish.publish import Publisher

            self._publisher = Publisher(
                wanted.store, self._state_dir, self._clock, host=self._host, interval_ms=wanted.interval
            )

    def want_snapshot(self) -> bool:
        self._wanted = self._publisher is not None
        return self._wanted

    def spool(self, session: Session, facts: Facts, stop: Callable[[], bool]) -> bool:
        """Keep what is to be published of this inventory, if that was wanted: whether there is something to send."""
        held = (f.holder for f in facts.log_dirs.values() if f.holder.state in (HolderState.HELD, HolderState.STARTING))
        self._holders = frozenset((h.pid, h.start_time_ms or 0) for h in held if h.pid is not None)
        if self._publisher is None or not self._wanted:
            return False
        from logagent.agent.publish.publish import Stopped

        self._wanted = False
        try:
            self._publisher.spool(session, facts, stop)
        except Stopped:
            return False
        except LogAgentError as e:
            if self._events.changed("spool", str(e)):
                self._events.say("not-published", "warning", reason=str(e), hint=e.hint)
            return False
        self._events.changed("spool", None)
        return True

    def send(self, stop: Callable[[], bool]) -> PublishSummary | None:
        publisher = self._publisher
        if publisher is None:
            return None
        s = publisher.send(stop=stop)
        if self._metrics is not None:
            self._metrics.observe_publish(s)
        return s
