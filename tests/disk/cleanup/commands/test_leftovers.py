"""Files in assigned directories that a start would drop: a step of rescue with an approval that lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from logagent.base.dir_names import leftovers
from tests.disk.cleanup.rescue.test_rescue import rescue, rescue_text
from tests.disk.messes import Mess, Thing, content, lock_held, make
from tests.disk.verdict.evidence.test_covering_copies import planned, session_on

SEGMENT = f"{0:020d}"


def with_files(mess: Mess, *names: str) -> Path:
    assigned = mess.stays[0]
    for name in names:
        (assigned / name).write_bytes(b"x" * 100_000)
    return assigned


@pytest.mark.parametrize(
    ("names", "dropped"),
    [
        (["1.log", "1.log.deleted", "1.index.deleted"], ["1.index.deleted", "1.log.deleted"]),
        (["1.log", "1.log.cleaned", "1.log.deleted"], ["1.log.cleaned", "1.log.deleted"]),
        # Half a split: which swap files count is seen by the cleaned ones.
        (["1.log.swap", "1.log.cleaned", "1.log.deleted"], ["1.log.deleted"]),
        (["1.log", "leader-epoch-checkpoint", "deleted"], []),
        # What ends as a snapshot of the metadata log does, a load of a partition leaves alone.
        (["1.log", "1-1.checkpoint.deleted"], []),
    ],
)
def test_what_a_start_drops(names: list[str], dropped: list[str]) -> None:
    assert leftovers(names) == dropped


def test_leftovers_go_with_an_approval_that_lists_them(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("assigned"), Thing("assigned")])
    before = content(mess.stays[0])
    deleted, cleaned = f"{SEGMENT}.log.deleted", f"{SEGMENT}.log.cleaned"
    assigned = with_files(mess, deleted, cleaned)
    plan = rescue(mess)
    (action,) = plan.json["actions"]
    assert (action["action"], action["step"], action["name"]) == ("remove-leftovers", "leftovers", assigned.name)
    assert action["files"] == [cleaned, deleted] and action["gives_back"] >= 200_000
    assert any("may be the last copy" in r["fact"] for r in plan.json["refusals"]), plan.json["refusals"]
    shown = rescue_text(mess).out
    assert deleted in shown and cleaned in shown
    assert rescue(mess, "--execute").json["actions"] == []
    # One file more is another plan.
    other = f"{80:020d}.log.deleted"
    with_files(mess, other)
    refused = rescue(mess, "--execute", "--approve", plan.json["plan_id"])
    assert refused.status == 4 and (assigned / deleted).exists()
    done = rescue(mess, "--execute", "--approve", rescue(mess).json["plan_id"])
    assert (done.status, [a["outcome"] for a in done.deeds]) == (0, ["done"]), done.json
    assert done.json["totals"]["freed_bytes"] >= 300_000
    assert content(assigned) == before


def test_half_a_split_keeps_its_cleaned_files(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("assigned")])
    assigned = with_files(mess, f"{SEGMENT}.log.cleaned", f"{SEGMENT}.log.swap")
    assert rescue(mess).json["actions"] == []
    with_files(mess, f"{SEGMENT}.index.deleted")
    plan = rescue(mess).json
    assert [a["files"] for a in plan["actions"]] == [[f"{SEGMENT}.index.deleted"]]
    (assigned / f"{SEGMENT}.log.swap").unlink()
    with session_on(mess) as session:
        plan = planned(session)
        assert len(plan.actions[0].leftovers) == 2
        with_files(mess, f"{SEGMENT}.log.swap")
        session.log_manager().execute(plan)
    assert (assigned / f"{SEGMENT}.log.cleaned").exists(), "the swap file came between the plan and the act"
    assert not (assigned / f"{SEGMENT}.index.deleted").exists()


def test_nothing_is_offered_beside_a_broker_nor_of_what_nobody_knows(tmp_path: Path) -> None:
    mess = make(tmp_path, [Thing("assigned"), Thing("no-id")])
    for path in mess.stays:
        (path / f"{SEGMENT}.log.deleted").write_bytes(b"x" * 100_000)
    assert [a["name"] for a in rescue(mess).json["actions"]] == ["t0-0"]
    with lock_held(mess.log_dirs[0]):
        assert rescue(mess).json["actions"] == []
