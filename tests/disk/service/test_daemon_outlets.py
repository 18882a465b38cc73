"""Metrics and publishing of a running daemon: what cannot be had is said once and done without; a reload changes it."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.base.units import instant
from logagent.deletion.store.answers import Answers
from logagent.deletion.store.requests import ControlFolder, Request, RequestedTopic, write_request
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey
from tests.daemon_process import FIRST, DaemonProcess, status_of
from tests.host import NO_LIMITS, Host
from tests.publish_host import data_files, rows_of
from tests.waiting import wait_until

OFTEN = {"cleanup.interval": "1s", "health.probe_interval": "500ms", "kafka.version": "3.9.1", **NO_LIMITS}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path / "h")


def daemon_of(host: Host) -> DaemonProcess:
    command = ("env", "-u", "LOGAGENT_METRICS__LISTEN", *FIRST)
    return host.daemon(command)


def fetch(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_metrics_are_served_and_a_reload_moves_them(host: Host, tmp_path: Path) -> None:
    host.with_assignments(**OFTEN, **{"metrics.listen": "127.0.0.1:0", "metrics.kafka_names": True})
    with daemon_of(host) as daemon:
        first = daemon.wait_for("metrics")["listen"]
        health = "kafka_log_LogManager_OfflineLogDirectoryCount 0.0"
        wait_until(lambda: health in fetch(first), "health in the metrics")
        text = tmp_path / "logagent.prom"
        host.with_assignments(**OFTEN, **{"metrics.listen": "", "metrics.textfile": str(text)})
        daemon.process.send_signal(signal.SIGHUP)
        assert "metrics.listen" in daemon.wait_for("reloaded")["changed"]
        with pytest.raises(OSError):
            fetch(first)
        wait_until(lambda: text.exists() and "logagent_enforcing 0.0" in text.read_text(), "the textfile")
        assert "kafka_log" not in text.read_text(), "Kafka's own names are not asked for any more"
        assert daemon.stop() == 0


def test_a_port_that_is_taken_and_a_file_that_cannot_be_written_are_reported_once(host: Host, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        host.with_assignments(
            **OFTEN, **{"metrics.listen": f"127.0.0.1:{port}", "metrics.textfile": str(tmp_path / "no" / "file")}
        )
        with daemon_of(host) as daemon:
            assert "cannot serve metrics" in daemon.wait_for("no-metrics")["reason"]
            daemon.wait_for("no-textfile")
            daemon.wait_for("cycle")
            seen = status_of(host.state)["cycles"][0]["started_at"]
            wait_until(lambda: status_of(host.state)["cycles"][0]["started_at"] > seen, "more cycles")
            assert len(daemon.events("no-textfile")) == len(daemon.events("no-metrics")) == 1
            assert daemon.stop() == 0


def test_snapshots_go_to_the_store_as_soon_as_it_is_there(host: Host, tmp_path: Path) -> None:
    store = tmp_path / "store"
    host.with_assignments(**OFTEN, **{"metrics.listen": "", "publish.store": str(store), "publish.interval": "2s"})
    with daemon_of(host) as daemon:
        daemon.wait_for("publish-failed")
        assert status_of(host.state)["publish"]["waiting"] > 0
        store.mkdir()
        init_store(str(store))
        wait_until(lambda: list(store.rglob("*.manifest.json")), "a snapshot")
        daemon.wait_for("published")
        assert len(daemon.events("publish-failed")) == 1
        assert daemon.stop() == 0
    manifests = [json.loads(p.read_text()) for p in store.rglob("*.manifest.json")]
    # The next ones of the same day are deltas on the first.
    assert {m["kind"] for m in manifests} - {"delta"} == {"snapshot", "assignments"}


def test_a_snapshot_names_the_requests_that_were_known_before_it(host: Host, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    init_store(str(store))
    key = PrivateKey("ops", b"\x01" * 32)
    to_store = {"publish.store": str(store), "publish.interval": "1s", "orders.interval": "1s"}
    host.with_assignments(**OFTEN, **to_store, **{"metrics.listen": "", "orders.keys": [key.public()]})

    def heads() -> list[dict[str, Any]]:
        return [rows_of(data)[0] for data in data_files(store, "snapshot", "delta")]

    with daemon_of(host) as daemon:
        first = wait_until(heads, "a snapshot")
        cluster_id, node_id = first[0]["cluster_id"], first[0]["node_id"]
        at = datetime.now(UTC)
        asked = Request(cluster_id, "topics", "a" * 24, "ops", instant(at), instant(at + timedelta(days=1)), "0" * 32,
                        topics=(RequestedTopic("gone", "A" * 22, ()),))  # fmt: skip
        number = write_request(ControlFolder(str(store), cluster_id), asked, key)
        wait_until(lambda: any(number in head["seen"] for head in heads()), "a snapshot that names the request")
        answers = Answers(str(store), cluster_id)  # sent right after the look, which a snapshot need not wait for
        wait_until(lambda: (seen := answers.seen(node_id)) and seen.open == (number,), "the request in the seen file")
        assert daemon.stop() == 0
    named = [head["seen"] for head in sorted(heads(), key=lambda head: head["at"])]
    assert named[0] == [] and named[-1] == [number]
