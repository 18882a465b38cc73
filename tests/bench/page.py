"""`python -m tests.bench.page [HOSTS …]`: what the page of a fleet costs in Chromium (default: 2,000 and 10,000 hosts).

For each size: bytes of the file, CPU seconds to make it, and what a reader waits for: from opening it to the first
table, one sort of the largest table, one search over everything. Wall time as the page sees it, and CPU seconds of all
processes of the browser, for machines that have other work. Of `ROUNDS` rounds the fastest counts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from logagent.fleet.page import render
from tests.browser import FLAGS
from tests.page.sample import sample

ROUNDS = 5
DIRS_PER_HOST = 20
# Does something, and answers with the milliseconds until what it waits for is there and the browser has drawn it.
WAIT = """(argument) => new Promise((done, failed) => {{
  const start = performance.now();
  const before = document.querySelector("#view table");
  {act};
  const look = () => {{
    if (performance.now() - start > 60000) failed(new Error("not within a minute"));
    else if (document.querySelector("#view table") !== before && document.querySelector("{there}")) {{
      requestAnimationFrame(() => done(performance.now() - start));
    }} else requestAnimationFrame(look);
  }};
  look();
}})"""
SHOW = WAIT.format(act="location.hash = argument", there="#view td.pick")
SORT = WAIT.format(
    act="document.querySelector('#view th[data-k=age_seconds] button').click()", there="#view th[aria-sort]"
)
SEARCH = WAIT.format(act="location.hash = `search?q=${argument}`", there="#view .hits")


@dataclass
class Cost:
    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, CPU {self.cpu:.2f} s"


def browser_cpu() -> float:
    """CPU seconds of Chromium's processes that are there now: all of them are ours."""
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                used = process.cpu_times()
                spent += used.user + used.system
        except psutil.NoSuchProcess:
            continue
    return spent


def measured(work: Callable[[], float]) -> Cost:
    before = browser_cpu()
    milliseconds = work()
    return Cost(milliseconds / 1000, browser_cpu() - before)


def one_round(browser: Browser, path: Path, host: str) -> dict[str, Cost]:
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page: Page = context.new_page()

    def opened() -> float:
        page.goto(path.as_uri())
        page.locator("#view tbody tr[aria-rowindex]").first.wait_for()
        return float(page.evaluate("performance.now()"))

    costs = {"first table": measured(opened)}
    costs["directories"] = measured(lambda: float(page.evaluate(SHOW, "directories")))
    costs["sort them"] = measured(lambda: float(page.evaluate(SORT)))
    costs["search"] = measured(lambda: float(page.evaluate(SEARCH, host)))
    context.close()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page", description=__doc__)
    parser.add_argument("hosts", nargs="*", type=int, default=[2_000, 10_000])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logagent-bench-") as where, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        for hosts in chosen.hosts:
            report, tables = sample(hosts=hosts, orphans=DIRS_PER_HOST * hosts)
            began = time.process_time()
            html = render(report, tables).encode()
            path = Path(where) / "index.html"
            path.write_bytes(html)
            print(
                f"{hosts:,} hosts: {len(html) / 1e6:.2f} MB, made in CPU {time.process_time() - began:.1f} s",
                flush=True,
            )
            host = tables["usage_hosts"]["rows"][0]["host"]
            rounds = [one_round(browser, path, host) for _ in range(chosen.rounds)]
            for name in rounds[0]:
                wall, cpu = (min(getattr(one[name], kind) for one in rounds) for kind in ("wall", "cpu"))
                print(f"  {name:<12} {Cost(wall, cpu)}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
