"""The settings of a topic as another broker of the cluster answers them, and what they mean for this host's broker.

A broker answers with what is in force for itself (`ConfigHelper.describeConfigs`): what the topic has of its own, or
what all brokers have in common, holds here too; what comes from its own configuration does not, and ours counts.
Decides; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from logagent.model.naming.java_numbers import parse_long
from logagent.model.planning.topic_retention import LOCAL_RETENTION, RETENTION, RETENTION_BYTES, TopicConfigs

CLEANUP_POLICY = "cleanup.policy"
TIERED, COPY_DISABLED = "remote.storage.enable", "remote.log.copy.disable"
ASKED = (CLEANUP_POLICY, RETENTION, RETENTION_BYTES, LOCAL_RETENTION, TIERED, COPY_DISABLED)


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """`own`: the topic has it itself; `common`: it is the dynamic default of all brokers."""

    value: str | None
    own: bool = False
    common: bool = False


_NONE = TopicAnswer(None)


def as_answered(topic: str, answers: Mapping[str, TopicAnswer], defaults: Sequence[TopicConfigs]) -> TopicConfigs:
    """What holds for `topic` on this host. `defaults`: the broker's own, by `server.properties` and by the metadata log
    as it was when it ended; where they differ, the one that deletes more counts."""

    def number(name: str, ours: Iterable[int | None]) -> int | None:
        answer = answers.get(name, _NONE)
        if answer.own:
            return _number(answer.value)
        return _strictest([*ours, *([_number(answer.value)] if answer.common else [])])

    def of_its_own(name: str) -> dict[str, str]:
        answer = answers.get(name, _NONE)
        return {topic: answer.value or ""} if answer.own else {}

    local = {name: _number(value) for name, value in of_its_own(LOCAL_RETENTION).items()}
    policy = _policy(answers.get(CLEANUP_POLICY, _NONE), defaults)
    return TopicConfigs(
        {topic: policy} if policy is not None else {},
        retentions_ms={topic: number(RETENTION, (d.retention_ms for d in defaults))},
        complete=True,
        tiering=replace(
            defaults[-1].tiering,
            enabled=of_its_own(TIERED),
            copy_disabled=of_its_own(COPY_DISABLED),
            local_ms=local,
        ),
        retentions_bytes={topic: number(RETENTION_BYTES, (d.retention_bytes for d in defaults))},
    )


def _policy(answer: TopicAnswer, defaults: Sequence[TopicConfigs]) -> str | None:
    if answer.own:
        return answer.value
    found = [*(d.policy for d in defaults), *([answer.value] if answer.common else [])]
    known = [policy for policy in found if policy is not None]
    return next((p for p in known if "delete" in p), known[0]) if len(known) == len(found) > 0 else None


def _number(text: str | None) -> int | None:
    try:
        return parse_long((text or "").strip())
    except ValueError:
        return None


def _strictest(limits: Iterable[int | None]) -> int | None:
    """The lowest limit; below 0 (none) if no limit is, and None if any is unknown."""
    known = list(limits)
    if not known or None in known:
        return None
    return min((limit for limit in known if limit is not None and limit >= 0), default=-1)
