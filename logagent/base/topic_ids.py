"""Topic and directory ids: 16 bytes, written as 22 characters of url-safe base64 (Kafka's `Uuid`, KIP-516).

Throughout logagent an id is its canonical text. Other spellings exist (padding, unused bits set in the last character)
and Kafka reads them as the same id, so compare ids only after `canonical`.
"""

from __future__ import annotations

import base64
import re
from typing import Final

ZERO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""As a topic id: none, as brokers before 2.8 report. As a directory id: MIGRATING."""

SHAPE: Final = "[A-Za-z0-9_-]{22}"
"""What an id looks like, as a regular expression (also of Spark)."""

_ID_BYTES: Final = 16
_MAX_TEXT: Final = 24
# The last of the 22 characters carries two bits; in canonical text its other four are zero.
_CANONICAL: Final = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
_ALPHABET: Final = {
    ord(character): value
    for value, character in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
}
_PADDING: Final = ord("=")


def canonical(text: str) -> str:
    """The text that Kafka writes for the id `text`; raises ValueError like `from_text`."""
    if _CANONICAL.fullmatch(text) is not None:
        return text
    return to_text(from_text(text))


def from_text(text: str) -> bytes:
    """`Uuid.fromString`: the 16 bytes of an id; raises ValueError with Kafka's message if Kafka refuses the text."""
    if _CANONICAL.fullmatch(text) is not None:
        return base64.urlsafe_b64decode(text + "==")
    prefix = _java_prefix(text, _MAX_TEXT)
    if prefix != text:
        raise ValueError(f"Input string with prefix `{prefix}` is too long to be decoded as a base64 UUID")
    decoded = _java_url_decode(text.encode("latin-1", "replace"))
    if len(decoded) != _ID_BYTES:
        raise ValueError(
            f"Input string `{text}` decoded as {len(decoded)} bytes, which is not equal to the expected "
            f"{_ID_BYTES} bytes of a base64-encoded UUID"
        )
    return decoded


def to_text(raw: bytes) -> str:
    """`Uuid.toString`: 22 characters; raises ValueError unless `raw` has 16 bytes."""
    if len(raw) != _ID_BYTES:
        raise ValueError(f"an id has {_ID_BYTES} bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")


def _java_prefix(text: str, units: int) -> str:
    """`text.substring(0, units)` if the text is longer than `units` UTF-16 units, else `text`."""
    if len(text) <= units and text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass")


def _java_url_decode(source: bytes) -> bytes:
    """`java.util.Base64.getUrlDecoder().decode`, which is neither as strict nor as lenient as Python's decoders."""
    if not source:
        return b""
    if len(source) < 2:
        raise ValueError("Input byte[] should at least have 2 bytes for base64 bytes")
    decoded = bytearray()
    bits = count = 0
    position = 0
    while position < len(source):
        byte = source[position]
        position += 1
        if byte == _PADDING:
            # Padding follows two characters (as "==") or three; "x=" is rejected below.
            second_missing = count == 2 and source[position : position + 1] != b"="
            if count == 0 or second_missing:
                raise ValueError("Input byte array has wrong 4-byte ending unit")
            position += count == 2
            break
        if byte not in _ALPHABET:
            signed = byte - 256 if byte > 127 else byte
            raise ValueError(f"Illegal base64 character {signed:x}")
        bits = bits << 6 | _ALPHABET[byte]
        count += 1
        if count == 4:
            decoded += bits.to_bytes(3, "big")
            bits = count = 0
    if count == 1:
        raise ValueError("Last unit does not have enough valid bits")
    if count == 2:
        decoded.append(bits >> 4)
    elif count == 3:
        decoded += (bits >> 2).to_bytes(2, "big")
    if position < len(source):
        raise ValueError(f"Input byte array has incorrect ending byte at {position}")
    return bytes(decoded)
