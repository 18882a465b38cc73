"""What the `topics` commands share: where requests are kept and how the cluster is reached (`StoreAndCluster`), how a
plan becomes a request that is seen through until it is done or the time is over (`ask`), and how far requests are
(`logagent.topics/2`: replicas by state, and what is missing, why, and what ends it).
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from logagent.base.config.settings import is_uri
from logagent.base.console.options import Call
from logagent.base.console.render import human_bytes, table
from logagent.base.errors import ConfigError, Exit, LogAgentError, ServiceUnreachable, UnreadableError, UsageError
from logagent.base.units import LARGEST_COUNT, human_time, instant, rfc3339_or_none
from logagent.deletion.controller.deletion_plan import DeletionPlan, ExistingTopic, asked_lately
from logagent.deletion.controller.deletions import ControllerSetup, Deletions, TopicAnswerOfCluster
from logagent.deletion.controller.topic_deletion_manager import (
    FAILED,
    BrokerLogs,
    ReplicaNotDone,
    RequestState,
    Sightings,
    TopicDeletionManager,
    TopicProgress,
    is_running,
    request_state,
)
from logagent.deletion.store.answers import (
    MissingReplica,
    PlannedDirectory,
    RequestProgress,
    TopicProgressDoc,
    TopicsDoc,
    TopicsPlanDoc,
)
from logagent.deletion.store.requests import (
    LIFETIME,
    SEND_WITHIN,
    Approval,
    ControlFolder,
    Filed,
    Request,
    RequestedPartition,
    RequestedTopic,
    TooLarge,
    decode,
    encode,
    moment,
    write_request,
)
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
ROUND_SECONDS = 2.0
FEWER = "ask for fewer at a time: topics by --topic, directories by --host, --kind, --reason or --larger too"
SHOWN_MISSING = 1000
"""Of one topic, in the table for a person; the document has all."""


def place_options(command: F) -> F:
    """The options that say where a cluster's deletions are kept and how the cluster is reached."""
    for option in reversed(
        [
            click.option("--store", metavar="DIR", help="The fleet store (default: publish.store)."),
            click.option(
                "--cluster", "cluster_id", metavar="ID", help="The cluster's id (default: the cluster is asked)."
            ),
            click.option(
                "--bootstrap-server",
                multiple=True,
                metavar="[ID=]HOST:PORT",
                help="Where the cluster (with that id) is reached; repeatable. Default: kafka.bootstrap_servers.",
            ),
            click.option("--key", "key_file", metavar="FILE", help=f"The private key (default: ${KEY_VARIABLE})."),
        ]
    ):
        command = option(command)
    return command


