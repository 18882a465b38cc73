"""What is copied from the page works where the page says so: on the host it names, and where orders are signed.

One real host with its daemon and a store; the report is the job's own. In Chromium a command is copied by click or by
key, and what the clipboard holds then is pasted into a shell.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pyspark.sql import SparkSession

from logagent.cli import run
from logagent.deletion.command.topics import RowFilter, choose, directory_id_of
from logagent.fleet.ingest.dates import ingest_dates
from logagent.fleet.job import Job, report
from logagent.fleet.tables.store import Store
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.files.properties import META_PROPERTIES, parse_meta_properties
from logagent.store.shared import init_store
from logagent.store.signing import load_private_key
from tests.browser import Open
from tests.daemon_process import DaemonProcess
from tests.host import ALL_DUE, NO_LIMITS, Host
from tests.page.markup import unpacked
from tests.publish_host import data_files
from tests.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
# `logagent` on the PATH of the host: configuration and state dir are where they are on every host, but for the root.
LOGAGENT = """#!{python}
from pathlib import Path
from logagent.base.config import config
from logagent.base.linux import state_dir
config.DEFAULT_CONFIG = Path({toml!r})
state_dir.DEFAULT_STATE_DIR = {state!r}
from logagent.cli import main
main()
"""


@dataclass
class Fleet:
    """A fleet of one host, its report, and the shell of an operator there who may sign orders."""

    host: Host
    report: Path
    daemon: DaemonProcess
    key: Path

    @property
    def page(self) -> Path:
        return self.report / "index.html"

    def listed(self) -> list[dict[str, Any]]:
        """Directories of the page."""
        return unpacked(self.page.read_text())["directories"].rows

    def rows(self, **wanted: str) -> list[dict[str, Any]]:
        """Those that have these values and are still on disk."""
        found = [row for row in self.listed() if all(row[key] == value for key, value in wanted.items())]
        return [row for row in found if os.path.lexists(f"{row['log_dir']}/{row['name']}")]

    def paste(self, text: str, *, status: int = 0) -> str:
        """What a shell prints for it on stdout."""
        path = f"{self.host.root / 'bin'}:{os.environ['PATH']}"
        known = {"PATH": path, "LANG": "C.UTF-8", "HOME": str(self.host.root), "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            ["bash", "-c", text],
            env=known,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, (text, done.stdout, done.stderr, self.daemon.text)
        return done.stdout


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("host")
    store, key = root / "store", root / "key"
    store.mkdir()
    init_store(str(store))
    assert run(["topics", "keygen", str(key), "--key-id", "ops"]) == 0
    host = Host.from_disk(root)
    orders = {"orders.accept": True, "orders.keys": [load_private_key(key).public()], "orders.interval": "1s"}
    host.with_assignments(**{**ALL_DUE, **NO_LIMITS, **orders, "publish.store": str(store)})
    (root / "bin").mkdir()
    shim = root / "bin" / "logagent"
    shim.write_text(LOGAGENT.format(python=sys.executable, toml=str(host.toml), state=str(host.state)))
    shim.chmod(0o755)
    with DaemonProcess(root, "--config", host.toml, "--state-dir", host.state) as daemon:
        # The snapshot and the assignments.
        wait_until(lambda: len(data_files(store)) == 2 or None, "what the daemon publishes")
        opened = Store.open(spark, str(store))
        ingest_dates(opened, None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOGAGENT_ORDERS_KEY_FILE", str(key))
            content = report(Job(opened, str(root / "reports"), datetime.now(UTC)))
        yield Fleet(host, root / "reports" / content["run_id"], daemon, key)


@pytest.fixture
def page(fleet: Fleet, open_page: Open) -> Page:
    page = open_page(fleet.page, viewport={"width": 1400, "height": 1000})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return page


def clipboard(page: Page) -> str:
    expect(page.locator(".commandbar")).to_contain_text("Copied")
    text = page.evaluate("navigator.clipboard.readText()")
    assert isinstance(text, str)
    return text


def test_the_ids_of_the_page_are_those_that_purge_computes(fleet: Fleet) -> None:
    shown = {(row["log_dir"], row["name"]): row["id"] for row in fleet.listed() if row["id"]}
    assert {row["list"] for row in fleet.listed() if row["id"]} == {"orphan", "leftover"}
    for table in ("orphans", "leftovers"):
        with (fleet.report / f"{table}.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if table == "orphans" or row["kind"] == "stray"]
        assert rows
        for row in rows:
            computed = directory_id_of({**row, "id": ""})
            assert shown[row["log_dir"], row["name"]] == row["id"] == computed, row


def test_the_page_says_what_the_agent_does_and_whose_requests_it_carries_out(fleet: Fleet, page: Page) -> None:
    (host,) = unpacked(fleet.page.read_text())["usage_hosts"].rows
    assert (host["mode"], host["accepts"]) == ("report", "ops")
    expect(page.locator("#next")).to_contain_text("1 of 1 host carry out requests, 0 do not (orders.accept)")


def test_what_purge_reads_of_a_report_is_what_lies_on_the_host(fleet: Fleet) -> None:
    """Log dir, directory id, name, inode, topic id, partition and end, from the disk to the request."""
    chosen = choose(fleet.report.parent, RowFilter())
    ((cluster_id, found),) = chosen.directories.items()
    assert {d.kind for d in found} == {"orphan", "stray"} and cluster_id in chosen.clusters
    for kind in ("orphan", "stray"):
        assert any(d.end_offset for d in found if d.kind == kind), found
    there = [(d, path) for d in found if (path := Path(d.log_dir, d.name)).exists()]
    assert there, "the other tests remove some of them"
    for d, path in there:
        meta = parse_meta_properties(Path(d.log_dir, META_PROPERTIES).read_bytes())
        assert (d.inode, d.directory_id) == (path.stat().st_ino, meta.directory_id) and d.directory_id
        fd = os.open(path, os.O_RDONLY)
        try:
            assert d.end_offset == read_log_extent(fd).log_end, d
        finally:
            os.close(fd)


def test_each_copied_command_does_what_stands_beside_it(fleet: Fleet, page: Page) -> None:
    """One after the other, as the last one removes what the first one plans."""
    for step in (
        the_fleets_command_plans_what_the_page_counts,
        picked_rows_are_set_aside_and_removed_on_the_host,
        the_hosts_command_removes_what_the_page_says_on_that_host,
    ):
        page.goto("about:blank")
        page.goto(fleet.page.as_uri())
        step(fleet, page)


def the_fleets_command_plans_what_the_page_counts(fleet: Fleet, page: Page) -> None:
    page.locator("#reclaim li", has=page.locator("[data-answer=now]")).get_by_role("button").click()
    # On the only host every stray is the last copy: the plan is shown, and says that it wants its approval.
    (plan,) = json.loads(fleet.paste(f"{clipboard(page)} --json", status=4))["plans"]
    expected = {(row["log_dir"], row["name"]) for row in fleet.rows(window="now") if row["id"]}
    planned = {(one["log_dir"], one["name"]) for one in plan["directories"]}
    assert plan["mode"] == "dry-run" and expected and planned == expected


def picked_rows_are_set_aside_and_removed_on_the_host(fleet: Fleet, page: Page) -> None:
    """Ask with the page's ids, one orphan and one stray; the daemon of the host obeys."""
    orphan = fleet.rows(list="orphan", standing="only copy", topic="returns")[0]
    stray = fleet.rows(window="now", kind="stray")[0]
    page.goto(f"{fleet.page.as_uri()}#directories")
    for row in (orphan, stray):
        page.get_by_label("Filter rows").fill(row["name"])
        expect(page.locator("#found")).to_contain_text("1 of ")
        page.locator("#view input[type=checkbox]").check()
    expect(page.locator(".picked")).to_contain_text("2 picked")
    page.get_by_role("button", name="Copy the command for them").click()
    command = clipboard(page)
    assert f"--id {orphan['id']},{stray['id']}" in command
    (plan,) = json.loads(fleet.paste(f"{command} --json", status=4))["plans"]
    assert {one["name"] for one in plan["directories"]} == {orphan["name"], stray["name"]}
    # Last copies want their approval.
    words = ",".join(dict.fromkeys(each["word"] for each in plan["approval"]["needed"]))
    pasted = fleet.paste(f"{command} --json --execute --approve {plan['plan_id']}:{words} --timeout 1m")
    (done,) = json.loads(pasted)["plans"]
    assert done["mode"] == "execute", done
    names = os.listdir(orphan["log_dir"])
    assert orphan["name"] not in names
    assert [name for name in names if name.startswith(f"{orphan['name']}.") and name.endswith("-stray")]
    assert not os.path.lexists(f"{stray['log_dir']}/{stray['name']}")


