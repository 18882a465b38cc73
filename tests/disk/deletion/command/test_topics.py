"""The `topics` commands on a real store, with a fleet report beside it and agents that answer."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.base.config.config import Loaded
from logagent.base.config.settings import Settings
from logagent.base.console.options import Call
from logagent.base.errors import ServiceUnreachable
from logagent.cli import run
from logagent.deletion.command.requesting import Admin, StoreAndCluster, earlier_requests
from logagent.deletion.command.topics import directory_id_of
from logagent.deletion.store.answers import DirectoryAnswer
from logagent.deletion.store.requests import Filed, RequestFolder
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey, load_private_key, public_key
from logagent.store.tree import StoreTree
from tests.disk.deletion.controller.small_fleet import CLUSTER, NODES, TOPIC_ID, SmallFleet
from tests.documents import assert_promised
from tests.needs import need_root
from tests.terminal import plain

ORPHAN = ["cluster_id", "node_id", "host", "log_dir", "name", "topic", "topic_id", "partition", "reason", "allocated",
          "window", "inode", "directory_id", "end_offset"]  # fmt: skip
ROW = (CLUSTER, "2", "kafka-2", "/d1", "clicks-0", "clicks", TOPIC_ID, "0", "", "5", "restart", "7", "", "9")


class Commands:
    """Runs `logagent topics …` for one store and key."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.store, self.key = path / "store", path / "key"
        self.store.mkdir()
        init_store(str(self.store))
        self.fleet = SmallFleet(self.store)
        self.report = path / "report"
        self.report.mkdir()
        (self.report / "report.json").write_text("{}")
        self.run("keygen", str(self.key), "--key-id", "ops", place=False)

    def run(self, command: str, *words: str, place: bool = True, status: int = 0, more: Sequence[str] = ()) -> str:
        where = ["--store", str(self.store), "--cluster", CLUSTER, "--key", str(self.key)] if place else [*more]
        code = run([*("topics", command, *words, *where), "--state-dir", str(self.store)])
        said = self.capsys.readouterr()
        assert code == status, said.out + said.err
        self.said = said.err
        return said.out

    def json(self, command: str, *words: str, status: int = 0) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.run(command, *words, "--json", status=status))
        assert_promised(read, {"status": "topics", "purge": "topics-plans"}.get(command, "topics-plan"))
        return read

    def write_report(self, nodes: tuple[int, ...]) -> None:
        rows = [[CLUSTER, n, f"kafka-{n}", "/d1", "clicks-0", "clicks", TOPIC_ID, 0, "not-a-replica", 100,
                 "now" if n == 3 else "restart", 11, "", 5]
                for n in nodes]  # fmt: skip
        for name, head, body in (
            ("orphans", ORPHAN, rows),
            ("leftovers", [*ORPHAN, "kind"], []),
            ("usage_hosts", ["cluster_id", "node_id", "dirs"], [[CLUSTER, n, 500] for n in (1, 2, 3)]),
        ):
            with (self.report / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([head, *body])

    def decided(self, number: str) -> None:
        """The process that asked takes it as far as the decision to delete, and ends."""
        self.fleet.admin.says = "TIMEOUT"
        process = self.fleet.process(key=load_private_key(self.key))
        process.round()
        process.stop()
        self.fleet.minute()

    def purge(self, *words: str, status: int = 0) -> dict[str, Any]:
        """The plan of the only cluster; without directories if nothing was selected."""
        plans = self.json("purge", "--report", str(self.report), *words, status=status)["plans"]
        return dict(plans[0]) if plans else {"directories": []}

    def requests(self) -> dict[str, Filed]:
        keys = (public_key(load_private_key(self.key).public()),)
        return RequestFolder(self.fleet.control, keys).read()


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Three hosts with a copy each. No broker runs here: the fleet's cluster answers."""
    commands = Commands(tmp_path, capsys)
    cluster = commands.fleet.admin
    for name in ("in_sync", "topics_now", "delete_topics", "unknown_ids", "reassigning"):
        monkeypatch.setattr(Admin, name, lambda _, topics, name=name: getattr(cluster, name)(topics))
    for name in ("live_brokers", "clock"):
        monkeypatch.setattr(Admin, name, lambda _, name=name: getattr(cluster, name)())
    monkeypatch.setattr(Admin, "logs", lambda _, node, names: cluster.logs(node, names))
    commands.fleet.keys = (public_key(load_private_key(commands.key).public()),)
    for node in NODES:
        commands.fleet.disks[node].add((TOPIC_ID, 0))
        commands.fleet.publish(node)
    return commands


def test_a_dry_run_writes_nothing(commands: Commands) -> None:
    commands.write_report((1,))
    plan = commands.purge()
    assert plan["mode"] == "dry-run" and [d["node_id"] for d in plan["directories"]] == [1]
    assert not (commands.store / "control").exists()


def test_timeout_0_asks_and_answers_at_once(commands: Commands) -> None:
    commands.write_report((1,))
    plan = commands.purge("--execute", "--timeout", "0")
    said = commands.said
    assert plan["request_id"] in commands.requests()
    status = commands.json("status")
    assert [r["state"] for r in status["requests"]] == ["open"]
    assert status["requests"][0]["topics"][0]["states"] == {"ReplicaDeletionIneligible": 1}
    assert "requested, not done" in said and status["requests"][0]["topics"][0]["missing"][0]["hint"]


def test_only_copies_want_exactly_their_approval(commands: Commands) -> None:
    """By its word, for exactly that list: neither a number nor another word stands for it."""
    commands.write_report((1, 2, 3))
    refused = commands.purge("--execute", status=4)
    assert [n["word"] for n in refused["approval"]["needed"]] == ["only-copy"] and commands.requests() == {}
    commands.write_report((1, 2))
    other = commands.purge()
    commands.write_report((1, 2, 3))
    wrong = ["0" * 24, "3", refused["plan_id"], f"{other['plan_id']}:only-copy", f"{refused['plan_id']}:limit"]
    for approval in wrong:
        commands.purge("--execute", "--approve", approval, status=4)
    assert commands.requests() == {}
    approval = f"{refused['plan_id']}:only-copy"
    done = commands.purge("--execute", "--approve", approval, "--timeout", "0")
    request = commands.requests()[done["request_id"]].request
    assert request is not None and request.approvals == ("only-copy",)
    assert [d for d in request.directories if not (d.only_copy and (d.inode, d.end_offset) == (11, 5))] == []


def test_a_report_without_identities_asks_for_nothing(commands: Commands) -> None:
    commands.write_report((1,))
    path = commands.report / "orphans.csv"
    path.write_text(path.read_text().replace(",11,,5", ",,,"))
    plan = commands.purge("--execute", status=3)
    assert plan["directories"] == [] and "inode" in plan["dropped"][0]["why"] and commands.requests() == {}


def test_a_window_is_the_reports_figure(commands: Commands) -> None:
    commands.write_report((2, 3))
    assert [d["node_id"] for d in commands.purge("--window", "now")["directories"]] == [3]
    assert [d["node_id"] for d in commands.purge("--window", "restart")["directories"]] == [2]


def test_several_clusters_are_one_command_and_a_plan_each(commands: Commands) -> None:
    commands.write_report((1,))
    with (commands.report / "orphans.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["another", *ROW[1:]])
    shown = commands.run("purge", "--report", str(commands.report), "--json", place=False, status=4,
                         more=["--store", str(commands.store), "--key", str(commands.key)])  # fmt: skip
    plans = json.loads(shown)["plans"]
    assert [(p["cluster_id"], len(p["directories"])) for p in plans] == [(CLUSTER, 1), ("another", 1)]


def test_what_was_done_before_an_error_is_said(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document, too, with the cluster that was asked before."""
    commands.write_report((1,))
    with (commands.report / "orphans.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["not/plain", *ROW[1:]])
    shown = commands.run("purge", "--report", str(commands.report), "--json", place=False, status=78,
                         more=["--store", str(commands.store), "--key", str(commands.key)])  # fmt: skip
    assert [p["cluster_id"] for p in json.loads(shown)["plans"]] == [CLUSTER]


@pytest.mark.parametrize(("given", "asked"), [
    ((), None),
    (("a:9092",), "a:9092"),
    (("other=a:9092",), None),
    (("other=a:9092", "it=b:9092,c:9092"), "b:9092,c:9092"),
    (("it=b:9092", "a:9092"), "b:9092"),
    (("other=b:9092", "a:9092"), "a:9092"),
])  # fmt: skip
def test_each_cluster_is_asked_where_it_is(given: tuple[str, ...], asked: str | None) -> None:
    known = Loaded(Settings(), None, ())
    call = Call(None, None, (), None, None, json=False, verbose=False, color=False, loaded_settings=known)
    assert StoreAndCluster(call, None, "it", given, None).servers() == asked


@pytest.mark.parametrize(("words", "nodes"), [
    (["--host", "kafka-2"], [2]), (["--host", "3"], [3]), (["--topic", "cl.*"], [1, 2]), (["--topic", "click"], []),
    (["--reason", "topic-absent"], []), (["--larger", "100"], [1, 2]), (["--larger", "101"], []),
    (["--kind", "stray"], []), (["--kind", "orphan"], [1, 2]),
])  # fmt: skip
def test_rows_are_chosen_by_every_option(commands: Commands, words: list[str], nodes: list[int]) -> None:
    commands.write_report((1, 2) if words[1] not in ("kafka-2", "3") else (2, 3))
    assert [d["node_id"] for d in commands.purge(*words)["directories"]] == nodes


def test_without_the_clusters_word_every_directory_is_an_only_copy(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other hosts show does not say that their brokers are live: the operator is asked, and told what helps."""
    monkeypatch.undo()
    commands.write_report((1,))
    plan = commands.purge("--execute", status=4)
    assert plan["directories"][0]["only_copy"] and commands.requests() == {}
    assert "the cluster's address is not known" in commands.said and "--bootstrap-server" in commands.said


def test_a_request_lists_who_writes_for_each_node(commands: Commands) -> None:
    """The owner of its answers and of its newest snapshot, also from before it was down; a node for which two users
    write has none."""
    need_root()
    for node in (1, 2, 3):
        commands.fleet.agent(node)
    shutil.rmtree(commands.store / "answers" / CLUSTER / "1")
    shutil.rmtree(commands.store / "landing" / CLUSTER, ignore_errors=True)
    for node in (2, 3):
        commands.fleet.publish(node)
    commands.fleet.now -= timedelta(days=9)
    commands.fleet.publish(1)
    os.chown(commands.store / "answers" / CLUSTER / "3", 4003, -1)
    commands.write_report((1, 2))
    request = commands.purge("--execute", "--timeout", "0")["request_id"]
    asked = commands.requests()[request].request
    assert asked is not None and asked.owners is not None
    assert {o.node_id: o.uid for o in asked.owners} == {1: 0, 2: 0}


def test_a_cancelled_request_is_over(commands: Commands) -> None:
    commands.write_report((1, 2))
    request = commands.purge("--execute", "--timeout", "0")["request_id"]
    commands.fleet.agent(1, mine=[DirectoryAnswer("/d1", "clicks-0", "done", "quarantined", bytes=100)])
    commands.fleet.agent(2, mine=[DirectoryAnswer("/d1", "clicks-0", "done", "removed", bytes=100)])
    commands.run("cancel", request[:12])
    assert "on nodes 1 `logagent restore` gives back" in commands.said
    assert "on nodes 2 directories were removed and cannot be restored" in commands.said
    assert [r["state"] for r in commands.json("status")["requests"]] == ["cancelled"]
    commands.run("cancel", request, status=2)
    commands.run("cancel", "0" * 64, status=2)


def test_what_nobody_may_decide_any_more_can_be_asked_for_again(commands: Commands) -> None:
    """`topics status` says so, and the plan left the topic out: "already queued"."""
    fleet = commands.fleet
    number = fleet.request(topics=(fleet.topic(),), key=load_private_key(commands.key))
    asker = fleet.process(key=None)
    assert [r.topics[0].topic_id for r in earlier_requests(asker).open] == [TOPIC_ID], "it may be decided yet"
    fleet.now += timedelta(seconds=61)
    assert not earlier_requests(asker).open
    assert "ask again" in fleet.state(number).next


def test_it_is_too_late_to_cancel_what_is_decided(commands: Commands) -> None:
    number = commands.fleet.request(topics=(commands.fleet.topic(),), key=load_private_key(commands.key))
    commands.decided(number)
    commands.run("cancel", number)
    assert "too late for the topics" in commands.said
    assert [r["state"] for r in commands.json("status")["requests"]] == ["cancelled"]


def test_a_log_dir_does_not_narrow_a_request(commands: Commands) -> None:
    """It was ignored: every log dir of every host was meant."""
    commands.write_report((1,))
    commands.run("purge", "--report", str(commands.report), "--log-dir", "/d1", "--execute", status=2)
    assert "--host" in commands.said and commands.requests() == {}
    for command in (["delete", "--topic", "clicks"], ["status"], ["run", "--once"], ["cancel", "x"]):
        commands.run(command[0], *command[1:], "--log-dir", "/d1", status=2)
        assert "--log-dir does not narrow" in commands.said


def test_no_key_or_signature_is_ever_printed(commands: Commands) -> None:
    commands.write_report((1,))
    secret = commands.key.read_text().strip().partition(":")[2]
    shown = ""
    for words in (["purge", "--report", str(commands.report), "--execute", "--timeout", "0", "-v"], ["status", "-v"]):
        shown += commands.run(words[0], *words[1:]) + commands.said
    commands.key.chmod(0o644)
    commands.run("status", status=78)
    assert secret not in shown + commands.said and "signature" not in shown


def test_what_is_wrong_with_store_or_report_is_reported(commands: Commands, tmp_path: Path) -> None:
    commands.run("purge", "--report", str(tmp_path / "nothing"), status=2)
    commands.write_report((1,))
    (commands.report / "orphans.csv").unlink()
    commands.run("purge", "--report", str(commands.report), status=1)
    commands.store = tmp_path / "empty"
    commands.store.mkdir()
    commands.run("status", status=69)


def test_what_hosts_say_is_shown_harmlessly(commands: Commands) -> None:
    """Facts, hints, host names and names of directories are whatever a host writes: no terminal obeys them."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202e<script>$(reboot)`reboot`\r\n-rw"
    fleet = commands.fleet
    commands.write_report((1, 2))
    request = commands.purge("--execute", "--timeout", "0")["request_id"]
    for node in (2, 3):
        fleet.publish(node, host=evil)
    refused = DirectoryAnswer("/d1", "clicks-0", "refused", claim=evil, fact=evil, hint=evil)
    fleet.agent(1, host=evil, mine=[refused])
    assert request in commands.requests()
    commands.run("run", "--once", status=3)
    shown = commands.run("status") + commands.said + commands.run("status", "-v") + commands.said
    assert "owned" in shown, "it is shown, though"
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(shown)
    assert "-rw" not in [line.strip() for line in shown.splitlines()]


def test_a_request_of_any_size_is_in_parts(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "logagent.deletion.store.requests.PART_BYTES", 1 << 20
    )  # a tenth, of a tenth of the directories
    commands.write_report(())
    names = [f"{'clicks' * 40}-{n}" for n in range(3_000)]
    rows = [[CLUSTER, 1, "kafka-1", "/d1", name, "clicks" * 40, TOPIC_ID, n, "not-a-replica", 1, "now", n, "", ""]
            for n, name in enumerate(names)]  # fmt: skip
    with (commands.report / "orphans.csv").open("a", newline="") as file:
        csv.writer(file).writerows(rows)
    plan = commands.purge(status=4)
    words = ",".join(dict.fromkeys(n["word"] for n in plan["approval"]["needed"]))
    done = commands.purge("--execute", "--approve", f"{plan['plan_id']}:{words}", "--timeout", "0")
    request = commands.requests()[done["request_id"]].request
    assert words == "only-copy,limit" and request is not None and len(request.directories) == 3_000
    assert list(commands.fleet.place(done["request_id"]).glob("request-*.json")), "its parts"


def test_a_disabled_deletion_fails_the_command_and_is_final(commands: Commands) -> None:
    fleet = commands.fleet
    number = fleet.request(topics=(fleet.topic(),), key=load_private_key(commands.key))
    commands.decided(number)
    fleet.admin.enabled = False
    commands.run("run", "--once", status=1)
    assert f"request {number} is disabled: TOPIC_DELETION_DISABLED" in commands.said
    assert "enable deletion, then request it again" in commands.said
    fleet.admin.enabled = True
    commands.run("run", "--once")
    assert fleet.admin.sent == [TOPIC_ID] * 2, "for the decision, and by the run that was told so"
    (request,) = commands.json("status")["requests"]
    assert request["state"] == "disabled" and "TOPIC_DELETION_DISABLED" in commands.run("status")
    commands.run("cancel", number, status=2)
    assert "is disabled already" in commands.said


def test_status_says_who_carries_it_out_or_that_nobody_does(commands: Commands) -> None:
    number = commands.fleet.request(topics=(commands.fleet.topic(),), key=load_private_key(commands.key))
    commands.run("status")
    assert f"`logagent topics cancel {number}` stops it" in commands.said
    commands.decided(number)
    commands.run("status")
    assert "nothing is carrying this out: run `logagent topics run`" in commands.said
    process = commands.fleet.process("shell-9", load_private_key(commands.key))
    process.round()
    (request,) = commands.json("status")["requests"]
    assert (request["request_id"], request["carried_out_by"]) == (number, "ops on shell-9")


def test_what_no_key_signed_is_on_hold_and_named(commands: Commands) -> None:
    commands.fleet.request(topics=(commands.fleet.topic(),), key=PrivateKey("stranger", b"\x09" * 32))
    (request,) = commands.json("status")["requests"]
    assert request["state"] == "on-hold" and "stranger" in request["why"]


def test_what_a_request_is_about_is_not_said_where_no_trusted_key_signed_it(commands: Commands) -> None:
    commands.write_report((1,))
    commands.purge("--execute", "--timeout", "0")
    assert commands.json("status")["requests"][0]["kind"] == "directories"
    commands.key = commands.key.with_name("another")
    commands.run("keygen", str(commands.key), "--key-id", "another", place=False)
    assert commands.json("status")["requests"][0]["kind"] == "unknown"
    assert " unknown " in commands.run("status") and " topics " not in commands.run("status")


def test_status_has_one_form_of_times(commands: Commands) -> None:
    commands.write_report((1, 2))
    commands.purge("--execute", "--timeout", "0")
    waits = DirectoryAnswer("/d1", "clicks-0", "waits", fact="it waits", next_try_at="2099-01-02T03:04:05.678Z")
    (number,) = commands.requests()
    commands.fleet.agent(1, mine=[waits])
    commands.fleet.minute()
    shown = commands.run("status")
    assert number[:12] in shown and "2099-01-02 03:04:05Z" in " ".join(shown.split())
    assert re.search(r"\d{4}-\d\d-\d\dT\d", shown) is None, shown


CANNOT_BE = {
    "topic": {"topic": "a b"}, "long log dir": {"log_dir": "/" + "a" * 5000}, "name": {"name": "../x-0"},
    "NUL": {"name": "t\0-0"}, "not UTF-8": {"name": "t\udcff-0"}, "log dir not UTF-8": {"log_dir": "/d\udcff"},
    "node": {"node_id": "-1"}, "node of a kind": {"node_id": "one"}, "node beyond": {"node_id": "99999999999"},
    "partition": {"partition": "-1"}, "half a partition": {"partition": "1.5"}, "bytes": {"allocated": "9" * 30},
    "partition beyond": {"partition": "9" * 30},
}  # fmt: skip


@pytest.mark.parametrize("field", CANNOT_BE)
def test_a_row_that_cannot_be_requested_is_named_and_stops_no_other(commands: Commands, field: str) -> None:
    """A host's agent names its directories to the report as it likes."""
    commands.write_report((1,))
    good = dict(zip(ORPHAN, ROW, strict=True))
    bad = good | CANNOT_BE[field]
    with (commands.report / "orphans.csv").open("a", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file).writerow([bad[name] for name in ORPHAN])
    words = ("purge", "--report", str(commands.report), "--execute", "--timeout", "0", "--json")
    shown = commands.run(*words, status=3)  # with surrogates, which no reader of the schema takes
    (plan,) = json.loads(shown)["plans"]
    assert [d["node_id"] for d in plan["directories"]] == [1]
    (left_out,) = plan["dropped"]
    assert left_out["what"] == f"{bad['log_dir']}/{bad['name']} of node {bad['node_id']}"
    assert "the report's row cannot be used" in left_out["why"] and "the report's row cannot be used" in commands.said
    request = commands.requests()[plan["request_id"]].request
    assert request is not None and [d.node_id for d in request.directories] == [1]


@pytest.mark.parametrize("ids", [[""], [","], ["{id},"], ["{id}", ""], ["{id},nosuch"], ["nosuch"], ["{id} {id}"]])
def test_ids_select_exactly_the_rows_that_have_them_or_nothing(commands: Commands, ids: list[str]) -> None:
    """A command for rows of which one has no id plans nothing, not everything."""
    commands.write_report((1, 2, 3))
    row = {"cluster_id": CLUSTER, "node_id": "1", "log_dir": "/d1", "name": "clicks-0", "topic_id": TOPIC_ID}
    known = directory_id_of(row)
    assert [d["node_id"] for d in commands.purge("--id", known)["directories"]] == [1]
    words = [word for text in ids for word in ("--id", text.format(id=known))]
    commands.run("purge", "--report", str(commands.report), *words, "--execute", status=2)
    assert "hint:" in commands.said and commands.requests() == {}


def test_a_row_that_another_option_excludes_is_left_out(commands: Commands) -> None:
    commands.write_report((1, 2))
    row = {"cluster_id": CLUSTER, "node_id": "1", "log_dir": "/d1", "name": "clicks-0", "topic_id": TOPIC_ID}
    ids = [directory_id_of(row | {"node_id": node}) for node in ("1", "2")]
    plan = commands.purge("--id", ",".join(ids), "--host", "2")
    assert [d["node_id"] for d in plan["directories"]] == [2]
    assert f"--id {ids[0]} is left out" in commands.said


def test_a_pattern_that_matches_an_empty_name_takes_no_row_without_a_topic(commands: Commands) -> None:
    commands.write_report((1,))
    path = commands.report / "orphans.csv"
    path.write_text(path.read_text().replace(",clicks,", ",,"))
    assert commands.purge("--topic", "nothing,")["directories"] == []


def test_ids_that_no_row_has_are_named(commands: Commands) -> None:
    commands.write_report((1,))
    commands.run("purge", "--report", str(commands.report), "--id", "nosuch", status=2)
    assert "--id nosuch: the report has no such row" in commands.said


@pytest.mark.parametrize("trusted", ["another", "retired", "another cluster", "another key of its name"])
def test_what_agents_would_ignore_is_not_signed(
    commands: Commands, trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation that nobody believes would be the worst: it says that the deletion is off."""
    commands.write_report((1,))
    request = commands.purge("--execute", "--timeout", "0")["request_id"]
    ours, other = load_private_key(commands.key).public(), PrivateKey("other", b"\x07" * 32).public()
    theirs = {"another": other, "retired": f"{ours}:retired", "another cluster": f"{ours}@another"}
    monkeypatch.setenv("LOGAGENT_ORDERS__KEYS", theirs.get(trusted, f"ops:{other.partition(':')[2]}"))
    commands.run("cancel", request, status=78)
    assert "ignore what key ops signs" in commands.said and "--key" in commands.said
    commands.run("purge", "--report", str(commands.report), "--execute", status=78)
    commands.run("run", "--once", status=78)
    assert not commands.requests()[request].is_over and len(commands.requests()) == 1
    assert commands.json("status")["requests"][0]["state"] == "on-hold", "as the agents see it, whichever key is named"


def test_keys_of_this_cluster_and_of_all_are_trusted(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.write_report((1,))
    ours, other = load_private_key(commands.key).public(), PrivateKey("other", b"\x07" * 32).public()
    for keys in (f"{other},{ours}", f"{ours}@{CLUSTER}"):
        monkeypatch.setenv("LOGAGENT_ORDERS__KEYS", keys)
        request = commands.purge("--execute", "--timeout", "0")["request_id"]
        commands.run("cancel", request)


def test_what_is_left_out_of_an_execution_is_refused_also_if_nothing_is_left(commands: Commands) -> None:
    commands.write_report((1,))
    commands.purge("--execute", "--timeout", "0")
    assert commands.purge()["dropped"], "a dry run only says it"
    assert "already queued" in commands.purge("--execute", status=3)["dropped"][0]["why"]


@pytest.mark.parametrize("words", [["--host", "kafka-9"], ["--host", "kafka-1", "--host", "9"]])
def test_a_host_that_the_report_does_not_name_is_an_error(commands: Commands, words: list[str]) -> None:
    commands.write_report((1,))
    commands.run("purge", "--report", str(commands.report), *words, "--execute", status=2)
    assert f"--host {words[-1]}: the report does not name it" in commands.said
    assert commands.purge("--host", "3", "--execute")["directories"] == [], "it has no orphan"


def test_what_nobody_knows_has_no_status(commands: Commands) -> None:
    commands.write_report((1,))
    commands.purge("--execute", "--timeout", "0")
    assert len(commands.json("status", "clicks")["requests"]) == 1
    commands.run("status", "clocks", status=2)
    assert "no request names the topic clocks" in commands.said
    for command in ("status", "run"):
        where = ["--store", str(commands.store), "--cluster", "typo", "--key", str(commands.key)]
        commands.run(command, *where, place=False, status=2)
        assert "nothing of a cluster typo" in commands.said and f"it has {CLUSTER}" in commands.said
    assert not (commands.store / "control" / "typo").exists()


def test_a_failure_after_the_request_says_that_it_stays_open(commands: Commands) -> None:
    commands.write_report((1,))
    (commands.store / "control" / CLUSTER).mkdir(parents=True)
    (commands.store / "control" / CLUSTER / "runners").write_text("")
    commands.run("purge", "--report", str(commands.report), "--execute", status=69)
    (request,) = commands.requests()
    lines = commands.said.splitlines()
    assert f"topics: request {request} is in the store" in lines
    assert any(f"`logagent topics cancel {request}` cancels it" in line for line in lines), lines


def test_an_interruption_says_it_too(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    commands.write_report((1,))
    monkeypatch.setattr("time.sleep", interrupted)
    commands.run("purge", "--report", str(commands.report), "--execute", status=130)
    (request,) = commands.requests()
    assert f"request {request} is not done" in commands.said
    assert "interrupted; logagent history shows what was done on this host" in commands.said


@pytest.mark.parametrize("error", [ServiceUnreachable("no space"), KeyboardInterrupt()])
def test_a_request_of_which_it_is_not_known_whether_it_was_written_is_named(
    commands: Commands, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder could not be synced, or the object store's answer got lost."""
    commands.write_report((1,))
    create = StoreTree.create_new

    def fails(tree: StoreTree, names: Sequence[str], content: bytes, *, keyed: bool = False) -> bool:
        made = create(tree, names, content, keyed=keyed)
        if names[-1] == "request.json":
            raise error
        return made

    monkeypatch.setattr(StoreTree, "create_new", fails)
    status = 69 if isinstance(error, ServiceUnreachable) else 130
    commands.run("purge", "--report", str(commands.report), "--execute", status=status)
    (request,) = commands.requests()
    assert "a request may have been made" in commands.said and request


@pytest.mark.parametrize("columns", [80, 120, 200, None])
def test_no_topic_is_cut_or_takes_a_block_of_lines(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    """None: a pipe. Names of 80 characters that differ in the middle, beside short ones."""
    halls = [f"plant.north-line.sensors.temperature.raw.by-minute.of-the-{hall}-hall.kept" for hall in ("east", "west")]
    topics = {"clicks": "A" * 22, "orders": "B" * 22, halls[0]: "D" * 22, halls[1]: "E" * 22}
    commands.write_report(())
    rows = [[CLUSTER, 1, "kafka-1", "/data/kafka-1", f"{topic}-0", topic, topic_id, 0, "not-a-replica", 9, "now", n, "",
             5] for n, (topic, topic_id) in enumerate(topics.items())]  # fmt: skip
    with (commands.report / "orphans.csv").open("a", newline="") as file:
        csv.writer(file).writerows(rows)
    monkeypatch.setenv("COLUMNS", "" if columns is None else str(columns))

    def shown(*words: str, status: int = 0) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
        return plain(commands.run(*words, status=status))

    asked = shown("purge", "--report", str(commands.report), status=4)
    key = load_private_key(commands.key)
    for topic in halls:
        commands.fleet.request(topics=(commands.fleet.topic(topic_id=topics[topic], name=topic),), key=key)
    plan = commands.purge(status=4)
    commands.purge("--execute", "--timeout", "0", "--approve", f"{plan['plan_id']}:only-copy,limit")
    status = shown("status")
    assert any("Not done" in line for line in status), status
    for lines in (asked, status):
        for topic in topics:
            assert any(re.search(rf"(^|[ /]){re.escape(topic)}(-0)?( |$)", line) for line in lines), (topic, lines)
        heads = [line for line in lines if line.strip().startswith("─")]
        assert heads and not any(line.startswith(" topic  ") for line in lines), "a table, not a line for each cell"
        too_long = [line for line in lines if columns is not None and len(line) > columns]
        assert [
            line for line in too_long if line[0] == " " if not line.endswith((*halls, f"{halls[0]}-0", f"{halls[1]}-0"))
        ] == []
