"""What every page has whatever the report says: head and policy, header, navigation, how to read it, footer."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from logagent.fleet.page.text import esc, name_html
from logagent.fleet.page.units import day, exact, moment
from logagent.fleet.page.words import NAVIGATION, READING
from logagent.store.contract import PageTable

_STYLES = ("base.css", "parts.css", "charts.css", "tables.css", "print.css")
_SCRIPTS = ("start.js", "tables.js", "tools.js", "links.js")


def header(report: Mapping[str, Any]) -> str:
    clusters = ", ".join(f"<code>{name_html(str(c['cluster_id']))}</code>" for c in report["clusters"][:6])
    more = len(report["clusters"]) - 6
    as_of = str(report.get("as_of", report["at"]))
    others = f" and {exact(more)} more" if more > 0 else ""
    return (
        f"<header><div><h1>Kafka disks, {esc(day(str(report['date'])))}</h1>"
        f'<p>State of <time datetime="{esc(as_of)}">{esc(moment(as_of))}</time>. {clusters}{others}</p></div></header>'
    )


def navigation(tables: Mapping[str, PageTable]) -> str:
    items = "".join(
        f'<li><a href="#{name}">{label} <span class="count">{exact(tables[name]["total"])}</span></a>'
        for name, label in NAVIGATION
    )
    return f'<nav aria-label="Sections"><ul>{items}</ul></nav>'


def reading() -> str:
    items = "".join(f"<dt>{esc(term)}<dd>{esc(meaning)}" for term, meaning in READING)
    return (
        '<section id="reading" aria-labelledby="h-reading"><h2 id="h-reading">How to read this page</h2>'
        f"<dl>{items}</dl></section>"
    )


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
    """Nothing is loaded, and of inline code only what this package ships runs."""
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
    """The dark colours are written once and used twice: where the system asks for them, and where the reader does."""
    dark = _asset("dark.css")
    return "".join(_asset(name) for name in _STYLES) + (
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )


@cache
def script() -> str:
    return "'use strict';(()=>{" + "".join(_asset(name) for name in _SCRIPTS) + "})();"
