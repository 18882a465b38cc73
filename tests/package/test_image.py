"""The container images: the same bytes twice, by the schemas of OCI, and run as they say: as that user, in namespaces
of their own, from a root file system that nobody can write to."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from logagent import __version__
from logagent.store.shared import init_store
from tests.broker.rig.jars import cache_dir, locked
from tests.host import ALL_DUE, NO_LIMITS, Host
from tests.long_form import long_form
from tests.markdown import ROOT
from tests.needs import need_command, need_root
from tests.package.conftest import Builds, architecture

SCHEMAS = json.loads((ROOT / "tests/package/oci-schemas.json").read_text())
LARGEST_MIB = {"agent": 64, "fleet": 640}
"""What docs/how-to/containers.md says."""


# What each container has below /dev by the runtime specification of OCI, and what every engine adds: a loopback that is
# up, and a name that /etc/hosts knows.
_CONTAINER = (
    'mount -t tmpfs -o mode=755 tmpfs "$1/dev"; '
    'for one in null zero full random urandom; do : >"$1/dev/$one"; mount --bind "/dev/$one" "$1/dev/$one"; done; '
    'ln -s /proc/self/fd "$1/dev/fd"; for n in 0:stdin 1:stdout 2:stderr; do ln -s fd/${n%:*} "$1/dev/${n#*:}"; done; '
    'ip link set lo up; hostname container; echo 127.0.0.1 localhost container >"$1/tmp/hosts"; '
    '[ -e "$1/etc/hosts" ] || : >"$1/etc/hosts"; mount --bind "$1/tmp/hosts" "$1/etc/hosts"; '
)


@dataclass(frozen=True)
class Image:
    """An image as its manifest describes it, with its root file system unpacked."""

    manifest: dict[str, Any]
    config: dict[str, Any]
    root: Path

    def run(self, *arguments: str, binds: Mapping[Path, str], **environment: str) -> subprocess.CompletedProcess[str]:
        """As a container engine would: its entrypoint as its user, with no capability, in namespaces of mounts,
        processes and network, on a read-only root. `binds`: what is mounted, and where."""
        config = self.config["config"]
        script = 'mount --bind "$1" "$1"; mount -t proc proc "$1/proc"; mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"; '
        script += _CONTAINER
        script += "".join(f'mkdir -p "$1{at}"; mount --bind "{place}" "$1{at}"; ' for place, at in binds.items())
        script += 'mount -o remount,bind,ro "$1"; root=$1; shift; cd "$root"; '
        script += 'exec chroot "$root" "$@"'
        for point in ("proc", "tmp"):
            (self.root / point).mkdir(exist_ok=True)
        user, _, group = config["User"].partition(":")
        become = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "sh", "-ec", script, "sh"]
        command = [*namespaces, str(self.root), *become, "--bounding-set=-all", "env", "-i"]
        words = [*config["Entrypoint"], *(arguments or config["Cmd"])]
        variables = [*config["Env"], *(f"{name}={value}" for name, value in environment.items())]
        return subprocess.run([*command, *variables, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=900, check=False)  # fmt: skip


def make(builds: Builds, kind: str, to: Path, *, kept: Path, **environment: str) -> Path:
    to.mkdir()
    for package in builds.first.glob(f"*_{architecture()}.deb"):
        shutil.copy(package, to)
    shutil.copytree(builds.first / "spark", to / "spark")
    command = [sys.executable, str(ROOT / "packaging/image.py"), str(to), kind]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000", "KEPT": str(kept), **environment}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = to.glob("*.oci.tar")
    return made


def opened(archive: Path, to: Path) -> Image:
    """Read as the specification says, each digest and size checked."""
    place = to / "layout"
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    valid("image-layout-schema", json.loads((place / "oci-layout").read_text()))
    index = json.loads((place / "index.json").read_text())
    valid("image-index-schema", index)

    def blob(described: dict[str, Any]) -> bytes:
        valid("content-descriptor", described)
        content: bytes = (place / "blobs" / described["digest"].replace(":", "/")).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (described["digest"][7:], described["size"])
        return content

    (one,) = index["manifests"]
    # `podman load` takes this for the image's name.
    name = one["annotations"]["org.opencontainers.image.ref.name"]
    assert name.count(":") == 1 and archive.name.startswith(f"{name.replace(':', '-')}-")
    manifest = json.loads(blob(one))
    valid("image-manifest-schema", manifest)
    config = json.loads(blob(manifest["config"]))
    valid("config-schema", config)
    root = to / "root"
    root.mkdir(mode=0o755)
    for described, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        layer = gzip.decompress(blob(described))
        assert diff_id == f"sha256:{hashlib.sha256(layer).hexdigest()}"
        unpack = ["tar", "-xpf", "-", "-C", str(root), "--numeric-owner"]
        subprocess.run(unpack, input=layer, check=True)
    return Image(manifest, config, root)


def valid(name: str, document: object) -> None:
    schema = {**SCHEMAS, "$ref": f"#/definitions/{name}"}
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(document)


@pytest.fixture(scope="module")
def kept() -> Path:
    """Where root file systems without logagent stay for the next run; a long form makes its own."""
    need_root()
    need_command("mmdebstrap", "unshare", "setpriv", "ip")
    place = cache_dir() / "images"
    place.mkdir(exist_ok=True)
    return place


@pytest.fixture(scope="module")
def archive(builds: Builds, kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with locked(kept / "agent.lock"):
        return make(builds, "agent", tmp_path_factory.mktemp("image") / "made", kept=kept)


@pytest.fixture(scope="module")
def agent(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return opened(archive, tmp_path_factory.mktemp("agent"))


def test_it_is_as_small_as_the_page_says(archive: Path) -> None:
    assert archive.stat().st_size < LARGEST_MIB["agent"] << 20


@long_form
def test_it_is_made_twice_with_the_same_bytes(builds: Builds, archive: Path, tmp_path: Path) -> None:
    """In another place, umask, zone, and from a root file system of its own."""
    own = tmp_path / "kept"
    own.mkdir()
    old = os.umask(0o077)
    try:
        again = make(builds, "agent", tmp_path / "again", kept=own, TZ="Asia/Tokyo", LANG="C")
    finally:
        os.umask(old)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(archive.read_bytes()).digest()


def test_what_it_says_of_itself(agent: Image) -> None:
    config = agent.config["config"]
    assert config["User"] == "1000:1000" and "/var/lib/logagent" in config["Volumes"]
    assert (config["Entrypoint"], config["Cmd"]) == (["/usr/bin/logagent"], ["run"])
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    # Of a name with dots in it a registry's tools know what it means; no address is made up.
    assert not [name for name in labels if not name.startswith("org.opencontainers.image.")]
    assert "org.opencontainers.image.authors" not in labels
    assert agent.config["created"] == labels["org.opencontainers.image.created"] == "2026-09-21T14:13:20Z"


def test_nothing_in_it_is_more_than_it_needs(agent: Image) -> None:
    """No package manager that fetches, no set-user-ID program, nothing of the machine that made it; licences stay."""
    paths = [path for path in agent.root.rglob("*") if not path.is_symlink()]
    assert not [path for path in paths if path.is_file() and path.stat().st_mode & 0o6000]
    for absent in ("usr/bin/apt-get", "etc/resolv.conf", "etc/hostname", "etc/machine-id", "usr/bin/pip3"):
        assert not (agent.root / absent).exists(), absent
    assert not list((agent.root / "dev").iterdir()) and not list((agent.root / "proc").iterdir())
    assert (agent.root / "usr/share/doc/logagent/licences").is_dir()
    assert max(path.lstat().st_mtime for path in paths) <= 1790000000


def host_for(tmp_path: Path) -> Host:
    """A stopped broker's disk, of the image's user, with the state dir and all paths where the image has them."""
    host = Host.from_disk(tmp_path / "broker")
    host.with_assignments(**{**ALL_DUE, **NO_LIMITS, "cleanup.mode": "report", "metrics.listen": ""})
    for path in (tmp_path / "broker", *(tmp_path / "broker").rglob("*")):
        os.lchown(path, 1000, 1000)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    return host


def test_it_looks_at_a_stopped_brokers_disk_as_the_host_itself_does(agent: Image, tmp_path: Path) -> None:
    host = host_for(tmp_path)
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 1000, 1000)
    binds = {tmp_path / "broker": str(tmp_path / "broker"), state: "/var/lib/logagent"}
    before = host.snapshot()

    def run(*words: str, status: int = 0) -> str:
        done = agent.run(*words, "--config", str(host.toml), binds=binds)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    inside = json.loads(run("scan", "--all", "--json"))
    outside = json.loads(host.run("scan", "--all", "--json").out)
    verdicts = [sorted((d["log_dir"], d["name"], d["verdict"]) for d in each["dirs"]) for each in (inside, outside)]
    assert verdicts[0] == verdicts[1] and len(verdicts[0]) > 10
    plan = json.loads(run("cleanup", "--json"))
    assert plan["mode"] == "dry-run" and plan["totals"]["actions"] > 0
    run("run", "--once")
    assert host.snapshot() == before, "the disk is as it was"
    assert (state / "journal.db").stat().st_uid == 1000


# Spark is fetched and packed: seven minutes of CPU.
@pytest.mark.timeout(7200)
@long_form
def test_the_fleet_image_reports_what_an_agent_published(
    agent: Image, builds: Builds, kept: Path, tmp_path: Path
) -> None:
    host, shared = host_for(tmp_path), tmp_path / "shared"
    for place in (shared / "store", shared / "reports", tmp_path / "state"):
        place.mkdir(parents=True)
    init_store(str(shared / "store"))
    for path in (shared, *shared.rglob("*"), tmp_path / "state"):
        os.lchown(path, 1000, 1000)
    agent_binds = {tmp_path / "broker": str(tmp_path / "broker"), tmp_path / "state": "/var/lib/logagent",
                   shared: "/mnt/shared"}  # fmt: skip
    done = agent.run("run", "--once", "--config", str(host.toml), binds=agent_binds,
                     LOGAGENT_PUBLISH__STORE="/mnt/shared/store")  # fmt: skip
    assert done.returncode == 0, done.stderr
    with locked(kept / "fleet.lock"):
        archive = make(builds, "fleet", tmp_path / "made", kept=kept)
    assert archive.stat().st_size < LARGEST_MIB["fleet"] << 20
    # Again from a root file system of its own, with pip of a Python elsewhere: the same bytes.
    (tmp_path / "own").mkdir()
    (tmp_path / "python elsewhere").symlink_to(sys.prefix)
    elsewhere = str(tmp_path / "python elsewhere/bin/python")
    again = make(builds, "fleet", tmp_path / "again", kept=tmp_path / "own", PYTHON=elsewhere, TZ="Asia/Tokyo")
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(archive.read_bytes()).digest()
    fleet = opened(archive, tmp_path / "fleet")
    assert fleet.config["config"]["User"] == "1000:1000"
    job = ("ingest", "--store", "/mnt/shared/store", "--report", "/mnt/shared/reports")
    done = fleet.run(*job, binds={shared: "/mnt/shared"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (hosts,) = [p for p in (shared / "reports").rglob("usage_hosts.csv") if not p.is_symlink()]
    assert ",3," in hosts.read_text() or "kafka" in hosts.read_text()
