"""What retention deletes of a log that comes back, at the broker's first check (`UnifiedLog.deleteOldSegments`).

What is set aside waits for ever; what is restored is checked 30 seconds after the broker's start. Which segments go is
the rule of all retention (`oldest_that_go`), over the checks that follow each other, of which the first may
take only a part. A topic whose `cleanup.policy` has no `delete` keeps everything.

Also what another broker's answer on a topic's settings means for this host's. A broker answers with what is in force
for itself (`ConfigHelper.describeConfigs`): what the topic has of its own, or what all brokers have in common, holds
here too; what comes from its own configuration does not, and ours counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from logagent.base.dir_names import parse_long
from logagent.kafka.retention.settings import CLEANUP_POLICY, COPY_DISABLED, TIERED
from logagent.kafka.retention.topic_retention import (
    LOCAL_RETENTION,
    RETENTION,
    RETENTION_BYTES,
    SegmentAge,
    TopicConfigs,
    kafka_configs,
    oldest_that_go,
)


@dataclass(frozen=True, slots=True)
class FirstCheck:
    """`bytes`: what goes of the `of` bytes of `.log` files, None if that is not known; `why`, in words. `keep`: the
    settings of the topic with which everything stays, as `--add-config` takes them."""

    topic: str
    bytes: int | None
    of: int
    why: str
    keep: tuple[str, ...]

    @property
    def fact(self) -> str:
        if self.bytes is None:
            return f"its broker's first retention check may delete its {self.of} bytes: {self.why}"
        what = f"all its {self.of} bytes" if self.bytes == self.of else f"{self.bytes} of its {self.of} bytes"
        return f"its broker's first retention check deletes {what}: {self.why}"

    @property
    def command(self) -> str:
        """The `kafka-configs.sh` command line that keeps everything, for a shell."""
        return kafka_configs(self.topic, "--alter", "--add-config", ",".join(self.keep))

    @property
    def hint(self) -> str:
        look = f"{kafka_configs(self.topic, '--describe', '--all')} shows its retention; " if self.bytes is None else ""
        return f"{look}{self.command} keeps them; with that in effect, or if they may go, add --retention-will-delete"


def first_check(
    topic: str,
    segments: Iterable[SegmentAge],
    sizes: Sequence[int],
    now_ms: int,
    configs: TopicConfigs,
    why_incomplete: str,
) -> FirstCheck | None:
    """None if nothing goes. `segments`: oldest first, and read only as far as needed; `sizes`: of all `.log` files."""
    whole = sum(sizes)
    if not whole or (configs.complete and configs.keeps_all(topic)):
        return None
    tiered = configs.setting_of(topic) == LOCAL_RETENTION
    limit_ms, limit = configs.retention_of(topic), configs.retention_bytes_of(topic)
    keep = (f"{RETENTION}=-1", *([f"{LOCAL_RETENTION}=-1"] if tiered else []))
    if limit_ms is None or limit is None:
        no_number = "its retention is no number here, or server.properties was not read (--kafka-config names it)"
        return FirstCheck(topic, None, whole, no_number if configs.complete else why_incomplete, keep)
    # Of a tiered topic the size counts the remote copies too, of which the oldest go first.
    ages = (segment.largest_ms for segment in segments)
    breaches = oldest_that_go(sizes, ages, now_ms, limit_ms, -1 if tiered else limit)
    why = []
    if any(breach.time for breach in breaches):
        setting, own = (LOCAL_RETENTION, configs.tiering.local_ms) if tiered else (RETENTION, configs.retentions_ms)
        why.append(f"they are past {setting}={limit_ms} ({_whose(topic, own)})")
    if any(breach.size for breach in breaches):
        why.append(f"the log exceeds {RETENTION_BYTES}={limit} ({_whose(topic, configs.retentions_bytes)})")
        keep = (*keep, f"{RETENTION_BYTES}=-1")
    goes = sum(sizes[: len(breaches)])
    return FirstCheck(topic, goes, whole, ", and ".join(why), keep) if goes else None


def _whose(topic: str, own: Iterable[str]) -> str:
    return "of the topic" if topic in own else "the broker's default"


ASKED = (CLEANUP_POLICY, RETENTION, RETENTION_BYTES, LOCAL_RETENTION, TIERED, COPY_DISABLED)


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """`own`: the topic has it itself; `common`: it is the dynamic default of all brokers."""

    value: str | None
    own: bool = False
    common: bool = False


_NONE = DescribedConfig(None)


def as_answered(topic: str, answers: Mapping[str, DescribedConfig], defaults: Sequence[TopicConfigs]) -> TopicConfigs:
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


def _policy(answer: DescribedConfig, defaults: Sequence[TopicConfigs]) -> str | None:
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
