"""Where things are found on a host, with the whole file system made up (pyfakefs): only its layout matters here."""

from __future__ import annotations

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem
from pyfakefs.helpers import reset_ids, set_uid

from logagent import config
from logagent.agent.target import resolve_target
from logagent.broker.version import version_beside
from logagent.errors import ConfigError
from logagent.host.discovery import USUAL_SERVER_PROPERTIES
from logagent.host.state_dir import default_state_dir
from logagent.settings import KafkaSettings, Settings

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


def test_one_file_by_two_paths_is_one_broker(fs: FakeFilesystem) -> None:
    fs.create_file("/opt/kafka/config/server.properties", contents=PROPERTIES)
    fs.create_symlink("/etc/kafka/server.properties", "/opt/kafka/config/server.properties")
    assert resolve_target(Settings()).config == "/etc/kafka/server.properties"


def test_none_at_all_names_every_place_that_was_tried(fs: FakeFilesystem) -> None:
    with pytest.raises(ConfigError, match=r"no server\.properties") as caught:
        resolve_target(Settings())
    assert len(caught.value.problems) == len(USUAL_SERVER_PROPERTIES)


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
