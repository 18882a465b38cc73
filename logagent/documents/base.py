"""The forms that several documents share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _is_a_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"), AfterValidator(_is_a_time)]
Size = Annotated[int, Field(ge=0)]
KindName = Literal["current", "future", "stray", "delete", "metadata", "cache", "invalid"]
ActionName = Literal["quarantine", "mark", "remove", "restore", "drop-checkpoint-entry"]
OutcomeName = Literal["done", "failed", "yielded", "skipped"]
HealthName = Literal["online", "read-only", "full", "offline", "unformatted"]
ReasonName = Literal[
    "topic-absent", "topic-recreated", "not-a-replica", "wrong-directory", "no-topic-id", "no-assignments",
    "stale-assignments", "foreign-cluster", "reassigning", "internal", "uncommitted", "sources-disagree",
]  # fmt: skip


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
