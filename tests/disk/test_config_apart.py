"""Loading the configuration in a process of its own: the same answer, and nothing of pydantic stays."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from logagent.config import load
from logagent.config_apart import load_apart
from logagent.errors import ConfigError

GOOD = '[cleanup]\nmode = "enforce"\nmin_age = "48h"\n'
BAD = '[cleanup]\nmode = "often"\nmin_age = "48"\n[nonsense]\n'


def test_the_same_settings(tmp_path: Path) -> None:
    file = tmp_path / "logagent.toml"
    file.write_text(GOOD)
    environ = {"LOGAGENT_DELETE__WORKERS": "3"}
    assert load_apart(file, environ) == load(file, environ)


def test_the_same_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "logagent.toml"
    file.write_text(BAD)
    with pytest.raises(ConfigError) as here:
        load(file, {})
    with pytest.raises(ConfigError) as apart:
        load_apart(file, {})
    one, other = here.value, apart.value
    assert len(one.problems) == 3
    assert (str(other), other.problems, other.hint) == (str(one), one.problems, one.hint)


def test_with_threads_it_is_done_here(tmp_path: Path) -> None:
    """A fork would copy locks that other threads hold."""
    file = tmp_path / "logagent.toml"
    file.write_text(GOOD)
    told = []
    thread = threading.Thread(target=lambda: told.append(load_apart(file, {})))
    thread.start()
    thread.join()
    assert told == [load(file, {})]


def test_nothing_of_pydantic_stays(tmp_path: Path) -> None:
    file = tmp_path / "logagent.toml"
    file.write_text(GOOD)
    code = f"""
import sys
from logagent.config_apart import load_apart
assert load_apart({str(file)!r}, {{}}).settings.cleanup.mode == "enforce"
print([m for m in sys.modules if "pydantic" in m])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
