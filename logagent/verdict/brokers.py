"""What brokers prove: whether whoever answers while this host's broker is stopped is of its cluster, and when one that
holds a log dir counts as serving, so that strays may be removed while it runs. No I/O, no clock.

The cluster id, and all addresses, are those of a clone, too: of the disks that were copied, or of the original that
they were copied from, whose brokers a stopped clone finds in its own metadata log. What tells them apart is the time
since: a quorum that is behind our own log is not the one that wrote it, and one in which a broker with our node id is
alive, while ours is stopped, is that broker's.

(Not detected: a clone that ran longer than ours, or an original whose broker of our id has been down for minutes, too.)

A holder is `starting` until it said itself that it serves this log dir: over the network (DescribeLogDirs without an
error) or by its registration in the metadata log (`registered_by`). Brokers say either only once every log is loaded,
and no look from outside shows that. A broker that has a file open in every directory may still be recovering one of
them, and a stray that is removed then ends it (`LogManager.loadLogs`). Age alone never ends `starting` (a recovery can
take hours), and afterwards `guard.settle` must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from logagent.base.claims import Claim, Held, Witness
from logagent.base.records import Holder, HolderState
from logagent.base.units import human_time
from logagent.kafka.commitment import QuorumRead, why_not_our_log
from logagent.kafka.image import BrokerRegistration
from logagent.verdict.facts import SAME_START_MS, LogDirFacts, SeenHolder

SESSION_MS = 9_000
"""Kafka's default of `broker.session.timeout.ms`: how long a broker that was killed is still called live."""
GRACE_MS = 5_000
"""For the time that the controller and its brokers need to learn that a session has ended."""


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """This host's broker, which holds no log dir, by its own disk. `end`, `epoch`: those of its metadata log.
    `stopped_ms`: the newest sign that it ran, so the earliest time at which it can have stopped."""

    node_id: int
    cluster_id: str | None
    end: int | None
    epoch: int | None
    stopped_ms: int
    session_ms: int = SESSION_MS

    @property
    def forgotten_ms(self) -> int:
        """When its cluster calls it dead at the latest."""
        return self.stopped_ms + self.session_ms + GRACE_MS


def why_live(live: Collection[int], ours: StoppedBroker, now_ms: int) -> str | None:
    """Why brokers that call these nodes live are not known to be of our cluster; None if our node is not among
    them."""
    if ours.node_id not in live:
        return None
    if now_ms <= ours.forgotten_ms:
        return f"it still calls node {ours.node_id} live, which has just stopped: try again in a few seconds"
    return f"it calls node {ours.node_id} live, but the broker of these disks is stopped: it may be another cluster's"


def why_not_our_quorum(quorum: QuorumRead, ours: StoppedBroker) -> str | None:
    """Why this is not the quorum that our broker followed until it stopped; None if nothing contradicts that."""
    if (why := why_not_our_log(quorum.high_watermark, ours.end, "its quorum")) is not None:
        return why
    if ours.epoch is not None and 0 <= quorum.leader_epoch < ours.epoch:
        return (
            f"its quorum is in epoch {quorum.leader_epoch}, and the metadata log on this host in {ours.epoch}: it"
            " belongs to another cluster, or to this one's past"
        )
    if quorum.leader_id == ours.node_id:
        return f"its quorum is led by node {ours.node_id}, but the broker of these disks is stopped"
    fetched = [r.last_fetch_ms for r in (*quorum.voters, *quorum.observers) if r.node_id == ours.node_id]
    if max(fetched, default=-1) > ours.forgotten_ms:
        late = (max(fetched) - ours.stopped_ms) // 1000
        return (
            f"a node {ours.node_id} followed its quorum {late} s after the broker of these disks stopped: they may be a"
            " copy of that node's (a node that was killed with its host is forgotten after five minutes)"
        )
    return None


def what_helps(bootstrap_servers: str | None, *, asks: bool = True) -> str:
    """The hint to `as_of_stop`: what has not been done already. `asks`: the Admin API is a source."""
    if not asks:
        ask = "let it be asked (admin in assignments.sources, no --offline)"
    elif bootstrap_servers is not None:
        ask = f"see that one answers at kafka.bootstrap_servers ({bootstrap_servers})"
    else:
        ask = "set kafka.bootstrap_servers (and kafka.client for TLS or a password)"
    export = "run `logagent assignments export FILE` where one runs and add --assignments FILE here"
    return f"a living broker says what was deleted or reassigned since: {ask}, or {export}"


def as_of_stop(at_ms: int, *, usable: bool, nobody: str | None) -> str:
    """Assignments that end when this host's broker stopped, said as what they are. `usable`: they are not too old to
    decide what is assigned. `nobody`: why no other broker could be asked."""
    known = "assigned, as of" if usable else "every verdict is unknown: the assignments end at"
    why = f"no living broker could be asked: {nobody}" if nobody else "no other broker was asked"
    return f"{known} {human_time(at_ms)}, when the broker stopped; {why}"


