"""Types that several documents share.

A document is a TypedDict: mypy checks the code that builds one, and `logagent schema` derives its JSON Schema from it.
Documents are not pydantic models because names on disk need not be UTF-8, which a model rejects, and because a scan of
100,000 directories streams its rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from logagent.base.claims import Claim, Witness
from logagent.base.records import Size

__all__ = ["AsOf", "ClaimDoc", "Size", "Time", "TypedDict", "strict"]


def _is_a_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"), AfterValidator(_is_a_time)]
"""RFC 3339 in UTC with milliseconds."""

AsOf = dict[Witness, Time]
"""Who said what the rows of a document rest on, and as of when: the oldest time of those that it says."""

strict = with_config(ConfigDict(extra="forbid", strict=True))
"""Unknown keys and values of another type are rejected."""


@strict
class ClaimDoc(TypedDict):
    """What is true, and who says so; as of when, the head of the document says."""

    claim: Claim
    witness: Witness
