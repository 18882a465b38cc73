"""Whose a directory would be under its current name: asked before it is restored, as it is before one is taken away.

A name says nothing about an incarnation. An old one under its name again displaces the living one, and the topic serves
nothing; a copy whose partition is led elsewhere is truncated to what that leader has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logagent.model.assignments.covered import EpochEnd, LogLook, covers, why_not_covered
from logagent.model.assignments.image import AssignmentImage, PartitionAssignment
from logagent.model.planning.plan import Refusal
from logagent.model.records import PartitionDir


@dataclass(frozen=True, slots=True)
class Asked:
    """What the operator asked for in words. `topic`: the full name of a cut one that the journal does not know."""

    replace: bool = False
    even_last_copy: bool = False
    leader_will_truncate: bool = False
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class CopyLook:
    """A directory on its way back, as its disk shows it.

    `rebuild_some` and `rebuild_all`: bytes that the broker reads to rebuild the indexes that need it, and all of them.
    `without_log`: index files whose `.log` is gone.
    """

    log: LogLook
    rebuild_some: int = 0
    rebuild_all: int = 0
    without_log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has what, by the first usable source (`image`, None where there is none), asked by broker `node_id`.

    `leaders`: by (log dir, name) where the leader of the partition ends the directory's last leader epoch.
    """

    image: AssignmentImage | None = None
    node_id: int | None = None
    leaders: Mapping[tuple[str, str], EpochEnd] = field(default_factory=dict)

    def refuses(
        self, d: PartitionDir, topic: str, there: PartitionDir | None, copy: CopyLook, asked: Asked, *, undone: bool
    ) -> Refusal | None:
        """Why `d` does not come back as a partition of `topic`; `there`: what it displaces.

        `undone`: it was renamed by us and nothing took its place since, so that it comes back to where it was.
        """
        return self._another(d, topic, there) or self._truncated(d, topic, copy.log, asked, undone=undone)

    def says(self, d: PartitionDir, topic: str) -> str:
        """What the operator has to know of one that is not refused; empty, or words that go on after a reason."""
        if self.image is None:
            return " (whose it is cannot be told: no assignments)"
        if self._assigned(d, topic) is None:
            return " (it is not assigned to this broker: from 3.7 on it sets it aside again, under a new name)"
        return ""

    def _another(self, d: PartitionDir, topic: str, there: PartitionDir | None) -> Refusal | None:
        mine = d.topic_id or "no topic id"
        if self.image is None:
            if there is None or (there.topic_id is not None and there.topic_id == d.topic_id):
                return None
            fact = f"it has {mine}, and {there.name} has {there.topic_id or 'none'}; there are no assignments to ask"
            return _refuse(d, fact, "give usable assignments (logagent assignments show)")
        living = self.image.by_name.get(topic)
        if living is not None and living.topic_id != d.topic_id:
            fact = f"topic {topic} lives with {living.topic_id or 'no topic id'}; this directory has {mine}"
            return _refuse(d, fact, "it belongs to another incarnation of that topic; copy its records by other means")
        lives_as = self.image.by_id.get(d.topic_id) if d.topic_id is not None else None
        if lives_as is not None and lives_as.name != topic:
            return _refuse(d, f"its topic id is that of topic {lives_as.name}", "check its name (--topic-name)")
        return None

    def _truncated(self, d: PartitionDir, topic: str, log: LogLook, asked: Asked, *, undone: bool) -> Refusal | None:
        partition = self._assigned(d, topic)
        others = [node for node in partition.isr if node != self.node_id] if partition is not None else []
        answer = self.leaders.get((d.log_dir, d.name))
        if not others or asked.leader_will_truncate or (answer is None and undone):
            return None
        if answer is not None and covers(answer, log):
            return None
        elsewhere = ", ".join(map(str, others))
        fact = f"its partition is in sync on node {elsewhere}, and that leader would truncate it:"
        fact += f" {why_not_covered(log, (answer,) if answer is not None else ())}"
        hint = "add --leader-will-truncate if what the leader does not have may go; else stop the other replicas first"
        return _refuse(d, fact, hint)

    def _assigned(self, d: PartitionDir, topic: str) -> PartitionAssignment | None:
        living = self.image.by_name.get(topic) if self.image is not None else None
        partition = living.partitions.get(d.partition) if living is not None and d.partition is not None else None
        return partition if partition is not None and self.node_id in partition.replicas else None


def _refuse(d: PartitionDir, fact: str, hint: str) -> Refusal:
    return Refusal(d.log_dir, d.name, "assigned", fact, hint, d.bytes)
