"""Which places outside the log dirs get a line, and whose log dirs are among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.advice.explain.rules import DiskUsage, OtherLogDirDoc, PlaceKind, ThisNode, Whose, summed_up

GIB = 1 << 30


def tree(path: str, *parts: DiskUsage, files_of_its_own: int = 0, own: int = 0) -> DiskUsage:
    below = sum(p.allocated for p in parts), sum(p.files for p in parts)
    return DiskUsage(path, False, below[0] + own, below[1] + files_of_its_own, list(parts))


def file(path: str, size: int) -> DiskUsage:
    return DiskUsage(path, True, size, 1)


def lines(root: DiskUsage, most: int = 20) -> list[tuple[str, str, int]]:
    return [(p.path, p.kind.value, p.allocated) for p in summed_up("/", root, (), most=most).places]


def test_one_huge_file_deep_down_has_the_first_line() -> None:
    core = file("/home/a/core", 50 * GIB)
    root = tree("/", tree("/home", tree("/home/a", core, own=GIB)), tree("/var", own=2 * GIB))
    assert lines(root) == [
        ("/home/a/core", "file", 50 * GIB),
        ("/var", "directory", 2 * GIB),
        ("/home/a", "remainder", GIB),
    ]


def test_what_is_spread_evenly_is_one_line() -> None:
    many = [tree(f"/backup/{n}", own=GIB, files_of_its_own=5) for n in range(30)]
    root = tree("/", tree("/backup", *many), tree("/opt", own=GIB))
    assert lines(root) == [("/backup", "directory", 30 * GIB), ("/opt", "directory", GIB)]


def test_what_is_small_is_in_the_rest() -> None:
    found = summed_up("/", tree("/", tree("/a", own=GIB), tree("/b", own=1000, files_of_its_own=3)), ())
    assert [p.path for p in found.places] == ["/a"]
    assert (found.rest, found.rest_files) == (1000, 3)


def test_an_empty_file_system_has_no_line() -> None:
    found = summed_up("/mnt", DiskUsage("/mnt"), ())
    assert (found.places, found.rest) == ([], 0)


trees: st.SearchStrategy[tuple[str, int, list[object]]] = st.recursive(
    st.builds(lambda size: ("", size, []), st.integers(0, 1 << 40)),
    lambda inner: st.tuples(st.just(""), st.integers(0, 1 << 40), st.lists(inner, max_size=5)),
    max_leaves=40,
)


def built(shape: tuple[str, int, list[object]], path: str) -> DiskUsage:
    parts = [built(part, f"{path}/{n}") for n, part in enumerate(shape[2])]  # type: ignore[arg-type]
    return tree(path, *parts, own=shape[1], files_of_its_own=1)


@given(trees, st.integers(1, 25))
def test_no_byte_is_in_two_lines_and_none_is_lost(shape: tuple[str, int, list[object]], most: int) -> None:
    root = built(shape, "/r")
    found = summed_up("/r", root, (), most=most)
    assert len(found.places) <= most
    assert sum(p.allocated for p in found.places) + found.rest == root.allocated and found.rest >= 0
    assert sum(p.files for p in found.places) + found.rest_files == root.files and found.rest_files >= 0
    sizes = [p.allocated for p in found.places]
    assert sizes == sorted(sizes, reverse=True)
    whole = [p.path for p in found.places if p.kind is not PlaceKind.REMAINDER]
    assert not [(a, b) for a in whole for b in whole if b.startswith(f"{a}/")]


def test_of_many_log_dirs_the_largest_are_listed_and_no_byte_is_lost() -> None:
    log_dirs = [OtherLogDirDoc(f"/l{n}", Whose.THIS_NODE, "c", 1, 3, n, False) for n in range(30)]
    found = summed_up("/", DiskUsage("/"), log_dirs)
    assert [d.path for d in found.log_dirs] == [f"/l{n}" for n in range(29, 9, -1)]
    assert found.rest == sum(range(10))


@pytest.mark.parametrize(
    ("path", "cluster_id", "node_id", "expected"),
    [
        ("/old", "c", 1, Whose.THIS_NODE),
        ("/old", "c", 2, Whose.OTHER_NODE),
        ("/old", "d", 1, Whose.OTHER_CLUSTER),
        ("/old", None, 1, Whose.THIS_NODE),
        ("/old", None, None, Whose.UNKNOWN),
        ("/meta", "c", 1, Whose.METADATA_LOG_DIR),
    ],
)
def test_whose_a_log_dir_is(path: str, cluster_id: str | None, node_id: int | None, expected: Whose) -> None:
    assert ThisNode("c", 1, "/meta").whose(path, cluster_id, node_id) is expected


def test_where_our_own_cluster_is_unknown_no_log_dir_is_ours() -> None:
    assert ThisNode().whose("/old", "c", 1) is Whose.OTHER_CLUSTER
