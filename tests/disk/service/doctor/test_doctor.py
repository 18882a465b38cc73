"""`logagent doctor` on hosts where the thing it finds is really so: files, rights, mounts, disks, state dirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from logagent.cleanup.state.journal import Journal
from logagent.kafka.identity import JournalHost
from logagent.store.signing import PrivateKey
from tests.command_line import Ran, run_here
from tests.disk.doctor_host import D1, D2, DISK, PROPERTIES, STATE, TOML, UNIT, Diagnosis, DoctorHost, doctor_host
from tests.disk.failing import hanging_fs
from tests.documents import assert_promised
from tests.host_files import CLUSTER_ID, DIRECTORY_IDS, format_log_dir
from tests.private_host import KAFKA_UID, OTHER_UID

OVERRIDE = "/etc/systemd/system/logagent.service.d/override.conf"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DoctorHost]:
    with doctor_host(tmp_path / "host") as made:
        yield made


def tree(top: Path) -> dict[str, tuple[int, ...]]:
    """Everything below `top`: mode, owner, size, times."""
    found: dict[str, tuple[int, ...]] = {}
    for folder, names, files in os.walk(top):
        for name in (*names, *files, "."):
            path = os.path.normpath(os.path.join(folder, name))
            seen = os.lstat(path)
            found[path] = (seen.st_mode, seen.st_uid, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return found


def test_where_all_is_well_it_says_so_and_changes_nothing(host: DoctorHost) -> None:
    host.write("/usr/lib/systemd/system/logagent.service", UNIT)
    before = {top: tree(host.path(top)) for top in (DISK, "/etc", "/var/lib", "/usr/lib/systemd")}
    as_root, as_kafka = host.diagnose(), host.diagnose(user="kafka")
    assert {top: tree(host.path(top)) for top in before} == before
    for said in (as_root, as_kafka):
        # The fixture is old and its broker stopped: what it says of assignments holds no longer.
        assert (said.status, said.codes("fails"), said.codes("warning")) == (0, set(), {"assignments-stopped"})
        assert_promised(said.document, "doctor")
        schema = run_here("schema", "doctor").json
        jsonschema.validate(said.document, schema, cls=jsonschema.Draft202012Validator)
        assert said.document["user"]["name"] == "kafka"
        assert [d["path"] for d in said.document["log_dirs"]] == [D1, D2]
        assert said.document["kafka_version"] == "3.9.1"
    # What one user sees is what root says of that user.
    assert as_root.codes("works") == as_kafka.codes("works")
    assert as_root.document["user"]["how"] == "the user of logagent.service"


def run_apart_on(host: DoctorHost, *words: str) -> Ran:
    """In a process that starts as an operator's does."""
    done = host.run(*host.logagent_command(*words), check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_the_table_for_people_names_file_line_and_change(host: DoctorHost) -> None:
    host.own(D1, OTHER_UID)
    host.path(D1).chmod(0o700)
    ran = run_apart_on(host, "doctor", "--no-color")
    assert ran.status == 1
    assert f"fails     log dirs        user kafka lacks read and write and search permission on {D1}" in ran.out
    assert "→ the broker's user needs the same" in ran.out and "as root:" in ran.out
    assert f"chown kafka {D1}" in ran.out
    assert "Traceback" not in ran.err and ran.err.splitlines()[-1] == "1 not working, 1 to improve, 11 working"


def test_without_systemd_as_in_a_container_no_unit_counts(host: DoctorHost) -> None:
    host.write("/usr/lib/systemd/system/logagent.service", UNIT.replace("User=kafka", "User=mallory"))
    host.configure(kafka__version=None)
    assert "not-the-service" in host.diagnose(user="kafka").codes("warning")
    said = Diagnosis(*host.doctor(user="kafka"))
    assert said.document["service"] is None
    assert [f for f in said.findings if f["area"] == "service" or "systemctl" in json.dumps(f)] == []


# Rights


def test_the_root_of_a_volume_may_belong_to_root_where_the_group_may_write(host: DoctorHost) -> None:
    """What fsGroup makes of it. A directory below belongs to who made it."""
    host.run("cp", "-a", D1, "/srv/copy")
    host.run("mount", "-t", "tmpfs", "-o", f"uid=0,gid={KAFKA_UID},mode=2770", "tmpfs", D1)
    host.run("sh", "-c", f"cp -a /srv/copy/. {D1}; chown 0:{KAFKA_UID} {D1}; chmod 2770 {D1}; rm -r /srv/copy")
    host.write(PROPERTIES, host.path(PROPERTIES).read_text() + f"\nlog.dirs={D1}\n")
    assert not {"other-owner", "no-access"} & host.diagnose(user="kafka").codes()
    host.run("umount", D1)
    os.chown(host.path(D1), 0, KAFKA_UID)
    host.path(D1).chmod(0o2770)
    assert "other-owner" in host.diagnose(user="kafka").codes()


def test_a_log_dir_of_another_user(host: DoctorHost) -> None:
    host.own(D2, OTHER_UID)
    host.path(D2).chmod(0o700)
    for user in (None, "kafka"):
        said = host.diagnose(user=user)
        assert said.status == 1
        assert said.change("no-access")["line"] == f"chown kafka {D2}"
        assert said.of("no-access")["path"] == D2
    # To whom it belongs, as long as no broker runs, is who the broker is.
    host.own(DISK, OTHER_UID)
    said = host.diagnose()
    change = said.change("other-owner")
    assert (change["file"], change["section"], change["line"]) == (OVERRIDE, "Service", "User=mallory")


def test_the_line_that_names_the_user_is_found(host: DoctorHost) -> None:
    host.own(DISK, OTHER_UID)
    file = host.write("/etc/systemd/system/logagent.service.d/who.conf", "[Service]\n# ours\nUser=kafka\n")
    change = host.diagnose().change("other-owner")
    assert (change["file"], change["number"], change["line"]) == (file, 3, "User=mallory")


def test_a_directory_above_that_is_closed(host: DoctorHost) -> None:
    host.path(DISK).chmod(0o700)
    os.chown(host.path(DISK), 0, 0)
    said = host.diagnose()
    assert {f["path"] for f in said.findings if f["code"] == "parent-closed"} == {D1, D2}
    changes = {f["change"]["line"] for f in said.findings if f["code"] == "parent-closed"}
    assert changes == {f"chmod o+x {DISK}"}


def test_a_directory_that_root_made_in_a_log_dir(host: DoctorHost) -> None:
    made = host.path(D1) / "made-by-root-0"
    made.mkdir(mode=0o755)
    said = host.diagnose()
    assert said.of("foreign-directory")["path"] == f"{D1}/made-by-root-0"
    assert said.change("foreign-directory")["line"] == f"chown -R --reference={D1} {D1}"
    assert said.status == 1


def test_files_that_the_user_cannot_read(host: DoctorHost) -> None:
    host.write("/etc/logagent/client.properties", "security.protocol=SSL\n", 0o600)
    host.write("/mnt/store/x", "")
    settings = {"kafka__client": "/etc/logagent/client.properties", "metrics__textfile": "/var/lib/node/x.prom"}
    host.configure(**settings, publish__store="/mnt/store")
    host.path(PROPERTIES).chmod(0o600)
    said = host.diagnose("--user", "kafka")
    closed = {f["path"]: f["change"]["line"] for f in said.findings if f["code"] == "file-closed"}
    assert closed == {
        PROPERTIES: f"setfacl -m u:kafka:r {PROPERTIES}",
        "/etc/logagent/client.properties": "setfacl -m u:kafka:r /etc/logagent/client.properties",
        "/mnt/store": "setfacl -m u:kafka:w /mnt/store",
    }
    assert said.of("file-missing")["path"] == "/var/lib/node"


def test_an_agent_that_can_write_no_answers(host: DoctorHost) -> None:
    """The fleet's requests are read, and what it did is written, where the store has such a folder already."""
    store, key = "/mnt/fleet", PrivateKey("ops", b"\x01" * 32).public()
    for folder in ("landing", "control"):
        host.path(f"{store}/{folder}").mkdir(parents=True)
    host.own(store)
    host.configure(publish__store=store, orders__keys=[key])
    said = host.diagnose()
    assert "file-missing" not in said.codes() and "file-closed" not in said.codes()
    host.path(f"{store}/answers").mkdir()
    assert host.diagnose().of("file-closed")["path"] == f"{store}/answers"


def test_only_root_checks_as_another_user(host: DoctorHost) -> None:
    ran = host.logagent("doctor", "--user", "mallory", user="kafka")
    assert ran.status == 2 and "only root can check as user mallory" in ran.err
    ran = host.logagent("doctor", "--user", "nobody-at-all")
    assert ran.status == 2 and "nobody-at-all" in ran.err
    said = host.diagnose("--user", "mallory")
    assert said.document["user"]["name"] == "mallory" and "no-access" in said.codes()
    assert "not-the-service" in said.codes("warning")


# Mounts and disks


def test_a_read_only_bind_mount(host: DoctorHost) -> None:
    host.run("mount", "--bind", D1, D1)
    host.run("mount", "-o", "remount,bind,ro", D1)
    said = host.diagnose()
    assert said.codes() == {"read-only-mount"}
    assert said.change("read-only-mount")["line"] == f"mount -o remount,bind,rw {D1}"
    # The line does what it says.
    host.run("sh", "-c", said.change("read-only-mount")["line"])
    assert host.diagnose().status == 0


def test_a_file_system_that_became_read_only(host: DoctorHost) -> None:
    host.run("mount", "-t", "tmpfs", "tmpfs", D2)
    format_log_dir(host.path(D2))
    host.run("mount", "-o", "remount,ro", D2)
    assert "read-only" in host.diagnose().codes()


def test_log_dirs_that_are_full_missing_or_not_formatted(host: DoctorHost) -> None:
    host.run("mount", "-t", "tmpfs", "-o", f"size=1m,uid={KAFKA_UID},gid={KAFKA_UID},mode=700", "tmpfs", D2)
    (host.path(D2) / "meta.properties").write_bytes((host.path(D1) / "meta.properties").read_bytes())
    host.run("sh", "-c", f"cat /dev/zero > {D2}/filler", check=False)
    said = host.diagnose()
    assert (said.codes("warning") & {"full"}, said.of("full")["path"]) == ({"full"}, D2)
    host.run("umount", D2)
    host.run("mv", D2, f"{D2}.away")
    host.path(D2).mkdir()
    os.chown(host.path(D2), KAFKA_UID, KAFKA_UID)
    assert host.diagnose().of("unformatted")["path"] == D2
    host.path(D2).rmdir()
    said = host.diagnose()
    assert (said.status, said.of("log-dir-missing")["path"]) == (1, D2)


def test_a_disk_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    healthy = format_log_dir(tmp_path / "d1")
    with hanging_fs(tmp_path / "fs") as fs:
        log_dir = format_log_dir(fs.point / "d2", DIRECTORY_IDS[1])
        (tmp_path / "state").mkdir()
        with Journal.open(str(tmp_path / "state")) as journal:
            journal.note_host(JournalHost(CLUSTER_ID, 3, frozenset({DIRECTORY_IDS[1]})))
        properties = tmp_path / "server.properties"
        properties.write_text(f"node.id=3\nprocess.roles=broker\nlog.dirs={healthy},{log_dir}\n")
        # Even to look at what somebody has open there would hang.
        with (log_dir / "held.log").open("wb") as held:
            holder = subprocess.Popen(["sleep", "600"], stdout=held)
        fs.hang()
        try:
            ran = run_here(
                "doctor", "--json", "--kafka-config", str(properties), "--state-dir", str(tmp_path / "state")
            )
        finally:
            fs.wake()
            holder.kill()
            holder.wait(60)
        states = {(f["code"], f["path"]) for f in ran.json["findings"] if f["area"] == "log dirs"}
        assert states == {("log-dir", str(healthy)), ("log-dir-hangs", str(log_dir))}
        assert ran.status == 1
        assert "journal-foreign" not in {f["code"] for f in ran.json["findings"]}, "the log dir that it knows may hang"


def test_hidepid_hides_other_users_processes(host: DoctorHost) -> None:
    host.write("/etc/fstab", "proc /proc proc rw,hidepid=2 0 0\n")
    host.run("mount", "-o", "remount,hidepid=2", "/proc")
    said = host.diagnose()
    change = said.change("hidepid")
    assert (change["file"], change["number"], change["line"]) == ("/etc/fstab", 1, "proc /proc proc rw 0 0")
    assert change["then"] == "mount -o remount,hidepid=0 /proc"
    # A group that may see everything is the better way where there is one.
    host.write("/etc/group", host.path("/etc/group").read_text() + "seers:x:6099:\n")
    host.run("mount", "-o", "remount,hidepid=2,gid=6099", "/proc")
    change = host.diagnose().change("hidepid")
    assert (change["file"], change["line"]) == (OVERRIDE, "SupplementaryGroups=seers")
    host.run("mount", "-o", "remount,hidepid=0", "/proc")
    assert host.diagnose().codes("warning") == {"assignments-stopped"}


LOCKER = """
import fcntl, sys
file = open(sys.argv[1] + "/.lock", "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
__import__("time").sleep(3600)
"""


def test_a_stranger_who_holds_a_log_dir(host: DoctorHost) -> None:
    with host.process(sys.executable, "-c", LOCKER, D1, user="kafka") as pid:
        said = host.diagnose()
        assert said.of("other-holder")["path"] == D1
        assert said.document["log_dirs"][0]["holder"]["pid"] == pid
        assert said.status == 1


def test_who_became_the_brokers_user_is_no_broker(host: DoctorHost) -> None:
    """`sudo -u kafka logagent`: what stands above runs as root, cannot be read, and looks like a broker's JVM."""
    java = "import subprocess, sys, time; open('/proc/self/comm', 'w').write('java')"
    become = ["setpriv", "--reuid=kafka", "--regid=kafka", "--init-groups", *host.logagent_command("doctor", "--json")]
    above = f"{java}; sys.exit(subprocess.call({become!r}))"
    ran = host.run(sys.executable, "-c", above, "kafka.Kafka", check=False)
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["user"]["name"]) == (0, "kafka"), ran.stdout
    assert not [f for f in document["findings"] if f["code"] == "holder-unreadable"]
    # The same beside us and not above us may be the broker.
    beside = f"{java}; print('ready', flush=True); time.sleep(3600)"
    with host.process(sys.executable, "-c", beside, "kafka.Kafka"):
        assert "holder-unreadable" in host.diagnose(user="kafka").codes()


