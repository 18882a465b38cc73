"""A reason: one thing that somebody is told, and what they can do about it.

One shape for why a directory is not whole, why the kernel forbids a change, what a version contradicts. What carries
more contains one: a refusal or a wait adds the directory, a finding its severity and the releases that it concerns.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Final

from logagent.base.claims import Claim, Witness

NEVER: Final = "never"
"""No setting and no event ends it."""


@dataclass(frozen=True, slots=True)
class Reason:
    """`fact` is one sentence; `hint` what its reader does next (empty: nothing), with `command` as a line for a shell.

    `code` is stable: a guard, a rule, a finding's code. `source` says so, as of `as_of_ms`. `claim`: what an act lacks
    that rests on this. `until`: a time in ms; a condition in words, with the setting that makes it; `NEVER`; None if
    that is not known.
    """

    fact: str
    hint: str = ""
    code: str = ""
    _: KW_ONLY
    claim: Claim | None = None
    until: int | str | None = None
    source: Witness | None = None
    as_of_ms: int | None = None
    command: str | None = None
