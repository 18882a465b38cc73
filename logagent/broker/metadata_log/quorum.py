"""Information about the KRaft quorum: `quorum-state` and the control records of the metadata log.

It is only needed to decide which records are committed (`logagent.model.assignments.commitment`). So an unreadable
`quorum-state` is not an error; it means "not known", which holds back verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from logagent.broker.metadata_log.metadata_records import Reader
from logagent.errors import UnreadableError
from logagent.files.safe_open import parse_json


class ControlType(IntEnum):
    """The members of Kafka's `ControlRecordType` that occur in metadata logs."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class QuorumState:
    """`quorum-state` of this node (`FileQuorumStateStore`); None for what the file does not say."""

    leader_id: int | None = None
    voters: int | None = None


def parse_quorum_state(text: bytes | None) -> QuorumState:
    """Parse versions 0 and 1 of the file; version 1 (dynamic quorums) has no voters. Anything else is ignored."""
    if text is None:
        return QuorumState()
    try:
        state = parse_json(text)
    except ValueError:
        return QuorumState()
    if not isinstance(state, dict) or state.get("data_version") not in (0, 1):
        return QuorumState()
    leader, voters = state.get("leaderId"), state.get("currentVoters")
    return QuorumState(
        leader_id=leader if isinstance(leader, int) else None,
        voters=len(voters) if isinstance(voters, list) and voters else None,
    )


def control_type(key: bytes | None) -> int:
    """The type of a control record from its key (version, type); `UnreadableError` if the key is malformed."""
    if key is None or len(key) != 4:
        raise UnreadableError("a control record has no proper key")
    return int.from_bytes(key[2:], "big", signed=True)


def snapshot_time_ms(value: bytes | None) -> int:
    """`LastContainedLogTimestamp` of a snapshot header: the time of the newest record that the snapshot covers."""
    if value is None:
        raise UnreadableError("the header of a snapshot is empty")
    reader = Reader(value)
    reader.int16()
    return reader.int64()


def voters_of_voters_record(value: bytes | None) -> int:
    """Number of voters in a `KRaftVotersRecord`."""
    if value is None:
        raise UnreadableError("a voters record is empty")
    reader = Reader(value)
    reader.int16()
    return reader.length()


def voters_of_leader_change(value: bytes | None) -> int:
    """Number of voters in a `LeaderChangeMessage`."""
    if value is None:
        raise UnreadableError("a leader change record is empty")
    reader = Reader(value)
    reader.int16()
    reader.int32()
    return reader.length()


@dataclass(slots=True)
class VoterCount:
    """The number of voters from several sources, the newest `KRaftVoters` record being the most reliable."""

    voters_record: int | None = None
    leader_change: int | None = None

    def see(self, kind: int, value: bytes | None) -> None:
        if kind == ControlType.KRAFT_VOTERS:
            self.voters_record = voters_of_voters_record(value)
        elif kind == ControlType.LEADER_CHANGE:
            self.leader_change = voters_of_leader_change(value)

    def number(self, quorum_state: QuorumState, configured: int | None) -> int | None:
        candidates = (self.voters_record, quorum_state.voters, self.leader_change, configured)
        return next((n for n in candidates if n), None)
