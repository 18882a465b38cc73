"""`python -m tests.broker.check [--versions 3.9.1,4.3.1] [--only TEXT] [--out FILE]`: check's word beside real starts.

Does each damage of the table to a disk, asks `logagent check` about it, starts a real broker on it, and compares; where
the start fails and a cure is known, the cure is tried with another start. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.broker.check.starts import Prepared
from tests.broker.check.tried import Tried, try_damage, words
from tests.broker.rig.jars import version_tuple
from tests.damages import DAMAGES
from tests.damages.row import Answer, Damage, Kind, answers, write_answers

_WHY = re.compile(r"^.*(?: ERROR | FATAL |Exception|Caused by).*$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.check", description=__doc__)
    every = sorted({release for of in answers().values() for release in of}, key=version_tuple)
    parser.add_argument("--versions", default=",".join(every))
    parser.add_argument("--only", default="", help="a regular expression for the names of damages and kinds of node")
    parser.add_argument("--out", type=Path, help="one JSON document a line")
    parser.add_argument("--no-cures", action="store_true")
    parser.add_argument("--as", dest="like", help="try what is tried on this release")
    parser.add_argument("--pack", type=Path, help="only put the disks as they are before any damage into this folder")
    parser.add_argument("--write", action="store_true", help="write into answers.tsv what was seen")
    asked = parser.parse_args()
    wrong = total = 0
    seen: dict[tuple[str, Kind], dict[str, Answer]] = {key: dict(of) for key, of in answers().items()}
    for version in asked.versions.split(","):
        for (kind, trimmed), damages in _groups(asked.like or version, asked.only).items():
            with ExitStack() as stack:
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logagent-starts-")))
                root.chmod(0o755)
                prepared = Prepared(root, version, kind, trimmed=trimmed)
                stack.callback(prepared.close)
                if asked.pack is not None:
                    _pack(prepared, asked.pack / f"{version}-{kind}{'-trimmed' * trimmed}.tar.xz")
                    continue
                for damage in damages:
                    began = time.monotonic()
                    try:
                        tried = try_damage(prepared, damage, version, cures=not asked.no_cures)
                    except (AssertionError, FileNotFoundError):
                        if asked.like is None:
                            raise
                        print(f"SKIP {version} {kind}: {damage.id}: its files are not there", flush=True)
                        continue
                    total += 1
                    before = seen[damage.id, kind].get(version)
                    told = tried.differs(before)
                    wrong += bool(told)
                    _tell(tried, version, kind, told, time.monotonic() - began, asked.out)
                    seen[damage.id, kind][version] = tried.came._replace(marked=before is not None and before.marked)
    print(f"{total} damages compared, {wrong} differ")
    if asked.write:
        write_answers(seen)
    return 1 if wrong else 0


def _groups(version: str, only: str) -> dict[tuple[Kind, bool], list[Damage]]:
    groups: dict[tuple[Kind, bool], list[Damage]] = {}
    for damage in DAMAGES.values():
        for kind in damage.kinds:
            if version in damage.answers(kind) and re.search(only, f"{kind}: {damage.id}"):
                groups.setdefault((kind, damage.trimmed), []).append(damage)
    return groups


def _pack(prepared: Prepared, archive: Path) -> None:
    with prepared.disk() as disk:
        text = disk.node.config.read_text().replace(str(disk.root), "@ROOT@")
        disk.node.config.write_text(text)
        kept = [name for name in ("d1", "d2", "meta", "server.properties") if (disk.root / name).exists()]
        owners = ("--sort=name", "--owner=0", "--group=0", "--numeric-owner")
        subprocess.run(["tar", *owners, "--sparse", "-C", disk.root, "-cJf", archive, *kept], check=True)


def _tell(tried: Tried, version: str, kind: Kind, told: list[str], seconds: float, out: Path | None) -> None:
    word = "DIFF" if told else "ok  "
    cured = f", cured: {tried.cured}" if tried.cured is not None else ""
    said = f"{tried.came.outcome}{cured}; check: {words(tried.came.found)} ({seconds:.0f} s)"
    print(f"{word} {version} {kind}: {tried.damage.id}: {said}", flush=True)
    why = _WHY.findall(tried.log)
    if told:
        print("\n".join(f"       {line[:300]}" for line in (*told, *why[:6])), flush=True)
    if out is not None:
        row = {
            "version": version,
            "kind": kind,
            "damage": tried.damage.id,
            "outcome": tried.came.outcome,
            "cured": tried.cured,
            "agrees": tried.agrees,
            "fatal": sorted(tried.came.fatal),
            "findings": tried.came.found,
            "why": why[:12],
        }
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
