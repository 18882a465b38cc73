"""`logagent check` on real log dirs: what it finds, what it leaves as it was, and disks that do not answer."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.advice.check.run_check import CheckReport, run_check
from logagent.advice.check.start_inspection import PartitionDirs, denied_in_log_dir
from logagent.base.linux.access import User, user_named
from logagent.base.records import Health
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from tests.command_line import run_here
from tests.disk.conftest import LoopFs, run
from tests.documents import assert_promised
from tests.fake_time import SetClock
from tests.host import Host
from tests.host_files import format_log_dir
from tests.hosts import OF_PLACES
from tests.kafka_answers import rows
from tests.needs import need_command, need_root

NOBODY = 65534
IDS = ("m7bNzFYLQbeZ0EKPgIz0zQ", "n7bNzFYLQbeZ0EKPgIz0zQ", "q7bNzFYLQbeZ0EKPgIz0zQ")
STRANGER = User(NOBODY, frozenset({NOBODY}), False, "nobody", "this test")


class CheckedHost(Host):
    """Log dirs and their `server.properties`, and `check` on them."""

    def has(self, log_dirs: str | None = None, more: str = "process.roles=broker\n") -> None:
        dirs = log_dirs if log_dirs is not None else ",".join(map(str, self.log_dirs))
        voters = "controller.quorum.voters=100@localhost:9093\n" if "process.roles" in more else ""
        self.properties.write_text(f"node.id=1\nlog.dirs={dirs}\n{more}{voters}")

    def make(self, name: str, where: Path | None = None) -> Path:
        return self.partition(name, {0: b"x" * 100}, log_dir=where, topic_id="Xs6gS0pIR5yNqcAe2bBqwQ")

    def check(self, *more: str, config: str = '[health]\nprobe_timeout = "5m"\n') -> tuple[int, dict[str, Any]]:
        """Exit status and document, without what concerns where the log dirs of the tests are."""
        status, document = self.check_all(*more, config=config)
        document["findings"] = [f for f in document["findings"] if f["code"] not in OF_PLACES]
        return status, document

    def check_all(self, *more: str, config: str = '[health]\nprobe_timeout = "5m"\n') -> tuple[int, dict[str, Any]]:
        """Exit status and document; the document is the one that is promised."""
        self.toml.write_text(config)
        ran = self.run("check", "--json", "--kafka-config", str(self.properties), "--kafka-version", "3.9.1", *more)
        document: dict[str, Any] = ran.json
        assert_promised(document, "check")
        return ran.status, document

    def report(self, ahead_ms: int = 0, *, about_to_start: bool = False) -> CheckReport:
        """The same from inside, with the clock `ahead_ms` milliseconds ahead."""
        self.configure()
        with self.session(clock=SetClock(ahead_ms), act=False) as session:
            report = run_check(session, timeout=300, about_to_start=about_to_start)
        left_out = OF_PLACES if not about_to_start else ("assignments-not-compared",)
        return replace(report, findings=tuple(f for f in report.findings if f.why.code not in left_out))


@pytest.fixture
def host(tmp_path: Path) -> CheckedHost:
    made = CheckedHost(tmp_path, node_id=1).format(*IDS[:2])
    made.has()
    return made


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`process(main_class, source, *arguments)`: a process with that word on its command line, ready on return."""
    with ExitStack() as stack:

        def start(main_class: str, source: str, *arguments: str | Path) -> subprocess.Popen[str]:
            child = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", source, main_class, *map(str, arguments)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            return child

        yield start


