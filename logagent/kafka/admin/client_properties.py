"""A Java client's properties file (`kafka.client`) as settings for kafka-python.

Only the connection's security settings are read: `security.protocol`, `sasl.*` and `ssl.*`. Other keys are ignored; an
unknown security key is refused, because ignoring it could weaken the connection without notice. Differences from Java:
PEM stores only, no GSSAPI and no OAUTHBEARER, `${…}` is not resolved, and without a trust store the system's
certificate authorities are trusted (Java: those that come with the JVM).

The login module in `sasl.jaas.config` is parsed as Kafka's `JaasConfig` does. Kafka splits the text with
`java.io.StreamTokenizer`, whose quirks are reproduced here because they affect passwords: quotes may be single or
double and support C's escapes, an unquoted value ends at the first unusual character, one that begins with a digit is a
number and therefore not accepted as a value, and `/` begins a comment.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from logagent.base.config.settings import known_part, plain
from logagent.base.errors import ConfigError, UnreadableError
from logagent.base.files.safe_open import PEM, PROPERTIES, opened_regular, read_regular
from logagent.kafka.files.properties import parse_properties

CONTROL_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")

_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = "01234567"
_DIGITS: Final = "0123456789.-"


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`module`: the Java class name; `options`: its options (of duplicates, the last)."""

    module: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Token:
    """`text` is None if Java's token has no `sval`: numbers and single characters (`symbol`)."""

    text: str | None
    symbol: str = ""


_END: Final = _Token(None, "end")


def parse_jaas(text: str) -> LoginModule:
    """The single login module in `text`; otherwise raises ValueError with Kafka's reason.

    Messages never quote `text`: after a misplaced quote, any word can be part of the password.
    """
    tokens = _tokens(text)
    modules: list[LoginModule] = []
    while (token := next(tokens, _END)) is not _END:
        modules.append(_entry(token, tokens))
    if not modules:
        raise ValueError("login module not specified in JAAS config")
    if len(modules) > 1:
        raise ValueError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def _entry(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, _END)
    if flag is _END:
        raise ValueError("login module control flag not specified in JAAS config")
    if first.text is None or flag.text is None or flag.text.upper() not in CONTROL_FLAGS:
        raise ValueError(f"login module control flag in JAAS config is none of {', '.join(CONTROL_FLAGS)}")
    options: dict[str, str] = {}
    while (key := next(tokens, _END)) is not _END and key.symbol != ";":
        equals, value = next(tokens, _END), next(tokens, _END)
        if equals.symbol != "=" or value.text is None or key.text is None:
            raise ValueError(f"value not specified for option {len(options) + 1} in JAAS config")
        options[key.text] = value.text
    if key is _END:
        raise ValueError("JAAS config entry not terminated by semi-colon")
    return LoginModule(first.text, options)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        character = text[position]
        if character <= " ":
            position += 1
        elif character == "/":
            position = _after_comment(text, position)
        elif character in "\"'":
            value, position = _quoted(text, position)
            yield _Token(value)
        elif character in _DIGITS:
            number = position + 1
            while number < len(text) and text[number] in "0123456789.":
                number += 1
            yield _Token(None, "number")
            position = number
        elif _is_word(character):
            end = position
            while end < len(text) and (_is_word(text[end]) or text[end] in _DIGITS):
                end += 1
            yield _Token(text[position:end])
            position = end
        else:
            yield _Token(None, character)
            position += 1


def _is_word(character: str) -> bool:
    return (character.isascii() and character.isalpha()) or character in "_$" or character >= "\xa0"


def _after_comment(text: str, position: int) -> int:
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    # Java has already consumed the character after the slash, even a line end, before it looks for the line end.
    position += 2
    while position < len(text) and text[position] not in "\r\n":
        position += 1
    return position


def _quoted(text: str, position: int) -> tuple[str, int]:
    """The string that begins at `position`, and where it ends; as in Java, the end of the line also ends it."""
    quote = text[position]
    position += 1
    out: list[str] = []
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character, position = _escape(text, position)
        out.append(character)
    if position < len(text) and text[position] == quote:
        position += 1
    return "".join(out), position


def _escape(text: str, position: int) -> tuple[str, int]:
    """The character for the escape whose first character (after the backslash) is at `position`, and where it ends."""
    character = text[position]
    if character not in _OCTAL:
        return _ESCAPES.get(character, character), position + 1
    longest = 3 if character <= "3" else 2
    end = position
    while end < min(len(text), position + longest) and text[end] in _OCTAL:
        end += 1
    return chr(int(text[position:end], 8)), end


TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The settings of a client properties file. `*_pem` is PEM text, `*_location` the path of a PEM file."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    trust_location: str | None = None
    trust_pem: str | None = None
    key_location: str | None = None
    key_pem: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    tls_versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")


