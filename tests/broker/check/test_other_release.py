"""`check --kafka-version` before a downgrade or an upgrade, beside the start of that release on the same disk.

What a start makes of it is written down nowhere: check has to say what happens. Each case also says whether a start was
refused when it was written, so that all of them are not the same. Each case has a node of its own, as another release
is started on its disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.check.starts import CONTROLLER_ID, RealDisk, outcome
from tests.broker.check.tried import checked
from tests.broker.rig.jars import version_tuple
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Rig
from tests.damages.disk import METADATA_LOG, RECORDS, TOPIC
from tests.damages.row import Outcome
from tests.long_form import FULL

OFTEN = "metadata.log.max.snapshot.interval.ms"


@dataclass(frozen=True)
class Change:
    """From one release to another on one disk.

    level: the `--release-version` that it is formatted with, else its newest. finalise: levels that are then set, in
    turn, as `kafka-features.sh` does. snapshot: a metadata snapshot is written after that. only_broker: of a cluster
    whose controller goes on as it is. away: `bootstrap.checkpoint` is moved away, as the hint says. quick: why a
    default run has it. small: with a topic whose `segment.bytes` is below what 4.1 accepts. setting: in
    `server.properties`, from the format on.
    """

    old: str
    new: str
    refused: bool
    level: str | None = None
    finalise: tuple[tuple[str, str, int], ...] = ()
    snapshot: bool = False
    only_broker: bool = False
    away: bool = False
    dynamic: bool = False
    started: bool = True
    small: bool = False
    setting: tuple[str, str] | None = None
    quick: str = ""

    @property
    def codes(self) -> frozenset[str]:
        """The fatal findings of check: that, and no other, wherever the start is refused."""
        why = "setting-refused" if self.small or self.setting is not None else "feature-unsupported"
        return frozenset({why} if self.refused else ())

    @property
    def id(self) -> str:
        words = [self.old, "to", self.new, self.level and f"at {self.level}"]
        words += [f"{name} {level}" for _, name, level in self.finalise]
        words += ["snapshot"] * self.snapshot + ["only broker"] * self.only_broker + ["bootstrap away"] * self.away
        words += ["dynamic"] * self.dynamic + ["never started"] * (not self.started)
        words += ["small segments"] * self.small + ["=".join(self.setting or ())]
        return " ".join(word for word in words if word)


GROUPS, NO_GROUPS = ("UPGRADE", "group.version", 1), ("SAFE_DOWNGRADE", "group.version", 0)
NO_STREAMS = ("SAFE_DOWNGRADE", "streams.version", 0)
LOWERED = (("SAFE_DOWNGRADE", "metadata.version", 19),)
CHANGES = (
    # As they are by default, and with what the older one of the two has.
    Change("3.7.0", "3.9.1", False),
    Change("3.9.1", "3.7.0", True),
    Change("3.9.1", "3.7.0", False, level="3.7"),
    Change("3.9.1", "4.3.1", False),
    Change("4.3.1", "3.9.1", True, quick="a controller refuses metadata.version"),
    Change("4.3.1", "3.9.1", False, level="3.9"),
    Change("4.1.0", "4.3.1", False),
    Change("4.3.1", "4.1.0", True),
    Change("4.3.1", "4.1.0", False, level="4.1"),
    Change("4.3.1", "4.4.0", False),
    Change("4.4.0", "4.3.1", True),
    Change("4.4.0", "4.3.1", False, level="4.3", quick="a layout without bootstrap.checkpoint, downwards"),
    Change("4.4.0", "3.9.1", True),
    Change("4.4.0", "3.9.1", False, level="3.9"),
    Change("4.4.0", "4.3.1", True, level="4.4-IV0"),  # 4.3.1 has this level, and calls it unstable
    Change("3.5.2", "4.3.1", True, level="3.3-IV2"),
    Change("3.5.2", "4.4.0", False, level="3.3-IV3"),
    # Other features at an old metadata.version; what was taken back is read until a snapshot covers it.
    Change("4.3.1", "3.9.1", True, "3.9", (GROUPS,)),
    Change("4.3.1", "3.9.1", True, "3.9", (GROUPS, NO_GROUPS), quick="a record that was taken back"),
    Change("4.3.1", "3.9.1", False, "3.9", (GROUPS, NO_GROUPS), snapshot=True),
    Change("4.3.1", "3.8.1", True, "3.8", (GROUPS,)),
    Change("4.3.1", "3.7.0", True, "3.7", (GROUPS,)),
    Change("4.3.1", "3.6.0", True, "3.6", (GROUPS,)),
    Change("4.3.1", "3.5.2", True, "3.5", (GROUPS,)),
    Change("4.3.1", "3.9.1", True, "3.9", (("UPGRADE", "transaction.version", 2),)),
    Change("4.3.1", "4.1.0", True, "4.1", (("UPGRADE", "streams.version", 1),)),
    Change("4.4.0", "4.3.1", True, "4.3", (("UPGRADE", "share.version", 2),)),
    # The remedy of a hint, step by step.
    Change("3.9.1", "3.7.0", True, finalise=LOWERED),
    Change("3.9.1", "3.7.0", True, finalise=LOWERED, away=True),
    Change("3.9.1", "3.7.0", True, finalise=LOWERED, snapshot=True),
    Change("3.9.1", "3.7.0", False, finalise=LOWERED, snapshot=True, away=True),
    Change("4.2.2", "4.1.0", False, finalise=(NO_STREAMS, ("SAFE_DOWNGRADE", "metadata.version", 27)), snapshot=True),
    Change("3.9.1", "4.3.1", False, "3.3-IV2", (("UPGRADE", "metadata.version", 21),), snapshot=True),
    Change("3.9.1", "3.8.1", False, "3.8", only_broker=True),  # 3.8.1 has a name for what it was formatted with
    # A broker alone is refused by its controllers, for what is finalised.
    Change("4.3.1", "3.9.1", True, "3.9", (GROUPS,), only_broker=True),
    Change("4.3.1", "3.9.1", False, "3.9", (GROUPS, NO_GROUPS), only_broker=True, away=True),
    Change("4.3.1", "3.9.1", True, "3.9", only_broker=True),
    Change("4.3.1", "4.0.2", False, "4.0", only_broker=True),
    Change("3.9.1", "3.7.0", False, "3.9", LOWERED, only_broker=True, away=True),
    Change("3.9.1", "3.7.0", True, "3.7", only_broker=True),  # formatted with its own newest
    Change("4.3.1", "4.1.0", False, "4.1", only_broker=True),
    Change("4.4.0", "4.3.1", True, "4.4", only_broker=True),
    # Of a dynamic quorum, and of a host that was formatted only.
    Change("4.4.0", "4.3.1", False, "4.3", dynamic=True),
    Change("4.4.0", "4.3.1", True, dynamic=True),
    Change("4.3.1", "3.9.1", True, started=False),
    Change("4.3.1", "4.1.0", True, started=False),
    Change("3.9.1", "4.3.1", True, "3.3-IV2", started=False),
    Change("4.4.0", "4.3.1", False, started=False),
    # Numbers that one of the two does not accept.
    Change("3.9.1", "4.0.2", False, small=True),
    Change("3.9.1", "4.1.0", True, small=True),
    Change("3.9.1", "4.4.0", True, small=True, quick="a setting of a topic, which only the metadata log has"),
    Change("3.9.1", "4.4.0", True, small=True, only_broker=True),
    Change("3.9.1", "4.0.2", True, setting=("log.segment.bytes", "100000")),
    Change("3.9.1", "4.0.2", True, setting=("remote.log.manager.copier.thread.pool.size", "-1")),
    Change("4.1.0", "4.2.2", True, setting=("num.replica.fetchers", "0")),
    Change("4.2.2", "4.1.0", True, "4.1", setting=("group.coordinator.append.linger.ms", "-1")),
    Change("4.4.0", "4.4.0", False, "4.5-IV0", setting=("unstable.feature.versions.enable", "true")),
)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("change", [pytest.param(c, id=c.id) for c in CHANGES if FULL or c.quick])
def test_a_release_starts_where_check_says_so(rig: Rig, change: Change) -> None:
    node = _prepared(rig, change)
    with ExitStack() as undo:
        disk = RealDisk(node, undo)
        findings = checked(disk, change.new)
        node.use_version(change.new)
        came = outcome(disk) if change.started else _starts(node)
    assert (came is not Outcome.STARTS) == change.refused, (came, node.log_text()[-3000:])
    fatal = {f["code"] for f in findings if f["severity"] == "fatal"}
    assert fatal == change.codes, (came, findings)
    assert [f for f in findings if f["code"] == "features-not-compared"] == []
    assert change.started or any(f["code"] == "format-ignored" for f in findings) == (change.old == "4.4.0")


def _prepared(rig: Rig, change: Change) -> KraftNode:
    """The stopped node, with two partitions unless it was never started."""
    controller = _controller(rig, change) if change.only_broker else None
    node = KraftNode(
        rig.root / "node",
        change.old,
        rig.ports,
        roles="broker" if controller else "broker,controller",
        controller=controller.controller if controller else None,
        cluster_id=controller.format_id if controller else None,
        dynamic=change.dynamic,
        props=dict([change.setting] if change.setting else []),
    )
    rig.servers.append(node)
    format_node(node, None if controller else change.level)
    if change.started:
        node.configure({OFTEN: "1000"} if change.snapshot else {}).start()
        node.create_topic(TOPIC, partitions=2)
        for partition in (0, 1):
            node.produce(TOPIC, partition, n=RECORDS)
        if change.small:
            node.create_topic("small", config={"segment.bytes": "100000"})
        for way, name, level in change.finalise:
            with node.admin() as admin:
                assert admin.update_features({name: (way, level)}) == {name: "OK"}
        if change.snapshot:
            wait_for_snapshot(node)
        node.stop()
        node.configure({OFTEN: None})
    if change.away:
        (node.metadata_dir / "bootstrap.checkpoint").rename(rig.root / "bootstrap.checkpoint")
    return node


def _controller(rig: Rig, change: Change) -> KraftNode:
    node = KraftNode(rig.root / "controller", change.old, rig.ports, node_id=CONTROLLER_ID, roles="controller")
    listener = f"CONTROLLER://127.0.0.1:{node.controller[1]}"
    node.configure({"listeners": listener, "advertised.listeners": None, "inter.broker.listener.name": None})
    rig.servers.append(node)
    format_node(node, change.level)
    return node.start()


def format_node(node: KraftNode, level: str | None) -> None:
    if level is None:
        node.format()
    else:
        node.format_with_tool("--release-version", level)


def wait_for_snapshot(node: KraftNode) -> None:
    """One that was begun after now."""

    def newest() -> int:
        return max((int(p.name[:20]) for p in (node.metadata_dir / METADATA_LOG).glob("*.checkpoint")), default=0)

    now = newest()
    wait_until(lambda: newest() > now, 60, "a metadata snapshot is written")
    second = newest()
    wait_until(lambda: newest() > second, 60, "another metadata snapshot is written")


def _starts(node: KraftNode) -> Outcome:
    """Of a node without a topic."""
    try:
        node.start()
    except AssertionError:
        return Outcome.REFUSES
    return Outcome.STARTS


def test_pairs_go_up_and_down_and_are_eight_at_least() -> None:
    pairs = {(c.old, c.new) for c in CHANGES}
    assert len(pairs) >= 8
    assert [refused for refused in (True, False) if sum(refused == c.refused for c in CHANGES) < 8] == []
    assert any(version_tuple(old) < version_tuple(new) for old, new in pairs), pairs