LOCK_EACH = """
import fcntl, sys
files = [open(path + "/.lock", "w") for path in sys.argv[2:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


def codes(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f["severity"], f["code"]) for f in document["findings"]]


def everything(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(p): p.lstat() for p in [root, *root.rglob("*")]}
    return {path: (s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for path, s in found.items()}


def test_where_log_dirs_are_is_seen_through_symlinks_and_by_the_mount_table(host: CheckedHost, loop_fs: LoopFs) -> None:
    """What is mounted below /tmp is not cleaned up with it."""
    own = loop_fs("tmpfs")
    format_log_dir(own / "d2", IDS[1], node_id=1)
    host.d2.joinpath("meta.properties").unlink()
    host.d2.rmdir()
    host.d2.symlink_to(own / "d2")
    status, document = host.check_all()
    assert [f["path"] for f in document["findings"] if f["code"] == "temporary-log-dir"] == [str(host.d1)]
    assert {f["code"] for f in document["findings"]} <= set(OF_PLACES)
    # No start fails for it: neither the exit status nor what is said before a start changes.
    assert status == 0 and host.report(about_to_start=True).findings == ()


def test_a_healthy_host_has_no_findings(host: CheckedHost) -> None:
    host.make("orders-0")
    before = everything(host.d1), everything(host.d2)
    status, document = host.check()
    assert (status, document["findings"]) == (0, [])
    assert [(d["path"], d["health"]) for d in document["log_dirs"]] == [
        (str(host.d1), "online"),
        (str(host.d2), "online"),
    ]
    assert [d for d in document["log_dirs"] if d["probe_ms"] <= 0] == []
    assert (everything(host.d1), everything(host.d2)) == before
    assert not (host.root / "state").exists()


def test_every_kind_of_fault_at_once(host: CheckedHost) -> None:
    (host.d1 / "bar").mkdir()
    (host.d1 / "elsewhere").write_text("")
    host.make("orders-0")
    host.make("orders-0", host.d2)
    odd = host.make("orders-1")
    (odd / "backup.log").write_text("")
    (odd / "12.log").write_text("")
    (odd / "backup.index").mkdir()
    (host.d2 / "zzz-0.0-delete").symlink_to(host.root)
    (host.d2 / "dangling").symlink_to("/nonexistent/x")
    (host.d2 / "recovery-point-offset-checkpoint").write_text("0\n1\nbroken\n")
    (host.d2 / ".logagent-recovery-point-offset-checkpoint").write_text("0\n")
    status, document = host.check()
    assert status == 6
    assert sorted(codes(document)) == [
        ("fatal", "broken-checkpoint"),
        ("fatal", "delete-through-link"),
        ("fatal", "duplicate-partition"),
        ("fatal", "odd-segment-file"),
        ("fatal", "unparsable-name"),
        ("info", "leftover-temp-file"),
    ]
    assert {f["path"] for f in document["findings"] if f["code"] == "odd-segment-file"} == {f"{odd}/backup.log"}
    assert host.check("--quick")[1]["findings"] == [f for f in document["findings"] if f["code"] != "odd-segment-file"]


def test_before_a_start_too_files_that_a_power_failure_leaves_empty_are_checked(host: CheckedHost) -> None:
    """`prestart` looks as `--quick` does, and has to know these as well."""
    log = host.d1 / "__cluster_metadata-0"
    log.mkdir()
    (log / "quorum-state").write_bytes(b"")
    (log / "backup.log").write_text("")
    (host.make("orders-0") / "leader-epoch-checkpoint").write_bytes(bytes(20))
    (host.d2 / "__cluster_metadata-0").mkdir()
    host.has(more="process.roles=broker\nmetadata.log.dir=" + str(host.d1) + "\n")
    for options in ([], ["--quick"]):
        status, document = host.check(*options)
        assert status == 6
        assert {(f["code"], f["path"]) for f in document["findings"]} == {
            ("broken-metadata-log", f"{log}/quorum-state"),
            ("odd-segment-file", f"{log}/backup.log"),
            ("broken-epochs", f"{host.d1}/orders-0/leader-epoch-checkpoint"),
            ("stray-metadata-log", f"{host.d2}/__cluster_metadata-0"),
        }


def test_a_setting_on_the_brokers_command_line_is_named(host: CheckedHost, process: Callable[..., Any]) -> None:
    source = LOCK_EACH.replace("sys.argv[2:]", "sys.argv[5:]")
    override = ["--override", "metadata.log.dir=/data"]
    child = process("kafka.Kafka", source, host.properties, *override, host.d1, host.d2)
    (finding,) = [f for f in host.check()[1]["findings"] if f["code"] == "broker-overrides"]
    assert finding["severity"] == "warning"
    assert f"process {child.pid} has --override metadata.log.dir=/data" in finding["says"]


def test_a_configuration_that_changed_since_the_start_is_said(host: CheckedHost, process: Callable[..., Any]) -> None:
    process("kafka.Kafka", LOCK_EACH, host.d1, host.d2)
    assert "config-changed" not in {code for _, code in codes(host.check()[1])}
    later = time.time_ns() + 3 * 3600 * 10**9
    os.utime(host.properties, ns=(later, later))
    (finding,) = [f for f in host.check()[1]["findings"] if f["code"] == "config-changed"]
    assert finding["severity"] == "warning" and finding["path"] == str(host.properties)
    assert "changed 3 h after the broker started: what runs may differ" in finding["says"]
    # What starts now takes the file as it is.
    assert "config-changed" not in {f.why.code for f in host.report(about_to_start=True).findings}


def test_a_controller_has_no_findings_that_only_concern_brokers(host: CheckedHost, process: Callable[..., Any]) -> None:
    host.has(more=f"process.roles=controller\nmetadata.log.dir={host.d2}/meta\n")
    format_log_dir(host.d2 / "meta", IDS[2], node_id=1)
    (host.d1 / "lost+found").mkdir()
    (host.d1 / "recovery-point-offset-checkpoint").write_text("0\n1\nbroken\n")
    process("backup", LOCK_EACH, host.d1)
    status, document = host.check()
    assert (status, document["findings"]) == (0, [])


def test_people_see_what_and_what_to_do(host: CheckedHost) -> None:
    (host.d1 / "evil\x1b[31m\nname").mkdir()
    options = ["--kafka-config", str(host.properties), "--state-dir", str(host.state)]
    ran = run_here("check", *options)
    assert ran.status == 6
    assert "unparsable-name" in ran.out and "move it out of the log dir" in ran.out
    assert "\\x1b[31m" in ran.out and "\x1b[31m" not in ran.out
    assert "1 fatal" in ran.err
    assert "every supported release of Kafka" in ran.out


def test_a_release_can_be_asked_about(host: CheckedHost) -> None:
    (host.d1 / "zzz-0.0123456789abcdef0123456789abcdef-stray").mkdir()
    assert host.check()[0] == 0
    status, document = host.check("--kafka-version", "3.6.0")
    assert (status, codes(document), document["kafka_version"]) == (6, [("fatal", "stray-unsupported")], "3.6.0")
    assert document["findings"][0]["kafka_versions"] == "< 3.6.1"


@pytest.mark.parametrize("bad", ["--kafka-version=new", "--broker-user=no-such-user"])
def test_wrong_options_are_reported(host: CheckedHost, bad: str) -> None:
    options = ["--kafka-config", str(host.properties), "--state-dir", str(host.state)]
    ran = run_here("check", *options, bad)
    assert ran.status in (2, 78) and bad.partition("=")[2] in ran.err


def test_a_hung_disk_is_offline_and_the_other_is_checked(host: CheckedHost, loop_fs: LoopFs) -> None:
    need_command("fsfreeze")
    frozen = loop_fs("ext4", options="-E lazy_itable_init=0")
    format_log_dir(frozen, IDS[2], node_id=1)
    (frozen / "lost+found").rmdir()
    (host.d1 / "bar").mkdir()
    host.has(f"{host.d1},{frozen}")
    run("fsfreeze", "-f", frozen)
    try:
        status, document = host.check(config='[health]\nprobe_timeout = "300ms"\n')
    finally:
        run("fsfreeze", "-u", frozen)
    assert status == 5
    assert [(d["health"], d["reason"]) for d in document["log_dirs"]] == [
        ("online", None),
        ("offline", "it did not answer within 0.3 s"),
    ]
    assert codes(document) == [("fatal", "unparsable-name"), ("fatal", "log-dir-failed")]


def test_a_failed_disk_is_offline(host: CheckedHost, loop_fs: LoopFs) -> None:
    need_command("xfs_io")
    point = loop_fs("xfs")
    format_log_dir(point, IDS[2], node_id=1)
    host.has(f"{host.d1},{point}")
    run("sync")
    run("xfs_io", "-x", "-c", "shutdown", point)
    status, document = host.check()
    assert status == 5
    assert codes(document) == [("fatal", "log-dir-failed")]
    assert document["log_dirs"][1]["health"] == "offline"


def test_full_and_read_only_are_not_offline(host: CheckedHost, loop_fs: LoopFs) -> None:
    full, read_only = loop_fs("tmpfs", size=1 << 20), loop_fs("ext4")
    (read_only / "lost+found").rmdir()
    format_log_dir(full, IDS[2], node_id=1)
    format_log_dir(read_only, IDS[1], node_id=1)
    fd = os.open(full / "ballast", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(fd, b"x" * 4096)
    os.close(fd)
    run("mount", "-o", "remount,ro", read_only)
    host.has(f"{full},{read_only}")
    status, document = host.check()
    assert status == 6
    assert [d["health"] for d in document["log_dirs"]] == ["full", "read-only"]
    assert sorted(codes(document)) == [("fatal", "full"), ("fatal", "read-only")]


def test_missing_and_wrong_paths(host: CheckedHost) -> None:
    (host.root / "file").write_text("")
    (host.root / "dangling").symlink_to("/nonexistent/x")
    host.has(",".join(str(host.root / name) for name in ("d1", "missing", "file", "dangling")))
    status, document = host.check()
    assert status == 5
    assert {(f["code"], Path(f["path"]).name) for f in document["findings"]} == {
        ("log-dir-missing", "missing"),
        ("log-dir-not-a-directory", "file"),
        ("log-dir-missing", "dangling"),
    }


def test_the_metadata_dir_counts_too(host: CheckedHost, process: Callable[..., Any]) -> None:
    meta = host.root / "meta"
    format_log_dir(meta, IDS[2], node_id=1)
    host.has(more=f"process.roles=broker,controller\nmetadata.log.dir={meta}\n")
    assert codes(host.check()[1]) == []
    process("backup", LOCK_EACH, meta)
    status, document = host.check()
    assert (status, codes(document)) == (6, [("fatal", "lock-held")])
    assert document["findings"][0]["path"] == f"{meta}/.lock"
    assert [d["path"] for d in document["log_dirs"]] == [str(host.d1), str(host.d2)]


def test_what_the_brokers_user_may_not_do_in_the_metadata_dir(host: CheckedHost) -> None:
    need_root()
    meta = host.root / "meta"
    format_log_dir(meta, IDS[2], node_id=1)
    host.has(more=f"process.roles=broker,controller\nmetadata.log.dir={meta}\n")
    for path in (host.d1, host.d2, meta):
        run("chown", "-R", f"{NOBODY}:{NOBODY}", path)
    assert codes(host.check()[1]) == []
    run("chown", "root:root", meta / "meta.properties")
    (meta / "meta.properties").chmod(0o600)
    status, document = host.check()
    assert (status, codes(document)) == (6, [("fatal", "access-denied")])
    assert document["findings"][0]["path"] == f"{meta}/meta.properties"


def test_a_log_dir_or_partition_that_nobody_may_change_is_offline_after_a_start(host: CheckedHost) -> None:
    """So with 3.9.1, 4.3.1 and 4.4.0, which have to write `leader-epoch-checkpoint.tmp`; a stray they leave alone."""
    need_root()
    need_command("chattr")
    partition, stray = host.make("orders-7"), host.make(f"orders-8.{'a' * 32}-stray")
    try:
        run("chattr", "+i", stray)
        assert codes(host.check()[1]) == []
        for path in (partition, partition.parent):
            run("chattr", "+i", path)
            status, document = host.check()
            assert (status, codes(document)) == (6, [("fatal", "access-denied")])
            says = {name: document["findings"][0][name] for name in ("path", "hint")}
            assert says == {"path": str(path), "hint": f"as root: chattr -ia {path}"}
            run("sh", "-c", says["hint"].removeprefix("as root: "))
            assert codes(host.check()[1]) == []
    finally:
        run("chattr", "-i", partition.parent, partition, stray)


def test_the_broker_itself_is_no_obstacle_until_the_start(host: CheckedHost, process: Callable[..., Any]) -> None:
    process("kafka.Kafka", LOCK_EACH, host.d1, host.d2)
    status, document = host.check()
    assert (status, codes(document)) == (0, [("info", "broker-running")])
    about = host.report(about_to_start=True)
    assert [(f.severity.value, f.why.code) for f in about.findings] == [("fatal", "lock-held")] * 2


def test_two_holders_are_not_the_broker(host: CheckedHost, process: Callable[..., Any]) -> None:
    process("kafka.Kafka", LOCK_EACH, host.d1)
    process("kafka.Kafka", LOCK_EACH, host.d2)
    status, document = host.check()
    assert (status, codes(document)) == (6, [("fatal", "lock-held")] * 2)


def test_a_holder_that_is_no_kafka_is_in_the_way(host: CheckedHost, process: Callable[..., Any]) -> None:
    process("backup", LOCK_EACH, host.d1, host.d2)
    assert codes(host.check()[1]) == [("fatal", "lock-held")] * 2


def test_a_lock_without_a_process_number_is_not_taken_for_the_brokers(host: CheckedHost) -> None:
    """As of another container, or of an NFS client that is dead: no broker starts."""
    with ExitStack() as held:
        for log_dir in (host.d1, host.d2):
            file = held.enter_context((log_dir / ".lock").open("w"))
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        status, document = host.check()
    assert (status, codes(document)) == (6, [("fatal", "lock-held")] * 2)
    assert "not visible here" in document["findings"][0]["says"] and "a start now fails" in str(document["findings"])


def test_a_log_dir_that_the_running_broker_gave_up(host: CheckedHost, process: Callable[..., Any]) -> None:
    child = process("kafka.Kafka", LOCK_EACH, host.d1)
    # Right after its start it may not have come to the second one yet.
    assert [f.why.code for f in host.report().findings] == ["broker-running"]
    report = host.report(ahead_ms=60_000)
    assert [f.why.code for f in report.findings] == ["given-up", "broker-running"]
    assert [(d.health, d.reason) for d in report.log_dirs] == [
        (Health.ONLINE, None),
        (Health.OFFLINE, f"the running broker (process {child.pid}) gave it up"),
    ]


def test_a_process_with_an_unlinked_lock_is_reported(host: CheckedHost, process: Callable[..., Any]) -> None:
    process("kafka.Kafka", LOCK_EACH, host.d1, host.d2)
    (host.d1 / ".lock").unlink()
    (host.d2 / ".lock").unlink()
    assert codes(host.check()[1]) == [("warning", "hidden-holder")] * 2


def test_what_the_brokers_user_may_not_do(host: CheckedHost) -> None:
    need_root()
    for path in (host.d1, host.d2):
        run("chown", "-R", f"{NOBODY}:{NOBODY}", path)
    good, bad = host.make("orders-0"), host.make("orders-1")
    run("chown", "-R", f"{NOBODY}:{NOBODY}", good, bad)
    assert host.check()[1]["findings"] == []
    run("chown", "root:root", bad / "00000000000000000000.log")
    run("chown", "root:root", good / "partition.metadata")
    status, document = host.check()
    (finding,) = document["findings"]
    assert (status, finding["code"], finding["path"]) == (6, "access-denied", f"{bad}/00000000000000000000.log")
    assert f"{bad}/00000000000000000000.log (write; owner 0:0, mode 644)" in finding["says"]
    assert host.check("--broker-user", "root")[1]["findings"] == []
    (status, document) = host.check("--broker-user", "12345")
    assert (status, codes(document)) == (6, [("fatal", "access-denied")] * 2)


ROOT_FILES = [
    ("meta.properties", 0o600, "read"),
    ("recovery-point-offset-checkpoint", 0o600, "read"),
    ("recovery-point-offset-checkpoint.tmp", 0o644, "write"),
    (".lock", 0o644, "write"),
    (".", 0o755, "write"),
    (".", 0o700, "read and write and search"),
]


@pytest.mark.parametrize(("name", "mode", "lacks"), ROOT_FILES)
def test_plain_files_that_a_start_needs(host: CheckedHost, name: str, mode: int, lacks: str) -> None:
    need_root()
    path = host.d1 / name
    if name != ".":
        path.touch()
        run("chown", f"{NOBODY}:{NOBODY}", host.d1)
    path.chmod(mode)
    with OpenLogDir(str(host.d1), LogDirFailures()) as opened:
        found = list(denied_in_log_dir(opened, STRANGER))
    assert [(d.path, d.wants) for d in found if d.path == os.path.normpath(path)] == [(os.path.normpath(path), lacks)]


def test_access_by_group_counts(host: CheckedHost) -> None:
    need_root()
    partition = host.make("orders-0")
    run("chown", "-R", "root:12345", partition)
    for path in [partition, *partition.iterdir()]:
        path.chmod(0o770 if path.is_dir() else 0o660)
    for gids, denied in ((frozenset({12345}), 0), (frozenset({1}), 3)):
        with OpenLogDir(str(host.d1), LogDirFailures()) as opened:
            partitions = PartitionDirs(opened, User(NOBODY, gids, False, "nobody", "this test"))
            partitions.inspect(["orders-0"])
        assert len(partitions.denied) == denied


def test_an_access_list_is_not_guessed_at(host: CheckedHost) -> None:
    need_root()
    partition = host.make("orders-0")
    partition.chmod(0o700)
    with OpenLogDir(str(host.d1), LogDirFailures()) as opened:
        partitions = PartitionDirs(opened, STRANGER)
        partitions.inspect(["orders-0"])
    assert str(partition) in [d.path for d in partitions.denied]
    # Version 2; owner rwx, user 65534 rwx, group none, mask rwx, others none (linux/posix_acl_xattr.h).
    entries = ((0x01, 7, 0xFFFFFFFF), (0x02, 7, NOBODY), (0x04, 0, 0xFFFFFFFF), (0x10, 7, 0xFFFFFFFF))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in (*entries, (0x20, 0, 0xFFFFFFFF)))
    os.setxattr(partition, "system.posix_acl_access", acl)
    with OpenLogDir(str(host.d1), LogDirFailures()) as opened:
        partitions = PartitionDirs(opened, STRANGER)
        partitions.inspect(["orders-0"])
    assert str(partition) not in [d.path for d in partitions.denied]


def test_run_by_a_stranger_it_says_what_it_could_not_see(host: CheckedHost) -> None:
    """As a user who may list the log dirs, but not look into the partition directories."""
    need_root()
    host.make("orders-0").chmod(0o700)
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        status = 1
        try:
            with OpenLogDir("/proc/self/cwd", LogDirFailures()) as opened:
                partitions = PartitionDirs(opened, user_named("root"))
                partitions.inspect(["orders-0"])
            status = 0 if partitions.not_seen == ["orders-0"] else 2
        finally:
            os._exit(status)
    _, waited = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(waited) == 0


@pytest.fixture(autouse=True)
def in_the_log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user cannot reach a test's directory by its path; the working directory it inherits, it can."""
    (tmp_path / "d1").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "d1")


