"""Which topic names are legal, internal, or collide (Kafka's `org.apache.kafka.common.internals.Topic`)."""

from __future__ import annotations

import re
from typing import Final

MAX_TOPIC: Final = 249
"""The longest legal topic name, in characters."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that Kafka itself creates. `__cluster_metadata` is not one of them: it is the metadata log, never touched."""

REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
"""Says where the remote segments of all tiered topics are (`REMOTE_LOG_METADATA_TOPIC_NAME`)."""

NEVER_DELETED: Final = frozenset({REMOTE_LOG_METADATA, "__cluster_metadata"})
"""Topics of which nothing is ever deleted on request."""

_LEGAL_CHARS: Final = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic(topic: str) -> None:
    """Raise ValueError with Kafka's own message if `topic` is not a legal name (`Topic.validate`)."""
    problem = _problem(topic)
    if problem is not None:
        raise ValueError(f"Topic name is invalid: {problem}")


def is_valid_topic(topic: str) -> bool:
    """`Topic.isValid`."""
    return _problem(topic) is None


def is_internal(topic: str) -> bool:
    """`Topic.isInternal`: one of `INTERNAL_TOPICS`, by the exact name."""
    return topic in INTERNAL_TOPICS


def has_collision_chars(topic: str) -> bool:
    """`Topic.hasCollisionChars`: metric names turn `.` into `_`, so topics with either may look the same."""
    return "." in topic or "_" in topic


def collides(topic: str, other: str) -> bool:
    """`Topic.hasCollision`: the two topics have the same name in metrics."""
    return topic.replace(".", "_") == other.replace(".", "_")


def _problem(topic: str) -> str | None:
    if not topic:
        return "the empty string is not allowed"
    if topic in (".", ".."):
        return f"'{topic}' is not allowed"
    # Java counts UTF-16 units; this decides which of the next two messages applies.
    if len(topic) + sum(character > "\uffff" for character in topic) > MAX_TOPIC:
        return f"the length of '{topic}' is longer than the max allowed length {MAX_TOPIC}"
    if _LEGAL_CHARS.fullmatch(topic) is None:
        return f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
