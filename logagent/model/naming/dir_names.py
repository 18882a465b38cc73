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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from logagent.model.naming.java_numbers import parse_int
from logagent.model.naming.topic_names import (
    INTERNAL_TOPICS,
    MAX_TOPIC,
    collides,
    has_collision_chars,
    is_internal,
    is_valid_topic,
    validate_topic,
)
from logagent.model.records import Kind

__all__ = [
    "CACHE_NAME",
    "DELETE_SUFFIX",
    "FUTURE_SUFFIX",
    "INTERNAL_TOPICS",
    "MAX_NAME",
    "MAX_TOPIC",
    "METADATA_TOPIC",
    "STRAY_SUFFIX",
    "InvalidDirName",
    "ParsedName",
    "classify",
    "collides",
    "current_name",
    "delete_name",
    "future_name",
    "has_collision_chars",
    "is_internal",
    "is_valid_topic",
    "parse",
    "stray_name",
    "validate_topic",
]

MAX_NAME: Final = 255
"""The longest file name on Linux, in bytes, and Kafka's cap for `-delete` and `-stray` names, in UTF-16 units."""

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
METADATA_TOPIC: Final = "__cluster_metadata"
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


def future_name(topic: str, partition: int, uuid_hex: str) -> str:
    """`LocalLog.logFutureDirName`. Not capped, as in Kafka: with a long topic, the name is too long for any file
    system."""
    return f"{topic}-{partition}.{_checked(uuid_hex)}{FUTURE_SUFFIX}"


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
