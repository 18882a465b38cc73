"""What the metrics say after ticks: read back from the text that Prometheus would read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from logagent.base.records import Health
from logagent.cleanup.plan.plan import GUARD_NAMES
from logagent.deletion.agent.node_requests import RequestsSummary
from logagent.kafka.processes.broker_process import BrokerProcess
from logagent.service.metrics import METRICS, Metrics
from logagent.service.metrics_server import is_loopback, split_listen
from logagent.service.summary import (
    AssignmentsSummary,
    CycleSummary,
    HealthSummary,
    KafkaSummary,
    LogDirSummary,
    PublishSummary,
    QueueSummary,
)
from tests.needs import need_command

AT = 1_795_280_379_300
LEDGER = {
    "size": 1000, "used": 700, "free": 200, "current": 400, "future": 10, "stray": 20, "delete": 30, "other": 40,
    "open_removed": 50, "unexplained": 150,
}  # fmt: skip


def cycle(**fields: object) -> CycleSummary:
    """A cleanup cycle over two log dirs."""
    wanted: dict[str, object] = {
        "job": "cleanup",
        "mode": "enforce",
        "started_ms": AT,
        "seconds": 0.2,
        "planned": 3,
        "ledgers": {"/a": LEDGER, "/b": LEDGER},
        "kafka": KafkaSummary(cluster_id="MkU3OEVBNTcwNTJENDM2Qk", node_id=7, version="3.9.1"),
        "directories": {("/a", "current"): 7, ("/b", "stray"): 1},
        "orphans": {("/a", "topic-absent"): (2, 4096)},
        "reclaimable": {("/a", "now"): 4096, ("/a", "later"): 0},
        "results": {("remove", "done"): 2, ("quarantine", "failed"): 1},
        "refusals": {"in-use": 4},
        "waiting": 5,
        "queues": {"/a": QueueSummary(entries=2, bytes=99, oldest_marked_ms=AT - 5000), "/b": QueueSummary()},
        "next_due_ms": AT + 1000,
        "freed_bytes": 12345,
        "assignments": AssignmentsSummary(source="kraft-log", at_ms=AT - 60_000, usable=True, own_log=True),
        **fields,
    }
    return CycleSummary(**wanted)  # type: ignore[arg-type]


def log_dir(path: str, health: Health = Health.ONLINE, **fields: object) -> LogDirSummary:
    wanted: dict[str, object] = {
        "path": path,
        "health": health,
        "reason": None,
        "since_ms": AT,
        "probe_ms": 2.5,
        "wrote": True,
        "limited": None,
        "good_probes": 9,
        **fields,
    }
    return LogDirSummary(**wanted)  # type: ignore[arg-type]


def health(*log_dirs: LogDirSummary) -> HealthSummary:
    return HealthSummary(at_ms=AT, seconds=0.01, log_dirs=log_dirs)


Sample = tuple[str, frozenset[tuple[str, str]]]


def read(metrics: Metrics) -> dict[Sample, float]:
    """Every sample of the exposition."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return read(metrics).get((name, frozenset(labels.items())))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("9.9", kafka_names=True)


@pytest.fixture
def full(metrics: Metrics) -> Metrics:
    """Everything observed once."""
    metrics.observe_cycle(cycle())
    metrics.observe_cycle(cycle(job="queue", error="the journal is full", error_slug="journal"))
    metrics.observe_health(health(log_dir("/a"), log_dir("/b", Health.OFFLINE, probe_ms=None, limited="no O_TMPFILE")))
    metrics.observe_publish(PublishSummary(at_ms=AT, seconds=1, sent=2, waiting=3, waiting_bytes=4, last_sent_ms=AT))
    metrics.observe_requests(RequestsSummary(AT, 2, {"waits": 3, "refused": 1}, 4))
    broker = BrokerProcess(
        pid=41, start_time_ms=AT, user="kafka", command=("java",), cpu_seconds=2.0, resident_bytes=3, read_bytes=4,
        write_bytes=5, open_files=6, open_files_limit=7,
    )  # fmt: skip
    metrics.observe_brokers([broker])
    metrics.observe_reload(successful=True)
    return metrics


def samples_of(text: str) -> Iterator[tuple[str, str, set[str]]]:
    """(family, sample, label names) as printed, without our own process's figures."""
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("logagent_process"):
            for sample in family.samples:
                yield family.name, sample.name, set(sample.labels)


def test_every_declared_metric_is_exported_and_no_other(full: Metrics) -> None:
    told: dict[str, set[str]] = {}
    for family, sample, labels in samples_of(full.exposition().decode()):
        name = family if family in METRICS and METRICS[family].type == "histogram" else sample
        told.setdefault(name, set()).update(labels - {"le"})
    assert told == {name: set(metric.labels) for name, metric in METRICS.items()}


