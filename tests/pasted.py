"""Lines of a page, run as they are pasted into a shell of the broker's user on a private host."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from tests.markdown import Block
from tests.private_host import KAFKA_UID, REPOSITORY, PrivateHost

HOME, STORE = "/home/kafka", "/mnt/logagent-fleet"
LAUNCHER = f"""#!/bin/sh
exec {sys.executable} -P -c 'import sys
sys.path.insert(0, "{REPOSITORY}")
from logagent.cli import main
main()' "$@"
"""


def is_pasted_into(host: PrivateHost) -> None:
    """The host has the command, a home for the broker's user, a /tmp for everybody, whatever this machine's is, and a
    directory that is to be a fleet store."""
    host.write("/usr/local/bin/logagent", LAUNCHER, 0o755)
    host.run("mkdir", "-p", HOME, STORE)
    host.run("chmod", "1777", STORE, "/tmp")
    host.run("chown", f"{KAFKA_UID}:{KAFKA_UID}", HOME)


class Plans:
    """The plans that a page has shown: `--approve PLAN_ID` is about the last one that was not carried out, `--plan
    PLAN_ID` about the last one that was."""

    def __init__(self) -> None:
        self._shown, self._done = "", ""

    def remember(self, out: str) -> None:
        for plan, rest in re.findall(r"^Plan ([0-9a-f]{16,24})(.*)$", out, re.MULTILINE):
            if "not carried out" in rest or "nothing was requested" in rest:
                self._shown = plan
            else:
                self._done = plan

    def named(self, line: str) -> str:
        for option, plan in (("--approve", self._shown), ("--plan", self._done)):
            assert plan or f"{option} PLAN_ID" not in line, f"no such plan was shown before: {line}"
            line = line.replace(f"{option} PLAN_ID", f"{option} {plan}")
        return line


# What a shell makes something else of than words, and only a shell can run.
_SHELL = re.compile(r"[|&;<>$`*?\\(){}!~\"']")


def run(host: PrivateHost, line: str, exported: Sequence[str] = (), *, shell: bool = True) -> str:
    """What the line printed; it has to end with the status that its comment says, else 0. `exported`: the `export`
    lines before it. Without `shell`, a line of nothing but words is run in a copy of this process, in a tenth of the
    time."""
    words = re.sub(r"(^|\s)#.*", "", line).split()
    if shell or exported or words[0] != "logagent" or _SHELL.search(" ".join(words)):
        said = [f"PATH=/usr/local/bin:$PATH COLUMNS=120 HOME={HOME}; export PATH COLUMNS HOME; cd", *exported, line]
        done = host.run("sh", "-c", "\n".join(said), user="kafka", check=False)
        status, printed = done.returncode, done.stdout + done.stderr
    else:
        ran = host.logagent(*words[1:], user="kafka", folder=HOME, COLUMNS="120", HOME=HOME)
        status, printed = ran.status, ran.out + ran.err
    expected = re.search(r"#.*\bexit status (\d+)", line)
    assert status == (int(expected[1]) if expected else 0), f"$ {line}\n{printed}"
    assert "Traceback" not in printed, f"$ {line}\n{printed}"
    return printed


def compare(block: Block, printed: str) -> None:
    """Sizes differ from file system to file system."""
    lines = [re.sub(r"\s+", " ", line) for line in printed.splitlines()]
    for line in block.text.splitlines():
        words = [re.escape(word).replace("…", r"\S*") for word in re.sub(r"[\d.]+ [KMG]?i?B\b", "…", line).split()]
        assert any(re.search(r"(?!\w).*?".join(words), there) for there in lines), f"{line!r}\n{printed}"
