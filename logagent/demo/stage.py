"""Runs the real commands in this process, shows each as a user would type it, and counts the checks."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from logagent.base.config.config import ENV_PREFIX
from logagent.base.console.render import short_name
from logagent.demo.host import CONFIG, STATE_DIR, Tree, differences, read_tree

_COMMON = ("--config", CONFIG, "--state-dir", STATE_DIR)
_WIDTH = 100


class StepFailed(Exception):
    """A step did not do what was announced. It is added to `Stage.failures`, and the demo ends."""


@dataclass(slots=True)
class Stage:
    """`run` is the entry point of the command line: takes arguments, returns the exit status."""

    folder: Path
    run: Callable[[Sequence[str]], int]
    color: bool
    checks: int = 0
    failures: list[str] = field(default_factory=list)
    _chapter: int = 0

    def chapter(self, title: str, text: str) -> None:
        self._chapter += 1
        self._say(f"\n{self._chapter}. {title}", bold=True)
        self.explain(text)

    def explain(self, text: str) -> None:
        for line in textwrap.wrap(" ".join(text.split()), _WIDTH):
            self._say(line)

    def command(self, *arguments: str, expect: int = 0) -> None:
        """Show `logagent ARGUMENTS` of this host, run it visibly, and check its exit status."""
        self.typed(arguments[0], *_COMMON, *arguments[1:], expect=expect)

    def typed(self, *typed: str, expect: int = 0) -> None:
        """The same for exactly these arguments."""
        self._say(f"\n$ logagent {shlex.join(typed)}", fg="cyan", bold=True)
        status = self.run(list(typed))
        self.check(status == expect, f"exit status {status}", f"exit status {status} and not {expect}")

    def unchanged(self, says: str, *arguments: str, expect: int = 0) -> None:
        """Show and run `logagent ARGUMENTS`, and check that it changed nothing on disk."""
        with self.watching() as before:
            self.command(*arguments, expect=expect)
            self.check(read_tree(self.folder) == before, says)

    def document(self, *arguments: str) -> dict[str, Any]:
        """The document of `logagent ARGUMENTS --json` of this host, which is run without showing it."""
        return self.document_of(arguments[0], *_COMMON, *arguments[1:])

    def document_of(self, *typed: str) -> dict[str, Any]:
        """The same for exactly these arguments."""
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            self.run([*typed, "--json"])
        document = json.loads(out.getvalue() or "{}")
        assert isinstance(document, dict)
        return document

    def check(self, holds: bool, says: str, otherwise: str | None = None) -> None:
        """Check a fact that the demo must have established. Raises StepFailed if it does not hold."""
        self.checks += 1
        if holds:
            self._say(f"  ✓ {says}", fg="green")
        else:
            self.failures.append(otherwise or says)
            self._say(f"  ✗ NOT SO: {otherwise or says}", fg="red", bold=True)
            raise StepFailed(self.failures[-1])

    @contextmanager
    def watching(self) -> Iterator[Tree]:
        """Show what changed on disk while this was open. The value is the tree as it was before."""
        before = read_tree(self.folder)
        yield before
        lines = differences(before, read_tree(self.folder))
        self._say("\nWhat changed on disk:" if lines else "\nNothing changed on disk.")
        for line in lines:
            self._say("  " + _shortened(line), fg={"-": "red", "+": "green", "!": "yellow"}[line[0]])

    def _say(self, line: str, *, fg: str | None = None, bold: bool = False) -> None:
        # Flush at once: the commands' messages go to stderr and must not come first.
        click.echo(click.style(line, fg=fg, bold=bold) if self.color and (fg or bold) else line, color=self.color)


def _shortened(line: str) -> str:
    return "/".join(short_name(part, 70) for part in line.split("/"))


@contextmanager
def own_environment(*, color: bool) -> Iterator[None]:
    """Without the user's own LOGAGENT_… settings: only the demo's configuration is in effect."""
    saved = dict(os.environ)
    for name in saved:
        if name.startswith(ENV_PREFIX):
            del os.environ[name]
    if not color:
        os.environ["NO_COLOR"] = "1"
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", str(_WIDTH + 40))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)
