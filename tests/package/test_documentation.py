"""The documentation as it is shipped, and as a site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from tests.markdown import DOCS, ROOT, anchors, links


def test_links_lead_to_what_is_in_the_package(unpacked: Path) -> None:
    doc = unpacked / "usr/share/doc/logagent"
    pages = sorted(doc.rglob("*.md"))
    assert {page.relative_to(doc) for page in pages} >= {page.relative_to(ROOT) for page in DOCS}
    wrong = []
    for page in pages:
        for target in links(page):
            path, _, anchor = target.partition("#")
            there = page.parent / path if path else page
            if "://" not in target and not (there.exists() and (not anchor or anchor in anchors(there))):
                wrong.append(f"{page.relative_to(doc)}: {target}")
    assert wrong == []
    assert len(links(doc / "README.md")) > 20


def test_the_readme_of_the_package_has_all_words(unpacked: Path) -> None:
    """Links that lead out of the package become plain text."""
    shipped = (unpacked / "usr/share/doc/logagent/README.md").read_text(encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    plain = re.compile(r"\[([^\[\]]+)\]\([^()\s]+\)")
    assert plain.sub(r"\1", shipped) == plain.sub(r"\1", text)
    assert "(ARCHITECTURE.md)" in text and "(ARCHITECTURE.md)" not in shipped


class _Addresses(HTMLParser):
    """What a page loads: scripts, styles, pictures, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        wanted = given.get("src") if tag in ("script", "img", "iframe") else None
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            wanted = given.get("href")
        if wanted:
            self.loads.append(wanted)


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """`--strict`: a link or an anchor that leads nowhere, or a page that is in no menu, ends it."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in DOCS:
        html = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        parser = _Addresses()
        parser.feed(html.read_text(encoding="utf-8"))
        assert parser.loads and [address for address in parser.loads if "//" in address] == [], page
