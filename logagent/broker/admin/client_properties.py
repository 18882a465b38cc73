"""A Java client's properties file (`kafka.client`) as settings for kafka-python.

Only what decides how to connect is read: `security.protocol`, `sasl.*` and `ssl.*`. Every other key is for other
clients and is passed over; a security key that is not understood is refused, because leaving it out could weaken the
connection unseen. Differences from Java: PEM stores only, no GSSAPI and no OAUTHBEARER, `${…}` is not resolved, and
without a trust store the system's certificate authorities are trusted (Java: those that come with the JVM).
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from logagent.broker.admin.jaas import parse_jaas
from logagent.broker.files.java_properties import parse_properties
from logagent.errors import ConfigError, UnreadableError
from logagent.files.limits import PEM, PROPERTIES
from logagent.files.safe_open import opened_regular, read_regular
from logagent.model.secrets import known_part, plain

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
TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_PEM_HINT = (
    "only PEM stores are read: convert a trust store with `keytool -list -rfc -keystore STORE > ca.pem`, a key store "
    "with `openssl pkcs12 -in STORE.p12 -out key.pem -nodes`, and set the type to PEM"
)


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What the file says. `trust` and `key` are PEM text or, with `*_location`, the path of a PEM file."""

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


def client_properties(text: str | bytes) -> dict[str, Any]:
    """kafka-python's keyword arguments for the properties in `text`.

    Files named in it are read now. Raises ConfigError with every problem at once (key: what is wrong).
    """
    return connection_settings(parse_client_properties(text))


def read_client_properties(path: str) -> dict[str, Any]:
    """`client_properties` of a file; ConfigError also where it cannot be read."""
    try:
        data = read_regular(path, PROPERTIES, follow=True)
    except (OSError, UnreadableError) as error:
        problem = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot read the client properties: {problem}", problems=(problem,)) from error
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
        raise ConfigError(f"the client properties cannot be read: {error}", problems=(str(error),)) from error
    reader = _Reader(settings)
    security = reader.read()
    if reader.problems:
        raise ConfigError(
            f"the client properties are wrong: {'; '.join(reader.problems)}",
            problems=tuple(reader.problems),
            hint=reader.hint,
        )
    return security


class _Reader:
    """Reads one file's settings and gathers what is wrong with them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.problems: list[str] = []
        self.hint: str | None = None

    def read(self) -> ClientSecurity:
        self._refuse_unknown()
        protocol = self._get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            self._wrong("security.protocol", f"{plain(protocol)} is none of {', '.join(PROTOCOLS)}")
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

    def _refuse_unknown(self) -> None:
        for key, value in self._settings.items():
            if not key.startswith(("security.", "sasl.", "ssl.")):
                continue
            if key not in KNOWN_KEYS:
                told = known_part(key, KNOWN_KEYS)
                self._wrong(told, "this security setting is not supported", "remove it, or use another listener")
            elif value.startswith("${") and value.endswith("}"):
                self._wrong(key, "config providers are not resolved", "write the value itself into the file")

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
            self._wrong("sasl.jaas.config", f"{given} does not fit {mechanism}, which needs {expected}")
        if login.options.get("tokenauth", "false").lower() != "false":
            self._wrong("sasl.jaas.config", "delegation tokens (tokenauth) are not supported")
        for option in ("username", "password"):
            if option not in login.options:
                self._wrong("sasl.jaas.config", f"has no {option}")
        return mechanism, login.options.get("username"), login.options.get("password")

    def _store(self, store: str, inline_keys: tuple[str, ...]) -> tuple[str | None, str | None]:
        """(location, None), (None, PEM text) or (None, None) of `ssl.truststore` or `ssl.keystore`."""
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
            self._wrong("ssl.enabled.protocols", f"{', '.join(map(plain, wrong))} is none of {', '.join(TLS_VERSIONS)}")
        return versions


def connection_settings(security: ClientSecurity) -> dict[str, Any]:
    """kafka-python's keyword arguments for `security`; ConfigError where a PEM file or text cannot be used."""
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
            _load_key_text(context, security.key_pem, password)
    return context


@contextlib.contextmanager
def _pem_file(location: str | None) -> Iterator[str | None]:
    """A path by which OpenSSL, which opens files itself, reaches a regular file of a sensible size and nothing else."""
    if location is None:
        yield None
        return
    with opened_regular(location, PEM, follow=True) as fd:
        yield f"/proc/self/fd/{fd}"


def _load_key_text(context: ssl.SSLContext, pem: str, password: str) -> None:
    """OpenSSL takes a private key from a file only; this one never has a name on a disk."""
    descriptor = os.memfd_create("logagent-client-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(store: str, location: str | None) -> Iterator[None]:
    """Turn what goes wrong with a PEM store into a ConfigError that names its key and file."""
    try:
        yield
    except (OSError, ValueError, UnreadableError) as error:
        key = f"{store}.location: {location}" if location else store
        problem = f"{key}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
        raise ConfigError(f"the client properties are wrong: {problem}", problems=(problem,)) from error
