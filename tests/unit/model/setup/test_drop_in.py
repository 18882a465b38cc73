"""The drop-in of the service: which paths it opens, in which form, and that nothing else gets into it."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.model.setup.drop_in import SetupFacts, allowed, drop_in, quoted, unit_of_mount
from tests.needs import need_command


def lines(*paths: str, mounts: tuple[str, ...] = ("/",), config: str = "/etc/kafka/server.properties") -> list[str]:
    facts = SetupFacts(command="logagent setup", config=config, user="kafka", group="7", paths=paths, mounts=mounts)
    return drop_in(facts).splitlines()


def opened(*paths: str, mounts: tuple[str, ...] = ("/",)) -> list[str]:
    return [x for x in lines(*paths, mounts=mounts) if x.startswith(("After=", "ReadWritePaths=", "PrivateTmp="))]


def test_log_dirs_on_the_root_file_system_are_opened_themselves() -> None:
    assert lines("/srv/kafka/a", "/srv/kafka/b")[3:] == [
        "[Unit]",
        "",
        "[Service]",
        "User=kafka",
        "Group=7",
        'ReadWritePaths="-/srv/kafka/a"',
        'ReadWritePaths="-/srv/kafka/b"',
    ]


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("/etc/kafka/server.properties", 'Environment="LOGAGENT_KAFKA__CONFIG=/etc/kafka/server.properties"'),
        ('/srv/a b/100% "q" \\x', 'Environment="LOGAGENT_KAFKA__CONFIG=/srv/a b/100%% \\"q\\" \\\\x"'),
    ],
)
def test_a_broker_that_no_file_of_ours_names_is_named_to_the_service(config: str, line: str) -> None:
    facts = SetupFacts(command="x", config=config, user="kafka", group="7", paths=("/d",), mounts=(), unnamed=True)
    assert line in drop_in(facts).splitlines()
    assert "Environment" not in "".join(lines("/d", config=config))


def test_two_log_dirs_on_one_disk_open_it_once() -> None:
    assert opened("/data/d1/a", "/data/d1/b", "/data/d1/deeper/c", mounts=("/data/d1", "/", "/data/d1/deeper")) == [
        "After=data-d1.mount",
        "After=data-d1-deeper.mount",
        'ReadWritePaths="-/data/d1"',
        'ReadWritePaths="-/data/d1/deeper"',
    ]


def test_a_mount_that_others_use_too_is_not_opened_whole() -> None:
    assert opened("/var/lib/kafka", "/home/kafka/data", mounts=("/var", "/home")) == [
        "After=var.mount",
        "After=home.mount",
        'ReadWritePaths="-/var/lib/kafka"',
        'ReadWritePaths="-/home/kafka/data"',
    ]


def test_log_dirs_in_tmp_are_seen() -> None:
    assert "PrivateTmp=no" in opened("/tmp/kafka-logs")
    assert "PrivateTmp=no" not in opened("/data/tmp")


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/kafka/data", "/usr/share/kafka", "/boot/x", "/proc/1", "/var", "/tmp", "/home", "/data/../etc",
     "/run/kafka", "/dev/shm/x", "/root/data", "/lib64/x", "//etc/x", "data", "", "/data/\r[Service]", "/data/a\nb",
     "/data/\x85", "/data/\u2028x", "/data/\udc80", "/data/\x7f"],
)  # fmt: skip
def test_places_of_the_system_and_what_could_end_a_line_are_never_opened(path: str) -> None:
    assert not allowed(path)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=12))
def test_no_name_of_a_directory_escapes_from_its_line(name: str) -> None:
    """One path, one word: nothing that server.properties says can add a directive or a specifier."""
    path = f"/data/{name}"
    if not allowed(path):
        assert name in (".", "..") or not name.isprintable()
        return
    word = quoted(f"-{path}")
    assert word.startswith('"-/data/') and word.endswith('"')
    inner = word[1:-1].replace("\\\\", "").replace('\\"', "").replace("%%", "")
    assert '"' not in inner and "%" not in inner and "\\" not in inner
    assert len(lines(path)) == 9, "one line for each setting"


@pytest.mark.parametrize(
    "path", ["/data/d1", "/data/disk 1", "/srv/.hidden", "/a-b/c_d", "/data/é", "/data/a:b", "/.x"]
)
def test_mount_units_are_named_as_systemd_does(path: str) -> None:
    need_command("systemd-escape")
    command = ["systemd-escape", "--path", "--suffix=mount", path]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert unit_of_mount(path) == told.stdout.strip()
