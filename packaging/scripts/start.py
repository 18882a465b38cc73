"""Puts what is vendored for the running Python on its path, and nothing else but the standard library."""

import os
import sys


def prepare() -> None:
    """Let `logagent` and what it needs be imported from the folder of this file."""
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:0] = [os.path.join(here, "lib"), os.path.join(here, f"cp3{sys.version_info.minor}")]


if __name__ == "__main__":
    prepare()
    from logagent.__main__ import main

    main()
