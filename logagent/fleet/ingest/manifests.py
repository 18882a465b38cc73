"""Which files of landing are whole: manifests against bytes and SHA-256 of the files they vouch for.

A DataFrame with one row per data file or manifest; nothing is read as rows here. Problems are found in this order
and the
first one is the reason: place, manifest, file, identity.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from logagent.fleet.tables.schema import CORRUPT, MANIFEST_LINE, instant
from logagent.fleet.tables.store import literal

DATA = ".jsonl.gz"
MANIFEST = ".manifest.json"
# `content` of a row is one array in the executor. A snapshot of a million partition dirs has about 60 MB.
LARGEST_FILE = 1 << 30
LARGEST_MANIFEST = 1 << 20


def listing(spark: SparkSession, landing: str, dates: str) -> DataFrame:
    """Files of the dates that the glob `dates` matches: `path, file, cluster_id, dt, place, stem, suffix, bytes,
    received_at`.

    Contents are not read. Names other than data files and manifests (`*.tmp`) are not there yet.
    """
    files = _binary(spark, landing, dates).select("path", "length", "modificationTime")
    part = fn.split(fn.col("file"), "/")
    return (
        files.withColumn("file", fn.regexp_extract("path", r".*/landing/(.*)$", 1))
        .withColumn("suffix", fn.regexp_extract("file", r"(\.jsonl\.gz|\.manifest\.json)$", 1))
        .where(fn.col("suffix") != "")
        .select(
            "path",
            "file",
            fn.get(part, fn.lit(0)).alias("cluster_id"),
            fn.get(part, fn.lit(1)).alias("dt"),
            fn.when(fn.size(part) == 4, fn.get(part, fn.lit(2))).alias("place"),
            fn.regexp_extract("file", r"([^/]*?)(\.jsonl\.gz|\.manifest\.json)$", 1).alias("stem"),
            "suffix",
            fn.col("length").alias("bytes"),
            fn.col("modificationTime").alias("received_at"),
        )
    )


def _binary(spark: SparkSession, landing: str, dates: str) -> DataFrame:
    """Unreadable and vanished files give no row here, and Spark lists no empty ones; `checked` lists them all the
    same."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    reader = reader.option("ignoreCorruptFiles", "true").option("ignoreMissingFiles", "true")
    return reader.load(f"{literal(landing)}/*/{dates}")


def digested(spark: SparkSession, landing: str, dates: str) -> DataFrame:
    """`path`, `sha256` of data files, `text` of manifests; read once, whole, with built-in functions only."""
    is_data = fn.col("path").endswith(DATA)
    is_manifest = fn.col("path").endswith(MANIFEST) & (fn.col("length") <= LARGEST_MANIFEST)
    return (
        _binary(spark, landing, dates)
        .where(fn.col("length") <= LARGEST_FILE)
        .where(is_data | is_manifest)
        .select(
            "path",
            fn.when(is_data, fn.sha2("content", 256)).alias("sha256"),
            fn.when(is_manifest, fn.decode("content", "UTF-8")).alias("text"),
        )
    )


def claims(manifests: DataFrame) -> DataFrame:
    """The manifests' fields as `claim`, null where the text is no complete manifest of a schema we know."""
    parsed = fn.from_json("text", MANIFEST_LINE, {"columnNameOfCorruptRecord": CORRUPT})
    whole = (
        fn.col("claim").isNotNull()
        & fn.col(f"claim.{CORRUPT}").isNull()
        & fn.col("claim.schema").startswith("logagent.manifest/")
        & fn.col("claim.kind").isin("snapshot", "assignments")
        & instant("claim.at").isNotNull()
    )
    for name in ("snapshot_id", "cluster_id", "rows", "bytes", "sha256"):
        whole = whole & fn.col(f"claim.{name}").isNotNull()
    return manifests.withColumn("claim", parsed).withColumn("claim", fn.when(whole, fn.col("claim")))


