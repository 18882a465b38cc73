"""Who is asked where nothing is configured: this host's own broker, or those that its metadata log names."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import getpid
from typing import Any, cast

import pytest

from logagent.base.clock import Patience
from logagent.base.config.settings import KafkaSettings, Settings
from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.records import TopicPartition
from logagent.kafka.admin.responses import HeldLogDir, LogDirDescription
from logagent.kafka.commitment import QuorumRead, QuorumReplica
from logagent.kafka.files.properties import parse_server_properties
from logagent.kafka.image import AssignmentImage, BrokerRegistration, Endpoint, Source, make_image
from logagent.kafka.processes.target import Target
from logagent.kafka.retention.reasons import OpenTransaction
from logagent.kafka.retention.settings import Layers
from logagent.verdict.brokers import StoppedBroker, what_helps
from logagent.verdict.evidence.assignment_sources import Assignments
from logagent.verdict.evidence.brokers_to_ask import (
    IN_FORCE_SECONDS,
    NO_TIME_LEFT,
    SILENT_SECONDS,
    BrokersToAsk,
    RunningBroker,
)
from logagent.verdict.rules import Host

OURS = frozenset({("orders", 0)})
NOW = 1_800_000_000_000


@dataclass
class Reader:
    """A cluster as it answers. `shown`: what node 1 says lies in /d1, None = it does not answer."""

    cluster: str = "c"
    live: tuple[int, ...] = (2, 3)
    shown: frozenset[tuple[str, int]] | None = OURS
    quorum_end: int = 100
    has_times: bool = True
    leader: int = 11
    epoch: int = 5
    followed_ms: int = NOW - 600_000
    closed: bool = False
    untils: list[float] = field(default_factory=list)

    def cluster_id(self) -> str:
        return self.cluster

    def nodes(self) -> tuple[int, ...]:
        return self.live

    def has_quorum(self, _: int) -> bool:
        return self.has_times

    def quorum(self) -> QuorumRead:
        followed = QuorumReplica(1, self.followed_ms, self.followed_ms)
        return QuorumRead(self.leader, (), (followed,), self.quorum_end, self.epoch)

    def log_dirs(self, _: int) -> dict[str, LogDirDescription]:
        if self.shown is None:
            raise ServiceUnreachable("node 1 does not answer")
        return {"/d1": LogDirDescription("/d1", 0, frozenset(self.shown))}

    def log_dir_served(self, _: int, path: str) -> bool:
        return path == "/d1"

    def stop_at(self, until: float) -> None:
        self.untils.append(until)

    def close(self) -> None:
        self.closed = True


@dataclass
class Connections:
    reader: Reader
    made: list[tuple[str, Any]] = field(default_factory=list)

    def __call__(self, servers: str, client: Mapping[str, Any] | None) -> Any:
        self.made.append((servers, client))
        return self.reader


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def to_ask(reader: Reader, properties: str = "", *, pid: int | None = None, **changes: Any) -> BrokersToAsk:
    """For a host with log dir /d1, whose broker is the process `pid`; None: it is stopped."""
    target = Target("/etc/server.properties", parse_server_properties(properties.encode()), ("/d1",), None)
    held_by = frozenset() if pid is None else frozenset({pid})
    made = BrokersToAsk(
        Assignments(),
        target,
        Settings(),
        Host(1, "c", 1),
        {"/d1": OURS},
        held_by,
        pid is None,
        NOW,
        Connections(reader),
    )  # fmt: skip
    return replace(made, **changes)


def connections(brokers: BrokersToAsk) -> list[tuple[str, Any]]:
    return cast(Connections, brokers.connect).made


def named_by_own_log(*endpoints: Endpoint, offset: int = 100) -> Assignments:
    """What a stopped host's metadata log knows: itself, and node 2 that listens there."""
    own = BrokerRegistration(1, (), True, (Endpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT"),))
    image = make_image(
        [],
        AssignmentImage(
            source=Source.KRAFT_LOG,
            cluster_id="c",
            at_ms=0,
            known_until_ms=0,
            complete=True,
            offset=offset,
            metadata_version=21,
            brokers={1: own, 2: BrokerRegistration(2, (), False, endpoints)},
        ),
    )
    return Assignments(own_log=image, stopped_broker=StoppedBroker(1, "c", offset, 5, stopped_ms=NOW - 600_000))


def test_this_hosts_broker_is_asked_at_the_listener_that_its_configuration_names() -> None:
    with listening() as port:
        brokers = to_ask(Reader(), f"listeners=PLAINTEXT://:{port}", pid=getpid())
        assert brokers.serves("/d1") and not brokers.serves("/d2")
        assert connections(brokers) == [(f"127.0.0.1:{port}", None)]
        assert brokers.leaders() is brokers.connect.reader  # type: ignore[attr-defined]


def test_who_listens_there_must_be_the_process_that_holds_the_lock() -> None:
    """A starting broker has not bound its port yet: anybody could, and say what he likes."""
    with listening() as port:
        brokers = to_ask(Reader(), f"listeners=PLAINTEXT://:{port}", pid=1)
        assert not brokers.serves("/d1") and connections(brokers) == []
        assert (
            brokers.broker_problem is not None
            and f"the broker does not listen on port {port} yet" in brokers.broker_problem
        )
        assert "kafka.bootstrap_servers" in brokers.broker_problem


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        (Reader(cluster="another"), "it is of cluster another"),
        (Reader(shown=frozenset({("other", 0)})), "it does not show orders-0"),
        (Reader(shown=None), "node 1 does not answer"),
    ],
)
def test_whoever_does_not_show_our_disks_is_not_our_broker(reader: Reader, why: str) -> None:
    with listening() as port:
        brokers = to_ask(reader, f"listeners=PLAINTEXT://:{port}", pid=getpid())
        assert not brokers.serves("/d1") and brokers.leaders() is None
        assert why in str(brokers.broker_problem) and brokers.leader_problem == brokers.broker_problem
        assert reader.closed


