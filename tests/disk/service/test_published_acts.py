"""What a snapshot says of what logagent did: the journal's settled entries, each as often as it is read, none twice."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logagent.base.records import ActionKind, Identity, Outcome
from logagent.base.units import DAY_MS, rfc3339
from logagent.cleanup.session.session import Session
from logagent.cleanup.state.journal import FILE_NAME, Intent, Journal
from logagent.service.publish import acts_told
from logagent.store.contract import DATA
from logagent.store.shared import init_store
from logagent.store.snapshots import ACTS_DAYS, snapshot_lines
from tests.documents import assert_promised
from tests.host import delete
from tests.publish_host import Publishing, data_files, looked_at

FREELY = ("--allow-assigned", "--even-last-copy")


@pytest.fixture
def publishing(tmp_path: Path) -> Publishing:
    store = tmp_path / "store"
    store.mkdir()
    init_store(str(store))
    return Publishing(tmp_path, store)


def published(publishing: Publishing) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What the head of a new snapshot says of acts, and its rows of them."""
    publishing.clock.ahead_ms += 1
    name = publishing.look()
    publishing.publisher.send()
    files = {data.name.removesuffix(DATA): data for data in data_files(publishing.store, "snapshot", "delta")}
    lines = list(snapshot_lines(lambda stem: files[stem].read_bytes(), name))
    for line in lines:
        if b"\\ud" not in line:  # pydantic reads no lone surrogate
            assert_promised(line.decode(), "snapshot")
    head, *rows = map(json.loads, lines)
    return head["acts"], [row for row in rows if row["row"] == "act"]


def state_of(publishing: Publishing) -> Path:
    return publishing.host.state / FILE_NAME


def test_what_was_done_is_published_as_the_journal_has_it(publishing: Publishing) -> None:
    told, acts = published(publishing)
    assert told is not None
    since = rfc3339(publishing.clock.now_ms() - ACTS_DAYS * DAY_MS)
    assert told.pop("since")[:16] in (since[:16], rfc3339(publishing.clock.now_ms() - ACTS_DAYS * DAY_MS - 60_000)[:16])
    assert (told, acts) == ({"rows": 0, "left_out": 0, "last_id": 0}, [])
    assert delete(publishing.host, "--partition", "orders-1", *FREELY).status == 0
    told, acts = published(publishing)
    (entry,) = publishing.host.run("history", "--json").json["entries"]
    (act,) = acts
    same = ("id", "action", "log_dir", "name", "new_name", "topic", "topic_id", "partition", "bytes", "allocated",
            "actor", "plan_id", "outcome", "error")  # fmt: skip
    assert {name: act[name] for name in same} == {name: entry[name] for name in same}
    assert (act["action"], act["outcome"], act["approved"]) == ("mark", "done", False)
    assert act["actor"].startswith("cli:")
    assert act["at"] <= act["finished_at"] <= publishing.clock.now_ms()
    assert (act["claim"], act["witness"]) == ("given-up", "operator"), "an operator's word comes before all else"
    assert act["claims"].split(", ") == [f"{c['claim']} by {c['witness']}" for c in entry["claims"]]
    assert told is not None and (told["rows"], told["left_out"], told["last_id"]) == (1, 0, 1)


def test_each_snapshot_has_them_all_again(publishing: Publishing) -> None:
    """Of a day only the newest is read. The second one is a delta: what was done is in it in full."""
    delete(publishing.host, "--partition", "orders-1", *FREELY)
    first = published(publishing)
    again = published(publishing)
    assert len(data_files(publishing.store, "delta")) == 1
    assert again[1] == first[1] != []
    publishing.clock.ahead_ms += (ACTS_DAYS + 1) * DAY_MS
    told, acts = published(publishing)
    assert acts == [] and told is not None and (told["rows"], told["left_out"], told["last_id"]) == (0, 0, 1)


