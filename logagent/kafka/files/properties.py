"""The properties files of a node, and `partition.metadata`, as Kafka reads them.

`server.properties`: the settings for log dirs and deletion, as the broker interprets them (`KafkaConfig`, 3.9.1). Only
the file is read. `--override key=value` on the broker's command line and dynamic configuration
(`log.segment.delete.delay.ms`) can change values; neither is visible here.

`meta.properties`: which cluster, node and directory a log dir belongs to (Kafka's `MetaProperties`, KIP-858).
`partition.metadata` in a partition dir: the topic id of its records (Kafka's `PartitionMetadataFile`).

The format is that of `java.util.Properties.load(InputStream)` (Java 9 and later). Kafka opens both files
(`Utils.loadProps`, `PropertiesUtils.readPropertiesFile`) as byte streams, so they are decoded as Latin-1 whatever the
editor wrote: `log.dirs=/é` in UTF-8 means `/Ã©` to the broker, and so it does here. Whitespace around keys and before
values is dropped, whitespace after values is kept.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Final, NamedTuple, TypeVar

from logagent.base.config.settings import without_secret
from logagent.base.dir_names import INT_MAX, PARTITION_METADATA, parse_int, parse_long
from logagent.base.errors import ConfigError, NotAsPlanned, UnreadableError, cited
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import PROPERTIES, read_regular
from logagent.base.records import ZERO_ID, PartitionDir, canonical_id
from logagent.kafka.identity import DEFAULT_RESERVED_MAX_ID, MetaRead
from logagent.kafka.image import Endpoint
from logagent.kafka.retention.settings import Layers, may_be_true, parsed_ms

# `String.trim`: everything up to U+0020, and nothing above it.
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_FIELD_BLANKS: Final = " \t\f"
_SEPARATORS: Final = "=:"
_LINE_END: Final = re.compile("(\r\n|\n|\r)")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


class Property(NamedTuple):
    """One entry. `line`: the number (from 1) of the natural line on which it begins."""

    key: str
    value: str
    line: int


def trim(text: str) -> str:
    """As Java's `String.trim`."""
    return text.strip(_TRIMMED)


def parse_properties(data: bytes) -> dict[str, str]:
    """All keys and values; of a duplicate key, the last value.

    Raises UnreadableError for a malformed `\\uXXXX`, the only thing that Java refuses.
    """
    return {entry.key: entry.value for entry in iter_properties(data)}


def iter_properties(data: bytes) -> Iterator[Property]:
    """The entries in file order, including overridden ones; raises UnreadableError like `parse_properties`."""
    for line, text in _logical_lines(data.decode("latin-1")):
        key_end, value_start = _key_end(text)
        try:
            yield Property(_unescape(text[:key_end]), _unescape(text[value_start:]), line)
        except ValueError as error:
            raise UnreadableError(f"line {line}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines, each with the number of its first line.

    Mirrors `Properties.LineReader` including its quirks: a continued line that is still empty may be followed by a
    comment or blank lines, and a lone backslash at the end of the file makes an entry, unless `\\r\\n` follows.
    """
    parts = _LINE_END.split(text)  # natural lines at even positions, their line ends at odd ones
    ends = [*parts[1::2], ""]
    line = ""
    first = 1
    for number, (natural, end) in enumerate(zip(parts[::2], ends, strict=True), 1):
        natural = natural.lstrip(_FIELD_BLANKS)
        if not line:
            first = number
            if not natural or natural[0] in "#!":
                continue
        continued = (len(natural) - len(natural.rstrip("\\"))) % 2 == 1
        line += natural[:-1] if continued else natural
        at_end = end == "" or (end != "\r\n" and number == len(ends) - 1 and not parts[-1])
        if continued and not at_end:
            continue
        yield first, line
        line = ""


def _key_end(line: str) -> tuple[int, int]:
    """Where the key ends and the value begins."""
    escaped = False
    key_end = len(line)
    for position, character in enumerate(line):
        if not escaped and (character in _SEPARATORS or character in _FIELD_BLANKS):
            key_end = position
            break
        escaped = character == "\\" and not escaped
    value_start = key_end
    separator_seen = False
    while value_start < len(line):
        character = line[value_start]
        if character in _SEPARATORS and not separator_seen:
            separator_seen = True
        elif character not in _FIELD_BLANKS:
            break
        value_start += 1
    return key_end, value_start


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        # There is no lone backslash at the end: `_logical_lines` removed it, and `_key_end` does not split escapes.
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                raise ValueError("Malformed \\uxxxx encoding.")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    # Java strings are UTF-16: two escapes that form a surrogate pair are one character.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"
DEFAULT_FILE_DELETE_DELAY_MS: Final = 60_000
DEFAULT_QUORUM_FETCH_TIMEOUT_MS: Final = 2_000
PROCESS_ROLES: Final = ("broker", "controller")

_CORRECT = "correct that file, or name another one with --kafka-config"
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
        raise ConfigError(f"not Java properties: {problem}", problems=(problem,), hint=_CORRECT) from error
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
        raise ConfigError(f"{reader.problems[0]}{more}", problems=tuple(reader.problems), hint=_CORRECT)
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


META_PROPERTIES: Final = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file. Version 1 always has cluster and node id; in version 0 either may be missing (None).

    `node_id` is `broker.id` in version 0 and `node.id` in version 1; it may be -1, which means that none was given.
    `directory_id` is canonical text, None before 3.7. An empty file is read as version 0 without entries: Kafka accepts
    that, so callers that need a cluster id must check that there is one.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parse the file's bytes; raises UnreadableError, with Kafka's message, exactly if a 3.9.1 broker refuses them."""
    try:
        props = parse_properties(data)
        version = _version(props.get("version", "0"))
        if version == 0:
            node_id = _required_number(props, "broker.id") if "broker.id" in props else None
        elif "node.id" in props:
            node_id = _required_number(props, "node.id")
        else:
            raise UnreadableError("Failed to find node.id")
        directory_id = props.get("directory.id")
        if directory_id is not None:
            directory_id = _directory_id(directory_id)
    except UnreadableError as error:
        raise UnreadableError(f"{META_PROPERTIES}: {error}") from None
    cluster_id = props.get("cluster.id")
    if version == 1 and cluster_id is None:
        raise UnreadableError(f"{META_PROPERTIES}: cluster.id was not found.")
    return MetaProperties(version, cluster_id, node_id, directory_id)


def read_meta_properties(dir_fd: int, *, follow: bool = False) -> MetaProperties | None:
    """The `meta.properties` of an open log dir; None if there is none. All reads of this file go through here.

    `follow`: follow a symlink, as the broker does; never set when we act on the content.
    Raises UnreadableError if a broker would refuse the file, OSError from the disk.
    """
    try:
        data = read_regular(META_PROPERTIES, limits.META_PROPERTIES, dir_fd=dir_fd, follow=follow)
    except FileNotFoundError:
        return None
    return parse_meta_properties(data)


def read_meta_file(dir_fd: int) -> MetaRead:
    """The `meta.properties` of an open log dir. Raises OSError only if the disk fails."""
    try:
        meta = read_meta_properties(dir_fd)
    except UnreadableError as error:
        return MetaRead(error=str(error))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return MetaRead(error=error.strerror)
        raise
    if meta is None:
        return MetaRead(missing=True)
    return MetaRead(cluster_id=meta.cluster_id, node_id=meta.node_id, directory_id=meta.directory_id)


def _version(text: str) -> int:
    try:
        version = parse_int(trim(text))
    except ValueError:
        raise UnreadableError(f"Invalid meta.properties version string '{text}'") from None
    if version not in (0, 1):
        raise UnreadableError(f"Unknown meta.properties version number {version}")
    return version


def _required_number(props: Mapping[str, str], key: str) -> int:
    try:
        return parse_int(props[key])
    except ValueError as error:
        raise UnreadableError(f"Unable to read {key} as a base-10 number. {error}") from None


def _directory_id(text: str) -> str:
    try:
        return canonical_id(text)
    except ValueError as error:
        raise UnreadableError(f"Unable to read directory.id as a Uuid: {error}") from None


# The form that every broker since 2.8 writes; anything else goes through the full parser.
_AS_WRITTEN: Final = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{21}[AQgw])\n?")
_COLON: Final = re.compile(r":[ \t\n\v\f\r]+")