def the_hosts_command_removes_what_the_page_says_on_that_host(fleet: Fleet, page: Page) -> None:
    steps = page.locator(".steps > li").all_inner_texts()
    number = next(at for at, text in enumerate(steps, 1) if "now" in text and os.uname().nodename in text)
    page.keyboard.press(str(number))
    command = clipboard(page)
    expect(page.locator(".commandbar")).to_contain_text(f"run it on {os.uname().nodename}")
    due = {row["name"] for row in fleet.rows(window="now", kind="stray")}
    kept = {row["name"] for row in fleet.rows(list="orphan", kind="current")}
    planned = json.loads(fleet.paste(f"{command} --json"))
    assert planned["mode"] == "dry-run"
    assert due <= {one["name"] for one in planned["actions"]} and due
    # Those that want another copy, which nobody can show here, are on the page's list of approvals, as the host has it.
    refused = {one["name"] for one in planned["refusals"] if one["guard"] == "assigned" and "-stray" in one["name"]}
    assert refused == {row["name"] for row in fleet.rows(window="approval", kind="stray")} and refused
    # 3: what lives on other nodes stays, as no leader can be asked here.
    fleet.paste(f"{command} --execute", status=3)
    names = {name for log_dir in (fleet.host.d1, fleet.host.d2) for name in os.listdir(log_dir)}
    assert not due & names
    assert kept <= names, "orphans that were not seen often enough stay"
