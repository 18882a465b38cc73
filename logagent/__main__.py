"""`logagent`, also as `python -m logagent`. `--version`, the most frequent call, is answered without importing
click."""

import sys
from contextlib import suppress

from logagent import __version__


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        with suppress(OSError):  # The reader has exited or the disk is full: reported as for every other command.
            sys.stdout.write(f"logagent, version {__version__}\n")
            sys.stdout.flush()
            return
    from logagent.cli import main as run

    run()


if __name__ == "__main__":
    main()