def checked(spark: SparkSession, landing: str, day: str) -> DataFrame:
    """One row per data file or lone manifest of a date with `problem` and `detail`, both null where it is whole.

    Columns: `path, file, cluster_id, node_id, kind, stem, at, received_at, bytes, sha256, snapshot_id, host,
    claimed_rows,
    problem, detail`. `kind` and `node_id` come from the place, which is what the rest is checked against.
    """
    files = listing(spark, landing, day).join(digested(spark, landing, day), "path", how="left")
    place = ["cluster_id", "place", "stem"]
    data = files.where(fn.col("suffix") == DATA).select(
        *place, "path", "file", "bytes", "received_at", fn.lower("sha256").alias("sha256")
    )
    vouched = claims(files.where(fn.col("suffix") == MANIFEST)).select(
        *place, "claim", fn.col("file").alias("manifest"), fn.col("received_at").alias("manifest_at")
    )
    joined = data.join(vouched, place, how="full_outer")
    named = joined.select(
        *place,
        "claim",
        "manifest",
        "path",
        fn.coalesce("file", fn.regexp_replace("manifest", r"\.manifest\.json$", DATA)).alias("file"),
        fn.col("file").isNotNull().alias("has_data"),
        "bytes",
        fn.coalesce("received_at", "manifest_at").alias("received_at"),
        "sha256",
        fn.when(fn.col("place") == "assignments", "assignments").otherwise("snapshot").alias("kind"),
        fn.when(fn.col("place").rlike(r"^\d{1,9}$"), fn.col("place").try_cast("int")).alias("node_id"),
    )
    problem, detail = _problem()
    return named.select(
        "path",
        "file",
        "cluster_id",
        "node_id",
        "kind",
        "stem",
        instant("claim.at").alias("at"),
        "received_at",
        "bytes",
        "sha256",
        fn.coalesce(fn.col("claim.snapshot_id"), fn.col("stem")).alias("snapshot_id"),
        fn.col("claim.host").alias("host"),
        fn.col("claim.rows").alias("claimed_rows"),
        problem.alias("problem"),
        detail.alias("detail"),
    )


def _problem() -> tuple[Column, Column]:
    """The first problem of a file and what was seen, in the order of the docstring above."""
    claim = "claim."
    found: list[tuple[Column, str, Column]] = [
        (fn.col("place").isNull(), "wrong-place", fn.lit("not <cluster>/<date>/<node or assignments>/<file>")),
        (
            (fn.col("kind") == "snapshot") & fn.col("node_id").isNull(),
            "wrong-place",
            fn.concat(fn.lit("no node id: "), "place"),
        ),
        (fn.col("manifest").isNull(), "no-manifest", fn.lit("not complete yet: the manifest is written last")),
        (
            fn.col("claim").isNull(),
            "bad-manifest",
            fn.lit("the manifest is damaged, incomplete or of an unknown schema"),
        ),
        (~fn.col("has_data"), "no-data-file", fn.lit("its file is absent or has no bytes")),
        (fn.col("bytes") > LARGEST_FILE, "too-large", fn.format_string("%d bytes", "bytes")),
        (fn.col("sha256").isNull(), "unreadable", fn.lit("the file cannot be read")),
        (
            fn.col("bytes") != fn.col(claim + "bytes"),
            "bytes-differ",
            fn.format_string("%d bytes, its manifest says %d", "bytes", claim + "bytes"),
        ),
        (
            fn.col("sha256") != fn.lower(claim + "sha256"),
            "sha256-differs",
            fn.format_string("SHA-256 is %s, its manifest says %s", "sha256", claim + "sha256"),
        ),
        (
            fn.col("kind") != fn.col(claim + "kind"),
            "wrong-kind",
            fn.concat(fn.lit("manifest of "), fn.col(claim + "kind")),
        ),
        (
            fn.col("cluster_id") != fn.col(claim + "cluster_id"),
            "wrong-cluster",
            fn.concat(fn.lit("manifest of cluster "), fn.col(claim + "cluster_id")),
        ),
        (
            (fn.col("kind") == "snapshot") & ~fn.col("node_id").eqNullSafe(fn.col(claim + "node_id")),
            "wrong-host",
            fn.concat(
                fn.lit("manifest of node "), fn.coalesce(fn.col(claim + "node_id").cast("string"), fn.lit("none"))
            ),
        ),
        (
            (fn.col("kind") == "snapshot") & (fn.col("stem") != fn.col(claim + "snapshot_id")),
            "wrong-snapshot",
            fn.concat(fn.lit("manifest of snapshot "), fn.col(claim + "snapshot_id")),
        ),
    ]
    return (
        fn.coalesce(*(fn.when(seen, fn.lit(reason)) for seen, reason, _ in found)),
        fn.coalesce(*(fn.when(seen, detail) for seen, _, detail in found)),
    )


def ranked(files: DataFrame) -> DataFrame:
    """Whole files with `rank`: 1 = the newest of its host (or of its cluster's assignments).

    Newest by the earlier of the host's clock and the arrival: a clock that runs ahead does not outrank what is newer.
    """
    happened = fn.least("at", "received_at")
    newest = Window.partitionBy("kind", "cluster_id", "node_id").orderBy(
        happened.desc(), fn.col("at").desc(), fn.col("snapshot_id").desc(), fn.col("file").desc()
    )
    return files.where(fn.col("problem").isNull()).withColumn("rank", fn.row_number().over(newest))
