"""The packages on clean hosts, the long form: `packaging/test-hosts.sh`, or one of it:

    python -m tests.package.hosts [--packages DIR] [--booted NAME ...] [--weeks NAME ...] [--installed NAME ...]

`--booted`: the whole life of the package on a booted systemd beside a real broker (booted.py). `--installed`: as an
image builder does it, in a root that is not booted: apt brings what is needed, the command runs, then remove, purge.
`--weeks`: an operator's first weeks, and the upgrade from the last 0.1.0 with pending work (weeks.py). Without any:
every distribution each way, and the RPM. Builds the packages first, unless DIR holds them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from logagent import __version__
from tests.package import booted, rpm_host, weeks
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


def versions(directory: Path) -> weeks.Packages:
    """The last 0.1.0 and this version, built for this architecture; 0.1.0 itself is built as 1.0.0, too."""
    git = ["git", "-C", str(ROOT)]
    changed = run(
        [*git, "log", "-1", "--format=%H", '-S__version__ = "0.1.0"', "--", "logagent/__init__.py"]
    ).stdout.strip()
    older, newer = ("HEAD", "1.0.0") if __version__ == "0.1.0" else (f"{changed}^", __version__)
    packages = weeks.Packages(directory / "older", directory / "newer")
    for place, commit, version in ((packages.older, older, "0.1.0"), (packages.newer, "HEAD", newer)):
        if any(place.glob("*.deb")):
            continue
        checkout = directory / f"checkout-{version}"
        checkout.mkdir(parents=True)
        run(["sh", "-ec", f'git -C "{ROOT}" archive {commit} | tar -x -C "{checkout}"'])
        init = checkout / "logagent/__init__.py"
        init.write_text(init.read_text().replace('__version__ = "0.1.0"', f'__version__ = "{version}"'))
        at = run([*git, "log", "-1", "--format=%ct", commit]).stdout.strip()
        smaller = ["COMPRESSION=gzip", "PAIRS=amd64:x86_64", f"KEPT={directory / 'kept'}"]
        run(
            ["env", f"SOURCE_DATE_EPOCH={at}", *smaller, str(checkout / "packaging/build.sh"), str(place)], timeout=1800
        )
    return packages


def _asked_for(names: list[str] | None, everything: bool) -> list[str]:
    """The distributions of one kind of try: all of them where none is named."""
    if names is None and not everything:
        return []
    return names or list(DISTRIBUTIONS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the packages on clean hosts.")
    parser.add_argument("--packages", type=Path, help="directory with (or for) release-1 and release-2")
    parser.add_argument("--booted", nargs="*", choices=list(DISTRIBUTIONS), default=None)
    parser.add_argument("--weeks", nargs="*", choices=list(DISTRIBUTIONS), default=None)
    parser.add_argument("--installed", nargs="*", choices=list(DISTRIBUTIONS), default=None)
    parser.add_argument("--rpm", action="store_true", help="the RPM, unpacked and run in a root of its own")
    options = parser.parse_args()
    kinds = (options.booted, options.weeks, options.installed)
    everything = all(asked is None for asked in kinds) and not options.rpm
    failed, passed = list[str](), list[int]()
    with tempfile.TemporaryDirectory(prefix="logagent-hosts-") as scratch:

        def attempt(what: str, work: Callable[[], None]) -> None:
            print(f"{what}:", flush=True)
            try:
                work()
            except Exception:
                traceback.print_exc(file=sys.stdout)
                failed.append(what)

        place = options.packages or Path(scratch)

        def first_weeks(name: str) -> None:
            passed.append(weeks.run_all(name, versions(place), Path(scratch), "kafka"))

        for name in (asked := _asked_for(options.weeks, everything)):
            attempt(f"{name}, the first weeks", partial(first_weeks, name))
        if asked and not everything and options.booted is options.installed is None and not options.rpm:
            return _end(failed, sum(passed))
        first, second = builds(place)
        deb = next(first.glob("*_amd64.deb")), next(second.glob("*_amd64.deb"))
        for name in _asked_for(options.installed, everything):
            attempt(f"{name}, not booted", lambda n=name: installed(n, deb[0], Path(scratch)))  # type: ignore[misc]
        for n, name in enumerate(_asked_for(options.booted, everything)):
            # Confluent's packages run the broker as another user than everyone else's.
            user = ("cp-kafka", "kafka")[n % 2]
            attempt(f"{name}, booted", lambda n=name, u=user: booted.run(n, deb, Path(scratch), u))  # type: ignore[misc]
        if everything or options.rpm:
            attempt("RPM", lambda: rpm_host.run_all(next(first.glob("*.x86_64.rpm")), next(second.glob("*.x86_64.rpm")),
                                               Path(scratch)))  # fmt: skip
    return _end(failed, sum(passed))


def _end(failed: list[str], passed: int) -> int:
    print(f"{passed} checks of the first weeks passed; {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("needs root (roots, loop devices, systemd-nspawn)")
    sys.exit(main())
