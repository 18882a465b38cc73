"""What commands print with --json is what `logagent.schemas` and the published JSON Schema say, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from logagent.schemas import SCHEMAS
from tests.command_line import run_here
from tests.documents import assert_promised
from tests.forked import run_forked
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete
from tests.hosts import OF_PLACES
from tests.kafka_disks import expected

DISKS = [
    "3.9.1/node3-dir-returned",
    "3.9.1/node2-killed",
    "3.5.2-zookeeper/broker-clean",
    "2.5.1-zookeeper/broker-killed",
]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def valid(document: Any, name: str) -> Any:
    """`document`, after both the model and the published schema have taken it."""
    assert_promised(document, name)
    schema = run_here("schema", name).json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    return document


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_are_printed_and_strict(name: str) -> None:
    schema = run_here("schema", name).json
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema, cls=jsonschema.Draft202012Validator)
    assert name in run_here("schema").out.split()


@pytest.mark.parametrize("disk", DISKS)
def test_scan_of_every_kind_of_disk(tmp_path: Path, disk: str) -> None:
    host = Host.from_disk(tmp_path, disk)
    document = valid(host.run("scan", "--json").json, "scan")
    told = expected(disk)
    assert (document["cluster_id"], document["node_id"]) == (told["cluster_id"], told["node_id"])
    on_disk = {(str(d), e.name) for d in (host.d1, host.d2) for e in d.iterdir() if e.is_dir()}
    assert {(d["log_dir"], d["name"]) for d in document["dirs"]} == on_disk
    for row in document["dirs"]:
        files = [f for f in (Path(row["log_dir"]) / row["name"]).rglob("*") if f.is_file()]
        assert row["bytes"] == sum(f.stat().st_size for f in files)
        assert row["files"] == len(files)
        assert row["segments"] == sum(f.suffix == ".log" for f in files)
    # Both are on one file system, and what is unexplained there is in neither.
    ledgers = [where["ledger"] for where in document["log_dirs"]]
    parts = ("current", "future", "stray", "delete", "other", "open_removed")
    known = sum(ledger[part] for ledger in ledgers for part in parts)
    assert [ledger for ledger in ledgers if ledger["used"] != known + ledger["unexplained"]] == []


def test_scan_as_json_lines_says_the_same(host: Host) -> None:
    host.with_assignments()
    document = host.run("scan", "--json").json
    lines = [json.loads(line) for line in host.run("scan", "--jsonl").out.splitlines()]
    head, rows = lines[0], lines[1:]
    assert head.pop("row") == "scan"
    assert [row for row in rows if row.pop("row") != "dir"] == []
    valid({**head, "dirs": rows}, "scan")
    assert rows == document["dirs"]
    assert {row["verdict"] for row in rows if row["kind"] == "current"} == {"assigned", "orphan"}


def test_every_acting_command_prints_its_plan(host: Host) -> None:
    host.with_assignments(topics_gone=True, **NO_LIMITS, **ALL_DUE)
    plans = [
        host.run("delete", "--json", "--topic", "clicks|plant.*", *FREELY),
        host.run("delete", "--json", "--topic", "clicks|plant.*", *FREELY, "--execute"),
        host.run("delete", "--json", "--partition", "x-0", "--quarantine", *FREELY, "--execute"),
        host.run("restore", "--json", *host.find("clicks-0.", "-delete"), "--execute"),
        host.run("restore", "--json", *host.find("x-0.", "-stray"), "--execute"),
        host.run("cleanup", "--json"),
        host.run("cleanup", "--json", "--execute"),
    ]
    assert [p.status for p in plans] == [0] * len(plans), [p.err for p in plans]
    modes = [valid(p.json, "plan")["mode"] for p in plans]
    assert modes == ["dry-run", "execute", "execute", "execute", "execute", "dry-run", "execute"]
    for ran, mode in zip(plans, modes, strict=True):
        document = ran.json
        outcomes = {a["outcome"] for a in document["actions"]}
        assert document["actions"] and outcomes == ({None} if mode == "dry-run" else {"done"})
        totals = document["totals"]
        assert totals["bytes"] == sum(a["allocated"] for a in document["actions"])
        assert totals["actions"] == len(ran.deeds)
    assert plans[-1].json["totals"]["freed_bytes"] > 0
    entries = valid(host.run("history", "--json").json, "history")["entries"]
    assert {e["plan_id"] for e in entries} == {p.json["plan_id"] for p in plans if p.json["mode"] == "execute"}
    assert {e["action"] for e in entries} == {"mark", "quarantine", "restore", "remove"}
    lines = [json.loads(line) for line in host.run("history", "--jsonl").out.splitlines()]
    assert lines == entries
    newest = host.run("history", "--json", "--limit", "2", "--since", "1h").json["entries"]
    assert newest == entries[-2:]


def test_the_queue_is_in_the_order_in_which_it_falls_due(host: Host) -> None:
    host.run("delete", "--topic", "visits|plant.*", *FREELY, "--execute")
    document = valid(host.run("queue", "--json").json, "queue")
    entries = document["entries"]
    assert document["delay_ms"] == 86_400_000
    assert document["next_due_at"] == entries[0]["due_at"]
    assert [e["due_at"] for e in entries] == sorted(e["due_at"] for e in entries)
    ours = {e["full_topic"] for e in entries if e["owner"] == "logagent"}
    assert max(map(len, ours)) == 249 and "visits" in ours
    # What the broker itself cut cannot be known; what it did not cut is.
    theirs = {e["full_topic"] for e in entries if e["owner"] == "broker"}
    assert theirs == {"orders-2019", None}


def test_history_of_one_broker(host: Host) -> None:
    delete(host, "--partition", "x-0", *FREELY)
    other = host.root / "other.properties"
    other.write_text("log.dirs=/elsewhere\n")
    assert host.run("history", "--json", "--kafka-config", str(other)).json["entries"] == []
    assert len(host.run("history", "--json", "--kafka-config", str(host.properties)).json["entries"]) == 1


def test_one_round_of_the_daemon_ends_with_its_status(host: Host) -> None:
    host.with_assignments()
    ran = host.run("run", "--once", "--json")
    document = valid(ran.json, "status")
    assert ran.status == 0 and [c["job"] for c in document["cycles"]] == ["cleanup"], ran.err
    assert {d["path"] for d in document["log_dirs"]} == {str(host.d1), str(host.d2)}


def test_an_export_with_json_is_printed_too(host: Host, tmp_path: Path) -> None:
    host.with_assignments()
    file = tmp_path / "export.json"
    where = ("--config", str(host.toml), "--state-dir", str(host.state))
    ran = run_here("assignments", "export", str(file), "--json", *where)
    assert ran.status == 0 and ran.json == json.loads(file.read_text()) == valid(ran.json, "assignments")


def test_refusals_and_waiting_are_documents_too(host: Host) -> None:
    ran = host.run("delete", "--json", "--topic", "orders|__consumer_offsets", "--execute")
    document = valid(ran.json, "plan")
    assert ran.status == 3 and not document["actions"]
    assert set(ran.guards().values()) == {"assigned", "policy"}
    document = valid(host.run("cleanup", "--json").json, "plan")
    # Nothing fresh says whose a stray is, so the end of its retention is no date.
    undated = {w["reason"] for w in document["waiting"] if w["until"] is None}
    assert {w["reason"] for w in document["waiting"]} - undated == {"file.delete.delay.ms"}
    assert undated
    assert [reason for reason in undated if not reason.startswith("its owner is unknown (stale-assignments")] == []


def test_check_and_prestart_as_json(host: Host) -> None:
    check = valid(host.run("check", "--json").json, "check")
    assert [(d["path"], d["health"]) for d in check["log_dirs"]] == [(str(host.d1), "online"), (str(host.d2), "online")]
    assert {f["severity"] for f in check["findings"] if f["code"] not in OF_PLACES} == {"info"}
    older = valid(host.run("check", "--json", "--kafka-version", "3.5.2").json, "check")
    assert older["kafka_version"] == "3.5.2" and "stray-unsupported" in {f["code"] for f in older["findings"]}
    host.with_assignments(**NO_LIMITS, **ALL_DUE)
    strays = host.find("", "-stray")
    dry = valid(host.run("prestart", "--json", "--budget", "10m", "--dry-run").json, "prestart")
    assert host.find("", "-stray") == strays and dry["plan"]["mode"] == "dry-run"
    done = valid(host.run("prestart", "--json", "--budget", "10m").json, "prestart")
    # Those of partitions that live on other nodes stay: no leader is asked before a start.
    stay = sorted(r["name"] for r in done["plan"]["refusals"] if r["fact"].startswith("not-a-replica"))
    assert stay and [a["action"] for a in done["plan"]["actions"]] == ["mark"] * (len(strays) - len(stay))
    assert {a["outcome"] for a in done["plan"]["actions"]} == {"done"} and host.find("", "-stray") == stay


def test_explain_prints_one_object_a_name() -> None:
    document = valid(run_here("explain", "--names", "--json", "orders-1").json, "explain-name")
    assert (document["kind"], document["topic"], document["partition"]) == ("current", "orders", 1)
    for document in run_here("explain", "--names", "--json", "lost+found", "a-0.b-delete", "x-0.c-stray").json:
        valid(document, "explain-name")


def test_configuration_and_assignments_as_json(host: Host) -> None:
    host.with_assignments()
    shown = host.run("config", "show")
    assert shown.status == 2  # options stand behind the subcommand
    shown = run_here("config", "show", "--config", str(host.toml), "--json")
    assert shown.json["settings"]["kafka"]["version"] == "3.9.1"
    checked = run_here("config", "check", "--config", str(host.toml), "--json")
    assert checked.status == 0 and checked.json["log_dirs"] == [str(host.d1), str(host.d2)]
    ran = run_here("assignments", "show", "--config", str(host.toml), "--state-dir", str(host.state), "--json")
    document = dict(ran.json)
    document.pop("sha256")
    valid(document, "assignments")
    told = expected("3.9.1/node3-dir-returned")
    assert {t["topic"] for t in document["topics"]} == set(told["topics"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan", "--json"),
        ("queue", "--json"),
        ("cleanup", "--json"),
        ("cleanup", "--json", "--execute"),
        ("delete", "--json", "--topic", "orders", "-v"),
        ("check", "--json"),
        ("history", "--json"),
    ],
)
def test_stdout_holds_one_document_even_where_there_is_much_to_say(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    host = Host.from_disk(tmp_path)
    host.set_property(f"log.dirs={host.d1},{host.d2},{host.disk / 'gone'}")
    ran = run_forked(*host.arguments(*arguments))
    assert isinstance(json.loads(ran.out), dict)
    assert "Traceback" not in ran.err
    if arguments[0] != "history":
        assert ran.status == 5
    if arguments[0] not in ("history", "check"):
        assert "offline" in ran.err


def test_the_configuration_is_shown_as_people_write_it_and_where_it_comes_from(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.configure(**{"cleanup.min_age": "90m", "delete.bytes_per_second": 3 << 20})
    monkeypatch.setenv("LOGAGENT_CLEANUP__SIGHTINGS", "5")
    # Wherever the host lies: no path is folded.
    monkeypatch.setenv("COLUMNS", "1000")
    where = ("config", "show", "--config", str(host.toml), "--kafka-config", str(host.properties))
    shown = run_here(*where).out
    lines = host.toml.read_text().splitlines()

    def row(key: str) -> list[str]:
        return next(line.split() for line in shown.splitlines() if line.startswith(f" {key} "))[1:]

    line = lines.index('min_age = "90m"') + 1
    assert row("cleanup.min_age") == ["1h30m", f"{host.toml}:{line}"]
    assert row("delete.bytes_per_second")[0] == "3MiB"
    assert row("cleanup.sightings") == ["5", "LOGAGENT_CLEANUP__SIGHTINGS"]
    assert row("cleanup.stray_retention") == ["7d", "default"]
    assert row("kafka.config") == [str(host.properties), "--kafka-config"]
    document = run_here(*where, "--json").json
    keys = {f"{section}.{key}" for section, values in document["settings"].items() for key in values}
    assert set(document["origins"]) == keys and document["settings"]["cleanup"]["min_age"] == 5_400_000
    assert document["origins"]["assignments.max_age"] == "default"
