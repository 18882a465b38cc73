"""`logagent fleet` and the plain `submit.py` have the same options, from one list."""

from __future__ import annotations

import click
import pytest

from logagent.cli.commands.fleet import fleet
from logagent.fleet.options import OPTIONS
from logagent.fleet.submit import _parser


@pytest.mark.parametrize("name", OPTIONS)
def test_both_read_every_option_of_the_list(name: str) -> None:
    command = fleet.commands[name]
    with_click = {o: p for p in command.params if isinstance(p, click.Option) for o in p.opts}
    required = [word for o in OPTIONS[name] if o.required for word in (o.flag, "x")]
    parsed = vars(_parser().parse_args([name, *required]))
    for option in OPTIONS[name]:
        shown = with_click[option.flag]
        assert (shown.name, shown.help, shown.required) == (option.name, option.help, option.required)
        assert option.name in parsed


def test_submit_reads_ages_and_dates() -> None:
    parsed = _parser().parse_args(["report", "--store", "s", "--out", "o", "--date", "2026-11-22"])
    assert parsed.day.isoformat() == "2026-11-22" and parsed.max_snapshot_age.total_seconds() == 26 * 3600
    with pytest.raises(SystemExit):
        _parser().parse_args(["report", "--store", "s", "--out", "o", "--max-snapshot-age", "soon"])
