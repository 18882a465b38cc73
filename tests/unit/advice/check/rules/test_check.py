"""The start-up linter, from hand-made facts: where findings point, what they say, and what no damage of a disk shows
(those are in tests/damages)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.check.rules import linter
from logagent.advice.check.rules.linter import SHOWN_ALIKE, check
from logagent.advice.check.rules.start_facts import (
    CheckpointFault,
    FreeSpace,
    LoadFault,
    LoadFile,
    MetaFile,
    MetaState,
    Mode,
    Override,
    PathProblem,
    StartFacts,
    StartLogDirFacts,
    StartServerFacts,
)
from logagent.advice.finding import ALL, Releases, Severity, any_fatal, concerning, finding
from logagent.base.dir_names import METADATA_DIR
from logagent.base.kafka_version import Version, VersionsSeen, which_version
from logagent.base.records import (
    Denied,
    DirKey,
    Health,
    Holder,
    HolderState,
    Identity,
    Kind,
    PartitionDir,
    TopicPartition,
    id_to_text,
)
from logagent.disk.health import REMOVE_OPEN, SYNC_FOLDER
from logagent.kafka.image import MetadataFault, MetadataFile
from logagent.kafka.retention.settings import Layers
from logagent.verdict.without_directory import LeftLogDir, Missing, WithoutDirectory
from tests.damages.disk import OTHER_UUID, UUID
from tests.damages.facts import CONF, ID, OTHER_ID, directory, facts, meta, seen, zookeeper
from tests.damages.row import answers

FATAL, WARNING, INFO = Severity.FATAL, Severity.WARNING, Severity.INFO
NEW: Version = (4, 3, 1)


def said(found: StartFacts, version: Version | None = NEW) -> list[tuple[str, str, str]]:
    """(severity, code, path) of every finding."""
    return [(f.severity.value, f.why.code, f.path) for f in check(found, version)]


def test_a_healthy_broker_has_no_findings() -> None:
    healthy = facts(dirs=(directory("orders-0"), directory("orders-1", "/d2"), directory(f"x-0.{UUID}-delete")))
    assert said(healthy) == []
    assert said(healthy, None) == []


NAMES: list[tuple[str, tuple[PartitionDir, ...], Version, list[tuple[str, str, str]]]] = [
    ("unparsable", (directory("bar"),), NEW, [("fatal", "unparsable-name", "/d1/bar")]),
    ("lost+found", (directory("lost+found"),), NEW, [("fatal", "lost-and-found", "/d1/lost+found")]),
    (
        "cache, old",
        (directory("remote-log-index-cache"),),
        (2, 5, 1),
        [("fatal", "cache-unsupported", "/d1/remote-log-index-cache")],
    ),
    ("metadata log", (directory("__cluster_metadata-0", topic_id=None),), NEW, []),
    ("not utf-8", (directory("bar\udcff"),), NEW, [("info", "undecodable-name", "/d1/bar\udcff")]),
    (
        "stray, old",
        (directory(f"z-0.{UUID}-stray"),),
        (3, 6, 0),
        [("fatal", "stray-unsupported", f"/d1/z-0.{UUID}-stray")],
    ),
    ("dangling symlink", (directory("bar", error="symlink"),), NEW, []),
    (
        "mount point",
        (directory("orders-0", error="mount point"),),
        NEW,
        [("warning", "mounted-partition", "/d1/orders-0")],
    ),
    (
        "broken metadata",
        (directory("orders-0", topic_id=None, error="partition.metadata: malformed line ''"),),
        NEW,
        [("fatal", "broken-partition-metadata", "/d1/orders-0")],
    ),
    (
        "broken metadata before topic ids",
        (directory("orders-0", topic_id=None, error="partition.metadata: x"),),
        (2, 7, 0),
        [],
    ),
    (
        "no metadata, 3.7.0",
        (directory("orders-0", topic_id=None),),
        (3, 7, 0),
        [("fatal", "no-topic-id", "/d1/orders-0")],
    ),
    ("no metadata, deleted", (directory(f"z-0.{UUID}-delete", topic_id=None),), (3, 7, 0), []),
    (
        "the same id twice",
        (directory("orders-0"), directory("orders-0", "/d2")),
        NEW,
        [("fatal", "duplicate-partition", "/d1/orders-0")],
    ),
    (
        "two futures",
        (directory(f"orders-1.{UUID}-future"), directory(f"orders-1.{OTHER_UUID}-future", "/d2")),
        NEW,
        [("fatal", "duplicate-future", f"/d1/orders-1.{UUID}-future")],
    ),
    ("a move under way", (directory("orders-1"), directory(f"orders-1.{UUID}-future", "/d2")), NEW, []),
    (
        "a future beside its current",
        (directory("orders-1"), directory(f"orders-1.{UUID}-future")),
        NEW,
        [("fatal", "future-beside-current", f"/d1/orders-1.{UUID}-future")],
    ),
    (
        "a future of another incarnation",
        (directory("orders-1"), directory(f"orders-1.{UUID}-future", topic_id=OTHER_ID)),
        NEW,
        [],
    ),
    (
        "a name too long to move",
        (directory("t" * 214 + "-0"), directory("t" * 213 + "-1")),
        NEW,
        [("info", "future-name-too-long", "/d1/" + "t" * 214 + "-0")],
    ),
]


@pytest.mark.parametrize(("dirs", "version", "expected"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_each_directory_a_broker_fails_on_has_its_finding(
    dirs: tuple[PartitionDir, ...], version: Version, expected: list[tuple[str, str, str]]
) -> None:
    assert said(facts(dirs=dirs), version) == expected


LINK = f"z-0.{UUID}-delete"
LINKS: list[tuple[str, Mapping[str, str], list[tuple[str, str, str]]]] = [
    (LINK, {LINK: "/precious"}, [("fatal", "delete-through-link", f"/d1/{LINK}")]),
    (LINK, {}, []),
    ("orders-0", {"orders-0": "/elsewhere"}, [("info", "linked-partition", "/d1/orders-0")]),
    ("bar", {"bar": "/elsewhere"}, [("fatal", "unparsable-name", "/d1/bar")]),
]


@pytest.mark.parametrize(("name", "links", "expected"), LINKS)
def test_each_kind_of_symlink_has_its_finding(
    name: str, links: Mapping[str, str], expected: list[tuple[str, str, str]]
) -> None:
    found = facts(seen(dir_links=links), dirs=(directory(name, error="symlink"),))
    assert said(found) == expected


def test_an_assigned_directory_without_topic_id_is_fatal() -> None:
    found = facts(dirs=(directory("orders-0", topic_id=None),), assigned=frozenset({TopicPartition("orders", 0)}))
    (finding,) = check(found, NEW)
    assert (finding.severity, finding.why.code) == (FATAL, "no-topic-id")
    assert "EMPTY" in finding.why.fact


def test_what_is_gone_does_not_count_as_duplicate() -> None:
    both = (directory("orders-0"), directory("orders-0", "/d2"))
    found = facts(dirs=both, gone=frozenset({("/d2", "orders-0")}))
    assert said(found) == [("info", "duplicate-partition", "/d1/orders-0")]
    assert said(zookeeper(found)) == [
        ("fatal", "duplicate-partition", "/d1/orders-0"),
        ("fatal", "no-process-roles", "/etc/kafka/server.properties"),
    ]


def test_zookeeper_mode_has_no_topic_id_to_lose() -> None:
    found = zookeeper(facts(dirs=(directory("orders-0", topic_id=None),)))
    assert said(found, (3, 9, 1)) == []


def test_zookeeper_mode_makes_a_missing_log_dir() -> None:
    found = zookeeper(facts(log_dirs=(seen(problem=PathProblem.MISSING),)))
    assert said(found, (3, 5, 2)) == [("warning", "log-dir-missing", "/d1")]


LOG_DIRS: list[tuple[str, StartLogDirFacts, list[tuple[str, str, str]]]] = [
    ("missing", seen(problem=PathProblem.MISSING), [("fatal", "log-dir-missing", "/d1")]),
    ("a file", seen(problem=PathProblem.NOT_A_DIRECTORY), [("fatal", "log-dir-not-a-directory", "/d1")]),
    ("closed to us", seen(problem=PathProblem.CLOSED), [("warning", "not-verified", "/d1")]),
    (
        "closed to the broker",
        seen(problem=PathProblem.CLOSED, denied=(Denied("/d1", "read", 0, 0, 0o700),)),
        [("fatal", "access-denied", "/d1")],
    ),
    ("unreadable", seen(problem=PathProblem.UNREADABLE), [("fatal", "log-dir-failed", "/d1")]),
    ("failed", seen(health=Health.OFFLINE, detail="EIO"), [("fatal", "log-dir-failed", "/d1")]),
    ("read-only", seen(health=Health.READ_ONLY), [("fatal", "read-only", "/d1")]),
    ("full", seen(health=Health.FULL), [("fatal", "full", "/d1")]),
    ("low space", seen(room=FreeSpace(1000, 19, 1000, 500)), [("warning", "low-space", "/d1")]),
    ("low inodes", seen(room=FreeSpace(1000, 500, 1000, 19)), [("warning", "low-inodes", "/d1")]),
    ("no inode count", seen(room=FreeSpace(1000, 500, 0, 0)), []),
    ("below /tmp", seen(canonical="/tmp/kafka-logs"), [("warning", "temporary-log-dir", "/d1")]),
    ("below /var/tmp", seen(canonical="/var/tmp/k", mount_point="/"), [("warning", "temporary-log-dir", "/d1")]),
    ("in a /tmp in memory", seen(canonical="/tmp/k", mount_point="/tmp"), [("warning", "temporary-log-dir", "/d1")]),
    ("mounted below /tmp", seen(canonical="/tmp/disk/k", mount_point="/tmp/disk"), []),
    ("not below /tmp", seen(canonical="/tmpfs/kafka-logs", mount_point="/tmpfs"), []),
    ("on the root file system", seen(mount_point="/"), [("warning", "log-dir-on-root", "/d1")]),
    ("not tried", seen(file_system="fuse.sshfs"), [("warning", "unfit-file-system", "/d1")]),
    ("of unknown kind", seen(file_system=None), [("warning", "unfit-file-system", "/d1")]),
    ("tried", seen(file_system="nfs4", cannot={}), []),
    ("no locks", seen(file_system="9p", cannot={"lock a file": "x"}), [("fatal", "unfit-file-system", "/d1")]),
    ("busy", seen(file_system="nfs", cannot={REMOVE_OPEN: "x"}), [("warning", "unfit-file-system", "/d1")]),
    ("missing below /tmp", seen(canonical="/tmp/k", problem=PathProblem.CLOSED), [("warning", "not-verified", "/d1")]),
    ("free", seen(holder=Holder(HolderState.FREE)), []),
    ("held by another", seen(holder=Holder(HolderState.STARTING, 7)), [("fatal", "lock-held", "/d1/.lock")]),
    (
        "held by the broker",
        seen(holder=Holder(HolderState.HELD, 7), holder_is_broker=True),
        [("info", "broker-running", "/d1")],
    ),
    ("hidden", seen(holder=Holder(HolderState.HIDDEN, 7)), [("warning", "hidden-holder", "/d1")]),
    ("who knows", seen(holder=Holder(HolderState.UNREADABLE)), [("warning", "not-verified", "/d1/.lock")]),
    ("given up", seen(given_up_by=7, health=Health.OFFLINE), [("warning", "given-up", "/d1")]),
    (
        "denied",
        seen(denied=(Denied("/d1/a-0", "write", 0, 0, 0o755),)),
        [("fatal", "access-denied", "/d1/a-0")],
    ),
    ("not seen", seen(not_seen=("a-0",)), [("warning", "not-verified", "/d1/a-0")]),
    (
        "broken epochs",
        seen(broken_epochs={"a-0": (CheckpointFault.MALFORMED, "line 1")}),
        [("fatal", "broken-epochs", "/d1/a-0/leader-epoch-checkpoint")],
    ),
    ("odd file", seen(odd_files=("a-0/b.log",)), [("fatal", "odd-segment-file", "/d1/a-0/b.log")]),
    ("leftover", seen(leftovers=(".logagent-x",)), [("info", "leftover-temp-file", "/d1/.logagent-x")]),
    (
        "malformed checkpoint",
        seen(checkpoints={"cleaner-offset-checkpoint": (CheckpointFault.MALFORMED, "line 1")}),
        [("fatal", "broken-checkpoint", "/d1/cleaner-offset-checkpoint")],
    ),
    ("unformatted", seen(meta=MetaFile(MetaState.MISSING)), [("fatal", "unformatted", "/d1")]),
    (
        "malformed meta",
        seen(meta=MetaFile(MetaState.MALFORMED, error="x")),
        [("fatal", "meta-properties-malformed", "/d1/meta.properties")],
    ),
    (
        "unreadable meta",
        seen(meta=MetaFile(MetaState.UNREADABLE, error="x")),
        [("warning", "not-verified", "/d1/meta.properties")],
    ),
    ("another node", seen(meta=meta(node_id=2)), [("fatal", "foreign-node", "/d1/meta.properties")]),
]


@pytest.mark.parametrize(("log_dir", "expected"), [row[1:] for row in LOG_DIRS], ids=[row[0] for row in LOG_DIRS])
def test_each_problem_of_a_log_dir_has_its_finding(
    log_dir: StartLogDirFacts, expected: list[tuple[str, str, str]]
) -> None:
    assert said(facts(log_dir)) == expected


def test_a_full_disk_is_for_rescue() -> None:
    """`cleanup` shows nothing that is not due."""
    for look in seen(health=Health.FULL), seen(room=FreeSpace(1000, 19, 1000, 19)):
        hints = [f.why.hint for f in check(facts(look), NEW)]
        assert hints
        assert [hint for hint in hints if "logagent rescue" not in hint] == []


def test_about_to_start_any_holder_is_in_the_way() -> None:
    held = seen(holder=Holder(HolderState.HELD, 7), holder_is_broker=True)
    assert said(facts(held, about_to_start=True)) == [("fatal", "lock-held", "/d1/.lock")]
    hidden = seen(holder=Holder(HolderState.HIDDEN, 7))
    assert said(facts(hidden, about_to_start=True)) == [("fatal", "hidden-holder", "/d1")]


PAIRS: list[tuple[str, tuple[StartLogDirFacts, ...], list[tuple[str, str, str]]]] = [
    ("one directory twice", (seen(), seen("/d2", canonical="/d1")), [("fatal", "duplicate-log-dir", "/d2")]),
    ("inside", (seen(), seen("/d1/x-0")), [("fatal", "nested-log-dir", "/d1/x-0")]),
    ("outside after inside", (seen("/d1/x-0"), seen()), [("fatal", "nested-log-dir", "/d1/x-0")]),
    ("a prefix is not inside", (seen(), seen("/d10")), []),
    ("a log dir in the metadata dir", (seen("/m/d1"), seen("/m", holds_logs=False)), []),
    (
        "two clusters",
        (seen(), seen("/d2", meta=meta(cluster_id="other", directory_id="x"))),
        [("fatal", "foreign-cluster", "/d2/meta.properties")],
    ),
    (
        "one directory id",
        (seen(), seen("/d2", meta=meta(directory_id="d1"))),
        [("fatal", "duplicate-directory-id", "/d2/meta.properties")],
    ),
]


@pytest.mark.parametrize(("log_dirs", "expected"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_log_dirs_that_contradict_each_other_have_findings(
    log_dirs: tuple[StartLogDirFacts, ...], expected: list[tuple[str, str, str]]
) -> None:
    assert said(facts(*log_dirs)) == expected


def test_folders_are_synced_by_later_releases_only_and_a_start_is_not_held_up() -> None:
    found = facts(seen(file_system="cifs", cannot={SYNC_FOLDER: "Invalid argument"}))
    assert said(found) == [("fatal", "unfit-file-system", "/d1")] and said(found, (2, 5, 1)) == []
    assert said(replace(found, about_to_start=True)) == []


@pytest.mark.parametrize("text", ["C:\\kafka", "C:kafka", "C:\tmp", "D:/kafka"])
def test_a_path_of_windows_is_said_as_that(text: str) -> None:
    server = replace(facts().server, log_dirs_text=text)
    (finding,) = check(replace(facts(), server=server), NEW)
    assert ascii(text)[1:-1] in finding.why.fact
    assert ("only escapes" in finding.why.fact) == (text in ("C:kafka", "C:\tmp"))


def test_a_nested_log_dir_is_not_an_unparsable_name_too() -> None:
    found = facts(seen(), seen("/d1/deep/inner"), dirs=(directory("deep"),))
    assert said(found) == [("fatal", "nested-log-dir", "/d1/deep/inner")]


CONFIGS: list[tuple[str, Version, list[tuple[str, str]]]] = [
    ("/d1,/d2", NEW, []),
    ("/d1, /d2", NEW, []),
    ("/d1,/d2,", NEW, [("fatal", "empty-log-dirs-item")]),
    ("/d1,d2", NEW, [("warning", "relative-log-dir")]),
    ("C:\\kafka,/d1", NEW, [("warning", "foreign-path")]),
    ("C:\tmp", NEW, [("warning", "foreign-path")]),
    ("\\server\\d1", NEW, [("warning", "foreign-path")]),
    ("/d1\\x", NEW, []),
]


@pytest.mark.parametrize(("text", "version", "expected"), CONFIGS)
def test_the_text_of_log_dirs(text: str, version: Version, expected: list[tuple[str, str]]) -> None:
    found = facts()
    found = replace(found, server=replace(found.server, log_dirs_text=text))
    assert [line[:2] for line in said(found, version)] == expected


def test_an_unknown_version_is_warned_for_every_release() -> None:
    found = facts(dirs=(directory(f"z-0.{UUID}-stray"), directory("bar")))
    findings = check(found, None)
    assert [(f.severity, f.why.code, str(f.releases)) for f in findings] == [
        (FATAL, "unparsable-name", "all"),
        (WARNING, "stray-unsupported", "< 3.6.1"),
    ]
    assert any_fatal(findings)
    assert [f.why.code for f in check(found, None, at_least=(3, 9, 0))] == ["unparsable-name"]


def test_of_many_alike_the_first_are_listed_and_the_rest_counted() -> None:
    many = facts(dirs=tuple(directory(f"bad{i:04}") for i in range(1000)))
    findings = check(many, NEW)
    assert len(findings) == SHOWN_ALIKE + 1
    assert findings[-1].why.fact == f"and {1000 - SHOWN_ALIKE} more like the {SHOWN_ALIKE} above"
    assert findings[-1].path == "/d1"


RELEASES = [
    (ALL, "all", [(2, 5, 0), (4, 3, 1)], []),
    (Releases(before=(3, 6, 1)), "< 3.6.1", [(2, 5, 0), (3, 6, 0)], [(3, 6, 1), (4, 0, 0)]),
    (Releases(since=(4, 2, 0)), ">= 4.2.0", [(4, 2, 0)], [(4, 1, 9)]),
    (Releases((3, 7, 0), (3, 7, 1)), ">= 3.7.0, < 3.7.1", [(3, 7, 0)], [(3, 7, 1), (3, 6, 2)]),
    (Releases(since=(2, 0, 0)), "all", [(2, 5, 0)], []),
]


@pytest.mark.parametrize(("releases", "text", "inside", "outside"), RELEASES)
def test_a_range_of_releases_includes_its_ends(
    releases: Releases, text: str, inside: list[Version], outside: list[Version]
) -> None:
    assert str(releases) == text
    assert [v for v in inside if not releases.includes(v)] == []
    assert [v for v in outside if releases.includes(v)] == []


VERSIONS = st.tuples(st.integers(2, 4), st.integers(0, 9), st.integers(0, 3))


@given(st.none() | VERSIONS, st.none() | VERSIONS, VERSIONS)
def test_what_concerns_a_version_concerns_it_from_there_on_too(
    since: Version | None, before: Version | None, version: Version
) -> None:
    one = finding(FATAL, "x", "/p", "says", "hint", Releases(since, before))
    if concerning([one], version):
        assert concerning([one], None, at_least=version)


ZOOKEEPER = StartServerFacts(Mode.ZOOKEEPER, None, "/d1", None, CONF)
CONTROLLER = StartServerFacts(Mode.KRAFT, 1, "/d1", "/m", CONF, runs_controller=True, controller_only=True)
LOST, OWN = MetaFile(MetaState.MISSING), MetaFile(MetaState.READ, 0, "cluster", 1001)
IN_USE = (directory("orders-0"),)
HERE = seen(holds_metadata=True, metadata_log=True)
FAULT = MetadataFault(MetadataFile.QUORUM_STATE, "__cluster_metadata-0/quorum-state", "quorum-state: it is empty")
LATER = FAULT._replace(refused=True)
DYNAMIC = FAULT._replace(file=MetadataFile.DYNAMIC)
OLD: Version = (3, 5, 2)
OUTSIDE = ("fatal", "stray-metadata-log", "/d1/__cluster_metadata-0")
BROKEN = ("fatal", "broken-metadata-log", "/d1/__cluster_metadata-0/quorum-state")
HELD_BY_OTHER = Holder(HolderState.HELD, 7)
KRAFT = facts().server

NODES: list[tuple[str, StartFacts, Version, list[tuple[str, str, str]]]] = [
    ("its own metadata log", facts(HERE), NEW, []),
    (
        "a metadata log elsewhere",
        facts(seen(metadata_log=True), server=replace(KRAFT, metadata_log_dir="/m")),
        NEW,
        [OUTSIDE],
    ),
    ("so in log.dirs too", facts(HERE, server=replace(KRAFT, metadata_log_dir="/d1/", log_dirs_text="/d1/")), NEW, []),
    ("in ZooKeeper mode", facts(seen(metadata_log=True, meta=OWN), server=ZOOKEEPER), OLD, []),
    ("a quorum-state", facts(replace(HERE, metadata_faults=(FAULT,))), (3, 8, 0), [BROKEN]),
    (
        "as KRaft writes it, during a migration",
        facts(seen(meta=replace(OWN, version=1)), server=replace(ZOOKEEPER, may_migrate=True)),
        (3, 9, 1),
        [],
    ),
    (
        "as KRaft writes it, in the first migrations",
        facts(seen(meta=replace(OWN, version=1)), server=replace(ZOOKEEPER, may_migrate=True)),
        (3, 6, 2),
        [("fatal", "meta-properties-malformed", "/d1/meta.properties")],
    ),
    (
        "its id lost",
        facts(seen(meta=LOST), server=ZOOKEEPER, dirs=IN_USE),
        OLD,
        [("fatal", "lost-broker-id", "/d1/meta.properties")],
    ),
    ("a new broker", facts(seen(meta=LOST), server=ZOOKEEPER), OLD, [("info", "unformatted", "/d1")]),
    (
        "an id above the reserved ones",
        facts(seen(meta=OWN), server=replace(ZOOKEEPER, node_id=1001)),
        OLD,
        [("fatal", "reserved-broker-id", CONF)],
    ),
    (
        "neither an id nor one generated",
        facts(seen(meta=OWN), server=replace(ZOOKEEPER, generates_id=False)),
        OLD,
        [("fatal", "no-broker-id", CONF)],
    ),
]


@pytest.mark.parametrize(("found", "version", "expected"), [r[1:] for r in NODES], ids=[row[0] for row in NODES])
def test_each_problem_of_a_node_has_its_finding(
    found: StartFacts, version: Version, expected: list[tuple[str, str, str]]
) -> None:
    assert said(found, version) == expected


def test_a_full_metadata_dir_is_for_its_own_retention_and_not_for_rescue() -> None:
    for look in seen("/m", health=Health.FULL), seen("/m", room=FreeSpace(1000, 19, 1000, 19)):
        own = replace(look, holds_logs=False, holds_metadata=True, metadata_only=True)
        hints = [f.why.hint for f in check(facts(own, server=CONTROLLER), NEW)]
        assert hints
        assert [hint for hint in hints if not ("metadata.max.retention.bytes" in hint and "rescue" not in hint)] == []


@pytest.mark.parametrize(
    ("controller", "advice"), [(False, "fetches the metadata from a controller"), (True, "a majority of the other")]
)
def test_no_hint_removes_a_snapshot_that_the_log_needs(controller: bool, advice: str) -> None:
    fault = MetadataFault(MetadataFile.SNAPSHOT, "__cluster_metadata-0/x.checkpoint", "it is empty", spare=False)
    server = replace(KRAFT, runs_controller=controller)
    (needed,) = check(facts(replace(HERE, metadata_faults=(fault,)), server=server), NEW)
    assert advice in needed.why.hint and "move the file" not in needed.why.hint
    (spare,) = check(facts(replace(HERE, metadata_faults=(fault._replace(spare=True),)), server=server), NEW)
    assert "move the file" in spare.why.hint


def test_what_an_override_puts_in_force_is_named() -> None:
    found = facts(overrides=(Override("kafka.service", "log.dirs=/data"),))
    assert [f.why.fact for f in check(found, NEW) if "kafka.service has --override log.dirs=/data" in f.why.fact]


def test_every_code_is_in_the_table_and_every_row_of_it_is_a_code() -> None:
    """The docstring is what people read; the sources and the tests are what is true."""
    table = linter.__doc__ or ""
    documented = set(re.findall(r"^([a-z][a-z-]+(?:, [a-z-]+)?) +(?:fatal|warning|info) ", table, re.MULTILINE))
    documented = {code for row in documented for code in row.split(", ")}
    expected = [*(row[-1] for row in NAMES), *(row[-1] for row in LOG_DIRS), *(row[-1] for row in PAIRS)]
    used = {code for findings in [*expected, *(row[-1] for row in LINKS)] for _, code, _ in findings}
    used |= {code for row in CONFIGS for _, code in row[-1]}
    used |= {code.partition(":")[2] for of in answers().values() for answer in of.values() for code in answer.found}
    used |= {"version-contradicted", "open-exchange", "stray-emptied", "log-emptied", "broker-overrides"}
    used |= {"too-long-to-delete", "feature-unsupported", "format-ignored", "setting-refused"}
    used |= {"assignments-not-compared", "features-not-compared", "config-changed"}
    assert documented == used


def test_a_configured_version_that_the_running_broker_contradicts_is_reported() -> None:
    found = facts(seen())
    known = which_version(VersionsSeen(running=(3, 9, 1), pid=5, configured=(3, 5, 2)))
    (finding,) = check(replace(found, kafka_version=known), (3, 9, 1))
    assert (finding.severity, finding.why.code) == (Severity.WARNING, "version-contradicted")
    assert "kafka.version is 3.5.2" in finding.why.fact and "process 5 runs 3.9.1" in finding.why.fact
    assert check(replace(found, kafka_version=replace(known, newer=())), (3, 9, 1)) == []


def test_a_cordon_of_what_log_dirs_lacks_is_reported() -> None:
    found = facts(stale_cordons={"/gone": "when it runs: kafka-configs.sh"})
    (finding,) = check(found, (4, 3, 1))
    assert (finding.severity, finding.why.code, finding.path) == (Severity.WARNING, "stale-cordon", "/gone")
    assert "dynamic settings" in finding.why.fact and "kafka-configs.sh" in finding.why.hint
    assert check(found, (4, 2, 0)) == []


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("/gone", ["/gone"]),
        ("/d1/", ["/d1/"]),  # as it is written in log.dirs, or not at all
        ("/d1,", [""]),
        ("*,/d1", ["*"]),
        (" /d1 ,/d2", []),
        ("*", []),
        ("", []),
    ],
)
def test_a_cordon_in_the_file_has_to_name_what_log_dirs_names(text: str, refused: list[str]) -> None:
    """As the `KafkaConfig` of 4.3.1 and 4.4.0 accepts it; that of a controller passes over all but an empty item."""
    found = replace(facts(), settings=Layers(file={"cordoned.log.dirs": text}))
    found = replace(found, server=replace(found.server, log_dirs_text="/d1,/d2"))
    controller = replace(found, server=replace(found.server, runs_controller=True, controller_only=True))
    assert ["stale-cordon"] * ("" in refused) == [
        f.why.code for f in check(controller, (4, 4, 0)) if "cordon" in f.why.code
    ]
    fatal = [f for f in check(found, (4, 4, 0)) if f.why.code == "stale-cordon"]
    assert [f.severity for f in fatal] == [Severity.FATAL] * len(refused)
    assert [
        (f, item) for f, item in zip(fatal, refused, strict=True) if f"has {item or 'an empty item'}," not in f.why.fact
    ] == []
    assert [f for f in check(found, (4, 2, 2)) if f.why.code == "stale-cordon"] == []


def test_what_is_assigned_here_and_has_no_directory_is_reported_with_what_becomes_of_it() -> None:
    missing = (
        WithoutDirectory("a", 0, "A", only_copy=False),
        WithoutDirectory("b", 0, "B", only_copy=True),
        WithoutDirectory("c", 0, "C", only_copy=None, aside="/d1/c-0.x-stray"),
    )
    found = check(replace(facts(), missing=Missing(here=missing)), NEW)
    assert [(f.severity, f.why.code, f.path) for f in found] == [
        (Severity.WARNING, "no-directory", name) for name in ("a-0", "b-0", "c-0")
    ]
    assert "copies it from its leader" in found[0].why.fact
    assert "no other replica is in sync" in found[1].why.fact and "logagent rescue" in found[1].why.hint
    assert "logagent restore" in found[2].why.hint


def test_an_open_exchange_is_reported_with_the_name_that_came_back() -> None:
    (finding,) = check(replace(facts(), open_exchanges={"/d1/orders-0.x-stray": "orders-0"}), (3, 9, 1))
    assert (finding.severity, finding.why.code, finding.path) == (
        Severity.WARNING,
        "open-exchange",
        "/d1/orders-0.x-stray",
    )
    assert "orders-0 is restored" in finding.why.fact


def test_a_wrong_directory_is_only_reported() -> None:
    found = facts(dirs=(directory("orders-0"),), wrong_directory={("/d1", "orders-0"): "it is assigned to /d2"})
    assert said(found) == [("info", "wrong-directory", "/d1/orders-0")]
    homeless = replace(found, homeless=frozenset(found.wrong_directory))
    assert said(homeless) == [("warning", "wrong-directory", "/d1/orders-0")]


def test_what_a_kraft_broker_before_3_7_deletes_is_reported() -> None:
    found = facts(dirs=(directory("orders-0"),), gone={("/d1", "orders-0")})
    for version in ((3, 3, 2), (3, 6, 2)):
        assert said(found, version) == [("warning", "deleted-at-start", "/d1/orders-0")]
    assert said(found, (3, 7, 0)) == said(zookeeper(found), (3, 5, 2)) == []


def test_kinds_that_are_not_loaded_are_left_alone() -> None:
    assert directory("__cluster_metadata-0").kind is Kind.METADATA
    assert said(facts(dirs=(directory("__cluster_metadata-0", error="partition.metadata: x"),))) == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("only_copy", [True, None, False])
def test_a_log_dir_that_left_is_fatal_where_records_go_with_it(known: bool, only_copy: bool | None) -> None:
    """The rest is a doubt, or how a dead disk is left out."""
    left = LeftLogDir("/d9", None, "the journal", known, (WithoutDirectory("a", 0, "A", only_copy),))
    (finding,) = check(replace(facts(), missing=Missing(left=(left,))), NEW)
    expected = Severity.FATAL if known and only_copy is not False else Severity.WARNING
    assert (finding.severity, finding.why.code, finding.path) == (expected, "log-dir-forgotten", "/d9")


def test_what_may_be_in_a_log_dir_that_was_not_read_is_said_of_that() -> None:
    w = WithoutDirectory("a", 0, "A", only_copy=None)
    (finding,) = check(replace(facts(), missing=Missing(hidden=(w,), unseen=("/d9",))), NEW)
    assert (finding.severity, finding.why.code, finding.path) == (Severity.WARNING, "no-directory", "/d9")
    (finding,) = check(replace(facts(), missing=Missing(doubt="a file is damaged")), NEW)
    assert (finding.severity, finding.why.code) == (Severity.WARNING, "not-verified")


SAME, OTHER = "AAAAAAAAAAAAAAAAAAAAZZ", "AAAAAAAAAAAAAAAAAAAAZY"
# What is at /d2/orders-0 beside the current /d1/orders-0: its error in the inventory, the id that a broker reads there
# ("unread": nobody could), and what follows on a release that first sets aside what is not its own.
UNREAD_IDS = [
    ("symlink", SAME, "fatal"),
    ("symlink", OTHER, "info"),
    ("symlink", None, "info"),
    ("symlink", "unread", "warning"),
    ("mount point", SAME, "fatal"),
    ("mount point", "unread", "warning"),
    ("partition.metadata is a symlink, which is not followed", SAME, "fatal"),
    ("it cannot be opened: Permission denied", "unread", "warning"),
    (None, None, "info"),
]


@pytest.mark.parametrize("kind", ["", f".{UUID}-future"])
@pytest.mark.parametrize(("error", "read", "severity"), UNREAD_IDS)
def test_an_id_that_was_not_read_is_not_a_different_one(
    kind: str, error: str | None, read: str | None, severity: str
) -> None:
    """Nor is it none: what a link leads to is read as a broker reads it, and what cannot be read is a doubt."""
    name = f"orders-0{kind}"
    followed = {name: read} if error is not None and read != "unread" else {}
    second = seen("/d2", dir_links={name: "/elsewhere"} if error == "symlink" else {}, followed_ids=followed)
    dirs = (directory(name, topic_id=SAME), directory(name, log_dir="/d2", error=error, topic_id=None))
    code = "duplicate-future" if kind else "duplicate-partition"
    found = check(facts(seen(), second, dirs=dirs), NEW)
    assert [f.severity.value for f in found if f.why.code == code] == [severity], found
    older = check(facts(seen(), second, dirs=dirs), (3, 6, 0))
    assert [f.severity.value for f in older if f.why.code == code] == ["fatal"]


@pytest.mark.parametrize(("read", "expected"), [(SAME, ["fatal"]), (OTHER, []), (None, []), ("unread", ["warning"])])
def test_a_future_whose_id_was_not_read_may_be_of_the_current_beside_it(read: str | None, expected: list[str]) -> None:
    name = f"orders-0.{UUID}-future"
    where = seen(dir_links={name: "/x"}, followed_ids={name: read} if read != "unread" else {})
    dirs = (directory("orders-0", topic_id=SAME), directory(name, error="symlink", topic_id=None))
    found = check(facts(where, dirs=dirs), NEW)
    assert [f.severity.value for f in found if f.why.code == "future-beside-current"] == expected


def test_a_directory_without_an_id_beside_the_real_one_is_not_made_anew() -> None:
    """A start sets it aside and serves the other: nothing becomes empty."""
    mine = frozenset({TopicPartition("orders", 0)})
    alone = directory("orders-0", log_dir="/d2", topic_id=None)
    for dirs, severity in (((alone,), FATAL), ((directory("orders-0", topic_id=SAME), alone), WARNING)):
        found = check(facts(seen(), seen("/d2"), dirs=dirs, assigned=mine), NEW)
        assert [f.severity for f in found if f.why.code == "no-topic-id"] == [severity]


@pytest.mark.parametrize(("version", "severities"), [(NEW, [FATAL]), ((3, 7, 1), [FATAL]), ((3, 7, 0), [])])
def test_a_mount_point_that_is_set_aside_takes_the_log_dir_offline(
    version: Version, severities: list[Severity]
) -> None:
    mounted = directory("orders-0", error="mount point", topic_id=None)
    found = facts(seen(followed_ids={"orders-0": ID}), dirs=(mounted,), set_aside={mounted.key})
    assert [f.severity for f in check(found, version) if f.why.code == "mounted-partition"] == severities
    (other,) = check(zookeeper(found), (3, 5, 2))
    assert (other.why.code, other.severity) == ("mounted-partition", WARNING)


@pytest.mark.parametrize("error", ["symlink", "mount point"])
@pytest.mark.parametrize(("name", "shared"), [("orders-1", True), ("zzz-0", True), ("orders-0", False)])
def test_two_partitions_are_never_one_directory(name: str, shared: bool, error: str) -> None:
    """Two of one partition are duplicates."""
    real, link = directory("orders-0"), directory(name, "/d2", topic_id=None, error=error)
    d2 = seen("/d2", dir_links={name: "/d1/orders-0"}, followed_ids={name: ID}, places={name: real.identity})
    found = check(facts(seen(), d2, dirs=(real, link)), NEW)
    told = [
        f.why.code
        for f in found
        if f.why.code in ("linked-partition", "duplicate-partition") and f.severity is not INFO
    ]
    assert told == (["linked-partition"] if shared else ["duplicate-partition"])
    unseen = [replace(directory(each, error="it cannot be opened"), device=0, inode=0) for each in ("a-0", "b-0")]
    assert [f for f in check(facts(dirs=tuple(unseen)), NEW) if f.why.code == "linked-partition"] == []
    elsewhere = replace(d2, places={name: Identity(1, 1)})
    apart = check(facts(seen(), elsewhere, dirs=(real, link)), NEW)
    assert [f.why.code for f in apart if f.severity is FATAL] == ([] if shared else ["duplicate-partition"])


ORDERS = TopicPartition("orders", 0)
BOTH = {ORDERS, TopicPartition("orders", 1)}


@pytest.mark.parametrize(
    ("name", "assigned", "version", "severity"),
    [
        ("orders-1", BOTH, NEW, "fatal"),
        ("orders-1", {ORDERS}, NEW, "warning"),
        ("orders-1", set(), NEW, "warning"),
        ("orders-1", {ORDERS}, (3, 6, 0), "fatal"),
        ("zzz-0", {ORDERS}, (3, 6, 0), "warning"),
        ("orders-1", set(), (3, 6, 0), "warning"),
    ],
)
def test_two_partitions_in_one_directory_keep_a_broker_down_where_records_are_known_to_go(
    name: str, assigned: set[TopicPartition], version: Version, severity: str
) -> None:
    """It starts with it: what it serves to nobody, it does not write."""
    real, link = directory("orders-0"), directory(name, "/d2", topic_id=None, error="symlink")
    d2 = seen("/d2", dir_links={name: "/d1/orders-0"}, followed_ids={name: ID}, places={name: real.identity})
    found = check(facts(seen(), d2, dirs=(real, link), assigned=frozenset(assigned)), version)
    (first, *_) = (f for f in found if f.why.code == "linked-partition")
    assert first.severity.value == severity and "the broker starts with it" in first.why.fact


LONE_FUTURES = [
    (True, True, False, NEW, "fatal"),
    (True, True, False, (3, 5, 2), "fatal"),
    (True, True, True, NEW, None),
    (True, True, True, (3, 7, 0), "warning"),
    (True, True, None, NEW, "warning"),
    (True, False, False, NEW, "warning"),
    (True, None, False, NEW, "warning"),
    (False, True, False, NEW, "warning"),
]


@pytest.mark.parametrize(("sure", "only_copy", "in_place", "version", "severity"), LONE_FUTURES)
def test_only_what_is_known_to_be_truncated_keeps_a_broker_down(
    sure: bool, only_copy: bool | None, in_place: bool | None, version: Version, severity: str | None
) -> None:
    name = f"orders-0.{UUID}-future"
    id_ = None if in_place is None else "assigned"
    w = WithoutDirectory("orders", 0, ID, only_copy, directory_id=id_, future=DirKey("/d1", name))
    missing = Missing(promoted=(w,)) if in_place else Missing((w,))
    found = check(facts(dirs=(directory(name),), missing=missing, missing_sure=sure), version)
    said = [f for f in found if f.why.code in ("future-without-current", "no-directory")]
    assert [f.severity.value for f in said] == ([severity] if severity else [])
    assert [f for f in said if f"mv -nT /d1/{name} /d1/orders-0" not in f.why.hint] == []


@pytest.mark.parametrize("unmounted", [True, False])
def test_no_future_is_renamed_while_the_whole_replica_may_be_elsewhere(unmounted: bool) -> None:
    """It would be a duplicate once that log dir is back, and until then a part of the log."""
    w = WithoutDirectory("orders", 0, ID, True, directory_id="left", future=DirKey("/d1", f"orders-0.{UUID}-future"))
    left = Missing(left=(LeftLogDir("/d3", "left", "the journal", True, (w,)),))
    missing = Missing(hidden=(w,), unseen=("/d3",)) if unmounted else left
    found = check(facts(missing=missing, missing_sure=True), NEW)
    (future,) = (f for f in found if f.why.code == "future-without-current")
    assert future.severity is WARNING and "put /d3 back" in future.why.hint and "mv " not in future.why.hint
    assert {f.why.code for f in found} >= {"no-directory" if unmounted else "log-dir-forgotten"}


LOAD_FAULTS = [
    (LoadFile.TAIL, NEW, "fatal", "broken-segment"),
    (LoadFile.PLACE, (3, 5, 2), "fatal", "not-a-file"),
    (LoadFile.EMPTY_SWAP, NEW, "warning", "broken-segment"),
]


@pytest.mark.parametrize(("file", "version", "severity", "code"), LOAD_FAULTS)
def test_what_a_broker_fails_on_when_it_loads_a_log(
    file: LoadFile, version: Version, severity: str | None, code: str | None
) -> None:
    fault = LoadFault(file, "orders-0/00000000000000000000.txnindex", "it is a directory")
    found = said(facts(seen(load_faults=(fault,)), seen("/d2")), version)
    path = "/d1/orders-0/00000000000000000000.txnindex"
    assert found == ([(severity, code, path)] if severity is not None else [])


@pytest.mark.parametrize(("version", "severity"), [((4, 1, 0), "fatal"), ((3, 7, 0), "fatal"), (NEW, "warning")])
def test_a_snapshot_that_the_log_can_spare_is_not_there(version: Version, severity: str) -> None:
    fault = MetadataFault(MetadataFile.LOST_SNAPSHOT, f"{METADATA_DIR}/x.checkpoint", "it is a symlink")
    found = said(facts(seen(metadata_faults=(fault,)), seen("/d2")), version)
    assert found == [(severity, "broken-metadata-log", f"/d1/{METADATA_DIR}/x.checkpoint")]


METADATA_PLACES = [
    (LoadFile.SWAP, f"{METADATA_DIR}/00000000000000000000.log.swap", "fatal"),
    (LoadFile.TORN_SWAP, f"{METADATA_DIR}/00000000000000000000.log.swap", "warning"),
    (LoadFile.LARGE, f"{METADATA_DIR}/00000000000000000000.log", "warning"),
    (LoadFile.PLACE, f"{METADATA_DIR}/leader-epoch-checkpoint", "fatal"),
    (LoadFile.PLACE, f"{METADATA_DIR}/00000000000000000000.log", "fatal"),
    (LoadFile.AHEAD, f"{METADATA_DIR}/00000000000000000000.txnindex", "warning"),
    (LoadFile.PLACE, f"{METADATA_DIR}/00000000000000000007.snapshot", "warning"),
    (LoadFile.PLACE, ".lock", "fatal"),
]


@pytest.mark.parametrize("controller_only", [False, True])
@pytest.mark.parametrize(("file", "name", "severity"), METADATA_PLACES)
def test_the_metadata_log_needs_its_files_as_a_partition_does(
    file: LoadFile, name: str, severity: str, controller_only: bool
) -> None:
    """Of every node in KRaft mode, where no partition counts too; said once."""
    fault = LoadFault(file, name, "it is x")
    log_dir = seen("/meta", holds_logs=False, holds_metadata=True, metadata_only=True, load_faults=(fault,))
    all_of_it = facts(seen(), seen("/d2"), log_dir)
    node = replace(all_of_it.server, metadata_log_dir="/meta", controller_only=controller_only)
    code = "not-a-file" if file in (LoadFile.PLACE, LoadFile.AHEAD) else "broken-segment"
    if file is LoadFile.PLACE:
        assert said(replace(all_of_it, server=node), (3, 9, 1)) == [("fatal", code, f"/meta/{name}")]
    assert said(replace(all_of_it, server=node)) == [(severity, code, f"/meta/{name}")]


def test_the_hint_on_a_foreign_txnindex_names_the_index_that_makes_the_broker_rebuild_both() -> None:
    fault = LoadFault(LoadFile.ABORTED, "orders-0/00000000000000000007.txnindex", "of version 1")
    (finding,) = check(facts(seen(load_faults=(fault,)), seen("/d2")), (4, 4, 0))
    assert "/d1/orders-0/00000000000000000007.index" in finding.why.hint


RESERVED = [(0, NEW, 1), (99, (3, 7, 0), 1), (100, NEW, 0), (1, (3, 6, 2), 0)]


@pytest.mark.parametrize(("number", "version", "fatal"), RESERVED)
def test_the_first_hundred_directory_ids_are_reserved(number: int, version: Version, fatal: int) -> None:
    found = facts(seen(meta=meta(directory_id=id_to_text(number.to_bytes(16, "big")))), seen("/d2"))
    assert [code for _, code, _ in said(found, version)] == ["reserved-directory-id"] * fatal


def test_a_first_snapshot_that_is_cut_off_stops_older_releases_only() -> None:
    fault = MetadataFault(MetadataFile.FIRST_SNAPSHOT, "__cluster_metadata-0/x.checkpoint", "it is empty", spare=False)
    for version, expected in (((4, 2, 2), ["broken-metadata-log"]), ((4, 3, 1), []), ((4, 4, 0), [])):
        found = check(facts(replace(HERE, metadata_faults=(fault,))), version)
        assert [f.why.code for f in found] == expected
        assert [f for f in found if "move the file out" not in f.why.hint] == []
