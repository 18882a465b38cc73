"""The package unpacked and run where it lies, as another user: nothing of the host but a Python is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from tests.needs import need_command, need_root
from tests.package.conftest import Builds

NOBODY = 65534


def run(unpacked: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`logagent` of the package as nobody, with an environment that tries to get into it."""
    need_root()
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", **more}
    return subprocess.run(
        [str(unpacked / "usr/bin/logagent"), *arguments], env=environment, cwd=unpacked, user=NOBODY, group=NOBODY,
        extra_groups=[], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_it_tells_its_version(unpacked: Path, builds: Builds) -> None:
    done = run(unpacked, "--version")
    version = next(builds.first.glob("*.deb")).name.split("_")[1].split("-")[0]
    assert (done.returncode, done.stdout, done.stderr) == (0, f"logagent, version {version}\n", "")


def test_the_environment_and_the_working_directory_do_not_get_in(unpacked: Path, tmp_path: Path) -> None:
    need_root()
    for module in ("click", "json", "logagent", "sitecustomize", "usercustomize"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('taken from elsewhere')\n")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)  # /tmp may be among them: no bit is taken away
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "click.py")}
    command = [str(unpacked / "usr/bin/logagent"), "explain", "--names", "orders-3", "--json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, user=NOBODY, group=NOBODY, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["topic"] == "orders"


def test_everything_that_is_compiled_is_found(unpacked: Path) -> None:
    """Through a symlink too, as administrators make them."""
    script = (
        "import pydantic, pydantic_core, crc32c, psutil, watchdog.observers, apscheduler.triggers.interval, kafka\n"
    )
    # Orders are signed with it.
    script += "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Key\n"
    script += "Key.generate().sign(b'')\n"
    script += "print(*sorted({m.__file__.split('/usr/lib/logagent/')[1].split('/')[0] for m in"
    script += " (pydantic_core, crc32c, psutil, kafka)}))"
    start = unpacked / "usr/lib/logagent"
    code = f"import sys; sys.path.insert(0, {str(start)!r}); from start import prepare; prepare()\n{script}"
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled, shared = done.stdout.split()
    assert compiled.startswith("cp3") and shared == "lib"


def test_the_demo_tells_the_whole_story(unpacked: Path, tmp_path: Path) -> None:
    """Among processes of its own: beside a broker whose open files it may not see, the demo ends at once. From a folder
    that is closed to its user, as root's home is."""
    need_root()
    need_command("unshare", "setpriv")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}"]
    command += ["--clear-groups", str(unpacked / "usr/bin/logagent"), "demo"]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, cwd=closed,
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 20


def test_wrong_configuration_is_78_with_every_error(unpacked: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)  # /tmp may be among them: no bit is taken away
    file = tmp_path / "logagent.toml"
    file.write_text('[cleanup]\nmode = "perhaps"\nsightings = 0\n')
    done = run(unpacked, "config", "check", "--config", str(file))
    assert done.returncode == 78
    assert "cleanup.mode" in done.stderr and "cleanup.sightings" in done.stderr


def test_without_a_python_it_says_which_are_needed(unpacked: Path, tmp_path: Path) -> None:
    launcher = tmp_path / "bin/logagent"
    launcher.parent.mkdir()
    text = (unpacked / "usr/bin/logagent").read_text()
    assert text.count("/usr/bin/python3") >= 5
    old = tmp_path / "python3.9"
    old.symlink_to(shutil.which("true") or "/bin/true")
    launcher.write_text(text.replace("/usr/bin/python3", str(tmp_path / "python3.9")))
    done = subprocess.run(["sh", str(launcher), "scan"], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "no Python 3.11, 3.12, 3.13 or 3.14" in done.stderr and "hint:" in done.stderr


def test_nothing_of_ours_is_in_the_path_of_pid_1(unpacked: Path) -> None:
    """Units are data; a generator is a program that systemd runs as root at every boot and reload."""
    systemd = unpacked / "usr/lib/systemd"
    assert sorted(p.relative_to(systemd).as_posix() for p in systemd.rglob("*") if p.is_file()) == [
        "system/logagent.service",
        "system/logagent@.service",
    ]


def test_the_archive_for_spark_submit_has_the_fleet_job(builds: Builds) -> None:
    with zipfile.ZipFile(builds.first / "spark/logagent.zip") as archive:
        names = set(archive.namelist())
    assert {"logagent/fleet/job.py", "logagent/fleet/assets/base.css", "logagent/base/errors.py"} <= names
    assert not [n for n in names if "__pycache__" in n]
    need = os.environ | {"PYTHONPATH": str(builds.first / "spark/logagent.zip")}
    done = subprocess.run(["/usr/bin/python3", "-S", str(builds.first / "spark/submit.py"), "ingest", "--help"],
                          env=need, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0 and "--store" in done.stdout, done.stderr


def test_the_unit_lets_a_removal_begin(unpacked: Path) -> None:
    """The mark of a begun removal is the set-user-ID bit of a directory, which RestrictSUIDSGID= refuses with EPERM."""
    for name in ("logagent.service", "logagent@.service"):
        unit = (unpacked / "usr/lib/systemd/system" / name).read_text()
        assert not [line for line in unit.splitlines() if line.startswith("RestrictSUIDSGID=")]
