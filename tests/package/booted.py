"""The packages on a booted systemd beside a real broker: one scenario, each step with the figures it saw.

`python -m tests.package.hosts --booted debian-12` runs it; hosts.py says which distributions there are.
"""

from __future__ import annotations

import json
import re
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from logagent.cleanup.state.journal_schema import SCHEMA_VERSION
from tests.package import broker_host
from tests.package.broker_host import LOG_DIRS, make_marked, start_broker
from tests.package.machines import Machine, device_is_free, enter, loop_disks, unpacked, wait_for

SERVICE = "logagent.service"
MALLORY = "mallory"
# Whatever the system itself mounts writable for a service with PrivateTmp=, PrivateDevices= and a state dir.
_OWN_MOUNTS = re.compile(r"^/(dev(/.*)?|proc|tmp|var/tmp|var/lib/logagent|run/(host|lock).*|sys/.*)$")


@dataclass
class Scenario:
    """One machine with one broker; steps are called in the order in which they stand."""

    machine: Machine
    user: str
    devices: list[str]
    said: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.said.append(line)
        print(f"    {line}", flush=True)

    def sh(self, script: str, *, check: bool = True, timeout: float = 120) -> str:
        return self.machine.sh(script, check=check, timeout=timeout).stdout.strip()

    def active(self) -> bool:
        return self.machine.show(SERVICE, "ActiveState") == "active"

    def pid(self) -> int:
        return int(self.machine.show(SERVICE, "MainPID"))

    def journal(self) -> str:
        return self.sh("journalctl -u logagent --no-pager -o cat", check=False)

    def restart(self) -> None:
        """Start it again; the limit of starts is for those that nobody asked for."""
        self.sh(f"systemctl reset-failed {SERVICE}; systemctl restart {SERVICE}", timeout=300)

    def as_user(self, script: str, *, check: bool = True) -> str:
        become = f"setpriv --reuid {self.user} --regid {self.user} --clear-groups"
        return self.sh(f"exec {become} sh -ec {quote(script)}", check=check)

    # Steps.

    def install(self, package: str) -> None:
        before = self.listing()
        started = time.monotonic()
        told = self.sh(f"apt-get install -y -q {package}", timeout=300)
        self.say(f"installed in {time.monotonic() - started:.1f} s; {self.machine.show(SERVICE, 'ActiveState')}")
        assert "logagent setup --execute" in told, told
        assert not self.active(), "nothing runs before an operator has asked for it"
        self.sh(f"systemctl start {SERVICE}")
        assert not self.active() and self.machine.show(SERVICE, "ConditionResult") == "no"
        self.set_up()
        assert self.active(), self.journal()
        assert self.machine.show(SERVICE, "User") == self.user
        assert self.sh("stat -c %U:%a /var/lib/logagent") == f"{self.user}:750"
        assert self.listing() == before, "installing changed something in a log dir"
        score = self.sh(f"systemd-analyze security --no-pager {SERVICE} | tail -1")
        self.say(score)
        assert float(re.findall(r"[\d.]+ [A-Z]+", score)[0].split()[0]) <= 2.0
        self.say(f"before the broker: READY, User={self.user} from its unit")
        self.untouched_by(MALLORY)

    def set_up(self) -> None:
        """As the package says it: look, write, read, start."""
        shown = self.sh("logagent setup 2>&1")
        assert f"User={self.user}" in shown and MALLORY not in shown and "nothing was written yet" in shown, shown
        assert f'config = "{broker_host.CONFIG}"' in shown, shown
        print(textwrap.indent(shown, "        "), flush=True)
        written = self.sh("logagent setup --execute 2>&1", timeout=300)
        assert "systemd-analyze verify has no complaints" in written, written
        assert f"{SERVICE} is enabled and running" in written, written

    def untouched_by(self, user: str) -> None:
        """Whatever that user pretends: nothing of it is in the unit, and a reload takes no longer for it."""
        started = time.monotonic()
        self.sh("systemctl daemon-reload")
        seconds = time.monotonic() - started
        assert seconds < 10, seconds
        assert user not in self.sh(f"systemctl show {SERVICE}; systemctl cat {SERVICE}")
        found = self.sh("grep -rl mallory /etc/systemd /run/systemd/generator* /run/systemd/system || true").split()
        assert [f for f in found if "mallory.service" not in f] == []
        assert self.sh("ls /root/owned 2>/dev/null || true") == ""
        assert self.sh("systemctl is-active mallory") == "active"
        self.say(f"beside {user}'s processes, FIFOs and files: daemon-reload in {seconds:.1f} s, nothing of them in it")

    def listing(self) -> str:
        return self.sh(f"find {' '.join(LOG_DIRS)} -printf '%p %s %u %m %T@\\n' | sort")

    def only_log_dirs_are_writable(self) -> None:
        lines = self.sh(f"cat /proc/{self.pid()}/mountinfo").splitlines()
        writable = [line.split()[4] for line in lines if line.split()[5].split(",")[0] == "rw"]
        opened = [m for m in writable if not _OWN_MOUNTS.match(m)]
        assert sorted(set(opened)) == ["/data/d1", "/data/d2"], opened
        system = ["/etc", "/run", "/dev/shm", "/boot", "/root", "/home", "/opt", "/data"]
        closed = [*system, "/usr/lib/logagent", "/var/lib", "/var/log"]
        tried = (*closed, "/var/lib/logagent", "/tmp", *LOG_DIRS)
        script = "; ".join(f"(: >{t}/.probe && rm {t}/.probe && echo {t}) 2>/dev/null || true" for t in tried)
        inside = f"nsenter -t {self.pid()} -m setpriv --reuid {self.user} --regid {self.user} --clear-groups"
        could = self.sh(f"{inside} sh -c '{script}'").splitlines()
        assert sorted(could) == sorted(["/var/lib/logagent", "/tmp", *LOG_DIRS]), could
        # Also for a root in its mount namespace: not the user's rights alone hold it back.
        could = self.sh(f"nsenter -t {self.pid()} -m sh -c '{script}'").splitlines()
        assert not set(closed) & set(could), could
        self.say(f"writable mounts: {' '.join(sorted(set(opened)))}, its state dir, its own /tmp; nothing else")

    def beside_the_broker(self) -> None:
        seconds = start_broker(self.machine)
        assert self.active()
        self.say(f"broker serves after {seconds:.1f} s, beside the service")
        self.restart()
        assert self.active()
        assert self.machine.show("kafka", "ActiveState") == "active"
        scan = json.loads(self.as_user("logagent scan --json 2>/dev/null"))
        holders = {d["path"]: d["holder"] for d in scan["log_dirs"]}
        broker = int(self.machine.show("kafka", "MainPID"))
        assert {h["pid"] for h in holders.values()} == {broker}, holders
        self.say(f"restarted after the broker: READY; the holder of {len(holders)} log dirs is the broker's process")
        status = json.loads(self.as_user("logagent status --json 2>/dev/null"))
        self.say(f"status: {status['schema']}")

    def no_owner_but_the_user(self) -> None:
        others = self.sh(f"find {' '.join(LOG_DIRS)} /var/lib/logagent ! -user {self.user}")
        assert others == "", others
        self.say("nothing in a log dir or the state dir belongs to anyone else")

    def reads_the_clock(self) -> None:
        """Within the unit's own limits the kernel says whether the wall clock is synchronised."""
        place = "/etc/systemd/system/logagent.service.d"
        script = (
            "import sys; sys.path.insert(0, '/usr/lib/logagent'); import start; start.prepare()\n"
            "from logagent.cleanup.session.recall import is_synchronised\n"
            "print('synchronised:', is_synchronised())"
        )
        self.sh("! test -e /run/systemd/timesync/synchronized")
        self.sh(f"printf %s {quote(script)} >/usr/local/bin/clock.py; mkdir -p {place}")
        self.sh(f"printf '[Service]\\nExecStartPre=python3 -IS /usr/local/bin/clock.py\\n' >{place}/test.conf")
        self.sh("systemctl daemon-reload")
        self.restart()
        answers = re.findall(r"^synchronised: (\w+)", self.journal(), re.MULTILINE)
        assert answers in (["True"], ["False"]), answers
        self.say(f"the unit may ask for the state of the clock (synchronised: {answers[0]})")
        self.sh(f"rm {place}/test.conf; systemctl daemon-reload")
        self.restart()

    def hung(self) -> None:
        place = "/etc/systemd/system/logagent.service.d"
        self.sh(f"mkdir -p {place}; printf '[Service]\\nWatchdogSec=6\\nRestartSec=1\\n' >{place}/test.conf")
        self.sh("systemctl daemon-reload")
        self.restart()
        before, started = self.pid(), time.monotonic()
        self.sh(f"kill -STOP {before}")
        wait_for("the watchdog starts it again", lambda: self.active() and self.pid() not in (0, before), 120)
        assert "watchdog" in self.sh("journalctl -b --no-pager -u logagent").lower()
        self.say(f"SIGSTOP: killed by the watchdog (6 s) and READY again after {time.monotonic() - started:.1f} s")
        self.sh(f"rm {place}/test.conf; systemctl daemon-reload")
        self.restart()

    def reload(self) -> None:
        pid = self.pid()
        self.sh("printf '[cleanup]\\nno_such_key = 1\\n' >/etc/logagent/bad; cp /etc/logagent/logagent.toml /root/good")
        self.sh("cat /etc/logagent/bad >>/etc/logagent/logagent.toml")
        refused = self.machine.sh(f"systemctl reload {SERVICE}", check=False)
        assert refused.returncode != 0 and self.active() and self.pid() == pid, refused
        wait_for("the reason", lambda: "invalid configuration" in self.sh(f"journalctl -b --no-pager -u {SERVICE}"), 30)
        # What asks the daemon all the same gets the same answer in its log.
        self.sh(f"systemctl kill -s HUP --kill-whom=main {SERVICE}")
        wait_for("a wrong file is told", lambda: "event=reload-failed" in self.journal(), 60)
        self.sh(f"cp /root/good /etc/logagent/logagent.toml; rm /etc/logagent/bad; systemctl reload {SERVICE}")
        wait_for("a right file is told", lambda: "event=reloaded" in self.journal(), 60)
        assert self.active() and self.pid() == pid
        self.say(
            "reload: with a wrong file it fails, and the running configuration stays; a right one is read; same process"
        )

    def removing(self, name: str, files: int = 4000) -> str:
        """Enforce, slowly, with one marked directory due; returns its path once its files are going."""
        path = make_marked(self.machine, self.user, LOG_DIRS[0], name, files)
        wait_for("removal begins", lambda: self.left(path) < files, 180)
        return path

    def left(self, path: str) -> int:
        return int(self.sh(f"find {path} -name '*.log' 2>/dev/null | wc -l"))

    def enforce(self, bytes_per_second: str) -> None:
        text = f'[kafka]\nconfig = "{broker_host.CONFIG}"\n[cleanup]\nmode = "enforce"\ninterval = "5s"\n'
        text += 'leftover_grace = "1s"\n[delete]\n'
        text += f'file_delete_delay_ms = 1000\nbytes_per_second = "{bytes_per_second}"\n'
        (self.machine.root / "etc/logagent/logagent.toml").write_text(text)
        self.restart()

    def stop_while_removing(self) -> None:
        self.sh("systemctl stop kafka", timeout=120)
        self.enforce("64KiB")
        path = self.removing("orders-0.0123456789abcdef0123456789abcdef-delete")
        started = time.monotonic()
        self.sh(f"systemctl stop {SERVICE}")
        seconds, left = time.monotonic() - started, self.left(path)
        assert left > 0 and self.machine.show(SERVICE, "Result") == "success"
        assert seconds < 5.0, seconds
        self.say(f"stopped amid a removal in {seconds:.2f} s, {left} files left, result success")
        self.sh(f"systemctl start {SERVICE}", timeout=300)
        wait_for("it goes on", lambda: self.left(path) < left, 180)
        self.say("started again: it goes on with the same directory")

    def upgrade(self, package: str) -> None:
        path = next(iter(self.sh(f"ls -d {LOG_DIRS[0]}/*-delete").splitlines()))
        kept = self.sh("md5sum </etc/logagent/logagent.toml"), self.history_length()
        before, left = self.pid(), self.left(path)
        self.sh(f"apt-get install -y -q -o Dpkg::Options::=--force-confold {package}", timeout=300)
        assert self.active() and self.pid() != before
        assert self.sh("md5sum </etc/logagent/logagent.toml") == kept[0] and self.history_length() >= kept[1]
        wait_for("it goes on", lambda: self.left(path) < left, 180)
        self.enforce("100MiB")
        wait_for("the rest goes", lambda: not self.sh(f"ls -d {path} 2>/dev/null || true"), 180)
        version = self.sh("dpkg-query -W -f '${Version}' logagent")
        self.say(
            f"upgraded to {version} amid a removal: same configuration, {self.history_length()} journal entries, done"
        )

    def history_length(self) -> int:
        return len(json.loads(self.as_user("logagent history --json 2>/dev/null"))["entries"])

    def disk_unmounted(self) -> None:
        before = self.pid()
        done = self.machine.sh("umount /data/d2", check=False)
        assert done.returncode == 0, f"{done.stdout}\n{self.sh('grep -l /data/d2 /proc/[0-9]*/mountinfo', check=False)}"
        wait_for("the device is free", lambda: device_is_free(self.devices[1]), 30)
        self.say("unmounted under the running service: umount at once, the device is free for an exclusive opener")

        def health() -> str:
            status = json.loads(self.as_user("logagent status --json 2>/dev/null", check=False) or "{}")
            return str(next((d for d in status.get("log_dirs", []) if d["path"] == LOG_DIRS[1]), None))

        seconds = wait_for("the log dir is offline", lambda: "offline" in health(), 150)
        assert self.active() and self.pid() == before
        self.say(f"offline after {seconds:.1f} s; the service stayed up, same process")
        self.sh("mount /data/d2")
        wait_for("the log dir is back", lambda: "online" in health(), 300)
        assert self.pid() == before
        self.say("mounted again: online, same process")

    def downgrade_refused(self, package: str) -> None:
        bump = "import sqlite3; c = sqlite3.connect('/var/lib/logagent/journal.db'); "
        bump += "c.execute('PRAGMA user_version={}'); c.close()"
        self.sh(f"systemctl stop {SERVICE}")
        self.as_user(f"python3 -c {quote(bump.format(99))}")
        done = self.machine.sh(f"apt-get install -y -q --allow-downgrades {package}", check=False)
        assert done.returncode != 0 and "newer logagent (journal schema 99" in done.stdout, done.stdout
        self.say("downgrade with a newer journal: " + re.findall(r"logagent: .*newer.*", done.stdout)[0])
        # Were it there nevertheless, the daemon does nothing with it and says so.
        self.machine.sh(f"systemctl start {SERVICE}", check=False, timeout=300)
        wait_for("the daemon refuses it too", lambda: "newer logagent" in self.journal(), 120)
        self.sh(f"systemctl stop {SERVICE}")
        self.as_user(f"python3 -c {quote(bump.format(SCHEMA_VERSION))}")
        self.sh(f"apt-get install -y -q --allow-downgrades {package}", timeout=300)
        self.restart()
        assert self.active()
        self.say("downgraded with a journal it knows: READY")

    def remove_and_purge(self, package: str) -> None:
        name = "payments-0"
        self.as_user(f"mkdir {LOG_DIRS[1]}/{name}")
        self.sh(f"systemctl stop {SERVICE}")
        asked = f"logagent delete --kafka-config {broker_host.CONFIG} --partition {name}"
        asked += " --quarantine --allow-assigned --even-last-copy"
        # All that this host has: that is a plan to approve.
        (self.machine.root / "etc/logagent/logagent.toml").write_text(
            f'[kafka]\nconfig = "{broker_host.CONFIG}"\nversion = "{broker_host.KAFKA}"\n'
        )
        plan = json.loads(self.as_user(f"{asked} --json 2>/dev/null", check=False))
        self.as_user(f"{asked} --execute --approve {plan['plan_id']}")
        stray = self.sh(f"ls {LOG_DIRS[1]} | grep -- -stray")
        self.sh(f"systemctl start {SERVICE}", timeout=300)
        before = self.listing()
        self.sh("apt-get remove -y -q logagent", timeout=300)
        assert (
            not self.active()
            and self.sh("test -e /var/lib/logagent/journal.db && test -e /etc/logagent/logagent.toml; echo $?") == "0"
        )
        assert self.sh("pgrep -f '[/]usr/lib/logagent' || true") == ""
        self.say("removed: stopped; configuration and journal stay")
        done = self.sh("apt-get purge -y -q logagent", timeout=300)
        assert "/var/lib/logagent stays" in done, done
        assert self.listing() == before
        self.say(f"purged with {stray} on the disk: the journal stays, and it is said; log dirs untouched")
        self.sh(f"apt-get install -y -q {package}", timeout=300)
        self.as_user(f"rmdir {LOG_DIRS[1]}/{stray}")
        self.sh("mkdir /var/lib/logagent-backup; touch /var/lib/logagent-backup/kept")
        before = self.listing()
        self.sh("apt-get purge -y -q logagent", timeout=300)
        assert (
            self.sh("ls -d /var/lib/logagent* /etc/logagent /usr/lib/logagent /run/logagent* 2>/dev/null || true")
            == "/var/lib/logagent-backup"
        )
        assert self.sh("ls -d /etc/systemd/system/logagent* 2>/dev/null || true") == ""
        assert self.listing() == before
        self.say("purged without: state and configuration are gone, log dirs untouched")


