"""On the day of a release of Kafka (CONTRIBUTING.md says when):

python -m tests.broker.releases table                       make kafka/release_table.py anew
python -m tests.broker.releases compare 4.3.1 4.4.0         what changes for logagent, from the jars
python -m tests.broker.releases starts 4.3.1 4.4.0 [ONLY]   and what real starts make of each damage of the corpus
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.broker.releases.facts import TABLE, write_table
from tests.broker.releases.news import differing_starts, news


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.broker.releases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("table")
    for action in ("compare", "starts"):
        of = actions.add_parser(action)
        of.add_argument("old")
        of.add_argument("new")
        if action == "starts":
            of.add_argument("only", nargs="?", default="", help="a regular expression for damages and kinds of node")
    asked = parser.parse_args()
    if asked.action == "table":
        write_table()
        print(f"wrote {TABLE}")
    elif asked.action == "compare":
        print(f"# Kafka {asked.old} -> {asked.new}")
        print("\n".join(news(asked.old, asked.new)))
    else:
        lines = _starts(asked.old, asked.new, asked.only)
        print(f"## Starts: {len(lines) or 'no'} changes")
        print("\n".join(f"- {line}" for line in lines))
    return 0


def _starts(old: str, new: str, only: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="logagent-releases-") as scratch:
        tried = [_tried(Path(scratch) / version, version, old, only) for version in (old, new)]
    return list(differing_starts(*tried))


def _tried(out: Path, version: str, old: str, only: str) -> list[dict[str, Any]]:
    """Each damage that is tried on `old`, with a start of `version`."""
    command = [sys.executable, "-m", "tests.broker.check", "--versions", version, "--as", old, "--only", only]
    subprocess.run([*command, "--no-cures", "--out", str(out)], check=False)
    return [json.loads(line) for line in out.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
