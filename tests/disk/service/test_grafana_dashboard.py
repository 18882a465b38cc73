"""config/grafana-dashboard.json: what its generator makes, and every query of it answers on a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logagent.service.metrics import Metrics
from logagent.service.metrics_server import MetricsServer
from logagent.service.summary import CycleSummary, KafkaSummary
from logagent.store.shared import init_store
from tests.broker.rig.ports import Ports
from tests.daemon_process import FIRST, DaemonProcess
from tests.host import NO_LIMITS, Host
from tests.needs import need_command
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
FILE = ROOT / "config/grafana-dashboard.json"
DASHBOARD = json.loads(FILE.read_text())
# Grafana puts these in; `.*` is what "All" stands for.
VARIABLES = {"$cluster": ".*", "$instance": ".*", "$log_dir": ".*", "$__rate_interval": "4s"}
# What a host in report mode without requests, on which nothing is marked and no cycle failed, has nothing to say of.
SILENT = {"logagent_actions_total", "logagent_cycle_errors_total", "logagent_queue_oldest_marked_timestamp_seconds",
          "logagent_requests_directories", "logagent_requests_last_read_timestamp_seconds"}  # fmt: skip


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries(**chosen: str) -> list[tuple[str, str]]:
    """(panel, PromQL) as Grafana would send it, with these values `chosen`."""
    found = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    for name, value in (VARIABLES | {f"${name}": value for name, value in chosen.items()}).items():
        found = [(title, expression.replace(name, value)) for title, expression in found]
    return found


def test_it_is_what_the_generator_makes() -> None:
    command = [sys.executable, str(ROOT / "packaging/dashboard.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_alert_leads_to_it() -> None:
    rules = (ROOT / "config/prometheus-rules.yml").read_text()
    link = f'dashboard: "/d/{DASHBOARD["uid"]}?var-instance={{{{ $labels.instance }}}}"'
    assert rules.count(link) == rules.count("- alert:") >= 15
    assert "instance" in [variable["name"] for variable in DASHBOARD["templating"]["list"]]


@contextmanager
def prometheus(folder: Path, *targets: str) -> Iterator[str]:
    """A Prometheus that scrapes `targets` every second; its address."""
    need_command("prometheus")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "config/prometheus-rules.yml")],
        "scrape_configs": [{"job_name": "logagent", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    ports = Ports()
    address = f"127.0.0.1:{ports.take()}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--storage.tsdb.path={folder}/tsdb"], stdout=log, stderr=log)
        try:
            yield address
        finally:
            process.kill()
            process.wait(30)
            ports.close()


def ask(address: str, expression: str) -> list[dict[str, Any]]:
    """The samples of an instant query. Raises `URLError` while nobody listens, and for a query that is not PromQL."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=30) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    samples = found["data"]["result"]
    assert isinstance(samples, list)
    return samples


def answers(address: str, expression: str) -> bool:
    try:
        return bool(ask(address, expression))
    except OSError:
        return False


def test_every_query_is_answered_by_a_prometheus_that_scrapes_a_running_daemon(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path / "h")
    often = {"cleanup.interval": "1s", "health.probe_interval": "500ms", "kafka.version": "3.9.1", **NO_LIMITS}
    store = tmp_path / "store"
    store.mkdir()
    init_store(str(store))
    host.with_assignments(**often, **{"metrics.listen": "127.0.0.1:0", "publish.store": str(store)})
    command = ("env", "-u", "LOGAGENT_METRICS__LISTEN", *FIRST)
    daemon = host.daemon(command)
    with daemon, prometheus(tmp_path, daemon.wait_for("metrics")["listen"]) as address:
        daemon.wait_for("cycle")
        # Two scrapes with a cycle before them: a rate needs both.
        wait_until(lambda: answers(address, "count_over_time(logagent_plan_actions[1m]) >= 3"), "three scrapes")
        for title, expression in queries():
            if not SILENT & set(re.findall(r"\w+", expression)):
                wait_until(lambda e=expression: ask(address, e), f"{title}: {expression} has an answer", interval=1)  # type: ignore[misc]
        assert [sample["value"][1] for sample in ask(address, "count(logagent_build_info)")] == ["1"]
        # The rules of the alerts are loaded by the same Prometheus, and their links are filled in.
        wait_until(lambda: answers(address, "logagent:log_dir_hidden_bytes"), "the recording rule")


