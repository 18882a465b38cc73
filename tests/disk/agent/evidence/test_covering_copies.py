"""A copy counts as covering another one only as it is when that one is about to go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.agent.rescue.plan_rescue import plan_rescue
from logagent.agent.session.session import Session
from logagent.model.planning.plan import Plan
from tests.disk.messes import Mess, Sort, Thing, make
from tests.disk.sessions import Host


@contextmanager
def session_on(mess: Mess) -> Iterator[Session]:
    """A session of the daemon's kind."""
    host = Host(mess.root / "state", *mess.log_dirs)
    with host.session() as session:
        shutil.copy(mess.assignments, host.assignments)
        session.read_assignments()
        session.take_inventory()
        yield session


def planned(session: Session) -> Plan:
    found = plan_rescue(session, session.facts(), need=None).plan.actions
    return replace(session.plan(found, facts=session.facts()), needs_approval=None)


@pytest.mark.parametrize(
    ("sort", "edited"), [("stray-covered", "covering"), ("double", "covering"), ("double", "covered")]
)
def test_a_copy_whose_topic_id_was_edited_since_it_was_judged_does_not_count(
    tmp_path: Path, sort: Sort, edited: str
) -> None:
    """An in-place edit changes no time of the directory, so the inventory does not see it."""
    mess = make(tmp_path, [Thing(sort), Thing("assigned"), Thing("assigned")])
    ((going,),), other = mess.may_go, mess.stays[0]
    with session_on(mess) as session:
        plan = planned(session)
        assert [p.dir.name for p in plan.actions] == [going.name]
        metadata = (other if edited == "covering" else going) / "partition.metadata"
        with metadata.open("r+") as file:
            file.write("version: 0\ntopic_id: LivesLivesLivesLivesLA\n")
        done = session.log_manager().execute(plan)
    assert [(r.name, r.guard) for r in done.refusals] == [(going.name, "assigned")]
    assert going.exists() and other.exists()
