"""Names that brokers before 2.2.2 cannot mark: warned of before the deletion, fatal once it was tried."""

from __future__ import annotations

import pytest

from logagent.advice.check.rules.linter import check
from logagent.advice.check.rules.start_facts import Mode, StartFacts, StartLogDirFacts, StartServerFacts
from logagent.advice.finding import Severity
from logagent.base.kafka_version import Version
from logagent.base.records import DirKey, Health, Holder, HolderState
from tests.damages.facts import directory, meta, seen

LONG, GOES = "l" * 214 + "-0", "g" * 213 + "-0"
BROKER = Holder(HolderState.HELD, 7)
SHOWN = {DirKey("/d1", LONG): "/opt/kafka/logs/server.log"}


def severities(
    version: Version | None = (2, 1, 0),
    where: StartLogDirFacts | None = None,
    names: tuple[str, ...] = (LONG, GOES),
    failed: dict[DirKey, str] | None = None,
    about_to_start: bool = False,
) -> list[tuple[Severity, str]]:
    old = meta(version=0, cluster_id=None, directory_id=None)
    facts = StartFacts(
        server=StartServerFacts(mode=Mode.ZOOKEEPER, node_id=1, log_dirs_text="/d1"),
        log_dirs=(where or seen(meta=old),),
        dirs=tuple(directory(name, topic_id=None) for name in names),
        failed_marks=failed or {},
        about_to_start=about_to_start,
    )
    return [(f.severity, f.path) for f in check(facts, version) if f.why.code == "too-long-to-delete"]


def test_a_name_that_is_too_long_is_a_warning_until_2_2_2() -> None:
    assert severities() == severities((2, 2, 1)) == [(Severity.WARNING, f"/d1/{LONG}")]
    assert severities((2, 2, 2)) == severities((2, 3, 0)) == severities((4, 3, 1)) == severities(None) == []


@pytest.mark.parametrize("names", [(LONG,), ()])
def test_the_log_makes_it_fatal_also_where_somebody_took_the_directory_away(names: tuple[str, ...]) -> None:
    assert severities(names=names, failed=SHOWN) == [(Severity.FATAL, f"/d1/{LONG}")]
    assert severities((3, 5, 2), names=names, failed=SHOWN) == []


def test_right_before_a_start_it_is_a_warning_because_the_marker_may_be_gone() -> None:
    """A `prestart --strict` would hold back the start that the second cure calls for."""
    assert severities(failed=SHOWN, about_to_start=True) == [(Severity.WARNING, f"/d1/{LONG}")]


def test_where_the_broker_has_the_log_dir_now_an_older_failure_is_over() -> None:
    serves = seen(holder=BROKER, holder_is_broker=True)
    assert severities(where=serves, failed=SHOWN) == [(Severity.WARNING, f"/d1/{LONG}")]


def test_a_log_dir_that_the_running_broker_gave_up_shows_it_too() -> None:
    given_up = seen(given_up_by=7, health=Health.OFFLINE)
    assert severities(where=given_up) == [(Severity.FATAL, f"/d1/{LONG}")]
    assert severities(where=given_up, names=(GOES,)) == []