def test_our_own_lock_file_is_never_made(host: CheckedHost) -> None:
    host.check()
    assert not (host.d1 / ".lock").exists()
    with (host.d1 / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        inode = os.fstat(file.fileno()).st_ino
        host.check()
        assert (host.d1 / ".lock").stat().st_ino == inode


LOADED = rows("load_logs")


@pytest.mark.parametrize("row", LOADED, ids=[row["id"] for row in LOADED])
def test_kafkas_own_answers_on_whole_log_dirs(tmp_path: Path, row: dict[str, Any]) -> None:
    """`LogManager.loadLogs` of 3.9.1 without a cluster, so as in ZooKeeper mode: what it refuses is fatal here."""
    log_dirs = [tmp_path / f"kafka{number}" for number in range(len(row["log_dirs"]))]
    for log_dir, entries in zip(log_dirs, row["log_dirs"], strict=True):
        log_dir.mkdir()
        for entry in entries:
            if "dir" in entry:
                (log_dir / entry["dir"]).mkdir()
            elif "link" in entry:
                (tmp_path / "target").mkdir()
                (log_dir / entry["link"]).symlink_to(tmp_path / "target")
            else:
                (log_dir / entry.get("file", entry.get("name"))).write_text(entry.get("text", ""))
    host = CheckedHost(tmp_path, *log_dirs)
    host.has(more="")
    status, document = host.check()
    refused = "error" in row or row["dir_marked_offline"]
    fatal = {f["code"] for f in document["findings"] if f["severity"] == "fatal"}
    assert (status == 6) is bool(fatal)
    # This one loads, and goes wrong as soon as the copy has caught up (tests/broker/check/test_damages.py).
    assert bool(fatal - {"future-beside-current"}) is refused, document["findings"]


def test_there_are_answers_of_both_kinds() -> None:
    assert len(LOADED) == 38
    assert 0 < sum("error" in row for row in LOADED) < 38
