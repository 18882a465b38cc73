"""Kafka's own answers (`tests/fixtures/kafka-answers/`), row by row."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures" / "kafka-answers"


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of `<name>.jsonl`, in their order."""
    with (FOLDER / f"{name}.jsonl").open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


def content(row: dict[str, Any]) -> bytes:
    """The bytes of the file that Kafka read."""
    if "b64" in row:
        return base64.b64decode(row["b64"])
    text: str = row["text"]
    return text.encode()
