"""Where a broker listens, from its `server.properties` (`KafkaConfig.listeners`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from logagent.model.assignments.image import Endpoint

_LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", re.ASCII)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")
_MOST_PORT: Final = 65_535


def broker_listeners(props: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The addresses on this host at which clients reach the broker, as they are bound, not as they are advertised.

    Without those of the controller and of the control plane, which answer no client, and without any that cannot be
    read. An address that means "every interface" is given as the loopback address.
    """
    default = f"PLAINTEXT://{props.get('host.name', '')}:{props.get('port', '9092')}"
    hidden = {name.strip().upper() for name in props.get("controller.listener.names", "").split(",")}
    hidden.add(props.get("control.plane.listener.name", "").strip().upper())
    protocols = dict(zip(_PROTOCOLS, _PROTOCOLS, strict=True)) | _protocol_map(props)
    found: list[Endpoint] = []
    for item in props.get("listeners", default).split(","):
        match = _LISTENER.fullmatch(item.strip())
        if match is None:
            continue
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name in hidden or name not in protocols or not 0 < port <= _MOST_PORT:
            continue
        found.append(Endpoint(name, "127.0.0.1" if host in _ANY_ADDRESS else host, port, protocols[name]))
    return tuple(found)


def inter_broker_listener(props: Mapping[str, str]) -> str:
    """The name of the listener through which brokers talk to each other."""
    named = props.get("inter.broker.listener.name") or props.get("security.inter.broker.protocol") or "PLAINTEXT"
    return named.strip().upper()


def _protocol_map(props: Mapping[str, str]) -> dict[str, str]:
    entries = (entry.partition(":") for entry in props.get("listener.security.protocol.map", "").split(","))
    named = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in entries}
    return {name: protocol for name, protocol in named.items() if protocol in _PROTOCOLS}
