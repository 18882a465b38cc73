"""dpkg and rpm install, upgrade, downgrade, remove and purge the package, on a copy of this machine to throw away.

The copy (tests/private_host.py) has no running systemd, as in an image builder. The same on clean and booted hosts:
`packaging/test-hosts.sh`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.cleanup.state.journal_schema import SCHEMA_VERSION
from tests.needs import need_command
from tests.package.conftest import Builds
from tests.private_host import PrivateHost, private_host

LOG_DIR = "/data/d1/kafka"


class Copy(PrivateHost):
    """This machine without any Kafka or logagent on it."""

    def __init__(self, init: int) -> None:  # no users: the package makes its own
        self._init = init
        self.root = Path(f"/proc/{init}/root")

    def sh(self, script: str, *, status: int = 0) -> str:
        """Run a script as root of the copy; what it said on both streams. Asserts how it ended."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(self.command("sh", "-euc", script), env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=600,
                              check=False)  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    need_command("dpkg", "rpm")
    with private_host(tmp_path / "copy", Copy) as one:
        one.sh("find /etc/systemd/system /usr/lib/systemd/system -name '*kafka*' -delete; rm -rf /opt/*kafka* /data")
        one.sh("if id kafka; then userdel kafka; fi >/dev/null 2>&1")
        one.sh(STANDARD)
        yield one


STANDARD = f"""
useradd --system --user-group --shell /usr/sbin/nologin broker
install -d -o broker -g broker -m 0750 {LOG_DIR} {LOG_DIR}/orders-0 /etc/kafka
echo x >{LOG_DIR}/orders-0/00000000000000000000.log
printf 'version=1\\nnode.id=1\\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\\n' \
    >{LOG_DIR}/meta.properties
chown -R broker:broker {LOG_DIR}
printf 'process.roles=broker\\nnode.id=1\\nlog.dirs={LOG_DIR}\\n' >/etc/kafka/server.properties
printf '[kafka]\\nconfig = "/etc/kafka/server.properties"\\nversion = "3.9.1"\\n' >/etc/kafka/ours.toml
"""
LISTING = f"find {LOG_DIR} -printf '%p %s %u %m %T@ %C@\\n' | sort"
AS_BROKER = "setpriv --reuid broker --regid broker --clear-groups"
CONFIG = "--config /etc/kafka/ours.toml --kafka-config /etc/kafka/server.properties"


def test_a_life_with_dpkg(copy: Copy, deb: str) -> None:
    """Install, upgrade, a refused downgrade, remove, purge; after each the log dir is as it was."""
    before = copy.sh(LISTING)
    copy.sh(deb)
    assert (
        copy.sh("id -un kafka; id -gn kafka; getent passwd kafka | cut -d: -f7") == "kafka\nkafka\n/usr/sbin/nologin\n"
    )
    assert copy.sh("stat -c '%a %U' /etc/logagent /etc/logagent/logagent.toml") == "755 root\n644 root\n"
    assert copy.sh("ls -d /var/lib/logagent /etc/systemd/system/logagent.service.d 2>/dev/null || true") == ""
    assert "User=broker" in copy.sh("logagent setup --execute")
    # The state dir is theirs whose log dirs these are.
    assert copy.sh("stat -c '%U %G %a' /var/lib/logagent") == "broker broker 750\n"
    # Setup has set kafka.config there, as an administrator would; nothing else differs from the package.
    assert copy.sh("dpkg --verify logagent") == "??5?????? c /etc/logagent/logagent.toml\n"
    assert copy.sh("find /usr/lib/logagent -name '*.pyc' | head -1 | wc -l") == "1\n"
    assert copy.sh(LISTING) == before
    _set_aside(copy)

    copy.sh("echo '# ours' >>/etc/logagent/logagent.toml")
    asked = "md5sum /etc/logagent/logagent.toml; logagent history --jsonl; " + LISTING
    before = copy.sh(asked)
    copy.sh(deb)
    assert copy.sh(asked) == before, "an upgrade keeps configuration and journal"

    copy.sh(_schema(99))
    told = copy.sh(deb, status=1)
    assert "written by a newer logagent (journal schema 99; this one knows" in told
    assert "There is no copy from before its upgrade (/var/lib/logagent.before)" in told
    copy.sh("cp -aT /var/lib/logagent /var/lib/logagent.before")
    told = copy.sh(deb, status=1)
    assert "mv /var/lib/logagent /var/lib/logagent.newer && cp -a /var/lib/logagent.before /var/lib/logagent" in told
    assert "from before its upgrade (/var/lib/logagent.before)" in copy.sh("logagent history", status=1)
    assert "install ok installed" in copy.sh("dpkg-query -W -f '${Status}' logagent; logagent --version")
    copy.sh(_schema(SCHEMA_VERSION))
    assert copy.sh(asked) == before

    copy.sh("dpkg -r logagent; test -e /etc/logagent/logagent.toml; test -e /var/lib/logagent/journal.db")
    assert copy.sh("ls -d /usr/lib/logagent /usr/bin/logagent 2>/dev/null || true") == ""
    assert copy.sh(LISTING) in before


