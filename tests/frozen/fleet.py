"""The Spark case: a planted fleet, from an archive so that each checkout gets the same one, ingested and reported."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import duckdb

from tests.frozen.hosts import Host

NAME = "fleet"
ARCHIVE = "planted.tar.gz"
DAY = "2025-03-10"

# What tests/spark judges: every scenario as a cluster of its own, and two clusters that are generated.
_PLANT = """
import sys
from datetime import timedelta
from pathlib import Path
from logagent.fleet.demo.generate import generate
from logagent.fleet.demo.planted import Fleet
from tests.spark.hand_made import AT
from tests.spark.scenarios import write_all
store = Path(sys.argv[1])
for seed in (1, 2):
    at = AT + timedelta(minutes=15)
    generate(store, Fleet(at=at, clusters=1, hosts=6, partitions=300, days=3, seed=seed, sick=0.04, broken=0.2))
write_all(store)
"""

# A small fleet lives in the compilers.
QUICK = {
    "spark.driver.memory": "2g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_CONF = [word for key, value in QUICK.items() for word in ("--conf", f"{key}={value}")]


def planted(folder: Path, earlier: Path | None) -> Path:
    """The archive in `folder`: the one of a folder that was saved earlier, or a new one."""
    archive = (folder / ARCHIVE).resolve()
    if archive.exists():
        return archive
    if earlier is not None:
        shutil.copy2(earlier / ARCHIVE, archive)
        return archive
    with tempfile.TemporaryDirectory() as store:
        here = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-c", _PLANT, store], cwd=here, check=True)
        with tarfile.open(archive, "w:gz") as out:
            out.add(store, "store")
    return archive


def report(host: Host, planted: Path) -> None:
    """Ingest and report; then every file of the report."""
    with tarfile.open(planted) as archive:
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
