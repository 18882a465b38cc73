"""A time as documents and records have it: RFC 3339 in UTC with milliseconds, checked by pydantic."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field


def _is_a_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"), AfterValidator(_is_a_time)]
