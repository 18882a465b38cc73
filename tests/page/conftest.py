"""A real browser (the distribution's Chromium, driven by Playwright) and axe-core for the tests of the page."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect, sync_playwright

from logagent.fleet.page import render
from tests.needs import missing, need_command
from tests.page.sample import sample

# The sandbox needs what a container does not give; the rest keeps the browser from calling anybody.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
AXE = "4.14.1"
# axe-core's own source, once fetched, stays here.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logagent-tests" / f"axe-core-{AXE}"

# However slow the machine: what is expected of a page may take so long.
expect.set_options(timeout=30_000)

Open = Callable[..., Page]


def follow(link: Locator) -> None:
    """Clicks a link into the tables and waits for its rows: just after a click the view before still stands."""
    page = link.page
    if link.evaluate("one => one.hash === location.hash"):
        link.click()  # two figures of the same rows, one after the other
        return
    page.evaluate("() => { self.moved = new Promise((done) => addEventListener('hashchange', done, { once: true })); }")
    link.click()
    page.evaluate("() => self.moved.then(() => {})")
    # The page's own listener came first: it says aria-busy until the rows are drawn.
    expect(page.locator("#view[aria-busy]")).to_have_count(0)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("the command chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from the npm registry or the cache."""
    source = CACHE / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        need_command("npm")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(CACHE), "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run([*command, f"axe-core@{AXE}"], capture_output=True, text=True, timeout=120, check=False)
        if not source.exists():
            missing(f"axe-core {AXE} (npm said: {done.stderr.strip()[-300:]})")
    return source.read_text("utf-8")


@pytest.fixture(scope="session")
def fleet_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a made-up fleet of 36 hosts, as a file."""
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render(*sample()), "utf-8")
    return path


@pytest.fixture(scope="session")
def small_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every part of the page with a few rows each: axe-core looks at every element, and takes its time."""
    report, tables = sample()
    for table in tables.values():
        table["rows"] = table["rows"][:8]
    path = tmp_path_factory.mktemp("page") / "small.html"
    path.write_text(render(report, tables), "utf-8")
    return path


VIEWPORT = ViewportSize(width=1280, height=900)


@pytest.fixture(scope="session")
def reader(browser: Browser) -> Iterator[BrowserContext]:
    """For the pages of all tests, one after the other. Beside a page that stays, each takes 0.5 CPU seconds instead of
    1.3: the browser keeps what else it starts for its first one."""
    context = browser.new_context(viewport=VIEWPORT)
    context.new_page()
    yield context
    context.close()


@pytest.fixture
def open_page(browser: Browser, reader: BrowserContext) -> Iterator[Open]:
    """Opens a file as a reader would; afterwards: no console message, no exception, nothing loaded but the file, and
    nothing left behind that another page could read."""
    pages: list[Page] = []
    contexts: list[BrowserContext] = []
    complaints: list[str] = []
    requests: list[str] = []

    def opened(path: Path, *, viewport: ViewportSize = VIEWPORT, **context: Any) -> Page:
        if context:
            contexts.append(browser.new_context(viewport=viewport, **context))
            page = contexts[-1].new_page()
        else:
            page = reader.new_page()
            if viewport != VIEWPORT:
                page.set_viewport_size(viewport)
        pages.append(page)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield opened
    kept = [page.evaluate("localStorage.length") for page in pages if page in reader.pages] + reader.cookies()
    for page in (*pages, *reader.pages[1:]):
        page.close()
    for context in contexts:
        context.close()
    reader.clear_permissions()
    assert not any(kept)
    assert complaints == []
    assert {url.partition("#")[0].partition(":")[0] for url in requests} <= {"file"}
    assert len({url.partition("#")[0] for url in requests}) <= len(pages)
