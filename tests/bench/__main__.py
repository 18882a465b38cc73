"""`python -m tests.bench [--small]`: all comparisons in a table of ratios. Nothing fails because a machine was slow."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.commands import COMMAND_JOBS
from tests.bench.jobs import JOBS, Ratio, Setup

ALL = {**JOBS, **COMMAND_JOBS}


def row(ratio: Ratio) -> list[str]:
    if not ratio.judged:
        return [ratio.job, ratio.against, "not measured", "", "", ""]

    def three(values: list[float]) -> str:
        if not values:
            return ""
        return " / ".join(f"{value:.3g}" for value in (min(values), statistics.median(values), max(values)))

    goal = "" if ratio.goal is None else f"{ratio.goal:g}"
    met = "" if ratio.goal is None else ("yes" if statistics.median(ratio.judged) <= ratio.goal else "no")
    return [ratio.job, ratio.against, three(ratio.cpu), three(ratio.wall), goal, met]


def table(ratios: list[Ratio]) -> str:
    """Markdown, as it stands in docs/performance.md: our cost over the other's, so less than 1 is better."""
    heads = ["job", "against", "CPU ratio (min / median / max)", "wall ratio (min / median / max)", "goal", "met"]
    rows = [heads, *(row(ratio) for ratio in ratios)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(heads))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size, for a quick look")
    parser.add_argument("--rounds", type=int, help="how often each is measured (default 7, small 3)")
    parser.add_argument("--dir", type=Path, help="where to work: the file system that is measured")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"only these of {', '.join(ALL)}")
    chosen = parser.parse_args()
    if unknown := set(chosen.jobs) - set(ALL):
        parser.error(f"no such job: {', '.join(sorted(unknown))}")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(prefix="logagent-bench-", dir=chosen.dir) as where:
        rounds = chosen.rounds or (3 if chosen.small else 7)
        setup = Setup(Path(where), chosen.small, rounds, say)
        for name, job in ALL.items():
            if not chosen.jobs or name in chosen.jobs:
                say(f"{name} ...")
                ratios += job(setup)
    print(table(ratios))


if __name__ == "__main__":
    main()
