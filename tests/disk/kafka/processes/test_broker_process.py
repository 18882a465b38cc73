"""What psutil says of a process: a real one, of ours or of another user."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.base.linux.kernel import process_start_time_ms
from logagent.kafka.processes.broker_process import inspect_process
from tests.command_line import LOCKER, process
from tests.daemon_process import DaemonProcess, status_of
from tests.documents import assert_promised
from tests.host import Host
from tests.needs import need_root
from tests.waiting import wait_until

# Opens what it is told to, writes a MiB to disk, burns some CPU, and waits.
BROKER = """
import os, sys
held = [open(sys.argv[1], "ab") for _ in range(50)]
held[0].write(b"x" * (1 << 20))
held[0].flush()
os.fsync(held[0].fileno())
print("ready", flush=True)
sys.stdin.read()
"""
WORDS = [
    "-Xmx1G",
    "-Djavax.net.ssl.keyStorePassword=hunter2",
    "-cp",
    "/opt/kafka/libs/*" * 200,
    "kafka.Kafka",
    "/etc/s.p",
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", BROKER, str(tmp_path / "file"), *WORDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.stdin.close()
        process.wait(20)


def test_a_process_of_ours(broker: subprocess.Popen[bytes]) -> None:
    seen = inspect_process(broker.pid)
    assert seen is not None
    assert seen.pid == broker.pid
    assert abs(seen.start_time_ms - time.time() * 1000) < 60_000
    assert seen.user == subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert seen.open_files == len(os.listdir(f"/proc/{broker.pid}/fd"))
    assert seen.open_files is not None
    assert seen.open_files >= 50
    assert seen.open_files_limit == resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0]
    assert seen.write_bytes is not None
    assert seen.write_bytes >= 1 << 20
    assert seen.read_bytes is not None
    assert seen.resident_bytes is not None
    assert seen.resident_bytes > 1 << 20
    assert seen.cpu_seconds is not None


def test_secrets_of_the_command_line_are_not_told(broker: subprocess.Popen[bytes]) -> None:
    seen = inspect_process(broker.pid)
    assert seen is not None
    assert "hunter2" not in repr(seen)
    assert "-Djavax.net.ssl.keyStorePassword=***" in seen.command
    assert seen.short_command == f"{Path(sys.executable).name} ... kafka.Kafka /etc/s.p"


def test_a_process_is_its_pid_and_its_start(broker: subprocess.Popen[bytes]) -> None:
    """A PID that came again is another process; our own way of telling the start agrees with psutil's."""
    ours = process_start_time_ms(broker.pid)
    assert inspect_process(broker.pid, ours) is not None
    assert inspect_process(broker.pid, ours - 10_000) is None
    assert inspect_process(broker.pid, ours + 10_000) is None


def test_a_process_that_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(20)
    assert inspect_process(process.pid) is None


def test_a_process_of_another_user() -> None:
    """Who may not read it learns what everybody may, and no error."""
    need_root()
    code = f"""
import os, psutil
from logagent.kafka.processes.broker_process import inspect_process
inspect_process(os.getpid())
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
seen = inspect_process({os.getpid()})
print(seen.user, seen.start_time_ms > 0, seen.resident_bytes > 0, seen.read_bytes)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("root True True None\n", "")


def test_without_a_limit_there_is_none(tmp_path: Path) -> None:
    code = """
import os, resource
from logagent.kafka.processes.broker_process import inspect_process
seen = inspect_process(os.getpid())
print(seen.open_files_limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0], seen.short_command.startswith("python"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True True\n"


def test_a_running_daemon_tells_of_the_broker(tmp_path: Path) -> None:
    """In `status` (valid for its document, and for a person) and in the metrics."""
    host = Host.from_disk(tmp_path)
    host.with_assignments(**{"metrics.listen": "127.0.0.1:0", "health.probe_interval": "1s", "publish.store": "/gone"})
    environment = {"LOGAGENT_METRICS__LISTEN": "127.0.0.1:0"}
    with (
        process(LOCKER, host.d1, host.d2) as pid,
        DaemonProcess(tmp_path, "--config", host.toml, "--state-dir", host.state, **environment) as daemon,
    ):
        wait_until(lambda: status_of(host.state)["brokers"], "the broker in the status")
        document = status_of(host.state)
        assert_promised(document, "status")
        (broker,) = document["brokers"]
        assert (broker["pid"], broker["open_files"]) == (pid, len(os.listdir(f"/proc/{pid}/fd")))
        assert f"broker: process {pid} of {broker['user']}, up " in host.run("status").err

        address = daemon.wait_for("metrics")["listen"]
        text = fetch(address)
        assert "logagent_broker_processes 1.0" in text
        assert f'logagent_broker_open_fds{{pid="{pid}"}} {broker["open_files"]}.0' in text
        assert f'logagent_log_dir_state{{log_dir="{host.d2}",state="online"}} 1.0' in text
        # The store is away: said once, and counted.
        daemon.wait_for("publish-failed")
        wait_until(lambda: "logagent_publish_failed 1.0" in fetch(address), "the failure in the metrics")
        assert daemon.stop() == 0


def fetch(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text
