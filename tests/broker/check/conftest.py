"""Fixture `prepared`: a real broker's disk, made once a run for each kind, put back before each start (`starts.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.broker.check.starts import Prepared, reachable_root
from tests.damages.row import Kind
from tests.needs import need_command, need_root

Preparer = Callable[..., Prepared]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preparer]:
    """`prepared(version, kind)`, made at its first use; `trimmed` as in `Prepared`."""
    with ExitStack() as stack:

        @cache
        def made(version: str, kind: Kind = "combined", trimmed: bool = False) -> Prepared:
            if kind == "unprivileged":
                need_root()
                need_command("setpriv")
                root = stack.enter_context(reachable_root())
            else:
                root = tmp_path_factory.mktemp(f"{kind}-{version}")
            one = Prepared(root, version, kind, trimmed=trimmed)
            stack.callback(one.close)
            return one

        yield made
