"""Fixture `prepared`: a real broker's disk, made once a run for each kind, put back before each start (`starts.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.broker.check.starts import Kind, Prepared, reachable_root
from tests.needs import need_command, need_root

Preparer = Callable[..., Prepared]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preparer]:
    """`prepared(version, kind)`, made at its first use; `trimmed` as in `Prepared`."""
    with ExitStack() as stack:

        @cache
        def made(version: str, kind: Kind = "combined", trimmed: bool = False) -> Prepared:
            one = Prepared(tmp_path_factory.mktemp(f"{kind}-{version}"), version, kind, trimmed=trimmed)
            stack.callback(one.close)
            return one

        yield made


@pytest.fixture(scope="session")
def prepared_as_nobody() -> Iterator[Preparer]:
    """The same for a broker that runs as a user without privileges."""
    with ExitStack() as stack:

        @cache
        def made(version: str) -> Prepared:
            need_root()
            need_command("setpriv")
            one = Prepared(stack.enter_context(reachable_root()), version, "combined", as_nobody=True)
            stack.callback(one.close)
            return one

        yield made
