"""The parts that every page has: head and content security policy, header, navigation, how to read it, footer."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from logagent.fleet.page.text import esc, name_html
from logagent.fleet.page.units import day, exact, moment
from logagent.fleet.page.words import READING

_STYLES = ("base.css", "panels.css", "charts.css", "tables.css", "print.css")
_SCRIPTS = ("start.js", "units.js", "data.js", "grid.js", "browse.js", "search.js", "commands.js")
_SAFE_PATH = re.compile(r"(?!/)(?:[A-Za-z0-9_][A-Za-z0-9._=-]*/)*[A-Za-z0-9_][A-Za-z0-9._=-]*")


def header(report: Mapping[str, Any]) -> str:
    """Title, time, number of clusters; the script adds the search and the theme."""
    as_of = str(report.get("as_of", report["at"]))
    clusters = len(report["clusters"])
    named = [str(one.get("name") or one["cluster_id"]) for one in report["clusters"][:6]]
    more = f" and {exact(clusters - 6)} more" if clusters > 6 else ""
    count = f"{exact(clusters)} cluster{'' if clusters == 1 else 's'}"
    return (
        f'<header><div><h1>Kafka disks</h1><p><time datetime="{esc(as_of)}">{esc(moment(as_of))}</time> · {count}'
        f"{': ' if named else ''}{', '.join(map(name_html, named))}{more}</p></div></header>"
    )


def reading() -> str:
    items = "".join(f"<dt>{esc(term)}<dd>{esc(meaning)}" for term, meaning in READING)
    return (
        '<section id="reading" aria-labelledby="h-reading"><h2 id="h-reading">How to read this page</h2>'
        f"<dl>{items}</dl></section>"
    )


def path_html(path: str) -> str:
    """A path beside the page, as a link if it is a plain relative one, else as text."""
    if _SAFE_PATH.fullmatch(path):
        return f'<a href="{path}">{path}</a>'
    return f"<code>{esc(path)}</code>"


def footer(report: Mapping[str, Any]) -> str:
    return (
        f"<footer><p>Run <code>{esc(str(report['run_id']))}</code>, made {esc(moment(str(report['at'])))} by logagent. "
        'Totals are of the whole fleet; figures for programs are in <a href="report.json">report.json</a>.</p></footer>'
    )


def head(report: Mapping[str, Any]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer"><meta name="generator" content="logagent">'
        f"<title>Kafka disks, {esc(day(str(report['date'])))}</title><style>{_style()}</style></head>\n"
    )


@cache
def _policy() -> str:
    """The content security policy: nothing is loaded, and only inline code shipped in this package runs."""
    return (
        f"default-src 'none'; style-src '{_digest(_style())}'; script-src '{_digest(script())}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (resources.files("logagent.fleet") / "assets" / name).read_text("utf-8")


@cache
def _style() -> str:
    """The dark colours are written once and used twice: if the system asks for them, and if the reader does."""
    dark = _asset("dark.css")
    return "".join(_asset(name) for name in _STYLES) + (
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )


@cache
def script() -> str:
    return "'use strict';(()=>{" + "".join(_asset(name) for name in _SCRIPTS) + "})();"
