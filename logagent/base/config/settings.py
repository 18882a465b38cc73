"""What can be configured, with defaults: plain frozen dataclasses, cheap to import; how the URI of a store in a bucket
looks; and `without_secret`, which keeps passwords out of messages, because those end up in tickets.

Durations are kept in milliseconds and sizes in bytes; both are written the way people write them (`15m`, `7d`,
`64MiB`). The markers `Duration`, `Size` … tell pydantic how to read a field. pydantic is imported only when there is
something to validate, so `logagent queue` on a host without a configuration file does not need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from logagent.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


_LONGEST_MS = 36_525 * DAY_MS
_DURATION_UNITS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS, "w": 7 * DAY_MS}
_SIZE_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def parse_duration(text: object) -> int:
    """Milliseconds of `15m`, `7d`, `1h30m`, `250ms`. A number without a unit is refused; so are a negative one, and
    more than 100 years, which lead to dates that the calendar cannot represent."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{text!r} is not a duration: add a unit, for example 30s, 15m, 24h or 7d")
    parts = re.fullmatch(r"(?:\d{1,20}(?:ms|[smhdw])\s*)+", text.strip())
    if parts is None:
        raise ValueError(f"{text!r} is not a duration: add a unit, for example 30s, 15m, 24h or 7d")
    found = sum(int(n) * _DURATION_UNITS[unit] for n, unit in re.findall(r"(\d+)(ms|[smhdw])", text))
    if found > _LONGEST_MS:
        raise ValueError(f"{text!r} is too long: a duration must not be longer than 100 years (36525d)")
    return found


def parse_size(text: object) -> int:
    """Bytes of `64MiB`, `1.5gib`, `10MB`, `1G` (1024-based without the `B`) or a plain number of bytes. Units
    may be in small letters: no size is in bits."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = re.fullmatch(r"\s*([0-9]+)(?:\.([0-9]+))?\s*([A-Za-z]*)\s*", text) if isinstance(text, str) else None
    unit = _SIZE_UNITS.get(match[3].lower()) if match is not None else None
    if match is None or unit is None or (match[2] is not None and unit == 1):
        raise ValueError(f"{text!r} is not a size, for example 64MiB, 1.5GiB, 10MB or 1048576")
    fraction = match[2] or ""
    scale: int = 10 ** len(fraction)
    return int(match[1] + fraction) * unit // scale


def write_duration(ms: int) -> str:
    """`15m`, `1d12h`: what `parse_duration` reads as `ms`."""
    written = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _DURATION_UNITS[unit])
        written += f"{count}{unit}" if count else ""
    return written or "0s"


def write_size(count: int) -> str:
    """`200MiB`: what `parse_size` reads as `count`."""
    units = (("TiB", "tib"), ("GiB", "gib"), ("MiB", "mib"), ("KiB", "kib"))
    for written, unit in units:
        if count and count % _SIZE_UNITS[unit] == 0:
            return f"{count // _SIZE_UNITS[unit]}{written}"
    return str(count)


def parse_words(text: object) -> list[str]:
    """A list of words, or (from an environment variable) a string with commas between them."""
    if isinstance(text, str):
        return [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(text, list | tuple) and all(isinstance(word, str) for word in text):
        return [str(word) for word in text]
    raise ValueError("must be a list of strings")


def parse_keys(text: object) -> list[str]:
    """Public keys as `KEY_ID:BASE64[@CLUSTER_ID][:retired]`; as `parse_words`."""
    words = parse_words(text)
    form = r"[A-Za-z0-9_-]{1,32}:[A-Za-z0-9+/]{43}=(@[A-Za-z0-9_-][A-Za-z0-9._-]{0,63})?(:retired)?"
    for number, word in enumerate(words, 1):
        if re.fullmatch(form, word) is None:
            raise ValueError(f"key {number} is not KEY_ID:BASE64[@CLUSTER_ID][:retired] (logagent topics keygen)")
    return words


def parse_number(value: object) -> object:
    """`value` unless it is a boolean, which pydantic would accept as 0 or 1 (`max_fraction = true`)."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


@dataclass(frozen=True)
class _Reads:
    """Tells pydantic to pass the raw value through `parse` first."""

    parse: Callable[[object], object]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        def read(value: object) -> object:
            return None if value is None else self.parse(value)

        return core_schema.no_info_before_validator_function(read, handler(source))


@dataclass(frozen=True)
class _Within:
    """Tells pydantic the valid range of a number, both ends included."""

    low: float
    high: float

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        def check(value: float) -> float:
            if not self.low <= value <= self.high:
                raise ValueError(f"must be between {self.low} and {self.high}")
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))


Duration = Annotated[int, _Reads(parse_duration)]
Size = Annotated[int, _Reads(parse_size)]
Words = Annotated[tuple[str, ...], _Reads(parse_words)]
Keys = Annotated[tuple[str, ...], _Reads(parse_keys)]
Fraction = Annotated[float, _Within(0.0, 1.0), _Reads(parse_number)]
Count = Annotated[int, _Within(1, 1_000_000), _Reads(parse_number)]
Workers = Annotated[int, _Within(1, 16), _Reads(parse_number)]
Millis = Annotated[int, _Within(0, 2**63 - 1), _Reads(parse_number)]

