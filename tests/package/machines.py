"""Clean hosts to install on: small roots made by mmdebstrap, entered or booted with systemd-nspawn.

A booted one is a real systemd as PID 1 of its own container; disks are loop devices of this machine, mounted inside it.
Needs root, mmdebstrap and systemd-container. Roots are kept as archives beside the jars of the broker tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker.rig.jars import cache_dir
from tests.waiting import wait_until

Done = subprocess.CompletedProcess[str]


DISTRIBUTIONS = {"debian-12": "bookworm", "debian-13": "trixie", "ubuntu-24.04": "noble"}
# No Python: installing the package must bring it.
_INCLUDED = "apt,systemd,systemd-sysv,dbus,procps,util-linux,mount,e2fsprogs,zlib1g,ca-certificates"


def base_archive(name: str) -> Path:
    """The root of a distribution as an archive, made once.

    Debian's comes from mmdebstrap's own mirror. For Ubuntu's name one in `LOGAGENT_TESTS_UBUNTU_MIRROR`; Debian has no
    keyring for it, so that it is trusted as it is: a root that is thrown away.
    """
    archive = cache_dir() / "roots" / f"{name}.tar"
    if archive.exists():
        return archive
    archive.parent.mkdir(exist_ok=True)
    part = archive.with_suffix(".part.tar")
    command = ["mmdebstrap", "--variant=minbase", f"--include={_INCLUDED}", DISTRIBUTIONS[name], str(part)]
    if name.startswith("ubuntu"):
        mirror = os.environ.get("LOGAGENT_TESTS_UBUNTU_MIRROR")
        if mirror is None:
            raise RuntimeError(f"{name}: no mirror; name one in LOGAGENT_TESTS_UBUNTU_MIRROR")
        command.append(f"deb [trusted=yes] {mirror} {DISTRIBUTIONS[name]} main universe")
    run(command, timeout=900)
    part.rename(archive)
    return archive


def run(command: list[str], *, timeout: float = 120, check: bool = True) -> Done:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", timeout=timeout, check=False,
    )  # fmt: skip
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited {done.returncode}:\n{done.stdout[-4000:]}")
    return done


def wait_for(what: str, condition: Callable[[], object], seconds: float = 120) -> float:
    """Wait until the condition holds; how long it took, to be printed."""
    started = time.monotonic()
    wait_until(condition, what, seconds, interval=0.1)
    return time.monotonic() - started


@contextmanager
def unpacked(name: str, scratch: Path) -> Iterator[Path]:
    """A fresh root directory of a distribution; gone afterwards."""
    root = scratch / name
    root.mkdir(parents=True)
    try:
        run(["tar", "-xf", str(base_archive(name)), "-C", str(root), "--exclude=./dev/*"], timeout=300)
        for policy in (root / "usr/sbin/policy-rc.d", root / "etc/hostname"):
            policy.unlink(missing_ok=True)
        yield root
    finally:
        shutil.rmtree(root)


@contextmanager
def loop_disks(scratch: Path, count: int, megabytes: int = 400) -> Iterator[list[str]]:
    """Loop devices with an ext4 each."""
    devices: list[str] = []
    images = [scratch / f"disk{n}.img" for n in range(count)]
    try:
        for image in images:
            with image.open("wb") as file:
                file.truncate(megabytes << 20)
            run(["mkfs.ext4", "-q", "-F", str(image)])
            devices.append(run(["losetup", "--find", "--show", str(image)]).stdout.strip())
        yield devices
    finally:
        for device in devices:
            run(["losetup", "--detach", device], check=False)
        for image in images:
            image.unlink(missing_ok=True)


def device_is_free(device: str) -> bool:
    """Nobody in any namespace has it mounted: the kernel gives it to an exclusive opener."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return False
    return True


class Machine:
    """A booted container. `sh` runs a command in it, as `nsenter` into its PID 1."""

    def __init__(self, root: Path, options: list[str], log: Path) -> None:
        self.root = root
        command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe"]
        command += [
            "--resolv-conf=copy-host",
            "--timezone=off",
            # Without it nspawn refuses adjtimex, and not the unit under test; to set the clock takes a capability.
            "--system-call-filter=@clock",
            f"--directory={root}",
            f"--machine=logagent-{os.getpid()}",
            *options,
        ]
        self._log = log.open("wb")
        # systemd 256 and later want the unified hierarchy, which not every machine mounts for itself.
        environment = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=environment
        )
        try:
            self._pid = 0
            self.boot_seconds = wait_for("boot", self._booted, 180)
        except BaseException:
            self.off()
            raise

    def _booted(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"systemd-nspawn ended with {self._process.returncode}; see {self._log.name}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children:
            return False
        self._pid = int(children[0])
        state = self.sh("systemctl is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def sh(self, script: str, *, timeout: float = 120, check: bool = True) -> Done:
        """Run a shell script in the container, as its root."""
        inside = ["nsenter", "-t", str(self._pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "env", "-i",
                  "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]  # fmt: skip
        return run([*inside, "sh", "-euc", script], timeout=timeout, check=check)

    def show(self, unit: str, what: str) -> str:
        return self.sh(f"systemctl show -P {what} {unit}").stdout.strip()

    def off(self) -> None:
        """Power off; by force where it does not."""
        if self._process.poll() is None:
            if self._pid:
                self.sh("systemctl poweroff --force", check=False)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGTERM)
                try:
                    self._process.wait(20)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
        self._log.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()


def enter(root: Path, script: str, *, timeout: float = 300, check: bool = True, options: tuple[str, ...] = ()) -> Done:
    """Run a shell script in a root that is not booted, as in an image builder."""
    command = [
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--pipe",
        "--resolv-conf=copy-host",
        "--timezone=off",
    ]
    command += [f"--machine=logagent-{os.getpid()}", *options, f"--directory={root}", "env", "-i"]
    command += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]
    return run([*command, "sh", "-euc", script], timeout=timeout, check=check)
