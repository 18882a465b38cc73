"""What is known of the KRaft quorum beside the metadata log: `quorum-state` and the control records.

Needed for one question only: which records are committed (`logagent.model.assignments.commitment`).
Whatever cannot be read therefore means "not known", which holds verdicts back, and is no error of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum

from logagent.broker.metadata_log.records import Reader
from logagent.errors import UnreadableError


class ControlType(IntEnum):
    """Kafka's `ControlRecordType`, as far as a metadata log has them."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class QuorumState:
    """`quorum-state` of this node (`FileQuorumStateStore`); None where the file does not say."""

    leader_id: int | None = None
    voters: int | None = None


def parse_quorum_state(text: bytes | None) -> QuorumState:
    """Versions 0 and 1 of the file; version 1 (dynamic quorums) has no voters. Anything else says nothing."""
    if text is None:
        return QuorumState()
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return QuorumState()
    if not isinstance(state, dict) or state.get("data_version") not in (0, 1):
        return QuorumState()
    leader, voters = state.get("leaderId"), state.get("currentVoters")
    return QuorumState(
        leader_id=leader if isinstance(leader, int) else None,
        voters=len(voters) if isinstance(voters, list) and voters else None,
    )


def control_type(key: bytes | None) -> int:
    """Type of a control record by its key (version, type); `UnreadableError` if it is no such key."""
    if key is None or len(key) != 4:
        raise UnreadableError("a control record has no proper key")
    return int.from_bytes(key[2:], "big", signed=True)


def snapshot_time_ms(value: bytes | None) -> int:
    """`LastContainedLogTimestamp` of a snapshot header: the time of the newest record that it covers."""
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
    """Number of voters, by the order of what is to be believed (newest `KRaftVoters` first)."""

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
