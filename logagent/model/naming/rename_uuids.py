"""The UUID in the names of directories that we mark or set aside: it shows that we did it, and when.

Kafka's own names contain a random UUID (version 4). Ours are version 7 (RFC 9562) and begin with the time; to a broker
both are 32 hex digits. The directory's own times cannot show this: each load by a broker updates ctime and mtime of a
stray (seen on 3.9.1 and 4.3.1), and the first load those of a `-delete` dir (3.5.2, 3.9.1, 4.3.1).
"""

from __future__ import annotations

import re

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