# The state dir


def test_a_state_dir_that_cannot_be_used(host: DoctorHost) -> None:
    host.own(STATE, OTHER_UID)
    host.path(STATE).chmod(0o700)
    assert host.diagnose().change("state-closed")["line"] == f"chown -R kafka {STATE}"
    host.own(STATE)
    said = host.diagnose("--state-dir", f"{D1}/state")
    assert said.of("state-in-log-dir")["path"] == f"{D1}/state"
    assert said.of("other-state-dir")["hint"] == f"add --state-dir {STATE}"
    host.run("mount", "-t", "tmpfs", "-o", f"size=64k,uid={KAFKA_UID}", "tmpfs", STATE)
    host.run("sh", "-c", f"cat /dev/zero > {STATE}/filler", check=False)
    said = host.diagnose()
    assert said.codes() == {"state-full"}
    assert said.change("state-full")["line"].splitlines() == [
        "install -d -m 0750 -o kafka /run/logagent",
        "logagent rescue --state-dir /run/logagent",
    ]
    host.run("mount", "-o", "remount,size=2m", STATE)
    said = host.diagnose()
    assert (said.codes(), "no-reserve" in said.codes("warning")) == (set(), True)


@pytest.mark.parametrize(("schema", "code"), [(99, "journal-newer"), (1, "journal-older")])
def test_a_journal_of_another_schema(host: DoctorHost, schema: int, code: str) -> None:
    script = f"CREATE TABLE x (y); PRAGMA user_version={schema}"
    made = f"import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript('{script}')"
    host.run(sys.executable, "-c", made, f"{STATE}/journal.db")
    host.own(STATE)
    assert host.diagnose().codes() == {code}
    assert sorted(p.name for p in host.path(STATE).iterdir()) == ["journal.db"]


