"""`python -m tests.bench.since BEFORE`: what starts cost in this checkout against another one (a folder with an older
commit). Each command runs on a demo's host of its own checkout; they take turns, so that a busy machine hits both."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench.__main__ import table
from tests.bench.commands import environment
from tests.bench.contenders import ROOT, Cost, command
from tests.bench.jobs import Ratio, in_turn
from tests.frozen.house import demo_host

GOAL = 1.05
ON_THE_HOST = ("--config", "logagent.toml", "--state-dir", "state")
COMMANDS = (
    ("--version",),
    ("explain", "--names", "orders-0"),
    ("queue", *ON_THE_HOST),
    ("scan", *ON_THE_HOST),
)


def costs_of(checkout: Path, folder: Path, words: tuple[str, ...]) -> Cost:
    with environment({"PYTHONPATH": str(checkout), "PYTHONPYCACHEPREFIX": str(folder.parent / "cache")}):
        was = os.getcwd()
        os.chdir(folder)
        try:
            return command(sys.executable, "-P", "-m", "logagent", *words, silent=True)
        finally:
            os.chdir(was)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.since", description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout of the older commit")
    parser.add_argument("--rounds", type=int, default=25, help="how often each is measured (default 25)")
    chosen = parser.parse_args()
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(prefix="logagent-bench-") as made:
        sides: dict[str, tuple[Path, Path]] = {}
        for name, checkout in (("now", ROOT), ("before", chosen.before.resolve())):
            sides[name] = checkout, Path(made) / name / "demo"
            sides[name][1].mkdir(parents=True)
            demo_host(*sides[name])
        for words in COMMANDS:
            contenders: dict[str, Callable[[], Cost]] = {
                n: partial(costs_of, *side, words) for n, side in sides.items()
            }
            for start in contenders.values():  # what is compiled, and a journal that is new
                start()
            ratio, seconds = Ratio(words[0], "before", GOAL), []
            for costs in in_turn(chosen.rounds, contenders):
                ratio.add(costs["now"], costs["before"])
                seconds.append([costs[name].cpu for name in ("now", "before")])
            now, before = (1000 * statistics.median(column) for column in zip(*seconds, strict=True))
            print(f"{' '.join(words[:2])}: {now:.1f} ms of CPU, before {before:.1f}", file=sys.stderr, flush=True)
            ratios.append(ratio)
    print(table(ratios))


if __name__ == "__main__":
    main()
