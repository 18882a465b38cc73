"""Who answers for a package comes from the build's MAINTAINER and HOMEPAGE, and nothing is made up in their place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from tests.markdown import ROOT

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.\w+|@localhost")
# What build.sh has `tree.py` write, but for the vendored wheels.
LAY_OUT = """
import sys
from pathlib import Path
sys.path.insert(0, "packaging")
import tree
to = Path(sys.argv[1])
tree.documentation(to, "0.1.0")
tree.description(to)
"""


def laid_out(to: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LAY_OUT, str(to)],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000", "RELEASE": "1", "VERSION": "0.1.0", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_set_is_in_package_changelog_and_security(tmp_path: Path) -> None:
    who, where = 'Ann "A" Ops <ann@kafka.test>', "https://kafka.test/logagent"
    done = laid_out(tmp_path, MAINTAINER=who, HOMEPAGE=where)
    assert done.returncode == 0, done.stderr
    described = yaml.safe_load((tmp_path / "nfpm.yaml").read_text())
    assert (described["maintainer"], described["homepage"]) == (who, where)
    security = (tmp_path / "usr/share/doc/logagent/SECURITY.md").read_text()
    assert f"## Reporting\n\n- Maintainer: {who}\n- Project: <{where}>\n\nPlease report" in security
    changelog = subprocess.run(
        ["gzip", "-dc", str(tmp_path / "doc/deb/changelog.Debian.gz")], capture_output=True, text=True, check=True
    ).stdout
    assert f" -- {who}  " in changelog


def test_where_nobody_is_set_no_address_is_made_up(tmp_path: Path) -> None:
    done = laid_out(tmp_path, MAINTAINER="", HOMEPAGE="")
    assert done.returncode == 0, done.stderr
    described = yaml.safe_load((tmp_path / "nfpm.yaml").read_text())
    # Not missing: nfpm writes unset@localhost then.
    assert described["maintainer"] == "logagent maintainers" and "homepage" not in described
    security = (tmp_path / "usr/share/doc/logagent/SECURITY.md").read_text()
    assert security == (ROOT / "SECURITY.md").read_text()
    for text in (security, (tmp_path / "nfpm.yaml").read_text()):
        assert ADDRESS.search(text) is None and ".invalid" not in text


def test_a_maintainer_that_is_none_ends_the_build(tmp_path: Path) -> None:
    for wrong in ("ann@kafka.test", "Ann", "Ann <ann>", "Ann <ann@kafka.test>\nX: y"):
        done = laid_out(tmp_path / "out", MAINTAINER=wrong)
        assert done.returncode != 0 and "MAINTAINER: " in done.stderr, wrong
