"""What is copied from the page is the command: pasted into a shell it selects the rows that it stands beside, no other.

The report beside the page has the page's own rows; a real shell runs the real command on it, with an empty store.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from logagent.cli import run
from logagent.fleet.page import render
from logagent.fleet.page import words as units
from logagent.fleet.page.first_screen import place_of, purge_words, where_signed
from logagent.fleet.report import answers
from logagent.store.shared import init_store
from tests.browser import Open
from tests.long_form import one_in
from tests.page.fleet import Row
from tests.page.sample import is_asked, places_of, sample

REPOSITORY = Path(__file__).resolve().parents[2]
DOTTED, ALIKE = "eu.prod-1.clicks_v2", "eu-prod-1.clicks_v2"
KEY = tuple[int, str, str]


class _Codes(HTMLParser):
    """The commands of the first screen, as text that a reader would select."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "code" and ("class", "cmd") in attrs
        if self.inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1] += data


@dataclass
class Reported:
    """A report with its page, and the shell of an operator."""

    root: Path
    folder: Path
    report: Row
    tables: dict[str, Any]

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.report["place"] = f"file://{self.folder}"
        self.report["commands"] |= {"store": str(self.root / "store"), "key": str(self.root / "key")}
        (self.folder / "report.json").write_text("{}")
        for name in ("orphans", "leftovers", "usage_hosts"):
            table = self.tables[name]
            with (self.folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, table["columns"])
                writer.writeheader()
                writer.writerows(table["rows"])
        self.page.write_text(render(self.report, self.tables), "utf-8")
        store, shim = self.root / "store", self.root / "bin" / "logagent"
        store.mkdir()
        init_store(str(store))
        assert run(["topics", "keygen", str(self.root / "key")]) == 0
        shim.parent.mkdir()
        shim.write_text(f"#!{sys.executable}\nfrom logagent.cli import main\nmain()\n")
        shim.chmod(0o755)

    @property
    def page(self) -> Path:
        return self.root / "index.html"

    def codes(self) -> list[str]:
        reader = _Codes()
        reader.feed(self.page.read_text("utf-8"))
        return reader.found

    def rows(self, **wanted: str) -> list[Row]:
        """What can be requested of the report, in one cluster or of one topic."""
        leftovers = [row for row in self.tables["leftovers"]["rows"] if row["kind"] == "stray"]
        rows = [row for row in [*self.tables["orphans"]["rows"], *leftovers] if is_asked(row)]
        return [row for row in rows if all(row[key] == value for key, value in wanted.items())]

    def selected(self, command: str) -> list[KEY]:
        """What `sh -c` makes of the text, by the plan that it prints."""
        return keys(self.planned(command))

    def planned(self, command: str) -> list[Row]:
        """The directories of that plan."""
        done = subprocess.run(
            ["sh", "-c", f"{command} --json"],
            cwd=self.root,
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode in (0, 4), (command, done.stderr)
        return [row for plan in json.loads(done.stdout)["plans"] for row in plan["directories"]]


def keys(rows: Iterable[Row]) -> list[KEY]:
    return sorted((row["node_id"], row["log_dir"], row["name"]) for row in rows)


@pytest.fixture(params=one_in(2, ["it's $(here) & a\\b\\n", "plain"]))
def reported(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reported]:
    """Two topics whose names an unquoted dot would take for each other; a row without a topic id."""
    report, tables = sample(hosts=6, orphans=60)
    mine = tables["orphans"]["rows"]
    cluster = mine[0]["cluster_id"]
    mine = [row for row in mine if row["cluster_id"] == cluster]
    for number, row in enumerate(mine[:8]):
        topic = (DOTTED, ALIKE)[number % 2]
        row.update(
            topic=topic, topic_id="A" * 22, partition=number, name=f"{topic}-{number}", window="restart", inode=7
        )
    # A topic that Kafka's tools made: no command of the page asks for it.
    mine[9].update(topic="_schemas", name="_schemas-0", partition=0, window="restart", inode=7)
    mine[8].update(topic="ancient", topic_id=None, id=None, name="ancient-0", partition=0)
    for step, topic in zip(report["answers"]["steps"], (DOTTED, ALIKE), strict=False):
        gives = sum(row["allocated"] for row in mine[:8] if row["topic"] == topic)
        step.update(what="topic", cluster_id=cluster, topic=topic, requestable=4, window="restart", bytes=gives)
    found = answers.reclaimable(tables["usage_log_dirs"]["rows"], places_of(tables), None, [])
    report["answers"]["reclaim"] = found
    yield Reported(tmp_path, tmp_path / request.param, report, tables)


def test_the_text_of_the_first_screen_selects_exactly_what_it_stands_for(reported: Reported) -> None:
    found = reported.codes()
    by_topic = [command for command in found if "--topic" in command]
    assert [reported.selected(command) for command in by_topic] == [
        keys(reported.rows(topic=DOTTED)), keys(reported.rows(topic=ALIKE))
    ]  # fmt: skip
    assert len(reported.rows(topic=DOTTED)) == 4
    by_window = [command for command in found if "--window" in command and "--topic" not in command]
    assert by_window
    for command in by_window:
        assert reported.selected(command) == keys(reported.rows(window=command.rpartition(" ")[2]))


def test_the_bytes_beside_a_command_are_those_of_its_plan(reported: Reported, open_page: Open) -> None:
    """And so is the number of directories, where it is said: what a request cannot name stands apart."""
    page = open_page(reported.page, viewport={"width": 1400, "height": 1000})
    lines = page.locator("#next li, #reclaim li", has=page.locator("button.copy[title*=purge]"))
    assert lines.count() == 4
    for at in range(lines.count()):
        line, command = lines.nth(at), lines.nth(at).locator("button.copy").get_attribute("title")
        planned = reported.planned(command or "")
        said = line.inner_text()
        said = said.partition("the command: ")[2] or said
        assert units.size(sum(row["bytes"] for row in planned)) in said, said
        if " dirs" in said:
            assert f"{len(planned)} dirs" in said


def test_what_the_tables_copy_selects_exactly_the_rows_in_view(reported: Reported, open_page: Open) -> None:
    page = open_page(reported.page)
    for topic in (DOTTED, ALIKE):
        page.goto(f"{reported.page.as_uri()}#directories?topic={topic}")
        button = page.locator("#view .picked button.copy")
        expect(page.locator("#found")).to_contain_text("4 of ")
        assert reported.selected(button.get_attribute("title") or "") == keys(reported.rows(topic=topic))
    for kind in ("orphan", "stray", "overdue"):
        wanted = "list=orphan" if kind == "orphan" else f"list=leftover&reason={kind}"
        page.goto(
            f"{reported.page.as_uri()}#directories?{wanted}&cluster_id={reported.report['clusters'][0]['cluster_id']}"
        )
        expect(page.locator("#found")).to_contain_text(" of ")
        button = page.locator("#view .picked button.copy")
        cluster = reported.rows(cluster_id=reported.report["clusters"][0]["cluster_id"])
        rows = [row for row in cluster if (row["kind"] == "stray") == (kind == "stray")]
        if kind == "overdue":
            expect(button).to_have_count(0)  # the broker marked them: no command is for them
        else:
            assert reported.selected(button.get_attribute("title") or "") == keys(rows) and rows


def test_the_rows_of_a_window_have_the_command_of_the_first_screen(reported: Reported, open_page: Open) -> None:
    """In every cluster at once: it said that rows of several clusters have none."""
    page = open_page(reported.page)
    for window in ("now", "restart"):
        page.goto(f"{reported.page.as_uri()}#directories?window={window}&sort=-allocated")
        expect(page.locator("#found")).to_contain_text(" of ")
        command = page.locator("#view .picked button.copy").get_attribute("title") or ""
        assert command in reported.codes()
        assert reported.selected(command) == keys(reported.rows(window=window)) and reported.rows(window=window)


def test_a_row_that_cannot_be_requested_has_no_command(reported: Reported, open_page: Open) -> None:
    page = open_page(reported.page)
    page.goto(f"{reported.page.as_uri()}#directories?topic=ancient")
    expect(page.locator("#found")).to_contain_text("1 of ")
    expect(page.locator("#view td.pick input, #view .picked button.copy")).to_have_count(0)


def test_a_step_of_which_nothing_can_be_requested_has_no_command(reported: Reported) -> None:
    for step in reported.report["answers"]["steps"]:
        step["requestable"] = 0
    for window in ("now", "restart"):
        reported.report["answers"]["reclaim"][window]["requestable"] = 0
    reported.page.write_text(render(reported.report, reported.tables), "utf-8")
    assert not [command for command in reported.codes() if "purge" in command]


def test_each_cluster_is_reached_where_it_is(reported: Reported) -> None:
    """One command for all clusters has an address for each; what is not known is said beside it."""
    ids = [cluster["cluster_id"] for cluster in reported.report["clusters"]]
    assert len(ids) > 1
    said = where_signed(reported.report)
    assert "on ops-1, with --bootstrap-server ID=HOST:PORT for " in said and "orders.accept = true" in said
    reported.report["commands"]["bootstrap"] = {each: f"{n}.example:9092,b:9092" for n, each in enumerate(ids)}
    words = purge_words(reported.report) or []
    given = tuple(word for word, option in zip(words[1:], words, strict=False) if option == "--bootstrap-server")
    assert given == tuple(f"{each}={n}.example:9092,b:9092" for n, each in enumerate(ids))
    assert "on ops-1, as it is;" in where_signed(reported.report)
    reported.report["commands"] |= {"key": None, "store": None}
    assert "with --store STORE; --key FILE, where the order key is;" in where_signed(reported.report)


def test_a_place_that_could_not_be_pasted_is_in_no_command(reported: Reported, open_page: Open) -> None:
    """A line break, a control character or a byte that is not UTF-8 would be something else in the terminal."""
    for name in ("a\nb", "a\x1b[201~b", "a\u202eb", "a\\udcffb", "a\udcff"):
        report = reported.report | {"place": f"/srv/{name}"}
        assert place_of(report) == f"/srv/{name}"
        reported.page.write_text(render(report, reported.tables), "utf-8")
        assert not [command for command in reported.codes() if "purge" in command]
        page = open_page(reported.page)
        page.goto(f"{reported.page.as_uri()}#directories?topic={DOTTED}")
        expect(page.locator("#found")).to_contain_text("4 of ")
        expect(page.locator("#view .picked button.copy")).to_have_count(0)
        page.locator("#view td.pick input").first.check()
        expect(page.locator("#view .picked")).to_contain_text("No command can be made")
