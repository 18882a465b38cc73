"""The packages on clean hosts, the long form: `packaging/test-hosts.sh`, or one of it:

    python -m tests.package.hosts [--packages DIR] [--booted NAME ...] [--installed NAME ...]

`--booted`: the whole life of the package on a booted systemd beside a real broker (booted.py). `--installed`: as an
image builder does it, in a root that is not booted: apt brings what is needed, the command runs, then remove, purge.
Without either: every distribution both ways, and the RPM. Builds two releases first, unless DIR holds them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.package import booted, rpm_host
from tests.package.machines import DISTRIBUTIONS, enter, run, unpacked

ROOT = Path(__file__).resolve().parents[2]


def installed(name: str, package: Path, scratch: Path) -> None:
    """Installed with apt in a root without a running systemd, used as another user, removed, purged."""
    with unpacked(name, scratch) as root:
        (root / "root/logagent.deb").write_bytes(package.read_bytes())
        enter(root, "apt-get update -q; apt-get install -y -q --no-install-recommends /root/logagent.deb", timeout=600)
        said = enter(root, "logagent --version; systemctl is-enabled logagent; id -un kafka; "
                           "! ls -d /var/lib/logagent 2>&1; "
                           "find /usr/lib/logagent -name '*.pyc' | wc -l; readlink -f /usr/bin/python3")  # fmt: skip
        print("    " + said.stdout.strip().replace("\n", "\n    "))
        refused = enter(root, "logagent run", check=False)
        assert refused.returncode == 78 and "no Kafka broker on this host" in refused.stdout, refused.stdout
        demo = enter(
            root, "setpriv --reuid kafka --regid kafka --clear-groups env HOME=/tmp logagent demo", timeout=300
        )
        print(f"    without a broker: exit 78; demo as user kafka: {len(demo.stdout.splitlines())} lines, exit 0")
        enter(root, "dpkg --verify logagent; apt-get remove -y -q logagent; test -e /etc/logagent/logagent.toml")
        enter(
            root, "apt-get purge -y -q logagent; ! ls -d /etc/logagent /usr/lib/logagent /var/lib/logagent* 2>/dev/null"
        )
        print("    removed: the configuration stays; purged: nothing is left")


def builds(directory: Path) -> tuple[Path, Path]:
    """Directories with this version built as release 1 and as release 2."""
    for release in (1, 2):
        place = directory / f"release-{release}"
        if not any(place.glob("*.deb")):
            command = ["env", f"RELEASE={release}", str(ROOT / "packaging/build.sh"), str(place)]
            run(command, timeout=1200)
    return directory / "release-1", directory / "release-2"


def _asked_for(names: list[str] | None, everything: bool) -> list[str]:
    """The distributions of one kind of try: all of them where none is named."""
    if names is None and not everything:
        return []
    return names or list(DISTRIBUTIONS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the packages on clean hosts.")
    parser.add_argument("--packages", type=Path, help="directory with (or for) release-1 and release-2")
    parser.add_argument("--booted", nargs="*", choices=list(DISTRIBUTIONS), default=None)
    parser.add_argument("--installed", nargs="*", choices=list(DISTRIBUTIONS), default=None)
    parser.add_argument("--rpm", action="store_true", help="the RPM, unpacked and run in a root of its own")
    options = parser.parse_args()
    everything = options.booted is None and options.installed is None and not options.rpm
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="logagent-hosts-") as scratch:
        first, second = builds(options.packages or Path(scratch))
        deb = next(first.glob("*_amd64.deb")), next(second.glob("*_amd64.deb"))

        def attempt(what: str, work: Callable[[], None]) -> None:
            print(f"{what}:", flush=True)
            try:
                work()
            except Exception:
                traceback.print_exc(file=sys.stdout)
                failed.append(what)

        for name in _asked_for(options.installed, everything):
            attempt(f"{name}, not booted", lambda n=name: installed(n, deb[0], Path(scratch)))  # type: ignore[misc]
        for n, name in enumerate(_asked_for(options.booted, everything)):
            # Confluent's packages run the broker as another user than everyone else's.
            user = ("cp-kafka", "kafka")[n % 2]
            attempt(f"{name}, booted", lambda n=name, u=user: booted.run(n, deb, Path(scratch), u))  # type: ignore[misc]
        if everything or options.rpm:
            attempt("RPM", lambda: rpm_host.run_all(next(first.glob("*.x86_64.rpm")), next(second.glob("*.x86_64.rpm")),
                                               Path(scratch)))  # fmt: skip
    print(f"{len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("needs root (roots, loop devices, systemd-nspawn)")
    sys.exit(main())
