"""What a shell offers after TAB: commands, options, and values from this host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logagent.base.console import options
from logagent.cli import COMMANDS, cli
from tests.command_line import run_apart
from tests.forked import run_forked
from tests.host import Host
from tests.private_host import REPOSITORY

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def asked(shell: str, *words: str, apart: bool = False) -> list[str]:
    """What `logagent` answers the script of a shell: the lines, as that shell reads them. `apart`: in a Python of its
    own."""
    typed = "\n".join(("logagent", *words)) if shell == "bash" else " ".join(("logagent", *words))
    variables = {"COMP_WORDS": typed, "COMP_CWORD": words[-1] if shell == "fish" else str(len(words))}
    variables[options.COMPLETION_VARIABLE] = f"{shell}_complete"
    ran = run_apart(**variables) if apart else run_forked(environment=variables)
    assert (ran.status, ran.err) == (0, "")
    return [line for line in ran.out.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_offered_commands_options_and_values(shell: str) -> None:
    assert any("cleanup" in line for line in asked(shell, "clea", apart=True)), asked(shell, "clea", apart=True)
    assert any("--execute" in line for line in asked(shell, "cleanup", "--ex")), asked(shell, "cleanup", "--ex")
    assert any("topics-plan" in line for line in asked(shell, "schema", "topics-p")), asked(shell, "schema", "topics-p")
    assert any("orphan" in line for line in asked(shell, "scan", "--verdict", "or")), asked(
        shell, "scan", "--verdict", "or"
    )


def in_bash(tmp_path: Path, *words: str) -> list[str]:
    """What bash itself inserts, with the script that the packages install."""
    place = tmp_path / "bin"
    place.mkdir(exist_ok=True)
    program = place / "logagent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m logagent "$@"\n')
    program.chmod(0o755)
    file = tmp_path / "completion"
    file.write_text(options.completion_script(cli, "bash"))
    typed = " ".join(f"'{w}'" for w in ("logagent", *words))
    script = f'. "{file}"; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _logagent_completion logagent;'
    script += ' printf "%s\\n" "${COMPREPLY[@]}"'
    path = f"{place}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split()


def test_bash_completes_commands_names_and_nothing_that_it_would_expand(host: Host, tmp_path: Path) -> None:
    assert set(COMMANDS) <= set(in_bash(tmp_path, ""))
    assert in_bash(tmp_path, "clea") == ["cleanup"]
    assert in_bash(tmp_path, "assignments", "ex") == ["export"]
    (host.d1 / f"orders-9.$(touch owned).{'0' * 32}-stray").mkdir()
    (host.d1 / f"*-9.{'0' * 32}-stray").mkdir()
    where = ("--config", str(host.toml))
    strays = [*host.find("orders-5.", "-stray"), *host.find("orders-2019", "-delete")]
    assert in_bash(tmp_path, "restore", *where, "orders-") == sorted(strays)
    assert in_bash(tmp_path, "delete", *where, "--partition", "orders-") == sorted(
        ["orders-1", "orders-2", "orders-3", *host.find("orders-5.", "-stray")]
    )
    assert [name for name in in_bash(tmp_path, "restore", *where, "") if "*" in name] == []
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("what", ["no such file", "a wrong file", "no such log dir"])
def test_where_nothing_can_be_read_nothing_is_offered_and_nothing_is_said(host: Host, what: str) -> None:
    if what == "no such file":
        host.toml.unlink()
    elif what == "a wrong file":
        host.toml.write_text("[[[")
    else:
        host.properties.write_text("log.dirs=/nowhere\n")
    assert asked("bash", "restore", "--config", str(host.toml), "o") == []
