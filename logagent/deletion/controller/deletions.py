"""Carries out what is irreversible, once: decides on requests, sends DeleteTopics, writes outcomes.

Any number of these may run. Who asks decides: `delete` is written only by the process that wrote the request, within a
minute of it. So nothing that happens to the store afterwards can turn a request into a deletion. DeleteTopics is sent
only for what is decided so, by topic id, to the cluster that listed the topic right before; again by anybody. All else
is done by the hosts' own agents, which read the same files.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from logagent.base.errors import ConfigError, ServiceUnreachable, UnreadableError
from logagent.base.times import instant
from logagent.deletion.controller.fleet_reader import RUNNERS, FleetReader, Setting, TopicAnswerOfCluster
from logagent.deletion.controller.topic_deletion_manager import (
    Sightings,
    TopicDeletionManager,
    TopicProgress,
    request_state,
)
from logagent.deletion.store.requests import (
    LONGEST_WORDS,
    Decided,
    Decision,
    DirectoryOutcome,
    Filed,
    Outcome,
    RequestedTopic,
    TopicOutcome,
    cancel_beside,
    decide,
    moment,
    write_outcome,
)
from logagent.store.contract import CLOCKS_APART
from logagent.store.signing import NotSigned, PrivateKey

LEFT_BEHIND = timedelta(days=1)
RENAMED = "its id belongs to another name now: not the topic that was requested"


@dataclass(slots=True)
class Deletions:
    """One process that carries out requests. `waits`: why a request does not go on yet, by its id, as of the last
    round."""

    setting: Setting
    reader: FleetReader = field(init=False)
    waits: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    """The requests that the last round has ended."""
    _waited: dict[str, str] = field(default_factory=dict)
    _published: str = ""
    _acknowledged: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    """The requests that this process has seen end: a store that falls back brings none of them back."""
    _runner: str = field(default_factory=lambda: f"{secrets.token_hex(16)}.json")

    def __post_init__(self) -> None:
        self.reader = FleetReader(self.setting)

    @property
    def _key(self) -> PrivateKey:
        if self.setting.key is None:
            raise ConfigError("no private key is named")
        return self.setting.key

    def round(self) -> Sightings:
        """Look, do what may be done, and look at what came of it. Raises ServiceUnreachable, ConfigError; ConfigError
        also for a wrong clock, and then nothing is written or sent."""
        self._check_clock("store", self.setting.control.prepare())
        self._say_that_we_run()
        requests = self.reader.folder.read()
        if any(f.request is not None and f.request.kind == "topics" and not f.is_over for f in requests.values()):
            with suppress(ServiceUnreachable, UnreadableError):  # whoever does not answer is asked nothing else
                self._check_clock("cluster", self.setting.admin.clock())
        self._waited, self.waits, self.closed = {**self._waited, **self.waits}, {}, set()
        # First what has only a minute: to read what a large fleet has published takes longer.
        first = sorted(self.setting.wrote & requests.keys())
        for number in first:
            self._carry_out(number, requests[number], Sightings(self.setting.clock(), requests))
        seen = self.reader.read()
        for number in sorted(seen.filed.keys() - set(first)):
            self._carry_out(number, seen.filed[number], seen)
        self._say_that_we_run()
        seen = self._with_acknowledged(self.reader.read())
        return self._with_acknowledged(self.reader.read()) if self._close(seen) else seen

    def _with_acknowledged(self, seen: Sightings) -> Sightings:
        """What the cluster has acknowledged to this process is deleted, also where it no longer lists any topic that
        would show that it knows ids."""
        gone = seen.cluster.gone | (self._acknowledged - seen.cluster.living.keys())
        return replace(seen, cluster=replace(seen.cluster, gone=gone))

    def _check_clock(self, whose: str, at: datetime | None) -> None:
        """Raises ConfigError if our clock is not that of the store, or of the cluster: then no time in a request means
        anything."""
        now = self.setting.clock()
        if at is not None and abs(now - at) > CLOCKS_APART:
            raise ConfigError(
                f"this machine's clock says {instant(now)}, the {whose}'s {instant(at)}: nothing is decided or sent",
                hint="set the clock that is wrong",
            )

    def _say_that_we_run(self) -> None:
        """Renew the file that says so, with what requests wait for: whoever looks is told; and drop what killed runs
        left."""
        runner = {"host": self.setting.host, "by": self.setting.by, "waits": dict(list(self.waits.items())[:100])}
        control, content = self.setting.control, json.dumps({"schema": "logagent.runner/1", **runner})
        if content != self._published:
            old = (self.setting.clock() - LEFT_BEHIND).timestamp()
            for name in [file.name for file in control.files(RUNNERS) if file.modified < old]:
                control.remove(RUNNERS, name)
        control.replace(RUNNERS, self._runner, content.encode())
        self._published = content

    def stop(self) -> None:
        """No longer say that this process runs."""
        self.setting.control.remove(RUNNERS, self._runner)

    # Before the topic is deleted

    def _carry_out(self, number: str, filed: Filed, seen: Sightings) -> None:
        """One request, as far as it can be carried out now."""
        request, decision = filed.request, filed.decision
        if decision is not None or filed.outcome is not None or filed.hold is not None:
            self.setting.wrote.discard(number)  # what was decided once is never decided again, whatever the store loses
        if filed.is_over:
            self._ended.add(number)
        if request is None or filed.hold is not None or number in self._ended:
            return
        if moment(request.at) > seen.at + CLOCKS_APART:
            self.waits[number] = f"it was made at {request.at}, which is in the future here"
            return
        over = seen.at >= request.ends_at
        if decision is None and over:
            self._decide(filed, "expired", f"it was not decided by {instant(request.ends_at)}")
            return
        if request.kind != "topics":
            return
        if decision is None and not self._may_decide(filed, self.setting.clock()):
            return
        names = {t.topic_id: t.topic for t in (decision.topics if decision is not None else request.topics)}
        if decision is not None:
            gone = {i for i in names if i in seen.cluster.gone and i not in seen.cluster.living}
            names = {i: n for i, n in names.items() if i not in gone | self._acknowledged}
            if not names or over:
                return
        now = self.reader.folder.again(number)
        if now.is_over:
            self._ended.add(number)
        if now.is_over or now.hold is not None:
            self.waits[number] = now.hold or "it was decided otherwise meanwhile"
            return
        try:
            self._delete(filed, names)
        except (ServiceUnreachable, UnreadableError, NotSigned) as error:
            self.waits[number] = f"the cluster could not be asked: {error}"

    def _may_decide(self, filed: Filed, now: datetime) -> bool:
        """Whether this process may write `delete`: it wrote the request, just now, and no decision was seen since. Else
        nobody ever does. Its own request is closed when the time is over."""
        assert filed.request is not None
        number = filed.request_id
        if number not in self.setting.wrote:
            return False
        why = filed.request.why_not_deleted(now)
        if why is not None and now > moment(filed.request.at):
            self._give_up(filed)
        elif why is not None:
            self.waits[number] = f"it was made at {filed.request.at}, which is in the future here"
        return why is None

    def _give_up(self, filed: Filed) -> None:
        why = self.waits.get(filed.request_id) or self._waited.get(filed.request_id)
        self._decide(filed, "dropped", f"it was not decided within a minute{': ' if why else ''}{why or ''}; ask again")

    def give_up(self, number: str) -> None:
        """Close a request of this process that it has not decided, before it ends. Raises ServiceUnreachable,
        ConfigError: then it stays undecided, and nobody else decides it."""
        if number not in self.setting.wrote:
            return
        filed = self.reader.folder.again(number)
        if filed.decision is None and filed.hold is None and filed.outcome is None:
            self._give_up(filed)
        self.setting.wrote.discard(number)

    def _delete(self, filed: Filed, names: Mapping[str, str]) -> None:
        """Own the decision to delete these topics, then have the cluster delete them."""
        assert filed.request is not None
        admin, number, decided_before = self.setting.admin, filed.request_id, filed.decision is not None
        moving = admin.reassigning(names)
        if moving:
            which = ", ".join(sorted(names[i] for i in moving)[:5])
            self.waits[number] = f"a partition of {which} is being reassigned; it goes on when that is complete"
            return
        living = admin.topics_now(names)
        other = {i for i, t in living.items() if t.topic != names[i]}
        if filed.decision is None:
            asked = {t.topic_id: t for t in filed.request.topics if t.topic_id not in other}
            if not asked:
                self._decide(filed, "dropped", RENAMED)
                return
            # The assignments that were read right before; of what is no longer listed, those of the request.
            now_there = tuple(living.get(topic_id, topic) for topic_id, topic in asked.items())
            now = self.setting.clock()  # the cluster may have taken its time
            if not self._may_decide(filed, now):
                return
            decision = self._decide(filed, "delete", topics=now_there, at=now)
            self.setting.wrote.discard(number)
            if decision is None or decision.decision != "delete":
                return  # who loses obeys the winner
            if filed.request.why_not_deleted(self.setting.clock()) is not None:
                self.cancel(filed, "the store took more than a minute to write the decision; ask again")
                return
            names = {t.topic_id: t.topic for t in decision.topics}
        # What it does not list is asked again by whoever did not see its answer: a cluster that lists no topic at all
        # does not show otherwise that it knows ids. Right after the decision it is what was listed just now.
        sent = {i: n for i, n in names.items() if i not in other and (i in living or decided_before)}
        answers = admin.delete_topics(sent) if sent else {}
        self._take(filed, sent, answers)

    def _take(self, filed: Filed, sent: Mapping[str, str], answers: Mapping[str, TopicAnswerOfCluster]) -> None:
        number = filed.request_id
        self._acknowledged |= {i for i, answer in answers.items() if answer.outcome == "deleted"}
        disabled = {i: answer.why for i, answer in answers.items() if answer.outcome == "disabled"}
        if disabled:
            self._close_disabled(number, disabled)
        waiting = [f"{sent[i]}: {a.why}" for i, a in answers.items() if a.outcome in ("again", "refused")]
        if waiting:
            self.waits[number] = "; ".join(waiting[:5])

    def _close_disabled(self, number: str, disabled: Mapping[str, str]) -> None:
        """Deletion is disabled: for good, whatever is enabled later. All that is not deleted yet ends with it."""
        filed = self.reader.folder.read()[number]
        topics = filed.decision.topics if filed.decision is not None else ()
        why = next(iter(disabled.values())) or "topic deletion is disabled"
        results = tuple(
            TopicOutcome(t.topic_id, "deleted")
            if t.topic_id in self._acknowledged
            else TopicOutcome(t.topic_id, "disabled", why[:LONGEST_WORDS])
            for t in topics
        )
        self._write(number, topics=results)

    def _decide(
        self, filed: Filed, what: Decided, why: str = "", topics: tuple[RequestedTopic, ...] = (),
        at: datetime | None = None,
    ) -> Decision | None:  # fmt: skip
        """The decision that counts, which may be another's; None if something else has its place."""
        control = self.setting.control
        ours = Decision(filed.request_id, control.cluster_id, what, self.setting.by,
                        instant(at or self.setting.clock()), why[:LONGEST_WORDS], topics)  # fmt: skip
        try:
            counts = decide(control, ours, self._key, self.setting.keys)
            late = filed.request and counts.decision == "delete" and filed.request.why_not_deleted(moment(counts.at))
            if late:
                raise NotSigned(late)
        except NotSigned as error:
            self.setting.warn(f"request {filed.request_id} is on hold: decision.json: {error}")
            return None
        if counts.decision != "delete":
            self.closed.add(filed.request_id)
            self._ended.add(filed.request_id)
        return counts

    # Afterwards

    def _close(self, seen: Sightings) -> bool:
        """Write the outcome of each request that has one; whether any was written."""
        manager, wrote = TopicDeletionManager(seen, self.setting.silent_after), False
        for number, filed in seen.filed.items():
            if filed.request is None or filed.outcome is not None or filed.hold is not None or number in self._ended:
                continue
            if filed.decision is not None and filed.decision.decision != "delete":
                continue
            progress = manager.progress(filed)
            if filed.request.kind == "topics" and filed.decision is not None:
                results = self._results(filed, progress, seen)
                wrote = (results is not None and self._write(number, topics=results)) or wrote
            elif filed.request.kind == "directories" and request_state(filed, progress, seen).state == "done":
                done = tuple(_outcome_of(filed, seen))
                wrote = self._write(number, directories=done) or wrote
        return wrote

    def _results(
        self, filed: Filed, progress: Collection[TopicProgress], seen: Sightings
    ) -> tuple[TopicOutcome, ...] | None:
        """The results of a topics request, once each topic has one: it is complete, or was not deleted in time."""
        assert filed.request is not None and filed.decision is not None
        decided = {t.topic_id for t in filed.decision.topics}
        late = seen.at >= filed.request.ends_at
        results = []
        for topic in progress:
            if topic.topic_id not in decided:
                results.append(TopicOutcome(topic.topic_id, "refused", RENAMED))
            elif topic.complete:
                results.append(TopicOutcome(topic.topic_id, "deleted"))
            elif late and topic.result != "deleted" and topic.topic_id in seen.cluster.living:
                results.append(TopicOutcome(topic.topic_id, "refused", "the cluster did not delete it within 24 hours"))
            else:
                return None
        return tuple(results)

    def _write(
        self,
        number: str,
        topics: tuple[TopicOutcome, ...] = (),
        directories: tuple[DirectoryOutcome, ...] = (),
    ) -> bool:
        control, at = self.setting.control, instant(self.setting.clock())
        outcome = Outcome(number, control.cluster_id, self.setting.by, at, topics, directories)
        self.closed.add(number)
        wrote = write_outcome(control, outcome, self._key)
        self._ended.add(number)
        return wrote

    def cancel(self, filed: Filed, why: str = "") -> Decision:
        """Cancel a request; returns the decision that counts. One that is decided already, or held, gets the
        cancellation beside it: it stops whoever has not acted yet. Raises ServiceUnreachable, ConfigError."""
        control = self.setting.control
        control.prepare()
        ours = Decision(filed.request_id, control.cluster_id, "cancelled", self.setting.by,
                        instant(self.setting.clock()), why)  # fmt: skip
        first = None
        if filed.hold is None:
            first = self._decide(filed, "cancelled", why)
        if first is None or first.decision == "delete":
            cancel_beside(control, ours, self._key, secrets.token_hex(16))
        return first or ours


def _outcome_of(filed: Filed, seen: Sightings) -> list[DirectoryOutcome]:
    assert filed.request is not None
    answers = {
        (node, d.log_dir, d.name): d
        for (number, node), answer in seen.answers.items()
        if number == filed.request_id
        for d in answer.directories
    }
    return [
        DirectoryOutcome(d.node_id, d.log_dir, d.name, answers[d.node_id, d.log_dir, d.name].result or "absent")
        for d in filed.request.directories
    ]