def test_types_and_helps_are_the_declared_ones(full: Metrics) -> None:
    text = full.exposition().decode()
    for name, metric in METRICS.items():
        assert f"# TYPE {name} {metric.type}\n" in text
        assert f"# HELP {name} {metric.help}\n" in text


@pytest.mark.parametrize("name", METRICS)
def test_names_follow_the_conventions(name: str) -> None:
    metric = METRICS[name]
    assert name.endswith("_total") == (metric.type == "counter")
    assert re.fullmatch(r"(logagent|kafka_log_LogManager)_[A-Za-z_]+", name)
    # The scraper's own labels; ours would be renamed to exported_job.
    assert not {"job", "instance", "le"} & set(metric.labels)
    assert metric.help.endswith(".")
    if "second" in name or "byte" in name:
        assert re.search(r"_(seconds|bytes)(_total)?$", name)
    assert not re.search(r"_(ms|millis|kb|mb|count)(_|$)", name)


def test_a_registry_of_its_own() -> None:
    from prometheus_client import REGISTRY

    before = list(REGISTRY.collect())
    one, two = Metrics(), Metrics()
    one.observe_reload(successful=False)
    assert value(two, "logagent_config_last_reload_successful") is None
    assert [f.name for f in REGISTRY.collect()] == [f.name for f in before]
    assert isinstance(one.registry, CollectorRegistry)


def test_no_figure_before_the_first_tick(metrics: Metrics) -> None:
    """A zero would say that all log dirs are fine, and that nothing is on them."""
    named = {name for name, _ in read(metrics) if not name.startswith("logagent_process")}
    counters = {"logagent_actions_total", "logagent_refusals_total", "logagent_cycle_errors_total"}
    assert named == counters | {"logagent_freed_bytes_total", "logagent_build_info"}
    assert value(metrics, "logagent_build_info", version="9.9") == 1


def test_counters_begin_at_zero(metrics: Metrics) -> None:
    """Else Prometheus sees no increase with the first event."""
    for guard in GUARD_NAMES:
        assert value(metrics, "logagent_refusals_total", guard=guard) == 0
    assert value(metrics, "logagent_actions_total", action="remove", outcome="done") == 0
    assert value(metrics, "logagent_cycle_errors_total", cycle="queue", error="journal") == 0


def test_kafkas_own_names(metrics: Metrics) -> None:
    metrics.observe_health(health(log_dir("/a"), log_dir("/b", Health.OFFLINE), log_dir("/c", Health.READ_ONLY)))
    lines = metrics.exposition().decode().splitlines()
    assert "kafka_log_LogManager_OfflineLogDirectoryCount 1.0" in lines
    assert 'kafka_log_LogManager_LogDirectoryOffline{logDirectory="/a"} 0.0' in lines
    assert 'kafka_log_LogManager_LogDirectoryOffline{logDirectory="/b"} 1.0' in lines
    assert 'kafka_log_LogManager_LogDirectoryOffline{logDirectory="/c"} 0.0' in lines


def test_without_kafkas_own_names_every_name_is_as_prometheus_wants_it(full: Metrics) -> None:
    full.kafka_names = False
    text = full.exposition()
    assert b"logagent_log_dir_state" in text and b"kafka_log" not in text
    need_command("promtool")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_the_broker_is_named_once_and_by_its_last_name(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle())
    metrics.observe_cycle(cycle(kafka=KafkaSummary(cluster_id="c", node_id=7, version="4.0.0")))
    metrics.observe_cycle(cycle(error="the journal is full", kafka=KafkaSummary()))
    named = [dict(labels) for name, labels in read(metrics) if name == "logagent_kafka_info"]
    assert named == [{"cluster_id": "c", "node_id": "7", "version": "4.0.0"}]


def test_what_is_unexplained_on_a_file_system_counts_once(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle(sharing=frozenset({"/b"})))
    assert value(metrics, "logagent_log_dir_bytes", log_dir="/a", kind="unexplained") == 150
    assert value(metrics, "logagent_log_dir_bytes", log_dir="/b", kind="unexplained") is None
    assert value(metrics, "logagent_log_dir_bytes", log_dir="/b", kind="stray") == 20
    shares = {path: value(metrics, "logagent_log_dir_shares_file_system", log_dir=path) for path in ("/a", "/b")}
    assert shares == {"/a": 0, "/b": 1}


