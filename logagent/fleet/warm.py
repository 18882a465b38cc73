"""`logagent fleet warm`: runs everything once in a JVM that dumps the classes it has loaded."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from logagent.errors import LogAgentError
from logagent.fleet import class_archive, jvm
from logagent.fleet.spark_session import LOG4J


def warm() -> Path:
    """Creates the archive for this Java and this Spark; returns its path. Raises `LogAgentError` if there can be
    none."""
    path = class_archive.path()
    if path is None:
        raise LogAgentError(
            "cannot create a class archive",
            hint="Java must work, ~/.cache/logagent must be yours alone, and no folder on Spark's class path may have"
            " files in it (SPARK_CONF_DIR, HADOOP_CONF_DIR)",
        )
    part = class_archive.part_of(path)
    try:
        _run_demo(
            f"-Dlog4j2.configurationFile={LOG4J.as_uri()} {jvm.java_options(small=True)} {class_archive.dump(part)}"
        )
        if not class_archive.keep(part, path):
            raise LogAgentError("the class archive does not work with this Java", hint="everything works without it")
    finally:
        part.unlink(missing_ok=True)
    return path


def _run_demo(java: str) -> None:
    with tempfile.TemporaryDirectory(prefix="logagent-warm-") as folder:
        command = [sys.executable, "-m", "logagent", "fleet", "demo", "--dir", folder, "--days", "2", "--json"]
        command += ["--hosts", "6", "--partitions", "600", "--master", "local[2]"]
        command += ["--conf", f"spark.driver.extraJavaOptions={java}"]
        # The JVM has our pipes, too: this waits until it has dumped.
        done = subprocess.run(command, capture_output=True, timeout=1800)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise LogAgentError(f"the demo that loads the classes failed: {said}")
