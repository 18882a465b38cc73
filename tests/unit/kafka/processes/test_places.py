"""Where things are found on a host, with the whole file system made up (pyfakefs): only its layout matters here."""

from __future__ import annotations

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem
from pyfakefs.helpers import reset_ids, set_uid

from logagent.base.config import config
from logagent.base.config.settings import KafkaSettings, Settings
from logagent.base.errors import ConfigError
from logagent.base.linux.state_dir import default_state_dir
from logagent.kafka.processes.broker_process import version_beside
from logagent.kafka.processes.discovery import USUAL_SERVER_PROPERTIES, brokers_of, find_brokers, version_installed
from logagent.kafka.processes.target import named_target, resolve_target

PROPERTIES = "node.id=3\nprocess.roles=broker\nlog.dirs=/srv/kafka/d1,/srv/kafka/d2/\n"


@pytest.mark.parametrize("place", USUAL_SERVER_PROPERTIES)
def test_the_only_server_properties_in_a_usual_place_is_found(fs: FakeFilesystem, place: str) -> None:
    fs.create_file(place, contents=PROPERTIES)
    target = resolve_target(Settings())
    assert target.config == place
    assert target.log_dirs == ("/srv/kafka/d1", "/srv/kafka/d2")


def test_two_brokers_on_a_host_are_not_guessed_between(fs: FakeFilesystem) -> None:
    fs.create_file("/etc/kafka/server.properties", contents=PROPERTIES)
    fs.create_file("/opt/kafka/config/server.properties", contents=PROPERTIES)
    with pytest.raises(ConfigError, match="several broker configurations") as caught:
        resolve_target(Settings())
    assert [p.split(":")[0] for p in caught.value.problems] == [
        "/etc/kafka/server.properties",
        "/opt/kafka/config/server.properties",
    ]
    named = Settings(kafka=KafkaSettings(config="/opt/kafka/config/server.properties"))
    assert resolve_target(named).config == "/opt/kafka/config/server.properties"


def test_what_acts_is_refused_a_broker_that_was_only_found(fs: FakeFilesystem) -> None:
    """It is told which one that would be, in a form to copy."""
    with pytest.raises(ConfigError, match="no Kafka broker"):
        named_target(Settings())
    fs.create_file("/opt/kafka/config/server.properties", contents=PROPERTIES)
    with pytest.raises(ConfigError, match=r"kafka\.config: not set") as caught:
        named_target(Settings())
    assert caught.value.hint is not None
    assert "--kafka-config /opt/kafka/config/server.properties" in caught.value.hint
    assert resolve_target(Settings()).config == "/opt/kafka/config/server.properties"
    named = Settings(kafka=KafkaSettings(config="/opt/kafka/config/server.properties"))
    assert named_target(named) == resolve_target(named)
    assert named_target(Settings(), ["/srv/kafka/d1"]).log_dirs == ("/srv/kafka/d1",)
    fs.create_file("/etc/kafka/server.properties", contents=PROPERTIES)
    with pytest.raises(ConfigError, match="several broker configurations"):
        named_target(Settings())


def test_one_file_by_two_paths_is_one_broker(fs: FakeFilesystem) -> None:
    fs.create_file("/opt/kafka/config/server.properties", contents=PROPERTIES)
    fs.create_symlink("/etc/kafka/server.properties", "/opt/kafka/config/server.properties")
    assert resolve_target(Settings()).config == "/etc/kafka/server.properties"


def test_none_at_all_is_one_sentence(fs: FakeFilesystem) -> None:
    with pytest.raises(ConfigError, match="no Kafka broker on this host") as caught:
        resolve_target(Settings())
    assert caught.value.problems == (str(caught.value),)


def test_a_controller_is_called_one(fs: FakeFilesystem) -> None:
    fs.create_file(USUAL_SERVER_PROPERTIES[0], contents=f"{PROPERTIES}\nprocess.roles=controller\n")
    with pytest.raises(
        ConfigError, match=rf"has a controller \({USUAL_SERVER_PROPERTIES[0]}\) and no broker"
    ) as caught:
        resolve_target(Settings())
    assert caught.value.hint is not None and "logagent is not needed" in caught.value.hint


def test_relative_log_dirs_are_refused_with_each_of_them(fs: FakeFilesystem) -> None:
    fs.create_file("/etc/kafka/server.properties", contents="log.dirs=data/d1,/srv/d2,data/d3\n")
    with pytest.raises(ConfigError) as caught:
        resolve_target(Settings())
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("place", "jar", "version"),
    [
        ("/opt/kafka/config", "/opt/kafka/libs/kafka_2.13-3.9.1.jar", (3, 9, 1)),
        ("/opt/kafka_2.13-4.3.1/config/kraft", "/opt/kafka_2.13-4.3.1/libs/kafka_2.13-4.3.1.jar", (4, 3, 1)),
        ("/opt/confluent/config", "/opt/confluent/libs/kafka_2.13-7.6.0-ccs.jar", (3, 6, 0)),
        # A client is no broker, and a Kafka elsewhere on the host is not the one that starts on this disk.
        ("/opt/kafka/config", "/opt/kafka/libs/kafka-clients-3.9.1.jar", None),
        ("/etc/kafka", "/usr/share/java/kafka/kafka_2.13-3.9.1.jar", None),
    ],
)
def test_the_version_of_the_jars_that_belong_to_it(
    fs: FakeFilesystem, place: str, jar: str, version: tuple[int, int, int] | None
) -> None:
    fs.create_file(f"{place}/server.properties", contents=PROPERTIES)
    fs.create_file(jar)
    assert version_beside(f"{place}/server.properties") == version


