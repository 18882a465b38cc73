"""An operator's first weeks on a booted host beside a real broker, from the last 0.1.0 to this version and back.

README's install block, the first plan, a week in report mode, enforce, an approval, an undo, a removal; then the
upgrade with pending work (a directory that waits in the queue, a plan that is held, snapshots that could not be
published), one fleet of hosts of both versions, the way back, removal and purge.
`python -m tests.package.hosts --weeks debian-12` runs it.

A week is not waited for: all times of the journal are set back, as if it had been written then.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from tests.markdown import ROOT, blocks
from tests.package import broker_host
from tests.package.booted import SERVICE, Scenario
from tests.package.broker_host import CONFIG, LOG_DIRS, start_broker
from tests.package.machines import Machine, enter, loop_disks, run, unpacked, wait_for

TOML = "etc/logagent/logagent.toml"
STORE, MARKED = "/mnt/fleet", "/mnt/fleet/.logagent-store"
ELSEWHERE = "127.0.0.1:9094"
OLDER = "/opt/older"
"""Where the older version is unpacked, for a second host of the fleet."""
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
ORPHANS = ("ghosts-0", "ghosts-1", "ghosts-2")
_DAY = 86_400_000
# Every time of the journal, of whichever schema: then it was written that long ago.
_AGE = """
import sqlite3, sys
by, db = int(sys.argv[1]), sqlite3.connect('/var/lib/logagent/journal.db')
tables = [t for t, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
for table in tables:
    for column in [c[1] for c in db.execute(f'PRAGMA table_info({table})')]:
        if column.endswith('_ms') and column != 'drift_ms' and column != 'delta_ms':
            db.execute(f'UPDATE {table} SET {column} = {column} - ? WHERE {column} > 0', (by,))
db.commit()
"""


@dataclass(frozen=True)
class Packages:
    """The last of 0.1.0 and this version: directories as `packaging/build.sh` makes them."""

    older: Path
    newer: Path

    @staticmethod
    def deb(place: Path) -> Path:
        return next(place.glob("logagent_*_amd64.deb"))


def install_block(package: str) -> list[str]:
    """README's lines from the installation on, with this package in the place of the one that they name."""
    section = (ROOT / "README.md").read_text().split("## Install on a host", 1)[1]
    block = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[0]
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    lines = [re.sub(r"logagent_\S+_amd64\.deb", package, line) for line in lines]
    assert [line.split()[0] for line in lines] == ["sha256sum", "apt", "logagent", "logagent"], lines
    return lines


def way_back() -> tuple[str, str]:
    """The lines of docs/reference/compatibility.md: those before an upgrade, those that go back."""
    keep, back = (block.text for block in blocks(ROOT / "docs/reference/compatibility.md") if block.language == "bash")
    return keep, back


class Weeks(Scenario):
    """Each step says what it saw; `said` counts them."""

    def configure(self, text: str, *, restart: bool = False) -> None:
        (self.machine.root / TOML).write_text(f'[kafka]\nconfig = "{CONFIG}"\n{text}')
        if restart:
            self.restart()
        else:
            self.sh(f"systemctl reload {SERVICE}")

    def document(self, command: str, *, statuses: tuple[int, ...] = (0,)) -> dict[str, Any]:
        become = f"setpriv --reuid {self.user} --regid {self.user} --clear-groups"
        done = self.machine.sh(f"exec {become} sh -c {quote(f'{command} --json 2>/dev/null')}", check=False)
        assert done.returncode in statuses, (command, done.returncode, done.stdout)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def names(self, suffix: str = "") -> list[str]:
        found = self.sh(f"ls {' '.join(LOG_DIRS)}").split()
        return sorted(n for n in found if n.startswith(("ghosts", "payments", "later")) and n.endswith(suffix))

    def passes(self, milliseconds: int) -> None:
        """So much time, as far as the journal knows."""
        self.sh(f"systemctl stop {SERVICE}")
        self.sh(f"printf %s {quote(_AGE)} >/root/age.py")
        self.sh(f"python3 /root/age.py {milliseconds}")
        self.restart()

    def looked(self, times: int = 1) -> None:
        """Until the daemon has finished so many more cycles."""

        def last() -> str:
            cycles = self.document("logagent status")["cycles"]
            return max((c["started_at"] for c in cycles if c["job"] == "cleanup"), default="")

        for _ in range(times):
            before = last()
            wait_for("a cycle", lambda before=before: last() > before, 120)  # type: ignore[misc]

    # Steps.

    def cluster_of_two(self) -> None:
        """The broker of this host, and one elsewhere, which is the controller, too: another user's process, no unit."""
        two = "process.roles=broker,controller\nnode.id=2\nlog.dirs=/srv/elsewhere\n" + (
            f"listeners=PLAINTEXT://{ELSEWHERE},CONTROLLER://127.0.0.1:9095\nadvertised.listeners=PLAINTEXT://{ELSEWHERE}\n"
        )
        one = f"process.roles=broker\nnode.id=1\nlog.dirs={','.join(LOG_DIRS)}\nlisteners=PLAINTEXT://127.0.0.1:9092\n"
        shared = "controller.quorum.voters=2@127.0.0.1:9095\ncontroller.listener.names=CONTROLLER\n"
        shared += "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n"
        (self.machine.root / CONFIG.lstrip("/")).write_text(one + shared)
        (self.machine.root / "srv/two.properties").write_text(two + shared)
        self.sh("useradd --system elsewhere; install -d -o elsewhere /srv/elsewhere")
        tool = "/opt/java/bin/java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format"
        become = "setpriv --reuid elsewhere --clear-groups"
        self.sh(f"{become} {tool} -t {CLUSTER} -c /srv/two.properties")
        start = "setsid /opt/kafka/bin/kafka-server-start.sh /srv/two.properties >/srv/two.log 2>&1 </dev/null &"
        self.sh(f"touch /srv/two.log; {become} --inh-caps=-all {start}")
        wait_for("the broker elsewhere", lambda: "Kafka Server started" in self.sh("cat /srv/two.log"), 180)
        broker_host.format_disks(self.machine, self.user)
        self.say(f"a cluster of two; this host's broker serves after {start_broker(self.machine):.1f} s")

    def has_topics(self) -> None:
        self.admin(
            "client.create_topics([NewTopic(n, -1, -1, {p: [1, 2] for p in range(3)}) for n in ('ghosts', 'payments')])"
        )
        wait_for("the topics are here", lambda: len(self.names()) == 6, 60)

    def installs_as_readme_says(self, package: str) -> None:
        *install, doctor = install_block(package)
        self.sh("cd /root/dist && sha256sum *.deb >SHA256SUMS")
        for line in install:
            self.sh(f"cd /root/dist && {line}", timeout=300)
        assert self.active(), self.journal()
        wait_for("a first cycle", lambda: self.machine.sh("logagent status", check=False).returncode == 0, 120)
        told = self.machine.sh(doctor, check=False).stdout
        assert not re.search(r"^ *fails", told, re.MULTILINE), told
        self.say(f"README's block: installed, set up, running; doctor: {told.strip().splitlines()[-1]}")

    def first_plan(self) -> None:
        """A topic is deleted while this broker is stopped."""
        self.configure('[cleanup]\ninterval = "5s"\n')
        self.looked(2)  # only from a broker that was seen beside the running one does an answer count later
        self.sh("systemctl stop kafka", timeout=120)
        self.admin("client.delete_topics(['ghosts'])")
        before = self.listing()
        plan: dict[str, Any] = {}

        def waits() -> bool:
            """An answer proves an absence a minute after it: until then a directory may be younger."""
            plan.update(self.document("logagent cleanup"))
            return {w["name"] for w in plan["waiting"]} == {*ORPHANS}

        wait_for("the first plan", waits, 240)
        assert plan["actions"] == [] and self.listing() == before, plan
        waiting = plan["waiting"]
        self.say(f"first plan: {len(waiting)} orphans wait for their age, nothing is due; log dirs untouched")

    def admin(self, line: str) -> None:
        """One call of an admin client, which the package brings along, at the broker elsewhere."""
        script = "import sys; sys.path.insert(0, '/usr/lib/logagent'); import start; start.prepare()\n"
        script += "from kafka.admin import KafkaAdminClient, NewTopic\n"
        script += f"client = KafkaAdminClient(bootstrap_servers='{ELSEWHERE}')\n{line}\n"
        self.sh(f"python3 -IS -c {quote(script)}")

    def week_in_report(self) -> None:
        before = self.listing()
        self.looked(3)
        self.passes(8 * _DAY)
        self.looked()
        plan = self.document("logagent cleanup", statuses=(0, 4))
        due = {a["name"] for a in plan["actions"] if a["action"] == "quarantine"}
        assert due >= set(ORPHANS), plan
        assert self.listing() == before, "report mode changed something"
        told = self.journal()
        assert "ghosts-0" in told, told[-2000:]
        self.say(f"a week in report: {len(due)} due, said in the service's log; log dirs untouched")

    def enforces_once_approved(self) -> None:
        """More than a tenth of the host: the plan is held as a whole, until exactly it is approved."""
        before = self.listing()
        self.configure('[cleanup]\nmode = "enforce"\ninterval = "5s"\n')
        self.looked(2)
        plan = self.document("logagent cleanup", statuses=(4,))
        assert self.listing() == before, "a held plan was carried out"
        assert plan["plan_id"] in self.machine.sh("logagent status", check=False).stdout + self.journal()
        self.as_user(f"logagent cleanup --execute --approve {plan['plan_id']}")
        strays = self.names("-stray")
        assert len(strays) == len(ORPHANS), self.names()
        self.say(f"enforce: the plan was held; approved by its id: {len(strays)} set aside")

    def undone(self) -> None:
        stray = next(n for n in self.names("-stray") if n.startswith("ghosts-0"))
        asked = f"logagent restore {stray} --broker-will-delete --leader-will-truncate"
        plan = self.document(asked, statuses=(0, 4))
        approve = f" --approve {plan['plan_id']}" if plan.get("needs_approval") else ""
        self.as_user(f"{asked} --execute{approve}")
        assert "ghosts-0" in self.names(), self.names()
        self.say("undo: restore gave one back")

    def removed_after_a_week(self) -> None:
        self.configure('[cleanup]\nmode = "enforce"\ninterval = "5s"\nmax_fraction = 1.0\n')
        self.looked(2)
        # 0.1.0 does not count a restored one anew: it may have set ghosts-0 aside again.
        left = [n.split(".")[0] for n in self.names("-stray")]
        assert {"ghosts-1", "ghosts-2"} <= {*left}, f"a stray went before its week was over: {left}"
        self.passes(8 * _DAY)
        wait_for("the strays go", lambda: not [n for n in self.names("-stray") if n.startswith("ghosts-1")], 120)
        wait_for("the strays go", lambda: not [n for n in self.names("-stray") if n.startswith("ghosts-2")], 120)
        actions = [e["action"] for e in self.document("logagent history")["entries"]]
        assert "remove" in " ".join(actions), actions
        self.say(f"a week later: what was set aside is removed; {len(actions)} entries of history")

    def pending(self) -> dict[str, Any]:
        """A marked directory that waits, a plan that is held, snapshots that cannot be sent."""
        self.sh(f"install -d -o {self.user} -g {self.user} {STORE}")
        self.as_user(f"logagent fleet init --store {STORE}")
        published = f'[publish]\nstore = "{STORE}"\ninterval = "1m"\n'
        self.configure(
            f'[cleanup]\ninterval = "5s"\n[delete]\nfile_delete_delay_ms = 3600000\n{published}', restart=True
        )
        self.sh("logagent setup --execute --yes", timeout=300)
        self.restart()
        wait_for(
            "a snapshot is in the store",
            lambda: self.sh(f"find {STORE} -name '*.json' | grep -v config | head -1"),
            120,
        )
        self.older_host()
        self.looked()
        marked = "logagent delete --partition payments-1 --allow-assigned --even-last-copy"
        plan = self.document(marked, statuses=(0, 4))
        approve = f" --approve {plan['plan_id']}" if plan.get("needs_approval") else ""
        self.as_user(f"{marked} --execute{approve}")
        assert len(self.names("-delete")) == 1, self.names()
        held = self.document(HELD, statuses=(4,))
        self.sh(f"mv {STORE} {STORE}.away; mkdir {STORE}")
        self.restart()
        self.looked()
        wait_for("a snapshot that cannot be sent", self.spooled, 150)
        found = {"queue": self.queue(), "plan_id": held["plan_id"], "history": self.history_length(),
                 "spooled": self.spooled()}  # fmt: skip
        self.say(f"pending: 1 in the queue, plan {held['plan_id']} held, {len(found['spooled'])} files not published,"
                 f" {found['history']} entries")  # fmt: skip
        return found

    def queue(self) -> list[tuple[str, str, str]]:
        return [(e["name"], e["marked_at"], e["due_at"]) for e in self.document("logagent queue")["entries"]]

    def spooled(self) -> list[str]:
        found = self.sh(
            "find /var/lib/logagent/spool -maxdepth 1 -type f -printf '%f\\n' 2>/dev/null | sort", check=False
        )
        return found.split()

    def older_host(self) -> None:
        """A second host of the same cluster, which stays at the older version."""
        self.sh(f"dpkg-deb --extract /root/older.deb {OLDER}")
        self.sh(f"install -d -o {self.user} -g {self.user} /data/d1/third /var/lib/third")
        kafka = f'[kafka]\nconfig = "/etc/kafka/third.properties"\nversion = "{broker_host.KAFKA}"\n'
        files = {
            "/data/d1/third/meta.properties": f"version=1\nnode.id=3\ncluster.id={CLUSTER}\n"
            "directory.id=AAAAAAAAAAAAAAAAAAAAAg\n",
            "/etc/kafka/third.properties": "process.roles=broker\nnode.id=3\nlog.dirs=/data/d1/third\n",
            "/etc/kafka/third.toml": f'{kafka}[metrics]\nlisten = ""\n[publish]\nstore = "{STORE}"\n',
        }
        for path, text in files.items():
            self.sh(f"printf %s {quote(text)} >{path}")
        self.sh(f"chown -R {self.user} /data/d1/third")
        self.second_publishes()

    def second_publishes(self) -> None:
        command = f"{OLDER}/usr/bin/logagent run --once --config /etc/kafka/third.toml --state-dir /var/lib/third"
        self.machine.sh(f"setpriv --reuid {self.user} --regid {self.user} --clear-groups {command}", check=False)
        wait_for(
            "the second host is in the store",
            lambda: self.sh(f"find {STORE} -path '*3*' -name '*.json*' | head -1"),
            10,
        )

    def upgraded(self, package: str, version: str, before: dict[str, Any]) -> None:
        told = self.sh(
            f"apt-get install -y -q --allow-downgrades -o Dpkg::Options::=--force-confold {package}", timeout=300
        )
        assert self.active(), self.journal()
        assert self.sh("logagent --version").split()[-1] == version, told
        assert self.history_length() >= before["history"] and self.queue() == before["queue"], self.queue()
        assert set(before["spooled"]) <= {*self.spooled()}, "what was not published is lost"
        errors = [line for line in self.journal().splitlines() if "Traceback" in line]
        assert errors == [], errors
        self.say(f"{version}: running, with the queue, the history and the spool as they were")

    def goes_back_as_the_page_says(self, versions: tuple[str, str], before: dict[str, Any]) -> None:
        """After a release that raised the journal's schema: no package that does not know it is installed, and this
        version's names the copy, as its commands do."""
        keep, back = way_back()
        self.sh(keep)
        self.sh(f"systemctl stop {SERVICE}")
        raised = "import sqlite3; sqlite3.connect('/var/lib/logagent/journal.db').execute('PRAGMA user_version = 99')"
        self.sh(f"python3 -c {quote(raised)}")
        install = "apt-get install -y -q --allow-downgrades --reinstall -o Dpkg::Options::=--force-confold /root"
        refused = [self.machine.sh(f"{install}/{name}.deb", timeout=300, check=False) for name in ("older", "newer")]
        assert all(done.returncode != 0 and "journal schema 99" in done.stdout for done in refused), refused
        assert back.split("&& ")[1] in refused[1].stdout, refused[1].stdout
        assert self.sh("logagent --version").split()[-1] == versions[1]
        told = self.machine.sh("logagent history", check=False)
        assert told.returncode == 1 and "/var/lib/logagent.before" in told.stdout, told.stdout
        self.sh(f"{back}{install}/older.deb; systemctl start {SERVICE}", timeout=300)
        self.upgraded("/root/older.deb", versions[0], before)
        self.say("a raised schema: refused, the copy named; back to it as compatibility.md says")

    def carries_on(self, before: dict[str, Any]) -> None:
        """The plan that was held is approved by the id that the other version showed; the spool is sent."""
        again = self.document(HELD, statuses=(4,))
        assert again["plan_id"] == before["plan_id"], "another plan than the other version showed"
        self.as_user(f"{HELD} --execute --approve {before['plan_id']}")
        assert [n for n in self.names("-stray") if n.startswith("payments-0")], self.names()
        self.sh(f"rmdir {STORE}; mv {STORE}.away {STORE}")
        self.restart()
        wait_for("the spool is sent", lambda: not set(before["spooled"]) & {*self.spooled()}, 240)
        self.say("the held plan was carried out by the id of before; what was spooled is published")

    def one_fleet(self, packages: Packages, scratch: Path, versions: tuple[str, str]) -> None:
        """The jobs of both versions read hosts of both."""
        self.second_publishes()
        self.restart()
        self.looked()
        for job in (packages.newer, packages.older):
            store, reports = scratch / "store", scratch / "reports"
            shutil.copytree(self.machine.root / STORE.lstrip("/"), store)
            submit = [sys.executable, str(job / "spark/submit.py")]
            words = ["ingest", "--store", str(store), "--report", str(reports)]
            run(["env", f"PYTHONPATH={job / 'spark/logagent.zip'}", *submit, *words], timeout=900)
            (table,) = reports.rglob("usage_hosts.csv") if not (reports / "latest").is_file() else [
                reports / (reports / "latest").read_text().strip() / "usage_hosts.csv"]  # fmt: skip
            with table.open(newline="") as file:
                nodes = sorted(row["node_id"] for row in csv.DictReader(file))
            assert nodes == ["1", "3"], nodes
            shutil.rmtree(store)
            shutil.rmtree(reports)
        self.say(f"one fleet: the jobs of {versions[1]} and {versions[0]} report hosts of both versions")

    def queue_goes(self) -> None:
        cleanup = '[cleanup]\nmode = "enforce"\ninterval = "5s"\nmax_fraction = 1.0\nleftover_grace = "1s"\n'
        self.configure(f"{cleanup}[delete]\nfile_delete_delay_ms = 3600000\n")
        self.passes(3 * 3_600_000)
        wait_for("what waited in the queue goes", lambda: not self.names("-delete"), 120)
        self.say("what was marked before the upgrade is removed when it is due")

    def removed_and_purged(self) -> None:
        before = self.listing()
        self.sh("apt-get remove -y -q logagent", timeout=300)
        assert not self.active()
        done = self.sh("apt-get purge -y -q logagent", timeout=300)
        assert "/var/lib/logagent stays" in done, done
        assert self.listing() == before
        assert self.sh("ls -d /etc/logagent /usr/lib/logagent /etc/systemd/system/logagent* 2>/dev/null || true") == ""
        self.say("removed and purged: the journal stays while something set aside can be restored; log dirs untouched")


HELD = "logagent delete --partition payments-0 --quarantine --allow-assigned --even-last-copy"


def run_all(name: str, packages: Packages, scratch: Path, user: str) -> int:
    """All of it on one distribution; how many steps passed. Raises at what fails."""
    older, newer = (Packages.deb(place) for place in (packages.older, packages.newer))
    versions = older.name.split("_")[1].rpartition("-")[0], newer.name.split("_")[1].rpartition("-")[0]
    with loop_disks(scratch, 2) as devices, unpacked(name, scratch) as root:
        (root / "root/dist").mkdir()
        for place, deb in (("dist/older_amd64.deb", older), ("older.deb", older), ("newer.deb", newer)):
            (root / "root" / place).write_bytes(deb.read_bytes())
        (root / "root/dist/older_amd64.deb").rename(root / "root/dist" / older.name)
        enter(root, "apt-get update -q; apt-get install -y -q --no-install-recommends python3", timeout=600)
        broker_host.lay_out(root, user, devices)
        enter(root, "systemd-sysusers; systemctl --quiet disable systemd-networkd systemd-resolved 2>/dev/null || true")
        options = ["--private-network", *(f"--bind={d}" for d in devices), *broker_host.binds()]
        with Machine(root, options, scratch / f"{name}.weeks.console") as machine:
            one = Weeks(machine, user, devices)
            one.say(f"booted in {machine.boot_seconds:.1f} s: systemd {one.sh('systemctl --version | head -1')}")
            one.cluster_of_two()
            one.installs_as_readme_says(older.name)
            one.has_topics()
            one.first_plan()
            one.week_in_report()
            one.enforces_once_approved()
            one.undone()
            one.removed_after_a_week()
            before = one.pending()
            one.upgraded("/root/newer.deb", versions[1], before)
            one.upgraded("/root/older.deb", versions[0], before)
            one.upgraded("/root/newer.deb", versions[1], before)
            one.goes_back_as_the_page_says(versions, before)
            one.upgraded("/root/newer.deb", versions[1], before)
            one.carries_on(before)
            one.one_fleet(packages, scratch, versions)
            one.queue_goes()
            one.removed_and_purged()
            return len(one.said)
