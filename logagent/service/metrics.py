"""The daemon's metrics for Prometheus, over HTTP and as a textfile: the summaries of its ticks, as `METRICS`.

They use a separate registry, so that nothing registered by a library appears. A scrape sees each summary as a whole (a
removed log dir disappears with the next scrape), and before the first tick a figure is missing rather than zero.

Every metric of the daemon: its type, labels and help. The only list; docs and alerts are checked against it.

Names follow Prometheus' rules: base units, the unit last, `_total` for counters, times as `_timestamp_seconds` (an age
is `time() - x`, and stays right while the agent is down). No label is called `job` or `instance`: those belong to the
scraper. Kafka's own names are those that the JMX exporter prints: only where `metrics.kafka_names` asks for them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from logagent import __version__
from logagent.base.files.safe_open import whole_file
from logagent.base.records import ActionKind, Health, Outcome
from logagent.cleanup.plan.plan import GUARD_NAMES
from logagent.kafka.processes.broker_process import BrokerProcess
from logagent.service.summary import CycleSummary, HealthSummary, PublishSummary

if TYPE_CHECKING:
    from logagent.deletion.agent.node_requests import RequestsSummary


class Metric(NamedTuple):
    type: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str


_DIR = ("log_dir",)
_CYCLE = ("cycle",)

METRICS: dict[str, Metric] = {
    # What Kafka's own LogManager counts, seen from outside the broker.
    "kafka_log_LogManager_OfflineLogDirectoryCount": Metric(
        "gauge", (), "With metrics.kafka_names: number of offline log dirs, as in Kafka's metric of this name."
    ),
    "kafka_log_LogManager_LogDirectoryOffline": Metric(
        "gauge",
        ("logDirectory",),
        "With metrics.kafka_names: whether the log dir is offline, as in Kafka's metric of this name.",
    ),
    # Log dirs
    "logagent_log_dir_state": Metric("gauge", ("log_dir", "state"), "1 for the log dir's current state, else 0."),
    "logagent_log_dir_state_since_timestamp_seconds": Metric("gauge", _DIR, "Time at which it entered that state."),
    "logagent_log_dir_probe_seconds": Metric("gauge", _DIR, "Duration of the last probe (write, sync, read)."),
    "logagent_log_dir_probe_reads_only": Metric(
        "gauge", _DIR, "Whether probes can only read there, and so miss a disk that fails only writes."
    ),
    "logagent_log_dir_good_probes": Metric(
        "gauge", _DIR, "Good probes in a row since it failed; enough of them bring it back."
    ),
    "logagent_log_dir_size_bytes": Metric("gauge", _DIR, "Size of the log dir's file system."),
    "logagent_log_dir_used_bytes": Metric("gauge", _DIR, "Bytes in use on the log dir's file system."),
    "logagent_log_dir_free_bytes": Metric("gauge", _DIR, "Bytes still available to an unprivileged user."),
    "logagent_log_dir_shares_file_system": Metric(
        "gauge", _DIR, "Whether it is on the file system of another log dir, at which that file system counts."
    ),
    "logagent_log_dir_bytes": Metric(
        "gauge",
        ("log_dir", "kind"),
        "Allocated bytes by what they belong to. unexplained = used on the file system minus what all log dirs on it"
        " have, once for each file system; it may be negative.",
    ),
    "logagent_log_dir_directories": Metric("gauge", ("log_dir", "kind"), "Directories in the log dir by kind."),
    "logagent_orphan_directories": Metric("gauge", ("log_dir", "reason"), "Directories with the verdict orphan."),
    "logagent_orphan_bytes": Metric("gauge", ("log_dir", "reason"), "Allocated bytes of these directories."),
    "logagent_log_dir_reclaimable_bytes": Metric(
        "gauge",
        ("log_dir", "when"),
        "Allocated bytes that can be freed, at most: now (in the last plan) or later (waiting).",
    ),
    # The delete queue
    "logagent_queue_directories": Metric("gauge", _DIR, "Directories marked for deletion and still on disk."),
    "logagent_queue_bytes": Metric("gauge", _DIR, "Allocated bytes of these directories."),
    "logagent_queue_oldest_marked_timestamp_seconds": Metric("gauge", _DIR, "When the oldest of these was marked."),
    "logagent_queue_next_due_timestamp_seconds": Metric("gauge", (), "When the head of the delete queue is due."),
    # Cycles
    "logagent_cycle_seconds": Metric("histogram", _CYCLE, "Duration of cycles."),
    "logagent_cycle_last_start_timestamp_seconds": Metric("gauge", _CYCLE, "Start of the last cycle."),
    "logagent_cycle_last_success_timestamp_seconds": Metric("gauge", _CYCLE, "Start of the last cycle that completed."),
    "logagent_cycle_failed": Metric("gauge", _CYCLE, "Whether the last cycle ended early."),
    "logagent_cycle_errors_total": Metric("counter", ("cycle", "error"), "Cycles that ended early, by error."),
    "logagent_enforcing": Metric("gauge", (), "1 if cleanup.mode is enforce, 0 if it is report."),
    "logagent_plan_actions": Metric("gauge", (), "Actions in the plan of the last cleanup cycle."),
    "logagent_plan_waiting": Metric("gauge", (), "Directories not due yet in the last cleanup cycle."),
    "logagent_plan_needs_approval": Metric(
        "gauge", (), "Whether the last plan is on hold until an operator approves it (blast radius)."
    ),
    "logagent_plan_refusals": Metric("gauge", ("guard",), "Items refused in the last cleanup cycle, by guard."),
    "logagent_refusals_total": Metric(
        "counter", ("guard",), "Items refused, by guard. An item that stays refused counts in every cycle."
    ),
    "logagent_actions_total": Metric("counter", ("action", "outcome"), "Actions carried out, by outcome."),
    "logagent_freed_bytes_total": Metric("counter", (), "Allocated bytes freed by removals."),
    # Assignments
    "logagent_assignments_usable": Metric(
        "gauge", (), "Whether the assignments are usable for verdicts (fresh, of this cluster, not empty)."
    ),
    "logagent_metadata_log_understood": Metric(
        "gauge", (), "Whether the metadata log on this host is read and is of a tested level; no sample without one."
    ),
    "logagent_clock_doubted": Metric(
        "gauge", (), "Whether nothing is done that depends on an age, because the clock cannot be trusted."
    ),
    "logagent_assignments_timestamp_seconds": Metric("gauge", ("source",), "Time of the assignments."),
    # Health rounds
    "logagent_health_round_seconds": Metric("gauge", (), "Duration of the last round of probes."),
    "logagent_health_last_round_timestamp_seconds": Metric("gauge", (), "End of the last round of probes."),
    # Publishing
    "logagent_publish_failed": Metric("gauge", (), "Whether the last attempt to reach the fleet store failed."),
    "logagent_publish_failures_total": Metric("counter", (), "Attempts to reach the fleet store that failed."),
    "logagent_publish_sent_total": Metric("counter", (), "Files that arrived in the fleet store."),
    "logagent_publish_dropped_total": Metric("counter", (), "Snapshots dropped because the spool was full."),
    "logagent_publish_waiting_files": Metric("gauge", (), "Files in the spool that are not sent yet."),
    "logagent_publish_waiting_bytes": Metric("gauge", (), "Bytes of these files."),
    "logagent_publish_last_sent_timestamp_seconds": Metric("gauge", (), "Time at which a file was last sent."),
    "logagent_publish_last_attempt_seconds": Metric("gauge", (), "Duration of the last attempt."),
    # Deletion requests of the fleet
    "logagent_requests_failed": Metric("gauge", (), "Whether the last look for deletion requests failed."),
    "logagent_requests_last_read_timestamp_seconds": Metric(
        "gauge", (), "Time at which deletion requests were last read from the store."
    ),
    "logagent_requests_open": Metric("gauge", (), "Deletion requests in the store that nobody has decided yet."),
    "logagent_requests_directories": Metric(
        "gauge", ("state",), "Requested directories of this host, by the last answer (done, refused, waits)."
    ),
    "logagent_requests_strays_left": Metric(
        "gauge", (), "Strays of deleted topics on this host that are not removed yet."
    ),
    "logagent_requests_held": Metric(
        "gauge", (), "Requests on which nobody may act: a file of theirs is unreadable or not signed by a trusted key."
    ),
    "logagent_requests_refused": Metric("gauge", (), "Whether this agent carries out no request at all."),
    # The broker's process
    "logagent_broker_processes": Metric("gauge", (), "Processes that hold log dirs (more than one is an error)."),
    "logagent_broker_start_timestamp_seconds": Metric("gauge", ("pid",), "When the broker's process started."),
    "logagent_broker_cpu_seconds_total": Metric("counter", ("pid",), "CPU time of the broker's process."),
    "logagent_broker_resident_memory_bytes": Metric("gauge", ("pid",), "Resident memory of the broker's process."),
    "logagent_broker_read_bytes_total": Metric("counter", ("pid",), "Bytes read from disk by the broker."),
    "logagent_broker_written_bytes_total": Metric("counter", ("pid",), "Bytes written to disk by the broker."),
    "logagent_broker_open_fds": Metric("gauge", ("pid",), "Open file descriptors of the broker."),
    "logagent_broker_max_fds": Metric(
        "gauge", ("pid",), "The broker's limit on open file descriptors (absent if unlimited)."
    ),
    "logagent_kafka_info": Metric(
        "gauge",
        ("cluster_id", "node_id", "version"),
        "Always 1; the broker of this host, for joins on (instance, job).",
    ),
    # The daemon itself; what it costs is in logagent_process_* (prometheus-client's process metrics).
    "logagent_build_info": Metric("gauge", ("version",), "Always 1; the version of the agent."),
    "logagent_config_last_reload_successful": Metric("gauge", (), "Whether the last reload (SIGHUP) succeeded."),
}

_LEDGER_TOTALS = ("size", "used", "free")
_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_JOBS = ("cleanup", "queue")
_NONE: tuple[str, ...] = ()

Samples = dict[tuple[str, ...], float]
Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


class Metrics(Collector):
    """Collects what the loops observed. Every method may be called from any thread; only `write_textfile` does I/O.

    Counters count since the daemon started, as Prometheus expects; those whose labels are known in advance start at 0,
    so that the first event shows as an increase.
    """

    def __init__(self, version: str = __version__, *, kafka_names: bool = False) -> None:
        self.kafka_names = kafka_names
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._samples: dict[str, Samples] = {name: {} for name, m in METRICS.items() if m.type != "histogram"}
        self._durations: dict[str, list[float]] = {}
        self._set("logagent_build_info", 1, version)
        for action in ActionKind:
            for outcome in Outcome:
                self._add("logagent_actions_total", 0, action.value, outcome.value)
        for guard in GUARD_NAMES:
            self._add("logagent_refusals_total", 0, guard)
        for job in _JOBS:
            for error in ("journal", "failed"):
                self._add("logagent_cycle_errors_total", 0, job, error)
        self._add("logagent_freed_bytes_total", 0)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        # Its usual names would collide with the node exporter's own if it collects our textfile.
        ProcessCollector(namespace="logagent", registry=self.registry)

    # What is observed

    def observe_cycle(self, s: CycleSummary) -> None:
        """A cycle ended. One that ended early changes only the figures it has."""
        with self._mutex:
            self._cycle(s)
            self._done(s)
            whole = s.error is None
            if s.queues or whole:
                self._queues(s)
            if s.job == "cleanup" and (s.ledgers or whole):
                self._inventory(s)
            if s.job == "cleanup" and whole:
                self._plan(s)

    def _cycle(self, s: CycleSummary) -> None:
        started = s.started_ms / 1000
        self._set("logagent_cycle_last_start_timestamp_seconds", started, s.job)
        self._set("logagent_cycle_failed", s.error is not None, s.job)
        if s.error is None:
            self._set("logagent_cycle_last_success_timestamp_seconds", started, s.job)
        else:
            self._add("logagent_cycle_errors_total", 1, s.job, s.error_slug or "failed")
        counts = self._durations.setdefault(s.job, [0.0] * (len(_BUCKETS) + 2))
        counts[bisect_left(_BUCKETS, s.seconds)] += 1
        counts[-1] += s.seconds
        self._set("logagent_enforcing", s.mode == "enforce")
        if s.kafka.cluster_id is not None:
            node = "" if s.kafka.node_id is None else str(s.kafka.node_id)
            self._replace("logagent_kafka_info", {(s.kafka.cluster_id, node, s.kafka.version or ""): 1})

    def _done(self, s: CycleSummary) -> None:
        for (action, outcome), count in s.results.items():
            self._add("logagent_actions_total", count, action, outcome)
        for guard, count in s.refusals.items():
            self._add("logagent_refusals_total", count, guard)
        self._add("logagent_freed_bytes_total", s.freed_bytes)

    def _queues(self, s: CycleSummary) -> None:
        self._replace("logagent_queue_directories", {(path,): q.entries for path, q in s.queues.items()})
        self._replace("logagent_queue_bytes", {(path,): q.bytes for path, q in s.queues.items()})
        oldest = {(path,): _seconds(q.oldest_marked_ms) for path, q in s.queues.items()}
        self._replace("logagent_queue_oldest_marked_timestamp_seconds", oldest)
        self._replace("logagent_queue_next_due_timestamp_seconds", {_NONE: _seconds(s.next_due_ms)})

    def _inventory(self, s: CycleSummary) -> None:
        for total in _LEDGER_TOTALS:
            sizes = {(path,): ledger.get(total) for path, ledger in s.ledgers.items()}
            self._replace(f"logagent_log_dir_{total}_bytes", sizes)
        kinds = {
            (path, kind): size
            for path, ledger in s.ledgers.items()
            for kind, size in ledger.items()
            if kind not in _LEDGER_TOTALS and not (kind == "unexplained" and path in s.sharing)
        }
        self._replace("logagent_log_dir_bytes", kinds)
        self._replace("logagent_log_dir_shares_file_system", {(path,): path in s.sharing for path in s.ledgers})
        self._replace("logagent_log_dir_directories", s.directories)
        self._replace("logagent_orphan_directories", {key: count for key, (count, _) in s.orphans.items()})
        self._replace("logagent_log_dir_reclaimable_bytes", s.reclaimable)
        self._replace("logagent_orphan_bytes", {key: size for key, (_, size) in s.orphans.items()})

    def _plan(self, s: CycleSummary) -> None:
        self._set("logagent_plan_actions", s.planned)
        self._set("logagent_plan_waiting", s.waiting)
        self._set("logagent_plan_needs_approval", s.needs_approval is not None)
        refused = {(guard,): s.refusals.get(guard, 0) for guard in (*GUARD_NAMES, *s.refusals)}
        self._replace("logagent_plan_refusals", refused)
        self._set("logagent_assignments_usable", s.assignments.usable)
        understood = s.assignments.log_doubt is None or s.assignments.log_doubt.code == "all"
        self._replace("logagent_metadata_log_understood", {_NONE: understood if s.assignments.own_log else None})
        self._set("logagent_clock_doubted", s.clock_doubt is not None)
        at = _seconds(s.assignments.at_ms)
        self._replace("logagent_assignments_timestamp_seconds", {(s.assignments.source or "none",): at})

    def observe_health(self, s: HealthSummary) -> None:
        """A round of probes ended."""
        dirs = s.log_dirs
        offline = {d.path: d.health is Health.OFFLINE for d in dirs}
        with self._mutex:
            self._set("logagent_health_round_seconds", s.seconds)
            self._set("logagent_health_last_round_timestamp_seconds", s.at_ms / 1000)
            self._set("kafka_log_LogManager_OfflineLogDirectoryCount", sum(offline.values()))
            self._replace("kafka_log_LogManager_LogDirectoryOffline", {(p,): off for p, off in offline.items()})
            states = {(d.path, state.value): d.health is state for d in dirs for state in Health}
            self._replace("logagent_log_dir_state", states)
            since = {(d.path,): d.since_ms / 1000 for d in dirs}
            self._replace("logagent_log_dir_state_since_timestamp_seconds", since)
            self._replace("logagent_log_dir_probe_seconds", {(d.path,): _seconds(d.probe_ms) for d in dirs})
            self._replace("logagent_log_dir_probe_reads_only", {(d.path,): d.limited is not None for d in dirs})
            self._replace("logagent_log_dir_good_probes", {(d.path,): d.good_probes for d in dirs})

    def observe_publish(self, s: PublishSummary) -> None:
        """An attempt to reach the fleet store ended."""
        with self._mutex:
            self._set("logagent_publish_failed", s.error is not None)
            self._add("logagent_publish_failures_total", int(s.error is not None))
            self._add("logagent_publish_sent_total", s.sent)
            self._set("logagent_publish_dropped_total", s.dropped)
            self._set("logagent_publish_waiting_files", s.waiting)
            self._set("logagent_publish_waiting_bytes", s.waiting_bytes)
            self._replace("logagent_publish_last_sent_timestamp_seconds", {_NONE: _seconds(s.last_sent_ms)})
            self._set("logagent_publish_last_attempt_seconds", s.seconds)

    def observe_requests(self, s: RequestsSummary) -> None:
        """Requests were read. A failed attempt says nothing about open requests."""
        with self._mutex:
            self._set("logagent_requests_failed", s.error is not None)
            if s.error is None:
                self._set("logagent_requests_last_read_timestamp_seconds", s.at_ms / 1000)
                self._set("logagent_requests_open", s.open)
                self._set("logagent_requests_strays_left", s.strays_left)
                self._set("logagent_requests_held", len(s.held))
                self._set("logagent_requests_refused", s.refuses is not None)
                self._replace("logagent_requests_directories", {(state,): n for state, n in s.directories.items()})

    def observe_brokers(self, brokers: Iterable[BrokerProcess]) -> None:
        """The processes that hold log dirs now; empty while the broker is stopped."""
        by_pid = {(str(b.pid),): b for b in brokers}
        with self._mutex:
            self._set("logagent_broker_processes", len(by_pid))
            for name, attribute in _BROKER.items():
                self._replace(name, {pid: getattr(b, attribute) for pid, b in by_pid.items()})
            started = {pid: b.start_time_ms / 1000 for pid, b in by_pid.items()}
            self._replace("logagent_broker_start_timestamp_seconds", started)

    def observe_reload(self, *, successful: bool) -> None:
        """The configuration was read again (or, at the start, for the first time)."""
        with self._mutex:
            self._set("logagent_config_last_reload_successful", successful)

    # What is exported

    def collect(self) -> Iterator[Family]:
        """For the registry: all figures, from one moment."""
        with self._mutex:
            samples = {name: dict(values) for name, values in self._samples.items()}
            durations = {job: list(counts) for job, counts in self._durations.items()}
        for name, metric in METRICS.items():
            family: Family
            if name.startswith("kafka_") and not self.kafka_names:
                continue
            if metric.type == "histogram":
                yield _histogram(name, durations)
                continue
            family = (GaugeMetricFamily if metric.type == "gauge" else CounterMetricFamily)(
                name, metric.help, labels=metric.labels
            )
            for labels, value in samples[name].items():
                family.add_metric(labels, value)
            yield family

    def exposition(self) -> bytes:
        """Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)

    def write_textfile(self, path: str) -> None:
        """Write the metrics for the node exporter's textfile collector, completely or not at all; readable by
        everybody, because that exporter runs as another user. Raises OSError."""
        # Until it is complete its suffix is not .prom, because the collector reads only that.
        with self._writing, whole_file(path, mode=0o644, durable=False) as file:
            file.write(self.exposition())

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._samples[name][tuple(map(_text, labels))] = value

    def _add(self, name: str, value: float, *labels: str) -> None:
        key = tuple(map(_text, labels))
        self._samples[name][key] = self._samples[name].get(key, 0) + value

    def _replace(self, name: str, values: Mapping[Any, float | None]) -> None:
        """Replace all samples of a metric, by label values; None means no sample."""
        samples = {tuple(map(_text, labels)): value for labels, value in values.items() if value is not None}
        self._samples[name] = samples


_BROKER = {
    "logagent_broker_cpu_seconds_total": "cpu_seconds",
    "logagent_broker_resident_memory_bytes": "resident_bytes",
    "logagent_broker_read_bytes_total": "read_bytes",
    "logagent_broker_written_bytes_total": "write_bytes",
    "logagent_broker_open_fds": "open_files",
    "logagent_broker_max_fds": "open_files_limit",
}


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _text(label: str) -> str:
    """A label value: bytes of a path that are not UTF-8 appear as `\\udcXX`, as in our documents."""
    return label.encode("utf-8", "backslashreplace").decode()


def _histogram(name: str, durations: Mapping[str, list[float]]) -> HistogramMetricFamily:
    metric = METRICS[name]
    family = HistogramMetricFamily(name, metric.help, labels=metric.labels)
    for job, counts in durations.items():
        buckets, so_far = [], 0.0
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), counts[:-1], strict=True):
            so_far += count
            buckets.append((bound, so_far))
        family.add_metric((job,), buckets, sum_value=counts[-1])
    return family
