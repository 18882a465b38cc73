"""What a lower `retention.ms` on the largest topics would free on this host. Only a broker can apply it.

Computed as Kafka does (`UnifiedLog.deleteRetentionMsBreachedSegments`): whole segments, oldest first, as long as the
largest timestamp is older than the retention; the active segment stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

HOUR_MS = 3_600_000
# Offered from the longest to the shortest.
STEPS_MS = tuple(hours * HOUR_MS for hours in (7 * 24, 3 * 24, 24, 12, 6, 1))
LARGEST_TOPICS = 5


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A closed segment: bytes of its `.log` on disk, and its largest timestamp in ms."""

    bytes: int
    largest_ms: int


@dataclass(frozen=True, slots=True)
class CleanupPolicies:
    """`cleanup.policy` of the topics that have their own, and the broker's default for the others (None: unknown)."""

    by_topic: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def of(self, topic: str) -> str | None:
        """As Kafka lists it: `delete`, `compact`, or both with a comma."""
        return self.by_topic.get(topic, self.default)

    def keeps_all(self, topic: str) -> bool:
        """Whether retention is known to free nothing of `topic`: its policy has no `delete` (`LogConfig.delete`)."""
        policy = self.of(topic)
        return policy is not None and "delete" not in (word.strip() for word in policy.split(","))


UNKNOWN_POLICIES = CleanupPolicies()


@dataclass(frozen=True, slots=True)
class RetentionAdvice:
    """`gives_back`: for each retention in ms (longest first), the bytes on this host that are older. `retention_ms`:
    the one to set. `policy`: its `cleanup.policy`; where that is unknown (None) it may free nothing."""

    topic: str
    bytes: int
    retention_ms: int
    gives_back: Mapping[int, int]
    policy: str | None = None

    @property
    def command(self) -> str:
        """The `kafka-configs.sh` command that sets it; topic names need no quoting in a shell."""
        return (
            "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics"
            f" --entity-name {self.topic} --add-config retention.ms={self.retention_ms}"
        )


def advise(
    topics: Mapping[str, Sequence[Iterable[SegmentAge]]],
    sizes: Mapping[str, int],
    now_ms: int,
    need: int | None,
    policies: CleanupPolicies = UNKNOWN_POLICIES,
) -> list[RetentionAdvice]:
    """Advice for each topic (with its partitions' closed segments) that could free anything, the largest gain first.
    The suggested retention is the longest that frees `need`; if none does, the shortest that frees anything; if `need`
    is None, the longest that frees anything."""
    found: list[RetentionAdvice] = []
    for topic, partitions in topics.items():
        logs = [list(segments) for segments in partitions]
        gives = {step: sum(_older(log, now_ms - step) for log in logs) for step in STEPS_MS}
        useful = [step for step in STEPS_MS if gives[step] > 0]
        if not useful:
            continue
        enough = [step for step in useful if need is not None and gives[step] >= need]
        chosen = enough[0] if enough else useful[-1] if need is not None else useful[0]
        found.append(RetentionAdvice(topic, sizes.get(topic, 0), chosen, gives, policies.of(topic)))
    return sorted(found, key=lambda a: (-a.gives_back[a.retention_ms], a.topic))


def _older(log: Sequence[SegmentAge], than_ms: int) -> int:
    total = 0
    for segment in log:
        if segment.largest_ms >= than_ms:
            break
        total += segment.bytes
    return total