@pytest.mark.parametrize(("seconds", "asked"), [(5.0, 2), (0.1, 3)])
def test_a_broker_that_is_silent_at_one_listener_is_not_waited_for_at_each(seconds: float, asked: int) -> None:
    """One that recovers has its ports open, and `queue` took five seconds for each. A refusal comes at once."""
    now = 0.0

    class Silent(Itself):
        def cluster_id(self) -> str:
            nonlocal now
            now += seconds
            raise ServiceUnreachable("nobody answers")

    with listening() as one, listening() as two:
        settings = Settings(kafka=KafkaSettings(bootstrap_servers="b:9092"))
        listeners = f"listeners=PLAINTEXT://:{one},CLIENTS://:{two}\nlistener.security.protocol.map=CLIENTS:PLAINTEXT"
        brokers = to_ask(Silent(), listeners, pid=getpid(), settings=settings, clock=lambda: now)
        assert not brokers.serves("/d1")
        assert [servers for servers, _ in connections(brokers)][-1] == "b:9092"
        assert len(connections(brokers)) == asked
        # Nor is it for the next question, which is another kind's.
        again = replace(brokers, connect=Connections(Silent()), broker_problem=None, _silent=False)
        again.not_again(brokers)
        assert "nobody answers" in str(again.ask_running(Layers(file={})).why_not)
        assert len(connections(again)) == (0 if seconds > SILENT_SECONDS else asked)


def test_a_broker_that_has_nothing_but_strays_is_known_by_where_it_listens() -> None:
    """Its disks show no partition, and could be anyone's."""
    drained: dict[str, Any] = {"on_disk": {"/d1": frozenset[tuple[str, int]]()}, "pid": getpid()}
    with listening() as port:
        assert to_ask(Reader(shown=frozenset()), f"listeners=PLAINTEXT://:{port}", **drained).serves("/d1")
        assert not to_ask(Reader(cluster="another"), f"listeners=PLAINTEXT://:{port}", **drained).serves("/d1")
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="b:9092"))
    assert not to_ask(Reader(shown=frozenset()), "listeners=SASL_SSL://:9093", settings=settings, **drained).serves(
        "/d1"
    )


def test_a_broker_that_listens_with_tls_only_needs_a_client_file() -> None:
    brokers = to_ask(Reader(), "listeners=SASL_SSL://:9093", pid=getpid())
    assert not brokers.serves("/d1") and "set kafka.client" in str(brokers.broker_problem)


def test_what_is_configured_is_asked_too() -> None:
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="b:9092"))
    brokers = to_ask(Reader(), "listeners=SASL_SSL://:9093", pid=getpid(), settings=settings)
    assert brokers.serves("/d1") and connections(brokers) == [("b:9092", None)]


