"""The systemd generator: which paths it opens, in which form, and to whom, on hosts laid out below a directory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.needs import need_command, need_root
from tests.package.conftest import ROOT


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("logagent_generator", ROOT / "packaging/scripts/generator.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = _load()


class Host:
    """A host's files below a directory, and what the generator writes for them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "run/systemd/generator"
        self.out.mkdir(parents=True)
        self.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")

    def write(self, place: str, text: str) -> Path:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def broker(self, log_dirs: str, place: str = "etc/kafka/server.properties") -> Path:
        return self.write(place, f"process.roles=broker\nnode.id=1\nlog.dirs={log_dirs}\n")

    def generate(self, service: str = "logagent.service") -> list[str]:
        assert generator.main([str(self.out), str(self.out), str(self.out)], self.root) == 0
        drop_in = self.out / f"{service}.d/00-log-dirs.conf"
        return drop_in.read_text().splitlines() if drop_in.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_log_dirs_on_the_root_file_system_are_opened_themselves(host: Host) -> None:
    host.broker("/srv/kafka/a,/srv/kafka/b")
    lines = host.generate()
    assert [x for x in lines if x.startswith("ReadWritePaths")] == [
        'ReadWritePaths="-/srv/kafka/a"',
        'ReadWritePaths="-/srv/kafka/b"',
    ]
    assert not [x for x in lines if x.startswith("After")]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("etc/fstab", "# a comment\nUUID=1234 /data/disk\\0401 xfs noatime 0 0\n"),
        ("etc/systemd/system/data-disk.mount", "[Mount]\nWhat=/dev/sdb\nWhere=/data/disk 1\n"),
        ("proc/self/mountinfo", "23 22 8:2 / /data/disk\\0401 rw - xfs /dev/sdb rw\n"),
    ],
)
def test_the_mount_point_is_opened_whether_or_not_it_is_mounted_yet(host: Host, place: str, text: str) -> None:
    host.write(place, text)
    host.broker("/data/disk 1/kafka/logs")
    lines = host.generate()
    assert 'ReadWritePaths="-/data/disk 1"' in lines
    assert "After=data-disk\\x201.mount" in lines


def test_two_log_dirs_on_one_disk_open_it_once(host: Host) -> None:
    host.write("etc/fstab", "/dev/sdb /data/d1 ext4 defaults 0 0\n/dev/sdc /data/d1/deeper ext4 defaults 0 0\n")
    host.broker("/data/d1/a,/data/d1/b,/data/d1/deeper/c")
    opened = [x for x in host.generate() if x.startswith(("ReadWritePaths", "After"))]
    assert opened == [
        "After=data-d1.mount",
        "After=data-d1-deeper.mount",
        'ReadWritePaths="-/data/d1"',
        'ReadWritePaths="-/data/d1/deeper"',
    ]


def test_a_mount_that_others_use_too_is_not_opened_whole(host: Host) -> None:
    host.write("etc/fstab", "/dev/sdb /var ext4 defaults 0 0\n/dev/sdc /home ext4 defaults 0 0\n")
    host.broker("/var/lib/kafka,/home/kafka/data")
    opened = [x for x in host.generate() if x.startswith("ReadWritePaths")]
    assert opened == ['ReadWritePaths="-/var/lib/kafka"', 'ReadWritePaths="-/home/kafka/data"']


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/kafka/data", "/usr/share/kafka", "/boot/x", "/proc/1", "/var", "/tmp", "/home", "/data/../etc",
     "/run/kafka", "/dev/shm/x", "/root/data", "/lib64/x"],
)  # fmt: skip
def test_places_of_the_system_are_never_opened(host: Host, path: str) -> None:
    host.broker(f"{path},/data/kafka")
    assert [x for x in host.generate() if x.startswith("ReadWritePaths")] == ['ReadWritePaths="-/data/kafka"']


def test_a_symlink_opens_where_it_leads(host: Host, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "evil").symlink_to("/etc")
    host.broker(f"{tmp_path}/link,{tmp_path}/evil")
    opened = [x for x in host.generate() if x.startswith("ReadWritePaths")]
    assert opened == [f'ReadWritePaths="-{tmp_path}/disk"']


def test_nothing_is_written_without_a_broker_or_with_two(host: Host) -> None:
    assert host.generate() == []
    host.broker("/data/a")
    host.broker("/data/b", "opt/kafka/config/server.properties")
    assert host.generate() == []


def test_a_wrong_configuration_opens_nothing_and_spares_the_other_instances(host: Host) -> None:
    one = host.broker("/data/a", "etc/kafka-one/server.properties")
    host.write("etc/logagent/logagent.toml", "[kafka\n")
    host.write("etc/logagent/one.toml", f'[kafka]\nconfig = "{one}"\n')
    host.write("etc/logagent/not an instance.toml", f'[kafka]\nconfig = "{one}"\n')
    assert host.generate() == []
    assert 'ReadWritePaths="-/data/a"' in host.generate("logagent@one.service")
    assert sorted(p.name for p in host.out.iterdir()) == ["logagent@one.service.d"]