@dataclass(slots=True)
class StoreAndCluster:
    """The values of the options of `place_options`. A command requires only those it needs."""

    call: Call
    store: str | None
    cluster_id: str | None
    bootstrap_server: tuple[str, ...]
    key_file: str | None

    def __post_init__(self) -> None:
        if self.call.log_dirs:
            raise UsageError(
                "--log-dir does not narrow what is done across the fleet",
                hint="`delete` selects by --topic; `purge` also by --host, --kind, --reason, --larger or --id",
            )

    def control(self) -> ControlFolder:
        """The control folder. Raises ConfigError if store or cluster is not known."""
        store = self.store or self.call.settings().publish.store
        if store is None:
            raise ConfigError("no fleet store is named", hint="set publish.store, or add --store DIR")
        check_store(store)
        if not is_uri(store):
            from logagent.base.linux.kernel import mount_of, mounts

            found = mount_of(os.path.realpath(store), mounts())
            kind = found.kind if found is not None else ""
            if kind.startswith("fuse") and not self.call.settings().store.trust_exclusive_create:
                raise ConfigError(
                    f"the store {store} is a FUSE mount ({kind}), which may create a file that exists already",
                    hint="if it is known not to, set store.trust_exclusive_create = true",
                )
        return ControlFolder(store, self.cluster())

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
        """The addresses that were given for this cluster, else for any."""
        given = {cluster: servers for cluster, _, servers in (text.rpartition("=") for text in self.bootstrap_server)}
        named = given.get(self.cluster_id) if self.cluster_id else None
        return named or given.get("") or self.call.settings().kafka.bootstrap_servers

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
            ControllerSetup(
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

    place: StoreAndCluster

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

        def of_our_cluster() -> Answered:
            with AdminReader(servers, config) as reader:
                if reader.cluster_id() != self.place.cluster():
                    raise UnreadableError(f"the cluster at {servers} is not {self.place.cluster()}")
                return question(reader)

        return with_retries(of_our_cluster)

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        """Deleted is an id that the cluster does not know, one that it knows without a topic, and one whose name is
        another topic's by now: the ZooKeeper generation answers by that name."""
        from logagent.kafka.admin.reader import IdAnswer

        gone = (IdAnswer.UNKNOWN, IdAnswer.NO_TOPIC)

        def deleted(reader: AdminReader) -> set[str]:
            node = reader.nodes()[0]
            answers = reader.topic_ids_known(node, topics)
            unanswered = {i: topics[i] for i, answer in answers.items() if answer is IdAnswer.CANNOT_TELL}
            now = reader.ids_of_names(node, unanswered.values())
            recreated = {i for i, name in unanswered.items() if now.get(name, i) != i}
            return {i for i, answer in answers.items() if answer in gone} | recreated

        return self._asked(deleted) if topics else ()

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

        def last_fetch(reader: AdminReader) -> datetime | None:
            if not reader.has_quorum(reader.nodes()[0]):
                return None
            quorum = reader.quorum()
            latest = max((r.last_fetch_ms for r in (*quorum.voters, *quorum.observers)), default=-1)
            return datetime.fromtimestamp(latest / 1000, UTC) if latest > 0 else None

        return self._asked(last_fetch)

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


def progress_document(
    seen: Sightings, deletions: Deletions, number: str | None = None, topic: str | None = None
) -> TopicsDoc:
    """All requests, with the replicas that are not done; `number`: only this one, `topic`: only for this name."""
    setting = deletions.setting
    manager = TopicDeletionManager(seen, setting.silent_after)
    filed = sorted(seen.filed.values(), key=lambda f: (f.request.at if f.request else "", f.request_id))
    wanted = [f for f in filed if number in (None, f.request_id)]
    requests = [row for f in wanted if (row := _request(f, manager, deletions, topic)) is not None]
    return {
        "schema": "logagent.topics/2",
        "at": instant(seen.at),
        "cluster_id": setting.control.cluster_id,
        "cluster": seen.cluster.why_not,
        "requests": requests,
        "agents": [
            {"node_id": node, "host": w.seen.host, "at": instant(w.written),
             "heard": seen.at - w.written <= setting.silent_after, "knows": len(w.seen.open) + len(w.seen.ended)}
            for node, w in sorted(seen.agents.items())
        ],
        "runners": [
            {"host": r.host, "by": r.by, "at": instant(r.at)} for r in seen.runners if is_running(r, seen.at)
        ],
        "unreadable": {str(node): why for node, why in sorted(seen.unreadable.items())},
    }  # fmt: skip


def _request(
    filed: Filed, manager: TopicDeletionManager, deletions: Deletions, name: str | None
) -> RequestProgress | None:
    request = filed.request or Request(deletions.setting.control.cluster_id, "topics", "", "", "", "", "")
    named = [t.topic for t in request.topics] + [d.topic for d in request.directories]
    if name is not None and name not in named:
        return None
    progress = manager.progress(filed)
    state = request_state(filed, progress, manager.seen)
    over = state.is_over and state.state != "done"
    return {
        "request_id": filed.request_id,
        "kind": request.kind if filed.request is not None else "unknown",
        "plan_id": request.plan_id,
        "approvals": list(request.approvals),
        "by": request.by,
        "at": request.at or instant(manager.seen.at),
        "expires_at": instant(request.ends_at) if request.at else instant(manager.seen.at),
        "state": state.state,
        "why": state.why,
        "next": state.next,
        "carried_out_by": state.carried_out_by,
        "topics_asked": len(progress),
        "topics": [_topic(t, over=over) for t in progress if name is None or t.topic == name],
        "bytes_quarantined": min(LARGEST_COUNT, sum(t.bytes_quarantined for t in progress)),
        "bytes_back": min(LARGEST_COUNT, sum(t.bytes_back for t in progress)),
    }


def _topic(topic: TopicProgress, *, over: bool) -> TopicProgressDoc:
    return {
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "result": topic.result,
        "states": {state.value: count for state, count in sorted(topic.states.items()) if count},
        "partitions": {state.value: count for state, count in sorted(topic.partitions.items()) if count},
        "waits_for": topic.waits,
        "strays_left": topic.strays_left,
        "bytes_quarantined": min(LARGEST_COUNT, topic.bytes_quarantined),
        "bytes_back": min(LARGEST_COUNT, topic.bytes_back),
        "missing": [] if over else [_replica(m) for m in topic.missing],
    }


def _replica(m: ReplicaNotDone) -> MissingReplica:
    why = m.reason
    return {
        "partition": m.partition, "node_id": m.node_id, "log_dir": m.log_dir, "name": m.name, "state": m.state.value,
        "since": rfc3339_or_none(why.as_of_ms), "why": why.fact, "claim": why.code or None, "hint": why.hint or None,
        "next_try_at": rfc3339_or_none(why.until_ms),
    }  # fmt: skip


def show_progress(call: Call, document: TopicsDoc) -> None:
    """The same for a person: one line per topic, then what is missing, why, and what ends it."""
    rows, missing = list[list[str]](), list[list[str]]()
    for r in document["requests"]:
        since = human_time(moment(r["at"]))
        if not r["topics"]:
            rows.append([r["request_id"][:12], r["kind"], r["state"], "", r["why"], *_bytes(r), since])
        for t in r["topics"]:
            states = ", ".join(f"{count} {state}" for state, count in t["states"].items())
            text = (r["why"] if r["state"] != "done" else "") or t["waits_for"] or states
            rows.append([r["request_id"][:12], r["kind"], r["state"], t["topic"], text, *_bytes(t), since])
            for m in t["missing"][:SHOWN_MISSING] if t["result"] == "deleted" or r["kind"] == "directories" else []:
                where = f"{m['log_dir']}/{m['name']}" if m["name"] else ""
                tries = f"; next try at {human_time(moment(m['next_try_at']))}" if m["next_try_at"] else ""
                missing.append([f"{t['topic']}-{m['partition']}", str(m["node_id"]), where, m["state"], m["why"],
                                f"{m['hint'] or ''}{tries}".removeprefix("; ")])  # fmt: skip
    if not rows:
        call.say("no deletion has been requested yet")
        return
    columns = [("request", "left"), ("kind", "left?"), ("state", "left"), ("topic", "dir"), ("replicas", "text"),
               ("quarantined", "right?"), ("back", "right?"), ("since", "left?")]  # fmt: skip
    table(f"Deletions of cluster {document['cluster_id']}", columns, rows, color=call.color)
    if missing:
        columns = [("replica", "dir"), ("node", "right"), ("directory", "path?"), ("state", "left?"), ("why", "text"),
                   ("what ends it", "text")]  # fmt: skip
        table("Not done", columns, missing, color=call.color)
    for r in document["requests"]:
        who = f"request {r['request_id'][:12]}: carried out by {r['carried_out_by']}" if r["carried_out_by"] else ""
        for line in filter(None, (who, r["next"] and f"request {r['request_id'][:12]}: {r['next']}")):
            call.say(f"topics: {line}")
    if document["cluster"] is not None:
        call.say(f"topics: the cluster was not asked: {document['cluster']}")
    for node, why in list(document["unreadable"].items())[:5]:
        call.say(f"topics: what the agent of node {node} has seen cannot be read: {why}")


def _bytes(row: RequestProgress | TopicProgressDoc) -> tuple[str, str]:
    return human_bytes(row["bytes_quarantined"]), human_bytes(row["bytes_back"])


@dataclass(frozen=True, slots=True)
class EarlierRequests:
    """What a plan has to take into account of the requests there are. `open`: those that may still delete something."""

    open: tuple[Request, ...]
    lately: tuple[Request, ...]


def earlier_requests(deletions: Deletions) -> EarlierRequests:
    """The requests that are open, and those of the last day without an approval. Raises ServiceUnreachable."""
    setting = deletions.setting
    filed = deletions.reader.folder.read().values()
    requests = [f.request for f in filed if f.request is not None]
    at = setting.clock()
    still = [f.request for f in filed if f.request is not None and not f.is_over and not f.is_left(at)]
    return EarlierRequests(tuple(r for r in still if at < r.ends_at), tuple(asked_lately(requests, at)))


def topics_of_cluster(place: StoreAndCluster, deletions: Deletions) -> list[ExistingTopic]:
    """Every topic that the cluster lists, with its current replicas and (if snapshots have them) its bytes."""
    from logagent.kafka.admin.reader import AdminReader

    servers, config = place.connection()
    with AdminReader(servers, config) as reader:
        image = reader.image(int(now().timestamp() * 1000))
    if image.cluster_id != deletions.setting.control.cluster_id:
        ours = deletions.setting.control.cluster_id
        raise LogAgentError(
            f"the cluster at {servers} is {image.cluster_id}, not {ours}",
            hint="name the other cluster with --cluster, or its brokers with --bootstrap-server",
        )
    living = [ExistingTopic(requested(topic)) for topic in image.by_name.values()]
    sizes = deletions.reader.sizes({t.requested.topic_id for t in living} - {""})
    return [ExistingTopic(t.requested, sizes.get(t.requested.topic_id)) for t in living]


def ask(
    call: Call, place: StoreAndCluster, plan: DeletionPlan, *, execute: bool, approve: Sequence[str], timeout: float
) -> TopicsPlanDoc:
    """Show the plan; with `execute` (and the approvals it needs) make the request and carry it out. Returns its
    document, which the caller prints."""
    at = now()
    words, refused = plan.approved(approve, at)
    nothing = not plan.topics and not plan.directories
    going = execute and refused is None and not nothing
    shown_id = next((a.partition(":")[0] for a in approve if words and refused is None), plan.plan_id(at))
    document = plan_document(plan, shown_id, at, refused, execute=going)
    if refused is not None and not nothing:
        call.record_status(Exit.APPROVAL)
    for what, why in plan.dropped:
        hint = f" ({why.hint})" if why.hint else ""
        call.say(f"topics: {what} is left out: {why.fact}{hint}")
    if execute and plan.dropped:
        call.record_status(Exit.REFUSED)
    if not going:
        _show_plan(call, document)
        return document
    deletions = place.deletions(signing=True)
    number = document["request_id"] = _make_request(call, deletions, plan, shown_id, words, at)
    call.say(f"topics: request {number} is in the store")
    if timeout <= 0 and plan.kind == "directories":
        call.say("topics: requested, not done: its hosts' agents carry it out; `logagent topics status` shows progress")
        _show_plan(call, document)
        return document
    try:
        state, seen = _until_over(deletions, number, timeout)
    except (LogAgentError, KeyboardInterrupt):
        with suppress(LogAgentError):
            deletions.give_up(number)
        call.say(f"topics: request {number} is not done: `logagent topics status` shows whether it was decided,"
                 f" `logagent topics cancel {number}` cancels it")  # fmt: skip
        raise
    progress = document["progress"] = progress_document(seen, deletions, number)
    if timeout <= 0 and not state.is_over:
        call.say("topics: decided, not done: `logagent topics run` continues, `logagent topics status` shows progress")
    else:
        say_how_it_ends(call, number, state, deletions)
    _show_plan(call, document)
    if not call.json:
        show_progress(call, progress)
    return document


def say_how_it_ends(call: Call, number: str, state: RequestState, deletions: Deletions) -> None:
    """Status and last words for one request: true whatever it came to."""
    if state.state in FAILED:
        call.record_status(Exit.FAILED)
        again = "; it is over: enable deletion, then request it again" if state.state == "disabled" else ""
        call.say(f"topics: request {number} is {state.state}: {state.why}{again}")
    elif not state.is_over:
        call.record_status(Exit.REFUSED)
        why = deletions.waits.get(number) or state.why or "`logagent topics status` shows what is missing"
        call.say(f"topics: request {number} is not done yet: {why}; `logagent topics run` continues it")
    elif state.state != "done":
        call.record_status(Exit.REFUSED)
        call.say(f"topics: request {number} is {state.state}{': ' if state.why else ''}{state.why}")


def _make_request(
    call: Call, deletions: Deletions, plan: DeletionPlan, plan_id: str, words: tuple[Approval, ...], at: datetime
) -> str:
    setting = deletions.setting
    assert setting.key is not None
    lasts = SEND_WITHIN if plan.kind == "topics" else LIFETIME
    nodes = {n for t in plan.topics for p in t.partitions for n in p.replicas} | {d.node_id for d in plan.directories}
    request = Request(
        plan.cluster_id, plan.kind, plan_id, who(), instant(at), instant(at + lasts), token_hex(16), words, plan.topics,
        plan.directories, owners=deletions.reader.owners(nodes),
    )  # fmt: skip
    # Validate first what every reader will validate: a report can contain anything.
    decode(Request, encode(request))
    setting.control.prepare()
    try:
        number = write_request(setting.control, request, setting.key)
    except TooLarge as error:
        raise UsageError(f"this is too much for one request, nothing was requested: {error}", hint=FEWER) from error
    except (ServiceUnreachable, KeyboardInterrupt):
        call.say("topics: a request may have been made: `logagent topics status` shows it then")
        raise
    if plan.kind == "topics":
        setting.wrote.add(number)
    return number


def _until_over(deletions: Deletions, number: str, timeout: float) -> tuple[RequestState, Sightings]:
    """Rounds (at least one) until the request is over or the time is."""
    deadline = time.monotonic() + timeout
    try:
        while True:
            seen = deletions.round()
            state = state_of(seen, deletions, number)
            if not state.is_over and time.monotonic() + ROUND_SECONDS > deadline and number in deletions.setting.wrote:
                deletions.give_up(number)
                seen = deletions.reader.read()
                state = state_of(seen, deletions, number)
            if state.is_over or time.monotonic() + ROUND_SECONDS > deadline:
                return state, seen
            time.sleep(ROUND_SECONDS)
    finally:
        deletions.stop()


def state_of(seen: Sightings, deletions: Deletions, number: str) -> RequestState:
    filed = seen.filed.get(number)
    if filed is None:
        raise LogAgentError(f"request {number} is gone from the store", hint="find out who can remove files there")
    manager = TopicDeletionManager(seen, deletions.setting.silent_after)
    return request_state(filed, manager.progress(filed), seen)


def plan_document(
    plan: DeletionPlan, plan_id: str, at: datetime, refused: str | None, *, execute: bool
) -> TopicsPlanDoc:
    return {
        "schema": "logagent.topics-plan/2",
        "at": instant(at),
        "cluster_id": plan.cluster_id,
        "kind": plan.kind,
        "plan_id": plan_id,
        "mode": "execute" if execute else "dry-run",
        "topics": [
            {"topic": t.topic, "topic_id": t.topic_id, "partitions": len(t.partitions),
             "replicas": sum(len(p.replicas) for p in t.partitions)}
            for t in plan.topics
        ],
        "directories": [cast(PlannedDirectory, asdict(d)) for d in plan.directories],
        "dropped": [{"what": what, "why": r.fact, "hint": r.hint or None} for what, r in plan.dropped],
        "approval": {"needed": [{"word": n.word, "why": n.why} for n in plan.approval], "refused": refused},
        "bytes": plan.bytes,
        "request_id": None,
        "progress": None,
    }  # fmt: skip


def _show_plan(call: Call, document: TopicsPlanDoc) -> None:
    if call.json:
        return
    asked = "requested" if document["mode"] == "execute" else "nothing was requested"
    title = f"Plan {document['plan_id']} ({asked})"
    if document["topics"]:
        rows = [[t["topic"], t["topic_id"], str(t["partitions"]), str(t["replicas"])] for t in document["topics"]]
        columns = [("topic", "dir"), ("topic id", "left"), ("partitions", "right"), ("replicas", "right")]
        table(title, columns, rows, color=call.color)
    if document["directories"]:
        rows = [
            [str(d["node_id"]), f"{d['log_dir']}/{d['name']}", d["kind"], "only copy" if d["only_copy"] else "",
             human_bytes(d["bytes"])]
            for d in document["directories"]
        ]  # fmt: skip
        columns = [("node", "right"), ("directory", "dir"), ("kind", "left"), ("", "left"), ("size", "right")]
        table(title, columns, rows, color=call.color)
    if not document["topics"] and not document["directories"]:
        call.say("nothing to do")
        return
    needed = document["approval"]["needed"]
    for each in needed:
        verb = "approved" if document["mode"] == "execute" else "it needs the approval"
        call.say(f"{verb} {each['word']}: {each['why']}")
    if document["approval"]["refused"] is not None:
        words = ",".join(dict.fromkeys(each["word"] for each in needed))
        suffix = f" --approve {document['plan_id']}:{words}" if words else ""
        call.say(f"{document['approval']['refused']}; read the plan, then: --execute{suffix}")
    elif document["mode"] == "dry-run":
        call.say("add --execute to request it")
