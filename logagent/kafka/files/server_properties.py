"""The settings for log dirs and deletion in `server.properties`, as the broker interprets them (`KafkaConfig`, 3.9.1).

Only the file is read. `--override key=value` on the broker's command line and dynamic configuration
(`log.segment.delete.delay.ms`) can change values; neither is visible here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Final, TypeVar

from logagent.base.config.secrets import without_secret
from logagent.base.dir_names import INT_MAX, parse_int, parse_long
from logagent.base.errors import ConfigError, UnreadableError
from logagent.base.files.safe_open import PROPERTIES, read_regular
from logagent.kafka.files.java_properties import Property, iter_properties, trim
from logagent.kafka.identity import DEFAULT_RESERVED_MAX_ID
from logagent.kafka.image import Endpoint
from logagent.kafka.retention.settings import Layers, parsed_ms
from logagent.kafka.retention.topic_retention import may_be_true

DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"
DEFAULT_FILE_DELETE_DELAY_MS: Final = 60_000
DEFAULT_QUORUM_FETCH_TIMEOUT_MS: Final = 2_000
PROCESS_ROLES: Final = ("broker", "controller")

_NO_LOG_DIR = "At least one log directory must be defined via log.dirs or log.dir."
_BLANKS: Final = " \t\n\v\f\r"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """The keys that matter to us, and all keys as Java reads them (`props`).

    `log_dirs`: in Kafka's order, as written, neither made absolute nor deduplicated. 3.9 drops empty items and then
    refuses to start if two items are the same directory; 4.3 refuses empty items and drops items that are spelled the
    same. We read as 3.9 does and leave both findings to `check`. A relative path is relative to the broker's working
    directory, which this file does not contain.
    `metadata_log_dir`: where `__cluster_metadata-0` is (`metadata.log.dir`, else the first log dir).
    `node_id`: `node.id` or `broker.id`; None if absent or negative (a ZooKeeper-mode broker then generates one).
    `quorum_voters`: the ids in `controller.quorum.voters` without duplicates; also empty if the quorum is dynamic.
    `file_delete_delay_ms`: `log.segment.delete.delay.ms`, milliseconds.
    `quorum_fetch_timeout_ms`: `controller.quorum.fetch.timeout.ms`.
    """

    log_dirs: list[str]
    metadata_log_dir: str
    node_id: int | None
    process_roles: list[str]
    quorum_voters: list[int]
    file_delete_delay_ms: int
    delete_topic_enable: bool
    props: dict[str, str]
    quorum_fetch_timeout_ms: int = DEFAULT_QUORUM_FETCH_TIMEOUT_MS

    @property
    def layers(self) -> Layers:
        """What is set for topics that have no settings of their own; nothing that is dynamic."""
        return Layers(file=self.props)

    @property
    def controller_only(self) -> bool:
        """Whether it configures a controller that is no broker."""
        return self.process_roles == ["controller"]

    @property
    def generates_broker_id(self) -> bool:
        """`broker.id.generation.enable` (ZooKeeper mode): a broker without an id gets one from ZooKeeper."""
        return may_be_true(self.props.get("broker.id.generation.enable", "true"))

    @property
    def reserved_broker_max_id(self) -> int:
        """`reserved.broker.max.id` (ZooKeeper mode): generated ids are above it, configured ones are not."""
        parsed = parsed_ms(self.props.get("reserved.broker.max.id", ""))
        return DEFAULT_RESERVED_MAX_ID if parsed is None else parsed

    @property
    def tiers(self) -> bool:
        """Whether topics may be tiered (`remote.log.storage.system.enable`)."""
        return may_be_true(self.props.get("remote.log.storage.system.enable"))


def read_server_properties(path: str | PathLike[str]) -> ServerProperties:
    """`parse_server_properties` of a file, which may be a symlink; ConfigError also if it cannot be read."""
    try:
        data = read_regular(path, PROPERTIES, follow=True)
    except (OSError, UnreadableError) as error:
        problem = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"cannot read the broker's configuration: {problem}",
            problems=(problem,),
            hint="name the broker's file with --kafka-config, or its log dirs with --log-dir",
        ) from error
    return parse_server_properties(data, str(path))


def parse_server_properties(text: bytes, path: str = "server.properties") -> ServerProperties:
    """Parse a `server.properties`; raises ConfigError with all problems at once, each as "path:line: key: what".

    `log.dirs` is used whenever it is present: if it is empty, it does not fall back to `log.dir` (the broker refuses to
    start). A value that a config provider fills in (`${file:…}` with `config.providers`) is a problem: the broker uses
    another value than this text.
    """
    try:
        entries = {entry.key: entry for entry in iter_properties(text)}
    except UnreadableError as error:
        problem = f"{path}: {error}"
        raise ConfigError(f"not Java properties: {problem}", problems=(problem,)) from error
    reader = _Reader(path, entries)
    log_dirs = _log_dirs(reader)
    metadata_log_dir = reader.get("metadata.log.dir", log_dirs[0] if log_dirs else "", _path)
    roles: list[str] = reader.get("process.roles", [], _roles)
    result = ServerProperties(
        log_dirs=log_dirs,
        metadata_log_dir=metadata_log_dir,
        node_id=_node_id(reader, in_kraft_mode=bool(roles)),
        process_roles=roles,
        quorum_voters=reader.get("controller.quorum.voters", [], _voters),
        file_delete_delay_ms=reader.get("log.segment.delete.delay.ms", DEFAULT_FILE_DELETE_DELAY_MS, _delay),
        delete_topic_enable=reader.get("delete.topic.enable", True, _boolean),
        props={entry.key: entry.value for entry in entries.values()},
        quorum_fetch_timeout_ms=reader.get(
            "controller.quorum.fetch.timeout.ms", DEFAULT_QUORUM_FETCH_TIMEOUT_MS, _delay
        ),
    )
    if reader.problems:
        more = f" (and {len(reader.problems) - 1} more)" if len(reader.problems) > 1 else ""
        raise ConfigError(f"{reader.problems[0]}{more}", problems=tuple(reader.problems))
    return result


class _Reader:
    """Values by key, trimmed as `ConfigDef.parseType` does; collects problems."""

    def __init__(self, path: str, entries: dict[str, Property]) -> None:
        self.path = path
        self.entries = entries
        self.problems: list[str] = []
        providers = entries.get("config.providers")
        self._providers = frozenset(_csv(providers.value)) if providers else frozenset()

    def has(self, key: str) -> bool:
        return key in self.entries

    def get(self, key: str, default: T, convert: Callable[[str], T]) -> T:
        """The converted value of `key`, or `default` if it is absent or invalid (then a problem is noted)."""
        entry = self.entries.get(key)
        if entry is None:
            return default
        for provider, variable in _variables(entry.value):
            if provider in self._providers:
                self.note(key, f"{variable} is filled in by a config provider, which logagent does not resolve")
                return default
        try:
            return convert(trim(entry.value))
        except ValueError as error:
            self.note(key, str(error))
            return default

    def note(self, key: str, what: str) -> None:
        entry = self.entries.get(key)
        place = f"{self.path}:{entry.line}" if entry else self.path
        # A value that a backslash joined with the next line may contain the broker's passwords.
        self.problems.append(f"{place}: {key}: {without_secret(what)}")


def _log_dirs(reader: _Reader) -> list[str]:
    if reader.has("log.dirs"):
        return reader.get("log.dirs", [], _paths)
    return reader.get("log.dir", [DEFAULT_LOG_DIR], _paths)


def _node_id(reader: _Reader, *, in_kraft_mode: bool) -> int | None:
    """`KafkaConfig.populateSynonyms` and the checks on it."""
    node_id = reader.get("node.id", None, _number)
    broker_id = reader.get("broker.id", None, _number)
    if node_id is not None and broker_id is not None and node_id != broker_id:
        reader.note("node.id", f"{node_id} differs from broker.id, {broker_id}: the broker refuses to start")
    chosen = broker_id if node_id is None else node_id
    given = reader.has("node.id") or reader.has("broker.id")
    if in_kraft_mode and (not given or (chosen is not None and chosen < 0)):
        reader.note("node.id", "must be set to 0 or more where process.roles is set (KRaft mode)")
    elif chosen is not None and chosen < -1:
        reader.note("broker.id" if node_id is None else "node.id", f"{chosen} is below -1")
    return None if chosen is None or chosen < 0 else chosen


def _variables(value: str) -> Iterator[tuple[str, str]]:
    """Provider and text of each `${provider:key}` or `${provider:path:key}`, as ConfigTransformer's pattern finds them
    (which takes the square of the length of `${${${…`)."""
    for part in value.split("}")[:-1]:
        rest = part.partition("${")[2]
        provider, colon, _ = rest.partition(":")
        if colon:
            yield provider, f"${{{rest}}}"


def _split(text: str) -> list[str]:
    """At commas, with the blanks around them."""
    return [item.strip(_BLANKS) for item in text.split(",")]


def _csv(text: str) -> list[str]:
    """`CoreUtils.parseCsvList`: empty items are dropped."""
    return [item for item in _split(trim(text)) if item]


def _paths(text: str) -> list[str]:
    items = _csv(text)
    if not items:
        raise ValueError(_NO_LOG_DIR)
    return [_path(item) for item in items]


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{text!r} is not a path: it has a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not a path: it has half of a surrogate pair") from None
    return text


def _number(text: str) -> int | None:
    try:
        return parse_int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number up to {INT_MAX}") from None


def _delay(text: str) -> int:
    try:
        delay = parse_long(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of milliseconds") from None
    if delay < 0:
        raise ValueError(f"{delay} is below 0")
    return delay


def _boolean(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


def _roles(text: str) -> list[str]:
    roles = _split(text) if text else []
    for role in roles:
        if role not in PROCESS_ROLES:
            raise ValueError(f"{role!r} is not one of {', '.join(PROCESS_ROLES)}")
    if len(set(roles)) != len(roles):
        raise ValueError(f"{text!r} names a role twice")
    return roles


def _voters(text: str) -> list[int]:
    """The ids of `{id}@{host}:{port}` entries (`QuorumConfig.parseVoterConnections`)."""
    ids: dict[int, None] = {}
    for voter in _split(text) if text else []:
        number, at, address = voter.partition("@")
        if not at or ":" not in address:
            raise ValueError(f"{voter!r} is not of the form id@host:port")
        try:
            ids[parse_int(number)] = None
        except ValueError:
            raise ValueError(f"{number!r} in {voter!r} is not a voter id") from None
    return list(ids)


_LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", re.ASCII)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")
_MOST_PORT: Final = 65_535


def broker_listeners(props: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The addresses on this host at which clients reach the broker, as they are bound, not as they are advertised
    (`KafkaConfig.listeners`).

    Without those of the controller and of the control plane, which answer no client, and without any that cannot be
    read. An address that means "every interface" is given as the loopback address.
    """
    default = f"PLAINTEXT://{props.get('host.name', '')}:{props.get('port', '9092')}"
    hidden = {name.strip().upper() for name in props.get("controller.listener.names", "").split(",")}
    hidden.add(props.get("control.plane.listener.name", "").strip().upper())
    protocols = dict(zip(_PROTOCOLS, _PROTOCOLS, strict=True)) | _protocol_map(props)
    endpoints: list[Endpoint] = []
    for item in props.get("listeners", default).split(","):
        match = _LISTENER.fullmatch(item.strip())
        if match is None:
            continue
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name in hidden or name not in protocols or not 0 < port <= _MOST_PORT:
            continue
        endpoints.append(Endpoint(name, "127.0.0.1" if host in _ANY_ADDRESS else host, port, protocols[name]))
    return tuple(endpoints)


def inter_broker_listener(props: Mapping[str, str]) -> str:
    """The name of the listener through which brokers talk to each other."""
    named = props.get("inter.broker.listener.name") or props.get("security.inter.broker.protocol") or "PLAINTEXT"
    return named.strip().upper()


def _protocol_map(props: Mapping[str, str]) -> dict[str, str]:
    entries = (entry.partition(":") for entry in props.get("listener.security.protocol.map", "").split(","))
    named = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in entries}
    return {name: protocol for name, protocol in named.items() if protocol in _PROTOCOLS}
