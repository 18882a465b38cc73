"""`python -m tests.broker.check [--versions 3.9.1,4.3.1] [--only TEXT] [--out FILE]`: check's word beside real starts.

Damages a disk, asks `logagent check` about it, starts a real broker on it, and compares; where the start fails and a
cure is known, the cure is tried with another start. Ends with 1 if any word and its start disagree.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.broker.check.corpus import BETWEEN, CORPUS, KRAFT, ZOOKEEPER, Damage
from tests.broker.check.starts import Kind, Prepared
from tests.broker.check.tried import Tried, try_damage

_WHY = re.compile(r"^.*(?: ERROR | FATAL |Exception|Caused by).*$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.check", description=__doc__)
    parser.add_argument("--versions", default=",".join((*ZOOKEEPER, *BETWEEN, *KRAFT)))
    parser.add_argument("--only", default="", help="a regular expression for the names of damages and kinds of node")
    parser.add_argument("--out", type=Path, help="one JSON document a line")
    parser.add_argument("--against", type=Path, help="a file from --out: its starts are not done again")
    parser.add_argument("--no-cures", action="store_true")
    parser.add_argument("--as", dest="like", help="try what is tried on this release")
    asked = parser.parse_args()
    wrong = total = 0
    known = _known(asked.against)
    for version in asked.versions.split(","):
        for (kind, trimmed), damages in _groups(asked.like or version, asked.only).items():
            with ExitStack() as stack:
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logagent-starts-")))
                prepared = Prepared(root, version, kind, trimmed=trimmed)
                stack.callback(prepared.close)
                for damage in damages:
                    began = time.monotonic()
                    before = known.get((version, kind, damage.id))
                    try:
                        tried = try_damage(prepared, damage, version, cures=not asked.no_cures, known=before)
                    except (AssertionError, FileNotFoundError):
                        if asked.like is None:
                            raise
                        print(f"SKIP {version} {kind}: {damage.id}: its files are not there", flush=True)
                        continue
                    total += 1
                    wrong += not tried.agrees
                    _tell(tried, version, kind, time.monotonic() - began, asked.out)
    print(f"{total} damages compared, {wrong} differ")
    return 1 if wrong else 0


def _known(file: Path | None) -> dict[tuple[str, str, str], tuple[str, str | None]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file is not None else []
    return {(row["version"], row["kind"], row["damage"]): (row["outcome"], row["cured"]) for row in rows}


def _groups(version: str, only: str) -> dict[tuple[Kind, bool], list[Damage]]:
    groups: dict[tuple[Kind, bool], list[Damage]] = {}
    for damage in CORPUS:
        for kind in damage.tries(version):
            if re.search(only, f"{kind}: {damage.id}"):
                groups.setdefault((kind, damage.trimmed), []).append(damage)
    return groups


def _tell(tried: Tried, version: str, kind: Kind, seconds: float, out: Path | None) -> None:
    word = "ok  " if tried.agrees else "DIFF"
    cured = f", cured: {tried.cured}" if tried.cured is not None else ""
    said = " ".join(tried.fatal) or "nothing fatal"
    print(
        f"{word} {version} {kind}: {tried.damage.id}: {tried.outcome}{cured}; check: {said} ({seconds:.0f} s)",
        flush=True,
    )
    why = _WHY.findall(tried.log)
    if not tried.agrees:
        print("\n".join(f"       {line[:300]}" for line in why[:6]), flush=True)
    if out is not None:
        row = {
            "version": version,
            "kind": kind,
            "damage": tried.damage.id,
            "outcome": tried.outcome,
            "cured": tried.cured,
            "agrees": tried.agrees,
            "fatal": tried.fatal,
            "findings": tried.findings,
            "why": why[:12],
        }
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
