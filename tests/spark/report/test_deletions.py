"""Deletions across the fleet in a report: those that `orders.keys` vouch for, and no other."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from logagent.base.units import instant
from logagent.deletion.store.requests import ControlFolder, Request, RequestedPartition, RequestedTopic, write_request
from logagent.fleet.job import Job, _deletions
from logagent.fleet.tables.files import Files
from logagent.store.signing import PrivateKey
from tests.spark.conftest import KEY, Zoo
from tests.spark.hand_made import NOW
from tests.spark.planting import planted

STRANGER = PrivateKey("ops", b"\x02" * 32)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


def _ask(store: Path, *keys: PrivateKey) -> None:
    """The same deletion, by a request of each key."""
    asked = RequestedTopic("clicks", "A" * 22, (RequestedPartition(0, (1, 2, 3)),))
    for number, key in enumerate(keys, 1):
        request = Request(CLUSTER, "topics", "a" * 24, "ops", instant(NOW), instant(NOW + timedelta(days=1)),
                          f"{number:032x}", topics=(asked,))  # fmt: skip
        write_request(ControlFolder(store, CLUSTER), request, key)


@planted
def deletions(store: Path) -> None:
    _ask(store, KEY, STRANGER)
    (store / "control" / "zz").mkdir()
    (store / "control" / "zz" / "requests").write_text("somebody else's")


def test_deletions_that_the_keys_vouch_for_are_reported(zoo: Zoo) -> None:
    of_zz = "the deletions of cluster zz cannot be reported: requests of"
    assert [line for line in zoo.told.content["warnings"] if line.startswith(of_zz)]
    text = (zoo.told.out / "deletion_progress.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(text.splitlines())
    assert (row["topic"], row["marked"], row["removed"], row["since"]) == ("clicks", "3", "0", NOW.date().isoformat())


def test_without_keys_none_is_reported_and_that_is_said(tmp_path: Path) -> None:
    """The table is empty, which reads as "none"."""
    _ask(tmp_path, KEY)
    store: Any = SimpleNamespace(uri=f"file:{tmp_path}", files=Files)
    said: list[str] = []
    assert _deletions(Job(store, "out", NOW), said.append) == []
    assert [line for line in said if "none is reported" in line] == said != []
    assert len(_deletions(Job(store, "out", NOW, order_keys=(KEY.public(),)), said.append)) == 1
    assert _deletions(Job(store, "out", NOW, order_keys=(STRANGER.public(),)), said.append) == []
