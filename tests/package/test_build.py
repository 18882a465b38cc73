"""The packages themselves: the same bytes twice (in the long form), and what they hold is theirs, whole and at rest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from logagent import __version__
from tests.long_form import FULL, long_form
from tests.needs import need_command
from tests.package.conftest import ROOT, Builds, architecture


def names_of(builds: Builds) -> list[str]:
    return sorted(p.relative_to(builds.first).as_posix() for p in builds.first.rglob("*") if p.is_file())


def test_a_release_has_these_files(builds: Builds) -> None:
    assert names_of(builds) == [
        "SHA256SUMS", f"logagent-{__version__}-1.aarch64.rpm", f"logagent-{__version__}-1.x86_64.rpm",
        f"logagent-{__version__}-py3-none-any.whl", f"logagent-{__version__}.cdx.json",
        f"logagent-{__version__}.tar.gz",
        f"logagent_{__version__}-1_amd64.deb", f"logagent_{__version__}-1_arm64.deb",
        "spark/logagent.zip", "spark/submit.py",
    ]  # fmt: skip


@long_form
def test_two_builds_are_the_same_bytes(builds: Builds) -> None:
    for name in names_of(builds):
        first, second = ((place / name).read_bytes() for place in (builds.first, builds.second))
        assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest(), name


def test_the_sums_are_of_every_file(builds: Builds) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=builds.first, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == sum(p.is_file() for p in builds.first.rglob("*")) - 1


def test_a_release_is_what_a_commit_says(builds: Builds, tmp_path: Path) -> None:
    """A checkout with changes, a directory with an older release, a version that no section describes: none is made."""

    def release(out: Path) -> str:
        command = [str(builds.clone / "packaging/release"), str(out)]
        environment = {**os.environ, "IMAGES": ""}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2, done.stderr
        return done.stderr

    assert "is not empty" in release(builds.first)
    init = builds.clone / "logagent/__init__.py"
    was = init.read_text()
    init.write_text(was + "\n")
    try:
        assert "M logagent/__init__.py" in release(tmp_path / "out")
        init.write_text('__version__ = "99.0.0"\n')
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(builds.clone)]
        subprocess.run([*git, "commit", "-q", "-a", "-m", "99"], check=True)
        assert "no section 99.0.0" in release(tmp_path / "out")
        subprocess.run([*git, "reset", "-q", "--hard", "HEAD~1"], check=True)
        (builds.clone / "docs/new.md").write_text("# New\n")
        assert "docs/new.md" in release(tmp_path / "out")
    finally:
        init.write_text(was)
        (builds.clone / "docs/new.md").unlink(missing_ok=True)
    assert not (tmp_path / "out").exists()


def test_the_bill_of_materials_names_all_that_is_vendored(builds: Builds) -> None:
    """With the licence of each, and the SHA-256 of every wheel that is pinned; CycloneDX's own schema was asked as it
    was made."""
    bill = json.loads((builds.first / f"logagent-{__version__}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    lock = (ROOT / "packaging/requirements.txt").read_text()
    components = {c["name"].lower().replace("-", "_"): c for c in bill["components"]}
    assert {(n.lower().replace("-", "_"), v) for n, v in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)} == {
        (name, component["version"]) for name, component in components.items()
    }
    hashes = [h["content"] for c in components.values() for file in c["externalReferences"] for h in file["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:(\w+)", lock))
    assert [name for name, component in components.items() if not component.get("licenses")] == []
    needs = {d["ref"]: d.get("dependsOn", []) for d in bill["dependencies"]}
    direct = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(needs[bill["metadata"]["component"]["bom-ref"]]) == len(direct)
    assert {ref for refs in needs.values() for ref in refs} == {c["bom-ref"] for c in components.values()}


def test_every_compiled_part_is_there_for_every_python_and_architecture(builds: Builds, tmp_path: Path) -> None:
    for arch, machine in (("amd64", "x86_64"), ("arm64", "aarch64")):
        place = tmp_path / arch
        package = next(builds.first.glob(f"*_{arch}.deb"))
        subprocess.run(["dpkg-deb", "--extract", str(package), str(place)], check=True)
        lib = place / "usr/lib/logagent"
        for minor in (11, 12, 13, 14):
            for module in ("pydantic_core/_pydantic_core", "crc32c/_crc32c", "_cffi_backend"):
                assert (lib / f"cp3{minor}/{module}.cpython-3{minor}-{machine}-linux-gnu.so").is_file()
        elf_machine = {"x86_64": 62, "aarch64": 183}[machine]
        shared = list(lib.rglob("*.so"))
        assert len(shared) >= 9
        assert {int.from_bytes(so.read_bytes()[18:20], "little") for so in shared} == {elf_machine}


def test_what_is_in_it_belongs_to_root_and_has_one_time(builds: Builds, tmp_path: Path) -> None:
    package = next(builds.first.glob("*_amd64.deb"))
    data = tmp_path / "data.tar"
    with data.open("wb") as out:
        subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=out, check=True)
    with tarfile.open(data) as packed:
        members = packed.getmembers()
    assert {(m.uname, m.gname, m.uid, m.gid) for m in members} == {("root", "root", 0, 0)}
    assert {oct(m.mode & 0o7777) for m in members} == {"0o755", "0o644"}
    assert {m.mtime for m in members} == {1790000000}
    names = {m.name for m in members}
    assert not [n for n in names if "__pycache__" in n or "pyspark" in n or n.endswith(".pyc")]
    executable = {m.name.lstrip("./") for m in members if m.isfile() and m.mode & 0o111}
    assert executable == {"usr/bin/logagent"}
    conffiles = subprocess.run(["dpkg-deb", "--info", str(package), "conffiles"], capture_output=True, check=True)
    assert conffiles.stdout.decode().split() == ["/etc/logagent/logagent.toml"]


def test_the_configuration_is_a_commented_form_of_the_defaults(unpacked: Path) -> None:
    text = (unpacked / "etc/logagent/logagent.toml").read_text()
    assert all(value == {} for value in tomllib.loads(text).values()), "a fresh installation sets nothing"
    assert '# mode = "report"' in text.splitlines()


def test_the_licence_of_everything_vendored_is_there(unpacked: Path) -> None:
    vendored = {p.parent.name for p in (unpacked / "usr/lib/logagent").glob("*/*.dist-info/METADATA")}
    licences = unpacked / "usr/share/doc/logagent/licences"
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "packaging/requirements.txt").read_text(), re.MULTILINE)
    assert len(vendored) == len(pinned) > 10
    for name in vendored:
        assert any(p.stat().st_size > 100 for p in (licences / name.removesuffix(".dist-info")).iterdir()), name
    copyright_file = (unpacked / "usr/share/doc/logagent/copyright").read_text()
    assert [name for name in vendored if f"licences/{name.removesuffix('.dist-info')}/" not in copyright_file] == []


LOCKS = {"requirements.txt": ("project", "dependencies"), "build-requirements.txt": ("dependency-groups", "release")}


@pytest.mark.parametrize("lock", LOCKS)
def test_the_pins_are_what_the_project_asks_for(lock: str) -> None:
    """A dependency that is added to the project and not to the package would be missing on every host."""
    table, key = LOCKS[lock]
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())[table][key]
    names = {re.split(r"[<>=]", d)[0].lower().replace("_", "-") for d in asked}
    text = (ROOT / "packaging" / lock).read_text()
    pinned = {n.lower().replace("_", "-") for n in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    assert names <= pinned
    assert [
        block
        for block in re.split(r"\n(?=\w)", text.split("\n", 1)[1])
        if block.strip()
        if "--hash=sha256:" not in block
    ] == []


def test_every_command_has_a_page_and_lint_finds_nothing(unpacked: Path) -> None:
    need_command("mandoc")
    from logagent.cli import COMMANDS

    pages = sorted((unpacked / "usr/share/man").rglob("*.gz"))
    assert {p.name for p in pages} == {"logagent.1.gz", "logagent.toml.5.gz", *(f"logagent-{c}.1.gz" for c in COMMANDS)}
    for page in pages:
        plain = subprocess.run(["gzip", "-dc", str(page)], capture_output=True, check=True).stdout
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=plain, capture_output=True, check=False)
        assert lint.stdout == b"", lint.stdout.decode()
        filled = re.sub(r"^\.nf$.*?^\.fi$", "", plain.decode(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^ .*", filled, re.MULTILINE) == [], "a line that begins with a blank is not filled"


def test_completion_for_each_shell_lies_where_the_shell_looks(unpacked: Path) -> None:
    places = (
        "bash-completion/completions/logagent",
        "zsh/vendor-completions/_logagent",
        "fish/vendor_completions.d/logagent.fish",
    )
    for place in places:
        text = (unpacked / "usr/share" / place).read_text()
        assert f"_LOGAGENT_COMPLETE={place.partition('-')[0].partition('/')[0]}_complete" in text, place
    assert (unpacked / "usr/share" / places[1]).read_text().startswith("#compdef logagent\n")


def test_lintian_finds_nothing_that_is_not_explained(builds: Builds) -> None:
    need_command("lintian")
    for package in sorted(builds.first.glob("*.deb" if FULL else f"*_{architecture()}.deb")):
        done = subprocess.run(["lintian", "--allow-root", str(package)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_rpmlint_finds_nothing_that_is_not_explained(builds: Builds) -> None:
    need_command("rpmlint")
    config = ROOT / "packaging/rpm-rpmlint.toml"
    for package in sorted(builds.first.glob("*.rpm" if FULL else f"*.{os.uname().machine}.rpm")):
        command = ["rpmlint", "--config", str(config), str(package)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and " 0 errors, 0 warnings" in done.stdout, done.stdout
