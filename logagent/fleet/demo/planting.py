"""One generated cluster: what is where, and what the reports must say about it. No I/O."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime, timedelta

from logagent.fleet.demo import lifelike
from logagent.fleet.demo.planted import BROKEN, REPLICATION, Dir, Fleet, Orphan, Truth, topic_id, uuid_hex


class Cluster:
    """One cluster under construction; after `plant()` its `dirs`, `assigned` and `truth` are complete."""

    sizes_are_of_day = 0
    """The day on which a directory has `Dir.bytes`: one per cent more each day after it."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.number = number
        self.name = f"kafka-{number}"
        self.log_dirs = lifelike.LOG_DIRS if fleet.lifelike else 2
        self.random = random.Random(f"{fleet.seed}/{number}")
        self.cluster_id = topic_id("cluster", fleet.seed, number)
        self.nodes = list(range(1, 1 + fleet.share(fleet.hosts, number)))
        self.names_directories = number % 2 == 0
        self.truth = Truth(self.cluster_id)
        self.topics: list[tuple[str, str, int]] = []
        self.assigned: list[tuple[int, int, list[int]]] = []
        self.dirs: dict[int, list[Dir]] = {node: [] for node in self.nodes}
        self.sick_log_dirs: dict[tuple[int, int], str] = {}
        self.capacities: dict[tuple[int, int], int] = {}

    # Where and when things are

    def host(self, node: int) -> str:
        return (
            f"kafka-{100 * (self.number + 1) + node}.example" if self.fleet.lifelike else f"{self.name}-{node}.example"
        )

    def log_dir_path(self, number: int) -> str:
        return f"/data/kafka-{number}"

    def directory_id(self, node: int, number: int) -> str:
        return topic_id(self.cluster_id, "directory", node, number)

    def log_dir(self, node: int, partition: int) -> int:
        return (partition + node) % self.log_dirs

    def health(self, node: int, number: int) -> str:
        return self.sick_log_dirs.get((node, number), "online")

    def snapshot_at(self, node: int, day: int) -> datetime:
        """Hosts report at different times within half an hour, some before and some after the assignments."""
        return self._day(day) - timedelta(seconds=node * 97 % 1800)

    def assignments_at(self, day: int) -> datetime:
        return self._day(day) - timedelta(minutes=15)

    def _day(self, day: int) -> datetime:
        return self.fleet.at - timedelta(days=self.fleet.days - 1 - day)

    def is_seen(self, node: int, made: Dir, day: int) -> bool:
        """Whether the host's snapshot of that day lists the directory."""
        is_there = made.comes <= day and (made.goes is None or day < made.goes)
        return is_there and self.health(node, made.log_dir) != "offline"

    def size(self, made: Dir, day: int) -> int:
        """Bytes of a directory on a day."""
        return made.bytes + made.bytes // 100 * (day - self.sizes_are_of_day)

    # Construction

    def plant(self) -> None:
        """Plants replicas where they belong, then the problems, then records the truth about both."""
        self._make_topics(self.fleet.share(self.fleet.partitions, self.number))
        self._break_hosts()
        for number, (_, _, size) in enumerate(self.topics):
            start = self.random.randrange(len(self.nodes))
            for partition in range(size):
                self._place(number, partition, start)
        last = self.fleet.days - 1
        for node in self.nodes:
            for nth in range(int(len(self.dirs[node]) * self.fleet.sick) + 1 if self.fleet.sick else 0):
                for plant in (self._absent, self._recreated, self._stranger, self._leftovers, self._bystanders):
                    if self.random.random() < 0.7:
                        plant(node, nth)
            if self.fleet.lifelike:
                self.dirs[node] += lifelike.retired(self.random, self.cluster_id, node, len(self.nodes), last)
                self.capacities |= {(node, n): self._capacity(node, n) for n in range(self.log_dirs)}
        self.settle()

    def _make_topics(self, directories: int) -> None:
        """Topics of very different sizes, the first with `largest_topic` of all partitions."""
        left = max(1, directories // min(REPLICATION, len(self.nodes)))
        size = max(1, int(left * self.fleet.largest_topic))
        while left > 0:
            number = len(self.topics)
            size = min(size, left)
            name = lifelike.topic_name(number) if self.fleet.lifelike else f"team-{number % 7}.orders_{number:05d}"
            self.topics.append((name, topic_id(self.cluster_id, number), size))
            left -= size
            size = self.random.choice((1, 3, 6, 12, 24, 48))

    def _break_hosts(self) -> None:
        """Some hosts do not report; some of the others have a failing log dir. The first host is always healthy."""
        for node in self.nodes[1:]:
            if self.random.random() < self.fleet.broken:
                self.truth.unknown_hosts[node] = self.random.choice(BROKEN)
            elif self.random.random() < self.fleet.broken:
                self.sick_log_dirs[node, 1] = self.random.choice(("offline", "read-only", "full"))

    def _place(self, topic: int, partition: int, start: int) -> None:
        name, id_, _ = self.topics[topic]
        count = min(REPLICATION, len(self.nodes))
        replicas = [self.nodes[(start + partition + step) % len(self.nodes)] for step in range(count)]
        self.assigned.append((topic, partition, replicas))
        size = self._size()
        # One partition is lost completely: an operator must see that before anything else.
        lost = self.fleet.lifelike and topic == len(self.topics) // 2 and partition == 0
        for node in replicas:
            log_dir = self.log_dir(node, partition)
            chance = self.random.random()
            if lost or chance < self.fleet.sick / 2:
                self._miss(node, log_dir, f"{node}|{id_}|{partition}")
                continue
            offset = self.random.randrange(1_000_000)
            self.dirs[node].append(
                Dir(f"{name}-{partition}", "current", name, partition, id_, size, log_dir, 0.1, offset)
            )
            if chance < self.fleet.sick:
                other = (log_dir + 1) % self.log_dirs
                twin = Dir(f"{name}-{partition}", "current", name, partition, id_, size, other, 0.1, offset)
                self.dirs[node].append(twin)

    def _miss(self, node: int, log_dir: int, key: str) -> None:
        """A replica on no disk. This is provable unless its log dir may be an unreadable one."""
        offline = [n for n in range(self.log_dirs) if self.health(node, n) == "offline"]
        doubtful = log_dir in offline if self.names_directories else bool(offline)
        if node not in self.truth.unknown_hosts and not doubtful:
            self.truth.missing.append(key)

    def _size(self) -> int:
        return lifelike.size(self.random) if self.fleet.lifelike else int(self.random.lognormvariate(17, 2))

    def _capacity(self, node: int, number: int) -> int:
        last = self.fleet.days - 1
        return lifelike.capacity(self.random, sum(self.size(d, last) for d in self.dirs[node] if d.log_dir == number))

    def _absent(self, node: int, nth: int) -> None:
        """Copies of a deleted topic, shared by hosts, so that "only" and "longest" differ."""
        name = f"gone.{nth}.{self.random.randrange(3)}"
        made = Dir(f"{name}-0", "current", name, 0, topic_id(self.cluster_id, name), self._size(), nth % 2, 30)
        made.offset, made.orphan = self.random.randrange(5), "topic-absent"
        if self.random.random() < 0.2:
            made.kind, made.name = "future", f"{name}-0.{uuid_hex(name, node)}-future"
        self.dirs[node].append(made)

    def _recreated(self, node: int, nth: int) -> None:
        """The old incarnation of an existing topic, in a log dir that does not have the new one."""
        name, _, size = self.random.choice(self.topics)
        partition = self.random.randrange(size)
        here = {d.log_dir for d in self.dirs[node] if d.name == f"{name}-{partition}"}
        free = [log_dir for log_dir in range(self.log_dirs) if log_dir not in here]
        if free:
            old = topic_id(self.cluster_id, name, "old")
            made = Dir(f"{name}-{partition}", "current", name, partition, old, self._size(), free[0], 40, nth)
            made.orphan = "topic-recreated"
            self.dirs[node].append(made)

    def _stranger(self, node: int, nth: int) -> None:
        """A partition of an existing topic on a broker that is not one of its replicas."""
        topic, partition, replicas = self.random.choice(self.assigned)
        name, id_, _ = self.topics[topic]
        if node not in replicas and not any(d.name == f"{name}-{partition}" for d in self.dirs[node]):
            made = Dir(f"{name}-{partition}", "current", name, partition, id_, self._size(), nth % 2, 10)
            made.offset, made.orphan = self.random.randrange(2_000_000), "not-a-replica"
            self.dirs[node].append(made)

    def _leftovers(self, node: int, nth: int) -> None:
        name = f"retired.{nth}"
        plants = (("stray", 1, 480.0), ("delete", 2, 50.0), ("delete", 3, 0.01), ("delete", 4, 60.0))
        for kind, partition, hours in plants:
            full = f"{name}-{partition}.{uuid_hex(node, nth, partition)}-{kind}"
            id_ = topic_id(self.cluster_id, name)
            made = Dir(full, kind, name, partition, id_, self._size(), partition % 2, 20, marked_hours=hours)
            made.goes = self.fleet.days - 1 if partition == 4 else None
            self.dirs[node].append(made)

    def _bystanders(self, node: int, nth: int) -> None:
        """What looks like a problem but is none: Kafka's own dirs, a move under way, a topic too young to be known."""
        if nth == 0:
            self.dirs[node] += [
                Dir("__cluster_metadata-0", "metadata", "__cluster_metadata", 0, None, self._size(), 0),
                Dir("remote-log-index-cache", "cache", None, None, None, 0, 1),
                Dir("<img src=x onerror=alert(1)>\udcff", "invalid", None, None, None, 7, 1),
            ]
        moved = next((d for d in self.dirs[node] if d.kind == "current" and d.orphan is None), None)
        if moved is not None and nth == 0:
            name = f"{moved.name}.{uuid_hex(node, moved.name)}-future"
            self.dirs[node].append(
                Dir(
                    name,
                    "future",
                    moved.topic,
                    moved.partition,
                    moved.topic_id,
                    9,
                    (moved.log_dir + 1) % self.log_dirs,
                    0.1,
                    1,
                )
            )
        last = self.fleet.days - 1
        if self.snapshot_at(node, last) - self.assignments_at(last) > timedelta(minutes=5):
            young = f"young.{node}.{nth}"
            id_ = topic_id(self.cluster_id, young)
            self.dirs[node].append(Dir(f"{young}-0", "current", young, 0, id_, 1, 0, age_days=1 / 1440))

    # The truth

    def settle(self) -> None:
        """Works out, from what exists, what the reports must find on the last day."""
        self.truth.dirs = self.truth.bytes = 0
        last = self.fleet.days - 1
        known = [node for node in self.nodes if node not in self.truth.unknown_hosts]
        seen = [(n, d) for n in known for d in self.dirs[n] if self.is_seen(n, d, last)]
        self._settle_orphans(seen)
        twins: dict[str, set[int]] = defaultdict(set)
        for node, made in seen:
            self.truth.dirs += 1
            self.truth.bytes += self.size(made, last)
            if made.kind == "current":
                twins[f"{node}|{made.topic_id}|{made.partition}"].add(made.log_dir)
            why = {"stray": "stray", "delete": "overdue"}.get(made.kind)
            if made.kind == "future" and made.orphan:
                why = "abandoned"
            if why and not (why == "overdue" and (made.marked_hours or 0) < 1):
                self.truth.leftovers[f"{node}|{self.log_dir_path(made.log_dir)}|{made.name}"] = why
        self.truth.duplicates = sorted(key for key, places in twins.items() if len(places) > 1)
        self.truth.health = {
            f"{n}|{self.log_dir_path(number)}": state for (n, number), state in self.sick_log_dirs.items() if n in known
        }

    def _settle_orphans(self, seen: list[tuple[int, Dir]]) -> None:
        wanted = {(d.topic_id, d.partition) for _, d in seen if d.orphan}
        copies: dict[tuple[str | None, int | None], list[tuple[int, float]]] = defaultdict(list)
        for node, made in seen:
            key = (made.topic_id, made.partition)
            if key in wanted and made.kind in ("current", "future", "stray"):
                copies[key].append(self._length(node, made))
        for node, made in seen:
            if made.orphan:
                all_copies = copies[made.topic_id, made.partition]
                longest = self._length(node, made) >= max(all_copies)
                size = self.size(made, self.fleet.days - 1)
                self.truth.orphans[f"{node}|{self.log_dir_path(made.log_dir)}|{made.name}"] = Orphan(
                    made.orphan, len(all_copies) - 1, longest, size
                )

    def _length(self, node: int, made: Dir) -> tuple[int, float]:
        """What decides which copy is the longest: the last segment's offset, then the newest write."""
        at = self.snapshot_at(node, self.fleet.days - 1) - timedelta(days=made.age_days)
        return made.offset, int(at.timestamp() * 1000)
