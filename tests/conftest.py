"""What holds for every test."""

from __future__ import annotations

import gc
import signal
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from tests.chosen import may_have_it, phrases
from tests.long_form import FULL, LONG

pytest_plugins = ["tests.browser"]

# A machine that is slow for a moment is no failure; what hangs is stopped by pytest's own time limit. The default run
# draws the same examples each time, so that a change is judged by what it changes; the long form searches for new ones.
settings.register_profile("logagent", deadline=None, print_blob=True, derandomize=not FULL)
settings.load_profile("logagent")

# Seconds: a shorter run needs no report of where they went.
WORTH_A_REPORT = 20


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with Ctrl-C ignored, and what we start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python 3.0.12 reads its schemas through a function that Python 3.11 and 3.12 call deprecated.
    for message in ("read_text", "open_text"):
        config.addinivalue_line("filterwarnings", f"ignore:{message} is deprecated:DeprecationWarning")
    config.addinivalue_line("markers", "long_form: only with `tests/run --full` (tests/long_form.py)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    expression = str(config.option.keyword)
    if not (phrases(expression) and collection_path.match("test_*.py")):
        return None
    return not may_have_it(expression, str(collection_path), collection_path.read_text(encoding="utf-8")) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not FULL and item.get_closest_marker("long_form") is not None:
            adds = LONG[item.nodeid.partition("::")[0]].adds
            item.add_marker(pytest.mark.skip(reason=f"only with tests/run --full: {adds}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the time of a run went, by folder: what CI has to keep within its limit."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = report.nodeid.partition("::")[0].rpartition("/")[0]
                seconds[folder] += report.duration
                tests[folder] += report.when == "call"
    total = sum(seconds.values())
    if total < WORTH_A_REPORT:
        return
    terminalreporter.section("seconds by folder")
    for folder, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        if spent >= 1:
            terminalreporter.write_line(f"{spent:8.0f}  {tests[folder]:5d} tests  {folder}")
    terminalreporter.write_line(f"{total:8.0f}  {tests.total():5d} tests  in all")


def pytest_sessionfinish() -> None:
    """Let go of what kafka-python forgot to close (connections that a stopped broker refused): no test is to blame."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            gc.collect()
