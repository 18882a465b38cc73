"""`--require-hosts`: how much of the fleet a scheduler wants to have in a report."""

from __future__ import annotations

import pytest

from logagent.base.errors import Exit, TooFewHosts
from logagent.fleet.job import need_hosts
from logagent.fleet.job_options import parse_share


def content(reporting: int, unknown: int) -> dict[str, dict[str, int]]:
    return {"hosts": {"reporting": reporting, "unknown_total": unknown}}


@pytest.mark.parametrize(("reporting", "unknown", "share"), [(95, 5, 0.95), (1, 0, 1.0), (1, 99, None), (0, 9, None)])
def test_enough(reporting: int, unknown: int, share: float | None) -> None:
    need_hosts(content(reporting, unknown), share)


@pytest.mark.parametrize(("reporting", "unknown", "share"), [(94, 6, 0.95), (0, 0, 0.01), (99, 1, 1.0)])
def test_too_few(reporting: int, unknown: int, share: float) -> None:
    with pytest.raises(TooFewHosts, match=f"{reporting} of {reporting + unknown} known hosts") as caught:
        need_hosts(content(reporting, unknown), share)
    assert caught.value.exit_status is Exit.REFUSED


def test_shares_are_written_in_per_cent() -> None:
    assert [parse_share(text) for text in ("95%", "100%", "99.5%", "0.1%")] == [0.95, 1.0, 0.995, 0.001]


@pytest.mark.parametrize("text", ["0%", "101%", "95", "0.95", "-5%", "", "%", "9e1%", "\u0669%"])
def test_what_is_no_share_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share"):
        parse_share(text)