def test_while_it_is_stopped_the_brokers_that_its_metadata_log_names_are_asked() -> None:
    with listening() as port:
        plain = Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
        secret = Endpoint("INTERNAL", "127.0.0.1", port, "SASL_PLAINTEXT")
        brokers = to_ask(Reader(), assignments=named_by_own_log(secret, plain))
        assert brokers.leaders() is not None and connections(brokers) == [(f"127.0.0.1:{port}", None)]
        assert not brokers.serves("/d1")


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        (Reader(cluster="another"), "it is of cluster another"),
        # The disks of a clone name the original's brokers, and the original of this node runs.
        (Reader(live=(1, 2)), "it calls node 1 live"),
        (Reader(quorum_end=99), "it belongs to another cluster, or to this one's past"),
        (Reader(epoch=4), "its quorum is in epoch 4, and the metadata log on this host in 5"),
        (Reader(leader=1), "its quorum is led by node 1"),
        # The original of this node stopped, too, but later than this copy of its disks ends.
        (
            Reader(followed_ms=NOW - 580_000),
            "a node 1 followed its quorum 20 s after",
        ),
        (Reader(has_times=False), "it does not say how far its metadata log reaches"),
    ],
)
def test_a_cluster_that_may_not_be_ours_is_not_believed(reader: Reader, why: str) -> None:
    with listening() as port:
        plain = Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
        brokers = to_ask(reader, assignments=named_by_own_log(plain))
        assert brokers.leaders() is None and why in str(brokers.leader_problem) and reader.closed
        assert str(brokers.leader_problem).count("set kafka.bootstrap_servers") == 1


def test_no_password_goes_to_an_address_that_nobody_configured_without_verified_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with listening() as port:
        for protocol, verified in (("SASL_PLAINTEXT", True), ("SASL_SSL", False), ("SASL_SSL", True)):
            context.check_hostname = verified
            client = {"security_protocol": protocol, "ssl_context": context}
            there = Endpoint("CLIENTS", "127.0.0.1", port, protocol)
            brokers = to_ask(Reader(), assignments=named_by_own_log(there), _client=client)
            permitted = protocol == "SASL_SSL" and verified
            assert (brokers.leaders() is not None) is permitted, (protocol, verified)
            assert connections(brokers) == ([(f"127.0.0.1:{port}", client)] if permitted else [])


def test_without_a_metadata_log_here_somebody_has_to_be_configured() -> None:
    brokers = to_ask(Reader())
    assert brokers.leaders() is None and "set kafka.bootstrap_servers" in str(brokers.leader_problem)


ORDERS, SECRET = TopicPartition("orders", 0), TopicPartition("secret", 0)


@dataclass
class Itself(Reader):
    """Node 1, with what it says of its settings and logs; None: it may not be asked."""

    settings: dict[str, str] | None = field(default_factory=lambda: {"log.retention.hours": "9"})
    logs: dict[str, HeldLogDir] | None = field(default_factory=lambda: {"/d1": HeldLogDir(0, {}, {})})
    asked: list[TopicPartition] = field(default_factory=list)

    def broker_settings(self, _: int) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        if self.settings is None:
            raise UnreadableError("node 1 does not describe its settings: error 31")
        return {}, {}, self.settings

    def held_log_dirs(self, _: int) -> dict[str, HeldLogDir]:
        if self.logs is None:
            raise UnreadableError("node 1 does not describe its log dirs: error 31")
        return self.logs

    def transactions(self, _: int, partitions: Sequence[TopicPartition]) -> Any:
        self.asked += partitions
        return {ORDERS: OpenTransaction(15, 9, 1000)}, {29: [SECRET]}


def held_up(_: Layers) -> list[TopicPartition]:
    return [ORDERS, SECRET]


def ask_itself(reader: Itself, **changes: Any) -> RunningBroker:
    with listening() as port:
        brokers = to_ask(reader, f"listeners=PLAINTEXT://:{port}", pid=getpid(), clock=lambda: 100.0, **changes)
        return brokers.ask_running(Layers(file={"log.retention.hours": "1"}), held_up)


def test_the_running_broker_is_asked_of_itself_within_two_seconds() -> None:
    reader = Itself()
    found = ask_itself(reader)
    assert found.layers is not None and found.layers.file == reader.settings and found.why_not is None
    assert found.says.log_dirs == reader.logs and found.says.transactions == {ORDERS: OpenTransaction(15, 9, 1000)}
    assert reader.untils[0] == 100.0 + IN_FORCE_SECONDS and reader.closed


