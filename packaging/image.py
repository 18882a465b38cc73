"""The container images, without a builder or a registry: a root file system of mmdebstrap, packed as an OCI image.

    python packaging/image.py [DIRECTORY] [agent | fleet]...        default: dist/, agent

DIRECTORY holds what `packaging/build.sh` made; the images are put there, as `logagent-VERSION-ARCHITECTURE.oci.tar` and
`logagent-fleet-VERSION-ARCHITECTURE.oci.tar`. `podman load`, `docker load` and `skopeo copy oci-archive:…` take them.

`agent`: Debian 13's essential packages, python3, and the .deb of this machine's architecture. `fleet`: Debian 13 with
Java, pyspark (fleet-requirements.txt) and the archive for spark-submit. Needs root, mmdebstrap and Debian's mirror;
`fleet` also PyPI. The same packages give the same bytes: times are SOURCE_DATE_EPOCH (default: the last commit's),
owners are numbers, files are sorted. KEPT=DIRECTORY keeps the root file systems without logagent for the next image.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
SUITE: Final = "trixie"
USER: Final = 1000
"""The user of most brokers' images; another one is chosen where the container is started."""
_LABEL: Final = "org.opencontainers.image"
INCLUDED: Final = {"agent": "python3,passwd", "fleet": "python3,openjdk-21-jre-headless"}
# Of no use in an image, or another one each time.
_LEFT_OUT: Final = (
    "dev/*", "proc/*", "sys/*", "run/*", "tmp/*", "var/tmp/*", "var/log/*", "var/cache/*", "var/lib/apt/*", "etc/apt/*",
    "var/lib/dpkg/*-old", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-",
    "usr/share/man/*", "etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/dpkg/dpkg.cfg.d/*",
    "usr/share/python3/debpython/__pycache__/*",  # compiled as it was imported, not by a package
)  # fmt: skip
_NO_DOCUMENTS: Final = (
    "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright", "path-include=/usr/share/doc/logagent/*",
)  # fmt: skip
_PIPS_PYTHON: Final = re.compile(rb"\A#!(?:/bin/sh\n'''exec' .*\n' '''|/(?!usr/bin/env ).*python.*)\n")


def epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _run("git", "-C", str(HERE), "log", "-1", "--format=%ct"))


