"""The Spark case: a planted fleet is ingested and reported."""

from __future__ import annotations

import tarfile

import duckdb

from tests.frozen.hosts import FIXTURES, ScratchHost

NAME = "fleet"
DAY = "2025-03-10"

# What hosts published: every scenario of tests/spark as a cluster of its own, and two clusters of the demo's generator.
PLANTED = FIXTURES / "planted-fleet.tar.xz"

# A small fleet lives in the compilers.
QUICK = {
    "spark.driver.memory": "2g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_CONF = [word for key, value in QUICK.items() for word in ("--conf", f"{key}={value}")]


def report(host: ScratchHost) -> None:
    """Ingest and report; then every file of the report."""
    with tarfile.open(PLANTED) as archive:
        archive.extractall(host.root, filter="data")
    out = host.root / "report"
    store = ("--store", str(host.store))
    host.run("fleet", "ingest", *store, "--json", *_CONF)
    host.run("fleet", "report", *store, "--out", str(out), "--date", DAY, "--with-partitions", "--brief", *_CONF)
    latest = out / "latest"
    for path in sorted(p for p in latest.rglob("*") if p.suffix in (".json", ".csv", ".html")):
        host.say(f"report: {path.relative_to(latest)}", path.read_text().replace("><", ">\n<"))
    with duckdb.connect() as duck:
        for table in sorted(p.name for p in (latest / "parquet").iterdir() if p.is_dir()):
            files = f"read_parquet('{latest}/parquet/{table}/*.parquet')"
            columns = duck.execute(f"describe select * from {files}").fetchall()
            rows = sorted(map(str, duck.execute(f"select * from {files}").fetchall()))
            host.say(f"parquet: {table}", "\n".join([*(f"{c[0]} {c[1]}" for c in columns), *rows]))
