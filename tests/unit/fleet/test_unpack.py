"""What the driver keeps of a file: a few kilobytes packed may be gigabytes of objects."""

from __future__ import annotations

import gzip
import io
import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.units import instant
from logagent.fleet.ingest import check as module
from logagent.fleet.ingest.check import Unpacked, bad_rows, header, inside, log_dirs, unpack
from logagent.fleet.ingest.landing import Landed, ParsedManifest
from logagent.fleet.tables.frames import is_removal
from tests.spark.hand_made import AT, log_dir_row


def _unpacked(*rows: Any) -> Unpacked:
    packed = gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return unpack(io.BytesIO(packed), "dir", len(packed))


def test_only_known_kinds_and_fields_are_kept() -> None:
    seen = _unpacked(
        {"row": "later", "x": [[]] * 1000},
        {"row": "broker", "node_id": 3, "directory_ids": ["a"] * 1000},
        {"row": "uncommitted", "topic_id": "A" * 22, "partition": None, "x": {}},
        log_dir_row(x=[1]),
        {"row": "dir", "kind": "current"},
    )
    ledger = log_dir_row()["ledger"]
    assert seen.others == [
        {"row": "broker", "node_id": 3},
        {"row": "uncommitted", "topic_id": "A" * 22, "partition": None},
        {"row": "log_dir", "path": "/d0", "health": "online", "directory_id": None, "reason": None, "ledger": ledger},
    ]
    assert (seen.rows, seen.counted, seen.bad, bad_rows(seen)) == (5, 1, [], [])


def test_unknown_kinds_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OTHER_ROWS", 10)
    assert _unpacked(*[{"row": "later"}] * 10).problem is None
    for many in ([{"row": "later"}] * 11, [{"row": "broker", "node_id": 1}] * 11, [5] * 11):
        seen = _unpacked(*many)
        assert seen.problem is not None and seen.problem[0] == "too-many-rows"


@pytest.mark.parametrize(
    "wrong",
    [
        {"row": "log_dir", "path": ["/d0"], "health": "online"},
        {"row": "log_dir", "path": "/d0", "health": {}},
        {"row": "log_dir", "path": "/d0", "health": "online", "ledger": [1]},
        {"row": "log_dir", "path": "/d0", "health": "online", "ledger": {"used": {"a": 1}}},
        {"row": "broker", "node_id": [1]},
        {"row": "uncommitted", "topic_id": "\ud800x", "partition": 1},
        {"row": "uncommitted", "topic_id": "A" * 22, "partition": {}},
        {"row": "uncommitted", "topic_id": "A" * 22, "partition": 2**70},
        {"row": "uncommitted", "partition": 1},
    ],
)
def test_what_is_of_the_wrong_type_stays_wrong(wrong: dict[str, Any]) -> None:
    (_,) = bad_rows(_unpacked(wrong))