def write_journal(host: DoctorHost, script: str) -> None:
    """SQLite finds no file through `/proc/PID/root`: it is run inside."""
    made = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"
    host.run(sys.executable, "-c", made, f"{STATE}/journal.db", script)
    host.own(STATE)


def a_journal(host: DoctorHost) -> Path:
    """As a command of this host leaves it."""
    assert host.logagent("cleanup", "--execute", user="kafka").status in (0, 3)  # 3: the disk has strays that stay
    return host.path(f"{STATE}/journal.db")


def of_text(host: DoctorHost, journal: Path) -> None:
    journal.write_bytes(b"SQLite format 3\0" + b"x" * 5000)


def cut_short(host: DoctorHost, journal: Path) -> None:
    journal.write_bytes(journal.read_bytes()[:6000])


def with_a_row_of_nonsense(host: DoctorHost, journal: Path) -> None:
    write_journal(host, "INSERT INTO failures VALUES ('/d', 'x', 'not a number', 1, '')")


@pytest.mark.parametrize("damage", [of_text, cut_short, with_a_row_of_nonsense])
def test_a_damaged_journal(host: DoctorHost, damage: Callable[[DoctorHost, Path], None]) -> None:
    """Nothing could act any more, and doctor said that the journal exists."""
    damage(host, journal := a_journal(host))
    assert host.logagent("cleanup", "--execute", user="kafka").status == 1
    for leftover in journal.parent.glob("journal.db-*"):
        leftover.unlink()
    said = host.diagnose()
    assert said.codes() == {"journal-damaged"} and "move the journal away" in said.of("journal-damaged")["hint"]
    assert sorted(p.name for p in journal.parent.glob("journal.db*")) == ["journal.db"]
    # What somebody is writing may be elsewhere yet.
    journal.with_name("journal.db-wal").write_bytes(b"x")
    assert "journal-damaged" not in host.diagnose().codes()


