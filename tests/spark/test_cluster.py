"""On real clusters: standalone with two workers, one of which dies in the middle; `local-cluster`; plain
spark-submit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyspark
import pytest
from pyspark.sql import SparkSession

from logagent.fleet.demo import Fleet
from logagent.fleet.ingest.check import FEW_HOSTS
from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.report.columns import NO_CSV, TABLES
from logagent.fleet.submit import write_archive
from logagent.fleet.tables.frames import STORE
from logagent.fleet.tables.store import Store
from tests.fleets.planted import generate
from tests.long_form import long_form
from tests.spark.conftest import C1, FEW_ROWS, Plain
from tests.spark.hand_made import AT
from tests.waiting import wait_until

HOME = Path(pyspark.__file__).parent
# For machines that do much else besides: on two idle cores each run takes half a minute.
DEADLINE = 900
LOOPBACK = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
SETTINGS = {
    **FEW_ROWS,
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": C1,
    "spark.executor.extraJavaOptions": C1,
    "spark.log.level": "ERROR",
}
SMALL = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]


def _wait(what: str, done: Callable[[], bool]) -> None:
    wait_until(done, what, DEADLINE, interval=0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started: a worker's executors do not go with a killed worker."""
    try:
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


@dataclass
class Standalone:
    """A standalone cluster on the loopback interface."""

    folder: Path
    stack: ExitStack
    size: int = 2
    memory: str = "600m"
    port: int = field(default_factory=_free_port)
    ui: int = field(default_factory=_free_port)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.ui)]
        self._spark_class("master", "org.apache.spark.deploy.master.Master", *where)
        _wait("master", lambda: self.alive() == 0)
        for number in range(self.size):
            own = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", self.memory]
            own += ["-d", str(self.folder / f"work-{number}"), self.url]
            self.workers.append(self._spark_class(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *own))
        _wait("workers", lambda: self.alive() == self.size)

    def _spark_class(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.stack.enter_context((self.folder / f"{name}.log").open("wb"))
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_HOME": str(HOME)}
        env["SPARK_DAEMON_JAVA_OPTS"] = env["SPARK_LAUNCHER_OPTS"] = C1
        started = subprocess.Popen([str(HOME / "bin" / "spark-class"), *arguments], stdout=log, stderr=log, env=env)
        self.stack.callback(_kill_tree, started)
        return started

    def alive(self) -> int | None:
        """Workers that the master has; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ui}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, urllib.error.URLError, ValueError, KeyError):
            return None

    def executors(self, number: int) -> list[psutil.Process]:
        """Executor processes of a worker."""
        found = []
        for child in psutil.Process(self.workers[number].pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
        return found


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with ExitStack() as stack:
        made = Standalone(tmp_path_factory.mktemp("standalone"), stack)
        made.start()
        yield made


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_archive(tmp_path_factory.mktemp("archive"))


def _submit(master: str, archive: tuple[Path, Path], *arguments: str) -> list[str]:
    """Plain spark-submit: this package only as the archive."""
    packed, main_file = archive
    command = [str(HOME / "bin" / "spark-submit"), "--master", master, *LOOPBACK, *SMALL]
    return [*command, "--py-files", str(packed), str(main_file), *arguments]


def _environment(tmp_path: Path) -> dict[str, str]:
    """Away from this checkout, so that only the archive can be imported."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHONPATH"))
    }
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME)}


def _stored(spark: SparkSession, path: Path) -> dict[str, Counter[str]]:
    """Rows of every table of a store."""
    store = Store.open(spark, str(path))
    commit = store.commit_of(AT.date())
    assert commit is not None
    return {name: Counter(map(str, store.read(name, [commit]).collect())) for name in STORE}


