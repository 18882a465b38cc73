"""Notifies systemd: `sd_notify(3)`, a datagram to the socket that it names. Does nothing without systemd."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """`NOTIFY_SOCKET` and `WATCHDOG_USEC` of `environ`. Sending never waits and never fails, even if nobody listens."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds: float | None = int(usec) / 1e6 if for_us and usec.isdecimal() and int(usec) else None

    def send(self, **fields: str) -> None:
        if not self._address.startswith(("/", "\0")):
            return
        message = "\n".join(f"{key}={value}" for key, value in fields.items()).encode("utf-8", "surrogateescape")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as s:
                s.sendto(message, self._address)
        except OSError:
            pass  # nobody listens; systemd's own timeouts see to the rest

    def ready(self, status: str) -> None:
        self.send(READY="1", STATUS=status)

    def status(self, status: str) -> None:
        self.send(STATUS=status)

    def reloading(self) -> None:
        """Must be followed by `ready` (systemd.service(5), `Type=notify-reload`)."""
        self.send(RELOADING="1", MONOTONIC_USEC=str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000))

    def stopping(self) -> None:
        self.send(STOPPING="1")

    def ping(self) -> None:
        self.send(WATCHDOG="1")
