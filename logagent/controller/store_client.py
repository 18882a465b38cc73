"""The manager's `DeletionClient`, using the Admin API and the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

from logagent.controller.cluster_waits import with_brokers_down
from logagent.controller.controller_context import ControllerContext, Topic
from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.request_states import RequestStates
from logagent.controller.setting import Setting
from logagent.errors import ServiceUnreachable, UnreadableError
from logagent.store.deletion import RequestedTopic
from logagent.store.orders import Requests

Outcome = Literal["done", "cancelled", "resumed"]
LIVES = "the cluster has it: its request was closed before, and a closed request deletes no topic"


class Rounds(Protocol):
    """The part of `DeletionRounds` that the client uses."""

    setting: Setting
    context: ControllerContext
    requests: Requests
    states: RequestStates
    muted: set[Topic]

    def check_epoch(self) -> None: ...

    def note_replicas(self, topic: Topic, living: RequestedTopic | None) -> None: ...

    def close(self, request_id: str, outcome: Outcome) -> None: ...

    def drop(self, request_id: str, topics: Mapping[str, str]) -> None: ...


class StoreDeletionClient:
    """The manager's `DeletionClient`, using the Admin API and the store."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds

    def delete_topic(self, topics: Mapping[Topic, str]) -> Mapping[Topic, TopicOutcome]:
        """Reads assignments again right before DeleteTopics: replicas added to a topic since the request join it, and a
        topic id that has another name now is refused. Cancellations and the epoch are checked last."""
        rounds = self._rounds
        try:
            living = rounds.setting.admin.topics_now({topic.topic_id: name for topic, name in topics.items()})
            rounds.requests.refresh()
            found_again = {t: n for t, n in topics.items() if rounds.states.is_reopened(t.request_id)}
            # Only a signed request of kind `topics` that was never closed may cause DeleteTopics.
            asked = {t: name for t, name in topics.items() if rounds.states.may_delete(t.request_id)}
            answers = {t: _another(living[t.topic_id]) for t, name in asked.items() if _differs(living, t, name)}
            asked = {t: name for t, name in asked.items() if t not in answers}
            for topic in asked:
                rounds.note_replicas(topic, living.get(topic.topic_id))
            answers |= self._still_deleted(found_again, living)
            rounds.check_epoch()
            said = rounds.setting.admin.delete_topics({t.topic_id: n for t, n in asked.items()}) if asked else {}
        except (ServiceUnreachable, UnreadableError) as error:
            # Asked again later; topics that the cluster has already deleted proceed meanwhile.
            rounds.setting.warn(str(error))
            return dict.fromkeys(topics, TopicOutcome("again", f"could not ask the cluster: {error}"))
        for topic in asked:
            if topic.topic_id in said:
                replicas = rounds.context.topics_to_be_deleted[topic].replicas
                answers[topic] = with_brokers_down(said[topic.topic_id], {r.node_id for r in replicas})
        return answers

    def _still_deleted(
        self, found_again: Mapping[Topic, str], living: Mapping[str, RequestedTopic]
    ) -> dict[Topic, TopicOutcome]:
        """For topics of closed requests of which a copy was found: agents are asked about it only if the cluster no
        longer knows the topic id. Raises ServiceUnreachable, UnreadableError."""
        if not found_again:
            return {}
        gone = self._rounds.setting.admin.unknown_ids({t.topic_id: name for t, name in found_again.items()})
        unsaid = "a copy was found after it was done, and the cluster does not say that the topic is gone"
        answers = dict.fromkeys(found_again, TopicOutcome("again", unsaid))
        answers |= {t: TopicOutcome("deleted") for t in found_again if t.topic_id in gone}
        return answers | {t: TopicOutcome("lives", LIVES) for t in found_again if t.topic_id in living}

    def drop(self, topics: Mapping[Topic, str]) -> None:
        for request_id in sorted({topic.request_id for topic in topics}):
            self._rounds.drop(request_id, {t.topic_id: why for t, why in topics.items() if t.request_id == request_id})

    def delete_topic_deletions(self, topics: Collection[Topic]) -> None:
        rounds = self._rounds
        remaining = {t.request_id for t in rounds.context.topics_to_be_deleted if t not in topics}
        for request_id in sorted({topic.request_id for topic in topics} - remaining):
            rounds.close(request_id, "done")

    def mute_partition_modifications(self, topic: Topic) -> None:
        self._rounds.muted.add(topic)

    def send_metadata_update(self, topics: Collection[Topic]) -> None:
        """Nothing to send: the cluster's own controller propagates its metadata, and agents read it on their hosts."""


def _differs(living: Mapping[str, RequestedTopic], topic: Topic, name: str) -> bool:
    return topic.topic_id in living and living[topic.topic_id].topic != name


def _another(living: RequestedTopic) -> TopicOutcome:
    return TopicOutcome("refused", f"its id is that of topic {living.topic} now: not the one that was requested")
