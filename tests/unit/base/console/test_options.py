"""No option is ignored: what every command does with the options it declares, read from the code.

The common options are promised for every command, so that one command line fits all; those that have nothing to act on
in a command are listed here with the reason. The list only ever gets shorter. `-v` and `--no-color` ask how something
is shown, and promise nothing where there is no more to say, or no table.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import logagent
from logagent.base.console import options
from logagent.base.errors import Exit, NotPermitted
from logagent.cleanup.session import of_command
from logagent.cli import COMMANDS, run
from tests.syntax import syntax_tree

ROOT = Path(logagent.__file__).parent

# A common option and the attributes of `Call` that give its value to a command.
COMMON = {
    "kafka_config": {"kafka_config", "settings"},
    "config_file": {"config_file", "settings", "state_dir"},
    "log_dirs": {"log_dirs"},
    "state_dir_named": {"state_dir"},
    "json": {"json"},
    "verbose": {"verbose", "detail"},
    "no_color": {"color"},
}
HOST = "kafka_config config_file log_dirs state_dir_named"
# Command: the common options without effect, and why.
WITHOUT_EFFECT = {
    "run": ("verbose no_color", "it prints log lines, in the form of --log-format, and no table"),
    "status": ("verbose", "it always says everything"),
    "doctor": ("verbose", "it always says everything"),
    "assignments export": ("no_color", "what it writes is a document"),
    "config check": ("verbose no_color", "it always says everything, and prints no table"),
    "config show": ("verbose", "it always says everything"),
    "topics delete": ("state_dir_named verbose", "it works on the fleet store, not on this host"),
    "topics purge": ("state_dir_named verbose", "it works on the fleet store, not on this host"),
    "topics status": ("state_dir_named verbose", "it works on the fleet store, not on this host"),
    "topics cancel": ("state_dir_named verbose no_color", "it works on the fleet store, and prints one line"),
    "topics run": ("state_dir_named json no_color", "it works on the fleet store, and prints messages only"),
    "topics keygen": (f"{HOST} verbose no_color", "it writes a key file, and prints one line"),
}


def commands() -> Iterator[tuple[str, str, click.Command]]:
    """Every command as it is typed, with the module that has it."""
    for name, (file, attribute, _) in COMMANDS.items():
        module = f"logagent.{file}"
        found = getattr(importlib.import_module(module), attribute)
        for sub, command in found.commands.items() if isinstance(found, click.Group) else [("", found)]:
            yield f"{name} {sub}".strip(), module, command


class Code:
    """The functions and classes of the product, and what they refer to."""

    def __init__(self) -> None:
        self.defined: dict[tuple[str, str], ast.FunctionDef | ast.ClassDef] = {}
        self._imported: dict[tuple[str, str], tuple[str, str]] = {}
        self.read: set[str] = set()
        """Every attribute, and every key in `[...]`, that any file of the product reads."""
        for path in ROOT.rglob("*.py"):
            tree = syntax_tree(path.read_text(encoding="utf-8"))
            self.read |= set(_read(tree))
            module = ".".join(("logagent", *path.relative_to(ROOT).with_suffix("").parts))
            self._add(module, tree)

    def _add(self, module: str, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.defined[module, node.name] = node
        for each in ast.walk(tree):  # imports inside functions too
            if isinstance(each, ast.ImportFrom):
                for alias in each.names:
                    self._imported[module, alias.asname or alias.name] = (each.module or "", alias.name)

    def read_of_call(self, module: str, name: str) -> set[str]:
        """The attributes of `Call` that the function reads, or anything that it refers to."""
        seen: set[tuple[str, str]] = {("logagent.base.console.options", "Call")}
        left, found = [(module, name)], set[str]()
        while left:
            here = left.pop()
            if here in seen or here not in self.defined:
                continue
            seen.add(here)
            for node in (each for part in self.defined[here].body for each in ast.walk(part)):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "call":
                    found.add(node.attr)
                elif isinstance(node, ast.Name):
                    left.append(self._imported.get((here[0], node.id), (here[0], node.id)))
        return found


def _read(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)


@pytest.fixture(scope="module")
def code() -> Code:
    return Code()


@pytest.mark.parametrize(("name", "module", "command"), [pytest.param(*c, id=c[0]) for c in commands()])
def test_every_option_is_read(code: Code, name: str, module: str, command: click.Command) -> None:
    assert command.callback is not None
    function = code.defined[module, command.callback.__name__]
    assert isinstance(function, ast.FunctionDef)
    given = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    used = {node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)}
    of_call = code.read_of_call(module, function.name)
    ignored = set()
    for option in command.params:
        assert option.name is not None
        if "call" in given and option.name in COMMON:
            is_read = not COMMON[option.name].isdisjoint(of_call)
        elif option.name == "assignments":
            is_read = not {"assignments", "settings"}.isdisjoint(of_call)
        else:  # an argument of the function, or a field of a value that several options make
            is_read = option.name in (used if option.name in given else code.read)
        if not is_read:
            ignored.add(option.name)
    assert ignored == set(WITHOUT_EFFECT.get(name, ("", ""))[0].split())


def test_only_commands_are_listed() -> None:
    assert WITHOUT_EFFECT.keys() <= {name for name, _, _ in commands()}


@pytest.mark.parametrize(
    "words", ["scan", "queue", "cleanup", "rescue", "delete --partition a-0", "restore a", "check", "run --once"]
)
def test_who_may_not_read_the_log_dirs_is_refused_first(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the missing configuration that each of them would name otherwise."""

    def refuse(call: options.Call) -> None:
        raise NotPermitted("you may not read them", hint="run it as another user")

    monkeypatch.setattr(of_command, "refuse_wrong_user", refuse)
    assert run([*words.split(), "--config", "/nowhere.toml"]) == Exit.PERMISSION
    assert capsys.readouterr().err.startswith("logagent: you may not read them")
