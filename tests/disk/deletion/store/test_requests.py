"""Requests on a real store: decided once, never reopened; whatever is forged, lost or unreadable holds them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pytest

from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable
from logagent.deletion.store.requests import (
    DECISION_SCHEMA,
    REQUEST_SCHEMA,
    ControlFolder,
    Decided,
    Decision,
    Filed,
    Request,
    RequestedDirectory,
    RequestFolder,
    RequestOutcome,
    TopicOutcome,
    cancel_beside,
    decide,
    encode,
    request_id,
    write_outcome,
    write_request,
)
from logagent.store.signing import PrivateKey, public_key
from logagent.store.tree import StoreTree

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY, STRANGER = PrivateKey("ops", b"\x01" * 32), PrivateKey("ops", b"\x02" * 32)
KEYS = (public_key(KEY.public()),)
AT, UNTIL = "2026-11-21T00:00:00.000Z", "2026-11-22T00:00:00.000Z"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ASKED = Request(CLUSTER, "topics", "0" * 16, "ops", AT, UNTIL, "0" * 32)


@pytest.fixture
def control(tmp_path: Path) -> ControlFolder:
    (tmp_path / "store").mkdir()
    return ControlFolder(tmp_path / "store", CLUSTER)


def decision(number: str, what: Decided = "delete", by: str = "ops") -> Decision:
    return Decision(number, CLUSTER, what, by, AT)


def place(control: ControlFolder, number: str, name: str) -> Path:
    return Path(control.store) / "control" / CLUSTER / "requests" / number / name


def looked(control: ControlFolder, number: str) -> Filed:
    return RequestFolder(control, KEYS).read()[number]


def test_a_request_is_named_after_what_it_asks_for(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    assert number == request_id(encode(ASKED))
    filed = looked(control, number)
    assert filed.request == ASKED and filed.is_open(NOON)
    assert not filed.is_open(datetime(2026, 11, 22, tzinfo=UTC)) and not filed.is_open(
        datetime(2026, 11, 20, tzinfo=UTC)
    )


def test_directories_of_a_large_request_are_in_parts(control: ControlFolder) -> None:
    name = "x" * 240
    many = tuple(
        RequestedDirectory(1, f"/data/{n:06d}" + "d" * 200, f"{name}-0", name, "A" * 22, 0, "orphan", n)
        for n in range(30_000)
    )
    number = write_request(control, replace(ASKED, kind="directories", directories=many), KEY)
    assert len(list(place(control, number, "").iterdir())) > 2
    filed = looked(control, number)
    assert filed.hold is None and filed.request is not None and filed.request.directories == many
    place(control, number, "request-2.json").unlink()
    assert "request-2.json is missing" in (looked(control, number).hold or "")


def test_of_two_who_decide_the_second_obeys_the_first(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    first, second = decision(number, "cancelled", "first"), decision(number, "delete", "second")
    assert decide(control, first, KEY, KEYS) == first
    assert decide(control, second, KEY, KEYS) == first
    assert looked(control, number).decision == first and not looked(control, number).is_open(NOON)


FORGED: dict[str, Callable[[str], bytes]] = {
    "empty": lambda number: b"",
    "junk": lambda number: b"\x00" * 100,
    "a stranger's": lambda number: STRANGER.sign(DECISION_SCHEMA, encode(decision(number))),
    "another request's": lambda number: KEY.sign(DECISION_SCHEMA, encode(decision("f" * 64))),
    "another cluster's": lambda number: KEY.sign(
        DECISION_SCHEMA, encode(replace(decision(number), cluster_id="other"))
    ),
    "of another schema": lambda number: KEY.sign("logagent.decision/9", b"{}"),
    "a request": lambda number: KEY.sign(REQUEST_SCHEMA, encode(ASKED)),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_is_no_decision_in_its_place_holds_the_request(
    control: ControlFolder, forged: Callable[[str], bytes]
) -> None:
    number = write_request(control, ASKED, KEY)
    place(control, number, "decision.json").write_bytes(forged(number))
    filed = looked(control, number)
    assert filed.hold is not None and "decision.json" in filed.hold and not filed.is_open(NOON)
    with pytest.raises(LogAgentError):
        decide(control, decision(number), KEY, KEYS)
    # It can still be cancelled.
    assert cancel_beside(control, decision(number, "cancelled"), KEY, "0" * 32)
    filed = looked(control, number)
    assert filed.decision is not None and filed.decision.decision == "cancelled"


def test_a_cancellation_beside_wins_over_a_decision_to_delete(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    decide(control, decision(number), KEY, KEYS)
    cancel_beside(control, decision(number, "cancelled"), KEY, "a" * 32)
    filed = looked(control, number)
    assert filed.decision is not None and filed.decision.decision == "cancelled" and filed.hold is None


def test_a_symlink_or_directory_in_a_place_holds_too(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    place(control, number, "decision.json").symlink_to("request.json")
    place(control, number, "outcome.json").mkdir()
    hold = looked(control, number).hold or ""
    assert "decision.json" in hold and "outcome.json" in hold


def test_an_outcome_closes_for_good_and_is_written_once(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    decide(control, decision(number), KEY, KEYS)
    outcome = RequestOutcome(
        number, CLUSTER, "ops", AT, topics=(TopicOutcome("A" * 22, "disabled", "delete.topic.enable"),)
    )
    assert write_outcome(control, outcome, KEY) and not write_outcome(control, outcome, KEY)
    folder = RequestFolder(control, KEYS)
    assert folder.read()[number].outcome == outcome
    # Read once: whatever happens to its files, it stays closed for who has seen it.
    place(control, number, "outcome.json").unlink()
    assert folder.read()[number].outcome == outcome


def test_a_retired_key_cancels_and_does_not_delete(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    retired = (public_key(f"{KEY.public()}:retired"),)
    decide(control, decision(number, "cancelled"), KEY, KEYS)
    filed = RequestFolder(control, retired).read()[number]
    assert filed.decision is not None and filed.request is None
    other = write_request(control, replace(ASKED, nonce="1" * 32), KEY)
    decide(control, decision(other), KEY, KEYS)
    filed = RequestFolder(control, retired).read()[other]
    assert filed.decision is None and filed.hold is not None


def test_a_store_that_is_gone_is_not_an_empty_one(control: ControlFolder) -> None:
    write_request(control, ASKED, KEY)
    shutil.rmtree(control.store)
    with pytest.raises(ServiceUnreachable):
        RequestFolder(control, KEYS).read()


def test_names_that_are_no_request_are_left_alone(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    for name in ("x", "F" * 64, f"{number}.json", ".hidden"):
        (place(control, number, "").parent / name).mkdir()
    assert list(RequestFolder(control, KEYS).read()) == [number]


def test_a_request_under_another_name_asks_for_nothing(control: ControlFolder) -> None:
    number = write_request(control, ASKED, KEY)
    other = place(control, number, "").with_name("a" * 64)
    shutil.copytree(place(control, number, ""), other)
    filed = looked(control, "a" * 64)
    assert filed.request is None and "another request" in (filed.hold or "")
    assert json.loads(place(control, number, "request.json").read_bytes())["schema"] == REQUEST_SCHEMA


@pytest.mark.parametrize("mode", [0o1777, 0o3770])
def test_the_control_folder_is_closed_whatever_the_stores_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(mode)
    control = ControlFolder(tmp_path / "store", CLUSTER)
    control.prepare()
    number = write_request(control, ASKED, KEY)
    for folder in (place(control, number, "").parent, *list(place(control, number, "").parent.parents)[:2]):
        found = folder.stat()
        shared = found.st_gid == (tmp_path / "store").stat().st_gid and mode & 0o020
        assert found.st_mode & 0o7777 == (0o2775 if not shared else 0o755), folder
    place(control, number, "").parent.chmod(0o1777)
    with pytest.raises(ConfigError, match="is not closed"):
        control.prepare()


def test_a_store_that_overwrites_is_refused(control: ControlFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        StoreTree, "create_new", lambda self, names, content, keyed: self.put(names, BytesIO(content)) or True
    )
    with pytest.raises(ConfigError, match="overwrites"):
        control.prepare()


@pytest.mark.parametrize(
    ("at", "counts"),
    [
        ("2026-11-20T23:59:59.999Z", False),
        ("2026-11-21T00:00:00.000Z", True),
        ("2026-11-21T00:01:00.000Z", True),
        ("2026-11-21T00:01:00.001Z", False),
    ],
)
def test_a_decision_to_delete_counts_only_from_the_minute_of_its_request(
    control: ControlFolder, at: str, counts: bool
) -> None:
    number = write_request(control, ASKED, KEY)
    decide(control, replace(decision(number), at=at), KEY, KEYS)
    filed = looked(control, number)
    assert (filed.decision is not None, filed.hold is None) == (counts, counts)
    assert counts or "not within a minute after the request" in (filed.hold or "")


@pytest.mark.parametrize("what", ["cancelled", "dropped", "expired"])
def test_what_ends_a_request_counts_whenever_it_was_decided(control: ControlFolder, what: Decided) -> None:
    number = write_request(control, ASKED, KEY)
    decide(control, replace(decision(number, what), at="2026-11-21T09:00:00.000Z"), KEY, KEYS)
    assert looked(control, number).is_over
