"""`delete.workers`: more than one thread removes, each with its own look at the lock, and the outcome is the same."""

from __future__ import annotations

from pathlib import Path

from tests.host import ALL_DUE, NO_LIMITS, Host


def test_workers_remove_everything_that_one_would(tmp_path: Path) -> None:
    host = Host.from_disk(tmp_path)
    host.with_assignments(topics_gone=True, **ALL_DUE, **NO_LIMITS, **{"delete.workers": 3})
    due = [*host.find("", "-delete"), *host.find("", "-stray")]
    big = host.d1 / due[0] if (host.d1 / due[0]).is_dir() else host.d2 / due[0]
    for number in range(2000):
        (big / f"{number:020d}.log").write_bytes(b"x")
    ran = host.run("cleanup", "--execute", "--json")
    assert ran.outcomes() == dict.fromkeys(due, "done")
    assert not host.find("", "-delete") and not host.find("", "-stray")
