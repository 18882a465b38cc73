"""Whether a process listens on a port: real sockets of real processes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from logagent.base.linux.kernel import process_listens
from tests.command_line import process
from tests.needs import need_root

LISTENER = """
import socket, sys
server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
with open(sys.argv[1], "w") as file:
    file.write(str(server.getsockname()[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_only_the_process_that_listens_there_does(tmp_path: Path) -> None:
    path = tmp_path / "port"
    with process(LISTENER, path) as pid, socket.create_server(("127.0.0.1", 0)) as ours:
        port, our_port = int(path.read_text()), ours.getsockname()[1]
        assert process_listens(pid, port) and not process_listens(os.getpid(), port)
        assert process_listens(os.getpid(), our_port) and not process_listens(pid, our_port)
        # One that is connected to that port does not listen on it.
        with socket.create_connection(("127.0.0.1", port)):
            assert not process_listens(os.getpid(), port)
    assert not process_listens(pid, port), "there is no such process any more"


def test_a_port_in_another_network_namespace_is_another_port(tmp_path: Path) -> None:
    need_root()
    path = tmp_path / "port"
    apart = f"import ctypes; assert ctypes.CDLL(None).unshare(0x40000000) == 0\n{LISTENER}"
    with process(apart, path) as pid:
        assert not process_listens(pid, int(path.read_text()))
