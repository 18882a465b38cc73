"""A Java client's properties file (`kafka.client`) as settings for kafka-python.

Only the connection's security settings are read: `security.protocol`, `sasl.*` and `ssl.*`. Other keys are ignored; an
unknown security key is refused, because ignoring it could weaken the connection without notice. Differences from Java:
PEM stores only, no GSSAPI and no OAUTHBEARER, `${…}` is not resolved, and without a trust store the system's
certificate authorities are trusted (Java: those that come with the JVM).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from logagent.broker.admin.client_security import TLS_VERSIONS, ClientSecurity, connection_settings
from logagent.broker.admin.jaas import parse_jaas
from logagent.broker.files.java_properties import parse_properties
from logagent.errors import ConfigError, UnreadableError
from logagent.files.safe_open import PROPERTIES, read_regular
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
    """Reads one file's settings and collects their problems."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.problems: list[str] = []
        self.hint: str | None = None

    def read(self) -> ClientSecurity:
        self._refuse_unknown()
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

    def _refuse_unknown(self) -> None:
        for key, value in self._settings.items():
            if not key.startswith(("security.", "sasl.", "ssl.")):
                continue
            if key not in KNOWN_KEYS:
                shown = known_part(key, KNOWN_KEYS)
                self._wrong(shown, "this security setting is not supported", "remove it, or use another listener")
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
            self._wrong("sasl.jaas.config", f"{given} does not match {mechanism}, which needs {expected}")
        if login.options.get("tokenauth", "false").lower() != "false":
            self._wrong("sasl.jaas.config", "delegation tokens (tokenauth) are not supported")
        for option in ("username", "password"):
            if option not in login.options:
                self._wrong("sasl.jaas.config", f"has no {option}")
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
