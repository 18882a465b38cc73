"""The grammar of directory names in a log dir: build, cap, parse (Kafka's `LocalLog`, `UnifiedLog`, `LogManager`).

====================  =====================================  ==============================================
kind                  name                                   cap
====================  =====================================  ==============================================
current               `topic-partition`                      none
marked for deletion   `topic-partition.<32 hex>-delete`      255, by cutting the END of the topic
stray                 `topic-partition.<32 hex>-stray`       255, likewise
future                `topic-partition.<32 hex>-future`      none (KIP-113 never capped it)
====================  =====================================  ==============================================

Names are not canonical: `zzz-1`, `zzz-01`, `zzz-+1` and `zzz-١` are all partition 1 of `zzz`, and the broker takes
two of them in one log dir for the same partition. So never rebuild a name from its parts: keep the name that was
read. Names are `str` as `os.fsdecode` returns them. A byte that is not UTF-8 is a surrogate escape here and U+FFFD in
Kafka; neither is whitespace, a digit or a separator, so both parse into the same structure.

The names of the files that Kafka keeps in each log dir and in each partition directory.

Decimal numbers as Java parses them: exactly what the broker accepts in names and files.

Python's `int()` also accepts whitespace, underscores and digits outside the Basic Multilingual Plane, and rejects very
long strings that Java accepts (leading zeros), so the broker and we would disagree about the same bytes.

Which topic names are legal or internal (Kafka's `org.apache.kafka.common.internals.Topic`).

The UUID in the names of directories that we mark or set aside: it shows that we did it, and when.

Kafka's own names contain a random UUID (version 4). logagent's are version 7 (RFC 9562) and begin with the time; to a
broker both are 32 hex digits. The directory's own times cannot show this: each load by a broker updates ctime and mtime
of a stray (seen on 3.9.1 and 4.3.1), and the first load those of a `-delete` dir (3.5.2, 3.9.1, 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from logagent.base.records import Kind

PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
REPLICATION: Final = "replication-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (RECOVERY_POINT, LOG_START_OFFSET, REPLICATION, CLEANER)
"""The checkpoints of a log dir (`LogManager`, `ReplicaManager`, `LogCleanerManager`)."""

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

# The last 19 digits hold any number below 10^19; a longer one fits only if all digits before them are zero.
_SIGNIFICANT = 19


def parse_int(text: str) -> int:
    """`java.lang.Integer.parseInt(text)`; raises ValueError where Java throws NumberFormatException."""
    return _parse(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int:
    """`java.lang.Long.parseLong(text)`; raises ValueError where Java throws NumberFormatException."""
    return _parse(text, LONG_MIN, LONG_MAX)


def _parse(text: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java reads UTF-16 units: a digit above U+FFFF is two surrogates to it, not a digit.
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise ValueError(f'For input string: "{text if len(text) <= 80 else text[:80] + "…"}"')
    if len(digits) > _SIGNIFICANT and any(int(digit) for digit in digits[:-_SIGNIFICANT]):
        raise ValueError(f'For input string: "{text if len(text) <= 80 else text[:80] + "…"}"')
    value = int(digits[-_SIGNIFICANT:])
    if text[0] == "-":
        value = -value
    if not low <= value <= high:
        raise ValueError(f'For input string: "{text if len(text) <= 80 else text[:80] + "…"}"')
    return value


MAX_TOPIC: Final = 249
"""The longest legal topic name, in characters."""

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_DIR: Final = f"{METADATA_TOPIC}-0"
"""The directory of the KRaft metadata log, in `metadata.log.dir`."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that Kafka itself creates (`Topic.isInternal`). `__cluster_metadata` is not one of them."""

REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
"""Says where the remote segments of all tiered topics are (`REMOTE_LOG_METADATA_TOPIC_NAME`)."""

NEVER_DELETED: Final = frozenset({METADATA_TOPIC, REMOTE_LOG_METADATA})


def why_spared(topic: str, *, include_internal: bool) -> str | None:
    """Why no directory of `topic` is set aside, marked or removed, on a host or by the fleet; None if it may be.

    `include_internal`: the operator's word (`--include-internal`) for Kafka's internal topics and for those that its
    tools create (`_schemas`, `_confluent-…`), which begin with `_` as well. For `NEVER_DELETED` there is no such word.
    """
    if topic in NEVER_DELETED:
        return f"logagent never deletes {topic}"
    if include_internal or not topic.startswith("_"):
        return None
    return f"{topic} is an internal topic" if is_internal(topic) else f"the name of topic {topic} begins with '_'"


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


