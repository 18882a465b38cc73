"""The URIs of fleet stores in object stores."""

from __future__ import annotations

import re

SCHEMES = ("s3", "gs", "az")
"""Object stores that agents write to."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}(/.*)?")


def is_uri(store: str) -> bool:
    return _URI.match(store) is not None


def problem_of(store: str) -> str | None:
    """Why agents cannot use `store`; None if it is well-formed."""
    uri = _URI.match(store)
    if uri is None:
        return None
    scheme, rest = uri.groups()
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        return f"must be a mounted path or one of {known} (not {scheme}://, which the agent does not write)"
    if _BUCKET.fullmatch(rest) is None or re.search(r"[?#@\s]|//", rest):
        return f"must be {scheme}://BUCKET or {scheme}://BUCKET/PREFIX, without user, query or empty parts"
    return None
