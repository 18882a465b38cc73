"""Which files a run with `-k` needs: one test starts within seconds, without importing all others."""

from __future__ import annotations

import re


def phrases(expression: str) -> list[str]:
    """What the text of a file must have in it, in lower case, for a test in it to be chosen by `-k`: names of tests, or
    longer parts of them, that all have to match. A short word may be in a case's name, which is computed."""
    if re.search(r"\b(?:or|not)\b|[^\w\s-]", expression):
        return []
    parts = [part.strip().lower() for part in re.split(r"\band\b", expression)]
    return [part for part in parts if part.isidentifier() and (part.startswith("test_") or part.count("_") >= 2)]


def may_have_it(expression: str, path: str, text: str) -> bool:
    """Whether the test file may have a test that `-k EXPRESSION` chooses."""
    within = f"{path}\n{text}".lower()
    return all(phrase in within for phrase in phrases(expression))