def test_a_journal_of_another_host(host: DoctorHost) -> None:
    """A state dir that was copied with an image: every act was refused, and doctor called it working."""
    a_journal(host)
    assert host.diagnose().codes() == set()
    write_journal(host, "UPDATE host SET node_id = 77")
    said = host.diagnose()
    assert said.codes() == {"journal-foreign"} and "it is of node 77" in said.of("journal-foreign")["says"]
    assert "it is of node 77" in host.logagent("cleanup", "--execute", user="kafka").err
    # With one that cannot be read, that may be the one that the journal knows.
    write_journal(host, "UPDATE host SET node_id = 3, directory_ids = 'AnotherDirAnotherDirAA'")
    assert host.diagnose().codes() == {"journal-foreign"}
    host.path(f"{D2}/meta.properties").unlink()
    assert "journal-foreign" not in host.diagnose().codes()


def test_a_state_dir_in_which_nothing_can_be_made(host: DoctorHost) -> None:
    a_journal(host)
    host.run("mount", "--bind", STATE, STATE)
    host.run("mount", "-o", "remount,ro,bind", STATE)
    said = host.diagnose()
    assert said.codes() == {"state-unusable"} and "Read-only file system" in said.of("state-unusable")["says"]
    host.write("/var/lib/file", "")
    said = host.diagnose("--state-dir", "/var/lib/file")
    assert "Not a directory" in said.of("state-unusable")["says"]