def _tables(out: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """Rows of every table; ages of snapshots depend on when one asks and are left out."""
    found = {}
    with duckdb.connect() as duck:
        for name in TABLES:
            left_out = "run_id, snapshot_age_seconds" if name == "usage_hosts" else "run_id"
            columns = f"* exclude ({left_out})"
            if name in NO_CSV:
                continue
            query = (
                f"select cast(columns({columns}) as varchar) from read_parquet('{out}/latest/parquet/{name}/*.parquet')"
            )
            rows = duck.execute(query).fetchall()
            found[name] = Counter(rows)
    return found


REPORT = ["report", "--date", "2025-03-10"]


@long_form
@pytest.mark.timeout(2 * DEADLINE)
def test_ingest_through_plain_spark_submit(
    spark: SparkSession, standalone: Standalone, plain: Plain, archive: tuple[Path, Path], tmp_path: Path
) -> None:
    """The store comes out row for row as on one machine; nothing but the archive was imported."""
    store = tmp_path / "store"
    shutil.copytree(plain.untouched, store)
    command = _submit(standalone.url, archive, "ingest", "--store", str(store))
    done = subprocess.run(command, cwd=tmp_path, env=_environment(tmp_path), capture_output=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert [one["date"] for one in said] == ["2025-03-09", "2025-03-10"]
    assert _stored(spark, store) == _stored(spark, plain.path)


@long_form
@pytest.mark.timeout(3 * DEADLINE)
def test_executors_read_the_hosts_though_the_driver_dies_once(
    spark: SparkSession, standalone: Standalone, tmp_path: Path
) -> None:
    """More hosts than a driver reads itself, with a Python on the workers that has nothing of ours. A driver that is
    killed while it ingests has committed nothing; what comes after it ends as if it had never been."""
    landing, store = tmp_path / "landing", tmp_path / "store"
    generate(landing, Fleet(at=AT + timedelta(minutes=15), clusters=1, hosts=FEW_HOSTS + 4, partitions=400, days=1))
    shutil.copytree(landing, store)
    command = [sys.executable, "-m", "logagent", "fleet", "ingest", "-v", "--store", str(store), "--json"]
    command += ["--master", standalone.url, *LOOPBACK, *SMALL]
    environment = {**_environment(tmp_path), "PYSPARK_PYTHON": sys._base_executable}  # type: ignore[attr-defined]
    said = tmp_path / "log"
    with said.open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait("its snapshots", lambda: re.search(rb"reading \d+ snapshots", said.read_bytes()) is not None)
            assert running.poll() is None
        finally:
            _kill_tree(running)
    assert not list((store / "commits").rglob("*.json"))
    done = subprocess.run(command, env=environment, capture_output=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"executors cannot read" not in done.stderr + said.read_bytes()
    ingest_dates(Store.open(spark, str(landing)), None)
    assert _stored(spark, store) == _stored(spark, landing)


@long_form
@pytest.mark.timeout(2 * DEADLINE)
def test_a_worker_that_dies_changes_nothing(
    standalone: Standalone, plain: Plain, archive: tuple[Path, Path], tmp_path: Path
) -> None:
    """Killed with its executor while the report is being computed; the other worker ends it."""
    command = _submit(
        standalone.url, archive, *REPORT, "-v", "--store", str(plain.path), "--out", str(tmp_path / "out")
    )
    log = (tmp_path / "log").open("wb")
    running = subprocess.Popen(command, cwd=tmp_path, env=_environment(tmp_path), stdout=log, stderr=log)
    try:
        _wait("the middle of the report", lambda: b"orphans, missing replicas" in (tmp_path / "log").read_bytes())
        assert standalone.executors(1), "the worker that is to die takes part"
        assert running.poll() is None
        for executor in standalone.executors(1):
            with suppress(psutil.NoSuchProcess):
                executor.send_signal(signal.SIGKILL)
        _kill_tree(standalone.workers[1])
        assert running.wait(timeout=DEADLINE) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        _kill_tree(running)
        log.close()
    assert _tables(tmp_path / "out") == _tables(plain.told.out.parent)


@long_form
@pytest.mark.timeout(2 * DEADLINE)
def test_local_cluster(plain: Plain, tmp_path: Path) -> None:
    """Through `logagent fleet report --master --conf`, with executors in processes of their own."""
    command = [sys.executable, "-m", "logagent", "fleet", *REPORT, "--store", str(plain.path)]
    command += ["--out", str(tmp_path / "out"), "--master", "local-cluster[2,1,600]", "--json", *LOOPBACK, *SMALL]
    done = subprocess.run(command, capture_output=True, env=_environment(tmp_path), timeout=DEADLINE)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert json.loads(done.stdout)["schema"] == "logagent.fleet-report/1"
    assert _tables(tmp_path / "out") == _tables(plain.told.out.parent)
