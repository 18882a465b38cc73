"""What the numbers and lists of a document rest on: every one has a row, and says something else without each input.

A register is a table (field → inputs); beside it stands how each input is withheld. A field without a row fails, and so
does an input that nobody withholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict


def figures(document: Any) -> set[str]:
    """Paths of the numbers and lists of a document: `log_dirs`, `log_dirs[].probe_ms`."""
    return set(_figures(document, ""))


def _figures(hint: Any, path: str) -> Iterator[str]:
    origin = get_origin(hint)
    if is_typeddict(hint) or is_dataclass(hint):
        for name, each in get_type_hints(hint).items():
            yield from _figures(each, f"{path}.{name}" if path else name)
    elif origin is Annotated:
        yield from _figures(get_args(hint)[0], path)
    elif origin in (Union, UnionType):
        for each in get_args(hint):
            yield from _figures(each, path)
    elif origin in (list, dict):
        yield path
        for each in get_args(hint):
            yield from _figures(each, f"{path}[]")
    elif hint in (int, float):
        yield path


def assert_complete(document: Any, register: Mapping[str, tuple[str, ...]], withheld: Mapping[str, object]) -> None:
    assert figures(document) == register.keys(), "every number and list has its row, and no other"
    assert {each for inputs in register.values() for each in inputs} == withheld.keys()
