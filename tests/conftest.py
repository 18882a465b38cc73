"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A machine that is slow for a moment is no failure; what hangs is stopped by pytest's own time limit.
settings.register_profile("logagent", deadline=None, print_blob=True)
settings.load_profile("logagent")


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python 3.0.12 reads its schemas through a function that Python 3.11 and 3.12 call deprecated.
    for message in ("read_text", "open_text"):
        config.addinivalue_line("filterwarnings", f"ignore:{message} is deprecated:DeprecationWarning")
