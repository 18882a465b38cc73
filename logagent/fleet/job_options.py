"""The options of `ingest` and `report`, written once: `logagent fleet` reads them with click, `submit.py` with argparse
(the machine that submits may have nothing but Spark)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from logagent.base.config.settings import parse_duration
from logagent.store.signing import public_key


@dataclass(frozen=True)
class Option:
    """One option with a value, or a flag. `default` is written as an operator would type it."""

    flag: str
    name: str
    metavar: str
    help: str
    required: bool = False
    default: str | None = None
    is_flag: bool = False


STORE = Option("--store", "store", "STORE", "The fleet store: a path or URI that Spark can read.", required=True)
OUT = Option("--out", "out", "DIR", "Where to write the report: a path or URI.", required=True)
MAX_AGE = Option(
    "--max-snapshot-age",
    "max_snapshot_age",
    "AGE",
    "A host not heard from for longer counts as unknown.",
    default="26h",
)
KEEP_LANDING = Option(
    "--keep-landing",
    "keep_landing",
    "AGE|off",
    "Then remove ingested files that are older than AGE from landing.",
    default="3d",
)
KEEP = Option(
    "--keep",
    "keep",
    "AGE|off",
    "Then remove reports from DIR that are older than AGE; the last ten stay.",
    default="90d",
)
REQUIRE_HOSTS = Option(
    "--require-hosts",
    "require_hosts",
    "SHARE",
    "Exit with 3 if fewer of the known hosts report, such as 95%; the report is written all the same.",
)
WITH_PARTITIONS = Option(
    "--with-partitions", "with_partitions", "", "Also write usage by partition, as Parquet.", is_flag=True
)
CLUSTER_NAME = Option("--cluster-name", "cluster_names", "NAMES", "Display names for clusters: ID=NAME,ID=NAME.")
BOOTSTRAP = Option(
    "--bootstrap-servers",
    "bootstrap_servers",
    "SERVERS",
    "Where the page's commands reach each cluster: ID=HOST:PORT,HOST:PORT;ID=HOST:PORT.",
)
ORDER_KEYS = Option("--order-keys", "order_keys", "KEYS", "Public keys, as in orders.keys, whose requests to report.")

OPTIONS: dict[str, tuple[Option, ...]] = {
    "ingest": (
        STORE,
        Option("--date", "day", "YYYY-MM-DD", "Only this date (default: every date that changed)."),
        KEEP_LANDING,
        Option("--assignments-from", "assignments_from", "NODES", "Trust only assignments published by these nodes."),
        Option("--report", "out", "DIR", "Then write a report to DIR, with the options below, in the same session."),
        MAX_AGE,
        WITH_PARTITIONS,
        CLUSTER_NAME,
        BOOTSTRAP,
        ORDER_KEYS,
        KEEP,
        REQUIRE_HOSTS,
    ),
    "report": (
        STORE,
        OUT,
        Option("--date", "day", "YYYY-MM-DD", "The date to report on (default: the newest one)."),
        MAX_AGE,
        WITH_PARTITIONS,
        Option("--commit", "commit", "N", "An older ingest of the date, if it is still kept."),
        CLUSTER_NAME,
        BOOTSTRAP,
        ORDER_KEYS,
        KEEP,
        REQUIRE_HOSTS,
    ),
}


def parse_text(text: str) -> str:
    """Any text but an empty one, which never means "all" or "the default". Raises ValueError."""
    if not text.strip():
        raise ValueError("it is empty")
    return text


def parse_age(text: str) -> timedelta:
    """`26h`, `7d`. Raises ValueError, also for 0: nothing would be young enough, not even what was just written."""
    found = parse_duration(text)
    if found == 0:
        raise ValueError(f"{text!r} is no time at all: nothing would be younger")
    return timedelta(milliseconds=found)


def parse_keep(text: str) -> timedelta | None:
    """`3d`; None for `off`. Raises ValueError."""
    return None if text == "off" else parse_age(text)


def parse_share(text: str) -> float:
    """`95%` → 0.95. Raises ValueError, also for 0%, which would require nothing."""
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?%", text) is None or not 0 < float(text[:-1]) <= 100:
        raise ValueError(f"{text!r} is not a share of the hosts, such as 95%")
    return float(text[:-1]) / 100


def parse_nodes(text: str) -> frozenset[int]:
    """`1,2,3`. Raises ValueError."""
    return frozenset(int(word) for word in text.split(","))


def parse_keys(text: str) -> tuple[str, ...]:
    """`KEY_ID:BASE64,…`, as `orders.keys` has them. Raises ValueError, which says no key."""
    keys = tuple(text.split(","))
    for key in keys:
        public_key(key)
    return keys


def parse_names(text: str) -> dict[str, str]:
    """`ID=NAME,ID=NAME`. Raises ValueError."""
    pairs = [word.partition("=") for word in text.split(",")]
    if any(not cluster or not name for cluster, _, name in pairs):
        raise ValueError(text)
    return {cluster: name for cluster, _, name in pairs}


def parse_servers(text: str) -> dict[str, str]:
    """`ID=HOST:PORT,HOST:PORT;ID=HOST:PORT`. Raises ValueError."""
    pairs = [word.strip().partition("=") for word in text.split(";")]
    if any(
        not cluster or re.fullmatch(r"[A-Za-z0-9._:\[\],-]+:[0-9]+", servers) is None for cluster, _, servers in pairs
    ):
        raise ValueError(text)
    return {cluster: servers for cluster, _, servers in pairs}


MOST_DIGITS = 9


def parse_number(text: str) -> int:
    """From 1 on. Raises ValueError."""
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise ValueError(text)
    return int(text)


READ: dict[str, tuple[Callable[[str], Any], str, str | None]] = {
    "YYYY-MM-DD": (date.fromisoformat, "{0!r} is not a date", "write it as YYYY-MM-DD"),
    "NODES": (parse_nodes, "{0!r} is not a list of node ids", "write it as 1,2,3"),
    "NAMES": (parse_names, "{0!r} cannot be read", "write it as ID=NAME,ID=NAME"),
    "SERVERS": (parse_servers, "{0!r} cannot be read", "write it as ID=HOST:PORT,HOST:PORT;ID=HOST:PORT"),
    "N": (parse_number, "{1!r} is not a number", "report.json of a report names its commit"),
    "KEYS": (parse_keys, "{2}", None),
    "AGE|off": (parse_keep, "{2}", "write {default}, or off"),
    "AGE": (parse_age, "{2}", None),
    "SHARE": (parse_share, "{2}", None),
}
"""How a value is read, by its `metavar`, and what is said of one that cannot be: {0} is the text, {1} its beginning,
{2} the error."""


def write_package(folder: Path) -> Path:
    """Writes this package as `logagent.zip` for Python elsewhere (`--py-files`, executors). Raises OSError."""
    package = Path(__file__).resolve().parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "logagent.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, Path("logagent") / path.relative_to(package))
    return archive