def test_a_journal_that_is_anothers(host: DoctorHost) -> None:
    """One state dir for two brokers of a host: the journal tells of the other's log dirs."""
    host.configure(cleanup__max_fraction=1.0, cleanup__max_dirs=1000)
    options = ("--partition", "ledger-1", "--allow-assigned", "--even-last-copy", "--execute")
    ran = host.logagent("delete", *options, user="kafka")
    assert ran.status == 0, ran.err
    assert "journal-of-others" not in host.diagnose().codes("warning")
    other = host.path(PROPERTIES).read_text()
    host.write("/opt/kafka/config/server.properties", f"{other}\nlog.dirs=/srv/other\n")
    host.path("/srv/other").mkdir()
    os.chown(host.path("/srv/other"), KAFKA_UID, KAFKA_UID)
    said = host.diagnose("--kafka-config", "/opt/kafka/config/server.properties")
    assert D1 in said.of("journal-of-others")["says"]


# Assignments


@pytest.mark.parametrize(
    ("listeners", "line", "secure"),
    [
        ("PLAINTEXT://10.0.0.7:9092", 'bootstrap_servers = "10.0.0.7:9092"', False),
        ("SASL_SSL://:9093,INTERNAL://0.0.0.0:9094", 'bootstrap_servers = "localhost:9094"', False),
        ("SASL_SSL://:9093", 'bootstrap_servers = "localhost:9093"', True),
    ],
)
def test_a_zookeeper_broker_needs_the_admin_api(tmp_path: Path, listeners: str, line: str, secure: bool) -> None:
    with doctor_host(tmp_path / "host", "3.5.2-zookeeper/broker-clean") as host:
        kept = [w for w in host.path(PROPERTIES).read_text().splitlines() if not w.startswith("listener")]
        mapped = "listener.security.protocol.map=SASL_SSL:SASL_SSL,INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"
        host.write(PROPERTIES, "\n".join([*kept, f"listeners={listeners}", mapped, ""]))
        host.write(TOML, host.path(TOML).read_text() + "\n")
        said = host.diagnose()
        change = said.change("assignments-none")
        assert (change["file"], change["section"], change["line"]) == (TOML, "kafka", line)
        assert ("kafka.client" in said.of("assignments-none")["hint"]) is secure
        assert said.status == 1


