"""Replays metadata records into topics, brokers and settings; mirrors `ReplicationControlManager.replay` and
`ClusterControlManager.replay` for what determines where partitions are.

A record that does not fit the previous state (a change of an unknown topic, a duplicate name) is refused: then a
controller did not write this log, or we are not reading it from where we think.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logagent.base.errors import NotUnderstood, UnreadableError
from logagent.kafka.commitment import LEADERS_RESIGN_SINCE
from logagent.kafka.image import UNKNOWN_RESERVED_IDS, BrokerRegistration, PartitionAssignment, Topic
from logagent.kafka.metadata_log.metadata_records import (
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    ClearElr,
    ConfigRecord,
    EndTransaction,
    FeatureLevel,
    FenceBroker,
    MetadataRecord,
    PartitionChange,
    PartitionRecord,
    RegisterBroker,
    RemoveTopic,
    TopicRecord,
    UnregisterBroker,
    ZkMigrationState,
    decode_record,
)
from logagent.kafka.retention.settings import CORDONED_LOG_DIRS, DYNAMIC_SETTINGS, TOPIC_SETTINGS, is_not_considered

DELETE_DELAY = "log.segment.delete.delay.ms"
_TOPIC_RESOURCE = 2  # ConfigResource.Type.TOPIC
_BROKER_RESOURCE = 4  # ConfigResource.Type.BROKER; the empty name is the default for all brokers
_TRANSACTION_MARKS = frozenset({BeginTransaction, EndTransaction, AbortTransaction})
_ZK_MIGRATING = frozenset({1, 2})  # 3.4 and 3.5 swapped what the two numbers mean; neither is done
# How many distinct assignments are remembered for sharing; limits the cost if every partition's assignment differs.
_MOST_SHARED = 20_000


@dataclass(slots=True)
class Replay:
    """The state after the records applied so far.

    `removals` maps a topic id, or (topic id, partition) for a partition that lost a replica, to the offset at
    which that happened; in a transaction, to the offset of its end. `features`: the finalised level of each;
    `earlier_metadata_version`: the highest that `metadata.version` had before that.
    `resigns_since` is the offset from which `metadata.version` is one whose leaders resign without a majority.
    `time_ms`: that of the batch that is being applied, None in a snapshot. `topic_configs`, `broker_configs`: of the
    settings that matter here, or may (`is_not_considered`), by name, the value by topic, and by node id ("" for all
    nodes), where it is set.
    """

    topics: dict[str, Topic] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    delete_delays: dict[str, int] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in TOPIC_SETTINGS})
    broker_configs: dict[str, dict[str, str]] = field(
        default_factory=lambda: {name: {} for name in (*DYNAMIC_SETTINGS, CORDONED_LOG_DIRS) if name != DELETE_DELAY}
    )
    removals: dict[str | tuple[str, int], int] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    earlier_metadata_version: int | None = None
    resigns_since: int | None = None
    zk_migration: bool = False
    time_ms: int | None = None
    _transaction: list[MetadataRecord] | None = None
    _assignments: dict[PartitionAssignment, PartitionAssignment] = field(default_factory=dict)

    def add(self, offset: int, value: bytes) -> None:
        """Apply one record's value, or hold it back while a metadata transaction is open (KIP-868).

        Raises `UnreadableError`.
        """
        record = decode_record(value)
        if record is None:
            return
        if type(record) in _TRANSACTION_MARKS:
            self._transaction_mark(offset, record)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply(offset, record)

    def _transaction_mark(self, offset: int, record: MetadataRecord) -> None:
        if isinstance(record, BeginTransaction):
            if self._transaction is not None:
                raise UnreadableError(f"offset {offset} begins a transaction within another")
            self._transaction = []
            return
        if self._transaction is None:
            raise UnreadableError(f"offset {offset} ends a transaction that was not started")
        held, self._transaction = self._transaction, None
        if isinstance(record, EndTransaction):
            for one in held:
                self._apply(offset, one)

    @property
    def open_transaction(self) -> bool:
        return self._transaction is not None

    def _apply(self, offset: int, record: MetadataRecord) -> None:
        match record:
            case PartitionRecord():
                self._partition(offset, record)
            case TopicRecord():
                self._topic(offset, record)
            case PartitionChange():
                self._partition_change(offset, record)
            case RemoveTopic():
                self._remove_topic(offset, record)
            case ConfigRecord():
                self._config(record)
            case FeatureLevel():
                self._feature(offset, record)
            case ClearElr(name):
                self._clear_elr(offset, name)
            case ZkMigrationState(state):
                self.zk_migration = state in _ZK_MIGRATING
            case _:
                self._broker(offset, record)

    @property
    def metadata_version(self) -> int | None:
        return self.features.get("metadata.version")

    def _feature(self, offset: int, record: FeatureLevel) -> None:
        if record.name == "metadata.version" and (before := self.metadata_version) is not None:
            self.earlier_metadata_version = max(before, self.earlier_metadata_version or before)
        self.features[record.name] = level = record.level
        if record.name != "metadata.version":
            return
        if level < LEADERS_RESIGN_SINCE:
            self.resigns_since = None
        elif self.resigns_since is None:
            self.resigns_since = offset

    def _topic(self, offset: int, record: TopicRecord) -> None:
        if record.topic_id in self.topics or record.name in self.ids:
            raise UnreadableError(f"offset {offset} creates topic {record.name} ({record.topic_id}), which exists")
        self.topics[record.topic_id] = Topic(record.name, record.topic_id)
        self.ids[record.name] = record.topic_id

    def _remove_topic(self, offset: int, record: RemoveTopic) -> None:
        topic = self.topics.pop(record.topic_id, None)
        if topic is None:
            raise UnreadableError(f"offset {offset} removes the unknown topic {record.topic_id}")
        del self.ids[topic.name]
        for values in self.topic_configs.values():
            values.pop(topic.name, None)  # `ConfigurationControlManager.deleteTopicConfigs`
        self.removals[record.topic_id] = offset

    def _clear_elr(self, offset: int, name: str) -> None:
        """Of the topic `name`, or of all topics if it is empty (`TopicsDelta.replay`)."""
        if name and name not in self.ids:
            raise UnreadableError(f"offset {offset} clears the eligible leader replicas of the unknown topic {name}")
        for topic in [self.topics[self.ids[name]]] if name else self.topics.values():
            for number, partition in topic.partitions.items():
                topic.partitions[number] = self._interned(partition._replace(elr=()))

    def _broker(self, offset: int, record: MetadataRecord) -> None:
        match record:
            case RegisterBroker(broker_id, epoch, fenced, log_dirs, endpoints, incarnation):
                self.brokers[broker_id] = BrokerRegistration(
                    broker_id, log_dirs, fenced, endpoints, incarnation, self.time_ms, epoch=epoch
                )
            case UnregisterBroker(broker_id, epoch):
                self._registered(offset, broker_id, epoch)
                del self.brokers[broker_id]
            case FenceBroker(broker_id, epoch, change):
                self._change(self._registered(offset, broker_id, epoch), change, ())
            case BrokerRegistrationChange(broker_id, epoch, change, log_dirs):
                self._change(self._registered(offset, broker_id, epoch), change, log_dirs)
            case _:
                pass

    def _registered(self, offset: int, broker_id: int, epoch: int) -> BrokerRegistration:
        """The registration that a record is about (`ClusterControlManager.replay`)."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            known = "which is not registered" if broker is None else f"whose epoch is {broker.epoch}, not {epoch}"
            raise UnreadableError(f"offset {offset} changes broker {broker_id}, {known}")
        return broker

    def _change(self, broker: BrokerRegistration, fenced: bool | None, log_dirs: tuple[str, ...]) -> None:
        """`fenced`: None = unchanged, as empty `log_dirs` are."""
        if fenced is not None and fenced != broker.fenced:
            broker = broker._replace(fenced=fenced, unfenced_ms=None if fenced else self.time_ms)
        self.brokers[broker.node_id] = broker._replace(directory_ids=log_dirs or broker.directory_ids)

    def _config(self, record: ConfigRecord) -> None:
        of = {_TOPIC_RESOURCE: self.topic_configs, _BROKER_RESOURCE: self.broker_configs}.get(record.resource_type)
        if of is None:
            return
        if (record.resource_type, record.name) == (_BROKER_RESOURCE, DELETE_DELAY):
            self._delete_delay(record)
        elif record.name in of or is_not_considered(record.name):
            _set(of.setdefault(record.name, {}), record)

    def _delete_delay(self, record: ConfigRecord) -> None:
        if record.value is None:
            self.delete_delays.pop(record.resource_name, None)
            return
        try:
            self.delete_delays[record.resource_name] = int(record.value)
        except ValueError as error:
            raise UnreadableError(f"{DELETE_DELAY} is set to {record.value!r}, which is not a number") from error

    def _partition(self, offset: int, record: PartitionRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            raise UnreadableError(f"offset {offset} adds a partition to the unknown topic {record.topic_id}")
        if record.partition < 0:
            raise UnreadableError(f"offset {offset} adds partition {record.partition} to {topic.name}")
        new = self._interned(
            PartitionAssignment(
                record.replicas,
                record.isr,
                record.adding,
                record.removing,
                record.directories,
                record.leader,
                record.elr,
            )
        )
        self._replace(offset, topic, record.partition, topic.partitions.get(record.partition), new)

    def _partition_change(self, offset: int, record: PartitionChange) -> None:
        topic = self.topics.get(record.topic_id)
        old = topic.partitions.get(record.partition) if topic is not None else None
        if topic is None or old is None:
            raise UnreadableError(
                f"offset {offset} changes the unknown partition {record.partition} of {record.topic_id}"
            )
        replicas = old.replicas if record.replicas is None else record.replicas
        directories = old.directories if record.directories is None else record.directories
        if record.directories is None and replicas != old.replicas:
            directories = ()  # they are parallel to the replicas, so the old ones no longer apply
        new = PartitionAssignment(
            replicas=replicas,
            isr=old.isr if record.isr is None else record.isr,
            adding=old.adding if record.adding is None else record.adding,
            removing=old.removing if record.removing is None else record.removing,
            directories=directories,
            leader=old.leader if record.leader == -2 else record.leader,
            elr=old.elr if record.elr is None else record.elr,
        )
        if directories and len(directories) != len(replicas):
            raise UnreadableError(f"offset {offset} has {len(replicas)} replicas and {len(directories)} directories")
        self._replace(offset, topic, record.partition, old, self._interned(new))

    def _replace(
        self, offset: int, topic: Topic, partition: int, old: PartitionAssignment | None, new: PartitionAssignment
    ) -> None:
        topic.partitions[partition] = new
        if old is not None and old.replicas != new.replicas and not set(old.replicas) <= set(new.replicas):
            assert topic.topic_id is not None
            self.removals[topic.topic_id, partition] = offset

    def _interned(self, partition: PartitionAssignment) -> PartitionAssignment:
        """An equal assignment that is shared between partitions, if it is one of those remembered: a cluster without
        JBOD has few distinct ones."""
        known = self._assignments.get(partition)
        if known is not None:
            return known
        if not UNKNOWN_RESERVED_IDS.isdisjoint(partition.directories):
            raise NotUnderstood("a partition is in a directory whose reserved id has no known meaning")
        if len(self._assignments) < _MOST_SHARED:
            self._assignments[partition] = partition
        return partition


def _set(configs: dict[str, str], record: ConfigRecord) -> None:
    if record.value is None:
        configs.pop(record.resource_name, None)
    else:
        configs[record.resource_name] = record.value