def test_what_the_configuration_writes_to_is_opened_too(host: Host) -> None:
    config = host.broker("/data/a")
    host.write(
        "etc/logagent/logagent.toml",
        f'[kafka]\nconfig = "{config}"\n[cleanup]\nquarantine_dirs = ["/data/aside"]\n'
        '[metrics]\ntextfile = "/var/lib/node_exporter/textfile/logagent.prom"\n[publish]\nstore = "/mnt/fleet"\n',
    )
    opened = {x.split("=", 1)[1] for x in host.generate() if x.startswith("ReadWritePaths")}
    assert opened == {'"-/data/a"', '"-/data/aside"', '"-/var/lib/node_exporter/textfile"', '"-/mnt/fleet"'}


def test_log_dirs_in_tmp_are_seen(host: Host) -> None:
    host.broker("/tmp/kafka-logs")
    assert "PrivateTmp=no" in host.generate()
    host.broker("/data/a")
    assert "PrivateTmp=no" not in host.generate()


def _user_lines(lines: list[str]) -> list[str]:
    return [x for x in lines if x.startswith(("User=", "Group="))]


def test_the_user_is_that_of_the_brokers_unit(host: Host) -> None:
    host.broker("/data/a")
    unit = "[Service]\nUser={}\nExecStart=/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties\n"
    host.write("etc/systemd/system/kafka.service", unit.format("nobody"))
    assert _user_lines(host.generate())[0] == "User=nobody"
    host.write("etc/systemd/system/kafka.service", unit.format("root"))
    assert _user_lines(host.generate()) == [], "never as root"
    host.write("etc/systemd/system/kafka.service", unit.format("no-such-user"))
    assert _user_lines(host.generate()) == []


def test_the_user_is_the_owner_of_the_log_dirs_else_of_the_state_dir(host: Host) -> None:
    need_root()
    host.broker("/data/a")
    (host.root / "data/a").mkdir(parents=True)
    assert _user_lines(host.generate()) == [], "a log dir of root's says nothing"
    os.chown(host.root / "data/a", 65534, 65534)
    assert _user_lines(host.generate())[0] == "User=nobody"
    (host.root / "data/a").rmdir()
    (host.root / "var/lib/logagent").mkdir(parents=True)
    os.chown(host.root / "var/lib/logagent", 1, 1)
    assert _user_lines(host.generate())[0] == "User=daemon"


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=12))
def test_no_name_of_a_directory_escapes_from_its_line(name: str) -> None:
    """One path, one word: nothing that server.properties says can add a directive or a specifier."""
    path = f"/data/{name}"
    if not generator.allowed(path):
        assert name in (".", "..") or any(ord(c) < 32 or ord(c) == 127 for c in name)
        return
    word = generator.quoted(path)
    assert word.startswith('"-/data/') and word.endswith('"')
    inner = word[1:-1].replace("\\\\", "").replace('\\"', "").replace("%%", "")
    assert '"' not in inner and "%" not in inner and "\\" not in inner and "\n" not in inner


@pytest.mark.parametrize(
    "path", ["/data/d1", "/data/disk 1", "/srv/.hidden", "/a-b/c_d", "/data/é", "/data/a:b", "/.x"]
)
def test_mount_units_are_named_as_systemd_does(path: str) -> None:
    need_command("systemd-escape")
    command = ["systemd-escape", "--path", "--suffix=mount", path]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert generator.unit_of_mount(path) == told.stdout.strip()


def test_systemd_accepts_the_units_with_what_is_generated(host: Host, unpacked: Path) -> None:
    """`systemd-analyze verify` reads unit and drop-in together, and the exposure is what is promised."""
    need_command("systemd-analyze")
    host.write("etc/fstab", "/dev/sdb /data/d1 ext4 defaults 0 0\n")
    host.broker('/data/d1/kafka,/srv/with space/100%,/srv/"quoted"')
    lines = host.generate()
    assert len(lines) > 5
    units = host.root / "units"
    for source in (unpacked / "usr/lib/systemd/system").iterdir():
        text = source.read_text().replace("/usr/bin/logagent", "/bin/true")
        text = text.replace("User=kafka", "User=root").replace("Group=kafka", "Group=root")
        host.write(f"units/{source.name}", text)
        instance = source.name.replace("@.", "@x.")
        host.write(f"units/{instance}.d/00-log-dirs.conf", "\n".join(lines) + "\n")
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"}
    for name in ("logagent.service", "logagent@x.service"):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", name], env=environment, capture_output=True,
                              text=True, check=False)  # fmt: skip
        complaints = [x for x in (done.stdout + done.stderr).splitlines() if "logagent" in x]
        assert (done.returncode, complaints) == (0, []), done.stderr
    service = unpacked / "usr/lib/systemd/system/logagent.service"
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(service)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:]
