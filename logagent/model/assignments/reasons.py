"""The reasons for verdicts, as they appear in `logagent.scan/1`."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The first three are reasons for `orphan`, all others for `unknown`."""

    TOPIC_ABSENT = "topic-absent"
    TOPIC_RECREATED = "topic-recreated"
    NOT_A_REPLICA = "not-a-replica"
    WRONG_DIRECTORY = "wrong-directory"
    NO_TOPIC_ID = "no-topic-id"
    NO_ASSIGNMENTS = "no-assignments"
    STALE_ASSIGNMENTS = "stale-assignments"
    FOREIGN_CLUSTER = "foreign-cluster"
    REASSIGNING = "reassigning"
    INTERNAL = "internal"
    UNCOMMITTED = "uncommitted"
    SOURCES_DISAGREE = "sources-disagree"


ORPHAN_REASONS = frozenset({Reason.TOPIC_ABSENT, Reason.TOPIC_RECREATED, Reason.NOT_A_REPLICA})
