"""The table's rows as facts in memory: what check's rules decide from, made by hand.

A row has facts, or `WITHOUT_FACTS` says why it has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from logagent.advice.check.rules.start_facts import (
    CheckpointFault,
    FreeSpace,
    LoadFault,
    LoadFile,
    MetaFile,
    MetaState,
    Mode,
    PathProblem,
    StartFacts,
    StartLogDirFacts,
    StartServerFacts,
)
from logagent.base.dir_names import METADATA_DIR, classify
from logagent.base.records import Denied, DirKey, Health, Holder, HolderState, PartitionDir, TopicPartition, id_to_text
from logagent.kafka.image import MetadataFault, MetadataFile
from logagent.kafka.retention.settings import Layers
from logagent.verdict.without_directory import LeftLogDir, Missing, WithoutDirectory
from tests.damages.directories import NAMES_OF_NOTHING
from tests.damages.disk import OTHER_UUID, UUID
from tests.damages.row import Kind

ID, OTHER_ID = "Xs6gS0pIR5yNqcAe2bBqwQ", "Ys6gS0pIR5yNqcAe2bBqwQ"
CONF = "/etc/kafka/server.properties"


def meta(**changes: object) -> MetaFile:
    values = {"version": 1, "cluster_id": "cluster", "node_id": 1, "directory_id": "d1"}
    return replace(MetaFile(MetaState.READ, **values), **changes)  # type: ignore[arg-type]


def seen(path: str = "/d1", **changes: object) -> StartLogDirFacts:
    name = path.strip("/")
    healthy = StartLogDirFacts(path, path, meta=meta(directory_id=name), room=FreeSpace(1000, 500, 1000, 500))
    healthy = replace(healthy, file_system="ext4")
    return replace(healthy, **changes)  # type: ignore[arg-type]


def directory(name: str, log_dir: str = "/d1", topic_id: str | None = ID, error: str | None = None) -> PartitionDir:
    parsed = classify(name)
    return PartitionDir(
        log_dir=log_dir,
        name=name,
        kind=parsed.kind,
        topic=parsed.topic,
        partition=parsed.partition,
        uuid=parsed.uuid,
        truncated=parsed.truncated,
        device=1,
        inode=abs(hash((log_dir, name))),
        ctime_ns=0,
        mtime_ns=0,
        topic_id=topic_id,
        error=error if error is not None else parsed.error,
    )


def facts(*log_dirs: StartLogDirFacts, dirs: tuple[PartitionDir, ...] = (), **changes: object) -> StartFacts:
    server = StartServerFacts(Mode.KRAFT, 1, "/d1,/d2", "/d1", CONF)
    return replace(StartFacts(server, log_dirs or (seen(), seen("/d2")), dirs), **changes)  # type: ignore[arg-type]


def zookeeper(found: StartFacts) -> StartFacts:
    log_dirs = [replace(s, meta=replace(s.meta, version=0)) for s in found.log_dirs]
    return replace(found, server=replace(found.server, mode=Mode.ZOOKEEPER), log_dirs=tuple(log_dirs))


def controller(found: StartFacts) -> StartFacts:
    """The same of a node that is a controller only, with a metadata dir of its own unless the damage is in that."""
    log_dirs = tuple(replace(s, metadata_only=s.holds_metadata) for s in found.log_dirs)
    if not any(s.holds_metadata for s in log_dirs):
        log_dirs += (seen("/m", holds_logs=False, holds_metadata=True, metadata_only=True),)
    server = replace(found.server, runs_controller=True, controller_only=True)
    return replace(found, server=server, log_dirs=log_dirs)


def of_kind(found: StartFacts, kind: Kind) -> StartFacts:
    if kind == "zookeeper":
        return found if found.server.mode is Mode.ZOOKEEPER else zookeeper(found)
    if kind == "controller":
        return controller(found)
    return replace(found, server=replace(found.server, runs_controller=kind in ("combined", "dynamic", "unprivileged")))


def having(**changes: object) -> StartFacts:
    """With this in its first log dir."""
    return facts(replace(seen(), **changes), seen("/d2"))  # type: ignore[arg-type]


def configured(**changes: object) -> StartFacts:
    found = facts()
    return replace(found, server=replace(found.server, **changes))  # type: ignore[arg-type]


def load(file: LoadFile, name: str) -> StartFacts:
    return having(load_faults=(LoadFault(file, name, "it is damaged"),))


def metadata(file: MetadataFile, name: str = METADATA_DIR, **changes: object) -> StartFacts:
    fault = MetadataFault(file, name, "it is damaged")._replace(**changes)  # type: ignore[arg-type]
    return having(holds_metadata=True, metadata_log=True, metadata_faults=(fault,))


def checkpoint(name: str, fault: CheckpointFault) -> StartFacts:
    return having(checkpoints={f"{name}-offset-checkpoint": (fault, "it is damaged")})


def of_ids(*metas: MetaFile, dirs: tuple[PartitionDir, ...] = (), **changes: object) -> StartFacts:
    """A node in ZooKeeper mode."""
    log_dirs = tuple(seen(f"/d{number}", meta=each) for number, each in enumerate(metas, 1))
    server = StartServerFacts(Mode.ZOOKEEPER, None, "/d1,/d2", None, CONF)
    return facts(*log_dirs, dirs=dirs, server=replace(server, **changes))  # type: ignore[arg-type]


def denied(path: str, wants: str = "write") -> StartFacts:
    return having(denied=(Denied(path, wants, 0, 0, 0o644),))


MISSING = MetaFile(MetaState.MISSING)
MALFORMED = MetaFile(MetaState.MALFORMED, error="it is empty")
ORDERS, ORDERS_ON_D2 = directory("orders-0"), directory("orders-0", "/d2")
NO_ID = directory("orders-0", topic_id=None)
BROKEN_ID = directory("orders-0", topic_id=None, error="partition.metadata: malformed line ''")
IN_USE, OWN = (ORDERS,), meta(version=0, node_id=1, directory_id=None)
LINKS = {"orders-0": "/elsewhere"}
FUTURE = f"orders-0.{UUID}-future"
SEGMENT = "orders-0/00000000000000000000"
MOUNTED = directory("zzz-0", topic_id=None, error="mount point")
LONE_FUTURE = WithoutDirectory("orders", 0, ID, True, directory_id="d1", future=DirKey("/d2", FUTURE))
LEFT = Missing(left=(LeftLogDir("/d9", None, "the journal", True, (WithoutDirectory("orders", 0, ID, True),)),))
NOBODYS = Holder(HolderState.STARTING, 7)
METADATA_PLACE = seen(
    "/m",
    holds_logs=False,
    holds_metadata=True,
    metadata_only=True,
    load_faults=(LoadFault(LoadFile.PLACE, ".lock", "it is a directory"),),
)

FACTS: Mapping[str, StartFacts] = {
    **{f"name {name}": facts(dirs=(directory(name, topic_id=None),)) for name in NAMES_OF_NOTHING},
    "name with two dots": facts(dirs=(directory(f"a-0.x.{UUID}-delete"),)),
    "name not ascii": facts(dirs=(directory("bär"),)),
    "strays": facts(
        dirs=tuple(directory(f"zzz-0.{each}-stray", topic_id=None) for each in (UUID, OTHER_UUID)),
    ),
    "harmless things": facts(
        seen(leftovers=(".logagent-recovery-point-offset-checkpoint",)),
        seen("/d2"),
        dirs=(
            directory("dangling", error="symlink"),
            directory("bar\udcff"),
            directory("zzz-0.nohex-delete", topic_id=None),
            *(directory(f"zzz-0.{each}-delete", topic_id=None) for each in (UUID, OTHER_UUID)),
        ),
    ),
    "the cache of tiered storage": facts(dirs=(directory("remote-log-index-cache"),)),
    "a partition behind a symlink": facts(seen(dir_links=LINKS), dirs=(directory("orders-0", error="symlink"),)),
    "a copy in the other log dir": facts(dirs=(ORDERS, ORDERS_ON_D2)),
    "an old incarnation in the other log dir": facts(dirs=(ORDERS, directory("orders-0", "/d2", OTHER_ID))),
    "two spellings of one partition": facts(dirs=(directory("zzz-1"), directory("zzz-01", topic_id=OTHER_ID))),
    "two futures of one partition": facts(
        dirs=(ORDERS, directory(FUTURE), directory(f"orders-0.{OTHER_UUID}-future", "/d2"))
    ),
    "a future beside its current": facts(dirs=(ORDERS, directory(FUTURE))),
    "partition.metadata malformed": facts(dirs=(BROKEN_ID,)),
    "partition.metadata malformed in a -delete directory": facts(
        dirs=(replace(directory(f"zzz-0.{UUID}-delete"), topic_id=None, error="partition.metadata: malformed"),)
    ),
    "partition.metadata missing, assigned": facts(dirs=(NO_ID,), assigned=frozenset({TopicPartition("orders", 0)})),
    "partition.metadata missing, not assigned": facts(dirs=(directory("zzz-0", topic_id=None),)),
    **{
        f"backup.{suffix} in a partition": having(odd_files=(f"orders-0/backup.{suffix}",))
        for suffix in ("log", "snapshot", "swap")
    },
    "a link to a copy elsewhere": facts(
        seen(),
        seen("/d2", followed_ids={"orders-0": ID}, dir_links=LINKS),
        dirs=(ORDERS, directory("orders-0", "/d2", topic_id=None, error="symlink")),
    ),
    "a link to one of another topic id": facts(
        seen(),
        seen("/d2", followed_ids={"orders-0": OTHER_ID}, dir_links=LINKS),
        dirs=(ORDERS, directory("orders-0", "/d2", topic_id=None, error="symlink")),
    ),
    "the same partition mounted": facts(
        seen(),
        seen("/d2", followed_ids={"orders-0": ID}),
        dirs=(ORDERS, directory("orders-0", "/d2", topic_id=None, error="mount point")),
    ),
    "a file with the name of an assigned partition": facts(
        missing=Missing((WithoutDirectory("orders", 0, ID, True),)), taken={"/d1/orders-0": ("a file", True)}
    ),
    "one without topic id is a mount point": facts(
        seen(followed_ids={"zzz-0": None}), seen("/d2"), dirs=(MOUNTED,), set_aside={MOUNTED.key}
    ),
    "only a future, in the other log dir": facts(
        dirs=(directory(FUTURE, "/d2"),), missing=Missing((LONE_FUTURE,)), missing_sure=True
    ),
    "only a future, where it is assigned to": facts(
        dirs=(directory(FUTURE, "/d2"),), missing=Missing(promoted=(LONE_FUTURE,)), missing_sure=True
    ),
    "epochs of a partition of a word": having(broken_epochs={"orders-0": (CheckpointFault.MALFORMED, "line 1")}),
    "zeros at the end of a log": load(LoadFile.TAIL, f"{SEGMENT}.log"),
    "txnindex of a later version": load(LoadFile.ABORTED, f"{SEGMENT}.txnindex"),
    "a directory for 00000000000000000000.index": load(LoadFile.PLACE, f"{SEGMENT}.index"),
    "a link to nowhere for 00000000000000000000.txnindex": load(LoadFile.AHEAD, f"{SEGMENT}.txnindex"),
    "a swapped segment of zeros": load(LoadFile.SWAP, f"{SEGMENT}.log.swap"),
    "a swapped segment of letters": load(LoadFile.TORN_SWAP, f"{SEGMENT}.log.swap"),
    "an empty directory for the clean-shutdown marker": load(LoadFile.MARKER, ".kafka_cleanshutdown"),
    "a .index of 2 GiB": load(LoadFile.LARGE, f"{SEGMENT}.index"),
    "a directory for .lock of the metadata dir": facts(seen(), seen("/d2"), METADATA_PLACE),
    "a directory for .lock": facts(dirs=(directory(".lock"),)),
    **{
        f"{name} checkpoint {what}": checkpoint(name, fault)
        for what, fault in {"malformed": CheckpointFault.MALFORMED, "out of range": CheckpointFault.NUMBER}.items()
        for name in ("recovery-point", "log-start", "replication", "cleaner")
    },
    "a FIFO for the recovery-point checkpoint": checkpoint("recovery-point", CheckpointFault.FIFO),
    "a FIFO for the cleaner checkpoint": checkpoint("cleaner", CheckpointFault.FIFO),
    "quorum-state empty": metadata(MetadataFile.QUORUM_STATE),
    "quorum-state of a later version": metadata(MetadataFile.QUORUM_STATE, refused=True),
    "quorum-state of a dynamic quorum": metadata(MetadataFile.DYNAMIC),
    "epochs of the metadata log zeroed": metadata(MetadataFile.EPOCHS),
    "partition.metadata of the metadata log zeroed": metadata(MetadataFile.TOPIC_ID),
    "newest snapshot empty": metadata(MetadataFile.SNAPSHOT),
    "a metadata log in another log dir": facts(
        seen(holds_metadata=True, metadata_log=True), seen("/d2", metadata_log=True)
    ),
    "metadata.log.dir with a slash": replace(
        having(holds_metadata=True, metadata_log=True),
        server=StartServerFacts(Mode.KRAFT, 1, "/d1,/d2", "/d1/", CONF),
    ),
    "metadata.log.dir in a log dir": facts(
        seen(), seen("/d2"), seen("/d1/meta", holds_logs=False, holds_metadata=True)
    ),
    "a log dir twice": configured(log_dirs_text="/d1,/d2,/d1"),
    "a log dir and a symlink to it": facts(seen(), seen("/d2"), seen("/link", canonical="/d1", meta=meta())),
    "a log dir with a slash at its end": configured(log_dirs_text="/d1/,//d2"),
    "a log dir with and without a slash at its end": configured(log_dirs_text="/d1,/d2,/d1/"),
    "an empty item": configured(log_dirs_text="/d1,,/d2"),
    "a log dir in a log dir": facts(seen(), seen("/d1/inner-1")),
    "a log dir is not there": facts(seen(), seen("/d2"), seen("/new", problem=PathProblem.MISSING, meta=MISSING)),
    "a log dir is a dangling link": facts(
        seen(), seen("/d2"), seen("/new", problem=PathProblem.DANGLING, meta=MISSING)
    ),
    "a log dir is a file": facts(seen(), seen("/d2"), seen("/new", problem=PathProblem.NOT_A_DIRECTORY, meta=MISSING)),
    "a log dir leaves": facts(missing=LEFT),
    **{
        f"a cordon{what}": facts(settings=Layers(file={"cordoned.log.dirs": text}))
        for what, text in {
            "": "/d2",
            " of no log dir": "/gone",
            " with a slash": "/d2/",
            " of all and more": "*,/d2",
            " with an empty item": "/d2,",
        }.items()
    },
    "meta.properties missing": facts(seen(), seen("/d2", meta=MISSING)),
    "meta.properties missing beside the metadata log": having(meta=MISSING, holds_metadata=True),
    "meta.properties of a later version": facts(seen(), seen("/d2", meta=MALFORMED)),
    "meta.properties of the metadata dir zeroed": having(meta=meta(version=None, node_id=None), holds_metadata=True),
    "another cluster": facts(seen(), seen("/d2", meta=meta(cluster_id="other", directory_id="d2"))),
    "another node in one log dir": facts(seen(), seen("/d2", meta=meta(node_id=7, directory_id="d2"))),
    "a directory id twice": facts(seen(), seen("/d2", meta=meta())),
    "no process.roles": configured(mode=Mode.ZOOKEEPER),
    **{
        f"directory.id {number} of a log dir": having(meta=meta(directory_id=id_to_text(number.to_bytes(16, "big"))))
        for number in (0, 1, 2, 3, 99)
    },
    "another directory.id than the voter's": metadata(MetadataFile.DIRECTORY_ID, "meta.properties"),
    "no quorum in the configuration": configured(names_quorum=False),
    "an id generated earlier": of_ids(OWN, OWN, dirs=IN_USE),
    "a generated id lost everywhere": of_ids(MISSING, MISSING, dirs=IN_USE),
    "a generated id lost in one log dir": of_ids(OWN, MISSING, dirs=IN_USE),
    "meta.properties as KRaft writes it": of_ids(*[replace(OWN, version=1)] * 2),
    "meta.properties lost everywhere, the id configured": of_ids(MISSING, MISSING, dirs=IN_USE, node_id=1),
    "a configured id above the reserved ones": of_ids(OWN, OWN, node_id=1001),
    "its own id above the reserved ones": of_ids(OWN, OWN, node_id=1, reserved_max_id=0),
    "its own id above the reserved ones, none generated": of_ids(
        OWN, OWN, node_id=1, reserved_max_id=0, generates_id=False
    ),
    "the lowest reserved id": of_ids(OWN, OWN, node_id=1, reserved_max_id=1),
    "no id and none generated": of_ids(OWN, OWN, generates_id=False),
    "a metadata log in a log dir, ZooKeeper mode": of_ids(OWN, OWN, node_id=1),
    "reserved.broker.max.id in KRaft mode": configured(reserved_max_id=0),
    "a failed disk": having(health=Health.OFFLINE, detail="EIO"),
    "no free block": having(health=Health.FULL),
    "a read-only mount": having(health=Health.READ_ONLY),
    "metadata dir full": having(health=Health.FULL, holds_metadata=True),
    "metadata dir read-only": having(health=Health.READ_ONLY, holds_metadata=True),
    "a lock held": having(holder=NOBODYS),
    "what stops brokers only": facts(
        seen(checkpoints={"recovery-point-offset-checkpoint": (CheckpointFault.MALFORMED, "x")}),
        seen("/d2", odd_files=("zzz-0/backup.log",)),
        dirs=(directory("bar"), directory("lost+found", "/d2"), ORDERS, ORDERS_ON_D2),
    ),
    "a log dir of root": denied("/d1"),
    "a segment of root": denied(f"/d1/{SEGMENT}.log"),
}

_LIKE = "the rules see what they see of another row; which bytes or links make it so is for who reads the files"
# Why a row has no facts: by what its name begins with or has in it.
WITHOUT_FACTS = {
    r"^(strays and an old|links and an empty directory)": "several rows in one start",
    r"metadata log|snapshot|quorum|voters|bootstrap|metadata segment|first records": _LIKE,
    r"of the metadata dir|metadata\.log\.dir|the metadata dir|metadata dir (not|lost)": _LIKE,
    r"at the end of a log|for a log$|^txnindex|swapped|of 2 GiB|^a file 0": _LIKE,
    r"^(an? (empty )?(directory|link|FIFO|link to nowhere)) for |^epochs of|^index cut": _LIKE,
    r"^(partition\.metadata|meta\.properties) (empty|of a partition)|^backup.log in a -delete": _LIKE,
    r"link|mount point|partition\.metadata|^a file with the name of a partition": _LIKE,
    r"lock held|inode|root|an unreadable file": _LIKE,
    r"leaves and is gone|at another path|another node in the configuration": "only all files together say it",
}


def why_without(name: str) -> str | None:
    return next((why for pattern, why in WITHOUT_FACTS.items() if re.search(pattern, name)), None)