RANDOM_BYTES = 10
_TIME_BITS = 48
_VERSION_7 = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)


def rename_uuid(now_ms: int, random: bytes) -> str:
    """32 hex digits: `now_ms` and 74 of the 80 bits of `random`."""
    value = (now_ms % (1 << _TIME_BITS)) << 80 | int.from_bytes(random[:RANDOM_BYTES], "big")
    value = value & ~(0xF << 76) | 7 << 76
    return f"{value & ~(0b11 << 62) | 0b10 << 62:032x}"


def renamed_at_ms(uuid: str | None) -> int | None:
    """When a logagent gave the name with this UUID, by its clock; None if a broker (or somebody else) did."""
    return int(uuid[:12], 16) if uuid is not None and _VERSION_7.fullmatch(uuid) else None


MAX_NAME: Final = 255
"""The longest file name on Linux, in bytes, and Kafka's cap for `-delete` and `-stray` names, in UTF-16 units."""

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
CACHE_NAME: Final = "remote-log-index-cache"

_SUFFIXES: Final = (DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)
_KINDS: Final = {DELETE_SUFFIX: Kind.DELETE, FUTURE_SUFFIX: Kind.FUTURE, STRAY_SUFFIX: Kind.STRAY}
# Java's \s without (?U) is only these six, so U+00A0, U+0085 and U+2028 may be part of a name.
_JAVA_BLANKS: Final = frozenset(" \t\n\v\f\r")
_HEX_DIGITS: Final = frozenset("0123456789abcdef")


