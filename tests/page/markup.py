"""Reads a page as a browser's parser would: which elements and attributes there are, and what the cells say."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class Page:
    tags: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    ids: list[str] = field(default_factory=list)
    blocks: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    data: dict[str, str] = field(default_factory=dict)
    text: str = ""
    policy: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.inside: str | None = None
        self.block: str | None = None

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
            # A block with a type is data: no browser runs it.
            self.block = values.get("id") if "type" in values else None

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside is None:
            self.page.text += data
        elif self.block is not None:
            self.page.data[self.block] = data
        else:
            self.page.blocks[self.inside].append(data)


def read(html: str) -> Page:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page


@dataclass
class Unpacked:
    """A table as the page's script has it."""

    about: dict[str, Any]
    rows: list[dict[str, Any]]


def unpacked(html: str) -> dict[str, Unpacked]:
    """The tables of a page, by name; names of directories that are as topic and partition say are spelled out."""
    page = read(html)
    found = {}
    for name, about in json.loads(page.data["told"])["tables"].items():
        columns = json.loads(gzip.decompress(base64.b64decode(page.data[f"d-{name}"])))
        keys = [column["k"] for column in about["columns"]]
        values = [
            [None if at < 0 else column["d"][at] for at in column["i"]] if isinstance(column, dict) else column
            for column in columns
        ]
        rows = [dict(zip(keys, row, strict=True)) for row in zip(*values, strict=True)]
        for row in rows:
            if "name" in row and row["name"] is None:
                row["name"] = f"{row['topic']}-{row['partition']}"
        found[name] = Unpacked(about, rows)
    return found
