"""Hosts as the model sees them, in memory: directories, log dirs and facts where everything permits everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logagent.base.claims import Claim, Held, Proof, Witness
from logagent.base.dir_names import classify
from logagent.base.records import (
    ActionKind,
    DirKey,
    Health,
    Holder,
    HolderState,
    Identity,
    PartitionDir,
    Reason,
    Verdict,
)
from logagent.cleanup.plan.plan import Proposal
from logagent.verdict.facts import Facts, LogDirFacts, Ruling, StrayRuling

LOG_DIR = "/data/d1"
DEVICE = 2049
NOW = 1_800_000_000_000
HEX = "0123456789abcdef" * 2
CLUSTER = "abcdefghijklmnopqrstuv"
TOPIC_ID = "DDDDDDDDDDDDDDDDDDDDDA"
ASSIGNED = DirKey(LOG_DIR, "kept-0")


def directory(name: str, *, inode: int = 100, log_dir: str = LOG_DIR, **fields: Any) -> PartitionDir:
    """What an inventory says of `name`; times are NOW, sizes small, everything can be overridden."""
    parsed = classify(name)
    found = PartitionDir(
        log_dir=log_dir,
        name=name,
        kind=parsed.kind,
        topic=parsed.topic,
        partition=parsed.partition,
        uuid=parsed.uuid,
        truncated=parsed.truncated,
        device=DEVICE,
        inode=inode,
        ctime_ns=NOW * 1_000_000,
        mtime_ns=NOW * 1_000_000,
        topic_id=TOPIC_ID,
        bytes=1000,
        allocated=4096,
        files=4,
        segments=1,
    )
    return replace(found, **fields)


def log_dir(path: str = LOG_DIR, **fields: Any) -> LogDirFacts:
    """A log dir of a stopped broker, with nothing wrong."""
    found = LogDirFacts(
        path=path,
        identity=Identity(DEVICE, 2),
        health=Health.ONLINE,
        health_reason=None,
        holder=Holder(HolderState.FREE),
        cluster_id=CLUSTER,
        node_id=1,
    )
    return replace(found, **fields)


def gone(claim: Claim = Claim.TOPIC_ABSENT, at_ms: int = NOW) -> Proof:
    """The proof of an orphan, by the metadata log."""
    return (
        Held(claim, Witness.KRAFT_LOG, at_ms),
        Held(Claim.OUR_LINEAGE, Witness.STATE_DIR, at_ms),
        Held(Claim.IN_THIS_MODE, Witness.PROCESS_ROLES, at_ms),
        Held(Claim.NOT_CONTRADICTED, Witness.EVERY_SOURCE, at_ms),
    )


def orphan(reason: str = "topic-absent") -> Ruling:
    return Ruling(Verdict.ORPHAN, reason, proof=gone(Claim(reason)))


def serving(pid: int = 4711) -> Holder:
    """A broker that said, a minute after its start, that it serves the log dir."""
    said = Held(Claim.SERVING, Witness.DESCRIBE_LOG_DIRS, NOW - 3_540_000)
    return Holder(HolderState.HELD, pid, start_time_ms=NOW - 3_600_000, serving=said)


class AllMayGo(dict[DirKey, StrayRuling]):
    """Of every stray it is known that it may go."""

    def get(self, key: DirKey, default: Any = None) -> Any:
        return StrayRuling(True, Reason("test"), proof=gone())


def facts(*log_dirs: LogDirFacts, **fields: Any) -> Facts:
    """Facts under which every guard lets every sensible proposal pass. `orphans`: (log dir, name) of proven ones."""
    orphans = fields.pop("orphans", ())
    found = Facts(
        now_ms=NOW,
        log_dirs={f.path: f for f in log_dirs or (log_dir(),)},
        rulings={key: orphan() for key in orphans},
        kafka_version=(3, 9, 1),
        partition_dirs=1000,
        partition_bytes=1_000_000_000,
        assigned_dirs=lambda: {ASSIGNED},
        strays=AllMayGo(),
    )
    return replace(found, **fields)


def proposal(action: ActionKind, found: PartitionDir, **fields: Any) -> Proposal:
    return Proposal(action, found, "test", **fields)


OF_PLACES = ("temporary-log-dir", "log-dir-on-root", "features-not-compared", "assignments-not-compared")
"""The codes of what `check` says of all hosts of the tests: log dirs are below /tmp, and brokers that no Kafka has run
have no metadata log."""