class InvalidDirName(ValueError):
    """Not the name of a partition directory: a broker that finds such a directory in a log dir refuses to start."""


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The parts of a directory name.

    `kind` METADATA is any name of the topic `__cluster_metadata`, marked or not; CACHE is `remote-log-index-cache`.
    `uuid` is the text between the last dot and the suffix; Kafka writes 32 hex digits there but accepts anything, even
    nothing, so it need not be a UUID. `error` says what is wrong with an INVALID name, whose other parts are None.

    `truncated`: the topic may have lost its end. A `-delete` or `-stray` name shorter than 255 was never cut, nor was
    one whose topic has the full 249 characters, nor any current or future name. A marked name of exactly 255 may have
    been cut, or its topic may just end there. Treat such a topic as a prefix, unless the journal or the cluster's
    topics give the full name.
    """

    kind: Kind
    topic: str | None
    partition: int | None
    uuid: str | None
    truncated: bool
    error: str | None


def parse(name: str) -> ParsedName:
    """Parse `name` as Kafka's `LocalLog.parseTopicPartitionName` does (3.9.1; unchanged up to 4.3).

    Raises InvalidDirName exactly where Kafka throws, so also for `remote-log-index-cache`, which the broker skips
    before it parses. `kind` follows `LogManager.loadLog`: the suffix decides, and METADATA depends on the parsed topic.
    """
    suffix = ""
    stem = name
    uuid: str | None = None
    if name.endswith(_SUFFIXES):
        suffix = name[name.rindex("-") :]
        stem, uuid = _cut_mark(name, suffix)
    topic, dash, number = stem.rpartition("-")
    if not dash:
        _invalid(name, "it has no '-' between topic and partition")
    if not topic:
        _invalid(name, "there is nothing before the last '-', where the topic belongs")
    if not number:
        _invalid(name, "there is nothing after the last '-', where the partition belongs")
    # Nearly every number is short and ASCII; anything else is parsed as Java does.
    if number.isascii() and number.isdigit() and len(number) < 10:
        partition = int(number)
    else:
        try:
            partition = parse_int(number)
        except ValueError:
            _invalid(name, f"{number!r} is not a partition number that Java's Integer.parseInt accepts")
    if topic == METADATA_TOPIC:
        return ParsedName(Kind.METADATA, topic, partition, uuid, False, None)
    if not suffix:
        return ParsedName(Kind.CURRENT, topic, partition, None, False, None)
    kind = _KINDS[suffix]
    truncated = len(name) >= MAX_NAME and kind is not Kind.FUTURE and len(topic) < MAX_TOPIC
    return ParsedName(kind, topic, partition, uuid, truncated, None)


def classify(name: str) -> ParsedName:
    """What a directory of this name is in a log dir. Never raises.

    Like `parse`, but a name that Kafka refuses is INVALID with its error, and `remote-log-index-cache` is CACHE.
    """
    if name == CACHE_NAME:
        return ParsedName(Kind.CACHE, None, None, None, False, None)
    try:
        return parse(name)
    except InvalidDirName as error:
        return ParsedName(Kind.INVALID, None, None, None, False, str(error))


def is_unique(name: str) -> bool:
    """Whether no second directory gets this name: that of a stray or marked one, with the UUID that Kafka or we gave
    it. A copy on another disk keeps it, and with it what is known of the directory."""
    parsed = classify(name)
    return parsed.kind in (Kind.STRAY, Kind.DELETE) and parsed.uuid is not None and len(parsed.uuid) == 32


def _cut_mark(name: str, suffix: str) -> tuple[str, str]:
    """Split `<topic>-<partition>.<uuid><suffix>` at its LAST dot, if `^(\\S+)-(\\S+)\\.(\\S+)<suffix>$` matches.

    The pattern may match at a dot and dash other than those of the split; Kafka does both, so we do both.
    """
    body_end = len(name) - len(suffix)
    first_dash = name.find("-", 1, body_end)
    dot_before_text = name.rfind(".", 0, body_end - 1)
    matches = first_dash != -1 and dot_before_text >= first_dash + 2
    if not matches or not _JAVA_BLANKS.isdisjoint(name):
        _invalid(name, f"it ends in {suffix} but is not topic-partition.uniqueId{suffix} without whitespace")
    dot = name.rindex(".", 0, body_end)
    return name[:dot], name[dot + 1 : body_end]


def _invalid(name: str, reason: str) -> NoReturn:
    raise InvalidDirName(f"{name!r} is not the name of a partition directory: {reason}")


def current_name(topic: str, partition: int) -> str:
    """`LocalLog.logDirName`. Not capped, as in Kafka: 249 characters and partition 100000 give 256, one too many."""
    return f"{topic}-{partition}"


def delete_name(topic: str, partition: int, uuid_hex: str) -> str:
    """`LocalLog.logDeleteDirName`: at most 255 characters, by cutting the end of the topic (KAFKA-4893).

    `uuid_hex` is a random UUID as 32 lower-case hex digits (ValueError otherwise). The cut counts UTF-16 units as
    Kafka does; for every legal topic these are bytes. Record the full topic elsewhere: the name may not contain it.
    """
    return _capped_name(topic, partition, uuid_hex, DELETE_SUFFIX)


def stray_name(topic: str, partition: int, uuid_hex: str) -> str:
    """`LocalLog.logStrayDirName`: like `delete_name`, but with room for one more character of the topic."""
    return _capped_name(topic, partition, uuid_hex, STRAY_SUFFIX)


def _capped_name(topic: str, partition: int, uuid_hex: str, suffix: str) -> str:
    full_suffix = f"-{partition}.{_checked(uuid_hex)}{suffix}"
    room = MAX_NAME - len(full_suffix)
    if topic.isascii():
        return topic[:room] + full_suffix
    # No legal topic gets here. UTF-16 units are counted because Kafka's String.substring counts them.
    cut = topic.encode("utf-16-le", "surrogatepass")[: 2 * room].decode("utf-16-le", "surrogatepass")
    return cut + full_suffix


def _checked(uuid_hex: str) -> str:
    if len(uuid_hex) != 32 or not _HEX_DIGITS.issuperset(uuid_hex):
        raise ValueError(f"{uuid_hex!r} is not a UUID as 32 lower-case hex digits")
    return uuid_hex


LEFTOVERS = (".deleted", ".cleaned")


def leftovers(names: Iterable[str]) -> list[str]:
    """The files of a partition directory that its broker removes when it loads it, whatever they hold: `.deleted`, but
    not `.checkpoint.deleted`, and `.cleaned` where nothing ends in `.swap`
    (`LogLoader.removeTempFilesAndCollectSwapFiles`: of a split that was interrupted, the `.cleaned` files say which
    `.swap` files count)."""
    found = sorted(names)
    swapping = any(name.endswith(".swap") for name in found)
    return [
        name
        for name in found
        if (name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"))
        or (name.endswith(".cleaned") and not swapping)
    ]
