"""The page as text: what it says, what it leaves out and says so, and that nothing from a disk becomes markup."""

from __future__ import annotations

import ast
import base64
import hashlib
import random
import re
import shlex
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
from logagent.fleet.page.columns import LAYOUT
from logagent.fleet.page.document import path_html
from logagent.fleet.page.first_screen import command_of_topic, regex
from logagent.fleet.page.words import NAVIGATION, WORDS, link, visible
from logagent.fleet.report.columns import TABLES
from logagent.store.contract import PageTable
from tests.long_form import FULL
from tests.page.markup import Page, read, unpacked
from tests.page.sample import WAYS, empty, sample
from tests.syntax import syntax_tree

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
        "details",
        "summary",
        "small",
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


def _hostile(step: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """What of a step comes from disks and hosts."""
    return {name: change(step[name]) for name in ("cluster_id", "host", "log_dir", "topic") if step[name] is not None}


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
    names = ("clusters", "hosts", "warnings", "run_id", "place")
    steps = [{**step, **_hostile(step, change)} for step in document["answers"]["steps"]]
    told = {**document, "answers": {**document["answers"], "steps": steps}}
    return {**told, **{name: texts(document[name]) for name in names}}, made  # type: ignore[return-value]


def assert_harmless(html: str) -> Page:
    html.encode("utf-8")
    page = read(html)
    assert page.tags <= TAGS, page.tags - TAGS
    assert not [name for name in page.attributes if name.startswith("on") or name in ("style", "src", "srcdoc")]
    assert all(re.fullmatch(r"#[a-z_]+(\?[^\s\"<>]*)?|[a-z_]+\.(csv|json|parquet)", at) for at in page.links), (
        page.links
    )
    for kind in ("script", "style"):
        (block,) = page.blocks[kind]
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy
    return page


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_everywhere_stays_text(name: str) -> None:
    html = render(*altered(sample(), lambda _: name))
    page = assert_harmless(html)
    assert unpacked(html)["usage_hosts"].rows[0]["host"] == visible(name)
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
    anchors = {at[1:].partition("?")[0] for at in page.links if at.startswith("#")}
    assert anchors <= set(page.ids) | set(LAYOUT)
    assert len(page.ids) == len(set(page.ids))


def test_every_filter_of_a_link_is_a_column_of_its_table() -> None:
    """Else the link would lead to all rows, or to none."""
    page = read(render(*sample()))
    asked = [at[1:].partition("?") for at in page.links if "?" in at]
    assert len(asked) > 20
    for table, _, query in asked:
        keys = {column.key for column in LAYOUT[table]}
        for key, value in parse_qsl(query):
            assert (value.lstrip("-") if key == "sort" else re.sub(r"\.(min|max|known)$", "", key)) in keys, (
                table,
                query,
            )


@pytest.mark.parametrize("hosts", [2_000, 10_000] if FULL else [2_000])
def test_every_host_and_log_dir_is_there(hosts: int) -> None:
    """`tests/run --full` asks of ten thousand, too."""
    html = render(*sample(hosts=hosts, orphans=10 * hosts))
    assert len(html.encode()) <= (MOST_BYTES if hosts > 2_000 else 3_000_000)
    tables = unpacked(html)
    assert len(tables["usage_hosts"].rows) == hosts
    assert len(tables["usage_log_dirs"].rows) == 3 * hosts
    for one in tables.values():
        assert one.about["rows"] == len(one.rows) <= one.about["total"]
    assert f"{hosts:,} of {hosts + hosts // 12:,} hosts reporting" in read(html).text


def test_long_hostile_names_cannot_make_the_page_larger() -> None:
    source = random.Random(1)
    made = altered(sample(hosts=50, orphans=9_000), lambda _: f"<{source.getrandbits(1190):x}")
    html = render(*made)
    assert len(html.encode()) <= MOST_BYTES
    directories = unpacked(html)["directories"]
    assert len(directories.rows) < directories.about["total"]


def test_rows_come_out_as_they_went_in() -> None:
    report, tables = sample()
    found = unpacked(render(report, tables))
    for name in ("usage_hosts", "usage_log_dirs", "usage_topics", "missing_replicas"):
        units = TABLES[name].units
        for went, came in zip(tables[name]["rows"], found[name].rows, strict=True):
            for key, value in came.items():
                if isinstance(went[key], float):
                    assert value == pytest.approx(went[key], abs=1)
                elif units[key] == "bytes" and key not in ("allocated", "size") and went[key] is not None:
                    assert value == pytest.approx(went[key], rel=0.0005)
                elif not isinstance(went[key], bool):
                    assert value == went[key] or key.endswith("_at"), key
    orphans = {(row["host"], row["log_dir"], row["name"], row["allocated"]) for row in tables["orphans"]["rows"]}
    shown = {
        (r["host"], r["log_dir"], r["name"], r["allocated"]) for r in found["directories"].rows if r["list"] == "orphan"
    }
    assert orphans == shown


def test_no_verdict_is_not_none() -> None:
    report, tables = sample()
    tables["orphans"] = {**tables["orphans"], "rows": [], "total": 0}
    for cluster in report["clusters"]:
        cluster.update(verdicts="unknown", why="no complete assignment file", assignments=None)
    html = render(report, tables)
    text = read(html).text
    assert "No verdicts for 3 clusters" in text
    assert "no complete assignment file" in text
    assert "No verdict could be made: missing replicas and only copies are unknown" in text
    assert "no verdict could be made" in unpacked(html)["directories"].about["empty"]


def test_a_fleet_nobody_heard_of_is_not_called_clean() -> None:
    html = render(*empty())
    text = read(html).text
    assert "No host reported" in text
    assert "Nothing needs you" not in text
    for one in unpacked(html).values():
        assert "not the same as none" in one.about["empty"] or "was rejected" in one.about["empty"]


def test_growth_lines_break_where_the_number_of_hosts_changes() -> None:
    report, tables = sample(clusters=1, dates=4)
    for row, hosts in zip(tables["chart_growth"]["rows"], (36, 30, 36, 36), strict=True):
        row["hosts"] = hosts
    html = render(report, tables)
    assert html.count('class="line"') == 1
    assert html.count('class="dot hollow"') == 1
    assert "Hollow: 1 of 4 dates with fewer than 36 hosts" in html


def test_the_line_to_full_is_where_the_pace_leads() -> None:
    report, tables = sample(clusters=1, dates=11)
    for number, row in enumerate(tables["chart_growth"]["rows"]):
        used = (50 + number) * 2**40
        row.update(hosts=36, used=used, size=100 * 2**40, was=used, now=60 * 2**40)
    text = read(render(report, tables)).text
    assert "Full in 40 d at this pace (30 Dec 2026)" in text
    for row in tables["chart_growth"]["rows"]:
        row["used"] = row["was"] = row["now"] = 50 * 2**40
    html = render(report, tables)
    assert "No line to full" in html and 'class="ahead"' not in html


def test_the_search_shows_columns_that_are_there_and_what_is_allocated() -> None:
    text = (Path(logagent.fleet.page.__file__).parent.parent / "assets" / "search.js").read_text()
    told = {name: re.findall(r'"(\w+)"', keys) for name, keys in re.findall(r"^  (\w+): \[(.*)\],$", text, re.M)}
    assert set(told) == set(LAYOUT), "it is one over everything"
    for name, keys in told.items():
        columns = {column.key for column in LAYOUT[name]}
        assert set(keys) <= columns and not ("allocated" in columns and "bytes" in keys), name


def test_one_cluster_needs_no_cluster_column() -> None:
    def hidden(clusters: int) -> bool:
        columns = unpacked(render(*sample(clusters=clusters)))["directories"].about["columns"]
        return bool(next(column["hidden"] for column in columns if column["k"] == "cluster_id"))

    assert (hidden(1), hidden(3)) == (True, False)


def test_every_table_of_the_contract_has_its_place() -> None:
    together = {"orphans", "leftovers", "undecided"}
    shown = (set(TABLES) - {"usage_partitions"} - together) | {"directories"}
    assert set(LAYOUT) == set(WORDS) == {name for name, _ in NAVIGATION} == shown


@pytest.mark.parametrize("name", sorted(set(LAYOUT) - {"directories"}))
def test_columns_are_those_of_the_contract(name: str) -> None:
    units = TABLES[name].units
    made_by_the_page = {"verdicts", "assignments_age", "what", "used_share", "full_on"}
    for column in LAYOUT[name]:
        if column.key in made_by_the_page and column.key not in units:
            continue
        assert units[column.key] == {"id": "int", "badge": "text"}.get(column.unit, column.unit), column.key
        assert set(column.by) <= set(units)


@pytest.mark.parametrize(
    "path", ["javascript:x", "//evil.example/x", "../up.csv", "/etc/passwd", "a b.csv", '"x', "a/../b"]
)
def test_only_plain_relative_paths_become_links(path: str) -> None:
    assert "<a" not in path_html(path)
    assert path_html("sub/orphans.csv") == '<a href="sub/orphans.csv">sub/orphans.csv</a>'


def test_a_link_finds_the_row_of_the_longest_names_kafka_allows() -> None:
    wanted = {"cluster_id": "c" * 22, "topic": "t.é" + "x" * 245, "node_id": 7}
    found = re.search(r'href="#usage_topics\?([^"]*)"', link("usage_topics", "x", **wanted))
    assert found is not None
    assert dict(parse_qsl(unescape(found.group(1)))) == {**wanted, "node_id": "7"}


@pytest.mark.parametrize("name", ["a b", "x;rm", "nul\x1b[201~", "ü", "a'b", "$(id)", ""])
def test_no_command_has_a_name_that_kafka_would_not_allow(name: str) -> None:
    report, _ = sample()
    assert command_of_topic(report, "cluster", name, "now") is None
    assert command_of_topic(report, name, "topic", "now") is None


@given(st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True))
def test_the_expression_of_a_topic_matches_it_alone(name: str) -> None:
    assert re.fullmatch(regex(name), name)
    assert not re.fullmatch(regex(name), name.replace(".", "_") + ("" if "." in name else "x"))
    command = command_of_topic({"place": "/r", "commands": WAYS}, "c", name, "now")
    assert command is not None
    assert shlex.split(command)[-4:] == ["--topic", regex(name), "--window", "now"]


def test_the_page_is_pure() -> None:
    folder = Path(logagent.fleet.page.__file__).parent
    for source in folder.glob("*.py"):
        for node in ast.walk(syntax_tree(source.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"os", "time", "pyspark", "socket", "pathlib"}, source
