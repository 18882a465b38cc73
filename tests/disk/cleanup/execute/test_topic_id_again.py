"""The topic id is read again right before each rename, and before the first file of a stray goes.

An in-place edit changes no time of the directory.
"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from logagent.base.dir_names import stray_name
from logagent.base.records import ActionKind, Kind, Outcome
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.plan.plan import Flags
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.restore.command import plan_restore
from logagent.cleanup.restore.rules import RestoreOptions
from tests.disk.sessions import FailingHost
from tests.host_files import GONE_ID, bulk_partition, format_log_dir, write_topic_id
from tests.hosts import HEX

ALLOWED = Flags(allow_assigned=True, even_last_copy=True)


def test_an_id_edited_in_place_after_the_plan_is_seen(tmp_path: Path) -> None:
    log_dir = format_log_dir(tmp_path / "d1")
    orders = bulk_partition(log_dir, "orders-0")
    bulk_partition(log_dir, "kept-0")
    metadata = orders / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {GONE_ID}\n")
    with FailingHost(tmp_path / "state", log_dir).session() as session:
        session.take_inventory()
        (current,) = (d for d in session.of_kind(Kind.CURRENT) if d.topic == "orders")
        mark = rename_away(current, is_stray=False, reason="test", new_uuid=lambda: HEX, flags=ALLOWED)
        plan = session.plan([mark], facts=session.facts())
        assert len(plan.actions) == 1
        before = orders.stat().st_mtime_ns
        with metadata.open("r+") as file:
            file.write("version: 0\ntopic_id: LivesLivesLivesLivesLA\n")
        assert orders.stat().st_mtime_ns == before
        (result,) = session.log_manager().execute(plan).results.values()
    assert result.outcome is Outcome.FAILED
    assert "LivesLivesLivesLivesLA" in (result.error or "")
    assert sorted(d.name for d in log_dir.iterdir() if d.is_dir()) == ["kept-0", "orders-0"]


def test_a_stray_whose_id_was_edited_since_it_was_asked_about_stays(tmp_path: Path) -> None:
    log_dir = format_log_dir(tmp_path / "d1")
    bulk_partition(log_dir, "kept-0")
    stray = bulk_partition(log_dir, stray_name("orders", 0, HEX))
    metadata = stray / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {GONE_ID}\n")
    before = sorted(p.name for p in stray.iterdir())
    with FailingHost(tmp_path / "state", log_dir).session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [(p.action, p.dir.name) for p in plan.actions] == [(ActionKind.REMOVE, stray.name)]
        with metadata.open("r+") as file:
            file.write("version: 0\ntopic_id: LivesLivesLivesLivesLA\n")
        (result,) = session.log_manager().execute(plan).results.values()
        assert result.outcome is Outcome.FAILED
        assert "LivesLivesLivesLivesLA" in (result.error or "")
        assert sorted(p.name for p in stray.iterdir()) == before
        assert not stray.stat().st_mode & stat.S_ISUID, "its removal has not begun"


@pytest.mark.parametrize("edited", ["displaced", "back"])
def test_an_id_edited_in_place_after_the_plan_of_a_replacement_is_seen(tmp_path: Path, edited: str) -> None:
    log_dir = format_log_dir(tmp_path / "d1")
    bulk_partition(log_dir, "kept-0")
    current = bulk_partition(log_dir, "orders-0")
    stray = bulk_partition(log_dir, stray_name("orders", 0, HEX))
    for path in (current, stray):
        write_topic_id(path, GONE_ID)
    inodes = current.stat().st_ino, stray.stat().st_ino
    with FailingHost(tmp_path / "state", log_dir).session() as session:
        session.take_inventory()
        options = RestoreOptions(replace=True, even_last_copy=True, retention_will_delete=True)
        plan = plan_restore(session, session.facts(), session.of_kind(Kind.STRAY), options)
        assert len(plan.actions) == 2, plan.refusals
        with ((current if edited == "displaced" else stray) / "partition.metadata").open("r+") as file:
            file.write("version: 0\ntopic_id: LivesLivesLivesLivesLA\n")
        results = session.log_manager().execute(plan).results.values()
    assert {r.outcome for r in results} == {Outcome.FAILED}
    assert [r for r in results if "LivesLivesLivesLivesLA" not in (r.error or "")] == []
    assert (current.stat().st_ino, stray.stat().st_ino) == inodes
