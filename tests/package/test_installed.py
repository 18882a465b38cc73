"""dpkg and rpm install, upgrade, downgrade, remove and purge the package, on a copy of this machine to throw away.

The copy is an overlay over `/` in a mount namespace of its own, without a running systemd, as in an image builder. The
same on clean and booted hosts: `packaging/test-hosts.sh`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import need_command, need_root
from tests.package.conftest import Builds, architecture

_SETUP = """
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs none "$1/root/run"
mount -t tmpfs none "$1/root/tmp"
chmod 1777 "$1/root/tmp"
cp "$2"/*.deb "$2"/*.rpm "$1/root/tmp"
echo ready
exec cat
"""
LOG_DIR = "/data/d1/kafka"


class Copy:
    """The copy; it is gone when the process that holds its namespace ends."""

    def __init__(self, place: Path, packages: Path) -> None:
        command = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            _SETUP,
            "sh",
            str(place),
            str(packages),
        ]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self._root = place / "root"

    def sh(self, script: str, *, status: int = 0) -> str:
        """Run a script as root of the copy; what it said on both streams. Asserts how it ended."""
        command = ["nsenter", "--target", str(self._holder.pid), "--mount", "chroot", str(self._root), "env", "-i"]
        command += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "sh", "-euc", script]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True, timeout=300, check=False)  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    def off(self) -> None:
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait(30)
        self._holder.stdout.close()


@pytest.fixture
def copy(builds: Builds, tmp_path: Path) -> Iterator[Copy]:
    need_root()
    need_command("unshare", "nsenter", "dpkg", "rpm")
    one = Copy(tmp_path, builds.first)
    try:
        yield one
    finally:
        one.off()


DEB = f"/tmp/logagent_*_{architecture()}.deb"
RPM = "/tmp/logagent-*.x86_64.rpm"
STANDARD = f"""
install -d -o nobody -g nogroup -m 0750 {LOG_DIR} {LOG_DIR}/orders-0 /etc/kafka
echo x >{LOG_DIR}/orders-0/00000000000000000000.log
printf 'version=1\\nnode.id=1\\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\\n' \
    >{LOG_DIR}/meta.properties
chown -R nobody:nogroup {LOG_DIR}
printf 'process.roles=broker\\nnode.id=1\\nlog.dirs={LOG_DIR}\\n' >/etc/kafka/server.properties
printf '[kafka]\\nconfig = "/etc/kafka/server.properties"\\n' >/etc/kafka/ours.toml
"""
LISTING = f"find {LOG_DIR} -printf '%p %s %u %m %T@ %C@\\n' | sort"
AS_BROKER = "setpriv --reuid nobody --regid nogroup --clear-groups"
CONFIG = "--config /etc/kafka/ours.toml --kafka-config /etc/kafka/server.properties"


def test_installing_makes_user_state_and_configuration_and_touches_no_log_dir(copy: Copy) -> None:
    copy.sh(STANDARD)
    before = copy.sh(LISTING)
    copy.sh(f"dpkg --force-depends -i {DEB}")
    assert (
        copy.sh("id -un kafka; id -gn kafka; getent passwd kafka | cut -d: -f7") == "kafka\nkafka\n/usr/sbin/nologin\n"
    )
    assert copy.sh("stat -c '%a %U' /etc/logagent /etc/logagent/logagent.toml") == "755 root\n644 root\n"
    assert copy.sh("dpkg --verify logagent; find /usr/lib/logagent -name '*.pyc' | head -1 | wc -l") == "1\n"
    assert "version" in copy.sh("logagent --version")
    assert copy.sh(LISTING) == before


def test_the_state_dir_belongs_to_whom_the_log_dirs_belong(copy: Copy) -> None:
    copy.sh(STANDARD)
    copy.sh("rm -rf /etc/systemd/system/*kafka* /opt/kafka* /etc/kafka/kraft")
    copy.sh(f"dpkg --force-depends -i {DEB}")
    assert copy.sh("stat -c '%U %G %a' /var/lib/logagent") == "nobody nogroup 750\n"


def test_upgrade_keeps_configuration_and_journal(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    copy.sh("echo '# ours' >>/etc/logagent/logagent.toml")
    _set_aside(copy)
    before = copy.sh(
        "md5sum /etc/logagent/logagent.toml; logagent history --json | tail -n +1 | grep -c plan_id; " + LISTING
    )
    copy.sh(f"dpkg --force-depends --force-confold -i {DEB}")
    after = copy.sh(
        "md5sum /etc/logagent/logagent.toml; logagent history --json | tail -n +1 | grep -c plan_id; " + LISTING
    )
    assert after == before


def test_a_version_that_does_not_know_the_journal_is_not_installed(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    _set_aside(copy)
    said = "import sqlite3; c = sqlite3.connect('/var/lib/logagent/journal.db'); c.execute('PRAGMA user_version=99')"
    copy.sh(f'python3 -c "{said}; c.close()"')
    told = copy.sh(f"dpkg --force-depends -i {DEB}", status=1)
    assert "written by a newer logagent (journal schema 99; this one knows" in told
    assert "install ok installed" in copy.sh("dpkg-query -W -f '${Status}' logagent; logagent --version")


def test_removing_keeps_state_and_configuration(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    _set_aside(copy)
    before = copy.sh(LISTING)
    copy.sh("dpkg -r logagent; test -e /etc/logagent/logagent.toml; test -e /var/lib/logagent/journal.db")
    assert copy.sh("ls -d /usr/lib/logagent /usr/bin/logagent 2>/dev/null || true") == ""
    assert copy.sh(LISTING) == before


def test_purging_keeps_the_journal_while_something_can_be_given_back(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    _set_aside(copy)
    before = copy.sh(LISTING)
    told = copy.sh("dpkg -P logagent")
    assert "/var/lib/logagent stays: directories that were set aside or marked are still on the disks" in told
    assert (
        copy.sh("ls /var/lib/logagent/journal.db; ls -d /etc/logagent 2>/dev/null || true")
        == "/var/lib/logagent/journal.db\n"
    )
    assert copy.sh(LISTING) == before
    # Installed again, it knows what it did; once the directory is gone, so is the reason to keep the journal.
    copy.sh(f"dpkg --force-depends -i {DEB}")
    assert "orders-0" in copy.sh("logagent history --json")
    copy.sh(f"rm -r {LOG_DIR}/*-stray; dpkg -P logagent")
    assert copy.sh("ls -d /var/lib/logagent* /etc/logagent 2>/dev/null || true") == ""


def test_purging_keeps_the_journal_while_the_disk_is_away(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    _set_aside(copy)
    copy.sh("mv /data /elsewhere")
    assert "/var/lib/logagent stays" in copy.sh("dpkg -P logagent")


def test_purging_takes_no_log_dir_even_where_none_should_be(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    copy.sh(f"mv {LOG_DIR} /var/lib/logagent/kafka")
    assert "there is a Kafka log dir in it" in copy.sh("dpkg -P logagent")
    copy.sh("test -e /var/lib/logagent/kafka/orders-0/00000000000000000000.log")


def test_purging_without_anything_to_give_back_leaves_nothing(copy: Copy) -> None:
    copy.sh(STANDARD + f"dpkg --force-depends -i {DEB}")
    before = copy.sh(LISTING)
    copy.sh("logagent config check " + CONFIG)
    copy.sh("dpkg -P logagent")
    assert copy.sh("ls -d /var/lib/logagent* /etc/logagent /usr/lib/logagent 2>/dev/null || true") == ""
    assert copy.sh(LISTING) == before


def test_rpm_installs_upgrades_refuses_and_erases(copy: Copy) -> None:
    copy.sh(STANDARD)
    before = copy.sh(LISTING)
    copy.sh(f"rpm --initdb; rpm --install --nodeps {RPM}; rpm --verify --nodeps logagent; logagent --version; id kafka")
    assert copy.sh("rpm --query --configfiles logagent; rpm --query --docfiles logagent | grep -c man") != ""
    copy.sh(f"echo '# ours' >>/etc/logagent/logagent.toml; rpm --upgrade --force --nodeps {RPM}")
    assert "# ours" in copy.sh("cat /etc/logagent/logagent.toml; find /usr/lib/logagent -name '*.pyc' | head -1")
    said = "import sqlite3; c = sqlite3.connect('/var/lib/logagent/journal.db'); c.execute('CREATE TABLE x (y)')"
    copy.sh(f"python3 -c \"{said}; c.execute('PRAGMA user_version=99'); c.close()\"")
    assert "newer logagent" in copy.sh(f"rpm --upgrade --force --nodeps {RPM}", status=1)
    copy.sh("rpm --erase --nodeps logagent; test -d /var/lib/logagent; test ! -e /usr/lib/logagent")
    assert copy.sh(LISTING) == before


def _set_aside(copy: Copy) -> None:
    """One partition set aside as the broker's user, in the journal of the package."""
    copy.sh("chown -R nobody:nogroup /var/lib/logagent")
    copy.sh(f"{AS_BROKER} logagent delete --partition orders-0 --quarantine --allow-assigned --even-last-copy --execute"
            f" {CONFIG}")  # fmt: skip
    assert "-stray" in copy.sh(f"ls {LOG_DIR}")
