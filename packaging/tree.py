"""Lays out what the packages hold, as files: the vendored tree, documentation, licences, the manual.

    python packaging/tree.py ARCHITECTURE STAGING WHEELS

ARCHITECTURE is `x86_64` or `aarch64`. The result depends on nothing but the checkout, `requirements.txt`, and VERSION,
RELEASE, SOURCE_DATE_EPOCH, MAINTAINER and HOMEPAGE of the environment: no clock, no umask, no order of a directory gets
into it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sys
import zipfile
from email import message_from_string
from pathlib import Path

from lock import HERE, PYTHONS, fetch

ROOT = HERE.parent
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
# Who answers for the packages, as `NAME <ADDRESS>`, and where the project is found; empty where nobody does.
MAINTAINER, HOMEPAGE = os.environ.get("MAINTAINER", ""), os.environ.get("HOMEPAGE", "")
_LICENCE = re.compile(r"(^|/)(licen[cs]es?/.+|(licen[cs]e|copying|notice|authors)[^/]*)$", re.IGNORECASE)


def vendor(architecture: str, to: Path, wheels: Path) -> None:
    """`lib/` for what every Python shares, `cp3N/` for what is compiled for one; licences beside the documentation."""
    lib = to / "usr/lib/logagent"
    found: dict[str, list[str]] = {}
    for python in PYTHONS:
        into = wheels / architecture / python
        # What is there is whole: it gets its name last.
        if not into.exists():
            part = into.with_suffix(into.suffix + ".part")
            fetch(HERE / "requirements.txt", python, architecture, part, "--require-hashes")
            part.rename(into)
        for wheel in into.glob("*.whl"):
            found.setdefault(wheel.name, []).append(python)
    for name, pythons in sorted(found.items()):
        shared = len(pythons) == len(PYTHONS)
        for python in pythons[:1] if shared else pythons:
            place = lib / ("lib" if shared else f"cp{python.replace('.', '')}")
            _unpack(wheels / architecture / python / name, place, to / "usr/share/doc/logagent/licences")


def _unpack(wheel: Path, to: Path, licences: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            if name.endswith("/"):
                continue
            folder, _, rest = name.partition("/")
            if folder.endswith(".dist-info"):
                # APScheduler finds its triggers by entry points; of the rest only who it is is of use to anyone.
                if _LICENCE.search(rest):
                    _write(licences / folder.removesuffix(".dist-info") / rest.rsplit("/", 1)[-1], packed.read(name))
                elif rest in ("METADATA", "entry_points.txt"):
                    _write(to / name, packed.read(name))
            elif ".data/" not in name and not name.startswith("kafka/benchmarks/"):
                _write(to / name, packed.read(name))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def own(to: Path) -> None:
    """logagent itself, without what only the fleet job needs nothing of: it is small, and `fleet archive` works."""
    shutil.copytree(
        ROOT / "logagent", to / "usr/lib/logagent/lib/logagent",
        ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
    )  # fmt: skip
    for source, place in (("launcher.sh", "usr/bin/logagent"), ("start.py", "usr/lib/logagent/start.py")):
        _write(to / place, (HERE / "scripts" / source).read_bytes())
    (to / "usr/bin/logagent").chmod(0o755)


# Where README's links lead in the package; a link to anything else that is not in it becomes plain text.
_MOVED = {"CHANGELOG.md": "changelog.gz"}
_LINK = re.compile(r"\[([^\[\]]+)\]\(([^()\s#]+)(#[^()\s]*)?\)")


def documentation(to: Path, version: str) -> None:
    doc = to / "usr/share/doc/logagent"
    _write(doc / "logagent.toml", (ROOT / "config/logagent.toml").read_bytes())
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    _write(doc / "SECURITY.md", security.replace(_REPORTING, _REPORTING + _where_to_report(), 1).encode())
    for page in sorted((ROOT / "docs").rglob("*")):
        if page.suffix in (".md", ".png"):
            _write(doc / page.relative_to(ROOT), page.read_bytes())
    _write(doc / "README.md", _linked((ROOT / "README.md").read_text(encoding="utf-8"), doc).encode())
    _write(doc / "examples/broker-prestart.conf", (HERE / "systemd/broker-prestart.conf").read_bytes())
    for example in ("prometheus-rules.yml", "grafana-dashboard.json"):
        _write(doc / "examples" / example, (ROOT / "config" / example).read_bytes())
    for manifest in sorted((HERE / "kubernetes").glob("*.yaml")):
        _write(doc / "examples/kubernetes" / manifest.name, manifest.read_bytes())
    for shown in ("deb", "rpm"):
        _write(to / "doc" / shown / "copyright", _copyright(doc / "licences", to).encode())
    _write(to / "doc/deb/changelog.Debian.gz", _gzip(_debian_changelog(version).encode()))
    _write(doc / "changelog.gz", _gzip((ROOT / "CHANGELOG.md").read_bytes()))


_REPORTING = "## Reporting\n\n"


def _where_to_report() -> str:
    """For SECURITY.md: a line for each that is set."""
    named = {"Maintainer": MAINTAINER, "Project": f"<{HOMEPAGE}>" if HOMEPAGE else ""}
    lines = [f"- {what}: {value}\n" for what, value in named.items() if value]
    return "".join(lines) + "\n" if lines else ""


def _linked(readme: str, doc: Path) -> str:
    """README as it is read in `doc`."""

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], _MOVED.get(found[2], found[2]), found[3] or ""
        there = target in _MOVED.values() or (doc / target).exists()
        return f"[{text}]({target}{anchor})" if there else text

    return _LINK.sub(link, readme)


def maintainer_scripts(to: Path) -> None:
    """The scripts of the packages, with the schema of the journal that this version knows."""
    text = (ROOT / "logagent/cleanup/state/journal_schema.py").read_text()
    schema = re.findall(r"^SCHEMA_VERSION = (\d+)$", text, re.MULTILINE)[0]
    for kind in ("deb", "rpm"):
        for script in sorted((HERE / kind).iterdir()):
            common = (HERE / "scripts/maintainer.sh").read_text() if "@COMMON@" in script.read_text() else ""
            filled = script.read_text().replace("@COMMON@\n", common).replace("@JOURNAL_SCHEMA@", schema)
            _write(to / "scripts" / kind / script.name, filled.encode())


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)


def _debian_changelog(version: str) -> str:
    from email.utils import formatdate

    return (
        f"logagent ({version}-{os.environ['RELEASE']}) stable; urgency=medium\n\n"
        "  * What changed is in changelog.gz beside this file.\n\n"
        f" -- {MAINTAINER or f'{_NOBODY} <>'}  {formatdate(EPOCH)}\n"
    )


# A Debian package has to have a maintainer, and nfpm makes up an address where the field is missing.
_NOBODY = "logagent maintainers"


def _publisher() -> str:
    """The lines of nfpm.yaml that say whose package it is. JSON strings are YAML strings."""
    for name, value in (("MAINTAINER", MAINTAINER), ("HOMEPAGE", HOMEPAGE)):
        if not value.isprintable():
            sys.exit(f"{name}: one line of text, not {value!r}")
    if MAINTAINER and not re.fullmatch(r"[^<>]+ <[^<>@\s]+@[^<>@\s]+>", MAINTAINER):
        sys.exit(f"MAINTAINER: NAME <ADDRESS>, not {MAINTAINER!r}")
    homepage = f"homepage: {json.dumps(HOMEPAGE)}\n" if HOMEPAGE else ""
    return f"maintainer: {json.dumps(MAINTAINER or _NOBODY)}\n{homepage}"


def _copyright(licences: Path, to: Path) -> str:
    """The machine-readable copyright file; the licences of what is vendored stand beside it in full."""
    lines = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/", "Upstream-Name: logagent", "",
        "Files: *", "Copyright: 2026 the logagent authors", "License: Apache-2.0", "",
    ]  # fmt: skip
    for metadata in sorted((to / "usr/lib/logagent").glob("*/*.dist-info/METADATA")):
        said = message_from_string(metadata.read_text())
        name, folder = str(said["Name"]), metadata.parent.name.removesuffix(".dist-info")
        if any(f" {name} " in line for line in lines):
            continue  # one of several compiled forms
        licence = str(said["License-Expression"] or said["License"] or "").splitlines()
        lines += [
            f"Files: usr/lib/logagent/*/{folder.rsplit('-', 1)[0]}*",
            f"Copyright: the authors of {name} {said['Version']} (as its licence file says)",
            f"License: {folder}",
            f" {licence[0] if licence else 'see below'}: /usr/share/doc/logagent/licences/{folder}/", "",
        ]  # fmt: skip
    lines += ["License: Apache-2.0", " On Debian systems the text is /usr/share/common-licenses/Apache-2.0."]
    return "\n".join(lines) + "\n"


def description(to: Path) -> None:
    """`nfpm.yaml` with the places filled in. RPM takes documentation file by file: nfpm has no trees of it."""
    items = ""
    for file in sorted(p for p in (to / "usr/share").rglob("*") if p.is_file()):
        place = "/" + file.relative_to(to).as_posix()
        kind = "license" if "/licences/" in place else "doc"
        if "/man/" in place or "/doc/" in place:
            items += f"  - {{src: '{file}', dst: '{place}', type: {kind}, packager: rpm}}\n"
    text = os.path.expandvars((HERE / "nfpm.yaml").read_text())
    text = text.replace("# @PUBLISHER@\n", _publisher()).replace("  # @RPM_DOCUMENTATION@\n", items)
    _write(to / "nfpm.yaml", text.encode())


def settle(to: Path) -> None:
    """One mode and one time for everything, whatever umask and clock the build had."""
    for folder, folders, files in os.walk(to):
        for name in files:
            path = Path(folder, name)
            path.chmod(0o755 if path.parent.name == "bin" else 0o644)
            os.utime(path, (EPOCH, EPOCH))
        for name in folders:
            Path(folder, name).chmod(0o755)
            os.utime(Path(folder, name), (EPOCH, EPOCH))


def main() -> None:
    architecture, to, wheels = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    version = os.environ["VERSION"]
    vendor(architecture, to, wheels)
    own(to)
    documentation(to, version)
    maintainer_scripts(to)
    sys.path.insert(0, str(ROOT))
    from manual import write_manual

    write_manual(to, version, EPOCH)
    description(to)
    settle(to)


if __name__ == "__main__":
    main()
