"""Verifies a drop-in with systemd itself and installs it, completely or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from logagent.agent.setup.look import ROOT, Setup, existing_drop_in
from logagent.errors import LogAgentError
from logagent.files.safe_open import UNIT
from logagent.host.brokers.systemd_units import UNIT_DIRS, read_unit
from logagent.host.linux.access import Untrusted, read_trusted, trusted_path

_SECONDS = 30.0


def verify(setup: Setup) -> str | None:
    """Let `systemd-analyze verify` read the unit with this drop-in. Returns None, or why that was not possible.

    Raises LogAgentError with systemd's objections, and if the unit itself is not installed.
    """
    unit = read_unit(setup.service)
    if unit is None:
        raise LogAgentError(f"{setup.service} is not installed", hint="it comes with the system packages")
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze is not there"
    with tempfile.TemporaryDirectory(prefix="logagent-setup-") as scratch:
        folder = Path(scratch)
        (folder / os.path.basename(unit.file)).write_bytes(read_trusted(unit.file, UNIT, ROOT))
        (folder / f"{setup.service}.d").mkdir()
        (folder / f"{setup.service}.d" / os.path.basename(setup.place)).write_text(setup.text, encoding="utf-8")
        try:
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", setup.service],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_UNIT_PATH": f"{folder}:"},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as e:
            return f"systemd-analyze verify did not answer ({e})"
    said = done.stdout.decode("utf-8", "replace").replace(f"{folder}/", "")
    complaints = [line for line in said.splitlines() if "logagent" in line]
    if complaints:
        raise LogAgentError(f"systemd-analyze verify: {complaints[0]}", hint="nothing was written")
    return None


def write(setup: Setup) -> None:
    """Install the drop-in (mode 0644) unless it already exists with this content.

    Raises Untrusted if a user other than root could write there, or LogAgentError.
    """
    system = UNIT_DIRS[0]
    folder = os.path.dirname(setup.place)
    try:
        if trusted_path(system, ROOT) != system:
            raise Untrusted(f"{system} is a symlink")
        with suppress(FileExistsError):
            os.mkdir(folder, 0o755)
        if trusted_path(folder, ROOT) != folder:
            raise Untrusted(f"{folder} is a symlink")
        if existing_drop_in(setup.place) != setup.text:
            _replace(folder, os.path.basename(setup.place), setup.text)
    except OSError as e:
        raise LogAgentError(f"{setup.place}: {e.strerror}", hint="nothing was written") from e


def _replace(folder: str, name: str, text: str) -> None:
    fd, temporary = tempfile.mkstemp(prefix=".logagent-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, f"{folder}/{name}")
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
