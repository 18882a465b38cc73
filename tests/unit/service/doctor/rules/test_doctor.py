"""What `doctor` makes of facts: the cases that no test host can show, and what must hold for all of them."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.finding import Finding, Severity, any_fatal
from logagent.base.kafka_version import KafkaVersion, VersionSource
from logagent.base.records import Health, HolderState, Reason
from logagent.kafka.image import Source
from logagent.service.doctor.rules.diagnose import diagnose, exit_config
from logagent.service.doctor.rules.host import (
    AccessFacts,
    AssignmentsFacts,
    BrokerFacts,
    ConfigFacts,
    DaemonFacts,
    DaemonState,
    DoctorFacts,
    DoctorLogDirFacts,
    HolderFacts,
    InstanceFacts,
    MountFacts,
    PortFacts,
    ProcFacts,
    ServiceFacts,
    SettingLine,
    StateDirFacts,
    SubjectFacts,
    toml_change,
    unit_word,
)
from logagent.service.setup.rules import DropInFacts

CONFIG = ConfigFacts(
    file="/etc/logagent/logagent.toml",
    default="/etc/logagent/logagent.toml",
    kafka_config="/s.p",
    named=True,
    named_in_file=True,
)
SERVICE = ServiceFacts(
    unit="logagent.service", known_by="systemd", user="kafka", file="/u", active="active", main_pid=7
)
LOG_DIR = DoctorLogDirFacts(
    path="/d1", health=Health.ONLINE, reason=None, holder=HolderState.STARTING, pid=5, owner="kafka", owner_uid=92
)
HOLDER = HolderFacts(pid=5, command="java", user="kafka", uid=92, gid=92, config="/s.p", same_config=True)
FACTS = DoctorFacts(
    now_ms=0,
    config=CONFIG,
    brokers=(BrokerFacts(config="/s.p", how="process 5 runs with it", pid=5, chosen=True),),
    subject=SubjectFacts(name="kafka", uid=92, gid=92, how="the user of logagent.service", service=True),
    holders=(HOLDER,),
    kafka_version=KafkaVersion((3, 9, 1), VersionSource.RUNNING, pid=5),
    cluster_id="c",
    node_id=1,
    log_dirs=(LOG_DIR,),
    service=SERVICE,
    daemon=DaemonFacts(socket="/var/lib/logagent/status.sock", state="running", pid=7, log_dirs=("/d1",)),
    port=PortFacts(listen="127.0.0.1:9640", problem="taken", by_daemon=True, next_free=9641),
    state=StateDirFacts(path="/var/lib/logagent", exists=True, service_path="/var/lib/logagent"),
    assignments=AssignmentsFacts(usable=True, source=Source.KRAFT_LOG, age_seconds=1.0, partitions=3),
)


def test_what_runs_may_differ_from_the_file() -> None:
    assert "config-changed" not in codes(FACTS, Severity.WARNING)
    facts = replace(FACTS, holders=(replace(HOLDER, in_doubt="/s.p changed 3 h after the broker started"),))
    assert "config-changed" in codes(facts, Severity.WARNING) and "config-changed" not in codes(facts)


def codes(facts: DoctorFacts, severity: Severity = Severity.FATAL) -> list[str]:
    return [f.why.code for f in diagnose(facts) if f.severity is severity]


def of(facts: DoctorFacts, code: str) -> Finding:
    (finding,) = (f for f in diagnose(facts) if f.why.code == code)
    return finding


def test_a_host_where_all_is_well() -> None:
    found = diagnose(FACTS)
    assert {f.severity for f in found} == {Severity.WORKS}
    assert not any_fatal(found) and not exit_config(FACTS)


def test_whether_a_broker_answered_is_said_either_way() -> None:
    known = replace(FACTS.assignments or AssignmentsFacts(usable=True), asked="h:9093", bootstrap_set=True)
    good = replace(FACTS, assignments=replace(known, answered_as="User:logagent"))
    assert of(good, "admin").why.fact == "h:9093 answered as User:logagent"
    assert "admin" in codes(good, Severity.WORKS)
    why = Reason("cannot talk to Kafka at h:9093: authentication failed", "correct it")
    bad = replace(FACTS, assignments=replace(known, no_answer=why, problems=(f"admin: {why.fact}",)))
    assert codes(bad, Severity.WARNING) == ["admin"] and of(bad, "admin").why.hint == "correct it"
    address = replace(known, asked=None, bootstrap="h:9093", bootstrap_set=False, untried=True)
    change = of(replace(FACTS, assignments=address), "admin-untried").change
    assert change is not None and 'bootstrap_servers = "h:9093"' in change.line
    source = of(replace(FACTS, assignments=replace(address, bootstrap_set=True)), "admin-untried").why
    assert "assignments.sources lacks admin" in source.fact and source.hint.startswith("add admin")


def test_an_age_of_nothing_has_no_sign() -> None:
    a_moment_ahead = replace(FACTS.assignments or AssignmentsFacts(usable=True), age_seconds=-0.3)
    assert "-0" not in of(replace(FACTS, assignments=a_moment_ahead), "assignments").why.fact


@pytest.mark.parametrize("proves", ["nothing", "removals", "all"])
def test_a_metadata_log_that_is_not_understood_does_not_work(proves: Literal["nothing", "removals", "all"]) -> None:
    doubt = Reason("what is not understood", "what helps", proves)
    known = replace(FACTS.assignments or AssignmentsFacts(usable=True), log_doubt=doubt, bootstrap="h:9092")
    facts = replace(FACTS, assignments=known)
    finding = of(facts, "metadata-log")
    assert (finding.why.fact, finding.why.hint) == (doubt.fact, doubt.hint)
    assert finding.severity is (Severity.INFO if proves == "all" else Severity.WARNING)
    assert ("assignments" in codes(facts, Severity.WORKS)) is (proves == "all")
    if proves != "all":
        assert finding.change is not None and 'bootstrap_servers = "h:9092"' in finding.change.line
    # Another source decides: that one works, and the log is named all the same.
    admin = replace(facts, assignments=replace(known, source=Source.ADMIN, problems=("kraft-log: damaged",)))
    assert "assignments" in codes(admin, Severity.WORKS) and of(admin, "metadata-log") is not None


@pytest.mark.parametrize(
    ("holder", "code", "line"),
    [
        ({"gid": 93, "proc": "refused"}, "other-group", "Group=93"),
        ({"proc": "refused", "dumpable": False}, "descriptors-refused", None),
        ({"proc": "refused"}, "descriptors-refused", None),
        ({"proc": "hidden"}, "proc-hidden", None),
        ({"uid": 0, "user": "root", "proc": "refused"}, "other-user", "User=root"),
    ],
)
def test_why_the_open_files_of_the_broker_cannot_be_read(holder: dict[str, Any], code: str, line: str | None) -> None:
    facts = replace(FACTS, holders=(replace(HOLDER, **holder),))
    assert codes(facts) == [code]
    change = of(facts, code).change
    assert (change.line if change is not None else None) == line


def test_a_sandbox_that_hides_processes_is_named() -> None:
    """As systemd itself tells of it: `ProtectProc=` of the unit of a daemon that runs."""
    service = replace(SERVICE, properties={"ProtectProc": "invisible", "User": "kafka"})
    facts = replace(FACTS, service=service, holders=(replace(HOLDER, proc="hidden"),))
    assert codes(facts) == ["proc-hidden", "unit-blinds"]
    for code in ("proc-hidden", "unit-blinds"):
        change = of(facts, code).change
        assert change is not None and change.line == "ProtectProc=default"
        assert change.file == "/etc/systemd/system/logagent.service.d/override.conf"
        assert change.then == "systemctl daemon-reload && systemctl restart logagent.service"


@pytest.mark.parametrize(
    ("properties", "setup", "starts"),
    [
        ({}, None, False),
        ({"Environment": "A=b"}, "fits", False),
        ({"Environment": "A=b LOGAGENT_KAFKA__CONFIG=/s.p"}, "fits", True),
        ({"ExecStart": "/usr/bin/logagent run --kafka-config /s.p"}, None, True),
        ({"ExecStart": "/usr/bin/logagent run --log-dir=/d1"}, None, True),
        ({"EnvironmentFile": "/etc/default/logagent"}, None, True),
        ({}, "differs", True),
    ],
)
def test_a_daemon_to_which_nothing_names_a_broker(properties: dict[str, str], setup: Any, starts: bool) -> None:
    """Our own --kafka-config or environment does not help it. Where setup is to be run, that names the broker."""
    look = DropInFacts(place="/p", state=setup, command="logagent setup --execute") if setup is not None else None
    there = replace(SERVICE, properties=properties, setup=look)
    facts = replace(FACTS, config=replace(CONFIG, named_in_file=False), service=there)
    assert ("daemon-unnamed" in codes(facts)) is not starts
    assert codes(replace(facts, config=CONFIG)) == (["setup-outdated"] if setup == "differs" else [])
    if not starts:
        change = of(facts, "daemon-unnamed").change
        assert change is not None and change.line == 'config = "/s.p"'
        assert change.then is not None and "restart" in change.then


def test_commands_that_act_need_a_named_broker() -> None:
    found = replace(FACTS, config=replace(CONFIG, named=False))
    change = of(found, "broker-unnamed").change
    assert change is not None and change.line == 'config = "/s.p"' and codes(found) == []


def test_a_daemon_that_sees_a_log_dir_read_only() -> None:
    mount = MountFacts(point="/d1", kind="ext4", source="/dev/x", read_only=True)
    facts = replace(FACTS, service=replace(SERVICE, sandbox={"/d1": mount}))
    assert codes(facts) == ["service-read-only"]
    failed = replace(FACTS, service=replace(SERVICE, active="failed", properties={"Result": "watchdog"}))
    assert "watchdog" in of(failed, "service-failed").why.fact


@pytest.mark.parametrize(
    ("properties", "blocked"),
    [
        ({"ProtectSystem": "strict"}, True),
        ({"ProtectSystem": "strict", "ReadWritePaths": "-/d1"}, False),
        ({"ProtectSystem": "strict", "ReadWritePaths": '"-/d1" -/other'}, False),
        ({"ProtectSystem": "strict", "ReadWritePaths": "-/"}, False),
        ({"ProtectSystem": "strict", "ReadWritePaths": "-/d"}, True),
        ({"ProtectSystem": "full"}, False),
        ({"ReadOnlyPaths": "/d1"}, True),
        ({"ReadOnlyPaths": "/", "ReadWritePaths": "/d1"}, False),
        ({"ReadOnlyPaths": "/d1", "ReadWritePaths": "/"}, True),
        ({"InaccessiblePaths": "/d1/x"}, False),
        ({"TemporaryFileSystem": "/d1:ro"}, True),
    ],
)
def test_what_a_unit_lets_be_written(properties: dict[str, str], blocked: bool) -> None:
    state = replace(FACTS.state, service_path=None) if FACTS.state is not None else None
    found = codes(replace(FACTS, service=replace(SERVICE, properties=properties), state=state))
    assert ("unit-blocks" in found) is blocked


@pytest.mark.parametrize(
    ("problem", "listen", "line"),
    [
        ("taken", "[::1]:9640", 'listen = "[::1]:9641"'),
        ("not-local", "192.0.2.1:9640", 'listen = "127.0.0.1:9641"'),
        ("Address family not supported", "[::1]:9640", 'listen = "[::1]:9641"'),
    ],
)
def test_each_problem_of_the_port_has_its_change(problem: str, listen: str, line: str) -> None:
    port = PortFacts(listen=listen, problem=problem, next_free=9641)
    (finding,) = (f for f in diagnose(replace(FACTS, port=port)) if f.area == "metrics")
    assert finding.severity is Severity.FATAL and finding.change is not None and finding.change.line == line


def test_which_line_of_the_configuration_and_what_makes_it_effective() -> None:
    c = replace(CONFIG, keys={"kafka.config": 12}, instance="b", default="/etc/logagent/b.toml", file=None)
    change = toml_change(c, "kafka.config", 'a"b\\c')
    assert (change.file, change.number, change.section) == ("/etc/logagent/b.toml", 12, "kafka")
    assert tomllib.loads(change.line) == {"config": 'a"b\\c'}
    assert change.where == "/etc/logagent/b.toml:12, [kafka]"
    assert change.then == "systemctl reload logagent@b, if it runs"


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_words_of_a_unit(text: str) -> None:
    if not re.search(r"[\n\r]", text):
        word = unit_word(text).replace("%%", "%")
        assert word == text or word[1:-1].replace(r"\"", '"').replace(r"\\", "\\") == text


MOUNTS = (
    MountFacts(point="/", kind="ext4", source="/dev/x", device_read_only=True),
    MountFacts(point="/d1", kind="ext4", source="/dev/x", read_only=True),
)
LOOKS = st.fixed_dictionaries(
    {
        "health": st.sampled_from(Health),
        "holder": st.sampled_from(HolderState),
        "pid": st.sampled_from([None, 5, 6]),
        "owner_uid": st.sampled_from([None, 0, 92, 93]),
        "others": st.integers(0, 2),
        "mount": st.sampled_from([None, *MOUNTS]),
        "access": st.sampled_from(
            [
                None,
                AccessFacts(path="/d1", what="a log dir", answered=False),
                AccessFacts(path="/d1", what="a log dir", lacks="write", at="/", owner="root", mode=0o700),
                AccessFacts(path="/d1", what="a log dir", lacks="search", at="/d1", exists=False),
            ]
        ),
    }
)  # fmt: skip


@given(
    LOOKS,
    st.sampled_from([None, SERVICE]),
    st.sampled_from(["running", "none", "dead", "refused", "silent"]),
    st.sampled_from([0, 92, 93]),
    st.sampled_from([ProcFacts(), ProcFacts(hidepid="2", gid=9, group="seers"), ProcFacts(hidepid="invisible")]),
    st.booleans(),
)
def test_every_log_dir_is_reported_and_what_fails_has_a_hint(
    look: dict[str, Any],
    service: ServiceFacts | None,
    daemon: DaemonState,
    uid: int,
    proc: ProcFacts,
    held: bool,
) -> None:
    facts = replace(
        FACTS,
        log_dirs=(replace(LOG_DIR, **look),),
        holders=FACTS.holders if held else (),
        service=service,
        daemon=DaemonFacts(socket="/s", state=daemon, detail="x"),
        subject=replace(FACTS.subject, uid=uid),
        proc=proc,
        siblings=(InstanceFacts(file="/etc/logagent/b.toml", log_dirs=("/d1",), listen=True, problem="x"),),
    )
    found = diagnose(facts)
    assert any(f.area == "log dirs" for f in found), found
    for f in found:
        assert f.why.fact and (f.why.hint or f.severity in (Severity.WORKS, Severity.INFO)), f
        assert f.severity is not Severity.WORKS or (not f.why.hint and f.change is None)
    assert any_fatal(found)  # the instances do


def test_a_line_of_fstab_keeps_its_other_options() -> None:
    proc = ProcFacts(hidepid="2", fstab=SettingLine("/etc/fstab", 4, "proc /proc proc hidepid=2 0 0"))
    change = of(replace(FACTS, proc=proc), "hidepid").change
    assert change is not None and change.line == "proc /proc proc defaults 0 0"


ODD, USER = "/d/$(reboot); 'x", "DOMAIN\\kafka"
CLOSED = AccessFacts(path=ODD, what="a log dir", lacks="write", at=ODD, owner="root", mode=0o700)
ODD_STATE = StateDirFacts(path=ODD, exists=True, access=CLOSED)


@pytest.mark.parametrize(
    ("code", "changed", "words"),
    [
        ("no-access", {"log_dirs": (replace(LOG_DIR, access=CLOSED, path=ODD),)}, ["chown", USER, ODD]),
        ("parent-closed", {"log_dirs": (replace(LOG_DIR, access=replace(CLOSED, path="/d1")),)}, ["chmod", "o+x", ODD]),
        ("state-closed", {"state": ODD_STATE}, ["chown", "-R", USER, ODD]),
        ("state-closed", {"state": replace(ODD_STATE, exists=False)}, ["install", "-d", "-m", "0750", "-o", USER, ODD]),
        (
            "other-state-dir",
            {"state": StateDirFacts(path="/s", exists=True, service_path=ODD)},
            ["add", "--state-dir", ODD],
        ),
        (
            "instance-wrong",
            {"siblings": (InstanceFacts(file=ODD, problem="x"),)},
            ["logagent", "doctor", "--config", ODD],
        ),
    ],
)
def test_a_shell_takes_names_in_a_command_line_as_they_are(code: str, changed: Any, words: list[str]) -> None:
    finding = of(replace(FACTS, subject=replace(FACTS.subject, name=USER), **changed), code)
    assert shlex.split(finding.change.line if finding.change is not None else finding.why.hint) == words


def test_the_owner_of_the_log_dirs_is_reported_with_the_reason() -> None:
    strange = of(replace(FACTS, cluster_problems={"/d1": "node id 2, and 1 in server.properties"}), "cluster")
    assert (strange.severity, strange.path) == (Severity.FATAL, "/d1")
    assert strange.why.fact == "node id 2, and 1 in server.properties"
    before_2_4 = of(replace(FACTS, cluster_id=None, by_node=True), "cluster")
    assert before_2_4.severity is not Severity.FATAL and "before 2.4" in before_2_4.why.fact