def test_an_unknown_version_is_named_with_its_line(host: DoctorHost) -> None:
    # The fixture's metadata log tells a level; without it nothing does.
    host.configure(kafka__version=None, assignments__sources=["admin"])
    said = host.diagnose()
    change = said.change("version-unknown")
    assert (change["file"], change["section"], change["line"]) == (TOML, "kafka", 'version = "3.9.1"')
    host.configure(kafka__version=None)
    said = host.diagnose()
    assert said.document["at_least"] is True and "metadata.version" in said.document["kafka_version_from"]


def test_a_wrong_configuration_is_shown_whole_and_the_rest_is_inspected(host: DoctorHost) -> None:
    host.write(TOML, f'[kafka]\nconfig = "{PROPERTIES}"\nversion = "new"\n[delete]\nworkers = "x"\n')
    said = host.diagnose()
    assert said.status == 78
    problems = [f["says"] for f in said.findings if f["code"] == "configuration"]
    assert [p.split(": ")[1] for p in problems] == ["delete.workers", "kafka.version"]
    # What is right in it is used: the broker that it names is the one that is looked at.
    other = host.write("/srv/other.properties", host.path(PROPERTIES).read_text())
    host.write(TOML, f'[kafka]\nconfig = "{other}"\n[delete]\nworkers = "x"\n')
    said = host.diagnose()
    assert (said.status, said.document["kafka_config"]) == (78, other)
    assert len(said.document["log_dirs"]) == 2
    host.configure()
    host.write(PROPERTIES, "log.dirs=relative\nnode.id=x\n")
    said = host.diagnose()
    assert said.status == 78
    assert any("node.id" in f["says"] for f in said.findings), said.findings
    # `config check` tells of both files at once, too.
    host.write(TOML, f'[kafka]\nconfig = "{PROPERTIES}"\n[delete]\nworkers = "x"\n')
    ran = host.logagent("config", "check")
    assert ran.status == 78 and f"{TOML}: delete.workers" in ran.err and f"{PROPERTIES}:2: node.id" in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file or directory"),
        ("security.protocl=SSL", "security.protocl: this security setting is not supported"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/no/ca.pem", "/no/ca.pem: No such"),
        ("security.protocol=SSL\nssl.truststore.location=/no/ca.jks", "JKS (Kafka's default) stores are not read"),
    ],
)
def test_config_check_reads_the_file_of_kafka_client(host: DoctorHost, text: str | None, says: str) -> None:
    client = "/etc/logagent/client.properties"
    if text is not None:
        host.write(client, text + "\n")
    host.write(TOML, f'[kafka]\nconfig = "{PROPERTIES}"\nclient = "{client}"\n')
    ran = host.logagent("config", "check")
    assert (ran.status, f"{client}: " in ran.err, says in ran.err) == (78, True, True), ran.err
    # Beside what else is wrong.
    host.write(TOML, f'[kafka]\nconfig = "{PROPERTIES}"\nclient = "{client}"\n[delete]\nworkers = "x"\n')
    ran = host.logagent("config", "check")
    assert ran.status == 78 and f"{TOML}: delete.workers" in ran.err and says in ran.err, ran.err


def test_the_line_of_the_commented_configuration_file(host: DoctorHost) -> None:
    sample = Path(__file__).parents[4] / "config" / "logagent.toml"
    host.write(TOML, sample.read_text())
    for place in ("/opt/kafka/config/server.properties", PROPERTIES):
        host.write(place, host.path(PROPERTIES).read_text())
    said = host.diagnose()
    assert said.status == 78
    changes = [f["change"] for f in said.findings if f["code"] == "broker-ambiguous"]
    (number,) = {c["number"] for c in changes}
    assert sample.read_text().splitlines()[number - 1].startswith("# config = ")
    assert {c["line"] for c in changes} == {
        f'config = "{PROPERTIES}"',
        'config = "/opt/kafka/config/server.properties"',
    }
