"""packaging/Containerfile, read, as CI has no builder: what it copies is built, what it starts is in the package."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from logagent import __version__
from tests.markdown import ROOT
from tests.package.conftest import Builds, architecture

FILE = ROOT / "packaging/Containerfile"
KNOWN = {"FROM", "ARG", "COPY", "RUN", "USER", "VOLUME", "ENTRYPOINT", "CMD", "ENV"}


@dataclass
class Stage:
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        return next(value for name, value in reversed(self.steps) if name == instruction)

    def all(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]


def stages() -> dict[str, Stage]:
    """Name → stage, in order; every line is an instruction that is known here."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    found: dict[str, Stage] = {}
    for line in filter(str.strip, text.splitlines()):
        instruction, _, value = line.partition(" ")
        assert instruction in KNOWN, line
        if instruction == "FROM":
            base, _, name = value.partition(" AS ")
            assert name, "every stage has a name to be built by"
            found[name] = Stage(base)
        else:
            next(reversed(found.values())).steps.append((instruction, value.strip()))
    return found


def test_both_images_are_of_one_tree_and_run_as_a_user() -> None:
    found = stages()
    assert list(found) == ["agent", "fleet"] and found["fleet"].base == "agent"
    base = found["agent"].base
    assert re.fullmatch(r"[a-z.]+/[a-z/]+:[\w.-]+", base) and not base.endswith(":latest"), base
    for stage in found.values():
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage.last("USER"))
        assert isinstance(json.loads(stage.last("ENTRYPOINT")), list) and isinstance(
            json.loads(stage.last("CMD")), list
        )


def test_what_is_copied_is_what_the_build_makes(builds: Builds) -> None:
    variables = {"VERSION": __version__, "TARGETARCH": architecture()}
    made = {path.relative_to(builds.first).as_posix() for path in builds.first.rglob("*")}
    for stage in stages().values():
        for copy in stage.all("COPY"):
            source = re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], copy.split()[0])
            assert any(fnmatch(f"dist/{name}", source) for name in made), copy


def test_what_it_starts_is_there(unpacked: Path, builds: Builds) -> None:
    agent, fleet = stages()["agent"], stages()["fleet"]
    program = json.loads(agent.last("ENTRYPOINT"))[0]
    assert (unpacked / program.lstrip("/")).is_file()
    folder = next(copy.split()[1] for copy in fleet.all("COPY"))
    started = [word for word in json.loads(fleet.last("ENTRYPOINT")) if word.startswith(folder)]
    assert {Path(word).name for word in started} == {path.name for path in (builds.first / "spark").iterdir()}


def test_its_shell_lines_are_shell() -> None:
    for stage in stages().values():
        for run in stage.all("RUN"):
            done = subprocess.run(["sh", "-n", "-c", run], capture_output=True, text=True, check=False)
            assert done.returncode == 0 and " && rm -rf /var/lib/apt/lists/*" in re.sub(r"\s+", " ", run), run
