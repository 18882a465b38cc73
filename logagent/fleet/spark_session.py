"""The Spark session of the fleet job, and the translation of its failures.

How our own JVMs are started: by the size of the fleet.

A small report spends most of its time starting: loading classes, interpreting, compiling. Small
fleets get only the quick compiler (C1), one garbage collector thread and no adaptive planning; large ones get Java's
compilers and the collector made for throughput: ingesting 4 million directories took 214 CPU seconds with the default
one (G1), 194 with it.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import STORE_FILE, parse_json, read_regular
from logagent.fleet.tables.frames import tune
from logagent.store.contract import as_date

SMALL_LANDING = 32 << 20
"""Compressed bytes of whole snapshots (about 500,000 directories) up to which the quick compiler is enough to ingest
them. At 4 million it took 565 CPU seconds, Java's default 277."""
SMALL_REPORT = 5_000_000
"""The same for the directories of a report, which reads few of them. At 4 million it took 65 CPU seconds, Java's
default 94."""
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LARGE = "-XX:+UseParallelGC"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_READ_BY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def java_options(small: bool, environment: Mapping[str, str] = os.environ) -> str:
    """Options for the JVM of a driver, by how much it has to do.

    Java refuses to start with two collectors: one that the user's environment chooses is left alone.
    """
    options = _SMALL if small else _LARGE
    if any(_COLLECTOR.search(environment.get(name, "")) for name in _READ_BY_JAVA):
        options = _COLLECTOR.sub("", options).strip()
    return options


def sql_conf(small: bool) -> dict[str, str]:
    """Settings of Spark that only pay for many rows."""
    return {"spark.sql.adaptive.enabled": "false"} if small else {}


def is_small_report(store: str) -> bool:
    """Whether a report on a local store covers few directories: those of its largest date. False if unknown."""
    most: int | None = None
    with suppress(OSError, ValueError, KeyError, TypeError, UnreadableError):
        for day in sorted((Path(store) / "commits").iterdir())[-3:]:
            last = max(day.glob("[1-9]*.json"), key=lambda path: int(path.stem))
            tables = parse_json(read_regular(last, STORE_FILE))["tables"]
            most = max(most or 0, sum(each["rows"] for each in tables["dirs"]))
    return most is not None and most <= SMALL_REPORT


def is_small_landing(store: str, day: date | None = None) -> bool:
    """Whether an ingest (of a date) of a local landing will parse little: of each host and date one snapshot, about as
    large as the largest file there; nothing of a date that was ingested after its last file came. False if unknown."""
    largest: dict[tuple[str, str, str], int] = {}
    newest: dict[str, float] = {}
    landing = Path(store, "landing")
    try:
        os.lstat(landing)  # `walk` says nothing of one that is not there
        for folder, _, names in os.walk(landing):
            place = Path(folder).relative_to(landing).parts
            if len(place) != 3 or day not in (None, as_date(place[1])):
                continue
            seen = [os.lstat(os.path.join(folder, name)) for name in names]
            largest[place] = max((each.st_size for each in seen), default=0)
            newest[place[1]] = max([newest.get(place[1], 0.0), *(each.st_mtime for each in seen)])
        ingested = {each for each in newest if _ingested_at(store, each) > newest[each]}
    except OSError:
        return False
    return sum(size for place, size in largest.items() if day is not None or place[1] not in ingested) <= SMALL_LANDING


def _ingested_at(store: str, day: str) -> float:
    folder = Path(store, "commits", day)
    commits = [entry.stat().st_mtime for entry in os.scandir(folder)] if folder.is_dir() else []
    return max(commits, default=0.0)


# Settings that affect results. Set on every session, including one created by spark-submit.
SQL_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.caseSensitive": "true",
}

# Settings that affect only speed: a value from the caller or from spark-submit is left alone.
TUNING = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "64m",
    "spark.sql.files.openCostInBytes": "65536",
    # More than 32 paths are looked up by a job: by default with a task each.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.sql.parquet.aggregatePushdown": "false",
    # Every partition is a group of its own: sorting, which the tables need anyway, costs less than hashing to lists.
    "spark.sql.execution.useObjectHashAggregateExec": "false",
    # Otherwise every operation on a column asks the JVM for settings and notes the line of Python it came from.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}

LOG4J = Path(__file__).with_name("log4j2.properties")


def build_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: bool = False,
    small: bool = False,
) -> SparkSession:
    """A session for `master` (the one in force, or `local[*]`), quiet on stdout; `conf` wins over our tuning.

    `small`: it will see few directories, and our own JVM is started accordingly.

    Under `spark-submit` the session's master and resources are those it was submitted with. Raises `ConfigError` for a
    `conf` that Spark refuses, `ServiceUnreachable` for a master that does not answer.
    """
    chosen = dict(conf or {})
    builder = SparkSession.Builder().appName("logagent fleet")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ or running()
    if master is None and not submitted and "--master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        master = chosen.get("spark.master", "local[*]")
    if master:
        builder = builder.master(master)
    # spark-submit has already started the JVM and placed the driver.
    defaults = {} if submitted else _launch_defaults(master, progress, small)
    # It writes every failed analysis to stderr as JSON, even if the exception is caught.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    with explained("cannot start Spark"):
        spark = _started(builder, {**defaults, **TUNING, **sql_conf(small), **chosen})
        if submitted:
            # Applies our log settings in a JVM that we did not start. Inside a zip they are not a file, so one is
            # written.
            content = pkgutil.get_data("logagent.fleet", LOG4J.name)
            with tempfile.NamedTemporaryFile(suffix=".properties") as file:
                file.write(content or b"")
                file.flush()
                jvm: Any = spark._jvm
                uri = jvm.java.io.File(file.name).toURI()
                jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(uri)
        elif "PYSPARK_PYTHON" not in os.environ and _is_local(master):
            spark.sparkContext.pythonExec = sys.executable
        for key, value in SQL_CONF.items():
            spark.conf.set(key, value)
        tune(spark, 0)
        # Parquet pages carry a CRC. Without this check a flipped byte becomes another topic id, and so a false orphan.
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        hadoop.set("parquet.page.verify-checksum.enabled", "true")
        # S3A would make a marker for the folder of every file that is removed, and look for them.
        hadoop.setIfUnset("fs.s3a.performance.flags", "delete")
        hadoop.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    return spark


