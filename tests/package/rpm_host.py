"""The RPM where no mirror of an RPM distribution can be reached: rpm itself, with its own database, in a Debian root.

Everything is rpm's but the dependencies (`--nodeps`): the order of scripts, `%config(noreplace)`, verification.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from logagent import __version__
from tests.package.machines import enter, run, unpacked


def run_all(first: Path, second: Path, scratch: Path) -> None:
    """Install, run, upgrade, downgrade (refused with a newer journal), erase. Raises at what fails."""
    needs = run(["rpm", "-qp", "--requires", str(first)]).stdout
    assert "(python3.11 or python3.12 or python3.13 or python3.14)" in needs, needs
    with unpacked("debian-13", scratch) as root:
        for n, package in enumerate((first, second), 1):
            (root / f"root/logagent-{n}.rpm").write_bytes(package.read_bytes())
        enter(root, "apt-get update -q; apt-get install -y -q --no-install-recommends rpm python3", timeout=600)
        install = "rpm --install --nodeps /root/logagent-1.rpm; logagent --version; rpm --verify --nodeps logagent;"
        said = enter(root, f"{install} id -un kafka; ! test -e /var/lib/logagent; mkdir /var/lib/logagent")
        print("    installed: " + " ".join(said.stdout.split()))
        config = root / "etc/logagent/logagent.toml"
        config.write_text(config.read_text() + "\n# ours\n")
        enter(root, "rpm --upgrade --nodeps /root/logagent-2.rpm; rpm --query logagent; logagent --version")
        assert config.read_text().endswith("# ours\n")
        journal = root / "var/lib/logagent/journal.db"
        with sqlite3.connect(journal) as db:
            db.execute("CREATE TABLE x (y)")
            db.execute("PRAGMA user_version=99")
        db.close()
        refused = enter(root, "rpm --upgrade --oldpackage --nodeps /root/logagent-1.rpm", check=False)
        assert refused.returncode != 0 and "newer logagent (journal schema 99" in refused.stdout, refused.stdout
        assert enter(root, "rpm --query logagent").stdout.strip().startswith(f"logagent-{__version__}-")
        journal.unlink()
        enter(root, "rpm --upgrade --oldpackage --nodeps /root/logagent-1.rpm; logagent --version")
        print("    upgraded with its configuration kept; downgrade refused with a newer journal, done without")
        enter(root, "rpm --erase --nodeps logagent; ! ls -d /usr/lib/logagent /usr/bin/logagent 2>/dev/null;"
                    "test -d /var/lib/logagent; test -e /etc/logagent/logagent.toml.rpmsave")  # fmt: skip
        print("    erased: nothing of the package is left; the state dir and the edited configuration (.rpmsave) stay")