def test_jars_of_two_releases_say_nothing(fs: FakeFilesystem) -> None:
    fs.create_file("/opt/kafka/config/server.properties", contents=PROPERTIES)
    fs.create_file("/opt/kafka/libs/kafka-storage-3.9.1.jar")
    fs.create_file("/opt/kafka/libs/kafka_2.13-3.6.0.jar")
    assert version_beside("/opt/kafka/config/server.properties") is None


def test_settings_come_from_etc_and_the_environment_wins(fs: FakeFilesystem) -> None:
    fs.create_file(str(config.DEFAULT_CONFIG), contents='[cleanup]\nmin_age = "48h"\nmax_dirs = 5\n')
    loaded = config.load(environ={"LOGAGENT_CLEANUP__MAX_DIRS": "7"})
    assert (loaded.settings.cleanup.min_age, loaded.settings.cleanup.max_dirs) == (48 * 3_600_000, 7)
    assert (loaded.file, loaded.environment) == (str(config.DEFAULT_CONFIG), ("LOGAGENT_CLEANUP__MAX_DIRS",))


def test_who_cannot_write_to_var_lib_keeps_the_journal_at_home(fs: FakeFilesystem) -> None:
    home = {"HOME": "/home/ops"}
    fs.create_dir("/var/lib")
    assert default_state_dir(home) == "/var/lib/logagent"
    fs.chmod("/var/lib", 0o555)
    set_uid(1000)
    try:
        assert default_state_dir(home) == "/home/ops/.local/state/logagent"
        assert default_state_dir({**home, "XDG_STATE_HOME": "/state"}) == "/state/logagent"
    finally:
        reset_ids()


# Units, samples, instances


def unit(fs: FakeFilesystem, name: str, start: str, *more: str, folder: str = "/usr/lib/systemd/system") -> None:
    fs.create_file(f"{folder}/{name}", contents="\n".join(["[Service]", f"ExecStart={start}", *more, ""]))


def found() -> dict[str, str]:
    return {b.config: b.how for b in brokers_of(find_brokers())}


@pytest.mark.parametrize(
    ("start", "more"),
    [
        ("/opt/k/bin/kafka-server-start.sh /data/one.properties", ()),
        ("-/usr/bin/kafka-server-start -daemon /data/one.properties --override broker.id=4", ()),
        ("/bin/sh -c '/opt/k/bin/kafka-server-start.sh /data/one.properties > /var/log/kafka.log 2>&1'", ()),
        ("/opt/k/bin/kafka-server-start.sh ${CONF}", ('Environment="HEAP=1" "CONF=/data/one.properties"',)),
        ("/opt/k/bin/kafka-server-start.sh $CONF", ("EnvironmentFile=-/etc/default/kafka",)),
        ("\\\n    /opt/k/bin/kafka-server-start.sh \\\n    /data/one.properties", ()),
    ],
)
def test_what_a_unit_starts(fs: FakeFilesystem, start: str, more: tuple[str, ...]) -> None:
    fs.create_file("/data/one.properties", contents=PROPERTIES)
    fs.create_file("/etc/default/kafka", contents="# kafka\nCONF=/data/one.properties\n")
    unit(fs, "kafka.service", start, *more)
    assert resolve_target(Settings()).config == "/data/one.properties"
    assert found() == {"/data/one.properties": "kafka.service starts with it"}


def test_units_that_start_something_else(fs: FakeFilesystem) -> None:
    fs.create_file("/data/one.properties", contents=PROPERTIES)
    unit(fs, "kafka-exporter.service", "/usr/bin/kafka_exporter --config /data/one.properties")
    unit(fs, "zookeeper.service", "/opt/kafka/bin/zookeeper-server-start.sh /data/one.properties")
    unit(fs, "connect.service", "/opt/kafka/bin/connect-distributed.sh /data/one.properties")
    unit(fs, "quote.service", "/bin/sh -c 'kafka-server-start.sh")
    assert found() == {}


def test_a_drop_in_has_the_last_word(fs: FakeFilesystem) -> None:
    for name in ("one", "two"):
        fs.create_file(f"/data/{name}.properties", contents=PROPERTIES)
    unit(fs, "kafka.service", "/opt/k/bin/kafka-server-start.sh /data/one.properties", "User=a")
    new = "/opt/k/bin/kafka-server-start.sh /data/two.properties"
    fs.create_file(
        "/etc/systemd/system/kafka.service.d/x.conf", contents=f"[Service]\nExecStart=\nExecStart={new}\nUser=b\n"
    )
    (only,) = brokers_of(find_brokers())
    assert (only.config, only.unit.user if only.unit is not None else None) == ("/data/two.properties", "b")


