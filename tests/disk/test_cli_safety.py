"""What the commands refuse, on real disks: each refusal names guard, fact and hint, and the disk stays as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli_host import ALL_DUE, FREELY, NO_LIMITS, CliHost, Ran

LOCKER = """
import fcntl, os, sys
files = [open(f"{d}/.lock", "a") for d in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""
READER = """
import sys
files = [open(path) for path in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> CliHost:
    return CliHost(tmp_path)


@pytest.fixture
def judged(tmp_path: Path) -> CliHost:
    """A host whose verdicts come from fresh assignments."""
    host = CliHost(tmp_path)
    host.with_assignments(**NO_LIMITS)
    return host


@contextmanager
def process(source: str, *arguments: str | Path) -> Iterator[int]:
    command = [sys.executable, "-c", source, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield running.pid
        finally:
            running.stdin.close()
            running.wait(20)


def delete(host: CliHost, *arguments: str, execute: bool = True) -> Ran:
    return host.run("delete", "--json", *arguments, *(("--execute",) if execute else ()))


# A dry run


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan",),
        ("queue",),
        ("cleanup",),
        ("delete", "--topic", ".*", *FREELY),
        ("delete", "--partition", "orders-1", "--quarantine", *FREELY),
        ("history",),
        ("prestart", "--dry-run"),
        ("check", "--quick"),
    ],
    ids=" ".join,
)
def test_without_execute_nothing_changes_anywhere(host: CliHost, arguments: tuple[str, ...]) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    before, settings = host.snapshot(), host.toml.read_bytes()
    assert host.run(*arguments).status == 0
    assert host.toml.read_bytes() == settings
    assert host.snapshot() == before
    assert not host.state.exists()


def test_a_dry_run_of_restore_changes_nothing_and_is_what_execute_does(host: CliHost) -> None:
    delete(host, "--topic", "clicks|plant.*", *FREELY)
    marked = host.find("", "-delete")
    before = host.snapshot()
    planned = host.run("restore", "--json", *host.find("clicks"))
    assert host.snapshot() == before
    done = host.run("restore", "--json", *host.find("clicks"), "--execute")
    assert planned.json["plan_id"] == done.json["plan_id"]
    assert [a["id"] for a in planned.json["actions"]] == [a["id"] for a in done.json["actions"]]
    assert len(host.find("", "-delete")) == len(marked) - 2


# What is selected


@pytest.mark.parametrize(
    ("regex", "topics"),
    [
        ("order", set()),
        ("orders", {"orders"}),
        ("order.", {"orders"}),
        ("x|orders", {"x", "orders"}),
        ("x, orders", {"x", "orders"}),
        ("x.*", {"x", "x-0"}),
        (r"eu\.west_payments-v2", {"eu.west_payments-v2"}),
        ("archive.*", {"archive-0.0123456789abcdef0123456789abcdef-delete"}),
        ("ORDERS", set()),
        (",", set()),
    ],
)
def test_topic_expressions_match_whole_names(host: CliHost, regex: str, topics: set[str]) -> None:
    ran = delete(host, "--topic", regex, *FREELY, execute=False)
    assert ran.status == 0
    assert {a["topic"] for a in ran.json["actions"]} == topics


def test_internal_topics_go_only_when_asked_for(host: CliHost) -> None:
    ran = delete(host, "--topic", ".*", *FREELY, execute=False)
    internal = {name: guard for name, guard in ran.guards().items() if name.startswith("__")}
    assert set(internal.values()) == {"policy"} and len(internal) == 5
    assert not any(a["topic"].startswith("__") for a in ran.json["actions"])
    assert "--include-internal" in ran.json["refusals"][0]["hint"]
    ran = delete(host, "--topic", "__consumer_offsets", "--include-internal", *FREELY, execute=False)
    assert len(ran.deeds) == 3 and not ran.json["refusals"]


def test_the_metadata_log_is_never_touched(tmp_path: Path) -> None:
    host = CliHost(tmp_path, "3.9.1/node2-killed")
    before = host.partitions()
    everything = ("--topic", ".*", "--include-internal", *FREELY)
    ran = delete(host, *everything, execute=False)
    assert not any(a["name"].startswith("__cluster_metadata") for a in ran.json["actions"])
    for arguments in (
        ("delete", "--partition", "__cluster_metadata-0", "--include-internal", *FREELY, "--execute"),
        ("restore", "__cluster_metadata-0", "--execute"),
    ):
        ran = host.run(*arguments)
        assert ran.status in (0, 2, 3) and "Traceback" not in ran.err
        assert host.partitions() == before


def test_delete_topic_enable_false_refuses_topics(host: CliHost) -> None:
    host.set_property("delete.topic.enable=false")
    before = host.partitions()
    ran = delete(host, "--topic", "orders", *FREELY)
    assert ran.status == 3 and set(ran.guards().values()) == {"policy"}
    assert all("delete.topic.enable=false" in r["fact"] for r in ran.json["refusals"])
    assert host.partitions() == before


def test_what_is_not_there_is_no_error_and_no_deed(host: CliHost) -> None:
    """`asyncDelete` of a log that is not there does nothing and raises nothing."""
    before = host.partitions()
    ran = delete(host, "--partition", "orders-77", *FREELY)
    assert ran.status == 0 and "orders-77: there is no such log here" in ran.err
    assert host.partitions() == before


def test_what_may_lie_in_an_offline_log_dir_is_an_error(host: CliHost) -> None:
    shutil.move(host.d2, host.disk / "elsewhere")
    ran = delete(host, "--partition", "orders-1", *FREELY)
    assert ran.status == 5
    assert "Failed to delete log for orders-1 because it may be in one of the offline directories" in ran.err
    ran = delete(host, "--partition", "orders-3", *FREELY)
    assert ran.status == 5 and ran.outcomes() == {"orders-3": "done"}


# Guards


def test_nothing_goes_without_proof_or_the_operators_word(judged: CliHost) -> None:
    before = judged.partitions()
    ran = delete(judged, "--partition", "orders-1")
    assert ran.status == 3 and ran.guards() == {"orders-1": "assigned"}
    assert ran.json["refusals"][0]["fact"] == "its verdict is assigned"
    assert "--allow-assigned" in ran.json["refusals"][0]["hint"]
    assert judged.partitions() == before
    ran = delete(judged, "--partition", "orders-1", "--allow-assigned")
    assert ran.status == 0 and ran.outcomes() == {"orders-1": "done"}
    ran = delete(judged, "--partition", "returns-2")
    assert ran.status == 0 and ran.outcomes() == {"returns-2": "done"}


def test_the_last_copy_needs_a_word_of_its_own(host: CliHost) -> None:
    ran = delete(host, "--partition", "orders-1", "--allow-assigned")
    assert ran.status == 3 and ran.guards() == {"orders-1": "assigned"}
    assert "--even-last-copy" in ran.json["refusals"][0]["hint"]


def test_while_a_broker_holds_the_log_dirs_every_deed_is_refused(host: CliHost) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    delete(host, "--partition", "clicks-0", *FREELY)
    (marked,) = host.find("clicks-0.", "-delete")
    host.run("delete", "--partition", "x-0", "--quarantine", *FREELY, "--execute")
    with process(LOCKER, host.d1, host.d2) as pid:
        before = host.partitions()
        checkpoints = host.checkpoints()
        for ran in (
            delete(host, "--topic", "orders|visits", *FREELY),
            host.run("restore", "--json", marked, "--execute"),
            host.run("cleanup", "--json", "--execute"),
        ):
            assert ran.status == 3 and not ran.json["actions"]
            assert set(ran.guards().values()) == {"window"}
            assert all(str(pid) in r["fact"] for r in ran.json["refusals"])
        assert host.partitions() == before and host.checkpoints() == checkpoints
        scan = host.run("scan", "--json")
        assert {(d["holder"]["state"], d["holder"]["pid"]) for d in scan.json["log_dirs"]} == {("starting", pid)}
    assert host.run("restore", "--json", marked, "--execute").status == 0
    assert (host.d1 / ".lock").exists(), "whose lock it was is not for us to tidy up"


def test_a_process_without_the_lock_that_has_files_open_stops_it_too(host: CliHost) -> None:
    (log,) = (host.d2 / "orders-1").glob("*.log")
    with process(READER, log) as pid:
        before = host.partitions()
        ran = delete(host, "--partition", "orders-1", *FREELY)
        assert ran.status == 3 and ran.guards() == {"orders-1": "lock"}
        assert str(pid) in ran.json["refusals"][0]["fact"]
        assert host.partitions() == before
    assert delete(host, "--partition", "orders-1", *FREELY).outcomes() == {"orders-1": "done"}


def test_log_dirs_of_two_nodes_are_not_told_apart_by_guessing(host: CliHost) -> None:
    meta = host.d2 / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=3", "node.id=4"))
    before = host.partitions()
    ran = delete(host, "--topic", "orders", *FREELY)
    assert ran.status == 3 and "cluster" in set(ran.guards().values())
    assert not any(a["log_dir"] == str(host.d2) for a in ran.json["actions"])
    changed = {path for path in host.partitions().keys() ^ before.keys() if path.startswith("d2/")}
    assert not changed


def test_an_unformatted_log_dir_is_listed_and_left_alone(host: CliHost) -> None:
    (host.d2 / "meta.properties").unlink()
    ran = delete(host, "--topic", "orders", *FREELY)
    assert ran.guards() == {"orders-1": "online", "orders-2": "online"}
    assert {d["path"]: d["health"] for d in host.run("scan", "--json").json["log_dirs"]} == {
        str(host.d1): "online",
        str(host.d2): "unformatted",
    }


@pytest.mark.parametrize("version", [None, "2.8.2", "3.6.0"])
def test_brokers_that_do_not_know_strays_get_none(host: CliHost, version: str | None) -> None:
    host.configure(**NO_LIMITS, **({} if version is None else {"kafka.version": version}))
    if version is None:
        lines = host.toml.read_text().splitlines()
        host.toml.write_text("\n".join(line for line in lines if not line.startswith("version")))
    before = host.partitions()
    ran = delete(host, "--partition", "orders-1", "--quarantine", *FREELY)
    assert ran.status == 3 and ran.guards() == {"orders-1": "version"}
    assert "cleanup.quarantine_dirs" in ran.json["refusals"][0]["hint"]
    assert host.partitions() == before


def test_without_a_journal_nothing_is_done(host: CliHost) -> None:
    host.state.write_text("in the way")
    before = host.partitions()
    ran = delete(host, "--partition", "orders-1", *FREELY)
    assert ran.status == 1 and "state dir" in ran.err and "hint:" in ran.err
    host.state.unlink()
    host.state.mkdir()
    (host.state / "journal.db").write_bytes(b"no database at all" * 100)
    ran = delete(host, "--partition", "orders-1", *FREELY)
    assert ran.status == 1 and "journal.db" in ran.err
    dry = delete(host, "--partition", "orders-1", *FREELY, execute=False)
    assert dry.guards() == {"orders-1": "journal"}
    assert host.partitions() == before


def test_two_never_act_at_once(host: CliHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits ten seconds; its clock runs fast here."""
    import logagent.cli.host
    from logagent.agent.clock import SystemClock

    class Hasty(SystemClock):
        ahead = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead

        def sleep(self, seconds: float) -> None:
            self.ahead += seconds

    host.state.mkdir()
    holder = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
    holder += "f.write('4711 cli:somebody'); f.flush(); print('ready', flush=True); sys.stdin.read()"
    monkeypatch.setattr(logagent.cli.host, "SystemClock", Hasty)
    with process(holder, host.state / "executor.lock"):
        before = host.partitions()
        ran = delete(host, "--partition", "orders-1", *FREELY)
        assert ran.status == 1 and "cli:somebody (process 4711)" in ran.err
        assert host.partitions() == before
        assert delete(host, "--partition", "orders-1", *FREELY, execute=False).status == 0
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0


# The blast radius, and what approval allows


def test_too_much_at_once_needs_approval_of_exactly_that(host: CliHost) -> None:
    host.configure()
    arguments = ("delete", "--json", "--topic", "orders|visits|clicks", *FREELY)
    before = host.partitions()
    plan = host.run(*arguments)
    assert plan.status == 4 and plan.guards() == {"": "blast-radius"}
    assert plan.json["plan_id"] in plan.json["refusals"][0]["hint"]
    assert host.run(*arguments, "--execute").status == 4
    assert host.run(*arguments, "--execute", "--approve", "0123456789abcdef").status == 4
    assert host.partitions() == before
    approved = host.run(*arguments, "--execute", "--approve", plan.json["plan_id"])
    assert approved.status == 0 and set(approved.outcomes().values()) == {"done"}
    assert len(approved.deeds) == 10
    # An approved item stays approved through its later steps.
    host.configure(**{"delete.file_delete_delay_ms": 0})
    cleanup = host.run("cleanup", "--json", "--execute")
    assert cleanup.status == 0 and len(cleanup.deeds) == 10


def test_approval_ends_when_a_directory_in_the_plan_is_another_one(host: CliHost) -> None:
    host.configure()
    arguments = ("delete", "--json", "--topic", "orders|visits|clicks", *FREELY)
    plan_id = host.run(*arguments).json["plan_id"]
    other = shutil.copytree(host.d2 / "orders-1", host.disk / "copy")
    shutil.rmtree(host.d2 / "orders-1")
    other.rename(host.d2 / "orders-1")
    before = host.partitions()
    ran = host.run(*arguments, "--execute", "--approve", plan_id)
    assert ran.status == 4 and "cannot be carried out any more" in ran.json["refusals"][-1]["fact"]
    assert host.partitions() == before


def test_one_directory_after_the_other_trips_it_too(host: CliHost) -> None:
    host.configure()
    statuses = [delete(host, "--partition", p, *FREELY).status for p in ("orders-1", "orders-2", "orders-3", "x-0")]
    assert statuses == [0, 0, 0, 0]
    assert delete(host, "--partition", "x-1", *FREELY).status == 4


# Undo


def test_what_delete_takes_restore_brings_back(host: CliHost) -> None:
    before, checkpoints = host.partitions(), host.checkpoints()
    marked = delete(host, "--topic", "orders|clicks|customer.state|plant.*", *FREELY)
    assert marked.status == 0 and set(marked.outcomes().values()) == {"done"}
    gone = host.checkpoints()
    for file in ("d1/log-start-offset-checkpoint", "d2/log-start-offset-checkpoint", "d1/cleaner-offset-checkpoint"):
        assert checkpoints[file] and not gone[file], file
    names = [p.name for d in (host.d1, host.d2) for p in d.iterdir()]
    assert max(len(name.encode()) for name in names) == 255
    back = host.run("restore", "--json", "--plan", marked.json["plan_id"], "--execute")
    assert back.status == 0 and set(back.outcomes().values()) == {"done"}
    assert host.partitions() == before
    assert host.checkpoints() == checkpoints


def test_a_removal_that_has_begun_cannot_be_undone(host: CliHost) -> None:
    host.configure(**NO_LIMITS, **{"delete.file_delete_delay_ms": 0, "delete.bytes_per_second": "1KiB"})
    delete(host, "--partition", "shipments-0", *FREELY)
    (name,) = host.find("shipments-0.", "-delete")
    files = len(list((host.d1 / name).iterdir()))
    command = [sys.executable, "-m", "logagent", *host.arguments("cleanup", "--json", "--execute")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 30
        while len(list((host.d1 / name).iterdir())) == files and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGTERM)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 3, err
    assert [a["outcome"] for a in json.loads(out)["actions"] if a["name"] == name] == ["yielded"]
    left = len(list((host.d1 / name).iterdir()))
    assert 0 < left < files
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and refused.guards() == {name: "journal"}
    assert "removal has begun" in refused.json["refusals"][0]["fact"]
    host.configure(**NO_LIMITS, **{"delete.file_delete_delay_ms": 0})
    assert host.run("cleanup", "--json", "--execute").outcomes()[name] == "done"
    assert not (host.d1 / name).exists()
    gone = host.run("restore", name, "--execute")
    assert gone.status == 2 and f"no directory {name}" in gone.err


def test_what_stands_in_the_way_is_set_aside_only_on_request(host: CliHost) -> None:
    delete(host, "--partition", "orders-1", *FREELY)
    (name,) = host.find("orders-1.", "-delete")
    # What a broker does with an assigned partition that it does not find: it makes it again, empty.
    again = host.d2 / "orders-1"
    again.mkdir()
    shutil.copy(host.d2 / name / "partition.metadata", again)
    (again / "00000000000000000000.log").touch()
    before = host.partitions()
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.status == 3 and refused.guards() == {name: "policy"}
    assert "--replace" in refused.json["refusals"][0]["hint"]
    assert host.partitions() == before
    done = host.run("restore", "--json", name, "--replace", "--execute")
    assert done.status == 0 and done.outcomes() == {"orders-1": "done", name: "done"}
    assert (host.d2 / "orders-1" / "00000000000000000000.log").stat().st_size > 0
    (aside,) = host.find("orders-1.", "-stray")
    assert (host.d2 / aside / "00000000000000000000.log").stat().st_size == 0


def test_a_name_that_the_broker_cut_needs_the_topic(host: CliHost) -> None:
    cut = next(n for n in host.find("plant.", "-delete"))
    refused = host.run("restore", "--json", cut)
    assert refused.guards() == {cut: "policy"} and "--topic-name" in refused.json["refusals"][0]["hint"]
    shown = cut.rpartition("-0.")[0] or cut.rpartition("-1.")[0]
    wrong = host.run("restore", "--json", cut, "--topic-name", "other")
    assert wrong.guards() == {cut: "policy"}
    full = f"{shown}.taken-down"
    done = host.run("restore", "--json", cut, "--topic-name", full, "--execute")
    assert done.outcomes() == {cut: "done"} and host.find(full)


@pytest.mark.parametrize("kind", ["current", "missing"])
def test_only_marked_directories_that_exist_are_restored(host: CliHost, kind: str) -> None:
    name = "orders-1" if kind == "current" else "orders-1.0123456789abcdef0123456789abcdef-delete"
    ran = host.run("restore", "--json", name, "--execute")
    if kind == "current":
        assert ran.status == 3 and ran.guards() == {name: "policy"}
    else:
        assert ran.status == 2 and "hint:" in ran.err