def test_a_log_dir_is_in_exactly_one_state(metrics: Metrics) -> None:
    metrics.observe_health(health(log_dir("/a", Health.FULL)))
    metrics.observe_health(health(log_dir("/a", Health.READ_ONLY)))
    states = {s.value: value(metrics, "logagent_log_dir_state", log_dir="/a", state=s.value) for s in Health}
    assert states == {s.value: float(s is Health.READ_ONLY) for s in Health}


def test_the_parts_of_the_ledger_add_up(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle())
    assert value(metrics, "logagent_log_dir_size_bytes", log_dir="/a") == 1000
    assert value(metrics, "logagent_log_dir_free_bytes", log_dir="/b") == 200
    kinds = {dict(labels)["kind"]: v for (name, labels), v in read(metrics).items() if name == "logagent_log_dir_bytes"}
    assert kinds == {k: v for k, v in LEDGER.items() if k not in ("size", "used", "free")}
    assert sum(kinds.values()) == LEDGER["used"]


def test_a_log_dir_that_left_is_no_longer_reported(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle())
    metrics.observe_health(health(log_dir("/a"), log_dir("/b")))
    metrics.observe_cycle(cycle(ledgers={"/a": LEDGER}, directories={}, orphans={}, queues={"/a": QueueSummary()}))
    metrics.observe_health(health(log_dir("/a")))
    told = [labels for name, labels in read(metrics) if ("log_dir", "/b") in labels or ("logDirectory", "/b") in labels]
    assert told == []
    assert value(metrics, "logagent_queue_oldest_marked_timestamp_seconds", log_dir="/a") is None


def test_counters_add_up_and_gauges_do_not(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle())
    metrics.observe_cycle(cycle(refusals={"lock": 1}))
    assert value(metrics, "logagent_actions_total", action="remove", outcome="done") == 4
    assert value(metrics, "logagent_refusals_total", guard="in-use") == 4
    assert value(metrics, "logagent_refusals_total", guard="lock") == 1
    assert value(metrics, "logagent_freed_bytes_total") == 2 * 12345
    assert value(metrics, "logagent_plan_refusals", guard="in-use") == 0
    assert value(metrics, "logagent_plan_refusals", guard="lock") == 1
    assert value(metrics, "logagent_plan_actions") == 3


def test_a_cycle_that_ended_early_says_so_and_forgets_nothing(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle())
    empty = CycleSummary(
        job="cleanup", mode="enforce", started_ms=AT + 1000, seconds=9, error="no room", error_slug="journal"
    )
    metrics.observe_cycle(empty)
    assert value(metrics, "logagent_cycle_failed", cycle="cleanup") == 1
    assert value(metrics, "logagent_cycle_errors_total", cycle="cleanup", error="journal") == 1
    assert value(metrics, "logagent_cycle_last_start_timestamp_seconds", cycle="cleanup") == AT / 1000 + 1
    assert value(metrics, "logagent_cycle_last_success_timestamp_seconds", cycle="cleanup") == AT / 1000
    # What was seen before still stands: an empty host would look like one whose disks were wiped.
    assert value(metrics, "logagent_log_dir_size_bytes", log_dir="/a") == 1000
    assert value(metrics, "logagent_queue_directories", log_dir="/a") == 2
    assert value(metrics, "logagent_assignments_usable") == 1
    metrics.observe_cycle(cycle(started_ms=AT + 2000))
    assert value(metrics, "logagent_cycle_failed", cycle="cleanup") == 0


def test_a_queue_cycle_leaves_the_inventory_alone(metrics: Metrics) -> None:
    metrics.observe_cycle(cycle(needs_approval="abc"))
    queue = {"/a": QueueSummary(entries=1, bytes=1, oldest_marked_ms=AT)}
    metrics.observe_cycle(CycleSummary(job="queue", mode="enforce", started_ms=AT, seconds=0.1, queues=queue))
    assert value(metrics, "logagent_log_dir_size_bytes", log_dir="/a") == 1000
    assert value(metrics, "logagent_plan_needs_approval") == 1
    assert value(metrics, "logagent_queue_directories", log_dir="/a") == 1
    assert value(metrics, "logagent_queue_next_due_timestamp_seconds") is None
    assert value(metrics, "logagent_assignments_usable") == 1


def test_cycle_times_are_a_histogram(metrics: Metrics) -> None:
    for seconds in (0.004, 0.2, 0.2, 4000):
        metrics.observe_cycle(cycle(seconds=seconds))
    counts = {
        dict(labels)["le"]: v for (name, labels), v in read(metrics).items() if name == "logagent_cycle_seconds_bucket"
    }
    assert (counts["0.01"], counts["0.1"], counts["0.5"], counts["1800.0"], counts["+Inf"]) == (1, 1, 3, 3, 4)
    assert value(metrics, "logagent_cycle_seconds_count", cycle="cleanup") == 4
    assert value(metrics, "logagent_cycle_seconds_sum", cycle="cleanup") == pytest.approx(4000.404)


