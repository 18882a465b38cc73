"""Which brokers serve and which may still be starting: gathers the facts for `model.health.serving`, and remembers
them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from logagent.agent.evidence.assignment_sources import Assignments
from logagent.errors import LogAgentError
from logagent.host.inventory.scan import LogDirInventory
from logagent.host.linux.syscalls import born_ms
from logagent.host.log_dir.calls import DiskCalls
from logagent.host.log_dir.log_dir import OpenLogDir
from logagent.host.state.journal import Journal
from logagent.model.facts import LogDirFacts
from logagent.model.health.serving import SeenHolder, first_held, has_all_open, locked_by_ms, mark_serving
from logagent.model.records import HolderState, PartitionDir


@dataclass(frozen=True, slots=True)
class ServingQuestions:
    """`inventories`: only of whole log dirs; empty if fewer directories were looked at. `acting`: observations are
    noted in the journal."""

    journal: Journal
    opened: Mapping[str, OpenLogDir]
    calls: DiskCalls
    inventories: Mapping[str, LogDirInventory]
    assignments: Assignments
    node_id: int | None
    settle_ms: int
    acting: bool
    now_ms: int

    def tell(self, log_dirs: dict[str, LogDirFacts]) -> dict[str, LogDirFacts]:
        """`log_dirs`, with serving brokers distinguished from those that may still be starting."""
        if all(f.holder.state is not HolderState.STARTING for f in log_dirs.values()):
            return log_dirs
        known, held_before = self.journal.serving(), self.journal.holding()
        held = first_held(log_dirs, held_before, self.now_ms)
        told, noted = mark_serving(log_dirs, known, partial(self._seen, held), self.settle_ms, self.now_ms)
        if self.acting and noted != known:
            self.journal.note_serving(noted)
        if self.acting and held != held_before:
            self.journal.note_holding(held)
        return told

    def _seen(self, held: Mapping[str, SeenHolder], where: LogDirFacts) -> bool:
        inventory = self.inventories.get(where.path)
        locked_by = locked_by_ms(held.get(where.path))
        if inventory is not None and has_all_open(where, inventory.dirs, self._born_ms, locked_by, self.now_ms):
            return True
        return self.node_id is not None and self.assignments.log_dir_served(self.node_id, where.path) is True

    def _born_ms(self, d: PartitionDir) -> int | None:
        opened = self.opened.get(d.log_dir)
        if opened is None:
            return None
        looked = self.calls.looks({d.log_dir: partial(_born_ms, opened, d)})[d.log_dir]
        return None if isinstance(looked, LogAgentError) else looked


def _born_ms(log_dir: OpenLogDir, d: PartitionDir) -> int | None:
    with log_dir.acting("look", d.name):
        fd = log_dir.open_child(d.name, d.identity)
        try:
            return born_ms(fd)
        finally:
            os.close(fd)
