"""The decision to delete a topic, on a host that was down: its strays go once this host knows that it is deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logagent.base.units import instant
from logagent.deletion.store.requests import Decision, cancel_beside
from tests.disk.deletion.agent.requested_host import CLUSTER, KEY, RequestedHost

DELETED = ("returns", "bwNdQY5qTvafpK2nnv5ySQ", 0)
LIVING = ("invoices", "SKeC3pLWQPidJvA42PZhhw", 1)


@pytest.fixture
def host(tmp_path: Path) -> RequestedHost:
    """Report mode; two strays of a deleted topic that its broker made when it started, and one of a living topic."""
    return RequestedHost(tmp_path, {"cleanup.stray_retention": "1ms"})


def strays(host: RequestedHost, topic: str) -> list[str]:
    return host.host.find(f"{topic}-", "-stray")


def test_the_strays_of_a_deleted_topic_go_after_retention_in_report_mode(host: RequestedHost) -> None:
    host.configure(**{"cleanup.stray_retention": "1d"})
    number = host.deleted(DELETED, LIVING)
    host.minute()
    host.cycle()
    host.minute()
    returns, invoices = host.answer(number).topics
    assert len(strays(host, "returns")) == 2 == returns.strays_left and "kept until" in returns.words
    assert returns.next_try_at is not None and (returns.live, returns.bytes_back) == (1, 0) and returns.bytes_left
    host.configure(**{"cleanup.stray_retention": "1ms"})
    before = host.host.find("", "-stray")
    host.cycle()
    host.cycle()  # what the first one removed is seen by the second
    gone = set(before) - set(host.host.find("", "-stray"))
    assert len(gone) == 2 and all(name.startswith("returns-") for name in gone), "what lives stays, covered or not"
    host.minute()
    returns, invoices = host.answer(number).topics
    assert (returns.strays_left, invoices.strays_left) == (0, 1) and returns.bytes_back


@pytest.mark.parametrize("content", [b"", b"version: 0", None])
def test_a_topic_id_that_cannot_be_read_is_not_an_absent_replica(host: RequestedHost, content: bytes | None) -> None:
    number = host.deleted(DELETED, outcome=None)
    (path,) = (d / "returns-2" for d in (host.host.d1, host.host.d2) if (d / "returns-2").exists())
    if content is None:
        (path / "partition.metadata").unlink()
    else:
        (path / "partition.metadata").write_bytes(content)
    host.minute()
    host.cycle()
    host.minute()
    answer = host.of_topic(number)
    assert (answer.live, answer.unread) == (None, 1) and f"the topic id of {path} cannot be read" in answer.words


def test_the_word_outlives_expiry_and_the_store(host: RequestedHost) -> None:
    at = instant(datetime.now(UTC))
    host.deleted(DELETED, at=at, expires_at=at)
    host.minute()
    shutil.rmtree(host.store)
    host.node_requests = None
    host.cycle()
    assert strays(host, "returns") == []


def test_a_log_dir_that_failed_and_came_back_gives_up_its_strays_too(host: RequestedHost) -> None:
    away = host.host.disk / "away"
    os.rename(host.host.d1, away)
    host.host.d1.write_text("")  # not a directory: offline
    number = host.deleted(DELETED)
    host.minute()
    host.cycle()
    host.minute()
    said = host.of_topic(number)
    assert said.live is None and "offline" in said.words
    host.host.d1.unlink()
    os.rename(away, host.host.d1)
    host.cycle()
    assert strays(host, "returns") == []


def cancel(host: RequestedHost, number: str) -> None:
    cancel_beside(
        host.control, Decision(number, CLUSTER, "cancelled", "ops", instant(datetime.now(UTC))), KEY, "0" * 32
    )


def cancelled_and_removed(host: RequestedHost) -> None:
    """Somebody removes the cancellation after the agent saw it."""
    number = host.deleted(DELETED, outcome=None)
    host.minute()
    cancel(host, number)
    host.minute()
    host.place(number, f"decision-{'0' * 32}.json").unlink()


def restored(host: RequestedHost) -> None:
    host.deleted(DELETED)
    host.minute()
    name = min(strays(host, "returns"))
    assert host.host.run("restore", name, "--execute").status == 0
    path = next(
        d / name.partition(".")[0] for d in (host.host.d1, host.host.d2) if (d / name.partition(".")[0]).exists()
    )
    path.rename(path.parent / name)  # and the broker's start
    host.cycle()
    assert name in strays(host, "returns"), "a restore counts before the next look at the store"


def held(host: RequestedHost) -> None:
    number = host.deleted(DELETED)
    host.minute()
    host.place(number, "decision.json").write_bytes(b"junk")


@pytest.mark.parametrize(
    "case",
    [
        lambda host: host.request(topics=()),
        lambda host: host.deleted(DELETED, outcome="disabled"),
        lambda host: host.deleted(DELETED, outcome="refused"),
        lambda host: host.deleted(LIVING),
        cancelled_and_removed,
        restored,
        held,
    ],
    ids=["open", "disabled", "refused", "living", "cancelled", "restored", "held"],
)
def test_nothing_goes_without_a_decision_that_counts(
    host: RequestedHost, case: Callable[[RequestedHost], object]
) -> None:
    case(host)
    before = host.host.find("", "-stray")
    assert len(before) > 4
    host.minute(restart=True)
    host.cycle()
    assert host.host.find("", "-stray") == before


def test_a_memory_that_is_new_takes_no_word_from_what_stood(tmp_path: Path) -> None:
    host = RequestedHost(tmp_path, {"cleanup.stray_retention": "1ms"}, born=False)
    number = host.deleted(DELETED)
    host.minute()
    host.cycle()
    host.minute()
    assert len(strays(host, "returns")) == 2 and "newer than the request" in host.of_topic(number).words


@pytest.mark.parametrize(("approvals", "left"), [((), 1), (("limit",), 0)])
def test_more_than_the_limits_of_a_day_goes_only_if_that_was_approved(
    host: RequestedHost, approvals: tuple[str, ...], left: int
) -> None:
    host.configure(**{"cleanup.max_dirs": 1})
    host.deleted(DELETED, approvals=approvals)
    host.minute()
    host.cycle()
    assert len(strays(host, "returns")) == left
