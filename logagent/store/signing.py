"""Signatures on what a controller writes: `{schema, key_id, payload, signature}`, Ed25519, verified before parsing.

The signature covers the bytes `logagent/<schema>\\n` + payload. Messages never contain keys or signatures. The library
(`cryptography`) is imported only where a signature is made or checked.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from logagent.base.errors import ConfigError, LogAgentError
from logagent.base.files.safe_open import FileLimit, create_file, open_regular, parse_json, read_open

KEY_FILE = FileLimit("a private key", 4096)
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PUBLIC_KEY = re.compile(
    r"([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/]{43}=)(?:@([A-Za-z0-9_-][A-Za-z0-9._-]{0,63}))?(:retired)?"
)
_SCHEMA = re.compile(r"logagent\.[a-z-]+/[0-9]{1,4}")


class NotSigned(LogAgentError):
    """A file has no valid signature of a trusted key, or does not match its name. It is ignored."""

    slug = "signature"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An entry of `orders.keys`; with `cluster_id`, trusted only for that cluster. A `retired` key asks for nothing any
    more, but what was cancelled or done with it stays so: else a rotation would revive cancelled requests."""

    key_id: str
    raw: bytes = field(repr=False)
    cluster_id: str | None = None
    retired: bool = False


@dataclass(frozen=True, slots=True)
class PrivateKey:
    key_id: str
    raw: bytes = field(repr=False)

    def sign(self, schema: str, payload: bytes) -> bytes:
        """The content of a signed file."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self.raw).sign(_signed(schema, payload))
        return json.dumps(
            {"schema": schema, "key_id": self.key_id, "payload": _text(payload), "signature": _text(signature)}
        ).encode()

    def public(self) -> str:
        """`KEY_ID:BASE64`, as written in `orders.keys`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return f"{self.key_id}:{_text(Ed25519PrivateKey.from_private_bytes(self.raw).public_key().public_bytes_raw())}"


def public_key(text: str) -> PublicKey:
    """Parse an entry of `orders.keys`; the ValueError says what is expected and never quotes the text."""
    match = _PUBLIC_KEY.fullmatch(text)
    if match is None:
        raise ValueError("a key is written KEY_ID:BASE64[@CLUSTER_ID][:retired], of 32 bytes in base64")
    return PublicKey(match[1], base64.b64decode(match[2], validate=True), match[3], match[4] is not None)


def verify(content: bytes, keys: Iterable[PublicKey], cluster_id: str, *, retired: bool = False) -> tuple[str, bytes]:
    """The schema and payload of a file that one of `keys` (with `retired`, also of those) signed for this cluster.
    Raises NotSigned otherwise."""
    try:
        read = parse_json(content)
        schema, key_id = read["schema"], read["key_id"]
        payload = base64.b64decode(read["payload"], validate=True)
        signature = base64.b64decode(read["signature"], validate=True)
    except (ValueError, KeyError, TypeError) as error:
        raise NotSigned("it is not a signed file") from error
    if not (isinstance(schema, str) and _SCHEMA.fullmatch(schema) and isinstance(key_id, str)):
        raise NotSigned("it is not a signed file")
    trusted = [key for key in keys if key.cluster_id in (None, cluster_id) and (retired or not key.retired)]
    for key in trusted:
        if key.key_id == key_id and _holds(key, schema, payload, signature):
            return schema, payload
    if _KEY_ID.fullmatch(key_id) and key_id not in {key.key_id for key in trusted}:
        raise NotSigned(f"it is signed with key {key_id}, which is not in orders.keys, or retired")
    raise NotSigned("it is not signed by any key in orders.keys")


def _holds(key: PublicKey, schema: str, payload: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, _signed(schema, payload))
    except (InvalidSignature, ValueError):
        return False
    return True


def generate(key_id: str, path: Path) -> PrivateKey:
    """Generate a key; it is written to `path` (0600), which must not exist. Raises ConfigError, OSError."""
    if not _KEY_ID.fullmatch(key_id):
        raise ConfigError(f"{key_id!r} is not a key id", hint="1 to 32 letters, digits, '-' or '_'")
    key = PrivateKey(key_id, secrets.token_bytes(32))
    if not create_file(path, f"{key_id}:{_text(key.raw)}\n".encode(), mode=0o600):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    return key


def load_private_key(path: Path) -> PrivateKey:
    """Load a key that `generate` wrote. Raises ConfigError, also if users other than its owner may read the file."""
    try:
        fd = open_regular(path, KEY_FILE, follow=True)
        try:
            mode, content = os.fstat(fd).st_mode, read_open(fd, path, KEY_FILE)
        finally:
            os.close(fd)
    except (OSError, LogAgentError) as error:
        raise ConfigError(
            f"the private key {path} cannot be read: {error}", hint="name a file that can be read"
        ) from error
    if mode & 0o077:
        raise ConfigError(
            f"the private key {path} can be read by users other than its owner", hint=f"chmod 600 {quote(str(path))}"
        )
    key_id, _, text = content.decode("ascii", "replace").strip().partition(":")
    try:
        raw = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32 or not _KEY_ID.fullmatch(key_id):
        raise ConfigError(f"{path} is not one of logagent's private keys", hint="create one: logagent topics keygen")
    return PrivateKey(key_id, raw)


def _signed(schema: str, payload: bytes) -> bytes:
    return f"logagent/{schema}\n".encode() + payload


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
