"""Brokers with an agent beside each, a store, a key, and the commands of an operator who deletes topics there."""

from __future__ import annotations

import ctypes
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from logagent.cli import run
from logagent.store.shared import init_store
from logagent.store.signing import generate
from tests.broker.rig.cluster import Cluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.command_line import Ran
from tests.daemon_process import DaemonProcess
from tests.documents import assert_promised
from tests.forked import run_forked

_CLONE_NEWUTS, _CLONE_NEWUSER = 0x0400_0000, 0x1000_0000
SILENT_AFTER = "LOGAGENT_ORDERS__SILENT_AFTER"
# Each agent is on its own machine: with its own name, in its own namespace.
ELSEWHERE = """
import socket, sys
socket.sethostname(sys.argv.pop(1))
from logagent.cli import main
main()
"""
# The same, killed right behind the return of one of its calls.
KILLED = """
import os, signal, socket, sys
from importlib import import_module
socket.sethostname(sys.argv.pop(1))
module, _, names = sys.argv.pop(1).partition(":")
*path, name = names.split(".")
owner = import_module(module)
for each in path:
    owner = getattr(owner, each)
real = getattr(owner, name)
def killed(*args, **named):
    real(*args, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, killed)
from logagent.cli import main
main()
"""
# Behind which call a process that asks is killed: the request is written, decided, sent to the cluster.
ASKED = "logagent.deletion.command.requesting:write_request"
DECIDED = "logagent.deletion.controller.deletions:decide"
SENT = "logagent.deletion.command.requesting:Admin.delete_topics"


class OrderedCluster:
    """Brokers by node id, a store, a key, and the commands of an operator."""

    def __init__(self, root: Path, nodes: Mapping[int, KafkaNode]) -> None:
        self.root, self.nodes = root, nodes
        self.cluster: Cluster[Any]
        self.store, self.key = root / "store", root / "key"
        self.store.mkdir()
        init_store(str(self.store))
        self.public = generate("ops", self.key).public()
        self.daemons = ExitStack()
        self.running: dict[int, DaemonProcess] = {}
        self.settings: dict[str, str] = {}
        self.silent_after = "20s"

    def agent(self, node_id: int) -> None:
        """Start the daemon beside a broker (in report mode: orders are obeyed all the same)."""
        folder = self.root / f"agent{node_id}"
        folder.mkdir(exist_ok=True)
        command = elsewhere(f"kafka-{node_id}", ELSEWHERE, "run", "--log-format", "json")
        started = DaemonProcess(folder, *self._arguments(node_id), command=command, **self._environment(node_id))
        self.running[node_id] = self.daemons.enter_context(started)

    def prestart(self, node_id: int) -> Ran:
        """`logagent prestart` beside a stopped broker, with the settings and the state of its agent."""
        return self.command(node_id, "prestart", "--budget", "60s")

    def scan(self, node_id: int) -> Any:
        """What `logagent scan` says with the settings and the state of an agent, which knows the cluster's brokers."""
        ran = self.command(node_id, "scan", "--json")
        assert ran.out, ran.err
        return ran.json

    def command(self, node_id: int, *words: str) -> Ran:
        """`logagent …` on a broker's host, with the settings and the state of its agent."""
        return run_forked(*words, *self._arguments(node_id), environment=self._environment(node_id))

    def _arguments(self, node_id: int) -> list[str]:
        state = self.root / f"agent{node_id}" / "state"
        return ["--kafka-config", str(self.nodes[node_id].config), "--state-dir", str(state)]

    def _environment(self, node_id: int) -> dict[str, str]:
        return {
            "LOGAGENT_KAFKA__VERSION": self.nodes[node_id].version, "LOGAGENT_CLEANUP__MODE": "report",
            "LOGAGENT_CLEANUP__INTERVAL": "5s", "LOGAGENT_GUARD__SETTLE": "1s",
            "LOGAGENT_PUBLISH__STORE": str(self.store), "LOGAGENT_PUBLISH__INTERVAL": "5s",
            "LOGAGENT_ORDERS__ACCEPT": "true", "LOGAGENT_ORDERS__KEYS": self.public,
            "LOGAGENT_ORDERS__INTERVAL": "1s", **self.settings,
        }  # fmt: skip

    def stop_agent(self, node_id: int) -> None:
        process = self.running.pop(node_id).process
        process.terminate()
        process.wait(30)

    def topics(self, command: str, *words: str) -> tuple[int, Any, str]:
        """Exit status, document (of `purge` the plan of this cluster) and messages of `logagent topics …`, run on the
        operator's machine."""
        arguments = ("topics", command, *words, "--json", *self._place())
        ran = run_forked(*arguments, prepare=partial(move_elsewhere, "operator"), environment=self._operator())
        document = ran.json if ran.out else None
        if document is not None and "plans" in document:
            document = document["plans"][0] if document["plans"] else None
        return ran.status, document, ran.err

    def asked_and_killed(self, topic: str, behind: str) -> Any:
        """The request of a `topics delete` that was killed as soon as the call `behind` (module:name) returned."""
        before = {r["request_id"] for r in self.status()["requests"]}
        plan = self.topics("delete", "--topic", topic)[1]
        words = ["delete", "--topic", topic, "--execute", *approving(plan), "--timeout", "2m"]
        command_line = elsewhere("operator", KILLED, behind, "topics", *words, *self._place())
        environment = {**os.environ, **self._operator()}
        ran = subprocess.run(command_line, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == -signal.SIGKILL, (ran.returncode, ran.stderr)
        (request,) = [r for r in self.status()["requests"] if r["request_id"] not in before]
        return request

    def _operator(self) -> dict[str, str]:
        return {SILENT_AFTER: self.silent_after, "LOGAGENT_ORDERS__KEYS": self.public}

    def _elsewhere(self, *words: str) -> list[str]:
        return elsewhere("operator", ELSEWHERE, "topics", *words, *self._place())

    def _place(self) -> list[str]:
        return ["--store", str(self.store), "--cluster", self.nodes[1].cluster_id, "--key", str(self.key),
                "--state-dir", str(self.root / "cli"), "--bootstrap-server", self.nodes[1].bootstrap]  # fmt: skip

    @contextmanager
    def controller(self) -> Iterator[None]:
        """`logagent topics run --interval` in a process of its own, which is killed at the end."""
        process = subprocess.Popen(self._elsewhere("run", "--interval", "2s"), env={**os.environ, **self._operator()},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            yield
        finally:
            process.kill()
            process.wait(30)

    def status(self) -> Any:
        """As anybody sees it who looks from here."""
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as said:
            before = {name: os.environ.get(name) for name in self._operator()}
            os.environ.update(self._operator())
            try:
                status = run(["topics", "status", *self._place(), "--json"])
            finally:
                for name, value in before.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})
        assert status == 0, said.getvalue()
        document = json.loads(out.getvalue())
        assert_promised(document, "topics")
        return document

    def heard(self, *nodes: int) -> None:
        """Every one of these agents has published."""
        landing = self.store / "landing" / self.nodes[1].cluster_id
        wait_until(lambda: all(list(landing.glob(f"*/{n}/*.manifest.json")) for n in nodes), 120, "agents publish")


