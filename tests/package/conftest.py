"""Releases for the tests of this folder: made once from a clone of what is in the checkout, in the long form from two.

In the long form as they are published. Otherwise packed with gzip, as xz takes half of the time. What comes from PyPI
is kept for the next run, by what is pinned, beside the jars of the broker tests: CI and the long form fetch it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.rig.jars import cache_dir, locked
from tests.long_form import FULL

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Builds:
    """What `packaging/release` made of a clone, and of a second one that differs in place, umask, time zone, hour and
    in which one was first. `second`: in the long form only."""

    first: Path
    second: Path
    clone: Path
    """The clone of the first."""


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    base, kept = tmp_path_factory.mktemp("builds"), _kept()
    with ExitStack() as stack:
        if not FULL:
            stack.enter_context(locked(kept.with_suffix(".lock")))
        return _built(base, kept)


def _kept() -> Path:
    """Of other pins, or another Python, another one."""
    asked = [path.read_bytes() for path in sorted((ROOT / "packaging").glob("*requirements.txt"))]
    asked.append(f"{sys.version} {sys.base_prefix}".encode())
    return cache_dir() / f"packaging-{hashlib.sha256(b'|'.join(asked)).hexdigest()[:16]}"


def _built(base: Path, kept: Path) -> Builds:
    running: list[subprocess.Popen[bytes]] = []
    logs: list[Path] = []
    origin = _origin(base / "origin")
    clones = [("first", "0022", "UTC"), ("second in another place", "0077", "Asia/Tokyo")]
    for name, umask, zone in clones if FULL else clones[:1]:
        (base / name).mkdir()
        environment = {**os.environ, "TZ": zone, "IMAGES": ""}  # test_image.py has them
        if not FULL:
            environment |= {"COMPRESSION": "gzip", "KEPT": str(kept)}
        # A shell of its own sets the umask: neither clone nor release must depend on it.
        command = [
            "sh",
            "-ec",
            f'umask {umask}; git clone -q "$1" checkout; cd checkout; exec packaging/release ../out',
        ]
        logs.append(base / f"{name}.log")
        with logs[-1].open("wb") as log:
            running.append(
                subprocess.Popen(
                    [*command, "sh", str(origin)], cwd=base / name, env=environment, stdout=log, stderr=log
                )
            )
    for process, said in zip(running, logs, strict=True):
        process.wait(timeout=900)
        assert process.returncode == 0, said.read_text()[-4000:]
    return Builds(base / "first/out", base / "second in another place/out", base / "first/checkout")


def _origin(place: Path) -> Path:
    """A repository with one commit, of what the checkout holds now."""
    shutil.copytree(ROOT, place, ignore=_only_what_is_ours)
    moment = "1790000000 +0000"
    git = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-C", str(place)]
    environment = {**os.environ, "GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A release"]):
        subprocess.run([*git, *command], env=environment, check=True)
    return place


def _only_what_is_ours(directory: str, names: list[str]) -> list[str]:
    if directory == str(ROOT):
        return [n for n in names if n not in ("logagent", "config", "packaging", "docs", "pyproject.toml", "README.md",
                                              "SECURITY.md", "CHANGELOG.md", "LICENSE", ".gitignore")]  # fmt: skip
    return [n for n in names if n == "__pycache__"]


@pytest.fixture(scope="session")
def unpacked(builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .deb for this machine, unpacked where any user can read it."""
    place = tmp_path_factory.mktemp("unpacked")
    package = next(builds.first.glob(f"*_{architecture()}.deb"))
    subprocess.run(["dpkg-deb", "--extract", str(package), str(place)], check=True)
    for folder in (place, *place.parents):
        if folder.is_relative_to(tmp_path_factory.getbasetemp().parent):
            folder.chmod(folder.stat().st_mode | 0o055)
    return place


@pytest.fixture
def deb(builds: Builds) -> str:
    """The command that installs the package of this machine."""
    # The machine that builds may have its Python elsewhere than in a package.
    return f"dpkg --force-depends --force-confold -i '{next(builds.first.glob(f'*_{architecture()}.deb'))}'"


def architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