@dataclass
class Hanging(Itself):
    """It accepts connections, and lets each answer take until nobody waits for it any more."""

    now: float = 100.0

    def cluster_id(self) -> str:
        self.now = self.untils[-1] if self.untils[-1] < math.inf else self.now + 60
        raise ServiceUnreachable("no answer")


def test_all_questions_together_end_in_time_and_what_was_not_asked_is_said() -> None:
    """What is done between them takes no patience."""
    reader, patience = Hanging(), Patience(3.0)
    with listening() as port:
        asked: dict[str, Any] = {"clock": lambda: reader.now, "patience": patience}
        brokers = to_ask(reader, f"listeners=PLAINTEXT://:{port}", pid=getpid(), **asked)
        assert not brokers.serves("/d1") and reader.now == 103.0 and patience.is_over
        reader.now += 500
        for again in (brokers, to_ask(reader, f"listeners=PLAINTEXT://:{port}", pid=getpid(), **asked)):
            running = again.ask_running(Layers(file={}), held_up)
            assert running.why_not and not again.serves("/d1") and again.epoch_ends({}, {}) == {}
        assert running.why_not == again.leader_problem == again.broker_problem == NO_TIME_LEFT
        assert NO_TIME_LEFT in running.says.unknown[0] and reader.now == 603.0
        stopped = to_ask(
            reader, assignments=named_by_own_log(Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")), **asked
        )
        assert stopped.leaders() is None and stopped.leader_problem == NO_TIME_LEFT
        patience.left = 1.5
        stopped.leader_problem = None
        assert stopped.epoch_ends({}, {}) == {} and "no answer" in str(stopped.leader_problem) and reader.now == 604.5


def test_what_it_does_not_let_us_know_is_said_and_not_none_of_it() -> None:
    says = ask_itself(Itself(logs=None)).says
    assert says.log_dirs is None and SECRET not in says.transactions
    assert [line.partition(":")[0] for line in says.unknown] == [
        "what the broker itself has of these logs is not known",
        "open transactions of secret are told by the disk, not by the broker",
    ]
    assert "error 31" in says.unknown[0] and "READ on the topic" in says.unknown[1]


def test_where_nobody_can_be_asked_it_is_said_of_what() -> None:
    brokers = to_ask(Itself(), "listeners=SASL_SSL://:9092", pid=getpid())
    (line,) = brokers.ask_running(Layers(file={}), held_up).says.unknown
    assert line.startswith(
        "what the broker itself has of these logs is not known: the broker listens with SASL_SSL only"
    )


def test_without_a_partition_to_compare_nobody_is_said_to_show_another_disk() -> None:
    """`doctor` has no inventory, and who answers at `kafka.bootstrap_servers` may be any broker with our ids."""
    configured = Settings(kafka=KafkaSettings(bootstrap_servers="b:9092"))
    found = to_ask(Itself(), pid=getpid(), settings=configured, on_disk={}).ask_running(Layers(file={}))
    assert found.layers is None and "b:9092: no partition here was compared" in str(found.why_not)


def test_who_may_not_ask_for_the_settings_is_told_of_the_logs() -> None:
    found = ask_itself(Itself(settings=None))
    assert found.layers is None and "error 31" in str(found.why_not) and found.says.log_dirs is not None


def test_a_directory_that_was_put_there_does_not_keep_the_broker_from_being_asked() -> None:
    """It explains; for what permits an act, a broker that does not show all of the disk is not its broker."""
    there = {"/d1": OURS | {("copied", 0)}}
    assert ask_itself(Itself(), on_disk=there).layers is not None
    with listening() as port:
        brokers = to_ask(Itself(), f"listeners=PLAINTEXT://:{port}", pid=getpid(), on_disk=there)
        assert not brokers.serves("/d1") and "does not show copied-0" in str(brokers.broker_problem)


def test_without_partitions_that_a_transaction_holds_up_nobody_is_asked_of_them() -> None:
    reader = Itself()
    with listening() as port:
        brokers = to_ask(reader, f"listeners=PLAINTEXT://:{port}", pid=getpid())
        assert brokers.ask_running(Layers(file={}), lambda _: []).says.unknown == () and reader.asked == []


def test_the_hint_is_what_was_not_done_already() -> None:
    assert ": set kafka.bootstrap_servers" in what_helps(None)
    assert "see that one answers at kafka.bootstrap_servers (k1:9092)" in what_helps("k1:9092")
    assert "let it be asked (admin in assignments.sources, no --offline)" in what_helps("k1:9092", asks=False)
