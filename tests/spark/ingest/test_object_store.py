"""Agents and Spark on one S3 server: what is published with obstore is ingested and reported through `s3a://`.

A long form: Spark fetches Hadoop's connector with what it needs of the AWS SDK (19 MB), and
there are five jobs.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
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
from tests.spark.conftest import DAY
from tests.spark.hand_made import AT, Kafka

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
    truths = generate(tmp_path, Fleet(at=now, clusters=1, hosts=40, partitions=600, days=2, sick=0.02, broken=0.0))
    init_store(STORE)
    with open_store(STORE) as store:
        for path in sorted((tmp_path / "landing").rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    store.put(path.relative_to(tmp_path).parts, file)

    # So many hosts are read by executors, which get keys that are in the settings from the driver.
    keys = {"access.key": server["AWS_ACCESS_KEY_ID"], "secret.key": server["AWS_SECRET_ACCESS_KEY"]}
    given = [word for name, key in keys.items() for word in ("--conf", f"spark.hadoop.fs.s3a.{name}={key}")]
    events = {"enabled": "true", "compress": "false", "dir": tmp_path.as_uri()}
    given += [word for name, value in events.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]
    ingested, said = fleet(server, "ingest", "-v", "--store", STORE, *given)
    assert "executors cannot read" not in said
    assert [one["rejected"] for one in ingested["dates"]] == [0, 0]
    report, more = fleet(server, "report", "-v", "--store", STORE, "--out", OUT, *given)
    secret = server["AWS_SECRET_ACCESS_KEY"]
    written = [path for path in tmp_path.parent.rglob("*") if path.is_file() and path.suffix != ".properties"]
    assert {"index.html", "1.json"} < {path.name for path in written}, "the bucket"
    assert any("local-" in str(path) for path in written), "what Spark notes of each job"
    assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert secret not in said + more + json.dumps([ingested, report])
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


HOSTS = 50
STEPS = """
import sys, urllib.request
from datetime import date
from logagent.fleet.ingest import check as module
from logagent.fleet.ingest.landing import Landing
from logagent.fleet.spark_session import build_session
from logagent.fleet.tables.store import Store
conf = dict(word.split("=", 1) for word in sys.argv[4:])
spark = build_session(master="local[2]", conf=conf, small=True)
store = Store.open(spark, sys.argv[1])
day, said, seen = date.fromisoformat(sys.argv[3]), [], []
def step(name):
    try:
        urllib.request.urlopen(f"{sys.argv[2]}/{name}").close()
    except OSError:
        pass
with Landing(store.uri, store.files) as landing:
    step("list")
    listing = landing.listed()
    for name, few in (("executors", 0), ("driver", 1000)):
        module.FEW_HOSTS = few
        run = store.new_run()
        step(name)
        found = module.check(run, landing, listing, day, None, said.append)
        step("read")
        reads = [e["read_from"] for e in found.chosen("snapshot")]
        wholes = [store.files.read(uri) for uri in reads]
        kept = found.files(), found.log_dirs, found.brokers, module.quarantine(found), wholes
        seen.append((kept, [uri.replace(run.name, "") for uri in reads]))
    taken = sum(entry["status"] == "taken" for entry in found.entries)
    reasons = sorted(e["reason"] for e in found.entries if e["status"] == "rejected")
    step("remove")
    kept = landing.remove(listing.landed[day])
    step("markers")
    landing.remove_empty(listing.folders[day])
    step("end")
