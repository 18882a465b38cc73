"""What a failed connection says: one cause, the surest of what was seen, and what to do."""

from __future__ import annotations

import logging
import socket
import ssl

import kafka.errors as kafka_errors
import pytest

from logagent.kafka.admin.client import ClientLog, receive, why_not_connected


def handshake(reason: str, kind: type[ssl.SSLError] = ssl.SSLError) -> kafka_errors.KafkaConnectionError:
    tls = kind(1, f"[SSL: {reason}] in words (_ssl.c:1006)")
    tls.reason = reason
    if isinstance(tls, ssl.SSLCertVerificationError):
        tls.verify_message = "unable to get local issuer certificate"
    error = kafka_errors.KafkaConnectionError(f"Handshake failed: {tls}")
    error.__cause__ = tls
    return error


REFUSED = kafka_errors.KafkaConnectionError("111 ECONNREFUSED")
NO_NAME = kafka_errors.KafkaConnectionError("DNS Resolution failure")
CLOSED = kafka_errors.KafkaConnectionError("socket disconnected")
NO_TLS = handshake("UNEXPECTED_EOF_WHILE_READING")
NO_AUTHORITY = handshake("CERTIFICATE_VERIFY_FAILED", ssl.SSLCertVerificationError)
NO_CERTIFICATE = kafka_errors.KafkaConnectionError(handshake("TLSV13_ALERT_CERTIFICATE_REQUIRED"))
PASSWORD = kafka_errors.SaslAuthenticationFailedError("SaslAuthenticationFailedError: invalid credentials")
MECHANISM = kafka_errors.UnsupportedSaslMechanismError()


@pytest.mark.parametrize(
    ("error", "says", "do"),
    [
        (PASSWORD, "authentication failed: invalid credentials", "username and password of sasl.jaas.config"),
        (MECHANISM, "does not take this sasl.mechanism", "sasl.enabled.mechanisms"),
        (NO_AUTHORITY, "not accepted: unable to get local issuer certificate", "ssl.truststore.location"),
        (NO_CERTIFICATE, "does not accept our client certificate, or wants one", "ssl.keystore.location"),
        (NO_TLS, "does not speak TLS as security.protocol=SASL_SSL does", "set security.protocol"),
        (kafka_errors.IllegalSaslStateError(), "does not speak security.protocol=SASL_SSL", "set security.protocol"),
        (CLOSED, "closed without an answer, as by a listener with another protocol than SASL_SSL", "security.protocol"),
        (REFUSED, "connection refused: nothing listens there", "start the broker"),
        (NO_NAME, "the host name is not known here (DNS)", "correct the name in kafka.bootstrap_servers"),
    ],
)
def test_each_cause_has_its_sentence_and_what_to_do(error: BaseException, says: str, do: str) -> None:
    _, what, hint = why_not_connected(error, "SASL_SSL")
    assert (says in what, do in hint) == (True, True), (what, hint)


IN_ORDER = [PASSWORD, NO_AUTHORITY, NO_TLS, REFUSED, NO_NAME]


@pytest.mark.parametrize("number", range(1, len(IN_ORDER)))
@pytest.mark.parametrize("last", [True, False])
def test_the_surest_cause_is_kept_whatever_comes_before_or_after(number: int, last: bool) -> None:
    surer, other = IN_ORDER[number - 1], IN_ORDER[number]
    seen = [other, surer] if last else [surer, other]
    log = ClientLog(protocol="SASL_SSL", ignored=(kafka_errors.KafkaTimeoutError,), failed_left=99)
    for error in seen:
        log.emit(logging.LogRecord("kafka", logging.ERROR, "", 1, "Connection lost: %s", (error,), None))
    assert log.why(kafka_errors.KafkaTimeoutError("timed out")) == why_not_connected(surer, "SASL_SSL")


def test_an_answer_right_before_the_end_is_read_first() -> None:
    """A broker says "invalid credentials" and closes; kafka-python drops what comes together with an error."""
    ours, broker = socket.socketpair()
    with ours, broker:
        ours.setblocking(False)
        broker.sendall(b"invalid credentials")
        broker.shutdown(socket.SHUT_WR)
        assert receive(ours) == (b"invalid credentials", None)
        data, error = receive(ours)
        assert (data, str(error)) == (b"", "KafkaConnectionError: socket disconnected")
