"""Links into the tables of the page: the address of a view says which rows it shows."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from logagent.fleet.page.text import esc, visible


def link(table: str, content: str, **wanted: Any) -> str:
    """A link with the HTML `content` to the rows of a table that have exactly these values; `key__min` and `key__max`
    bound a figure, `sort` names a column (`-`: largest first)."""
    words = urlencode({key.replace("__", "."): visible(str(value)) for key, value in wanted.items()})
    return f'<a href="#{table}{"?" + esc(words, 2000) if words else ""}">{content}</a>'


def figure(count: int, table: str, content: str, **wanted: Any) -> str:
    """`content` as a link to its rows; plain where there are none: no link leads to an empty table."""
    return link(table, content, **wanted) if count else content
