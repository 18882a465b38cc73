"""Links from one part of the page to rows of a table: an ordinary `#anchor`, and what to filter that table by."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from logagent.fleet.page.text import visible

# Enough for a topic and a log dir of the greatest length Kafka allows, in letters Kafka allows.
LONGEST_QUERY = 900


def query(wanted: Mapping[str, Any]) -> str:
    """Columns and the text that their cells show, in the form of a URL query, escaped for an attribute."""
    return escape(urlencode({key: visible(str(value)) for key, value in wanted.items() if value is not None}))


def link_html(table: str, wanted: Mapping[str, Any], content: str) -> str:
    """A link with the HTML `content`; with JavaScript the table it leads to shows only the rows `wanted`."""
    words = query(wanted)
    # Names written to be long must not make the page long: such a link leads to the table, not to the row.
    filtered = f' data-q="{words}"' if len(words) <= LONGEST_QUERY else ""
    return f'<a href="#{table}"{filtered}>{content}</a>'
