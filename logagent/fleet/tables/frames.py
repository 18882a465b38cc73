"""Small frames from rows of the driver, and frames that are written to disk instead of being cached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from logagent.fleet.tables.files import Files, literal


def local_frame(spark: SparkSession, rows: Sequence[dict[str, Any]], ddl: str) -> DataFrame:
    """Rows of the driver as a frame whose size Spark knows and which it reads without a job.

    `spark.createDataFrame` makes an RDD: a job for every use, and no statistics.
    """
    jvm: Any = spark._jvm
    # Lone surrogates (bytes of names that are not UTF-8) would be "?" in Java: they stay as their escape.
    text = "\n".join(json.dumps(_text(row)) for row in rows)
    # One call for all rows: py4j takes a list element by element.
    lines = jvm.org.apache.hadoop.util.StringUtils.getStringCollection(text, "\n")
    dataset = spark._jsparkSession.createDataset(lines, jvm.org.apache.spark.sql.Encoders.STRING())
    frame = DataFrame(dataset.toDF(), spark)
    return frame.select(fn.from_json("value", ddl).alias("row")).select("row.*")


def _text(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) and _is_odd(value) else value
        for key, value in row.items()
    }


def _is_odd(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


class Scratch:
    """Frames that are written to disk instead of being cached, below a directory that is removed when the work is done.

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
        # The original error matters more than one from cleaning up.
        with suppress(OSError, Py4JError, PySparkException):
            self._files.delete(self._uri)

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """`frame`, computed once. A name can be used once."""
        frame.write.parquet(f"{self._uri}/{name}")
        return self._spark.read.schema(frame.schema).parquet(literal(f"{self._uri}/{name}"))

    def count(self, name: str) -> int:
        """The number of rows kept under `name`, from the footers."""
        folder = f"{self._uri}/{name}"
        found = [part for part in self._files.names(folder) if part.endswith(".parquet") and part[0] not in "._"]
        return sum(self._files.parquet_rows(f"{folder}/{part}") for part in found)
