"""The fleet store: tables below a path of any file system that Spark reads.

`landing/` is written by the agents and only read here (and trimmed by `--keep-landing`); everything else is ours.
Each table is
partitioned by `dt`; a date is replaced as a whole, and `files` is its commit mark: removed first, written last.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.errors import ServiceUnreachable
from logagent.fleet.tables.schema import STORE, shaped


def literal(path: str) -> str:
    """`path` for Spark's readers, which take brackets, braces, stars and the like for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


class Files:
    """Hadoop's file system API, the part of it that is needed. Paths are URIs."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self._conf), path

    def qualify(self, path: str) -> str:
        """The URI of a path; one without scheme and without leading slash is taken from the working directory."""
        if "://" not in path and not path.startswith(("/", "file:")):
            path = str(Path(path).absolute())
        system, parsed = self._at(path)
        return str(system.makeQualified(parsed).toString()).rstrip("/")

    def exists(self, uri: str) -> bool:
        system, path = self._at(uri)
        return bool(system.exists(path))

    def names(self, uri: str) -> list[str]:
        """Names of the entries of a directory, sorted; none for one that is not there."""
        system, path = self._at(uri)
        if not system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in system.listStatus(path))

    def delete(self, uri: str) -> None:
        """Removes a file or tree; one that is not there is fine."""
        system, path = self._at(uri)
        system.delete(path, True)

    def move(self, source: str, target: str) -> None:
        """Renames a file over `target`."""
        system, path = self._at(target)
        system.delete(path, True)
        system.rename(self._at(source)[1], path)
        # Hadoop's local file system keeps checksums beside files: nobody else wants them beside a report.
        folder, _, name = target.rpartition("/")
        self.delete(f"{folder}/.{name}.crc")

    def _plain(self, uri: str) -> tuple[Any, Any]:
        """As `_at`, without Hadoop's checksum file beside each local one, which lags behind what is rewritten."""
        system, path = self._at(uri)
        return (system.getRawFileSystem() if str(system.getScheme()) == "file" else system), path

    def create_new(self, uri: str) -> bool:
        """Makes an empty file if there is none; whether it did. Atomic where the file system is (see `lock.py`)."""
        system, path = self._at(uri)
        if str(system.getScheme()) == "file":
            # Hadoop's own looks first and creates then.
            return bool(self._jvm.java.io.File(path.toUri().getPath()).createNewFile())
        if system.exists(path):
            return False
        system.create(path, False).close()
        return True

    def overwrite(self, uri: str, content: bytes) -> None:
        """Writes a small file in place: it is there at every moment, if not whole."""
        system, path = self._plain(uri)
        stream = system.create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def read(self, uri: str) -> bytes:
        """A small file that was written by `overwrite`."""
        system, path = self._plain(uri)
        stream = system.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def modified_ms(self, uri: str) -> int:
        """Modification time on the store's own clock, in milliseconds since 1970."""
        system, path = self._at(uri)
        return int(system.getFileStatus(path).getModificationTime())

    def write(self, uri: str, content: bytes) -> None:
        """Writes a file whole: below a temporary name first."""
        system, path = self._at(uri + ".tmp")
        stream = system.create(path, True)
        try:
            for start in range(0, len(content), 1 << 20):
                stream.write(bytearray(content[start : start + (1 << 20)]))
        finally:
            stream.close()
        self.move(uri + ".tmp", uri)


@dataclass(frozen=True)
class Store:
    """One store. `uri` is qualified and has no slash at its end."""

    spark: SparkSession
    files: Files
    uri: str

    @classmethod
    def open(cls, spark: SparkSession, path: str) -> Store:
        """Raises `ServiceUnreachable` if there is nothing at `path`."""
        files = Files(spark)
        uri = files.qualify(path)
        if not files.exists(uri):
            raise ServiceUnreachable(f"there is no fleet store at {uri}", hint="check --store, and that it is mounted")
        return cls(spark, files, uri)

    @property
    def landing(self) -> str:
        return f"{self.uri}/landing"

    def table(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def dates(self) -> list[date]:
        """Dates that were ingested whole, oldest first."""
        names = self.files.names(self.table("files"))
        return [date.fromisoformat(name[3:]) for name in names if name.startswith("dt=")]

    def read(self, name: str, dates: list[date]) -> DataFrame:
        """Rows of `dates` with their `dt` (a date); dates that have no rows of this table give none."""
        have = set(self.files.names(self.table(name)))
        paths = [f"{self.table(name)}/dt={day}" for day in dates if f"dt={day}" in have]
        ddl = f"{STORE[name]}, dt date"
        if not paths:
            return self.spark.createDataFrame([], ddl)
        frame = self.spark.read.schema(ddl).option("basePath", self.table(name)).parquet(*map(literal, paths))
        return shaped(frame, ddl)

    def replace(self, name: str, day: date, frame: DataFrame) -> None:
        """Makes `frame` the table's whole content of `day`, also where it has no rows.

        Dynamic overwrite only replaces partitions that the frame has rows for, so the old ones go first; what is
        readable in between is settled by `uncommit`.
        """
        self.files.delete(f"{self.table(name)}/dt={day}")
        placed = shaped(frame, STORE[name]).withColumn("dt", fn.lit(day.isoformat()).cast("date"))
        placed.write.mode("overwrite").partitionBy("dt").parquet(self.table(name))

    def commit(self, day: date) -> None:
        """After everything else of a date is written: it counts as ingested, also where landing had nothing whole."""
        self.files.write(f"{self.table('files')}/dt={day}/_INGESTED", b"")

    def uncommit(self, day: date) -> None:
        """Before a date is written: from here to `files` being written again it counts as not ingested."""
        self.files.delete(f"{self.table('files')}/dt={day}")


class Scratch:
    """Frames that are written down instead of being cached, below a directory that goes when the work is done.

    A cached frame drags its whole plan through everything made from it, and is lost with its executor; one read back
    from Parquet has a plan of one line and known sizes.
    """

    def __init__(self, spark: SparkSession, files: Files, parent: str) -> None:
        self._spark = spark
        self._files = files
        self._uri = f"{parent}/.scratch-{uuid4().hex}"

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        # The error that brought us here says more than one about cleaning up after it.
        with suppress(Py4JError, PySparkException):
            self._files.delete(self._uri)

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """`frame`, computed once. A name can be used once."""
        frame.write.parquet(f"{self._uri}/{name}")
        return self._spark.read.schema(frame.schema).parquet(literal(f"{self._uri}/{name}"))