_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """`[kafka]`: where the broker's own files are, its version, and how to reach its cluster."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    config: str | None = None
    bootstrap_servers: str | None = None
    client: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsSettings:
    """`[assignments]`: where replica assignments are read, and how old they may be."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    sources: Words = ("kraft-log", "admin")
    file: str | None = None
    max_age: Duration = 15 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSettings:
    """`[cleanup]`: what is set aside and removed, after how long, and how much of the host in a day."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    mode: Literal["report", "enforce"] = "report"
    interval: Duration = 10 * MINUTE_MS
    sightings: Count = 3
    min_age: Duration = 24 * HOUR_MS
    stray_retention: Duration = 7 * DAY_MS
    leftover_grace: Duration = HOUR_MS
    max_fraction: Fraction = 0.1
    max_dirs: Count = 20
    quarantine_dirs: Words = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """`[guard]`: how long a broker must have been serving."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    settle: Duration = MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSettings:
    """`[delete]`: when marked directories are removed, how fast, and with how many threads."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    file_delete_delay_ms: Millis | None = None
    bytes_per_second: Size = 200 << 20
    workers: Workers = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """`[health]`: how log dirs are probed, and what happens when all of them are offline."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    probe_interval: Duration = 30 * SECOND_MS
    probe_timeout: Duration = 10 * SECOND_MS
    recovery_probes: Count = 3
    on_all_offline: Literal["stay", "halt"] = "stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """`[publish]`: where snapshots of this host go, and how often."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    store: str | None = None
    interval: Duration = HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersSettings:
    """`[orders]`: whether deletion requests of the fleet are carried out, and whose."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    accept: bool = False
    keys: Keys = ()
    interval: Duration = MINUTE_MS
    silent_after: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """`[store]`: what the fleet store can be relied on for."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    trust_exclusive_create: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """`[metrics]`: where metrics are exposed."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    listen: str | None = "127.0.0.1:9640"
    textfile: str | None = None
    kafka_names: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every section of `logagent.toml`; the keys and their meaning are described in `config/logagent.toml`."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    assignments: AssignmentsSettings = field(default_factory=AssignmentsSettings)
    cleanup: CleanupSettings = field(default_factory=CleanupSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    delete: DeleteSettings = field(default_factory=DeleteSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    publish: PublishSettings = field(default_factory=PublishSettings)
    orders: OrdersSettings = field(default_factory=OrdersSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)

    def written(self, section: str, key: str) -> str:
        """The value of one setting as people write it in `logagent.toml`; empty if it is not set."""
        part = getattr(self, section)
        value = getattr(part, key)
        if value is None or value == ():
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        # What reads it is in its annotation, which is a string here.
        kind = str(type(part).__annotations__[key]).partition(" ")[0]
        if kind == "Duration":
            return write_duration(value)
        if kind == "Size":
            return write_size(value)
        return ", ".join(value) if isinstance(value, tuple) else str(value)

    @property
    def silent_after(self) -> timedelta:
        """How long after it was heard last an agent counts as silent."""
        given = self.orders.silent_after
        return timedelta(milliseconds=given if given is not None else 2 * self.publish.interval)


_NAME = re.compile(r"(?i)passw|secret|token|jaas|credential|api.?key|storepass|keypass")
_IN_URL = re.compile(r"(://)[^/@\s]+@")
# Settings whose values are names match this; anything else got there by mistake.
_PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,32}")
HIDDEN = "***"


def without_secret(text: str) -> str:
    """`text` up to the value of the first password in it (`….password=***`)."""
    name = _NAME.search(text)
    value = text.find("=", name.end()) + 1 if name is not None else 0
    return _IN_URL.sub(rf"\1{HIDDEN}@", f"{text[:value]}{HIDDEN}" if value else text)


def without_secrets(words: Iterable[str]) -> list[str]:
    """A command line with the values of passwords hidden (`-D….keyStorePassword=…`, `--password …`)."""
    shown: list[str] = []
    hide = False
    for word in words:
        shown.append(HIDDEN if hide else without_secret(word))
        ends = [name.end() for name in _NAME.finditer(word)] if word.startswith("-") else []
        hide = bool(ends) and "=" not in word[ends[-1] :]
    return shown


def plain(value: str) -> str:
    """A value that should be one of a few names, if it is safe to print: a line that was joined with the next one by
    mistake may contain more."""
    return value if _PLAIN.fullmatch(value) else "what stands there"


def known_part(key: str, known: Iterable[str]) -> str:
    """The part of an unknown key that is safe to print: of `ssl.key.passwordabc` or `ssl.key.password=abc`, only the
    known name."""
    prefixes: Sequence[str] = [k for k in known if key.startswith(k)]
    if prefixes:
        return f"{max(prefixes, key=len)}…"
    match = re.match(r"[A-Za-z0-9_.-]*", key)
    return key if match is None or match[0] == key else f"{match[0]}…"


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
