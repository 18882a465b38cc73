"""The wall clock is set by eight days between two cycles, as far as a process can tell: what it is compared with is
the kernel's clock since boot, and that one is moved (`time_namespaces(7)`). Nothing of ours is replaced.

What `--trust-clock` makes of ages cannot be shown like this: times on disk do not move with the clock since boot.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logagent.base.units import DAY_MS
from logagent.kafka.image import PartitionAssignment, Topic
from tests.disk.killed import HEX, SETTINGS, assignments, lay_out
from tests.host_files import whole_partition
from tests.needs import need_command, need_root

EIGHT_DAYS = str(8 * DAY_MS // 1000)
STRAY = f"gone-0.{HEX}-stray"


def run(root: Path, *own: str, ahead: bool) -> tuple[int, dict[str, Any]]:
    """A command, on a host that is up for eight days more than this one (`ahead`) or not."""
    apart = ["unshare", "--time", "--fork", "--boottime", EIGHT_DAYS] if ahead else []
    # What is known of the cluster is always of this moment.
    known = assignments(root, Topic("elsewhere", "ElseElseElseElseElseEA", {0: PartitionAssignment((1,), (1,))}))
    where = ["--json", "--log-dir", str(root / "d1"), "--state-dir", str(root / "state"), *known]
    command = [*apart, sys.executable, "-m", "logagent", own[0], *where, *own[1:]]
    done = subprocess.run(command, env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"said": done.stderr}


# Eight days are 11,520 minutes; the machine's own clock may have been slewed by a little between the two commands.
@pytest.mark.parametrize(
    ("first_ahead", "by"), [(True, r"115(19|20|21)"), (False, r"-115(19|20|21)")], ids=["forward", "back"]
)
def test_nothing_is_due_until_the_drift_is_gone(tmp_path: Path, first_ahead: bool, by: str) -> None:
    need_root()
    need_command("unshare")
    lay_out(tmp_path)
    stray = tmp_path / "d1" / STRAY
    status, document = run(tmp_path, "cleanup", "--execute", ahead=first_ahead)
    assert status in (0, 3), document
    # Its retention is over at once.
    whole_partition(stray, "EEEEEEEEEEEEEEEEEEEEEA")
    for command in (("cleanup", "--execute"), ("prestart", "--budget", "60s")):
        status, document = run(tmp_path, *command, ahead=not first_ahead)
        waiting = document.get("plan", document)["waiting"]
        why = next(w["reason"] for w in waiting if w["name"] == STRAY)
        assert re.match(f"the wall clock was set by {by} minutes", why), why
        assert stray.is_dir()
    run(tmp_path, "cleanup", "--execute", ahead=first_ahead)
    assert not stray.exists()
