"""The Spark session of the fleet job, and what its failures mean to us."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logagent.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError

# What results depend on. Set on every session, also on one that spark-submit made.
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

# What only speed depends on: a value from the caller or from spark-submit is left alone.
TUNING = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "64m",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.parquet.aggregatePushdown": "false",
}

_LOG4J = Path(__file__).with_name("log4j2.properties")


def build_session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None, progress: bool = False
) -> SparkSession:
    """A session for `master` (the one in force, or `local[*]`), quiet on stdout; `conf` wins over our tuning.

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
    # spark-submit has started the JVM and placed the driver: nothing of that is ours to say.
    settings = {**({} if submitted else _launch_defaults(master, progress)), **TUNING, **chosen}
    for key, value in settings.items():
        builder = builder.config(key, value)
    # It writes every failed analysis to stderr as JSON, before anybody has caught it.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    with explained("Spark cannot be started"):
        spark = builder.getOrCreate()
        for key, value in SQL_CONF.items():
            spark.conf.set(key, value)
        tune(spark, 0)
        # Parquet pages carry a CRC; without this a flipped byte is another topic id, so a false orphan.
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        hadoop.set("parquet.page.verify-checksum.enabled", "true")
        hadoop.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    return spark


ROWS_PER_TASK = 2_000_000


def tune(spark: SparkSession, rows: int) -> None:
    """Shuffle partitions for `rows` rows: at least one per core; a small fleet does not pay for two hundred.

    Left alone where the user has said a number (`--conf`, spark-submit).
    """
    context = spark.sparkContext
    if context.getConf().get("spark.sql.shuffle.partitions") is None:
        parts = max(context.defaultParallelism, -(-rows // ROWS_PER_TASK))
        spark.conf.set("spark.sql.shuffle.partitions", str(parts))


# A report is many small plans: by default the second compiler spends more on Spark's planner, which runs a few seconds,
# than all rows of a small fleet take. With these thresholds it is left for the loops that see millions of rows.
_JIT = " ".join(
    f"-XX:Tier4{name}={count}"
    for name, count in (
        ("InvocationThreshold", 100_000),
        ("MinInvocationThreshold", 50_000),
        ("CompileThreshold", 300_000),
        ("BackEdgeThreshold", 1_000_000),
    )
)


def _launch_defaults(master: str | None, progress: bool) -> dict[str, str]:
    """Settings that only count while a JVM is started."""
    java = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    if master is not None and master.startswith("local"):
        java += f" {_JIT}"
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.driver.extraJavaOptions": java,
        "spark.log.structuredLogging.enabled": "false",
    }
    if master is not None and (master == "local" or master.startswith("local[")):
        # Nobody else has to reach a local session.
        defaults |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        defaults["spark.driver.memory"] = "2g"
    return defaults


_MEANINGS: tuple[tuple[str, type[LogAgentError], str, str], ...] = (
    (
        r"corrupted? page|Could not verify|CRC checksum|is not a Parquet file|FAILED_READ_FILE|CANNOT_READ_FILE"
        r"|CANNOT_READ_FOOTER|could not read page",
        UnreadableError,
        "a file of the store is damaged",
        "run `logagent fleet ingest --date` for that date again: landing is the source",
    ),
    (
        r"UnknownHostException|ConnectException|Connection refused|NoRouteToHost|SocketTimeout|No FileSystem for scheme"
        r"|UnsupportedFileSystemException|All masters are unresponsive|Could not parse Master URL",
        ServiceUnreachable,
        "the fleet store or the Spark master cannot be reached",
        "check --store, --out and --master; another file system needs its connector: --conf spark.jars.packages=…",
    ),
    (
        r"Read-only file system|AccessControlException|AccessDenied|Permission denied|Mkdirs failed",
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


def _cause(error: BaseException) -> str:
    """The innermost line of a Java stack that says something, for one sentence."""
    text = str(error)
    causes = re.findall(r"Caused by: [\w.$]+: ([^\n]+)", text)
    first = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.strip()[:300]


def running() -> bool:
    """Whether this process has a session already (spark-submit, a notebook, tests)."""
    return SparkSession.getActiveSession() is not None


@contextmanager
def explained(doing: str, *, verbose: bool = False) -> Iterator[None]:
    """Turns Spark's and Java's exceptions into ours, each with one sentence and a hint; `verbose` prints theirs too."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if verbose:
            print(text, file=sys.stderr)
        for pattern, kind, meaning, hint in _MEANINGS:
            if re.search(pattern, text):
                raise kind(f"{doing}: {meaning} ({_cause(error)})", hint=hint) from error
        if "CANNOT_MODIFY" in text or "INVALID_CONF_VALUE" in text:
            raise ConfigError(f"{doing}: {_cause(error)}", hint="see --conf") from error
        raise LogAgentError(f"{doing}: {_cause(error)}", hint="run again with -v for Spark's own words") from error
