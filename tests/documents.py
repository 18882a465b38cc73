"""Whether a document is the one that `logagent schema` promises."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from logagent.fleet.documents import SCHEMAS as OF_THE_FLEET
from logagent.schemas import SCHEMAS as OF_A_HOST

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(form) for name, form in {**OF_A_HOST, **OF_THE_FLEET}.items()
}


def assert_promised(document: Any, name: str) -> None:
    """Raises pydantic's ValidationError unless `document` (a value, or its JSON text) is a `logagent.NAME/…`."""
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    _ADAPTERS[name].validate_json(text)