print(taken, len(kept), seen[0] == seen[1], len(wholes), said, *reasons)
spark.stop()
"""
"""What `ingest` does with landing, one step after the other."""


def test_requests_for_what_agents_have_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most three for each object that is new, its snapshots made whole and written for Spark, whether executors read
    them or the driver, who find the same; one for each thousand that are listed, also of other dates; some for all that
    is removed. No folder markers stay, those of earlier years neither."""
    seen: list[str] = []
    with object_servers.forwarded(tmp_path / "s3", seen) as server:
        for name, value in server.items():
            monkeypatch.setenv(name, value)
        init_store(STORE)
        for number in range(3):
            _publish_night(tmp_path / f"night-{number}", DAY + timedelta(days=number))
        _damage_two(DAY)
        before = _objects()
        days = {path.rpartition("/")[0].rpartition("/")[0] for path in before if f"/{DAY}/" in path}
        markers = {f"{day}/{place}" for day in days for place in ("", "1/", "77/")}
        markers |= {marker.replace(str(DAY), str(DAY + timedelta(days=1))) for marker in markers}
        for marker in markers:
            url = f"{server['AWS_ENDPOINT_URL']}/{BUCKET}/fleet/{marker}"
            urllib.request.urlopen(urllib.request.Request(url, data=b"", method="PUT")).close()
        command = [sys.executable, "-c", STEPS, STORE, server["AWS_ENDPOINT_URL"], str(DAY)]
        command += connector(server["AWS_ENDPOINT_URL"])[1::2]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **server}, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.split() == [str(HOSTS - 1), "0", "True", str(HOSTS - 2), "[]", "base-differs", *REASONS]
        names = ("list", "executors", "read", "driver", "read", "remove", "markers", "end")
        steps = [seen.index(f"GET /{names[0]}")]
        for name in names[1:]:
            steps.append(seen.index(f"GET /{name}", steps[-1] + 1))
        between = [seen[first + 1 : last] for first, last in pairwise(steps)]
        listing, executors, _, driver, _, removing, marked = between
        new = HOSTS * 4
        # The two more are those that ask whether there is a landing.
        assert len(listing) <= 3 * new // 1000 + 1 + 2, _summed_up(listing)
        assert len(driver) <= 3 * new, _summed_up(driver)
        assert len(executors) <= 2 * new, _summed_up(executors)
        assert len(removing) <= 2 * (new // 250 + 1), _summed_up(removing)
        assert len(marked) <= 2, _summed_up(marked)
        gone = {path for path in before if path.startswith("landing/") and f"/{DAY}/" in path}
        assert len(gone) == new
        left = {path for path in _objects() if not path.startswith("runs/")}
        url = f"{server['AWS_ENDPOINT_URL']}/{BUCKET}?prefix=fleet/landing/"
        with urllib.request.urlopen(url) as answer:
            keys = set(re.findall(r"<Key>fleet/([^<]*/)</Key>", answer.read().decode()))
        assert left - {marker.rstrip("/") for marker in markers} == before - gone
        assert keys & markers == {marker for marker in markers if str(DAY) not in marker}


REASONS = ["bytes-differ", "no-base"]


def _damage_two(day: date) -> None:
    """The base of one host is not what it was, that of another is gone."""
    with open_store(STORE) as store:
        bases = {path for path in _objects() if f"/{day}/" in path and path.endswith(("-2.jsonl.gz", "-3.jsonl.gz"))}
        second, third = (min(path for path in bases if f"-{node}." in path) for node in (2, 3))
        store.put(second.split("/"), io.BytesIO(b"not gzip"))
        for suffix in (".jsonl.gz", ".manifest.json"):
            store.remove_file(third.replace(".jsonl.gz", suffix).split("/"))


def _publish_night(folder: Path, day: date) -> None:
    """A base and a delta of each host."""
    kafka = Kafka(folder, "fleet")
    at = datetime.combine(day, AT.timetz())
    kafka.topic("orders", *([1 + n % HOSTS] for n in range(HOSTS)))
    kafka.assignments(at=at, brokers=tuple(range(1, HOSTS + 1)))
    for node in range(1, HOSTS + 1):
        rows = kafka.replicas_of(node)
        base = kafka.hourly(node, rows, at=at - timedelta(hours=1))
        kafka.hourly(node, [row | {"bytes": row["bytes"] + 1} for row in rows], at=at, base=base)
    with open_store(STORE) as store:
        for path in sorted(folder.rglob("*.gz")) + sorted(folder.rglob("*.manifest.json")):
            with path.open("rb") as file:
                store.put(path.relative_to(folder).parts, file)


def _objects() -> set[str]:
    with open_store(STORE) as store:
        listed = [each["path"] for page in store._obstore.list(store._store) for each in page]  # type: ignore[attr-defined]
    return {path.removeprefix("fleet/") for path in listed}


def _summed_up(requests: list[str]) -> str:
    """Requests by method and by where in the store."""
    places = Counter(re.sub(r"[0-9a-f]{12,}|\d+|prefix=|[?](?!list).*", "*", one) for one in requests)
    return "\n".join(f"{count} {place}" for place, count in [*places.most_common(40), ("in all", len(requests))])