def test_instances_of_a_template_that_something_wants(fs: FakeFilesystem) -> None:
    for name in ("1", "2", "3"):
        fs.create_file(f"/data/{name}.properties", contents=PROPERTIES)
    unit(fs, "kafka@.service", "/opt/k/bin/kafka-server-start.sh /data/%i.properties")
    wants = "/etc/systemd/system/multi-user.target.wants"
    for name in ("1", "2"):
        fs.create_symlink(f"{wants}/kafka@{name}.service", "/usr/lib/systemd/system/kafka@.service")
    with pytest.raises(ConfigError, match="several broker configurations") as caught:
        resolve_target(Settings())
    assert [p.split(":")[0] for p in caught.value.problems] == ["/data/1.properties", "/data/2.properties"]
    assert "kafka@1.service starts with it" in caught.value.problems[0]


@pytest.mark.parametrize("log_dirs", ["/tmp/kafka-logs", "/tmp/kraft-combined-logs", "/var/lib/kafka/"])
def test_a_sample_is_no_broker_until_one_used_it(fs: FakeFilesystem, log_dirs: str) -> None:
    fs.create_file("/opt/kafka/config/server.properties", contents=f"log.dirs={log_dirs}\nbroker.id=0\n")
    # Alone it is what there is.
    assert resolve_target(Settings()).config == "/opt/kafka/config/server.properties"
    fs.create_file("/etc/kafka/server.properties", contents=PROPERTIES)
    assert resolve_target(Settings()).config == "/etc/kafka/server.properties"
    fs.create_file(f"{log_dirs}/meta.properties")
    with pytest.raises(ConfigError, match="several"):
        resolve_target(Settings())


def test_a_controller_is_no_broker(fs: FakeFilesystem) -> None:
    fs.create_file("/etc/kafka/server.properties", contents=PROPERTIES)
    fs.create_file("/data/c.properties", contents="process.roles=controller\nnode.id=9\nlog.dirs=/data/c\n")
    unit(fs, "kafka-controller.service", "/opt/k/bin/kafka-server-start.sh /data/c.properties")
    assert resolve_target(Settings()).config == "/etc/kafka/server.properties"


def test_unpacked_releases_count_only_where_there_is_nothing_else(fs: FakeFilesystem) -> None:
    old = "/opt/kafka_2.13-3.9.1/config/server.properties"
    fs.create_file(old, contents=PROPERTIES)
    assert resolve_target(Settings()).config == old
    fs.create_file("/opt/kafka_2.13-4.0.0/config/server.properties", contents=PROPERTIES)
    with pytest.raises(ConfigError, match="several"):
        resolve_target(Settings())
    fs.create_symlink("/opt/kafka", "/opt/kafka_2.13-4.0.0")
    assert resolve_target(Settings()).config == "/opt/kafka/config/server.properties"


@pytest.mark.parametrize(
    ("script", "jar", "version"),
    [
        ("/usr/bin/kafka-server-start", "/usr/share/java/kafka/kafka_2.13-7.6.0-ccs.jar", (3, 6, 0)),
        ("/opt/k/bin/kafka-server-start.sh", "/opt/k/libs/kafka_2.13-3.9.1.jar", (3, 9, 1)),
        ("/usr/bin/kafka-server-start.sh", "/opt/k/libs/kafka_2.13-3.9.1.jar", (3, 9, 1)),
        ("/usr/local/bin/kafka-server-start.sh", "/usr/share/java/kafka/kafka_2.13-3.9.1.jar", None),
    ],
)
def test_the_version_that_the_unit_of_this_configuration_starts(
    fs: FakeFilesystem, script: str, jar: str, version: tuple[int, int, int] | None
) -> None:
    fs.create_file("/etc/kafka/server.properties", contents=PROPERTIES)
    fs.create_file("/etc/kafka/other.properties", contents=PROPERTIES)
    fs.create_file(jar)
    calls = "" if jar.startswith("/usr") else '#!/bin/sh\nexec /opt/k/bin/kafka-server-start.sh "$@"\n'
    fs.create_file(script, contents=calls)
    fs.makedirs("/opt/k/bin", exist_ok=True)
    assert version_installed("/etc/kafka/server.properties") is None
    unit(fs, "kafka.service", f"{script} /etc/kafka/server.properties")
    assert version_installed("/etc/kafka/server.properties") == version
    assert version_installed("/etc/kafka/other.properties") is None
    # Two units that start it from two installations say nothing.
    fs.create_file("/srv/k/libs/kafka_2.13-3.5.2.jar")
    unit(fs, "old.service", "/srv/k/bin/kafka-server-start.sh /etc/kafka/server.properties")
    assert version_installed("/etc/kafka/server.properties") is None or version is None
