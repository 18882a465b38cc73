"""Checks who owns a directory before it is restored under its current name, as is done before one is deleted.

A name does not identify a topic's incarnation. A restored directory of an old incarnation would displace the living
one, and the topic would serve nothing; a copy whose partition is led elsewhere is truncated to what that leader has;
and what is not assigned to it, a KRaft broker before 3.7 deletes at its next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logagent.model.assignments.covered import EpochEnd, LogLook, covers, why_not_covered
from logagent.model.assignments.image import AssignmentImage, PartitionAssignment
from logagent.model.health.kafka_version import Doubt
from logagent.model.planning.first_check import FirstCheck
from logagent.model.planning.plan import Refusal
from logagent.model.records import PartitionDir


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What the operator asked for explicitly. `topic`: the full name of a truncated topic that the journal lacks."""

    replace: bool = False
    even_last_copy: bool = False
    leader_will_truncate: bool = False
    broker_will_delete: bool = False
    topic: str | None = None
    retention_will_delete: bool = False


@dataclass(frozen=True, slots=True)
class CopyLook:
    """A directory to be restored, as found on disk.

    `rebuild_some`, `rebuild_all`: bytes that the broker reads to rebuild the indexes that need it, or all of them.
    `without_log`: index files whose `.log` is missing. `deleted`: files below the first segment that a broker was about
    to unlink. `log_start_back`: the log start offset that is restored with it (0: none); then `standing` is the log of
    the current directory of its name. `first_check`: what retention deletes of it as soon as a broker has loaded it.
    `segments`: base offset and bytes of each, in order.
    """

    log: LogLook
    rebuild_some: int = 0
    rebuild_all: int = 0
    without_log: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    log_start_back: int = 0
    standing: LogLook | None = None
    first_check: FirstCheck | None = None
    segments: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Assignments as seen by broker `node_id`. `image`: the first usable source, None if there is none.

    `leaders`: by (log dir, name), the partition leader's end offset for the directory's last leader epoch.
    `deletes_unassigned`: this broker may delete, at its start, every log that is not assigned to it (`deletes_strays`).
    `version_doubt`: what contradicts the version that would not. `zookeeper`: it runs in ZooKeeper mode, and loads
    every log.
    """

    image: AssignmentImage | None = None
    node_id: int | None = None
    leaders: Mapping[tuple[str, str], EpochEnd] = field(default_factory=dict)
    deletes_unassigned: bool = False
    version_doubt: Doubt | None = None
    zookeeper: bool = False

    def refuses(
        self,
        d: PartitionDir,
        topic: str,
        there: PartitionDir | None,
        copy: CopyLook,
        options: RestoreOptions,
        *,
        undone: bool,
    ) -> Refusal | None:
        """Why `d` cannot be restored as a partition of `topic`; None if it can. `there`: what it would displace.

        `undone`: we renamed it and nothing took its place since, so the restore only undoes that.
        """
        return (
            self._other_incarnation(d, topic, there)
            or self._would_be_deleted(d, topic, options)
            or self._would_be_truncated(d, topic, copy.log, options, undone=undone)
            or self._would_expire(d, topic, copy, options)
            or self._gone_at_leader(d, topic, copy, options)
        )

    def says(self, d: PartitionDir, topic: str) -> str:
        """A remark for the operator on a restore that is not refused: empty, or text to append to a reason."""
        if self.image is None:
            return " (no assignments, so its owner is unknown)"
        if self._assigned(d, topic) is not None:
            return ""
        if not self.image.complete and topic not in self.image.by_name:
            return " (the assignments do not list its topic, and may not list every topic)"
        return " (it is not assigned to this broker: from 3.7 on, the broker sets it aside again under a new name)"

    def expires(self, d: PartitionDir, topic: str, copy: CopyLook) -> FirstCheck | None:
        """What retention deletes, or may delete, of `d` once it is restored; None if nothing."""
        return copy.first_check if self._would_be_loaded(d, topic) else None

    def _other_incarnation(self, d: PartitionDir, topic: str, there: PartitionDir | None) -> Refusal | None:
        mine = d.topic_id or "no topic id"
        living = self.image.by_name.get(topic) if self.image is not None else None
        if living is None and there is not None and (there.topic_id is None or there.topic_id != d.topic_id):
            fact = f"it has {mine}, and {there.name} has {there.topic_id or 'none'};"
            if self.image is None:
                fact += " there are no assignments to check"
            else:
                fact += f" the assignments do not list topic {topic}"
            return _refuse(d, fact, "provide assignments that list the topic (logagent assignments show)")
        if self.image is None:
            return None
        if living is not None and living.topic_id != d.topic_id:
            fact = f"topic {topic} now exists with {living.topic_id or 'no topic id'}; this directory has {mine}"
            return _refuse(d, fact, "it belongs to another incarnation of that topic; copy its records by other means")
        lives_as = self.image.by_id.get(d.topic_id) if d.topic_id is not None else None
        if lives_as is not None and lives_as.name != topic:
            return _refuse(d, f"its topic id is that of topic {lives_as.name}", "check its name (--topic-name)")
        return None

    def _would_be_deleted(self, d: PartitionDir, topic: str, options: RestoreOptions) -> Refusal | None:
        if not self.deletes_unassigned or options.broker_will_delete or self._assigned(d, topic) is not None:
            return None
        assigned = "it is not assigned to this broker" if self.image is not None else "no assignments say whose it is"
        fact = f"{assigned}, and before 3.7 a KRaft broker deletes what is not assigned to it when it starts"
        hint = (
            "provide assignments that name this broker, or set kafka.version if it is newer; or copy the directory and "
            "add --broker-will-delete"
        )
        if self.version_doubt is not None:
            fact += f" ({self.version_doubt.fact})"
            hint = f"{self.version_doubt.hint}; or copy the directory and add --broker-will-delete"
        return _refuse(d, fact, hint)

    def _would_be_truncated(
        self, d: PartitionDir, topic: str, log: LogLook, options: RestoreOptions, *, undone: bool
    ) -> Refusal | None:
        partition = self._assigned(d, topic)
        if partition is None or options.leader_will_truncate:
            return None
        # Without an in-sync replica any other one may be elected (KIP-966, or uncleanly).
        others = [node for node in partition.isr or partition.replicas if node != self.node_id]
        answer = self.leaders.get((d.log_dir, d.name))
        if not others or (answer is None and undone and self.node_id in partition.isr):
            return None
        if answer is not None and covers(answer, log):
            return None
        elsewhere = ", ".join(map(str, others))
        in_sync = f"its partition is in sync on node {elsewhere}, and that leader would truncate it:"
        none = f"no replica of its partition is in sync, and node {elsewhere} may become its leader and truncate it:"
        fact = f"{in_sync if partition.isr else none} {why_not_covered(log, (answer,) if answer is not None else ())}"
        hint = (
            "add --leader-will-truncate if you can lose what the leader does not have; otherwise stop the "
            "other replicas first"
        )
        return _refuse(d, fact, hint)

    def _would_expire(self, d: PartitionDir, topic: str, copy: CopyLook, options: RestoreOptions) -> Refusal | None:
        check = self.expires(d, topic, copy)
        if check is None or options.retention_will_delete:
            return None
        return Refusal(d.log_dir, d.name, "policy", check.fact, check.hint, d.bytes, check.command)

    def _gone_at_leader(self, d: PartitionDir, topic: str, copy: CopyLook, options: RestoreOptions) -> Refusal | None:
        """A follower deletes the segments below its leader's log start, and begins anew if it ends below it."""
        answer = self.leaders.get((d.log_dir, d.name))
        if answer is None or answer.log_start is None or options.retention_will_delete:
            return None
        ends = [*(base for base, _ in copy.segments[1:]), copy.log.log_end]
        sizes = [size for _, size in copy.segments]
        goes = sum(n for n, end in zip(sizes, ends, strict=False) if end is not None and end <= answer.log_start)
        if not goes or self._assigned(d, topic) is None:
            return None
        what = f"all its {goes} bytes" if goes == sum(sizes) else f"{goes} of its {sum(sizes)} bytes"
        fact = f"the log of {answer.where} begins at offset {answer.log_start}, and a follower deletes what is older:"
        hint = (
            "copy the directory elsewhere, or stop the other replicas first; if it may go, add --retention-will-delete"
        )
        return Refusal(d.log_dir, d.name, "policy", f"{fact} {what}", hint, d.bytes)

    def _would_be_loaded(self, d: PartitionDir, topic: str) -> bool:
        """Whether the broker may keep it under its name. In KRaft mode not what is known not to be assigned to it: that
        is set aside again, or deleted as a whole (`_would_be_deleted`)."""
        if self.zookeeper or self.image is None or self._assigned(d, topic) is not None:
            return True
        return not self.image.complete and topic not in self.image.by_name

    def _assigned(self, d: PartitionDir, topic: str) -> PartitionAssignment | None:
        living = self.image.by_name.get(topic) if self.image is not None else None
        partition = living.partitions.get(d.partition) if living is not None and d.partition is not None else None
        return partition if partition is not None and self.node_id in partition.replicas else None


def _refuse(d: PartitionDir, fact: str, hint: str) -> Refusal:
    return Refusal(d.log_dir, d.name, "assigned", fact, hint, d.bytes)