def test_a_crash_between_an_act_and_its_outcome_hides_nothing(publishing: Publishing) -> None:
    """What is open is not published; the next session settles it by what is on the disk, and then it is."""
    delete(publishing.host, "--partition", "orders-1", *FREELY)
    with closing(sqlite3.connect(state_of(publishing))) as db, db:
        db.execute("UPDATE actions SET outcome=NULL, finished_at_ms=NULL")
    with publishing.host.session(act=False, clock=publishing.clock) as session:
        done = session.journal.done_since(0, 10)
        assert done is not None and done.entries == []
    _, (act,) = published(publishing)
    assert (act["id"], act["outcome"]) == (1, "done")
    assert act["finished_at"] > act["at"]


def test_a_journal_that_was_lost_shows(publishing: Publishing) -> None:
    for partition in ("orders-1", "orders-2"):
        delete(publishing.host, "--partition", partition, *FREELY)
    told, before = published(publishing)
    assert told is not None and (len(before), told["last_id"]) == (2, 2)
    for file in publishing.host.state.glob("journal.db*"):
        file.unlink()
    told, acts = published(publishing)
    assert (acts, told and told["last_id"]) == ([], 0), "it goes back: a reader knows that something is missing"


def test_without_a_journal_it_is_not_known_what_was_done(publishing: Publishing) -> None:
    """Neither where it cannot be read, nor where there is none: that is not the same as nothing."""
    with publishing.host.session(act=False, clock=publishing.clock, inventory=True) as session:
        assert session.journal.done_since(0, 10) is None
        assert head_of(publishing, session) is None
    with looked_at(publishing.host, publishing.clock) as (session, _):
        assert head_of(publishing, session) is not None
        session.journal.close()
        assert head_of(publishing, session) is None


def head_of(publishing: Publishing, session: Session) -> Any:
    return acts_told(session, publishing.clock.now_ms())[0]


# What is read of the journal

NOW = 1_800_000_000_000


def intent(name: str) -> Intent:
    return Intent(
        ActionKind.REMOVE, "/d\udcff", name, None, "t", 0, None, Identity(1, 2), 7, "p", "daemon",
        claims=(("kept", "name", NOW), ("later", "than-this", NOW)),
    )  # fmt: skip


def test_of_too_many_the_newest_are_read_and_the_others_counted(tmp_path: Path) -> None:
    with Journal.open(str(tmp_path)) as journal:
        ids = journal.begin([intent(f"a{n}") for n in range(7)], NOW)
        for number, action_id in enumerate(ids):
            journal.finish([(action_id, Outcome.DONE, None)], NOW + number // 2)
        for most, names, since, left_out in ((7, 7, NOW, 0), (4, 4, NOW + 2, 3), (3, 3, NOW + 3, 4)):
            done = journal.done_since(NOW, most)
            assert done is not None
            assert (len(done.entries), done.since_ms, done.left_out, done.last_id) == (names, since, left_out, 7)
            complete = [f"a{n}" for n in range(7) if NOW + n // 2 >= done.since_ms]
            assert [e.intent.name for e in done.entries][-len(complete) :] == complete, "all of `since_ms` or later"
        withdrawn, skipped, failed = journal.begin([intent(f"b{n}") for n in range(3)], NOW)
        journal.withdraw([withdrawn])
        journal.finish([(skipped, Outcome.SKIPPED, "x"), (failed, Outcome.FAILED, "y")], NOW + 9)
        done = journal.done_since(NOW + 5, 10)
        assert done is not None and [(e.id, e.error) for e in done.entries] == [(failed, "y")]
        assert done.last_id == failed, "no id is used again, nor counted on"
        assert journal.done_since(NOW + 10, 10) is not None


def test_names_that_are_not_utf8_are_published_as_they_are(publishing: Publishing) -> None:
    with publishing.host.session(clock=publishing.clock) as session:
        at = publishing.clock.now_ms()
        (action_id,) = session.journal.begin([intent("x\udcff-0")], at)
        session.journal.finish([(action_id, Outcome.DONE, "\udcfe" * 2000)], at)
    _, (act,) = published(publishing)
    assert (act["log_dir"], act["name"], act["error"]) == ("/d\udcff", "x\udcff-0", "\udcfe" * 1000)
    assert (act["claim"], act["claims"]) == ("kept", "kept by name, later by than-this")