def move_elsewhere(host: str) -> None:
    """This process, a fork, is on a machine of that name from now on."""
    user = os.geteuid()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUTS | (_CLONE_NEWUSER if user else 0)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    if user:
        Path("/proc/self/uid_map").write_text(f"0 {user} 1\n")
    socket.sethostname(host)


def elsewhere(host: str, program: str, *words: str) -> list[str]:
    """`logagent` on a machine of that name."""
    namespace = ["unshare", "--uts"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--uts"]
    return [*namespace, sys.executable, "-c", program, host, *words]


def approving(plan: Any) -> list[str]:
    """The option that approves a plan, word by word, as the plan names them."""
    words = ",".join(dict.fromkeys(each["word"] for each in plan["approval"]["needed"]))
    return ["--approve", f"{plan['plan_id']}:{words}"] if words else []


class Backup:
    """A store as it is now, to be put back in one step: whoever writes to it goes on with what is there then."""

    def __init__(self, store: Path) -> None:
        self.store = store
        number = len(list(store.parent.glob("backup-*")))
        self.made = store.parent / f"backup-{number}"
        for _ in range(100):  # a file that is replaced meanwhile is copied the next time
            try:
                shutil.copytree(store, self.made, symlinks=True)
                return
            except shutil.Error:
                shutil.rmtree(self.made)
        raise AssertionError("the store could not be copied")

    def put_back(self) -> None:
        """What is lost takes its place."""
        lost = self.made.with_name(f"lost-{self.made.name}")
        self.store.rename(lost)
        self.made.rename(self.store)
        lost.rename(self.made)


def current(node: KafkaNode, topic: str) -> list[str]:
    """What lies on a node's disks as a living log of this topic."""
    names = [d.name for path in node.log_dirs for d in path.iterdir() if d.is_dir()]
    return [name for name in names if name.startswith(f"{topic}-") and not name.endswith(("-delete", "-stray"))]
