"""One damage: check's word about it, what a real start makes of it, and whether the cure that check names is one."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from logagent.cli import run as logagent
from tests.broker.check.starts import Prepared, RealDisk, outcome
from tests.damages.disk import CONFIGURATION, NOBODY, Disk
from tests.damages.row import Answer, Damage, Outcome, findings
from tests.long_form import FULL

# Longer than any start that goes well. The long form has many that hang, and nothing beside it.
_HUNG_SECONDS = 45 if FULL else 120


@dataclass(frozen=True)
class Tried:
    """`came`: of a start, and what check had said before it. `cured`: what a start made of the disk after the cure, if
    one was tried. `log`: the end of the broker's output."""

    damage: Damage
    came: Answer
    cured: Outcome | None
    log: str

    @property
    def agrees(self) -> bool:
        """Nothing fatal that starts, nothing fine that does not, and the right remedy. (A log dir that is not there is
        for the table to say: a broker in ZooKeeper mode makes it.)"""
        return (self.came.outcome is Outcome.STARTS) != bool(self.came.fatal) and self.cured in (None, Outcome.STARTS)

    def differs(self, answer: Answer | None) -> list[str]:
        """What is otherwise than the table says (None: nothing yet), or than check says."""
        told = []
        if answer is not None and self.came.found != answer.found:
            told.append(f"check found {words(self.came.found)} instead of {words(answer.found)}")
        if answer is not None and not as_written(self.came.outcome, answer.outcome):
            told.append(f"the start {self.came.outcome} where it {answer.outcome}")
        if not self.agrees:
            cured = f", after its cure {self.cured}" if self.cured is not None else ""
            told.append(f"the start {self.came.outcome}{cured}, and check found {words(self.came.found)}")
        return told


def words(found: tuple[str, ...]) -> str:
    return " ".join(found) or "nothing"


def as_written(came: Outcome, written: Outcome) -> bool:
    return came is written or (written is Outcome.FAILS and came is not Outcome.STARTS)


def try_damage(prepared: Prepared, damage: Damage, version: str, *, cures: bool = True) -> Tried:
    with prepared.disk() as disk:
        damage.do(disk)
        found = findings(checked(disk, version, unprivileged=prepared.kind == "unprivileged"))
        came = _came(disk, damage)
        log = disk.node.log_text()
    cured = None
    if cures and came is not Outcome.STARTS and damage.cure is not None:
        with prepared.disk() as disk:
            damage.do(disk)
            damage.cure(disk)
            cured = outcome(disk, timeout=_HUNG_SECONDS)
    return Tried(damage, Answer(came, found), cured, log)


def _came(disk: RealDisk, damage: Damage) -> Outcome:
    """What comes of a start; of the last one, if what the first did shows only then."""
    for _ in range(damage.starts - 1):
        outcome(disk, damage.patience, write=damage.write, timeout=_HUNG_SECONDS + damage.patience)
        disk.node.stop()
    return outcome(disk, damage.patience, write=damage.write, timeout=_HUNG_SECONDS + damage.patience)


def checked(disk: Disk, version: str, *, unprivileged: bool = False) -> tuple[dict[str, Any], ...]:
    """The findings of `logagent check` for the node of `disk`."""
    config = disk.root.parent / "logagent.toml"
    config.write_text(CONFIGURATION)
    arguments = ["check", "--json", "--kafka-config", str(disk.node.config), "--config", str(config)]
    arguments += ["--state-dir", str(disk.root.parent / "state"), "--kafka-version", version]
    arguments += ["--broker-user", str(NOBODY)] if unprivileged else []
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        logagent(arguments)
    found: list[dict[str, Any]] = json.loads(output.getvalue())["findings"]
    return tuple(found)