def read_topic_id(dir_fd: int) -> str | None:
    """Read the topic id in the open partition dir `dir_fd`; None if the file is missing.

    Raises `UnreadableError` if it cannot be trusted, `OSError` if it cannot be read.
    """
    try:
        return parse_partition_metadata(read_regular(PARTITION_METADATA, limits.PARTITION_METADATA, dir_fd=dir_fd))
    except FileNotFoundError:
        return None


def same_topic_id(d: PartitionDir, fd: int) -> None:
    """Raises NotAsPlanned unless the directory `fd` has the topic id that was judged.

    The inventory's id may be out of date: editing `partition.metadata` in place does not change the directory's mtime.
    """
    try:
        topic_id = read_topic_id(fd)
    except UnreadableError as e:
        raise NotAsPlanned(f"{d.log_dir}/{d.name}: {e}") from e
    if topic_id != d.topic_id:
        raise NotAsPlanned(
            f"{d.log_dir}/{d.name} has the topic id {topic_id} now, but it was judged with {d.topic_id}",
            hint="something edits partition.metadata there; run the command again for a new plan",
        )


def parse_partition_metadata(data: bytes) -> str:
    """The topic id as canonical text.

    Raises UnreadableError if a 3.9.1 broker would refuse the file, including for the zero id; for most of these a
    broker takes the log dir offline. As in Kafka, only the first two lines count, whatever their keys are.
    Deviation: bytes that are not UTF-8 are refused anywhere; Kafka notices them only in the first 8192 bytes.
    """
    match = _AS_WRITTEN.fullmatch(data)
    topic_id = match[1].decode("ascii") if match is not None else _read(data)
    if topic_id == ZERO_ID:
        raise UnreadableError(f"{PARTITION_METADATA}: the topic id is the zero id")
    return topic_id


def _read(data: bytes) -> str:
    # bytes.splitlines splits only at \n, \r and \r\n, like Java's readLine; str.splitlines splits at more characters.
    lines = data.splitlines()
    try:
        data.decode()
        if len(lines) < 2:
            raise UnreadableError(f"{PARTITION_METADATA}: {len(lines)} of its two lines found")
        version = parse_int(_value(lines[0]))
        if version < 0:
            raise UnreadableError(f"{PARTITION_METADATA}: unrecognized version {version}")
        return canonical_id(_value(lines[1]))
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{PARTITION_METADATA}: byte {error.start} is not UTF-8") from None
    except ValueError as error:
        raise UnreadableError(f"{PARTITION_METADATA}: {error}") from None


def _value(line: bytes) -> str:
    """The second of exactly two parts; like Java's `split`, empty parts at the end are dropped."""
    parts = _COLON.split(line.decode())
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) != 2:
        raise ValueError(f"malformed line {cited(line.decode())}")
    return parts[1]
