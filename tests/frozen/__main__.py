"""`python -m tests.frozen save DIR` writes what a checkout prints; `python -m tests.frozen compare DIR_A DIR_B` says
what differs. Both sides of a comparison have to be saved on one machine."""

from __future__ import annotations

import argparse
import difflib
import fcntl
import fnmatch
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.frozen import fleet
from tests.frozen.cases import CASES
from tests.frozen.hosts import Checkout, ScratchHost
from tests.frozen.masks import Raw, masked

HERE = Path(__file__).parents[2]
WIDEST = 400
BROKE_OFF = "the case broke off"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save", help="run every case twice and write one masked text file per case")
    save.add_argument("folder", type=Path, help="a new or empty folder, outside of any checkout")
    save.add_argument("--tree", type=Path, default=HERE, help="the checkout whose code is run (default: this one)")
    save.add_argument("--with-spark", action="store_true", help="also the reports of a planted fleet (minutes)")
    compare = commands.add_parser("compare", help="print the differences of two saved folders; exit 1 if there are any")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    side = commands.add_parser("side")
    side.add_argument("names", nargs="*")
    side.add_argument("--tree", type=Path, required=True)
    for command in (save, compare):
        command.add_argument("--only", default="*", help="only the cases whose name has this in it, or matches it")
    asked = parser.parse_args()
    if asked.command == "side":
        return _side(asked.tree, asked.names)
    if asked.command == "compare":
        return show_differences(asked.before, asked.after, asked.only)
    return save_all(asked.folder, asked.tree, asked.only, with_spark=asked.with_spark)


def chosen(names: list[str], only: str) -> list[str]:
    return [name for name in names if only in name or fnmatch.fnmatch(name, only)]


def save_all(folder: Path, tree: Path, only: str, *, with_spark: bool = False) -> int:
    """Write every case; 1 if two runs of the same checkout differ in anything that is not masked."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and only == "*":
        print(f"{folder} is not empty", file=sys.stderr)
        return 2
    names = chosen(list(CASES), only)
    began = time.monotonic()
    sides = _run_twice(tree, names)
    if with_spark:
        # One after the other: each Spark takes all cores.
        runs = [run_alone(tree, [fleet.NAME])[fleet.NAME] for _ in range(2)]
        sides[fleet.NAME] = (runs[0], runs[1])
    hidden: Counter[str] = Counter()
    unequal: list[str] = []
    broken: list[str] = []
    for name, (first, second) in sides.items():
        one, two = masked(first, second), masked(second, first)
        hidden.update(one.count)
        path = folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.text)
        if BROKE_OFF in one.text:
            broken.append(name)
        if one.text != two.text:
            unequal.append(name)
            print(_difference(f"{name}, first run", f"{name}, second run", one.text, two.text))
    commands = sum(first.text.count("\n===== ") + 1 for first, _ in sides.values())
    print(
        f"{len(sides)} cases, {commands} commands and files, each twice, in {time.monotonic() - began:.0f} s: {folder}"
    )
    print("masked: " + ", ".join(f"{kind} {count}" for kind, count in sorted(hidden.items())))
    if unequal:
        print(f"two runs of {tree} differ in: {', '.join(unequal)}")
    if broken:
        print(f"not run to the end: {', '.join(broken)}")
    return 1 if unequal or broken else 0


def _run_twice(tree: Path, names: list[str]) -> dict[str, tuple[Raw, Raw]]:
    """Each case on two hosts, never at the same moment: the second half goes first on the other side."""
    half = len(names) // 2
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_alone, tree, names)
        second = pool.submit(run_alone, tree, [*names[half:], *names[:half]], wait=1.2 if len(names) < 4 else 0)
        one, two = first.result(), second.result()
    return {name: (one[name], two[name]) for name in names}


def run_alone(tree: Path, names: list[str], wait: float = 0) -> dict[str, Raw]:
    """Each case once, in namespaces where no process and no port of this machine is seen, and what is mounted ends."""
    time.sleep(wait)
    command = [
        "unshare",
        *(["--map-root-user"] if os.geteuid() else []),
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
    ]
    command += ["--mount-proc", sys.executable, "-m", "tests.frozen", "side", "--tree", str(tree.resolve()), *names]
    done = subprocess.run(command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return {name: Raw(**raw) for name, raw in json.loads(done.stdout).items()}


def _side(tree: Path, names: list[str]) -> int:
    _loopback_up()
    with Checkout(tree) as checkout:
        json.dump({name: asdict(run_case(checkout, name)) for name in names}, sys.stdout)
    return 0


def _mount(where: Path) -> None:
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64g,nr_inodes=1000000,mode=755", "frozen", where], check=True)


def _loopback_up() -> None:
    """In a new network namespace it is down; connections are to be refused there, not unreachable."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING


def run_case(checkout: Checkout, name: str) -> Raw:
    """One case on a fresh host, with file systems of its own: of one size, and quick; the disk's has nothing else on
    it. Every root has a path of the same length, because tables are laid out by it."""
    root = Path(tempfile.mkdtemp(prefix="frozen-", dir="/tmp"))
    try:
        _mount(root)
        _mount(root / "host")
        try:
            host = ScratchHost(root, checkout)
            try:
                (fleet.report if name == fleet.NAME else CASES[name])(host)
            except Exception as error:
                # What was printed until then tells more than the error; `save` fails for it.
                host.say(f"{BROKE_OFF}: {type(error).__name__}: {error}", traceback.format_exc())
            return Raw(str(root), host.started, host.text)
        finally:
            subprocess.run(["umount", "--recursive", "--lazy", root], check=True)
    finally:
        root.rmdir()


def show_differences(before: Path, after: Path, only: str) -> int:
    """Print what differs, case by case; 1 if anything does."""
    texts = [{str(p.relative_to(d))[:-4]: p.read_text() for p in sorted(d.rglob("*.txt"))} for d in (before, after)]
    names = chosen(sorted(set(texts[0]) | set(texts[1])), only)
    different = 0
    for name in names:
        here = [side.get(name) for side in texts]
        if here[0] == here[1]:
            continue
        different += 1
        if None in here:
            print(f"{name} is only in {after if here[0] is None else before}")
        else:
            print(_difference(f"{before}/{name}", f"{after}/{name}", str(here[0]), str(here[1])))
    print(f"{len(names)} cases compared, {different} differ")
    return 1 if different or not names else 0


def _difference(one: str, two: str, text: str, other: str) -> str:
    lines = difflib.unified_diff(text.split("\n"), other.split("\n"), one, two, lineterm="", n=2)
    return "\n".join(_short(list(lines)))


def _short(lines: list[str]) -> list[str]:
    """Long lines are shown around the first place where they differ from the line on the other side."""
    found = []
    for at, line in enumerate(lines):
        if len(line) <= WIDEST:
            found.append(line)
            continue
        others = (o for o in lines[at + 1 :] + lines[:at] if {line[:1], o[:1]} == {"+", "-"} and o[1:40] == line[1:40])
        other = next(others, "")
        same = next((n for n in range(1, min(len(line), len(other))) if line[n] != other[n]), 1) if other else 1
        start = max(1, same - WIDEST // 2)
        found.append(line[0] + ("…" if start > 1 else "") + line[start : start + WIDEST] + "…")
    return found


if __name__ == "__main__":
    sys.exit(main())
