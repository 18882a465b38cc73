"""The fields of what is stored about deletions, and how records are written, read and compared.

Plain dataclasses; pydantic checks the field formats when one is read from a file. Times are RFC 3339 in UTC with
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import parse_json
from logagent.base.sizes import LARGEST_COUNT
from logagent.base.times import instant as instant
from logagent.store.signing import NotSigned, PublicKey, verify

T = TypeVar("T")


ClusterId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
TopicId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{22}$")]
TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
AgentId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PlanId = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
DirName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^/\x00]+$")]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Number = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]
"""A device or inode number: unsigned, 64 bits."""
Node = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
LONGEST_WORDS = 2000
Words = Annotated[str, Field(max_length=LONGEST_WORDS)]
Kind = Literal["topics", "directories"]


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    partition: Count
    replicas: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A topic of a `topics` request with its replicas as of the request or its decision."""

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[RequestedPartition, ...]
    bytes: Count = 0


class UnknownSchema(LogAgentError):
    """A file with a valid signature and a schema that this version does not know."""

    slug = "schema"


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def encode(value: object) -> bytes:
    """Serialize a record as a payload."""
    return _adapter(type(value)).dump_json(value, exclude_defaults=True)


def decode(kind: type[T], payload: bytes) -> T:
    """Parse a record from its payload. Raises NotSigned for anything else."""
    try:
        read: T = _adapter(kind).validate_json(payload, strict=True)
    except ValidationError as error:
        raise NotSigned(f"it is not one of our {kind.__name__.lower()}s ({error.error_count()} errors)") from error
    return read


def checked(kind: type[T], values: Mapping[str, object]) -> T:
    """A part of a record from its fields, checked as when it is read. Raises ValueError, which names the first wrong
    field."""
    try:
        part: T = _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return part


def parsed(content: bytes) -> Any:
    """JSON of which only some fields matter. For whatever somebody else wrote the only error is ValueError."""
    return parse_json(content)


def moment(text: str) -> datetime:
    """Parse a time of a record, which was checked when it was read."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def payload_of(
    content: bytes, schema: str, keys: tuple[PublicKey, ...], cluster_id: str, *, retired: bool = False
) -> bytes:
    """What a trusted key signed as `schema`. Raises NotSigned, and UnknownSchema for another version of it. `retired`:
    as for `verify`."""
    found, payload = verify(content, keys, cluster_id, retired=retired)
    if found != schema:
        if found.partition("/")[0] == schema.partition("/")[0]:
            raise UnknownSchema(f"its schema is {found}, this version knows {schema}")
        raise NotSigned(f"it is a {found}, not a {schema}")
    return payload
