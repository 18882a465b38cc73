"""The drop-in of the service: which paths it opens, in which form, and that nothing else gets into it."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.service.setup.rules import (
    PrestartFacts,
    SetupFacts,
    allowed,
    drop_in,
    naming,
    prestart_drop_in,
    quoted,
    unit_of_mount,
)
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


@pytest.mark.parametrize("config", ["/etc/kafka/server.properties", '/srv/a b/100% "q" \\x'])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing set",
        "[cleanup]\nmode = 'enforce'\n",
        "[kafka]\n",
        "[kafka]\n# config = '/x'\nversion = '3.9.1'\n[cleanup]\n# config = 7\nmode = 'enforce'",
        "[cleanup]\nmode = 'enforce'\n[kafka]\nversion = '3.9.1'",
        (Path(__file__).parents[4] / "config/logagent.toml").read_text(),
    ],
)
def test_the_broker_is_named_and_nothing_else_changes(text: str, config: str) -> None:
    made = naming(text, config)
    before, after = tomllib.loads(text), tomllib.loads(made)
    assert after.pop("kafka") == {**before.pop("kafka", {}), "config": config} and after == before
    lost = set(text.splitlines()) - set(made.splitlines())
    assert [line for line in lost if not line.startswith("# config = ")] == []
    assert len(lost) <= 1


@pytest.mark.parametrize("text", ["kafka = {version = '3.9.1'}\n", "kafka.version = '3.9.1'\n", "x = [\n"])
def test_where_the_broker_cannot_be_named_nothing_is_written(text: str) -> None:
    with pytest.raises(ValueError):
        naming(text, "/etc/kafka/server.properties")


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


def test_no_path_is_more_than_one_argument_of_what_runs_before_the_broker() -> None:
    facts = PrestartFacts(
        command="logagent setup --prestart --execute",
        program="/usr/bin/logagent",
        config='/srv/$HOME/a b/100%/"q"/server.properties',
        instance=None,
        state_dir="/var/lib/logagent",
        strict=False,
    )
    assert prestart_drop_in(facts).splitlines()[2:] == [
        "[Service]",
        'ExecStartPre=-/usr/bin/logagent prestart --kafka-config "/srv/$$HOME/a b/100%%/\\"q\\"/server.properties"',
    ]