def known_to_serve(where: LogDirFacts, known: SeenHolder | None, now_ms: int) -> bool:
    """Whether the process that holds the lock is the one that was seen serving. What it has loaded stays loaded;
    another process starts over, and so does one that was seen in the future (the clock was set back)."""
    pid, started_ms = where.holder.pid, where.holder.start_time_ms
    if known is None or pid is None or started_ms is None:
        return False
    return known.is_process(pid, started_ms) and known.since_ms <= now_ms


def registered_by(
    holder: Holder, registration: BrokerRegistration | None, seen: Mapping[str, int], directory_id: str | None
) -> bool:
    """Whether the process that holds the lock has registered with its cluster, and is unfenced, with this log dir.

    Brokers are unfenced once they have loaded every log (`BrokerLifecycleManager.setReadyToUnfence`), and list the
    directory ids of those that are not offline (3.7 and later). The registration must be this process's own: a crashed
    one before it stays unfenced until its session ends. So it has to be of after the start of this process, and of
    another incarnation than those that were `seen` before it (when first, in ms); that none was seen proves nothing.
    """
    if registration is None or registration.fenced is not False or registration.registered_ms is None:
        return False
    started_ms = holder.start_time_ms
    if started_ms is None or registration.registered_ms <= started_ms + SAME_START_MS:
        return False
    before = {incarnation for incarnation, seen_ms in seen.items() if seen_ms < started_ms - SAME_START_MS}
    known = directory_id is not None and directory_id in registration.directory_ids
    return known and bool(before) and registration.incarnation not in before


def serving_since(holder: Holder, registration: BrokerRegistration | None, now_ms: int) -> int:
    """Since when a process serves that is known to serve now: since it was unfenced, where the metadata log has both
    its registration and that as of after its start; else only since now.

    A broker asks to be unfenced once it has loaded every log, and no earlier process can have registered after this one
    had started.
    """
    started_ms = holder.start_time_ms
    if registration is None or registration.fenced is not False or started_ms is None:
        return now_ms
    registered_ms, unfenced_ms = registration.registered_ms, registration.unfenced_ms
    if registered_ms is None or unfenced_ms is None or registered_ms <= started_ms + SAME_START_MS:
        return now_ms
    return min(now_ms, max(registered_ms, unfenced_ms))


def with_settled_holder(
    where: LogDirFacts, serving: SeenHolder, witness: Witness, settle_ms: int, now_ms: int
) -> LogDirFacts:
    """`where` with its holder HELD once `guard.settle` has passed since it was first seen serving; until then the
    holder's detail says how long that was."""
    seen_ms = now_ms - serving.since_ms
    if seen_ms >= settle_ms:
        held = Held(Claim.SERVING, witness, serving.since_ms)
        return replace(where, holder=replace(where.holder, state=HolderState.HELD, serving=held))
    detail = f"seen serving for {seen_ms // 1000} s, guard.settle is {settle_ms // 1000} s"
    return replace(where, holder=replace(where.holder, detail=detail))


def mark_serving(
    log_dirs: Mapping[str, LogDirFacts],
    known: Mapping[str, SeenHolder],
    serves: Callable[[LogDirFacts], Witness | str],
    settle_ms: int,
    now_ms: int,
    registration: BrokerRegistration | None = None,
) -> tuple[dict[str, LogDirFacts], dict[str, SeenHolder]]:
    """The log dirs with serving holders distinguished from starting ones, and the serving holders to remember.

    `serves`: asks who says that the broker serves a log dir, or why nobody does: only about holders that are not known
    to serve yet.
    `registration`: of this host's broker. It tells how old its serving is, so that a fresh install beside an old broker
    does not count from its own first look.
    """
    updated, noted = dict(log_dirs), dict[str, SeenHolder]()
    for path, where in log_dirs.items():
        holder = where.holder
        if holder.state is not HolderState.STARTING:
            continue
        before, witness = known.get(path), Witness.SEEN_SERVING
        if before is not None and known_to_serve(where, before, now_ms):
            noted[path] = before
        elif holder.pid is None or holder.start_time_ms is None:
            continue
        elif not isinstance(answer := serves(where), Witness):
            updated[path] = replace(where, holder=replace(holder, detail=holder.detail or answer))
        else:
            since_ms = serving_since(holder, registration, now_ms)
            noted[path], witness = SeenHolder(holder.pid, holder.start_time_ms, since_ms), answer
        if path in noted:
            updated[path] = with_settled_holder(where, noted[path], witness, settle_ms, now_ms)
    return updated, noted
