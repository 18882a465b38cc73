"""Every metric of the daemon: its type, labels and help. The only list; README and alerts are checked against it.

Names follow Prometheus' rules: base units, the unit last, `_total` for counters, times as `_timestamp_seconds` (an age
is `time() - x`, and stays right while the agent is down). No label is called `job` or `instance`: those belong to the
scraper. Kafka's own names are those that the JMX exporter prints.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    type: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str


_DIR = ("log_dir",)
_CYCLE = ("cycle",)

METRICS: dict[str, Metric] = {
    # What Kafka's own LogManager counts, seen from outside the broker.
    "kafka_log_LogManager_OfflineLogDirectoryCount": Metric(
        "gauge", (), "Number of offline log dirs, as in Kafka's metric of this name."
    ),
    "kafka_log_LogManager_LogDirectoryOffline": Metric(
        "gauge", ("logDirectory",), "Whether the log dir is offline, as in Kafka's metric of this name."
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
    "logagent_log_dir_bytes": Metric(
        "gauge",
        ("log_dir", "kind"),
        "Allocated bytes by what they belong to. unexplained = used minus all others; it may be negative.",
    ),
    "logagent_log_dir_directories": Metric("gauge", ("log_dir", "kind"), "Directories in the log dir by kind."),
    "logagent_orphan_directories": Metric("gauge", ("log_dir", "reason"), "Directories with the verdict orphan."),
    "logagent_orphan_bytes": Metric("gauge", ("log_dir", "reason"), "Bytes of the files in these directories."),
    "logagent_log_dir_reclaimable_bytes": Metric(
        "gauge",
        ("log_dir", "when"),
        "Allocated bytes that can be freed, at most: now (in the last plan) or later (waiting).",
    ),
    # The delete queue
    "logagent_queue_directories": Metric("gauge", _DIR, "Directories marked for deletion and still on disk."),
    "logagent_queue_bytes": Metric("gauge", _DIR, "Bytes of the files in these directories."),
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
    # Orders of the fleet
    "logagent_orders_failed": Metric("gauge", (), "Whether the last check for fleet orders failed."),
    "logagent_orders_last_read_timestamp_seconds": Metric(
        "gauge", (), "Time at which orders were last read from the store."
    ),
    "logagent_orders_standing": Metric("gauge", (), "Orders in the store for this node, carried out or refused."),
    "logagent_orders_partitions": Metric(
        "gauge", ("result",), "Partitions in these orders, by the last answer (waiting, refused, renamed ...)."
    ),
    "logagent_orders_ignored_files": Metric(
        "gauge", (), "Files among the orders that are not signed by a trusted key, since the start."
    ),
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
    # The daemon itself; what it costs is in logagent_process_* (prometheus-client's process metrics).
    "logagent_build_info": Metric("gauge", ("version",), "Always 1; the version of the agent."),
    "logagent_config_last_reload_successful": Metric("gauge", (), "Whether the last reload (SIGHUP) succeeded."),
}
