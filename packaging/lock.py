"""Pins everything that comes from outside, with the hash of every wheel of every target.

    python packaging/lock.py                      # both files, with the newest versions that pyproject.toml allows
    python packaging/lock.py requirements.txt     # only what is vendored
    python packaging/lock.py build-requirements.txt
    python packaging/lock.py --as-installed requirements.txt   # with the versions of the environment that runs this

Run it by hand with Python 3.11 (what only an older Python needs is then pinned as well) and commit what it writes;
`build.sh` and `release` take nothing that is not in these files.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ARCHITECTURES = ("x86_64", "aarch64")
_PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
# File → what it says of itself, and what it pins with all that these need.
LOCKS: dict[str, tuple[str, list[str]]] = {
    "requirements.txt": ("what the system package vendors", _PROJECT["project"]["dependencies"]),
    "build-requirements.txt": ("what makes a release", _PROJECT["dependency-groups"]["release"]),
}


def fetch(requirements: Path, python: str, architecture: str, into: Path, *options: str) -> None:
    """Download the wheels for one Python and one architecture. Raises CalledProcessError; never builds a sdist."""
    platforms = (f"manylinux2014_{architecture}", f"manylinux_2_17_{architecture}", f"manylinux_2_28_{architecture}")
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, "-d", str(into)]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in platforms:
        command += ["--platform", platform]
    subprocess.run([*command, *options, "-r", str(requirements)], check=True)


def _pins(asked: list[str], as_installed: bool) -> dict[str, str]:
    """Name → version of every dependency, direct and indirect."""
    if as_installed:
        from packaging.requirements import Requirement

        pins: dict[str, str] = {}
        todo = [Requirement(d) for d in asked]
        while todo:
            one = todo.pop()
            if one.marker is not None and not one.marker.evaluate({"extra": ""}):
                continue
            found = metadata.distribution(one.name)
            if pins.setdefault(found.name.lower(), found.version) and found.requires:
                todo += [r for r in map(Requirement, found.requires) if r.name.lower() not in pins]
        return pins
    report = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--report", "-", *asked],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    listed = [i["metadata"] for i in json.loads(report.stdout)["install"]]
    return {m["name"].lower(): m["version"] for m in listed}


def write_lock(name: str, as_installed: bool) -> None:
    holds, asked = LOCKS[name]
    pins = _pins(asked, as_installed)
    hashes: dict[str, set[str]] = {pin: set() for pin in pins}
    by_file_name = {re.sub(r"[-_.]+", "_", pin): pin for pin in pins}
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "pins.txt"
        plain.write_text("".join(f"{n}=={v}\n" for n, v in sorted(pins.items())))
        for python in PYTHONS:
            for architecture in ARCHITECTURES:
                fetch(plain, python, architecture, Path(scratch) / "wheels")
        for wheel in (Path(scratch) / "wheels").glob("*.whl"):
            pin = by_file_name[re.sub(r"[-_.]+", "_", wheel.name.split("-")[0].lower())]
            hashes[pin].add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    lines = [f"# Written by packaging/lock.py: {holds}, for Python 3.11 to 3.14 on two architectures."]
    for pin, version in sorted(pins.items()):
        lines += [" \\\n    ".join([f"{pin}=={version}", *(f"--hash=sha256:{h}" for h in sorted(hashes[pin]))])]
    (HERE / name).write_text("\n".join(lines) + "\n")


def main() -> None:
    chosen = [word for word in sys.argv[1:] if word != "--as-installed"]
    for name in chosen or LOCKS:
        write_lock(name, "--as-installed" in sys.argv[1:])


if __name__ == "__main__":
    main()
