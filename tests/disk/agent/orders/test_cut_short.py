"""An agent killed at, or failed by, each of its calls that write while it obeys an order: the next one finishes it.

What holds in the end, whatever happened: the directory is set aside once, it is answered so, nothing else was touched,
and `restore` gives it back. `LOGAGENT_TESTS_FULL=1`: at every call; otherwise at a few.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logagent.agent.orders.memory import OrderMemory
from logagent.store.answers import answers_folder
from logagent.store.deletion import Order
from logagent.store.orders import orders_folder
from tests.disk.agent.orders.test_orders import ORPHAN, OrderedHost
from tests.needs import need_command

WRITES = ("link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,fchmod,write,pwrite64,ftruncate,fsync,"
          "fdatasync")  # fmt: skip
FULL = bool(os.environ.get("LOGAGENT_TESTS_FULL"))
SITES = 3


class CutShort(OrderedHost):
    """A host whose agent is a process of its own; each round begins with the directory under its own name."""

    def begin(self) -> Order:
        for name in self.host.find("returns-2.", "-stray"):
            log_dir = next(d for d in (self.host.d1, self.host.d2) if (d / name).is_dir())
            (log_dir / name).rename(log_dir / "returns-2")
        self.others = self.listed()
        self._forget()
        self.configure()  # assignments of now: the long form takes longer than `assignments.max_age`
        return self.order("delete", self.identity(ORPHAN))

    def _forget(self) -> None:
        """No order of before, as after the controller's garbage collection: the calls are then the same each time."""
        for folder in (orders_folder(self.node), answers_folder(self.node)):
            for name in self.control.names(folder):
                self.control.remove(folder, name)
        memory = OrderMemory.load(str(self.host.state), 0)
        memory.answers, memory.done = {}, {}
        memory.save(str(self.host.state))
        self.box = None

    def listed(self) -> list[str]:
        return sorted(name for name in self.host.find("") if not name.startswith("returns-2"))

    def start_agents(self) -> None:
        command = [sys.executable, "-m", "tests.disk.agent.orders.obeying_agent", str(self.host.toml),
                   str(self.host.state)]  # fmt: skip
        self.stderr = self.host.state.parent / "agents.stderr"
        with self.stderr.open("w") as stderr:
            self.agents = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                           text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip

    def agent(self, *strace: str) -> int:
        """One agent under strace; its status as of `os.waitpid`."""
        assert self.agents.stdin is not None and self.agents.stdout is not None
        self.agents.stdin.write("\n")
        self.agents.stdin.flush()
        pid = int(self.agents.stdout.readline())
        tracer = subprocess.Popen(["strace", "-f", "-qq", *strace, "-p", str(pid)])
        try:
            while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
                assert tracer.poll() is None, "strace did not attach"
                time.sleep(0.002)
        finally:
            os.kill(pid, signal.SIGCONT)
        status = int(self.agents.stdout.readline())
        tracer.wait(60)
        said = self.stderr.read_text()
        assert "Traceback" not in said, (strace, said)
        return status

    def finished(self, order: Order, where: str) -> None:
        said: list[tuple[str, str | None, str | None]] = []
        for _ in range(3):
            self.obey(restart=True)
            answer = self.answer(order)
            said += [(r.result, r.guard, r.fact) for r in answer.results] if answer is not None else []
            if ("renamed", None, None) in said:
                break
        assert ("renamed", None, None) in said, (where, said)
        assert len(self.host.find("returns-2.", "-stray")) == 1 and "returns-2" not in self.host.find("returns-2"), (
            where
        )
        assert self.listed() == self.others, where


@pytest.mark.parametrize("fault", ["signal=KILL", "error=EIO", "error=ENOSPC"] if FULL else ["signal=KILL"])
def test_an_agent_cut_short_at_any_call_that_writes_is_finished_by_the_next(tmp_path: Path, fault: str) -> None:
    need_command("strace")
    host, trace = CutShort(tmp_path), tmp_path / "trace"
    host.start_agents()
    for _ in range(2):  # the first one of a state dir leaves files that later ones find
        order = host.begin()
        assert host.agent("-o", str(trace), "-e", f"trace={WRITES}") == 0, host.stderr.read_text()
        host.finished(order, "uncut")
    calls = [match[1] for line in trace.read_text().splitlines() if (match := re.match(r"\d+ +(\w+)\(", line))]
    counted = {call: calls.count(call) for call in dict.fromkeys(calls)}
    sites = [(call, n) for call, count in counted.items() for n in range(1, count + 1)]
    sites.sort(key=lambda site: counted[site[0]])  # the long form takes an hour: what is done once comes first
    assert len(sites) > 20 and counted.keys() & {"rename", "renameat", "renameat2"}, counted
    cut = 0
    print(counted, flush=True)
    for call, n in sites if FULL else sites[:: max(1, len(sites) // SITES)]:
        print(fault, call, n, flush=True)
        order = host.begin()
        status = host.agent("-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={n}")
        # How often the executor lock's note is written depends on how long a run takes.
        reached = "KILL" not in fault or status == signal.SIGKILL or call in ("ftruncate", "pwrite64")
        assert reached, f"{call} {n} was not reached"
        cut += status != 0
        host.finished(order, f"{fault} at {call} {n}")
    assert cut >= (len(sites) // 2 if FULL else 1), f"{cut} of {len(sites)} runs were cut short"
    host.restore()
    host.agents.communicate(timeout=60)
