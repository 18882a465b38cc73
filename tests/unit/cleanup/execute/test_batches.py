"""Renames come in batches of bounded size; what changes places is a batch of its own."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logagent.base.records import ActionKind
from logagent.cleanup.execute.log_manager import BATCH, batches
from logagent.cleanup.plan.plan import Proposal
from tests.hosts import directory


@given(st.lists(st.tuples(st.sampled_from(["/d1", "/d2"]), st.booleans()), max_size=3 * BATCH))
def test_batches_keep_the_order_and_the_pairs(drawn: list[tuple[str, bool]]) -> None:
    proposals: list[Proposal] = []
    for number, (log_dir, in_pair) in enumerate(drawn):
        comes = directory(f"t-{number}.{number:032x}-stray", log_dir=log_dir)
        if in_pair:
            stands = directory(f"t-{number}", log_dir=log_dir)
            room = comes.key
            proposals.append(Proposal(ActionKind.QUARANTINE, stands, "makes room", new_name="x", makes_room_for=room))
        proposals.append(Proposal(ActionKind.RESTORE, comes, "asked for", new_name=f"t-{number}"))
    made = list(batches(proposals))
    assert [p for _, batch in made for p in batch] == proposals
    for places, batch in made:
        assert {(p.dir.log_dir, p.dir.log_dir) for p in batch} == {places}
        assert 1 <= len(batch) <= BATCH
        pairs = [p for p in batch if p.makes_room_for is not None]
        assert not pairs or (batch[0] is pairs[0] and len(batch) == 2)
    for (one, first), (other, second) in pairwise(made):
        exchange = any(batch[0].makes_room_for is not None for batch in (first, second))
        assert one != other or len(first) == BATCH or exchange
