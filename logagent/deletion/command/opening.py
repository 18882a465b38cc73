"""Store, keys, cluster and Admin API of one `topics` command, from options and configuration."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logagent.base.config.store_uri import is_uri
from logagent.base.console.options import Call
from logagent.base.errors import ConfigError, ServiceUnreachable, UnreadableError, UsageError
from logagent.deletion.controller.deletions import Deletions, Setting, TopicAnswerOfCluster
from logagent.deletion.controller.topic_deletion_manager import BrokerLogs
from logagent.deletion.store.requests import Control, RequestedPartition, RequestedTopic
from logagent.kafka.image import Topic
from logagent.store.contract import is_plain
from logagent.store.shared import check_store, open_store
from logagent.store.signing import PrivateKey, PublicKey, load_private_key, public_key
from logagent.store.tree import LANDING

if TYPE_CHECKING:
    from logagent.kafka.admin.reader import AdminReader

F = TypeVar("F", bound=Callable[..., Any])
Answered = TypeVar("Answered")
KEY_VARIABLE = "LOGAGENT_ORDERS_KEY_FILE"


def place_options(command: F) -> F:
    """The options that say where a cluster's deletions are kept and how the cluster is reached."""
    for option in reversed(
        [
            click.option("--store", metavar="DIR", help="The fleet store (default: publish.store)."),
            click.option(
                "--cluster", "cluster_id", metavar="ID", help="The cluster's id (default: the cluster is asked)."
            ),
            click.option("--bootstrap-server", metavar="HOST:PORT", help="Default: kafka.bootstrap_servers."),
            click.option("--key", "key_file", metavar="FILE", help=f"The private key (default: ${KEY_VARIABLE})."),
        ]
    ):
        command = option(command)
    return command


@dataclass(slots=True)
class Place:
    """The values of the options of `place_options`. A command requires only those it needs."""

    call: Call
    store: str | None
    cluster_id: str | None
    bootstrap_server: str | None
    key_file: str | None

    def __post_init__(self) -> None:
        if self.call.log_dirs:
            raise UsageError(
                "--log-dir does not narrow what is done across the fleet",
                hint="`delete` selects by --topic; `purge` also by --host, --kind, --reason, --larger or --id",
            )

    def control(self) -> Control:
        """The control folder. Raises ConfigError if store or cluster is not known."""
        store = self.store or self.call.settings().publish.store
        if store is None:
            raise ConfigError("no fleet store is named", hint="set publish.store, or add --store DIR")
        check_store(store)
        if not is_uri(store):
            self._check_create_if_absent(store)
        return Control(store, self.cluster())

    def _check_create_if_absent(self, store: str) -> None:
        from logagent.base.linux.mounts import mount_of, mounts

        found = mount_of(os.path.realpath(store), mounts())
        kind = found.kind if found is not None else ""
        if kind.startswith("fuse") and not self.call.settings().store.trust_exclusive_create:
            raise ConfigError(
                f"the store {store} is a FUSE mount ({kind}), which may create a file that exists already",
                hint="if it is known not to, set store.trust_exclusive_create = true",
            )

    def cluster(self) -> str:
        if self.cluster_id is None:
            from logagent.kafka.admin.reader import AdminReader

            servers, config = self.connection()
            with AdminReader(servers, config) as reader:
                self.cluster_id = reader.cluster_id()
        return self.cluster_id

    def check_cluster(self) -> None:
        """Raises UsageError if the store has other clusters, but nothing of the one that `--cluster` names."""
        if self.cluster_id is None:
            return
        store = self.control().store
        try:
            with open_store(store) as opened:
                known = {name for folder in ("control", LANDING) for name in opened.names([folder]) if is_plain(name)}
        except OSError as error:
            raise ServiceUnreachable(f"the clusters in {store} cannot be read: {error.strerror or error}") from error
        if known and self.cluster_id not in known:
            has = f"it has {', '.join(sorted(known)[:5])}"
            raise UsageError(f"the store {store} has nothing of a cluster {self.cluster_id}", hint=has)

    def servers(self) -> str | None:
        return self.bootstrap_server or self.call.settings().kafka.bootstrap_servers

    def connection(self) -> tuple[str, dict[str, Any]]:
        servers = self.servers()
        if servers is None:
            raise ConfigError(
                "the cluster's address is not known", hint="set kafka.bootstrap_servers, or add --bootstrap-server"
            )
        client = self.call.settings().kafka.client
        if client is None:
            return servers, {}
        from logagent.kafka.admin.client_properties import read_client_properties

        return servers, read_client_properties(client)

    def key(self) -> PrivateKey:
        """The signing key. Raises ConfigError."""
        name = self.key_file or os.environ.get(KEY_VARIABLE)
        if name is None:
            raise ConfigError(
                "no private key is named", hint=f"--key FILE or {KEY_VARIABLE}; create one with logagent topics keygen"
            )
        return load_private_key(Path(name))

    def keys(self, own: PrivateKey | None = None) -> tuple[PublicKey, ...]:
        """The public keys accepted here: `orders.keys`; without it, our own. Raises ConfigError if we are to sign with
        our `own` and agents with these keys would ignore it."""
        trusted = tuple(public_key(text) for text in dict.fromkeys(self.call.settings().orders.keys))
        if not trusted:
            if own is None and self.key_file is None and KEY_VARIABLE not in os.environ:
                raise ConfigError("no order key is known", hint="set orders.keys, or name the private key with --key")
            return (public_key((own or self.key()).public()),)
        if own is not None:
            ours = public_key(own.public())
            found = [k for k in trusted if (k.key_id, k.raw) == (ours.key_id, ours.raw)]
            if not any(k.cluster_id in (None, self.cluster()) and not k.retired for k in found):
                why = "is retired there, or of another cluster" if found else "is not in it"
                raise ConfigError(
                    f"agents with this orders.keys ignore what key {own.key_id} signs: it {why}",
                    hint="name another private key with --key, or change orders.keys, here and on every host",
                )
        return trusted

    def deletions(self, *, signing: bool) -> Deletions:
        """Who carries requests out; without `signing` it can only look."""
        settings = self.call.settings()
        key = self.key() if signing else None
        return Deletions(
            Setting(
                self.control(),
                self.keys(key),
                Admin(self),
                now,
                who(),
                self.call.host,
                key,
                settings.silent_after,
                warn=lambda line: self.call.say(f"topics: {line}"),
            )
        )


