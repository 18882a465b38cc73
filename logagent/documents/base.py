"""The forms that several documents share, and what holds for all of them.

A document is a TypedDict: the code that builds one is checked against it by mypy, and `logagent schema` makes its JSON
Schema from it. Not a model that is filled: names on disks need not be UTF-8, and no model takes such a string; and a
scan of 100,000 directories streams its rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

__all__ = ["Size", "Time", "TypedDict", "strict"]


def _is_a_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"), AfterValidator(_is_a_time)]
Size = Annotated[int, Field(ge=0)]

strict = with_config(ConfigDict(extra="forbid", strict=True))
"""No key that the document does not name, and no value of another type."""
