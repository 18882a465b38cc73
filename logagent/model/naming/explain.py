"""What a directory name means: the document `logagent.explain/1`."""

from __future__ import annotations

from typing import Final, TypedDict

from logagent.model.naming.names import classify
from logagent.model.records import Kind

SCHEMA: Final = "logagent.explain/1"


class Explanation(TypedDict):
    """`valid`: a broker that finds a directory of this name in a log dir starts; `error` says why it does not."""

    schema: str
    name: str
    kind: str
    topic: str | None
    partition: int | None
    uuid: str | None
    topic_truncated: bool
    valid: bool
    error: str | None


def explain(name: str) -> Explanation:
    """What Kafka reads in `name` (`names.classify`); never raises.

    `remote-log-index-cache` is valid although Kafka's parser would refuse it: the broker passes over that directory.
    `topic_truncated` is `ParsedName.truncated`: the topic may be a prefix only.
    """
    parsed = classify(name)
    return Explanation(
        schema=SCHEMA,
        name=name,
        kind=parsed.kind.value,
        topic=parsed.topic,
        partition=parsed.partition,
        uuid=parsed.uuid,
        topic_truncated=parsed.truncated,
        valid=parsed.kind is not Kind.INVALID,
        error=parsed.error,
    )
