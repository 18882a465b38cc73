"""Pins everything that is vendored: writes `requirements.txt` with the hash of every wheel of every target.

    python packaging/lock.py                # take the newest versions that pyproject.toml allows
    python packaging/lock.py --as-installed # take the versions of the environment that runs this

Run it by hand and commit what it writes; `build.sh` takes nothing that is not in the file.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ARCHITECTURES = ("x86_64", "aarch64")


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


def _pins(as_installed: bool) -> dict[str, str]:
    """Name → version of every dependency, direct and indirect."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    if as_installed:
        from packaging.requirements import Requirement

        pins: dict[str, str] = {}
        todo = [Requirement(d) for d in project["dependencies"]]
        while todo:
            one = todo.pop()
            if one.marker is not None and not one.marker.evaluate({"extra": ""}):
                continue
            found = metadata.distribution(one.name)
            if pins.setdefault(found.name.lower(), found.version) and found.requires:
                todo += [r for r in map(Requirement, found.requires) if r.name.lower() not in pins]
        return pins
    report = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--report", "-"]
        + project["dependencies"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    import json

    listed = [i["metadata"] for i in json.loads(report.stdout)["install"]]
    return {m["name"].lower(): m["version"] for m in listed}


def main() -> None:
    pins = _pins("--as-installed" in sys.argv[1:])
    hashes: dict[str, set[str]] = {name: set() for name in pins}
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "pins.txt"
        plain.write_text("".join(f"{n}=={v}\n" for n, v in sorted(pins.items())))
        for python in PYTHONS:
            for architecture in ARCHITECTURES:
                fetch(plain, python, architecture, Path(scratch) / "wheels")
        for wheel in (Path(scratch) / "wheels").glob("*.whl"):
            name = wheel.name.split("-")[0].lower().replace("_", "-")
            key = next(n for n in pins if n.replace("_", "-") == name)
            hashes[key].add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    lines = [
        "# Written by packaging/lock.py: what the system package vendors, for Python 3.11 to 3.14 on two architectures."
    ]
    for name, version in sorted(pins.items()):
        lines += [" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{h}" for h in sorted(hashes[name]))])]
    (HERE / "requirements.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
