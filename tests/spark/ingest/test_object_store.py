"""Agents and Spark on one S3 server: what is published with obstore is ingested and reported through `s3a://`.

A long form: Spark fetches Hadoop's connector with what it needs of the AWS SDK (19 MB), and
there are five jobs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyspark
import pytest
from deltalake import DeltaTable, QueryBuilder

from logagent.base.files.safe_open import FileLimit
from logagent.fleet.demo import Fleet
from logagent.store.shared import init_store, open_store
from tests import object_servers
from tests.fleets.planted import generate
from tests.long_form import long_form
from tests.object_servers import BUCKET

AWS_SDK = "2.35.4"
"""What hadoop-aws 3.5.0 was built with. Its `bundle` has every service of AWS and 600 MB; these are what S3A uses."""
STORE, OUT = f"s3://{BUCKET}/fleet", f"s3a://{BUCKET}/reports"
LARGE = FileLimit("a test's file", 64 << 20)

pytestmark = long_form


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with object_servers.s3(tmp_path_factory.mktemp("s3") / "root") as environment:
        yield environment


def connector(endpoint: str) -> list[str]:
    """What a user adds to the commands."""
    (hadoop,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = hadoop.stem.removeprefix("hadoop-client-api-")
    sdk = [f"software.amazon.awssdk:{name}:{AWS_SDK}" for name in ("s3", "s3-transfer-manager", "sts")]
    conf = {
        "spark.jars.packages": ",".join([f"org.apache.hadoop:hadoop-aws:{version}", *sdk]),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def fleet(server: dict[str, str], *words: str, ok: bool = True) -> tuple[Any, str]:
    """The JSON that a command says, and its stderr."""
    command = [sys.executable, "-m", "logagent", "fleet", *words, "--json", "--master", "local[2]"]
    command += connector(server["AWS_ENDPOINT_URL"])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **server}, timeout=900)
    assert (done.returncode == 0) == ok, done.stderr[-3000:]
    return (json.loads(done.stdout) if ok else None), done.stderr


def test_a_fleet_on_s3(server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    now = datetime.now(UTC).replace(microsecond=0)
    truths = generate(tmp_path, Fleet(at=now, clusters=1, hosts=6, partitions=600, days=2, sick=0.02, broken=0.0))
    init_store(STORE)
    with open_store(STORE) as store:
        for path in sorted((tmp_path / "landing").rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    store.put(path.relative_to(tmp_path).parts, file)

    ingested, _ = fleet(server, "ingest", "--store", STORE)
    assert [one["rejected"] for one in ingested["dates"]] == [0, 0]
    report, _ = fleet(server, "report", "--store", STORE, "--out", OUT)
    assert report["totals"]["orphans"] == sum(len(truth.orphans) for truth in truths)
    with open_store(OUT.replace("s3a", "s3")) as reports:
        assert reports.read(["latest"], LARGE).decode().strip() == report["run_id"]
        assert json.loads(reports.read([report["run_id"], "report.json"], LARGE)) == report
        assert reports.exists([report["run_id"], "index.html"])

    # Again, by two at once: one goes ahead (or both, one after the other), no commit is overwritten.
    day = ingested["dates"][-1]["date"]
    with open_store(STORE) as store:
        first = store.read(["commits", day, "1.json"], LARGE)
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(_ingest_again, server, day) for _ in range(2)]
        assert any(run.result() for run in runs), runs
        assert store.read(["commits", day, "1.json"], LARGE) == first
        commits = [json.loads(store.read(["commits", day, n], LARGE))["run"] for n in store.names(["commits", day])]
        assert len(commits) == len(set(commits)) == 1 + sum(run.result() for run in runs)
        assert not store.exists([".ingest-lock"])
        newest = max(store.names(["commits", day]), key=lambda name: int(name.removesuffix(".json")))
        parts = json.loads(store.read(["commits", day, newest], LARGE))["tables"]["dirs"]

    table = DeltaTable(f"{STORE}/tables/dirs", storage_options={**server, "AWS_ALLOW_HTTP": "true"})
    assert table.version() == len(commits), "the other date, and each commit of this one"
    counted = QueryBuilder().register("dirs", table).execute(f"select 1 as n from dirs where date = '{day}'").read_all()
    assert counted.num_rows == sum(each["rows"] for each in parts)


def _ingest_again(server: dict[str, str], day: str) -> bool:
    try:
        fleet(server, "ingest", "--store", STORE, "--date", day)
    except AssertionError as error:
        assert "another ingest" in str(error)
        return False
    return True
