"""What a test needs from the machine: absent means skipped with the reason, or failed where nothing may be absent.

`LOGAGENT_TESTS_REQUIRE_ALL=1` (set by `.ci/run`) turns every such skip into a failure.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

REQUIRE_ALL = os.environ.get("LOGAGENT_TESTS_REQUIRE_ALL") == "1"


def missing(what: str) -> NoReturn:
    """Skip the running test because the machine lacks `what` (fail it where everything is required)."""
    if REQUIRE_ALL:
        pytest.fail(f"this machine lacks {what}, and LOGAGENT_TESTS_REQUIRE_ALL=1 is set", pytrace=False)
    pytest.skip(f"this machine lacks {what}")


def need_root() -> None:
    if os.geteuid() != 0:
        missing("root")


def need_command(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            missing(f"the command {command}")
