"""`logagent fleet warm`: one run of everything in a JVM that writes down the classes it has loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from logagent.errors import LogAgentError
from logagent.fleet import launch
from logagent.fleet.session import LOG4J


def warm() -> Path:
    """Makes the archive of this Java and this Spark; where it lies. Raises `LogAgentError` if there can be none."""
    path = launch.archive_path()
    if path is None:
        raise LogAgentError("no class archive can be made", hint="Java must run, and ~/.cache/logagent be yours alone")
    with tempfile.TemporaryDirectory(prefix="logagent-warm-") as folder, launch.dumping(path) as dump:
        java = f"-Dlog4j2.configurationFile={LOG4J.as_uri()} {dump}"
        command = [sys.executable, "-m", "logagent", "fleet", "demo", "--dir", folder, "--no-disks", "--json"]
        command += ["--hosts", "6", "--partitions", "600", "--days", "2", "--master", "local[2]"]
        command += ["--conf", f"spark.driver.extraJavaOptions={java}"]
        done = subprocess.run(command, capture_output=True, env=os.environ, timeout=1800)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-300:]
            raise LogAgentError(f"the demo that loads the classes failed: {said}")
    if not path.exists():
        raise LogAgentError("the class archive does not work with this Java", hint="everything works without it")
    return path