def test_a_reason_that_is_no_text_is_none() -> None:
    (row,) = log_dirs(Landed("c", AT.date(), "1", "s"), _unpacked(log_dir_row(reason=["x"], directory_id={})))
    assert (row["reason"], row["directory_id"], row["used"]) == (None, None, log_dir_row()["ledger"]["used"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(JSON, JSON)
def test_a_removal_is_a_topic_id_and_a_partition_or_none(topic_id: Any, partition: Any) -> None:
    assert not is_removal(topic_id, partition)
    is_number = type(partition) is int and 0 <= partition < 2**31
    assert is_removal("x" * 22, partition) == (partition is None or is_number)


def test_no_host_says_megabytes_of_its_log_dirs() -> None:
    long = {"row": "log_dir", "path": "/d", "health": "online", "reason": "x" * 500_000}
    assert _unpacked(*[long] * 30).problem is None
    seen = _unpacked(*[long] * 40)
    assert seen.problem is not None and seen.problem[0] == "too-large"


def _head(**fields: Any) -> dict[str, Any]:
    named = {"cluster_id": "c", "node_id": 1, "snapshot_id": "s", "at": instant(AT), "host": "h"}
    return {"row": "snapshot", "schema": "logagent.snapshot/3", **named, **fields}


def _absent(partition: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"row": "absent", "topic": "t", "topic_id": "A" * 22, "partition": partition, "left": None} | fields


def _problem(*rows: Any) -> str | None:
    """What is wrong with a snapshot whose manifest says what it has."""
    seen = _unpacked(*rows)
    landed = Landed("c", AT.date(), "1", "s", None, None)
    found = inside(landed, ParsedManifest("s", "snapshot", "c", 1, "h", 0, seen.rows, 1, seen.sha256, None), seen)
    return found[0] if found is not None else None


def test_absent_replicas_are_counted_and_left_to_spark() -> None:
    rows = [_head(absent=2), _absent(), {"row": "dir", "kind": "current"}, _absent(1, topic_id=None)]
    seen = _unpacked(*rows)
    assert (seen.rows, seen.counted, seen.absent, seen.parsed) == (4, 1, 2, 1)
    assert [row["row"] for row in seen.others] == ["snapshot"]
    assert _problem(*rows) is None


@pytest.mark.parametrize(
    ("said", "rows", "problem"),
    [
        (None, [], None),
        (0, [], None),
        (1, [], "header-differs"),
        (0, [_absent()], "header-differs"),
        (None, [_absent()], "header-differs"),
        ("1", [_absent()], "header-differs"),
        (1, [_absent(-1)], "bad-rows"),
        (1, [_absent(topic=None)], "bad-rows"),
        (1, [_absent(topic_id="short")], "bad-rows"),
    ],
)
def test_replicas_that_are_not_there_are_as_many_as_the_header_says(
    said: Any, rows: list[dict[str, Any]], problem: str | None
) -> None:
    """A replica that is absent in one row less would be said to be gone, or not assigned yet."""
    assert _problem(_head(absent=said), *rows) == problem


def test_absent_replicas_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has lost every disk is not refused for it."""
    monkeypatch.setattr(module, "MOST_OTHER_ROWS", 10)
    assert _unpacked(*map(_absent, range(11))).problem is None
    monkeypatch.setattr(module, "MOST_ABSENT", 10)
    seen = _unpacked(*map(_absent, range(11)))
    assert seen.problem is not None and seen.problem[0] == "too-many-rows"


def _act(**fields: Any) -> dict[str, Any]:
    done = {"id": 1, "at": 5, "finished_at": 6, "action": "remove", "outcome": "done", "log_dir": "/d", "name": "t-0"}
    return {"row": "act", **done, "topic": None, "approved": False, "claim": "kept", "later": [1]} | fields


def _acts(rows: Any, **fields: Any) -> dict[str, Any]:
    return _head(acts={"since": instant(AT), "rows": rows, "left_out": 0, "last_id": 9} | fields)


@pytest.mark.parametrize(
    ("head", "rows", "problem"),
    [
        (_head(), [], None),
        (_head(acts=None), [], None),
        (_acts(0), [], None),
        (_acts(2), [_act(), _act(id=2, name="\udcff", bytes=(1 << 53) - 1)], None),
        (_acts(2), [_act(bytes=1 << 53), _act(id=2, bytes=None, allocated=1 << 53)], "too-many-bytes"),
        (_acts(1), [_act(allocated=(1 << 63) - 1)], "too-many-bytes"),
        (_acts(1), [], "header-differs"),
        (_acts(0), [_act()], "header-differs"),
        (_head(acts=None), [_act()], "header-differs"),
        (_acts(1, since="soon"), [_act()], "header-differs"),
        (_acts("1"), [_act()], "header-differs"),
        (_acts(1), [_act(id=None)], "bad-rows"),
        (_acts(1), [_act(at="5")], "bad-rows"),
        (_acts(1), [_act(finished_at=1 << 62)], "bad-rows"),
        (_acts(1), [_act(bytes=-1)], "bad-rows"),
        (_acts(1), [_act(approved=1)], "bad-rows"),
        (_acts(1), [_act(name="\udcff" * 256)], "bad-rows"),
        (_acts(1), [_act(actor=["x"])], "bad-rows"),
        (_acts(1), [{"id": 0, **_act()}], "bad-rows"),
    ],
)
def test_what_was_done_is_as_much_as_the_header_says(
    head: dict[str, Any], rows: list[dict[str, Any]], problem: str | None
) -> None:
    """Spark looks for these lines by how they begin: one that begins otherwise would be lost there."""
    assert _problem(head, *rows) == problem


@pytest.mark.parametrize("said", [None, [], {}, {"since": instant(AT), "rows": 1}, {"since": 1, "rows": 1}, "x"])
def test_what_was_done_is_unknown_where_the_header_does_not_say(said: Any) -> None:
    assert header(_unpacked(_head(acts=said)))["acts"] is None
    known = header(_unpacked(_acts(3)))["acts"]
    assert known == {"since": round(AT.timestamp() * 1000), "rows": 3, "left_out": 0, "last_id": 9}


IMAGE = {"source": "kraft-log", "at": instant(AT), "offset": 7}


@pytest.mark.parametrize(
    ("images", "known"),
    [
        ({"before": IMAGE, "after": IMAGE}, True),
        (None, False),
        ([], False),
        ({"before": IMAGE}, False),
        ({"before": IMAGE, "after": IMAGE | {"at": "soon"}}, False),
        ({"before": IMAGE, "after": IMAGE | {"source": 1}}, False),
    ],
)
def test_images_that_cannot_be_read_are_none(images: Any, known: bool) -> None:
    """The host is compared with what others published."""
    found = header(_unpacked(_head(images=images, absent=0, began=instant(AT))))
    assert (found["images"] is not None) is known
    assert (found["absent"], found["began"]) == (0, round(AT.timestamp() * 1000))
    if known:
        assert found["images"]["after"] == {"source": "kraft-log", "at": round(AT.timestamp() * 1000), "offset": 7}


def test_a_log_dir_is_spelled_as_spark_spells_it() -> None:
    """Where its path is not UTF-8, too: else its ledger and its directories would be two log dirs."""
    rows = [{"row": "log_dir", "path": path, "health": "online"} for path in ("/d0", "/d\udcff", "/dü")]
    landed = Landed("c", date(2025, 3, 10), "2", "s")
    assert [row["log_dir"] for row in log_dirs(landed, Unpacked(others=rows))] == ["/d0", "/d\\udcff", "/dü"]
