"""The two pictures of the README, in docs/images: the first screen of a fleet's page, and a command on a terminal.

    python packaging/pictures.py PAGE/index.html docs/images cleanup --config FILE --state-dir DIR

Needs Chromium and Playwright. The command is one of `logagent`, for any host; what it prints
is shown as it is, paths too. Both are PNG, with fonts of this machine and nothing that names them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 1400, 830
COLUMNS = 120
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
# Options that say where the host is do not belong into a picture.
SHOWN = 1
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #fff }}
pre {{ display: inline-block; margin: 0; padding: 18px 22px; background: #16191d; color: #dfe3e8; border-radius: 8px;
  font: 13px/1.4 "DejaVu Sans Mono", monospace }}
{stylesheet}</style><pre>{code}</pre>"""


@contextmanager
def _opened(page: Path, selector: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        shown = context.new_page()
        shown.goto(page.resolve().as_uri())
        shown.locator(selector).wait_for()
        yield shown
        browser.close()


def picture_of_page(page: Path, picture: Path) -> None:
    """The first screen, light, as a desk shows it."""
    with _opened(page, "#found") as shown:
        shown.screenshot(path=picture, animations="disabled")


def _on_a_terminal(command: list[str]) -> str:
    """What it writes where it sees that it is one: in a pipe a table is as wide as the names in it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm-256color"}
    written = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        with suppress(OSError), open(ours, "rb", buffering=0) as terminal:  # EIO is the end
            while piece := terminal.read(65536):
                written += piece
    if running.returncode != 0:
        raise subprocess.CalledProcessError(running.returncode, command, written)
    lines = written.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)  # without what a bar drew before


def picture_of_command(words: list[str], picture: Path) -> None:
    """`logagent` with `words`, as a terminal of `COLUMNS` columns shows it. Raises `CalledProcessError`."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    output = _on_a_terminal([sys.executable, "-m", "logagent", *words])
    with open(os.devnull, "w") as nowhere, tempfile.TemporaryDirectory() as folder:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi(f"$ logagent {' '.join(words[:SHOWN])}\n{output.rstrip()}"))
        page = Path(folder) / "terminal.html"
        page.write_text(console.export_html(theme=MONOKAI, code_format=TERMINAL), "utf-8")
        with _opened(page, "pre") as shown:
            shown.locator("pre").screenshot(path=picture)


def main(page: str, folder: str, *words: str) -> None:
    place = Path(folder)
    place.mkdir(exist_ok=True)
    picture_of_page(Path(page), place / "page.png")
    picture_of_command(list(words), place / "cleanup.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
