"""Reads a page as a browser's parser would: which elements and attributes there are, and what the cells say."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Page:
    tags: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    blocks: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    cells: dict[str, list[list[str]]] = field(default_factory=dict)
    text: str = ""
    policy: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.inside: str | None = None
        self.rows: list[list[str]] | None = None
        self.outside = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        page, values = self.page, dict(attrs)
        page.tags.add(tag)
        page.attributes.update(name for name, _ in attrs)
        if "href" in values:
            page.links.add(values["href"] or "")
        if "id" in values:
            page.ids.append(values["id"] or "")
        if values.get("http-equiv") == "Content-Security-Policy":
            page.policy = values.get("content") or ""
        if tag in page.blocks:
            self.inside = tag
        elif tag == "table":
            self.rows = page.cells.setdefault(str(values.get("id")), [])
        elif tag == "tr" and self.rows is not None:
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self.outside = False

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = None
        if tag == "tr":
            self.outside = True
        if tag == "table":
            self.rows = None

    def handle_data(self, data: str) -> None:
        if self.inside is not None:
            self.page.blocks[self.inside].append(data)
            return
        self.page.text += data
        if self.rows and not self.outside:
            self.rows[-1][-1] += data


def read(html: str) -> Page:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page
