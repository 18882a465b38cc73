"""Where a broker listens, as its configuration says."""

from __future__ import annotations

import pytest

from logagent.kafka.files.properties import broker_listeners, inter_broker_listener, parse_server_properties

MAP = "listener.security.protocol.map"


@pytest.mark.parametrize(
    ("properties", "listeners"),
    [
        ("", [("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]),
        ("port=9192\nhost.name=kafka-1", [("PLAINTEXT", "kafka-1", 9192, "PLAINTEXT")]),  # until 2.8
        ("listeners=PLAINTEXT://:9092", [("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]),
        ("listeners=PLAINTEXT://0.0.0.0:9092", [("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]),
        ("listeners=SSL://[::]:9093", [("SSL", "127.0.0.1", 9093, "SSL")]),
        ("listeners=SSL://[fe80::1%eth0]:9093", [("SSL", "fe80::1%eth0", 9093, "SSL")]),
        (
            f"listeners=clients://k:1, BROKERS://k:2\n{MAP}=CLIENTS:SASL_SSL,brokers:plaintext",
            [("CLIENTS", "k", 1, "SASL_SSL"), ("BROKERS", "k", 2, "PLAINTEXT")],
        ),
        # Controllers answer no client; what has no protocol, no port or no form cannot be asked.
        (
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
            f"{MAP}=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            [("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")],
        ),
        ("listeners=UNKNOWN://:9092,PLAINTEXT://:0,PLAINTEXT:9092,${a:b}", []),
        (f"listeners=A://:70000,B://:1\n{MAP}=A:PLAINTEXT,B:NONE", []),
    ],
)
def test_the_addresses_of_the_listeners_are_read(properties: str, listeners: list[tuple[str, str, int, str]]) -> None:
    assert list(broker_listeners(parse_server_properties(properties.encode()).props)) == listeners


@pytest.mark.parametrize(
    ("properties", "name"),
    [("", "PLAINTEXT"), ("security.inter.broker.protocol=SSL", "SSL"), ("inter.broker.listener.name=inside", "INSIDE")],
)
def test_the_listener_between_brokers(properties: str, name: str) -> None:
    assert inter_broker_listener(parse_server_properties(properties.encode()).props) == name
