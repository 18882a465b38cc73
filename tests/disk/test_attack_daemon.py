"""Attacks on the daemon over real directories, each of which once lost something, hurt a broker or lied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.agent.session import Session
from logagent.agent.ticks import Cycles
from logagent.model.facts import Facts
from logagent.model.names import delete_name
from tests.disk.failing import DIRECTORY_IDS, format_log_dir, partition
from tests.disk.sessions import Host
from tests.publish_host import Publishing

HEX = "0123456789abcdef" * 2


class Listener:
    """Hears of an inventory, where the test wants to do something just then."""

    def __init__(self, inventory_taken: Callable[[], None] = lambda: None) -> None:
        self._taken = inventory_taken

    def inventory_taken(self, session: Session, facts: Facts) -> None:
        self._taken()

    def planned(self, *_: object) -> None:
        pass

    def executed(self, *_: object) -> None:
        pass


def cycles(host: Host, listener: Listener | None = None) -> Cycles:
    return Cycles(
        target=host.target,
        settings=host.settings,
        clock=host.clock,
        state_dir=str(host.state),
        listener=listener or Listener(),
        stop=lambda: False,
        aborting=lambda: False,
        failures=host.failures,
        calls=host.calls,
        known=host.known,
    )


def test_the_source_of_a_move_waits_for_a_target_that_is_not_mounted(tmp_path: Path) -> None:
    """After a reboot a dead disk is an empty mount point, and not offline."""
    source, target = format_log_dir(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    only_copy = partition(source, delete_name("orders", 0, HEX))
    host = Host(tmp_path / "state", source, target)
    host.round()
    life = cycles(host)
    for summary in (life.queue(), life.cleanup()):
        assert (summary.error, summary.planned, summary.waiting) == (None, 0, 1)
    assert only_copy.is_dir()
    format_log_dir(target, DIRECTORY_IDS[1])
    assert life.queue().results == {("remove", "done"): 1}


@pytest.mark.parametrize("store", ["the log dir", "a directory in it", "a symlink to it", "offline"])
def test_nothing_is_published_into_a_log_dir(store: str, tmp_path: Path) -> None:
    """Kafka does not start with a directory such as `landing` in a log dir."""
    link = tmp_path / "link"
    publishing = Publishing(tmp_path, link if store == "a symlink to it" else tmp_path / "host" / "d1")
    d1 = publishing.host.d1
    if store == "a directory in it":
        publishing.store = (
            d1 / "orders-0" if (d1 / "orders-0").is_dir() else next(d for d in d1.iterdir() if d.is_dir())
        )
        publishing.publisher = publishing.started()
    if store == "offline":
        d1.rename(tmp_path / "elsewhere")
    link.symlink_to(d1)
    publishing.look()
    if store == "offline":
        (tmp_path / "elsewhere").rename(d1)
    before = sorted(d1.rglob("*"))
    told = publishing.publisher.send()
    assert told.sent == 0 and told.waiting
    assert told.error is not None and f"lies in the log dir {d1}" in told.error
    assert sorted(d1.rglob("*")) == before
