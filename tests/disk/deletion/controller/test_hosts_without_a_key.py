"""A host without a key does the worst that each kind of shared store permits, as a real user: nothing is sent that was
not asked, no living topic goes, and where the store has owners nobody answers for another node.

The host is the worst there can be: its agent was the first to write to the store, so the folders of the cluster in
`answers/` and `landing/` are its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logagent.base.errors import LogAgentError
from logagent.base.units import instant
from logagent.deletion.controller.deletions import Deletions
from logagent.deletion.store.answers import Answer, Answers, TopicAnswer
from logagent.deletion.store.requests import (
    DECISION_SCHEMA,
    OUTCOME_SCHEMA,
    Decision,
    NodeOwner,
    RequestOutcome,
    TopicOutcome,
    encode,
)
from logagent.store import shared
from logagent.store.signing import PrivateKey
from tests.disk.deletion.controller.small_fleet import CLUSTER, NODES, TOPIC_ID, ClockedControl, SmallFleet
from tests.long_form import FULL
from tests.real_users import User, reachable_folder

STRANGER_KEY = PrivateKey("ops", b"\x02" * 32)
SHARED, HUGE = 4100, 1 << 40
OTHER_ID, DISABLED = "B" * 22, "D" * 22


class Kind(NamedTuple):
    """How a store is shared: with which users. `closed`: nobody without a key can change what is in `control/`;
    `owned`: it tells users apart."""

    mode: int
    operator: User
    agents: dict[int, User]
    closed: bool = True
    owned: bool = True
    uri: str = ""


def agents(*groups: int) -> dict[int, User]:
    return {node: User(4000 + node, 4000 + node, groups) for node in NODES}


ONE = User(4000, 4000)
KINDS = {
    "1777": Kind(0o1777, User(4011, 4200), agents()),
    "1777, root has the key": Kind(0o1777, User(0, 0), agents()),
    "3770": Kind(0o3770, User(4011, 4200, [SHARED]), agents(SHARED)),
    "one user for all": Kind(0o700, ONE, dict.fromkeys(NODES, ONE), closed=False, owned=False),
    "objects": Kind(0o700, User(0, 0), dict.fromkeys(NODES, User(0, 0)), closed=False, owned=False, uri="file://"),
}


class SharedFleet(SmallFleet):
    """Everybody writes as the user that they are: `kind.operator`, and each agent its own."""

    def __init__(self, store: Path, kind: Kind) -> None:
        store.mkdir()
        os.chown(store, -1, SHARED)
        store.chmod(kind.mode)
        if kind.operator is ONE:
            os.chown(store, ONE.uid, ONE.gid)
        self.kind, self.before = kind, store.with_name("before")
        with (ONE if kind.operator is ONE else User(0, 0)).acting():
            super().__init__(store)
        if kind.uri:
            self.answers = Answers(f"{kind.uri}{store}", CLUSTER)
            self.control = ClockedControl(f"{kind.uri}{store}", lambda: self.now)  # type: ignore[arg-type]
        self.topic()
        self.topic(topic_id=OTHER_ID, name="orders")
        self.topic(topic_id=DISABLED, name="audit")
        for node in NODES:  # node 1 is the first
            self.agent(node)

    @property
    def stranger(self) -> User:
        return self.kind.agents[1]

    def agent(self, node: int, **more: Any) -> None:
        with self.kind.agents[node].acting(), suppress(LogAgentError, OSError):
            super().agent(node, **more)

    def asked(self, topic_id: str = TOPIC_ID) -> str:
        with self.kind.operator.acting():
            self.control.prepare()
            return self.request(topics=(self.admin.living[topic_id],), owners=self.process().reader.owners(NODES))

    def goes_on(self, *processes: Deletions) -> None:
        """What runs goes on, and nothing that it meets ends it."""
        for _ in range(2):
            for process in processes:
                with self.kind.operator.acting(), suppress(LogAgentError):
                    process.round()
            self.brokers_delete()
            self.now += timedelta(minutes=30)
            for node in (2, 3):
                self.agent(node)

    def publish(self, node: int, *more: Any, empty: bool = False, **kwargs: Any) -> None:
        has, umask = self.disks[node], os.umask(0o022)  # as the agents set the modes of files
        try:
            self.disks[node] = set() if empty else has
            super().publish(node, *more, **kwargs)
        finally:
            self.disks[node] = has
            os.umask(umask)

    def ended_before(self) -> None:
        """There is a decision that somebody signed, to delete a topic that is long gone."""
        self.topic(topic_id="C" * 22, name="old")
        with self.kind.operator.acting():
            self.control.prepare()
            self.request(topics=(self.admin.living["C" * 22],))
            self.process().round()
        self.admin.sent = []

    def copied(self, name: str = "before") -> None:
        """The stranger keeps a copy of what the store has now."""
        copy = self.store.with_name(name)
        shutil.copytree(self.store, copy)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, self.stranger.uid, self.stranger.gid)

    def attacked(self, number: str, attack: Callable[[Stranger], None]) -> None:
        control = self._control() if self.kind.closed else {}
        with self.stranger.acting():
            attack(Stranger(self, number, self.before))
        assert not self.kind.closed or self._control() == control, "control/ is not theirs to change"

    def _control(self) -> dict[str, bytes | None]:
        found = (self.store / "control").rglob("*")
        return {str(path): path.read_bytes() if path.is_file() else None for path in found}


@dataclass
class Stranger:
    """What the host without a key can reach, and a copy of what was there before."""

    fleet: SharedFleet
    number: str
    before: Path

    @property
    def store(self) -> Path:
        return self.fleet.store

    @property
    def requests(self) -> Path:
        return self.store / "control" / CLUSTER / "requests"

    @property
    def folder(self) -> Path:
        return self.requests / self.number

    @property
    def files(self) -> list[Path]:
        return [self.folder / name for name in ("request.json", "decision.json", "outcome.json")]


@contextmanager
def whatever_happens() -> Iterator[None]:
    with suppress(OSError, shutil.Error):
        yield


def taken(path: Path) -> None:
    """Away, by whichever way there is."""
    with whatever_happens():
        path.rename(path.with_name(f"{path.name}.aside"))
    with whatever_happens():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def removes_files(s: Stranger) -> None:
    for path in s.files:
        taken(path)


def keeps_only_the_request(s: Stranger) -> None:
    """Neither a decision nor an outcome is left."""
    for path in s.files[1:]:
        taken(path)


def takes_the_request_away(s: Stranger) -> None:
    taken(s.folder)


def takes_everything_away(s: Stranger) -> None:
    for folder in (s.store / "control" / CLUSTER, s.store / "control", s.store / "answers", s.store / "landing"):
        taken(folder)


def puts_an_old_folder_in_its_place(s: Stranger) -> None:
    taken(s.folder)
    with whatever_happens():
        shutil.copytree(s.before / "control" / CLUSTER / "requests" / s.number, s.folder)


def puts_the_old_store_back(s: Stranger) -> None:
    for name in ("control", "answers", "landing"):
        taken(s.store / name)
        with whatever_happens():
            shutil.copytree(s.before / name, s.store / name)


def forges_a_decision(s: Stranger) -> None:
    at = instant(s.fleet.now)
    forged = Decision(s.number, CLUSTER, "delete", "ops", at, topics=(s.fleet.admin.living[OTHER_ID],))
    for name in ("decision.json", f"decision-{'0' * 32}.json"):
        taken(s.folder / name)
        with whatever_happens():
            (s.folder / name).write_bytes(STRANGER_KEY.sign(DECISION_SCHEMA, encode(forged)))


def borrows_a_decision(s: Stranger) -> None:
    """One that was signed for another request."""
    for other in sorted(s.before.glob("control/*/requests/*/decision.json")):
        if other.parent.name != s.number:
            taken(s.folder / "decision.json")
            with whatever_happens():
                shutil.copy(other, s.folder / "decision.json")


def forges_an_outcome(s: Stranger) -> None:
    forged = RequestOutcome(s.number, CLUSTER, "ops", instant(s.fleet.now), (TopicOutcome(TOPIC_ID, "deleted"),))
    taken(s.folder / "outcome.json")
    with whatever_happens():
        (s.folder / "outcome.json").write_bytes(STRANGER_KEY.sign(OUTCOME_SCHEMA, encode(forged)))


def asks_for_another_topic(s: Stranger) -> None:
    filed = s.fleet.process(key=None).reader.folder.again(s.number)
    asked = filed.request
    assert asked is not None, filed
    forged = encode(replace(asked, topics=(s.fleet.admin.living[OTHER_ID],)))
    for folder in (s.folder, s.requests / ("e" * 64)):
        taken(folder / "request.json")
        with whatever_happens():
            folder.mkdir(exist_ok=True)
            (folder / "request.json").write_bytes(STRANGER_KEY.sign("logagent.request/2", forged))


def in_place_of_files(make: Callable[[Path], None]) -> Callable[[Stranger], None]:
    def attack(s: Stranger) -> None:
        nodes = [
            s.store / "answers" / CLUSTER / str(n) / name for n in NODES for name in ("seen.json", s.files[0].name)
        ]
        runner = s.store / "control" / CLUSTER / "runners" / "x.json"
        for path in (*s.files, s.folder / f"decision-{'1' * 32}.json", *nodes, runner):
            taken(path)
            with whatever_happens():
                make(path)

    return attack


def a_huge_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def links_folders_elsewhere(s: Stranger) -> None:
    elsewhere = s.before / "control" / CLUSTER
    for folder, to in ((s.folder, elsewhere / "requests" / s.number), (s.requests, elsewhere / "requests"),
                       (s.store / "answers" / CLUSTER / "2", s.before)):  # fmt: skip
        taken(folder)
        with whatever_happens():
            folder.symlink_to(to)


def fills_it_with_junk(s: Stranger) -> None:
    for folder in (s.requests, s.requests.parent / "runners", s.folder, s.store / "answers" / CLUSTER):
        for n in range(300 if FULL else 60):
            with whatever_happens():
                (folder / f"{n:064x}").write_bytes(b"\xff" * 100)
            with whatever_happens():
                (folder / str(100_000 + n)).mkdir()
    for node in NODES:
        with whatever_happens():
            (s.store / "answers" / CLUSTER / str(node) / "seen.json").write_bytes(b"x" * (9 << 20))


def sets_times(s: Stranger) -> None:
    for path in s.store.rglob("*"):
        with whatever_happens():
            os.utime(path, (4e9, 4e9))


def closes_what_it_owns(s: Stranger) -> None:
    for path in (*s.store.rglob("*"), s.store):
        with whatever_happens():
            path.chmod(0)


def publishes_for_all(s: Stranger) -> None:
    """Nothing is there, says a snapshot of each node, and no answer says otherwise."""
    for node in NODES:
        taken(s.store / "answers" / CLUSTER / str(node))
        taken(s.store / "landing" / CLUSTER / f"{s.fleet.now:%Y-%m-%d}" / str(node))
        with suppress(OSError):
            s.fleet.publish(node, empty=True)


def answers_for_all(s: Stranger) -> None:
    """It has nothing left, says each node."""
    for node in NODES:
        folder = s.store / "answers" / CLUSTER / str(node)
        says = Answer(CLUSTER, node, s.number, f"kafka-{node}", f"{node:032x}", instant(s.fleet.now), (),
                      (TopicAnswer(TOPIC_ID, 0, 0),))  # fmt: skip
        for _ in range(2):
            with suppress(LogAgentError, OSError):
                s.fleet.answers.write(says)
                if s.fleet.answers.answer(node, s.number) == says:
                    break
            taken(folder)  # and makes it anew


ON_A_MOUNT = {
    "FIFOs": in_place_of_files(os.mkfifo),
    "links": in_place_of_files(lambda path: path.symlink_to("/dev/zero")),
    "folders": in_place_of_files(Path.mkdir),
    "linked folders": links_folders_elsewhere,
    "modes": closes_what_it_owns,
}
ATTACKS: dict[str, Callable[[Stranger], None]] = {
    "nothing": lambda s: None,
    "files removed": removes_files,
    "only the request kept": keeps_only_the_request,
    "request taken away": takes_the_request_away,
    "everything taken away": takes_everything_away,
    "old folder": puts_an_old_folder_in_its_place,
    "old store": puts_the_old_store_back,
    "forged decision": forges_a_decision,
    "borrowed decision": borrows_a_decision,
    "forged outcome": forges_an_outcome,
    "another topic": asks_for_another_topic,
    "huge files": in_place_of_files(a_huge_file),
    "junk": fills_it_with_junk,
    "times": sets_times,
    "answers": answers_for_all,
    "snapshots": publishes_for_all,
    **ON_A_MOUNT,
}


ALL = [(kind, attack) for kind in KINDS for attack in ATTACKS if kind != "objects" or attack not in ON_A_MOUNT]


@pytest.fixture
def fleet_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], SharedFleet]]:
    monkeypatch.setattr(shared, "problem_of", lambda store: None)  # obstore's backend for directories
    with reachable_folder("/dev/shm") as folder:  # the kernel asks for permissions there too, and syncs at once
        yield lambda kind: SharedFleet(folder / "store", KINDS[kind])


@pytest.mark.parametrize(("kind", "attack"), ALL)
def test_nothing_is_sent_that_is_not_asked_for_any_more(
    fleet_of: Callable[[str], SharedFleet], kind: str, attack: str
) -> None:
    """Three requests: cancelled, while its process goes on as if it had hung; undecided, its process was killed;
    disabled, and deletion is enabled since."""
    fleet = fleet_of(kind)
    asking, other = fleet.process(), fleet.process("other")
    fleet.admin.enabled = False
    disabled = fleet.asked(DISABLED)
    with fleet.kind.operator.acting():
        asking.round()
    assert fleet.admin.sent == [DISABLED]
    fleet.admin.enabled, fleet.admin.sent = True, []
    undecided = fleet.asked(OTHER_ID)
    fleet.wrote.clear()
    cancelled = fleet.asked(TOPIC_ID)
    fleet.copied("before")
    with fleet.kind.operator.acting():
        other.cancel(other.reader.read().filed[cancelled])
        if not fleet.kind.closed:
            asking.round()  # a cancellation that is removed before its process looks is not known to it
    for number in (cancelled, undecided, disabled):
        fleet.attacked(number, ATTACKS[attack])
    fleet.goes_on(asking, other)
    # A decision to delete is final, whatever came of it, where its outcome can be removed.
    assert set(fleet.admin.sent) <= (set() if fleet.kind.closed else {DISABLED})
    assert {TOPIC_ID, OTHER_ID} <= fleet.admin.living.keys()


@pytest.mark.parametrize(("kind", "attack"), ALL)
def test_what_is_asked_may_be_delayed_and_nothing_else_goes(
    fleet_of: Callable[[str], SharedFleet], kind: str, attack: str
) -> None:
    fleet = fleet_of(kind)
    fleet.ended_before()
    number, process = fleet.asked(), fleet.process()
    fleet.copied()
    fleet.attacked(number, ATTACKS[attack])
    fleet.goes_on(process, fleet.process("other"))
    assert set(fleet.admin.sent) <= {TOPIC_ID} and OTHER_ID in fleet.admin.living
    if fleet.kind.closed and attack != "modes":  # who was the first can close `answers/<cluster>` to who is not root
        assert fleet.admin.sent == [TOPIC_ID], "nobody without a key delays it here"


@pytest.mark.parametrize("attack", ["nothing", "old store", "linked folders", "FIFOs"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].owned])
@pytest.mark.parametrize("says", [answers_for_all, publishes_for_all])
def test_where_the_store_has_owners_nobody_answers_for_another_node(
    fleet_of: Callable[[str], SharedFleet], kind: str, attack: str, says: Callable[[Stranger], None]
) -> None:
    """The broker of node 2 is down, with its directory; what is said of it is that its files are another's."""
    fleet = fleet_of(kind)
    number, process = fleet.asked(), fleet.process()
    fleet.copied()
    with fleet.kind.operator.acting():
        process.round()
    fleet.admin.live = {1, 3}
    fleet.goes_on(process)
    fleet.attacked(number, ATTACKS[attack])
    fleet.attacked(number, says)
    with fleet.kind.operator.acting():
        process.round()
        missing = {m.node_id: m.reason for t in fleet.progress(number) for m in t.missing}
        assert fleet.state(number).state == "deleting" and not fleet.place(number, "outcome.json").exists()
    assert "belonged to user 4002 when this was requested, and is user 4001's now" in missing[2].fact
    assert missing[2].hint == "what broker 2 itself says counts, once it is up"
    fleet.admin.live, fleet.admin.described = set(NODES), set(NODES)
    fleet.brokers_delete()
    with fleet.kind.operator.acting():
        process.round()
        assert fleet.state(number).state == "done"


def test_a_host_that_is_down_for_days_keeps_its_owner(fleet_of: Callable[[str], SharedFleet]) -> None:
    """Else a request would list nobody for it, and anybody could answer."""
    fleet = fleet_of("1777")
    with fleet.kind.agents[3].acting():
        fleet.publish(3)
    shutil.rmtree(fleet.store / "answers" / CLUSTER / "3")
    fleet.now += timedelta(days=5)
    with fleet.kind.operator.acting():
        assert NodeOwner(3, fleet.kind.agents[3].uid) in (fleet.process().reader.owners(NODES) or ())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not KINDS[kind].owned])
def test_where_it_has_none_an_answer_is_believed_as_a_snapshot_is(
    fleet_of: Callable[[str], SharedFleet], kind: str
) -> None:
    fleet = fleet_of(kind)
    number, process = fleet.asked(), fleet.process()
    with fleet.kind.operator.acting():
        process.round()
    fleet.copied()
    fleet.attacked(number, answers_for_all)
    with fleet.kind.operator.acting():
        assert fleet.state(number).state == "done"
    fleet.admin.described = {2}  # unless the broker says otherwise
    with fleet.kind.operator.acting():
        assert fleet.state(number).state == "deleting"
