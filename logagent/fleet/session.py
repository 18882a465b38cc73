"""The Spark session of the fleet job, and what its failures mean to us."""

from __future__ import annotations

import logging
import os
import pkgutil
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from logagent.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.fleet import launch

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

LOG4J = Path(__file__).with_name("log4j2.properties")


def build_session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None, progress: bool = False, rows: int | None = None
) -> SparkSession:
    """A session for `master` (the one in force, or `local[*]`), quiet on stdout; `conf` wins over our tuning.

    `rows`: about how many directories it will see, where that is known: a JVM of ours is started accordingly.

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
    archive = None if submitted else launch.archive()
    defaults = {} if submitted else _launch_defaults(master, progress, rows, archive)
    # It writes every failed analysis to stderr as JSON, before anybody has caught it.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    with explained("Spark cannot be started"):
        try:
            spark = _started(builder, {**defaults, **TUNING, **launch.sql_conf(rows), **chosen})
        except PySparkRuntimeError:
            if archive is None:
                raise
            # A truncated archive ends every JVM with SIGBUS.
            archive.unlink(missing_ok=True)
            defaults = _launch_defaults(master, progress, rows, None)
            spark = _started(builder, {**defaults, **TUNING, **launch.sql_conf(rows), **chosen})
        if submitted:
            _quiet(spark)
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


def _started(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _quiet(spark: SparkSession) -> None:
    """Our log settings, in a JVM that somebody else has started: in an archive they are no file, so they become one."""
    content = pkgutil.get_data("logagent.fleet", LOG4J.name)
    with tempfile.NamedTemporaryFile(suffix=".properties") as file:
        file.write(content or b"")
        file.flush()
        jvm: Any = spark._jvm
        uri = jvm.java.io.File(file.name).toURI()
        jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(uri)


def _launch_defaults(master: str | None, progress: bool, rows: int | None, archive: Path | None) -> dict[str, str]:
    """Settings that only count while a JVM is started."""
    java = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    # Executors of a cluster do the rows there: the driver of any size is a small one.
    alone = master is not None and (master == "local" or master.startswith("local["))
    java = f"{java} {launch.java_options(rows if alone else None, archive)}".strip()
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.driver.extraJavaOptions": java,
        "spark.log.structuredLogging.enabled": "false",
    }
    if alone:
        # Nobody else has to reach a local session.
        defaults |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
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
        r"UnknownHostException|ConnectException|Connection refused|NoRouteToHost|SocketTimeout|No FileSystem for scheme"
        r"|UnsupportedFileSystemException|All masters are unresponsive|Could not parse Master URL",
        ServiceUnreachable,
        "the fleet store or the Spark master cannot be reached",
        "check --store, --out and --master; another file system needs its connector: --conf spark.jars.packages=…",
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
    except (PySparkException, Py4JError, OSError) as error:
        text = str(error)
        if verbose:
            print(text, file=sys.stderr)
        for pattern, kind, meaning, hint in _MEANINGS:
            if re.search(pattern, text):
                raise kind(f"{doing}: {meaning} ({_cause(error)})", hint=hint) from error
        if "CANNOT_MODIFY" in text or "INVALID_CONF_VALUE" in text:
            raise ConfigError(f"{doing}: {_cause(error)}", hint="see --conf") from error
        raise LogAgentError(f"{doing}: {_cause(error)}", hint="run again with -v for Spark's own words") from error
