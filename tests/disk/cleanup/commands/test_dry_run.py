"""Without --execute nothing changes anywhere; what a topic expression selects, and what is never selected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan",),
        ("queue",),
        ("cleanup",),
        ("delete", "--topic", ".*", *FREELY),
        ("delete", "--partition", "orders-1", "--quarantine", *FREELY),
        ("history",),
        ("prestart", "--budget", "10m", "--dry-run"),
        ("check", "--quick"),
    ],
    ids=" ".join,
)
def test_without_execute_nothing_changes_anywhere(host: Host, arguments: tuple[str, ...]) -> None:
    host.configure(**NO_LIMITS, **ALL_DUE)
    before, settings = host.snapshot(), host.toml.read_bytes()
    assert host.run(*arguments).status == 0
    assert host.toml.read_bytes() == settings
    assert host.snapshot() == before
    assert not host.state.exists()


def test_a_dry_run_of_restore_changes_nothing_and_is_what_execute_does(host: Host) -> None:
    delete(host, "--topic", "clicks|plant.*", *FREELY)
    marked = host.find("", "-delete")
    before = host.snapshot()
    planned = host.run("restore", "--retention-will-delete", "--json", *host.find("clicks"))
    assert host.snapshot() == before
    done = host.run("restore", "--retention-will-delete", "--json", *host.find("clicks"), "--execute")
    assert planned.json["plan_id"] == done.json["plan_id"]
    assert [a["id"] for a in planned.json["actions"]] == [a["id"] for a in done.json["actions"]]
    assert len(host.find("", "-delete")) == len(marked) - 2


@pytest.mark.parametrize("command", ["cleanup", "cleanup --execute", "scan", "check --quick", "delete --topic x"])
@pytest.mark.parametrize(("text", "status"), [(None, 78), ("{}", 1), ("", 1), ("[]", 1)])
def test_assignments_that_were_asked_for_and_cannot_be_used_are_an_error(
    host: Host, command: str, text: str | None, status: int
) -> None:
    """Ended with 0 and "nothing to do": whoever mistypes the name would wait for ever."""
    file = host.root / "export.json"
    if text is not None:
        file.write_text(text)
    before = host.partitions()
    ran = host.run(*command.split(), "--assignments", str(file))
    assert ran.status == status, ran.err
    assert "--assignments" in ran.err and host.partitions() == before


@pytest.mark.parametrize(
    ("regex", "topics"),
    [
        ("order", set()),
        ("orders", {"orders"}),
        ("order.", {"orders"}),
        ("x|orders", {"x", "orders"}),
        ("x, orders", {"x", "orders"}),
        # One expression with Kafka's comma: cut apart at it, this was `x`, too.
        ("x(,-test)-logs", set()),
        ("(x,order)s?", {"x", "orders"}),
        ("x.*", {"x", "x-0"}),
        (r"eu\.west_payments-v2", {"eu.west_payments-v2"}),
        ("archive.*", {"archive-0.0123456789abcdef0123456789abcdef-delete"}),
        ("ORDERS", set()),
    ],
)
def test_topic_expressions_match_whole_names(host: Host, regex: str, topics: set[str]) -> None:
    ran = delete(host, "--topic", regex, *FREELY, execute=False)
    assert ran.status == 0
    assert {a["topic"] for a in ran.json["actions"]} == topics


def test_internal_topics_go_only_when_asked_for(host: Host) -> None:
    ran = delete(host, "--topic", ".*", *FREELY, execute=False)
    internal = {name: guard for name, guard in ran.guards().items() if name.startswith("__")}
    assert set(internal.values()) == {"policy"} and len(internal) == 5
    assert [a for a in ran.json["actions"] if a["topic"].startswith("__")] == []
    assert "--include-internal" in ran.json["refusals"][0]["hint"]
    ran = delete(host, "--topic", "__consumer_offsets", "--include-internal", *FREELY, execute=False)
    assert len(ran.deeds) == 3 and not ran.json["refusals"]


def test_the_metadata_log_is_never_touched(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path, "3.9.1/node2-killed")
    before = host.partitions()
    everything = ("--topic", ".*", "--include-internal", *FREELY)
    ran = delete(host, *everything, execute=False)
    assert [a for a in ran.json["actions"] if a["name"].startswith("__cluster_metadata")] == []
    for arguments in (
        ("delete", "--partition", "__cluster_metadata-0", "--include-internal", *FREELY, "--execute"),
        ("restore", "__cluster_metadata-0", "--execute"),
    ):
        ran = host.run(*arguments)
        assert ran.status in (0, 2, 3) and "Traceback" not in ran.err
        assert host.partitions() == before


def test_delete_topic_enable_false_refuses_topics(host: Host) -> None:
    host.set_property("delete.topic.enable=false")
    before = host.partitions()
    ran = delete(host, "--topic", "orders", *FREELY)
    assert ran.status == 3 and set(ran.guards().values()) == {"policy"}
    assert [r for r in ran.json["refusals"] if "delete.topic.enable=false" not in r["fact"]] == []
    assert host.partitions() == before


def test_what_is_not_there_is_no_error_and_no_deed(host: Host) -> None:
    """`asyncDelete` of a log that is not there does nothing and raises nothing."""
    before = host.partitions()
    ran = delete(host, "--partition", "orders-77", *FREELY)
    assert ran.status == 0 and "orders-77: no such log here" in ran.err
    assert host.partitions() == before


def test_what_may_lie_in_an_offline_log_dir_is_an_error(host: Host) -> None:
    shutil.move(host.d2, host.disk / "elsewhere")
    ran = delete(host, "--partition", "orders-1", *FREELY)
    assert ran.status == 5
    assert "Failed to delete log for orders-1 because it may be in one of the offline directories" in ran.err
    ran = delete(host, "--partition", "orders-3", *FREELY)
    assert ran.status == 5 and ran.outcomes() == {"orders-3": "done"}
