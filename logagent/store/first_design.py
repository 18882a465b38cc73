"""Deletion requests of the first design, which agents before this version still obey until they expire.

They are shown as closed, and `topics cancel` writes the entry that those agents look for. Nothing else reads them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

from logagent.errors import LogAgentError
from logagent.store.control import UNREADABLE, Control
from logagent.store.records import instant, parsed, payload_of
from logagent.store.requests import REQUESTS, folder_of
from logagent.store.signing import NotSigned, PrivateKey, PublicKey

REQUEST_SCHEMA, CLOSED_SCHEMA = "logagent.request/1", "logagent.request-closed/1"
_NAME = re.compile(r"([0-9a-z][0-9a-z-]{7,47})\.json")
_CLOSING = re.compile(r"[0-9]{10}-(done|cancelled)(?:-[0-9a-f]{16})?\.json")


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """What is shown of one. `closed`: how it was closed, if its entry says so."""

    request_id: str
    kind: str
    by: str
    at: str
    expires_at: str
    closed: str | None = None


def first_requests(control: Control, keys: tuple[PublicKey, ...]) -> list[FirstRequest]:
    """Those in the store that a known key has signed. Raises ServiceUnreachable."""
    found = []
    for match in filter(None, map(_NAME.fullmatch, sorted(control.names(REQUESTS)))):
        try:
            content = control.read(REQUESTS, match[0])
            payload = payload_of(content or b"", REQUEST_SCHEMA, keys, control.cluster_id, retired=True)
            read = parsed(payload)
            words = [str(read[key]) for key in ("request_id", "kind", "by", "at", "expires_at")]
            instant(datetime.fromisoformat(words[4]))
        except (LogAgentError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, LogAgentError) and not isinstance(error, (NotSigned, *UNREADABLE)):
                raise
            continue
        if words[0] == match[1]:
            number, kind, by, at, until = words
            found.append(FirstRequest(number, kind, by, at, until, _closed(control, match[1], keys)))
    return found


def _closed(control: Control, number: str, keys: tuple[PublicKey, ...]) -> str | None:
    how = None
    try:
        for match in filter(None, map(_CLOSING.fullmatch, sorted(control.names(folder_of(number))))):
            content = control.read(folder_of(number), match[0])
            payload = payload_of(content or b"", CLOSED_SCHEMA, keys, control.cluster_id, retired=True)
            read = parsed(payload)
            if (read["request_id"], read["cluster_id"]) == (number, control.cluster_id):
                how = "cancelled" if "cancelled" in (how, read["outcome"]) else str(read["outcome"])
    except (*UNREADABLE, NotSigned, LogAgentError, ValueError, KeyError, TypeError):
        return how
    return how


def cancel_first(control: Control, number: str, by: str, now: datetime, key: PrivateKey) -> bool:
    """Write the entry by which agents of the first design know that a request was cancelled; False if it exists."""
    closed = {"request_id": number, "cluster_id": control.cluster_id, "epoch": 0, "outcome": "cancelled", "by": by,
              "at": instant(now)}  # fmt: skip
    content = key.sign(CLOSED_SCHEMA, json.dumps(closed).encode())
    return control.create(folder_of(number), "0000000000-cancelled.json", content)