@dataclass(slots=True)
class Admin:
    """The cluster, for the controller: one connection per question, because a client's list of brokers does not
    recover."""

    place: Place

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicAnswerOfCluster]:
        answers = self._deletions().delete(list(topics))
        return {i: TopicAnswerOfCluster(a.outcome, a.why) for i, a in answers.items()}

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        living = self._asked(lambda reader: reader.topics_now(topics))
        return {topic_id: requested(topic) for topic_id, topic in living.items()}

    def _asked(self, question: Callable[[AdminReader], Answered]) -> Answered:
        """The answer of our cluster. Raises ConfigError, ServiceUnreachable, UnreadableError."""
        from logagent.kafka.admin.reader import AdminReader
        from logagent.kafka.admin.topic_deletion import with_retries

        servers, config = self.place.connection()

        def ask() -> Answered:
            with AdminReader(servers, config) as reader:
                if reader.cluster_id() != self.place.cluster():
                    raise UnreadableError(f"the cluster at {servers} is not {self.place.cluster()}")
                return question(reader)

        return with_retries(ask)

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        """Deleted is an id that the cluster does not know, one that it knows without a topic, and one whose name is
        another topic's by now: the ZooKeeper generation answers by that name."""
        from logagent.kafka.admin.reader import IdAnswer

        gone = (IdAnswer.UNKNOWN, IdAnswer.NO_TOPIC)

        def ask(reader: AdminReader) -> set[str]:
            node = reader.nodes()[0]
            answers = reader.topic_ids_known(node, topics)
            unanswered = {i: topics[i] for i, answer in answers.items() if answer is IdAnswer.CANNOT_TELL}
            now = reader.ids_of_names(node, unanswered.values())
            recreated = {i for i, name in unanswered.items() if now.get(name, i) != i}
            return {i for i, answer in answers.items() if answer in gone} | recreated

        return self._asked(ask) if topics else ()

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        return self._asked(lambda reader: reader.in_sync(topics))

    def live_brokers(self) -> Collection[int]:
        return self._asked(lambda reader: reader.nodes())

    def logs(self, node_id: int, names: Collection[str]) -> BrokerLogs | None:
        from logagent.kafka.admin.reader import AdminReader

        servers, config = self.place.connection()
        try:
            with AdminReader(servers, config) as reader:
                # In this order: what is listed afterwards under a name of then may only be called there for too long.
                ids, dirs = reader.ids_of_names(node_id, names), reader.log_dirs(node_id)
        except (ServiceUnreachable, UnreadableError):
            return None
        current = frozenset(log for each in dirs.values() for log in each.partitions or ())
        return BrokerLogs(current, ids, tuple(sorted(path for path, each in dirs.items() if each.error_code)))

    def clock(self) -> datetime | None:
        """Of the active controller, where it describes its quorum with times (KRaft, from 3.3 on)."""

        def ask(reader: AdminReader) -> datetime | None:
            if not reader.has_quorum(reader.nodes()[0]):
                return None
            quorum = reader.quorum()
            latest = max((r.last_fetch_ms for r in (*quorum.voters, *quorum.observers)), default=-1)
            return datetime.fromtimestamp(latest / 1000, UTC) if latest > 0 else None

        return self._asked(ask)

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        moving: frozenset[str] = self._deletions().reassigning(topics)
        return moving

    def _deletions(self) -> Any:
        from logagent.kafka.admin.client import AdminClient
        from logagent.kafka.admin.topic_deletion import TopicDeletions

        servers, config = self.place.connection()
        return TopicDeletions(lambda: AdminClient(servers, config), self.place.cluster())


def requested(topic: Topic) -> RequestedTopic:
    """A topic of the cluster with every replica, including those that it has only during a reassignment."""
    partitions = tuple(
        RequestedPartition(number, tuple(sorted({*p.replicas, *p.adding, *p.removing})))
        for number, p in sorted(topic.partitions.items())
    )
    return RequestedTopic(topic.name, topic.topic_id or "", partitions)


def now() -> datetime:
    return datetime.now(UTC)


def who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