def _is_local(master: str | None) -> bool:
    """Whether there is one process, on this machine, for driver and tasks."""
    return master is not None and (master == "local" or master.startswith("local["))


def _started(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _stdout_kept_from_jvm():
        return builder.getOrCreate()


@contextmanager
def _stdout_kept_from_jvm() -> Iterator[None]:
    """A JVM started meanwhile has our stderr as its stdout: one that crashes prints a page there, where our JSON
    goes."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _launch_defaults(master: str | None, progress: bool, small: bool) -> dict[str, str]:
    """Settings that only count while a JVM is started."""
    java = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    # On a cluster the executors process the rows: the driver is small whatever the fleet's size.
    alone = _is_local(master)
    java = f"{java} {java_options(small and alone)}".rstrip()
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.driver.extraJavaOptions": java,
        "spark.log.structuredLogging.enabled": "false",
    }
    if alone:
        # Nothing else has to reach a local session, and no other user of this host may: without these, anybody who
        # connects to its ports first keeps results from arriving, or tells its executor to stop.
        defaults |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        defaults |= {"spark.authenticate": "true", "spark.python.unix.domain.socket.enabled": "true"}
        # An idle one that outlives its last task complains on stderr when the session stops.
        defaults["spark.python.worker.reuse"] = "false"
        defaults["spark.driver.memory"] = "2g"
    return defaults


_MEANINGS: tuple[tuple[str, type[LogAgentError], str, str], ...] = (
    (
        r"corrupted? page|Could not verify|CRC checksum|is not a Parquet file|FAILED_READ_FILE|CANNOT_READ_FILE"
        r"|CANNOT_READ_FOOTER|could not read page|PATH_NOT_FOUND|FileNotFoundException",
        UnreadableError,
        "a file of the store is damaged",
        "run `logagent fleet ingest --date` for that date again: landing is the source",
    ),
    (
        r"No FileSystem for scheme|UnsupportedFileSystemException|Class org\.apache\.hadoop\.fs\.[\w.]+ not found",
        ConfigError,
        "Spark has no connector for this file system",
        "s3a://: --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:HADOOP, abfs://: hadoop-azure:HADOOP, gs://:"
        " com.google.cloud.bigdataoss:gcs-connector",
    ),
    (
        r"UnknownHostException|ConnectException|Connection refused|NoRouteToHost|SocketTimeout"
        r"|All masters are unresponsive|Could not parse Master URL",
        ServiceUnreachable,
        "the fleet store or the Spark master cannot be reached",
        "check --store, --out and --master",
    ),
    (
        r"Read-only file system|AccessControlException|AccessDenied|Permission denied|Mkdirs failed"
        r"|Operation not permitted",
        LogAgentError,
        "the place cannot be written",
        "give this user write access to the store and to --out",
    ),
    (
        r"No space left on device|Disk quota exceeded|DiskErrorException",
        LogAgentError,
        "no space is left",
        "free space below --store, --out and spark.local.dir, then run the same command again",
    ),
)


def _hadoop() -> str:
    """The version of Hadoop in this Spark: its connectors must have the same version."""
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    found = sorted(jars.glob("hadoop-client-api-*.jar"))
    return found[-1].stem.removeprefix("hadoop-client-api-") if found else "VERSION"


def cause(error: BaseException) -> str:
    """The innermost line of a stack, of Java or of an executor's Python, that says something, for one sentence."""
    text = str(error)
    causes = re.findall(r"Caused by: [\w.$]+: ([^\n]+)", text)
    first = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    # Of an executor's Python the line below its traceback.
    if raised := re.search(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?:[\w.]+: )?(\S.*)", text):
        first = raised[1]
    return first.strip()[:300]


def running() -> bool:
    """Whether this process has a session already (spark-submit, a notebook, tests)."""
    return SparkSession.getActiveSession() is not None


@contextmanager
def explained(doing: str, *, verbose: bool = False) -> Iterator[None]:
    """Turns Spark's and Java's exceptions into ours, each with one sentence and a hint; `verbose` prints theirs too."""
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        text = str(error)
        if verbose:
            print(text, file=sys.stderr)
        for pattern, kind, meaning, hint in _MEANINGS:
            if re.search(pattern, text):
                hint = hint.replace("HADOOP", _hadoop())
                raise kind(f"{doing}: {meaning} ({cause(error)})", hint=hint) from error
        if "CANNOT_MODIFY" in text or "INVALID_CONF_VALUE" in text:
            raise ConfigError(f"{doing}: {cause(error)}", hint="see --conf") from error
        raise LogAgentError(f"{doing}: {cause(error)}", hint="run again with -v for Spark's own messages") from error
