"""What a landing says, from its files alone: which files are intact, who counts, what each host has on its disks.

Shares no code with the job, and with the agents nothing but the format: the rules are those of docs/, written once
more, slow and plain. What tables come to is in the `of_…` modules beside this one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
FRESH, HEARD, SHOWN = 26 * HOUR, 7, 3
"""A host counts with a snapshot that is no older. It is missed for so many days, and broken input is listed so long."""


class Node(NamedTuple):
    cluster: str
    node: int


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def ms_of(text: str) -> int:
    return ms(datetime.fromisoformat(text))


def spelled(value: Any) -> Any:
    """A byte that is not UTF-8 as the six characters that tables have for it."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


@dataclass
class File:
    """A data file with its manifest. `problem`: what is wrong with it, and the figures that tell."""

    path: Path
    landing: Path
    day: date
    cluster: str
    node: int | None
    manifest: Row = field(default_factory=dict)
    problem: tuple[str, ...] = ()
    bad: list[str] = field(default_factory=list)
    """Lines that are no rows."""

    @property
    def name(self) -> str:
        return str(self.path.relative_to(self.landing))

    @property
    def kind(self) -> str:
        return "assignments" if self.node is None else "snapshot"

    @property
    def is_whole(self) -> bool:
        return not self.problem

    @cached_property
    def got(self) -> int:
        path = self.path if self.path.exists() else manifest_of(self.path)
        return path.stat().st_mtime_ns // 1_000_000

    @cached_property
    def at(self) -> int:
        return ms_of(self.manifest["at"])

    @property
    def happened(self) -> int:
        return min(self.at, self.got)

    @cached_property
    def rows(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for line in gzip.decompress(self.path.read_bytes()).splitlines():
            row = {name: spelled(value) for name, value in json.loads(line).items()}
            found[row["row"]].append(row)
        return found

    @property
    def head(self) -> Row:
        (head,) = self.rows["snapshot"] or self.rows["assignments"]
        return head

    @cached_property
    def dirs(self) -> list[Row]:
        """Its directories; what is not said is null, and a topic has its whole name where the directory's is cut."""
        rows = [defaultdict(lambda: None, row) for row in (*self._of_base(), *self.rows["dir"])]
        return [row | {"topic": row["full_topic"] or row["topic"]} for row in rows]

    def _of_base(self) -> Iterator[Row]:
        """Of one that was published as changes: the directories of its base that are there still."""
        if self.manifest["kind"] != "delta":
            return
        base = File(self.path.with_name(f"{self.manifest['base']['snapshot_id']}.jsonl.gz"), self.landing, self.day,
                    self.cluster, self.node)  # fmt: skip
        grown: dict[int, list[int]] = {}
        place = -1
        for passed, *by in (change for row in self.rows["changes"] for change in row["dirs"]):
            place += passed + 1
            grown[place] = by
        for place, row in enumerate(base.rows["dir"]):
            by = grown.get(place, [0])
            if by:
                more = dict(zip(list(row)[list(row).index("bytes") :], by, strict=False))
                more["allocated"] = more.get("allocated", 0) + more["bytes"]
                yield row | {name: row[name] + n for name, n in more.items()}


def manifest_of(data: Path) -> Path:
    return data.with_name(data.name.replace(".jsonl.gz", ".manifest.json"))


def files_of(landing: Path, clusters: Collection[str] | None) -> Iterator[File]:
    for folder in sorted(landing.glob("*/*/*")):
        if clusters is not None and folder.parent.parent.name not in clusters:
            continue
        stems = {path.name.partition(".jsonl")[0].partition(".manifest")[0] for path in folder.iterdir()}
        for stem in sorted(stems):
            place = None if folder.name == "assignments" else int(folder.name)
            file = File(folder / f"{stem}.jsonl.gz", landing, date.fromisoformat(folder.parent.name),
                        folder.parent.parent.name, place)  # fmt: skip
            file.problem = problem_of(file)
            yield file


def problem_of(file: File) -> tuple[str, ...]:
    """The reason as tables have it, and the facts of the sentence beside it."""
    said = manifest_of(file.path)
    if not said.exists():
        return ("no-manifest",)
    try:
        file.manifest = json.loads(said.read_bytes())
    except ValueError:
        return ("bad-manifest",)
    packed = file.path.read_bytes() if file.path.exists() else b""
    if not packed:
        return ("no-data-file",)
    if len(packed) != file.manifest["bytes"]:
        return "bytes-differ", f"{len(packed)} bytes", str(file.manifest["bytes"])
    if hashlib.sha256(packed).hexdigest() != file.manifest["sha256"]:
        return ("sha256-differs",)
    lines = gzip.decompress(packed).decode().splitlines()
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            file.bad.append(line)
    if len(lines) != file.manifest["rows"]:
        return "rows-differ", str(len(lines)), str(file.manifest["rows"])
    return ("bad-rows", str(len(file.bad))) if file.bad else ()


def newest(files: Iterable[File]) -> File | None:
    return max((file for file in files if file.is_whole), key=lambda file: (file.happened, file.at), default=None)


class Fleet:
    """A landing (or some clusters of it) as of a time: of the newest date, and of those before what counts still."""

    def __init__(self, landing: Path, as_of: datetime, clusters: Collection[str] | None = None) -> None:
        self.landing, self.as_of = landing, ms(as_of)
        self.every = list(files_of(landing, clusters))
        self.day = max(file.day for file in self.every)
        self.dates = sorted({file.day for file in self.every})
        heard = [file for file in self.every if self.day - timedelta(days=HEARD) <= file.day]
        self.clusters = sorted({file.cluster for file in heard})
        self.images = {cluster: self._image(cluster, heard) for cluster in self.clusters}
        self.sent: dict[Node, list[File]] = defaultdict(list)
        for file in heard:
            if file.node is not None:
                self.sent[Node(file.cluster, file.node)].append(file)
        self.hosts: dict[Node, File] = {}
        """Those that count, with their snapshot."""
        self.unknown: dict[Node, tuple[str, File | None]] = {}
        """The others: cause, and the snapshot that does not count."""
        self.named = {*self._named()}
        self.perhaps_two: set[Node] = set()
        """Hosts that count, though two machines may be one node."""
        for node in sorted({*self.sent, *self.named}):
            self._judge(node, self.sent.get(node, []))
        for node, at in self._moved().items():
            self.unknown[node] = at, self.hosts.pop(node)

    def _image(self, cluster: str, heard: Iterable[File]) -> File | None:
        """The newest assignments of a cluster, if they are usable."""
        found = newest(file for file in heard if file.cluster == cluster and file.node is None)
        fresh = found is not None and found.happened >= self.as_of - FRESH
        return found if fresh and found is not None and found.rows["partition"] else None

    def _named(self) -> Iterator[Node]:
        for cluster, image in self.images.items():
            for row in () if image is None else image.rows["broker"]:
                yield Node(cluster, row["node_id"])
            for row in () if image is None else image.rows["partition"]:
                yield from (Node(cluster, node) for node in row["replicas"])

    def _judge(self, node: Node, files: list[File]) -> None:
        last, broken = newest(files), any(not file.is_whole for file in files)
        if last is None or last.happened < self.as_of - FRESH:
            self.unknown[node] = "broken file" if broken else "never heard" if last is None else "silent", last
        elif (two := two_machines([f for f in files if f.is_whole and f.happened >= self.as_of - FRESH])) is True:
            self.unknown[node] = "contradiction", last
        else:
            self.hosts[node] = last
            self.perhaps_two |= {node} if two is None else set()

    def _moved(self) -> dict[Node, str]:
        """Hosts of which a log dir is elsewhere: seen there since, and here not for two hours."""
        found = {}
        for node, last in self.hosts.items():
            for other, theirs in self.hosts.items():
                for disk in {*ids(last)} & {*ids(theirs)} if node != other else ():
                    claims = (file for file in self.sent[other] if file.is_whole and disk in ids(file))
                    since = min(min(file.happened, self.as_of) for file in claims)
                    seen, there = (min(file.happened, self.as_of) for file in (last, theirs))
                    if seen < since and there - seen >= 2 * HOUR:
                        found[node] = "moved"
        return found

    @property
    def decided(self) -> list[str]:
        return [cluster for cluster in self.clusters if self.images[cluster] is not None]

    def taken(self, day: date) -> dict[Node, File]:
        """The newest intact snapshot that each host has in the folder of a date."""
        found: dict[Node, list[File]] = defaultdict(list)
        for file in self.every:
            if file.day == day and file.node is not None:
                found[Node(file.cluster, file.node)].append(file)
        return {node: last for node, files in found.items() if (last := newest(files)) is not None}

    @cached_property
    def replicas(self) -> dict[str, dict[tuple[str | None, int], Row]]:
        """By cluster, topic id and partition: the row of the newest assignments."""
        return {
            cluster: {(row["topic_id"], row["partition"]): row for row in image.rows["partition"]}
            for cluster, image in self.images.items()
            if image is not None
        }

    @cached_property
    def dirs(self) -> list[Row]:
        """Every directory on a host that counts, with where it is."""
        return [self.whose(node, file) | row for node, file in self.hosts.items() for row in file.dirs]

    def whose(self, node: Node, file: File) -> Row:
        return {"cluster_id": node.cluster, "node_id": node.node, "host": file.manifest["host"], "snapshot_at": file.at}


def two_machines(files: list[File]) -> bool | None:
    """Whether two machines sent what one node should have sent; None: perhaps."""
    if len({file.manifest["host"] for file in files}) > 1:
        return True
    by_time = sorted((file for file in files if "boot_id" in file.manifest), key=lambda file: file.at)
    turns = [boot for boot, _ in groupby(file.manifest["boot_id"] for file in by_time)]
    if len(turns) > len({*turns}):
        return True  # a machine never returns to an earlier boot
    found: bool | None = False
    # New disks, or another machine: only ids of log dirs tell.
    for one, other in combinations({*turns}, 2):
        these, those = ([f for f in by_time if f.manifest["boot_id"] == boot] for boot in (one, other))
        began, heard = zip(*((min(ms_of(f.manifest["booted_at"]) for f in each), max(f.happened for f in each))
                             for each in (these, those)), strict=True)  # fmt: skip
        known, shared = ids(these[0]) and ids(those[0]), {*ids(these[0])} & {*ids(those[0])}
        if max(began) + 5 * MINUTE <= min(heard):  # both were up at once: log dirs that went along tell that it moved
            found = found or (None if not known else not shared)
        elif known and not shared:
            found = found or None
    return found


def ids(file: File) -> list[str]:
    return list(file.manifest.get("directory_ids", ()))
