"""A partition is absent only where everything that could hold it was looked at."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logagent.agent.orders.lookup import Lookup
from logagent.agent.session.session import Session
from logagent.model.assignments.image import BrokerRegistration, Source, make_image
from logagent.model.facts import Facts
from logagent.model.records import Health
from logagent.store.deletion import OrderedPartition
from tests.hosts import LOG_DIR, TOPIC_ID, facts, log_dir

HERE, NOT_HERE = "A" * 22, "B" * 22
ORDERED = OrderedPartition("request-1", "orders", TOPIC_ID, 0)
SEEN = replace(facts(), log_dirs={LOG_DIR: replace(log_dir(), directory_id=HERE)})


def answer(known: Facts, *registered: str, whole: bool = True, **more: Any) -> tuple[str, str]:
    image = make_image(
        [],
        source=Source.KRAFT_LOG,
        cluster_id="c",
        at_ms=0,
        known_until_ms=0,
        complete=True,
        brokers={1: BrokerRegistration(1, registered)},
    )
    session = SimpleNamespace(
        dirs=[],
        whole=whole,
        assignments=SimpleNamespace(first=image),
        log_dirs=SimpleNamespace(cluster=SimpleNamespace(node_id=1)),
        **more,
    )
    result = Lookup(cast(Session, session), known).not_there(ORDERED)
    return result.result, result.fact or ""


def test_what_every_registered_log_dir_lacks_is_absent() -> None:
    assert answer(SEEN, HERE) == ("absent", "")
    assert answer(SEEN) == ("absent", "")  # ZooKeeper mode, or before directory ids


@pytest.mark.parametrize(
    ("known", "registered", "whole", "why"),
    [
        (SEEN, (HERE, NOT_HERE), True, f"directory {NOT_HERE}"),
        (replace(SEEN, left_out=("/data/d2",)), (HERE,), True, "not every log dir"),
        (SEEN, (HERE,), False, "not every log dir"),
        (replace(SEEN, log_dirs={LOG_DIR: log_dir(health=Health.OFFLINE)}), (), True, LOG_DIR),
    ],
)
def test_while_one_was_not_looked_at_it_is_not(
    known: Facts, registered: tuple[str, ...], whole: bool, why: str
) -> None:
    result, fact = answer(known, *registered, whole=whole)
    assert result == "offline" and why in fact
