"""One damage: check's word about it, what a real start makes of it, and whether the cure that check names is one."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from logagent.cli.main import run as logagent
from tests.broker.check.corpus import Damage
from tests.broker.check.starts import Disk, Outcome, Prepared, outcome

# Longer than any start that goes well.
_HUNG_SECONDS = 45


@dataclass(frozen=True)
class Tried:
    """`fatal`: the codes of the fatal findings. `cured`: what a start made of the disk after the cure, if one was
    tried. `log`: the end of the broker's output."""

    damage: Damage
    outcome: Outcome
    fatal: tuple[str, ...]
    findings: tuple[dict[str, Any], ...]
    cured: Outcome | None
    log: str

    @property
    def agrees(self) -> bool:
        """Nothing fatal that starts, nothing fine that does not; told by the right finding, with the right remedy."""
        if self.outcome is Outcome.STARTS:
            return not self.fatal
        told = bool(self.fatal) and set(self.fatal) <= set(self.damage.codes)
        return told and self.cured in (None, Outcome.STARTS)


def try_damage(
    prepared: Prepared, damage: Damage, version: str, *, cures: bool = True, known: tuple[str, str | None] | None = None
) -> Tried:
    """`known`: what starts made of it before, with and without the cure; then nothing is started."""
    with prepared.disk() as disk:
        damage.do(disk)
        findings = checked(disk, version)
        came = Outcome(known[0]) if known is not None else _came(disk, damage)
        log = disk.node.log_text()
    cured = Outcome(known[1]) if known is not None and known[1] is not None else None
    if known is None and cures and came is not Outcome.STARTS and damage.cure is not None:
        with prepared.disk() as disk:
            damage.do(disk)
            damage.cure(disk)
            cured = outcome(disk, timeout=_HUNG_SECONDS)
    fatal = tuple(dict.fromkeys(f["code"] for f in findings if f["severity"] == "fatal"))
    return Tried(damage, came, fatal, findings, cured, log)


def _came(disk: Disk, damage: Damage) -> Outcome:
    """What comes of a start; of the last one, if what the first did shows only then."""
    came = outcome(disk, damage.patience, write=damage.write, timeout=_HUNG_SECONDS + damage.patience)
    for _ in range(damage.starts - 1):
        disk.node.stop()
        came = outcome(disk, damage.patience, write=damage.write, timeout=_HUNG_SECONDS + damage.patience)
    return came


def checked(disk: Disk, version: str) -> tuple[dict[str, Any], ...]:
    """The findings of `logagent check` for the node of `disk`."""
    # A disk under many tests at once may be slow, and these are not about slow disks.
    config = disk.root.parent / "logagent.toml"
    config.write_text('[health]\nprobe_timeout = "5m"\n')
    arguments = ["check", "--json", "--kafka-config", str(disk.node.config), "--config", str(config)]
    arguments += ["--state-dir", str(disk.root.parent / "state"), "--kafka-version", version]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        logagent(arguments)
    findings: list[dict[str, Any]] = json.loads(output.getvalue())["findings"]
    return tuple(findings)
