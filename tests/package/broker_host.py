"""A real Kafka broker on a clean host: its disks, its unit and its configuration, as an operator would lay them out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from shlex import quote

from tests.broker.rig.jars import cache_dir, kafka_jars
from tests.package.machines import Machine, wait_for

KAFKA = "4.3.1"
CONFIG = "/etc/kafka/server.properties"
LOG_DIRS = ("/data/d1/kafka", "/data/d2/kafka")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
advertised.listeners=PLAINTEXT://127.0.0.1:9092
controller.listener.names=CONTROLLER
log.dirs={log_dirs}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
log.cleaner.dedupe.buffer.size=2097152
"""
_START = """\
#!/bin/sh
exec /opt/java/bin/java -Xmx384m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \\
    -Dlog4j.configuration=file:/opt/kafka/log4j.properties -cp '/opt/kafka/libs/*' kafka.Kafka "$@"
"""
_LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m%n
"""
_UNIT = """\
[Unit]
Description=Apache Kafka
After=local-fs.target
[Service]
User={user}
ExecStart=/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties
SuccessExitStatus=143
[Install]
WantedBy=multi-user.target
"""


def binds() -> list[str]:
    """Options of nspawn: Java and Kafka of this machine, read-only."""
    kafka_jars(KAFKA)
    java = Path(os.path.realpath(shutil.which("java") or "java")).parents[1]
    options = [f"--bind-ro={java}:/opt/java", f"--bind-ro={cache_dir() / f'kafka-{KAFKA}'}:/opt/kafka/libs"]
    # Debian's Java keeps its configuration in /etc, and links to it.
    shared = {link.resolve().parent for link in (java / "conf").rglob("*") if link.is_symlink()}
    outside = {next(p for p in (s, *s.parents) if p.parent == Path("/etc")) for s in shared if s.is_relative_to("/etc")}
    return options + [f"--bind-ro={place}" for place in sorted(outside)]


def lay_out(root: Path, user: str, devices: list[str]) -> None:
    """Everything of the broker but its package: files in the root of a machine that is not booted yet."""
    files = {
        CONFIG: _PROPERTIES.format(log_dirs=",".join(LOG_DIRS)),
        "/opt/kafka/bin/kafka-server-start.sh": _START,
        "/opt/kafka/log4j.properties": _LOG4J,
        "/etc/hosts": "127.0.0.1 localhost\n",
        "/etc/systemd/system/kafka.service": _UNIT.format(user=user),
        "/etc/sysusers.d/broker.conf": f'u {user} - "Broker" /nonexistent /usr/sbin/nologin\n',
        "/etc/fstab": "".join(f"{d} /data/d{n} ext4 defaults 0 0\n" for n, d in enumerate(devices, 1)),
    }
    for place, text in files.items():
        path = root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "opt/kafka/bin/kafka-server-start.sh").chmod(0o755)
    for n in range(1, len(devices) + 1):
        (root / f"data/d{n}").mkdir(parents=True)


_MALLORY = r"""
# A local user without any right, who pretends from boot on.
import fcntl, os, socket, subprocess, sys, time
home = "/home/mallory"
os.chdir(home)
evil = "/home/mallory/x\rExecStartPre=+/bin/touch /root/owned\rUser=root\rJ=.properties"
for name in (evil, "plain.properties", "second.properties"):
    os.makedirs("d", exist_ok=True)
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w") as file:
        file.write(f"process.roles=broker\nnode.id=1\nlog.dirs={home}/d,{home}/e\rExecStartPre=/bin/false\n")
os.mkfifo("fifo.properties")
with open("sparse.properties", "w") as file:
    file.truncate(200 << 30)
os.symlink("/dev/zero", "zero.properties")
os.symlink("/etc/kafka/server.properties", "link.properties")
for name in ("logagent", "logagent-setup", ".logagent"):
    os.symlink("/root", f"/tmp/{name}")
sleep = "import time; time.sleep(100000)"
files = [evil, "plain.properties", "second.properties", "fifo.properties", "sparse.properties", "zero.properties"]
files += ["link.properties", "link.properties"]
for file in files:
    subprocess.Popen([sys.executable, "-c", sleep, "-cp", "/opt/kafka/libs/*", "kafka.Kafka", os.path.join(home, file)])
log_dir = -1
while True:
    time.sleep(0.2)
    try:  # a metrics port of hers, and connections to ours that say nothing
        held = [socket.create_connection(("127.0.0.1", 9640), 0.2) for _ in range(8)]
    except OSError:
        pass
    try:  # a log dir locked as one of us would, for good
        log_dir = os.open("/data/d1/kafka", os.O_RDONLY) if log_dir < 0 else log_dir
        fcntl.flock(log_dir, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
"""


_MALLORY_UNIT = """\
[Unit]
DefaultDependencies=no
After=systemd-sysusers.service systemd-tmpfiles-setup.service local-fs.target
[Service]
User=mallory
ExecStart=/usr/bin/python3 /opt/mallory.py
"""


def lay_out_mallory(root: Path) -> None:
    """A hostile local user of that host, at work before anything of ours is."""
    files = {
        "/opt/mallory.py": _MALLORY,
        "/etc/sysusers.d/mallory.conf": 'u mallory - "Local user" /home/mallory /bin/sh\n',
        "/etc/tmpfiles.d/mallory.conf": "d /home/mallory 0755 mallory mallory\n",
        "/etc/systemd/system/mallory.service": _MALLORY_UNIT,
    }
    for place, text in files.items():
        path = root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    wants = root / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "mallory.service").symlink_to("/etc/systemd/system/mallory.service")


def format_disks(machine: Machine, user: str) -> None:
    """Mount the disks (systemd does not mount fstab's devices in a container) and format the log dirs."""
    machine.sh("mount /data/d1; mount /data/d2; systemctl daemon-reload")
    for log_dir in LOG_DIRS:
        machine.sh(f"install -d -o {user} -g {user} -m 0755 {log_dir}")
    tool = "/opt/java/bin/java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format"
    machine.sh(f"setpriv --reuid {user} --regid {user} --clear-groups {tool} -t MkU3OEVBNTcwNTJENDM2Qk -c {CONFIG}")


def serves(machine: Machine) -> bool:
    return "Kafka Server started" in machine.sh("journalctl -u kafka -b --no-pager", check=False).stdout


def start_broker(machine: Machine) -> float:
    """Start it and wait until it serves; how long that took."""
    machine.sh("journalctl --rotate -q; journalctl --vacuum-time=1s -q 2>/dev/null", check=False)
    machine.sh("systemctl start kafka")
    return wait_for("the broker serves", lambda: serves(machine), 180)


def make_marked(machine: Machine, user: str, log_dir: str, name: str, files: int) -> str:
    """A directory as a broker leaves one when it stops before it removed it: many files (4 KiB each), marked."""
    path = f"{log_dir}/{name}"
    script = f"mkdir {path}; cd {path}; head -c {files * 4096} /dev/zero | "
    script += "split -b 4096 -a 20 -d --additional-suffix=.log - ''"
    machine.sh(f"setpriv --reuid {user} --regid {user} --clear-groups sh -ec {quote(script)}")
    return path
