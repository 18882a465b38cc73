"""A stopped broker's host, on a real disk, whose agent takes requests from a store of its own; others are files."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from logagent.base.config.config import load
from logagent.base.errors import LogAgentError
from logagent.base.units import instant
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.session.session import Session
from logagent.deletion.agent.directories import DirectoryRun
from logagent.deletion.agent.node_requests import NodeRequests, requests_of
from logagent.deletion.store.answers import Answer, Answers, DirectoryAnswer, Seen, TopicAnswer
from logagent.deletion.store.requests import (
    DECISION_SCHEMA,
    ControlFolder,
    Decided,
    Decision,
    Request,
    RequestedDirectory,
    RequestedTopic,
    RequestOutcome,
    TopicOutcome,
    decide,
    encode,
    folder_of,
    write_outcome,
    write_request,
)
from logagent.kafka.files.log_extent import read_log_extent
from logagent.kafka.processes.target import resolve_target
from logagent.service.daemon.cycles import Cycles
from logagent.service.events import Events, LogLines
from logagent.store.shared import init_store
from logagent.store.signing import PrivateKey, public_key
from logagent.verdict.facts import Facts
from tests.fake_time import LaterClock
from tests.host import Host

KEY = PrivateKey("ops", b"\x01" * 32)
STRANGER = PrivateKey("ops", b"\x02" * 32)
KEYS = (public_key(KEY.public()),)
ORPHAN = ("returns", "bwNdQY5qTvafpK2nnv5ySQ", 2)
ASSIGNED = ("ledger", "GV0qzMDvT22hnez0WEhd5g", 0)
STRAY = ("invoices", "SKeC3pLWQPidJvA42PZhhw", 1)
CLUSTER, NODE = "8o3B_-jNSz218yyfPu-6Pg", 3
Which = tuple[str, str, int]
NO_SETTINGS: Mapping[str, Any] = {}


def soon() -> datetime:
    """Later than the memory of an agent that was born just now; of a decision, not before its request."""
    return datetime.now(UTC) + timedelta(milliseconds=5)


class RequestedHost:
    def __init__(self, root: Path, settings: Mapping[str, Any] = NO_SETTINGS, *, born: bool = True) -> None:
        self.host = Host.from_disk(root)
        self.store = root / "store"
        self.store.mkdir()
        init_store(str(self.store))
        self.settings: dict[str, Any] = {
            "cleanup.max_fraction": 1.0, "publish.store": str(self.store),
            "orders.accept": True, "orders.keys": [KEY.public()], **settings,
        }  # fmt: skip
        self.clock = LaterClock()
        self.configure()
        self.control, self.answers = ControlFolder(self.store, CLUSTER), Answers(self.store, CLUSTER)
        self.node_requests: NodeRequests | None = None
        self.runs: list[DirectoryRun] = []
        if born:
            self.minute()

    def configure(self, *, topics_gone: object = False, **more: Any) -> None:
        self.settings |= more
        self.host.with_assignments(topics_gone=topics_gone, **self.settings)

    # What operators and controllers write

    def request(self, *rows: RequestedDirectory, key: PrivateKey = KEY, **more: Any) -> str:
        now = soon()
        kind: Literal["topics", "directories"] = "topics" if "topics" in more else "directories"
        asked = Request(
            CLUSTER, kind, "0" * 16, "ops", instant(now), instant(now + timedelta(days=1)), secrets.token_hex(16),
            directories=rows,
        )  # fmt: skip
        return write_request(self.control, replace(asked, **more), key)

    def row(self, which: Which, **more: Any) -> RequestedDirectory:
        """What a report says of the directory of a partition."""
        topic, topic_id, partition = which
        paths = [
            p for d in (self.host.d1, self.host.d2) for p in d.iterdir() if p.name.startswith(f"{topic}-{partition}")
        ]
        (path,) = paths
        fd = os.open(path, os.O_RDONLY)
        try:
            end, inode = read_log_extent(fd).log_end, os.fstat(fd).st_ino
        finally:
            os.close(fd)
        kind: Literal["orphan", "stray"] = "stray" if path.name.endswith("-stray") else "orphan"
        row = RequestedDirectory(
            NODE,
            str(path.parent),
            path.name,
            topic,
            topic_id,
            partition,
            kind,
            inode,
            end_offset=end,
        )
        return replace(row, **more)

    def decide(self, number: str, what: Decided, *topics: Which, key: PrivateKey = KEY) -> None:
        listed = tuple(RequestedTopic(name, topic_id, ()) for name, topic_id, _ in topics)
        decision = Decision(number, CLUSTER, what, "ops", instant(soon()), topics=listed)
        decide(self.control, decision, key, KEYS)

    def deleted(self, *topics: Which, outcome: Any = "deleted", **more: Any) -> str:
        """A request to delete topics, decided and closed."""
        listed = tuple(RequestedTopic(name, topic_id, ()) for name, topic_id, _ in topics)
        number = self.request(topics=listed, **more)
        self.decide(number, "delete", *topics)
        if outcome is not None:
            results = tuple(TopicOutcome(topic_id, outcome) for _, topic_id, _ in topics)
            write_outcome(
                self.control, RequestOutcome(number, CLUSTER, "ops", instant(datetime.now(UTC)), results), KEY
            )
        return number

    def place(self, number: str, name: str) -> Path:
        return self.store / "control" / CLUSTER / folder_of(number) / name

    def other_agent(self, node: int, *open_: str, **more: Any) -> None:
        """What another host's agent writes now."""
        at = instant(datetime.now(UTC))
        born = instant(datetime.now(UTC) - timedelta(days=9))
        self.answers.write_seen(replace(Seen(CLUSTER, node, f"kafka{node}", f"{node:032x}", born, at, open_), **more))

    def signed(self, number: str, what: Decided, key: PrivateKey = KEY) -> bytes:
        return key.sign(DECISION_SCHEMA, encode(Decision(number, CLUSTER, what, "ops", instant(soon()))))

    # What the daemon does

    def minute(self, *, restart: bool = False, read: bool = True, look_only: bool = False) -> None:
        """Look at the store and say what was seen, carry out, take in the inventory, write what was done."""
        with self.host.session(clock=self.clock, actor="daemon", inventory=True) as session:
            facts = session.facts()
            if restart:
                self.node_requests = None
            node_requests = self._requests_of(session, read=read)
            if read:
                node_requests.read()
                with suppress(LogAgentError):  # as in the daemon
                    node_requests.send()
            if look_only:
                return
            self.runs = node_requests.carry_out(session, facts, lambda: False)
        node_requests.send()

    def _requests_of(self, session: Session, *, read: bool = True) -> NodeRequests:
        """As after a start or a reload: looked, and told what it has seen."""
        if self.node_requests is None or self.node_requests.settings != session.settings:
            self.node_requests = requests_of(session.settings, str(self.host.state), self.clock, session, "kafka3")
            assert self.node_requests is not None
            if read:
                self.node_requests.read()
                self.node_requests.send()
        return self.node_requests

    def cycle(self) -> Plan:
        """What the daemon does at a cleanup tick; the plan for the whole host."""
        settings = load(str(self.host.toml)).settings
        lines = LogLines(Events(io.StringIO(), self.clock.now_ms))
        plans: list[Plan] = []

        def planned(session: Session, facts: Facts, plan: Plan | None) -> None:
            assert plan is not None
            plans.append(plan)
            with suppress(LogAgentError):  # as in the daemon
                node_requests = self._requests_of(session)
                node_requests.before_inventory()
                node_requests.note(session, facts, plan)

        cycles = Cycles(
            resolve_target(settings, ()), settings, self.clock, str(self.host.state), lines, lambda: False,
            lambda: False, planned=planned,
        )  # fmt: skip
        summary = cycles.cleanup()
        assert summary.error is None, summary.error
        return plans[0]

    def answer(self, number: str) -> Answer:
        answer = self.answers.answer(NODE, number)
        assert answer is not None, "it was not answered"
        return answer

    def said(self, number: str) -> DirectoryAnswer:
        (row,) = self.answer(number).directories
        return row

    def of_topic(self, number: str) -> TopicAnswer:
        (row,) = self.answer(number).topics
        return row

    def results(self, number: str) -> list[tuple[str, str | None]]:
        return [(row.state, row.result or row.claim) for row in self.answer(number).directories]

    def is_quarantined(self) -> bool:
        """Whether the orphan is."""
        live = [n for n in self.host.find("returns-2") if n == "returns-2"]
        return not live and len(self.host.find("returns-2.", "-stray")) == 1

    def restore(self) -> None:
        name = self.host.find("returns-2.", "-stray")[0]
        ran = self.host.run("restore", name, "--execute", "--json")
        assert ran.status == 0 and "returns-2" in self.host.find("returns-2"), ran.out + ran.err