def run(name: str, packages: tuple[Path, Path], scratch: Path, user: str) -> None:
    """The whole scenario on one distribution; `packages`: the previous build and this one. Raises at what fails."""
    with loop_disks(scratch, 2) as devices, unpacked(name, scratch) as root:
        for n, package in enumerate(packages, 1):
            (root / f"root/logagent-{n}.deb").write_bytes(package.read_bytes())
        enter(root, "apt-get update -q; apt-get install -y -q --no-install-recommends python3", timeout=600)
        broker_host.lay_out(root, user, devices)
        broker_host.lay_out_mallory(root)
        enter(root, "systemd-sysusers; systemctl --quiet disable systemd-networkd systemd-resolved 2>/dev/null || true")
        options = ["--private-network", *(f"--bind={d}" for d in devices), *broker_host.binds()]
        with Machine(root, options, scratch / f"{name}.console") as machine:
            one = Scenario(machine, user, devices)
            one.say(f"booted in {machine.boot_seconds:.1f} s: systemd {one.sh('systemctl --version | head -1')}")
            broker_host.format_disks(machine, user)
            one.install("/root/logagent-1.deb")
            one.only_log_dirs_are_writable()
            one.beside_the_broker()
            one.no_owner_but_the_user()
            one.reads_the_clock()
            one.hung()
            one.reload()
            one.untouched_by(MALLORY)
            one.stop_while_removing()
            one.upgrade("/root/logagent-2.deb")
            one.untouched_by(MALLORY)
            one.disk_unmounted()
            one.no_owner_but_the_user()
            one.downgrade_refused("/root/logagent-1.deb")
            one.remove_and_purge("/root/logagent-1.deb")
