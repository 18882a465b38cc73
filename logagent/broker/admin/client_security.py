"""The security of a connection to the Admin API, as kafka-python takes it: protocol, SASL, and PEM stores for TLS."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from logagent.errors import ConfigError, UnreadableError
from logagent.files.safe_open import PEM, opened_regular

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
            _load_key_text(context, security.key_pem, password)
    return context


@contextlib.contextmanager
def _pem_file(location: str | None) -> Iterator[str | None]:
    """A path for OpenSSL, which opens files itself, that can only lead to a regular file of a sensible size."""
    if location is None:
        yield None
        return
    with opened_regular(location, PEM, follow=True) as fd:
        yield f"/proc/self/fd/{fd}"


def _load_key_text(context: ssl.SSLContext, pem: str, password: str) -> None:
    """Load a private key through a memfd: OpenSSL reads keys only from files, and this one is never on a disk."""
    descriptor = os.memfd_create("logagent-client-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(store: str, location: str | None) -> Iterator[None]:
    """Turn errors of a PEM store into a ConfigError that names its key and file."""
    try:
        yield
    except (OSError, ValueError, UnreadableError) as error:
        key = f"{store}.location: {location}" if location else store
        problem = f"{key}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
        raise ConfigError(f"the client properties are wrong: {problem}", problems=(problem,)) from error
