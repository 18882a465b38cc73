"""A host for tests of the command line: a real broker's disk, a configuration and a state dir of its own."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import LOCKER, Ran, process, run_apart, run_here
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete

__all__ = ["ALL_DUE", "FREELY", "LOCKER", "NO_LIMITS", "Ran", "delete", "process", "run_apart", "run_here"]


class CliHost(Host):
    """The disk `name` of tests/fixtures/disks below `root`, with `logagent.toml` and a state dir that is not there."""

    def __init__(self, root: Path, name: str = "3.9.1/node3-dir-returned") -> None:
        super().__init__(root, root / "host" / "d1", root / "host" / "d2")
        self._extract(name)
