"""Whether part of a directory is gone: what the mark on disk, the journal and the number of files say together.

The mark alone says nothing: it is a mode bit, and `chmod -R ug+s` sets it everywhere. An intent in the journal alone
says nothing either, it may have come to nothing. So a removal has started if both are there and files are missing since
the intent; only then does it go on unasked. Restoring asks more: everything must still be there.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from logagent.model.records import PartitionDir


@dataclass(frozen=True, slots=True)
class RemovalIntent:
    """One removal that was meant, and what the directory had then. files: None in journals of earlier releases."""

    files: int | None
    bytes: int

    def has_taken(self, d: PartitionDir) -> bool:
        """Whether files are missing since. (Sizes alone prove it only where no number is known: a broker that stops
        shortens the indexes of what it has loaded.)"""
        return d.files < self.files if self.files is not None else d.bytes < self.bytes

    def left_all(self, d: PartitionDir) -> bool:
        """Whether nothing at all has changed since: a removal shortens large files before it unlinks them."""
        return self.files == d.files and self.bytes == d.bytes


RemovalIntents = Mapping[tuple[str, str], Sequence[RemovalIntent]]
NO_REMOVALS: RemovalIntents = MappingProxyType({})


class NotWhole(NamedTuple):
    """Why a directory may not be whole, and what can be done about it."""

    fact: str
    hint: str


def removal_begun(d: PartitionDir, intents: RemovalIntents) -> bool:
    """Whether part of `d` is gone because we removed it: the mark that comes before the first unlink, an intent of this
    journal (`intents`, by log dir and name), and fewer files than then."""
    return d.removal_started and any(intent.has_taken(d) for intent in intents.get((d.log_dir, d.name), ()))


def why_not_whole(d: PartitionDir, intents: RemovalIntents, *, files_with_bit: int | None) -> NotWhole | None:
    """Why `d`, if it has the mark, may not be restored; None if it may. files_with_bit: how many files it had when we
    took its current name, if it had that mode bit already (else None): then no removal has set it."""
    if not d.removal_started:
        return None
    meant = intents.get((d.log_dir, d.name), ())
    if meant and all(intent.left_all(d) for intent in meant):
        return None
    if meant:
        most = max(intent.files or 0 for intent in meant)
        left = f"{d.files} of {most} files are left" if d.files < most else "some of its records may be gone"
        hint = "it cannot be made whole again: copy what is left of it elsewhere before its removal goes on"
        return NotWhole(f"its removal has started: {left}", f"{hint}, if that may be the only copy")
    if files_with_bit is not None and d.files >= files_with_bit:
        return None
    path = shlex.quote(f"{d.log_dir}/{d.name}")
    return NotWhole(
        "it has the mark that its removal has started (the set-user-ID bit), and this journal knows of no removal: some"
        " of its files may be gone",
        "copy it elsewhere before anything removes it; if you know that it is whole (chmod -R ug+s sets that bit, too):"
        f" chmod u-s {path}, then restore it",
    )
