"""What the options of the `topics` commands say, read. Each raises UsageError for what it cannot read."""

from __future__ import annotations

import re
from datetime import timedelta

from logagent.errors import UsageError
from logagent.model.planning.proposals import compile_topics
from logagent.settings import parse_duration, parse_size


def topic_regex(text: str) -> re.Pattern[str]:
    try:
        return compile_topics(text)
    except re.error as error:
        raise UsageError(f"--topic {text!r} is not a regular expression: {error}") from error


def seconds(text: str) -> float:
    if text.strip() == "0":
        return 0.0
    try:
        return timedelta(milliseconds=parse_duration(text)).total_seconds()
    except ValueError as error:
        raise UsageError(str(error)) from error


def pause(text: str) -> float:
    """Seconds between two rounds."""
    found = seconds(text)
    if found == 0:
        raise UsageError(f"--interval {text}: that is no pause at all", hint="--interval 5s")
    return found


def size(text: str | None) -> int:
    """At least one byte: 0, of a script's variable perhaps, would select everything."""
    try:
        found = 0 if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(f"--larger: {error}") from error
    if text is not None and found == 0:
        raise UsageError(f"--larger {text} selects everything", hint="leave it out if that is meant")
    return found