def test_a_cluster_is_chosen_by_its_id_and_a_host_without_one_stays(tmp_path: Path) -> None:
    served = []
    for cluster_id in ("MkU3OEVBNTcwNTJENDM2Qk", "q8nXh2tPTfW3m0cVbL5RyA", None):
        metrics = Metrics()
        broker = KafkaSummary(cluster_id=cluster_id, node_id=1, version="3.9.1")
        metrics.observe_cycle(CycleSummary(job="cleanup", mode="report", started_ms=1000, seconds=1.0, kafka=broker))
        served.append(MetricsServer(metrics, "127.0.0.1:0"))
    try:
        with prometheus(tmp_path, *(server.address for server in served)) as address:
            wait_until(lambda: answers(address, "count(logagent_build_info) == 3"), "the three hosts")
            for chosen, count in ((".*", "3"), ("q8nXh2tPTfW3m0cVbL5RyA", "2")):
                expression = dict(queries(cluster=chosen))["Hosts"]
                assert [sample["value"][1] for sample in ask(address, expression)] == [count], chosen
            join = "on (instance, job) group_left(cluster_id) logagent_kafka_info"
            joined = f"count by (cluster_id) (logagent_enforcing * {join})"
            assert {s["metric"]["cluster_id"] for s in ask(address, joined)} == {
                "MkU3OEVBNTcwNTJENDM2Qk", "q8nXh2tPTfW3m0cVbL5RyA"
            }  # fmt: skip
    finally:
        for server in served:
            server.close()


@contextmanager
def agent_of(root: Path, cluster_id: str) -> Iterator[str]:
    """A daemon on a real broker's disk that says it is of this cluster; where it serves its metrics."""
    host = Host.from_disk(root)
    for meta in host.disk.rglob("meta.properties"):
        meta.write_text(re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={cluster_id}", meta.read_text()))
    often = {"cleanup.interval": "1s", "health.probe_interval": "500ms", "kafka.version": "3.9.1", **NO_LIMITS}
    host.with_assignments(**often, **{"metrics.listen": "127.0.0.1:0"})
    command = ("env", "-u", "LOGAGENT_METRICS__LISTEN", *FIRST)
    with DaemonProcess(root, "--config", host.toml, "--state-dir", host.state, command=command) as daemon:
        listen = daemon.wait_for("metrics")["listen"]
        daemon.wait_for("cycle")
        yield listen


def test_the_agents_of_two_clusters_are_told_apart(tmp_path: Path) -> None:
    """In every panel by host, for each cluster chosen; and every rule of the alerts can be evaluated over both."""
    ids = ("MkU3OEVBNTcwNTJENDM2Qk", "q8nXh2tPTfW3m0cVbL5RyA")
    with (
        agent_of(tmp_path / "a", ids[0]) as first,
        agent_of(tmp_path / "b", ids[1]) as second,
        prometheus(tmp_path, first, second) as address,
    ):
        both = "count(count_over_time(logagent_plan_actions[1m]) >= 3) by (instance)"
        wait_until(lambda: answers(address, f"count({both}) == 2"), "three scrapes of both")
        found: dict[str, set[str]] = {first: set(), second: set()}
        for cluster_id, instance in zip(ids, (first, second), strict=True):
            for title, expression in queries(cluster=cluster_id):
                seen = {sample["metric"].get("instance") for sample in ask(address, expression)} - {None}
                assert seen <= {instance}, (title, cluster_id, expression)
                found[instance] |= {title} if seen else set()
        assert found[first] == found[second] and len(found[first]) >= 8, found
        wait_until(lambda: answers(address, "logagent:log_dir_hidden_bytes"), "the rules")
        with urllib.request.urlopen(f"http://{address}/api/v1/rules", timeout=30) as answer:
            groups = json.load(answer)["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, rules
        assert sum(rule["health"] == "ok" for rule in rules) >= 5


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["targets"]
    assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
