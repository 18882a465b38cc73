"""`restore --replace` killed between exchange and last rename: `check` and `status` say so until it is made good."""

from __future__ import annotations

import os
from pathlib import Path

from tests.disk.daemons import DaemonProcess
from tests.disk.killed import HEX, KILL, SCENARIOS, in_process, under_strace
from tests.needs import need_command
from tests.waiting import wait_until

STRAY = f"orders-0.{HEX}-stray"


def cut_short(root: Path) -> int:
    """A log dir on which the exchange has happened and what was displaced bears the other's stray name; its inode."""
    own = SCENARIOS["replace"].prepare(root)
    displaced = (root / "d1" / "orders-0").stat().st_ino
    under_strace(root, own, "-o", os.devnull, "-e", "trace=renameat2", "-e", f"inject=renameat2:{KILL}:when=2")
    assert (root / "d1" / STRAY).stat().st_ino == displaced, "the exchange happened, and nothing after it"
    return displaced


def test_an_open_exchange_is_said_until_it_is_made_good(tmp_path: Path) -> None:
    need_command("strace")
    displaced = cut_short(tmp_path)
    path = str(tmp_path / "d1" / STRAY)
    _, document = in_process(tmp_path, ["check"])
    (finding,) = (f for f in document["findings"] if f["code"] == "open-exchange")
    assert finding["path"] == path and "orders-0 is restored" in finding["says"] and finding["hint"]
    with DaemonProcess.of(tmp_path, tmp_path / "d1", settings={"CLEANUP__MODE": "report"}) as daemon:
        wait_until(lambda: daemon.status().get("open_exchanges") == [path], "its status says so")
        daemon.end()
    # Whoever acts makes it good first.
    in_process(tmp_path, ["cleanup", "--execute"])
    assert not (tmp_path / "d1" / STRAY).exists()
    assert displaced in {p.stat().st_ino for p in (tmp_path / "d1").glob("orders-0.*-stray")}
    _, document = in_process(tmp_path, ["check"])
    assert [f for f in document["findings"] if f["code"] == "open-exchange"] == []
