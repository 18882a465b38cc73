"""What is said of strays, and how one goes of which nothing shows that it may."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logagent.verdict.evidence.brokers_to_ask import BrokersToAsk
from tests.disk.cleanup.rescue.test_rescue import rescue, rescue_text
from tests.disk.messes import Sort, Thing, ThisNodeLeads, make
from tests.metadata_writer import id_of


def test_scan_says_of_each_stray_what_it_is_and_whether_another_copy_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokersToAsk, "leaders", lambda _: ThisNodeLeads())
    sorts: tuple[Sort, ...] = ("stray", "stray-covered", "stray-uncovered", "stray-no-id", "copy", "copy-stray")
    mess = make(tmp_path, [Thing(sort) for sort in sorts])
    rows = {row["name"]: row for row in rescue(mess, command="scan").json["dirs"]}
    said = {
        name.partition(".")[0]: (row["verdict"], row["reason"], row.get("detail"))
        for name, row in rows.items()
        if "detail" in row
    }
    covered = "another copy has all of it"
    assert {name: said[name][:2] for name in said} == {
        "t0-0": ("orphan", "topic-absent"),
        "t1-0": ("assigned", None),
        "t2-0": ("assigned", None),
        "t3-0": ("unknown", "no-topic-id"),
        "backup4-0": ("orphan", "copy-of"),
        "backup5-0": ("orphan", "copy-of"),
    }
    assert said["t0-0"][2] == f"no topic has the id {id_of(1)}"
    assert said["t1-0"][2] == f"assigned; {covered}"
    assert "it ends at offset 100 in leader epoch 1" in said["t2-0"][2]
    assert f"no copy here has all of it; {mess.log_dirs[0]}/t2-0 ends it at 90" in said["t2-0"][2]
    assert said["backup4-0"][2] == f"a copy of t4-0: its topic id {id_of(5)} is that of topic t4"
    assert said["backup5-0"][2].startswith("copy-of: a copy of t5-0") and said["backup5-0"][2].endswith(covered)
    shown = " ".join(rescue_text(mess, "--all", command="scan").out.split())
    assert "orphan topic-absent: no topic has the id" in shown


def test_what_is_assigned_here_without_a_directory_is_listed(tmp_path: Path) -> None:
    """Removed by hand. What is set aside is not loaded, whatever the partition is called in the meantime."""
    mess = make(tmp_path, [Thing("assigned"), Thing("assigned"), Thing("stray-living"), Thing("orphan"), Thing("copy")])
    gone, *_ = mess.stays
    shutil.rmtree(gone)
    (copied,) = (path for path in mess.stays if path.name == "t4-0")
    shutil.rmtree(copied)
    ran = rescue(mess, command="scan")
    found = [(w["topic"], w["partition"], w["only_copy"]) for w in ran.json["without_directory"]]
    assert found == [("t0", 0, True), ("t2", 0, True), ("t4", 0, True)]
    assert "3 partitions (t0-0, t2-0, t4-0) are assigned here, without a current directory" in ran.err
    findings = [f for f in rescue(mess, command="check").json["findings"] if f["code"] == "no-directory"]
    assert [f["path"] for f in findings] == ["t0-0", "t2-0", "t4-0"]
    assert "logagent restore" in findings[1]["hint"] and "logagent rescue" in findings[0]["hint"]


def test_a_plan_says_why_a_stray_may_go(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray"), Thing("assigned"), Thing("assigned")])
    plan = rescue(mess, command="cleanup", settings='stray_retention = "0s"').json
    assert [(a["verdict"], a["fact"]) for a in plan["actions"]] == [
        ("orphan", f"topic-absent: no topic has the id {id_of(1)}")
    ]


def test_a_stray_without_a_topic_id_goes_by_its_full_name_and_an_approval_only(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("stray-no-id"), Thing("stray-uncovered"), Thing("assigned"), Thing("assigned")])
    stray, uncovered = (str(path.name) for path in mess.stays if path.name.endswith("-stray"))

    def delete(*arguments: str, name: str = stray) -> tuple[int, list[str], list[str]]:
        ran = rescue(mess, "--partition", name, *arguments, command="delete")
        deeds = [a for a in ran.json["actions"] if a["action"] == "mark"]
        plans.append(ran.json["plan_id"])
        return ran.status, [a["outcome"] or "planned" for a in deeds], [r["guard"] for r in ran.json["refusals"]]

    plans: list[str] = []
    assert delete("--execute") == (3, [], ["assigned"])
    hint = rescue(mess, "--partition", stray, command="delete").json["refusals"][0]["hint"]
    assert f"logagent delete --even-last-copy --partition {stray}" in hint
    assert delete("--execute", "--even-last-copy") == (4, ["planned"], ["blast-radius"])
    # One that is assigned here takes that word, too.
    assert delete("--execute", "--even-last-copy", name=uncovered) == (3, [], ["assigned"])
    assert delete("--even-last-copy", "--allow-assigned", name=uncovered)[1:] == (["planned"], ["blast-radius"])
    assert delete("--execute", "--even-last-copy", "--approve", plans[-1])[1:] == (["planned"], ["blast-radius"])
    assert (mess.log_dirs[0] / stray).exists()
    assert delete("--execute", "--even-last-copy", "--approve", plans[1]) == (0, ["done"], [])
    assert not (mess.log_dirs[0] / stray).exists()
    assert [path.name.endswith("-delete") for path in mess.log_dirs[0].glob("t0-0.*")] == [True]
