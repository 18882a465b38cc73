"""An amount of space on a file system."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and inodes."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: Space) -> Space:
        return Space(self.bytes + other.bytes, self.inodes + other.inodes)

    def less(self, other: Space) -> Space:
        """What is left of each, at least 0."""
        return Space(max(0, self.bytes - other.bytes), max(0, self.inodes - other.inodes))

    def __bool__(self) -> bool:
        return bool(self.bytes or self.inodes)


NOTHING = Space()
