"""What holds up the cluster's own deletion of topics: said by the controller in the store, for `topics status`.

Kafka with ZooKeeper goes on deleting a topic as long as a broker with a replica of it is down; only who asks is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from logagent.controller.controller_context import ControllerContext
from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.setting import Setting
from logagent.store.control import FolderUnreadable
from logagent.store.deletion import Waits
from logagent.store.orders import Requests, instant, write_waits

MAX_WORDS = 500
MAX_TAKEN = 100


def with_brokers_down(said: TopicOutcome, replicas: Collection[int]) -> TopicOutcome:
    """The cluster's answer with the brokers that it waits for: those with a replica of the topic that are down."""
    if said.outcome != "again" or said.live_brokers is None:
        return said
    down = sorted(set(replicas) - said.live_brokers)
    if not down:
        return said
    named = ", ".join(str(node) for node in down[:10]) + (", …" if len(down) > 10 else "")
    which = f"broker {named}, which is down" if len(down) == 1 else f"brokers {named}, which are down"
    return TopicOutcome("again", f"{said.why}: it waits for {which}", said.live_brokers)


def write_cluster_waits(
    setting: Setting, context: ControllerContext, requests: Requests, epoch: int, now: datetime
) -> None:
    """Write what each open request waits for, if it is something else than what the store says."""
    waiting: dict[str, dict[str, str]] = {}
    for topic, known in context.topics_to_be_deleted.items():
        why = known.waits_for_cluster or next(iter(known.ineligible.values()), None)
        of_request = waiting.setdefault(topic.request_id, {})
        if why is not None and not known.started:
            of_request[topic.topic_id] = why[:MAX_WORDS]
    for request_id, topics in waiting.items():
        before = requests.waits.get(request_id)
        if topics == (before.topics if before is not None else {}):
            continue
        first = before.seq + 1 if before is not None and before.epoch == epoch else 1
        for seq in range(first, first + MAX_TAKEN):  # a name may be taken by junk
            waits = Waits(request_id, setting.control.cluster_id, epoch, seq, instant(now), topics)
            try:
                written = write_waits(setting.control, waits, setting.key)
            except FolderUnreadable:
                break  # the next round holds the request, and says so
            if written:
                requests.waits[request_id] = waits
                break


def recall_cluster_waits(context: ControllerContext, requests: Mapping[str, Waits]) -> None:
    """For a read-only look: what the controller said last about topics that the cluster has not deleted."""
    for topic, known in context.topics_to_be_deleted.items():
        waits = requests.get(topic.request_id)
        if waits is not None and not known.started:
            known.waits_for_cluster = waits.topics.get(topic.topic_id)
