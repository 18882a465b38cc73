"""The page as text: what it says, what it leaves out and says so, and that nothing from a disk becomes markup."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import logagent.fleet.page
from logagent.fleet.page import MOST_BYTES, render
from logagent.fleet.page.bars import ledger_parts
from logagent.fleet.page.columns import LAYOUT
from logagent.fleet.page.links import link_html
from logagent.fleet.page.tables import MOST_COLUMNS, Grid, fit, path_html
from logagent.fleet.page.text import visible
from logagent.fleet.page.words import NAVIGATION, WORDS
from logagent.store.contract import TABLES, PageTable, column_units
from tests.page.markup import Page, read
from tests.page.sample import empty, sample

Report = tuple[dict[str, Any], dict[str, PageTable]]

TAGS = {
    *[
        "html",
        "head",
        "meta",
        "title",
        "style",
        "script",
        "body",
        "header",
        "nav",
        "main",
        "section",
        "footer",
        "div",
        "p",
        "span",
        "h1",
        "h2",
        "h3",
        "ul",
        "ol",
        "li",
        "a",
        "b",
        "br",
        "code",
    ],
    *[
        "dl",
        "dt",
        "dd",
        "time",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "rect",
        "line",
        "circle",
        "text",
        "figure",
        "figcaption",
    ],
}
HOSTILE = (
    "</script><script>hacked()</script>",
    "\"><img src=x onerror='hacked()'>",
    "' onfocus='hacked()' autofocus='",
    "</title></style></svg></table><iframe src=//x.example>",
    "javascript:hacked()",
    "<!--", "]]>", "{{7*7}}", "&lt;b&gt;&#x22;",
    "a\u202egnp.exe", "nul\x00esc\x1b[2J\x07", "caf\udce9", "caf\\udce9", "line\u2028sep\nnew", "\ufeff", " ",
)  # fmt: skip


def altered(report: Report, change: Callable[[str], str]) -> Report:
    """The report with every text of every row, every cluster, host and warning replaced."""
    document, tables = report

    def texts(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, list):
            return [texts(item) for item in value]
        if isinstance(value, dict):
            return {key: texts(item) for key, item in value.items()}
        return value

    made = {name: {**table, "rows": texts(table["rows"])} for name, table in tables.items()}
    names = ("clusters", "hosts", "warnings", "run_id")
    return {**document, **{name: texts(document[name]) for name in names}}, made  # type: ignore[return-value]


def assert_harmless(html: str) -> Page:
    html.encode("utf-8")
    page = read(html)
    assert page.tags <= TAGS
    assert not [name for name in page.attributes if name.startswith("on") or name in ("style", "src", "srcdoc")]
    assert all(re.fullmatch(r"#[a-z_]+|[a-z_]+\.(csv|json|parquet)", link) for link in page.links), page.links
    for kind in ("script", "style"):
        (block,) = page.blocks[kind]
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy
    return page


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_everywhere_stays_text(name: str) -> None:
    page = assert_harmless(render(*altered(sample(), lambda _: name)))
    orphan = page.cells["t-orphans"][1]
    assert orphan[0] == visible(name)
    assert visible(name) in page.text


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(
    st.lists(st.text(st.characters(codec=None), max_size=30), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_any_text_anywhere_stays_text(texts: list[str], random: Any) -> None:
    report = sample(hosts=4, orphans=20, dates=3)
    assert_harmless(render(*altered(report, lambda old: random.choice([*texts, old]))))


def test_the_same_report_gives_the_same_page() -> None:
    assert render(*sample(seed=3)) == render(*sample(seed=3))


def test_the_page_loads_nothing_and_every_link_has_a_target() -> None:
    html = render(*sample())
    page = assert_harmless(html)
    assert "http" not in re.sub(r'http-equiv="', "", html)
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_a_fleet_of_ten_thousand_hosts_is_cut_and_says_so() -> None:
    html = render(*sample(hosts=10_000, orphans=100_000))
    assert len(html.encode()) <= MOST_BYTES
    page = read(html)
    for name, total in (("orphans", "100,000"), ("usage_hosts", "10,000"), ("usage_log_dirs", "30,000")):
        shown = len(page.cells[f"t-{name}"]) - 1
        assert shown > 500
        assert f"Showing {shown:,} of {total} rows" in page.text
        assert f"the rest is in {name}.csv" in page.text
    assert "10,000 of 10,833" in page.text
    assert "833 unknown" in page.text


def test_long_hostile_names_cannot_make_the_page_larger() -> None:
    html = render(*altered(sample(hosts=1_000, orphans=100_000), lambda _: "<\u202e" * 2000))
    assert len(html.encode()) <= MOST_BYTES
    assert "&lt;" in html and "<\\u202e" not in html


def test_empty_tables_say_why() -> None:
    report, tables = sample(dates=1)
    for name in ("orphans", "deletion_progress", "missing_replicas", "growth"):
        tables[name] = {**tables[name], "rows": [], "total": 0}
    report["totals"]["orphans"] = report["totals"]["missing_replicas"] = 0
    text = read(render(report, tables)).text
    assert "needs snapshots of at least two dates" in text
    assert "No deletion in progress" in text
    assert "No orphaned directory was found on the hosts that reported. 3 unknown hosts could not be asked." in text


def test_no_verdict_is_not_none() -> None:
    report, tables = sample()
    tables["orphans"] = {**tables["orphans"], "rows": [], "total": 0}
    report["totals"]["orphans"] = 0
    for cluster in report["clusters"]:
        cluster.update(verdicts="unknown", why="no complete assignment file", assignments=None)
    text = read(render(report, tables)).text
    assert "No verdicts for 3 clusters" in text
    assert "no complete assignment file" in text
    assert "Nothing is listed because no verdict could be made" in text
    assert "No orphaned directory" not in text


def test_a_fleet_nobody_heard_of_is_not_called_clean() -> None:
    html = render(*empty())
    text = read(html).text
    assert "No host reported" in text
    assert "everything was looked at" not in text
    assert "No orphaned directory" not in text
    assert 'class="tile good"' not in html


def test_no_days_until_full_where_nothing_grows() -> None:
    report, tables = sample()
    for row in tables["growth"]["rows"]:
        row.update(days_to_full=None, bytes_per_day=-5)
    page = read(render(report, tables))
    assert "No number of days where growth is zero or less" in page.text
    assert "no log dir is growing" in page.text
    assert {row[1] for row in page.cells["t-growth"][1:]} == {"–"}


def test_growth_lines_break_where_the_number_of_hosts_changes() -> None:
    report, tables = sample(clusters=1, dates=4)
    for row, hosts in zip(tables["chart_growth"]["rows"], (36, 30, 36, 36), strict=True):
        row["hosts"] = hosts
    html = render(report, tables)
    assert html.count('class="line"') == 1
    assert html.count('class="dot hollow"') == 1
    assert "Hollow: 1 of 4 dates with fewer than 36 hosts" in html


def test_an_offline_log_dir_has_no_bar_but_a_reason() -> None:
    report, tables = sample(hosts=9)
    offline = [row for row in tables["usage_log_dirs"]["rows"] if row["health"] == "offline"]
    tables["usage_log_dirs"] = {**tables["usage_log_dirs"], "rows": offline, "total": 1}
    assert "no figures: offline EIO on /var/lib/kafka/data-2" in read(render(report, tables)).text


def test_exact_bytes_are_in_the_title() -> None:
    report, tables = sample()
    first = tables["orphans"]["rows"][0]
    assert f'title="{first["bytes"]:,} B in files, {first["allocated"]:,} B allocated"' in render(report, tables)


def test_one_cluster_needs_no_cluster_column() -> None:
    page = read(render(*sample(clusters=1)))
    assert "Cluster" not in page.cells["t-orphans"][0]
    assert "Cluster" in read(render(*sample())).cells["t-orphans"][0]


def test_every_table_of_the_contract_has_its_place() -> None:
    shown = set(TABLES) - {"usage_partitions"}
    assert set(LAYOUT) == set(WORDS) == {name for name, _ in NAVIGATION} == shown


@pytest.mark.parametrize("name", sorted(LAYOUT))
def test_columns_are_those_of_the_contract(name: str) -> None:
    units = column_units(name)
    assert len(LAYOUT[name]) <= MOST_COLUMNS
    made_by_the_page = {"standing", "verdicts", "assignments_age", "what", "used_share"}
    for column in LAYOUT[name]:
        if column.key in made_by_the_page and column.key not in units:
            continue
        assert units[column.key] == {"id": "int", "badge": "text"}.get(column.unit, column.unit), column.key
        if column.link is not None:
            assert set(column.by) <= set(units)


@given(st.lists(st.lists(st.integers(1, 50), max_size=30), max_size=8), st.integers(0, 600))
def test_rows_share_the_room(sizes: list[list[int]], limit: int) -> None:
    grids = [Grid("t", "t", (), ["x" * size for size in rows], len(rows), "", None) for rows in sizes]
    fit(grids, limit)
    used = sum(sum(item.sizes[: item.keep]) for item in grids)
    assert used <= limit
    if sum(map(sum, sizes)) <= limit:
        assert [item.keep for item in grids] == [len(rows) for rows in sizes]


@pytest.mark.parametrize(
    "path", ["javascript:x", "//evil.example/x", "../up.csv", "/etc/passwd", "a b.csv", '"x', "a/../b"]
)
def test_only_plain_relative_paths_become_links(path: str) -> None:
    assert "<a" not in path_html(path)
    assert path_html("sub/orphans.csv") == '<a href="sub/orphans.csv">sub/orphans.csv</a>'


def test_a_link_finds_the_row_of_the_longest_names_kafka_allows() -> None:
    wanted = {"cluster_id": "c" * 22, "topic": "t.é" + "x" * 245, "node_id": 7, "host": None}
    found = re.search(r'data-q="([^"]*)"', link_html("usage_topics", wanted, "x"))
    assert found is not None
    assert dict(parse_qsl(unescape(found.group(1)))) == {
        "cluster_id": "c" * 22,
        "topic": wanted["topic"],
        "node_id": "7",
    }
    assert "data-q" not in link_html("usage_topics", {"topic": "\u202e" * 300}, "x")


def test_the_page_is_pure() -> None:
    folder = Path(logagent.fleet.page.__file__).parent
    for source in folder.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"os", "time", "pyspark", "socket", "pathlib"}, source


def test_a_bar_never_looks_emptier_than_its_disk() -> None:
    row = {"size": 100, "used": 60, "free": 40, "current": 10, "stray": -5, "unexplained": 5}
    assert ledger_parts(row) == [
        ("current", "current", 10),
        ("unexplained", "unexplained", 50),
        ("free", "free", 40),
    ]
    assert ledger_parts({"size": None, "used": None}) == []