def _run(*command: str) -> str:
    environment = {
        **os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC", "DEBIAN_FRONTEND": "noninteractive", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"image.py: {' '.join(command)} exited {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()


def base(kind: str, architecture: str, work: Path) -> Path:
    """The archive of the root file system without logagent: made, or kept from before."""
    kept = Path(os.environ.get("KEPT") or work) / f"image-{kind}-{SUITE}-{architecture}.tar"
    if not kept.exists():
        part = kept.with_suffix(".part.tar")
        options = [f"--dpkgopt={option}" for option in _NO_DOCUMENTS]
        _run("mmdebstrap", "--variant=essential", f"--architectures={architecture}", f"--include={INCLUDED[kind]}",
             *options, SUITE, str(part))  # fmt: skip
        if kind == "fleet":
            _add_spark(part, work)
        part.rename(kept)
    return kept


def _add_spark(archive: Path, work: Path) -> None:
    """pyspark is the same files for every Python: it is put there, not installed inside."""
    place = work / "spark"
    _run(os.environ.get("PYTHON", sys.executable), "-m", "pip", "install", "-q", "--disable-pip-version-check",
         "--no-compile", "--require-hashes", "--target", str(place / "opt/spark"), "-r",
         str(HERE / "fleet-requirements.txt"))  # fmt: skip
    _run("tar", "--append", f"--file={archive}", f"--directory={place}", "--owner=0", "--group=0", "./opt")


def undated(store: bytes) -> bytes:
    """Java's trusted certificates (JKS, version 2) without the moments at which a package's script added them."""
    names, at, dateless = int.from_bytes(store[8:12]), 12, bytearray(store)
    if store[:8] != b"\xfe\xed\xfe\xed\0\0\0\2":
        sys.exit("image.py: Java's trusted certificates are no JKS of version 2")
    for _ in range(names):  # tag, name, date, type, certificate
        at += 6 + int.from_bytes(store[at + 4 : at + 6])
        dateless[at : at + 8] = bytes(8)
        at += 10 + int.from_bytes(store[at + 8 : at + 10])
        at += 4 + int.from_bytes(store[at : at + 4])
    salt = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"
    if hashlib.sha1(salt + store[:at]).digest() != store[at:]:
        sys.exit("image.py: Java's trusted certificates were not read as they are written")
    return bytes(dateless[:at]) + hashlib.sha1(salt + dateless[:at]).digest()


def lay_out(kind: str, root: Path, made: Path, deb: Path) -> None:
    """What is ours, into the unpacked base."""
    for name, line in (("passwd", f"logagent:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin"),
                       ("group", f"logagent:x:{USER}:")):  # fmt: skip
        with (root / "etc" / name).open("a") as file:  # Java wants a name for its user
            file.write(f"{line}\n")
    if kind == "fleet":
        shutil.copytree(made / "spark", root / "opt/logagent")
        trusted = root / "etc/ssl/certs/java/cacerts"
        trusted.write_bytes(undated(trusted.read_bytes()))
        # Which Python ran pip stands at the head of scripts (through sh if its path is long or has a space), and so
        # in the list of files with their digests.
        for script in (root / "opt/spark/bin").iterdir():
            script.write_bytes(_PIPS_PYTHON.sub(b"#!/usr/bin/python3\n", script.read_bytes()))
        for listed in (root / "opt/spark").glob("*.dist-info/RECORD"):
            listed.unlink()
        return
    shutil.copy(deb, root / "logagent.deb")
    _run("chroot", str(root), "dpkg", "--install", "/logagent.deb")
    (root / "logagent.deb").unlink()
    # A volume of its own; whoever the image runs as has to be able to make the journal in it.
    state = root / "var/lib/logagent"
    state.mkdir(mode=0o750)
    os.chown(state, USER, USER)


def layer(root: Path, at: int) -> bytes:
    """A tar of the root: sorted, numeric owners, no time after `at`, no set-user-ID program."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if any(fnmatch(name, pattern) for pattern in _LEFT_OUT):
                continue
            member = tar.gettarinfo(path, name)
            member.uname = member.gname = ""
            member.mtime = min(int(member.mtime), at)
            if not member.isdir():
                member.mode &= ~0o6000
            if member.isreg():
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
    return packed.getvalue()


def configuration(kind: str, version: str, architecture: str, at: int, diff_id: str) -> dict[str, Any]:
    """The image's configuration, of the OCI image specification 1.1."""
    created = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    spark = "/opt/spark"
    starts: dict[str, Any] = {"Entrypoint": ["/usr/bin/logagent"], "Cmd": ["run"], "Volumes": {"/var/lib/logagent": {}},
                              "ExposedPorts": {"9640/tcp": {}}}  # fmt: skip
    environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
    if kind == "fleet":
        submit = [f"{spark}/bin/spark-submit", "--py-files", "/opt/logagent/logagent.zip", "/opt/logagent/submit.py"]
        starts = {"Entrypoint": submit, "Cmd": ["--help"]}
        environment += [f"PYTHONPATH={spark}", f"SPARK_HOME={spark}/pyspark", "PYSPARK_PYTHON=/usr/bin/python3"]
    labels = {
        f"{_LABEL}.title": "logagent" if kind == "agent" else "logagent-fleet",
        f"{_LABEL}.description": "log directory deletion agent for Apache Kafka" + (", fleet job" * (kind == "fleet")),
        f"{_LABEL}.version": version, f"{_LABEL}.created": created, f"{_LABEL}.licenses": "Apache-2.0",
        f"{_LABEL}.base.name": f"debian:{SUITE}",
    }  # fmt: skip
    # Who answers for it, as in the packages: nobody's address is made up.
    labels |= {f"{_LABEL}.{what}": value for what, name in (("authors", "MAINTAINER"), ("url", "HOMEPAGE"))
               if (value := os.environ.get(name))}  # fmt: skip
    return {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {"User": f"{USER}:{USER}", "Env": environment, "WorkingDir": "/", "Labels": labels, **starts},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": f"packaging/image.py {kind}", "comment": INCLUDED[kind]}],
    }


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def write_image(to: Path, kind: str, version: str, architecture: str, at: int, packed: bytes) -> None:
    """An OCI layout in a tar, with the `manifest.json` that older `docker load` reads."""
    media = "application/vnd.oci.image"
    config = _json(configuration(kind, version, architecture, at, _digest(packed)))
    blob = gzip.compress(packed, 6, mtime=0)
    blobs = {_digest(content): content for content in (config, blob)}

    def described(content: bytes, what: str) -> dict[str, Any]:
        return {"mediaType": f"{media}.{what}", "digest": _digest(content), "size": len(content)}

    manifest = _json({
        "schemaVersion": 2, "mediaType": f"{media}.manifest.v1+json", "config": described(config, "config.v1+json"),
        "layers": [described(blob, "layer.v1.tar+gzip")],
    })  # fmt: skip
    blobs[_digest(manifest)] = manifest
    name = f"{'logagent' if kind == 'agent' else 'logagent-fleet'}:{version}"
    entry = {**described(manifest, "manifest.v1+json"), "platform": {"architecture": architecture, "os": "linux"},
             "annotations": {f"{_LABEL}.ref.name": name}}  # fmt: skip
    places = {digest: f"blobs/{digest.replace(':', '/')}" for digest in blobs}
    files = {places[digest]: content for digest, content in blobs.items()}
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = _json({"schemaVersion": 2, "mediaType": f"{media}.index.v1+json", "manifests": [entry]})
    files["manifest.json"] = _json([{"Config": places[_digest(config)], "RepoTags": [name],
                                     "Layers": [places[_digest(blob)]]}])  # fmt: skip
    part = to.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mtime, member.mode = len(content), at, 0o644
            tar.addfile(member, io.BytesIO(content))
    part.rename(to)


def make(kind: str, made: Path) -> Path:
    architecture = _run("dpkg", "--print-architecture")
    debs = sorted(made.glob(f"logagent_*_{architecture}.deb"))
    if len(debs) != 1:
        sys.exit(f"image.py: {made} has {len(debs)} packages for {architecture}\nhint: packaging/build.sh {made}")
    version, at = re.sub(r"-\d+$", "", _run("dpkg-deb", "--field", str(debs[0]), "Version")), epoch()
    os.environ["SOURCE_DATE_EPOCH"] = str(at)
    to = made / f"{'logagent' if kind == 'agent' else 'logagent-fleet'}-{version}-{architecture}.oci.tar"
    with tempfile.TemporaryDirectory(prefix="logagent-image-") as scratch:
        work, root = Path(scratch), Path(scratch, "root")
        archive = base(kind, architecture, work)
        root.mkdir(mode=0o755)
        _run("tar", "-xf", str(archive), "-C", str(root), "--numeric-owner", "--exclude=./dev/*")
        lay_out(kind, root, made, debs[0])
        write_image(to, kind, version, architecture, at, layer(root, at))
    print(f"image.py: {to}: {to.stat().st_size / 2**20:.0f} MiB", file=sys.stderr)
    return to


def main(arguments: list[str]) -> None:
    kinds = [word for word in arguments if word in INCLUDED] or ["agent"]
    places = [word for word in arguments if word not in INCLUDED] or [str(HERE.parent / "dist")]
    if len(places) > 1 or places[0].startswith("-"):
        sys.exit(__doc__)
    if os.geteuid() != 0:
        sys.exit("image.py: needs root, for the owners of files\nhint: sudo packaging/image.py")
    os.umask(0o022)
    for kind in kinds:
        make(kind, Path(places[0]).resolve())


if __name__ == "__main__":
    main(sys.argv[1:])