def test_publishing_counts_attempts_failures_and_files(metrics: Metrics) -> None:
    metrics.observe_publish(PublishSummary(at_ms=AT, seconds=2, waiting=1, waiting_bytes=10, error="away"))
    assert value(metrics, "logagent_publish_failed") == 1
    assert value(metrics, "logagent_publish_last_sent_timestamp_seconds") is None
    metrics.observe_publish(PublishSummary(at_ms=AT, seconds=2, sent=3, dropped=2, last_sent_ms=AT))
    metrics.observe_publish(PublishSummary(at_ms=AT, seconds=2, sent=1, dropped=2, last_sent_ms=AT))
    assert value(metrics, "logagent_publish_failed") == 0
    assert value(metrics, "logagent_publish_failures_total") == 1
    assert value(metrics, "logagent_publish_sent_total") == 4
    # A total since the start, not one more with each attempt.
    assert value(metrics, "logagent_publish_dropped_total") == 2
    assert value(metrics, "logagent_publish_last_sent_timestamp_seconds") == AT / 1000


def test_the_brokers_figures_go_with_it_and_unreadable_ones_are_absent(full: Metrics) -> None:
    assert value(full, "logagent_broker_open_fds", pid="41") == 6
    another = BrokerProcess(pid=42, start_time_ms=AT, user="kafka", command=())
    full.observe_brokers([another])
    told = {name: labels for name, labels in read(full) if name.startswith("logagent_broker") and labels}
    assert told == {"logagent_broker_start_timestamp_seconds": frozenset({("pid", "42")})}
    full.observe_brokers([])
    assert value(full, "logagent_broker_processes") == 0


@pytest.mark.parametrize("path", ["/a\udcff\udc80", '/with "quotes"', "/two\nlines", "/back\\slash", "/ünï"])
def test_any_path_can_be_a_label(metrics: Metrics, path: str) -> None:
    metrics.observe_cycle(cycle(ledgers={path: LEDGER}))
    told = {dict(labels)["log_dir"] for name, labels in read(metrics) if name == "logagent_log_dir_used_bytes"}
    assert told == {path.encode("utf-8", "backslashreplace").decode()}


def test_nothing_collides_with_the_node_exporters_own(full: Metrics) -> None:
    """`process_*` in a textfile makes the node exporter's whole scrape fail."""
    names = {name for name, _ in read(full)}
    assert [name for name in names if not name.startswith(("logagent_", "kafka_log_LogManager_"))] == []
    assert "logagent_process_resident_memory_bytes" in names


@pytest.mark.parametrize(
    ("listen", "host", "port", "loopback"),
    [
        ("127.0.0.1:9640", "127.0.0.1", 9640, True),
        ("127.8.8.8:1", "127.8.8.8", 1, True),
        ("[::1]:9640", "::1", 9640, True),
        ("localhost:9640", "localhost", 9640, True),
        ("0.0.0.0:9640", "0.0.0.0", 9640, False),
        ("[::]:9640", "::", 9640, False),
        ("10.0.0.7:9640", "10.0.0.7", 9640, False),
        ("broker1.example.com:9640", "broker1.example.com", 9640, False),
    ],
)
def test_listen_addresses_are_split_and_classified(listen: str, host: str, port: int, loopback: bool) -> None:
    assert split_listen(listen) == (host, port)
    assert is_loopback(listen) is loopback


def test_the_table_for_operators_is_this_one() -> None:
    table = Path(__file__).parents[3].joinpath("docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \| (.*) \|$", table, re.MULTILINE)
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), says) for name, kind, labels, says in rows}
    assert told == {name: (m.type, m.labels, m.help) for name, m in METRICS.items()}


def test_a_failed_read_of_requests_says_nothing_of_open_ones(metrics: Metrics) -> None:
    metrics.observe_requests(RequestsSummary(AT, 2, {"waits": 3, "refused": 1}, 4))
    assert value(metrics, "logagent_requests_directories", state="waits") == 3
    metrics.observe_requests(RequestsSummary(AT + 1000, error="the store is away"))
    assert value(metrics, "logagent_requests_failed") == 1 and value(metrics, "logagent_requests_open") == 2
    assert value(metrics, "logagent_requests_last_read_timestamp_seconds") == AT / 1000
    metrics.observe_requests(RequestsSummary(AT + 2000, 1, {"done": 3}))
    assert value(metrics, "logagent_requests_failed") == 0
    assert value(metrics, "logagent_requests_directories", state="waits") is None
