"""Kafka's jars of one version, fetched once with Maven and kept in a cache, and the command line of a JVM on them.

The cache is `$LOGAGENT_TEST_CACHE`, else `$XDG_CACHE_HOME/logagent-tests`, else `~/.cache/logagent-tests`; with a
version in it nothing is asked of the network. Several test runs may share it: filling it is done under a lock, and a
version appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.needs import need_command

HERE = Path(__file__).resolve().parent

# The C1 compiler alone and a serial collector start fastest on few cores. A test never measures the broker.
QUICK_FLAGS = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# The heap is small because several nodes run beside each other.
JVM_FLAGS = (
    *QUICK_FLAGS,
    "-Xms64m",
    "-Djava.awt.headless=true",
    f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}",
    "-Dzookeeper.jmx.log4j.disable=true",
)
# Kafka before 2.4 reaches into these; on the Java versions it was made for that was allowed.
OPENED_BEFORE_2_4 = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util")
)


@dataclass(frozen=True)
class Jars:
    """The jars of Kafka `version`; `archive` holds their loaded classes (AppCDS) where that was worth making."""

    version: str
    classpath: str
    archive: Path

    def command(self, main_class: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """`java …` for `main_class`; run it with `environment()`, which carries the class path."""
        shared = (f"-XX:SharedArchiveFile={self.archive}",) if self.archive.exists() and not flags else ()
        opened = OPENED_BEFORE_2_4 if version_tuple(self.version) < (2, 4) else ()
        return ["java", *JVM_FLAGS, *shared, *opened, *flags, main_class, *arguments]

    def environment(self) -> dict[str, str]:
        """The process environment for `command()`."""
        return {**os.environ, "CLASSPATH": self.classpath}

    def run(self, main_class: str, *arguments: str, timeout: float = 300) -> str:
        """Run one of Kafka's command-line classes to its end; its output, or an error that shows it."""
        done = subprocess.run(
            self.command(main_class, *arguments),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{main_class} of Kafka {self.version} exited {done.returncode}:\n{done.stdout}")
        return done.stdout


def version_tuple(version: str) -> tuple[int, ...]:
    """`"3.9.1"` as `(3, 9, 1)`, to compare."""
    return tuple(int(part) for part in version.split("."))


def cache_dir() -> Path:
    """Where the jars are kept between runs; made if it is not there."""
    if named := os.environ.get("LOGAGENT_TEST_CACHE"):
        cache = Path(named)
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        cache = (Path(base) if base else Path.home() / ".cache") / "logagent-tests"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held while something of the cache is made: test runs beside this one wait for it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kafka_jars(version: str, *, tools: bool = False) -> Jars:
    """The jars of Kafka `version`, from the cache or through Maven. `tools`: with the classes behind its scripts."""
    need_command("java")
    name = f"kafka-tools-{version}" if tools else f"kafka-{version}"
    home = cache_dir() / name
    if not home.is_dir():
        need_command("mvn")
        with locked(cache_dir() / f"{name}.lock"):
            if not home.is_dir():
                _fetch(version, home, ["tools"] if tools else [])
    classpath = os.pathsep.join(str(jar) for jar in sorted(home.glob("*.jar")))
    return Jars(version, classpath, cache_dir() / f"{name}-{_java_key()}.jsa")


def run_configs(version: str, *words: str) -> str:
    """What `kafka-configs.sh` of that release runs."""
    if version_tuple(version) < (4, 4):
        return kafka_jars(version).run("kafka.admin.ConfigCommand", *words)
    return kafka_jars(version, tools=True).run("org.apache.kafka.tools.ConfigCommand", *words)


def archive_lock(jars: Jars) -> contextlib.AbstractContextManager[None]:
    """Held while the class archive of `jars` is made."""
    return locked(jars.archive.with_suffix(".lock"))


def _fetch(version: str, home: Path, profiles: list[str]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml")]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-Dkafka.version={version}", f"-DoutputDirectory={partial}"]
        profiles = [*profiles, *(["before-2.4"] if version_tuple(version) < (2, 4) else [])]
        command += ["--activate-profiles", ",".join(profiles)] if profiles else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0 or not any(partial.glob("kafka_2.1[23]-*.jar")):
            raise RuntimeError(f"Maven did not fetch Kafka {version}:\n{done.stdout}{done.stderr}")
        partial.chmod(0o755)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _java_key() -> str:
    """Tells one Java from another: a class archive is good only for the JVM that wrote it."""
    java = Path(os.path.realpath(shutil.which("java") or "java"))
    return f"{java.parts[-3] if len(java.parts) > 3 else 'java'}-{java.stat().st_mtime_ns // 10**9}"