def connection_settings(security: ClientSecurity) -> dict[str, Any]:
    """kafka-python's keyword arguments for `security`; ConfigError if a PEM file or text cannot be used."""
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    if security.mechanism is not None:
        settings["sasl_mechanism"] = security.mechanism
        settings["sasl_plain_username"] = security.username
        settings["sasl_plain_password"] = security.password
    if security.protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(security)
    return settings


def _ssl_context(security: ClientSecurity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = min(TLS_VERSIONS[version] for version in security.tls_versions)
    context.maximum_version = max(TLS_VERSIONS[version] for version in security.tls_versions)
    context.check_hostname = security.check_hostname
    with _named("ssl.truststore", security.trust_location):
        if security.trust_location or security.trust_pem:
            with _pem_file(security.trust_location) as file:
                context.load_verify_locations(cafile=file, cadata=security.trust_pem)
        else:
            context.load_default_certs()
    with _named("ssl.keystore", security.key_location):
        # An empty password keeps OpenSSL from asking for one on the terminal.
        password = security.key_password or ""
        if security.key_location:
            with _pem_file(security.key_location) as file:
                context.load_cert_chain(file or "", password=password)
        elif security.key_pem:
            # Load a private key through a memfd: OpenSSL reads keys only from files, and this one is never on a disk.
            descriptor = os.memfd_create("logagent-client-key", os.MFD_CLOEXEC)
            try:
                os.write(descriptor, security.key_pem.encode())
                context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
            finally:
                os.close(descriptor)
    return context


@contextlib.contextmanager
def _pem_file(location: str | None) -> Iterator[str | None]:
    """A path for OpenSSL, which opens files itself, that can only lead to a regular file of a sensible size."""
    if location is None:
        yield None
        return
    with opened_regular(location, PEM, follow=True) as fd:
        yield f"/proc/self/fd/{fd}"


@contextlib.contextmanager
def _named(store: str, location: str | None) -> Iterator[None]:
    """Turn errors of a PEM store into a ConfigError that names its key and file."""
    try:
        yield
    except (OSError, ValueError, UnreadableError) as error:
        key = f"{store}.location: {location}" if location else store
        problem = f"{key}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
        raise ConfigError(f"the client properties are wrong: {problem}", problems=(problem,), hint=_CORRECT) from error


_CORRECT: Final = "correct the file of kafka.client, or its owner and mode"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
KNOWN_KEYS: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.protocol",
    }
)

# Kafka's ConfigTransformer, also in the middle of a value (the password of sasl.jaas.config), and what a template left.
_FROM_PROVIDER = re.compile(r"\$\{[^}]*:[^}]*\}|\A\$\{.*\}\Z", re.DOTALL)

_PEM_HINT = (
    "only PEM stores are read: convert a trust store with `keytool -list -rfc -keystore STORE > ca.pem`, a key store "
    "with `openssl pkcs12 -in STORE.p12 -out key.pem -nodes`, and set the type to PEM"
)


def client_properties(text: str | bytes) -> dict[str, Any]:
    """kafka-python's keyword arguments for the properties in `text`.

    Reads the files named in it. Raises ConfigError with all problems at once (key: what is wrong).
    """
    return connection_settings(parse_client_properties(text))


def read_client_properties(path: str) -> dict[str, Any]:
    """`client_properties` of a file; ConfigError also if the file cannot be read."""
    try:
        data = read_regular(path, PROPERTIES, follow=True)
    except (OSError, UnreadableError) as error:
        problem = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"cannot read the client properties: {problem}", problems=(problem,), hint=_CORRECT
        ) from error
    try:
        return client_properties(data)
    except ConfigError as error:
        problems = tuple(f"{path}: {problem}" for problem in error.problems)
        raise ConfigError(f"{path}: {error}", problems=problems, hint=error.hint) from error


def parse_client_properties(text: str | bytes) -> ClientSecurity:
    """The security settings in `text` (bytes are Latin-1, as Java reads them); ConfigError lists every problem."""
    data = text if isinstance(text, bytes) else text.encode("latin-1", "backslashreplace")
    try:
        settings = parse_properties(data)
    except UnreadableError as error:
        raise ConfigError(
            f"the client properties cannot be read: {error}", problems=(str(error),), hint=_CORRECT
        ) from error
    reader = _SettingsReader(settings)
    security = reader.read()
    if reader.problems:
        raise ConfigError(
            f"the client properties are wrong: {'; '.join(reader.problems)}",
            problems=tuple(reader.problems),
            hint=reader.hint,
        )
    return security


