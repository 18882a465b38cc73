"""The collector is off while anybody needs it off, and as it was before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from logagent.base.linux.kernel import without_garbage_collection


@pytest.fixture(autouse=True, params=[True, False], ids=["on before", "off before"])
def before(request: pytest.FixtureRequest) -> Iterator[bool]:
    enabled = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if enabled else gc.disable)()


def test_off_within_and_as_before_afterwards(before: bool) -> None:
    with without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled() == before


def test_as_before_after_an_error(before: bool) -> None:
    with pytest.raises(ZeroDivisionError), without_garbage_collection():
        _ = 1 // 0
    assert gc.isenabled() == before


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_it_stays_off_until_the_last_one_leaves(before: bool, first_to_leave: int) -> None:
    """A metadata log is read while files are removed: no collection may come between a look and its unlink."""
    both = ExitStack(), ExitStack()
    for one in both:
        one.enter_context(without_garbage_collection())
    both[first_to_leave].close()
    assert not gc.isenabled()
    both[1 - first_to_leave].close()
    assert gc.isenabled() == before