def test_purging_keeps_what_can_be_needed_and_takes_nothing_by_a_pattern(copy: Copy, deb: str) -> None:
    """The journal, as long as what it could give back is there; an administrator's backup, a log dir in a state dir, a
    directory of a name that looks like ours, a symlink where a state dir would be."""
    copy.sh(f"{deb}; logagent setup --execute")
    _set_aside(copy)
    before = copy.sh(LISTING)
    assert "/var/lib/logagent stays: directories that were set aside or marked" in copy.sh("dpkg -P logagent")
    assert copy.sh("ls /var/lib/logagent/journal.db; ls -d /etc/logagent 2>/dev/null || true").count("\n") == 1
    assert copy.sh(LISTING) == before

    copy.sh(f"{deb}; mv /data /elsewhere")
    assert "/var/lib/logagent stays" in copy.sh("dpkg -P logagent"), "its disk is away"
    copy.sh(f"mv /elsewhere /data; {deb}; dpkg -r logagent; mv /data /elsewhere")
    assert "/var/lib/logagent stays" in copy.sh("dpkg -P logagent"), "its disk went after the package was removed"

    copy.sh(f"mv /elsewhere /data; {deb}")
    assert "orders-0" in copy.sh("logagent history --json"), "installed again, it knows what it did"
    copy.sh("logagent setup --execute; cp /etc/kafka/ours.toml /etc/logagent/one.toml; logagent setup one --execute")
    copy.sh("cp /etc/kafka/ours.toml /etc/logagent/linked.toml; mkdir /root/precious; touch /root/precious/kept")
    copy.sh("ln -s /root/precious /var/lib/logagent-linked; mkdir /var/lib/logagent-backup /var/lib/logagent-2025")
    copy.sh("touch /var/lib/logagent-backup/journal.db /etc/systemd/system/logagent.service.d/ours.conf")
    copy.sh("touch '/etc/logagent/a b.toml'; mkdir '/var/lib/logagent-a b' /var/lib/logagent-a")
    copy.sh(f"touch /etc/logagent/two.toml; mkdir /var/lib/logagent-two; cp -a {LOG_DIR} /var/lib/logagent-two/kafka")
    assert copy.sh("stat -c %U /var/lib/logagent /var/lib/logagent-one") == "broker\nbroker\n"
    said = copy.sh(f"rm -r {LOG_DIR}/*-stray; dpkg -P logagent")
    assert "/var/lib/logagent-two stays: there is a Kafka log dir in it" in said
    assert said.count(" stays: ") == 1
    assert copy.sh("cd /var/lib; ls -d logagent*").splitlines() == [
        "logagent-2025", "logagent-a", "logagent-a b", "logagent-backup", "logagent-linked", "logagent-two",
    ]  # fmt: skip
    assert copy.sh("ls /root/precious /var/lib/logagent-backup").split() == [
        "/root/precious:", "kept", "/var/lib/logagent-backup:", "journal.db",
    ]  # fmt: skip
    assert copy.sh("cd /var/lib/logagent-two/kafka; cat *-stray/*.log") == "x\n"
    assert copy.sh("ls -d /etc/logagent /usr/lib/logagent 2>/dev/null || true") == ""
    assert copy.sh("cd /etc/systemd/system; find logagent* -type f") == "logagent.service.d/ours.conf\n"


def test_a_life_with_rpm(copy: Copy, builds: Builds) -> None:
    need_command("rpm")
    package = f"--nodeps --ignorearch '{next(builds.first.glob('*.x86_64.rpm'))}'"
    before = copy.sh(LISTING)
    copy.sh(f"rpm --initdb; rpm --install {package}; rpm --verify --nodeps logagent; logagent --version; id kafka")
    assert copy.sh("rpm --query --configfiles logagent") == "/etc/logagent/logagent.toml\n"
    copy.sh(f"echo '# ours' >>/etc/logagent/logagent.toml; rpm --upgrade --force {package}")
    assert "# ours" in copy.sh("cat /etc/logagent/logagent.toml; find /usr/lib/logagent -name '*.pyc' | grep -q .")
    assert "User=broker" in copy.sh("logagent setup --execute")
    _set_aside(copy)
    copy.sh(_schema(99))
    assert "newer logagent" in copy.sh(f"rpm --upgrade --force {package}", status=1)
    before = copy.sh(LISTING)
    copy.sh("rpm --erase --nodeps logagent; test -e /var/lib/logagent/journal.db; test ! -e /usr/lib/logagent")
    assert copy.sh(LISTING) == before


def _schema(number: int) -> str:
    """A script that gives the journal another schema."""
    said = "import sqlite3; c = sqlite3.connect('/var/lib/logagent/journal.db')"
    return f"/usr/bin/python3 -c \"{said}; c.execute('PRAGMA user_version={number}'); c.close()\""


def _set_aside(copy: Copy) -> None:
    """One partition set aside as the broker's user, in the journal of the package."""
    asked = f"exec {AS_BROKER} logagent delete --partition orders-0 --quarantine --allow-assigned --even-last-copy"
    # All that this host has: that is a plan to approve.
    plan = json.loads(copy.sh(f"{asked} {CONFIG} --json 2>/dev/null", status=4))
    copy.sh(f"{asked} {CONFIG} --execute --approve {plan['plan_id']}")
    assert "-stray" in copy.sh(f"ls {LOG_DIR}")