class _SettingsReader:
    """Reads one file's settings and collects their problems."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.problems: list[str] = []
        self.hint: str | None = None

    def read(self) -> ClientSecurity:
        for key, value in self._settings.items():
            if not key.startswith(("security.", "sasl.", "ssl.")):
                continue
            if key not in KNOWN_KEYS:
                shown = known_part(key, KNOWN_KEYS)
                self._wrong(shown, "this security setting is not supported", "remove it, or use another listener")
            elif _FROM_PROVIDER.search(value):
                self._wrong(key, "config providers are not resolved", "write the value itself into the file")
        protocol = self._get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            self._wrong("security.protocol", f"{plain(protocol)} is not one of {', '.join(PROTOCOLS)}")
        mechanism, username, password = self._sasl() if protocol.startswith("SASL") else (None, None, None)
        if not protocol.endswith("SSL"):
            return ClientSecurity(protocol, mechanism, username, password)
        trust_location, trust_pem = self._store("truststore", ("ssl.truststore.certificates",))
        key_location, key_pem = self._store("keystore", ("ssl.keystore.key", "ssl.keystore.certificate.chain"))
        algorithm = self._get("ssl.endpoint.identification.algorithm", "https")
        if algorithm.lower() not in ("https", ""):
            self._wrong("ssl.endpoint.identification.algorithm", f"{plain(algorithm)} is neither https nor empty")
        return ClientSecurity(
            protocol,
            mechanism,
            username,
            password,
            trust_location=trust_location,
            trust_pem=trust_pem,
            key_location=key_location,
            key_pem=key_pem,
            key_password=self._settings.get("ssl.key.password"),
            check_hostname=bool(algorithm),
            tls_versions=self._tls_versions(),
        )

    def _get(self, key: str, default: str) -> str:
        return self._settings.get(key, default).strip()

    def _wrong(self, key: str, what: str, hint: str | None = None) -> None:
        self.problems.append(f"{key}: {what}")
        self.hint = self.hint or hint

    def _sasl(self) -> tuple[str | None, str | None, str | None]:
        mechanism = self._get("sasl.mechanism", "GSSAPI")
        if mechanism not in LOGIN_MODULES:
            which = plain(mechanism) if "sasl.mechanism" in self._settings else "GSSAPI (Kafka's default)"
            self._wrong("sasl.mechanism", f"{which} is not supported; {', '.join(LOGIN_MODULES)} are")
            return None, None, None
        if "sasl.jaas.config" not in self._settings:
            self._wrong("sasl.jaas.config", f"is missing, and sasl.mechanism={mechanism} needs it")
            return None, None, None
        try:
            login = parse_jaas(self._settings["sasl.jaas.config"])
        except ValueError as error:
            self._wrong("sasl.jaas.config", str(error))
            return None, None, None
        expected = LOGIN_MODULES[mechanism]
        if login.module.rpartition(".")[2] != expected:
            given = login.module if login.module.startswith("org.apache.kafka.") else "the login module"
            self._wrong("sasl.jaas.config", f"{given} does not match {mechanism}, which needs {expected}")
        if login.options.get("tokenauth", "false").lower() != "false":
            self._wrong("sasl.jaas.config", "delegation tokens (tokenauth) are not supported")
        for option in ("username", "password"):
            if option not in login.options:
                self._wrong("sasl.jaas.config", f"has no {option}")
        if login.options.get("password") == "PASSWORD":
            self._wrong(
                "sasl.jaas.config", "the password is still PASSWORD, as in the example", "put in that of the user"
            )
        return mechanism, login.options.get("username"), login.options.get("password")

    def _store(self, store: str, inline_keys: tuple[str, ...]) -> tuple[str | None, str | None]:
        """(location, None), (None, PEM text) or (None, None) for `ssl.truststore` or `ssl.keystore`."""
        kind, location = f"ssl.{store}.type", f"ssl.{store}.location"
        inline = [key for key in inline_keys if self._settings.get(key, "").strip()]
        path = self._get(location, "")
        if not path and not inline:
            return None, None
        given = self._get(kind, "JKS").upper()
        if given != "PEM":
            default = "" if kind in self._settings else " (Kafka's default)"
            self._wrong(kind, f"{plain(given)}{default} stores are not read", _PEM_HINT)
        if f"ssl.{store}.password" in self._settings and given == "PEM":
            self._wrong(f"ssl.{store}.password", "PEM stores have none; a key's password is ssl.key.password")
        if path and inline:
            self._wrong(location, f"and {inline[0]} exclude each other")
        if inline and len(inline) != len(inline_keys):
            missing = next(key for key in inline_keys if key not in inline)
            self._wrong(missing, f"is missing, and {inline[0]} is given")
        return (path, None) if path else (None, "\n".join(self._settings[key] for key in inline))

    def _tls_versions(self) -> tuple[str, ...]:
        text = self._get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")
        versions = tuple(version.strip() for version in text.split(","))
        if wrong := [version for version in versions if version not in TLS_VERSIONS]:
            self._wrong(
                "ssl.enabled.protocols", f"{', '.join(map(plain, wrong))} is not one of {', '.join(TLS_VERSIONS)}"
            )
        return versions
