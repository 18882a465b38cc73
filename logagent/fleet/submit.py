"""The fleet job for plain `spark-submit`: needs pyspark and this package as a zip, and nothing else.

    spark-submit --master … --py-files logagent.zip submit.py ingest --store hdfs:///kafka-fleet
    spark-submit --master … --py-files logagent.zip submit.py report --store hdfs:///kafka-fleet --out
    hdfs:///reports/today

`logagent fleet archive DIR` writes both files. Options and exit statuses are those of `logagent fleet`; `--master` and
`--conf` belong to spark-submit. No click here: the machine that submits may have nothing but Spark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from logagent.base.errors import Exit, LogAgentError
from logagent.fleet.job_options import OPTIONS, READ, parse_text, write_package


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status. The result is one line of JSON, the last one on stdout.

    spark-submit joins a Python driver's stderr to its stdout, so progress is only shown with `-v`.
    """
    options = _parser().parse_args(arguments)
    try:
        document, content = _run(options)
        print(json.dumps(document))
        if content is not None:
            from logagent.fleet.job import need_hosts

            need_hosts(content, options.require_hosts)
    except LogAgentError as error:
        print(f"logagent: {error}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
        return int(error.exit_status)
    return int(Exit.OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="submit.py", description="The logagent fleet job.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in OPTIONS:
        command = commands.add_parser(name)
        for o in OPTIONS[name]:
            words = o.help.replace("%", "%%")  # argparse fills in what follows a single one
            if o.is_flag:
                command.add_argument(o.flag, dest=o.name, help=words, action="store_true")
                continue
            read = READ[o.metavar][0] if o.metavar in READ else parse_text
            command.add_argument(
                o.flag, dest=o.name, metavar=o.metavar, help=words, required=o.required, default=o.default, type=read
            )
        command.add_argument("-v", "--verbose", action="store_true", help="Report every step.")
    return parser


def _run(options: argparse.Namespace) -> tuple[object, dict[str, Any] | None]:
    """What the command prints, and the content of `report.json` if there is a report."""
    from logagent.fleet.ingest.dates import ingest_dates, trim_landing
    from logagent.fleet.job import Job, report
    from logagent.fleet.spark_session import build_session, explained
    from logagent.fleet.tables.store import Store

    say: Callable[[str], None] = _say if options.verbose else lambda _: None
    spark = build_session()
    now = datetime.now(UTC)
    try:
        with explained("the fleet job failed", verbose=options.verbose):
            store = Store.open(spark, options.store)
            commit = options.commit if options.command == "report" else None
            asked = (options.day, options.max_snapshot_age, say, options.with_partitions, commit)
            names = options.cluster_names or {}
            more = (options.order_keys or (), names, options.keep, options.bootstrap_servers or {})
            job = Job(store, options.out or "", now, *asked, *more)
            if options.command == "report":
                content = report(job)
                return content, content
            done = ingest_dates(store, options.day, say=say, warn=_say, pinned=options.assignments_from)
            made = None if options.out is None else report(job)
            if options.keep_landing is not None:
                trim_landing(store, (now - options.keep_landing).date(), say=say, warn=_say)
            return [one.document() for one in done], made
    finally:
        spark.stop()


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def write_archive(folder: Path) -> tuple[Path, Path]:
    """Writes `logagent.zip` and `submit.py` into `folder`; returns their paths. Raises OSError."""
    archive = write_package(folder)
    main_file = folder / "submit.py"
    shutil.copyfile(__file__, main_file)
    return archive, main_file


if __name__ == "__main__":
    sys.exit(main())
