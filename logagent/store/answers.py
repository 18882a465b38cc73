"""Answers of agents in the control folder. They are not signed, for agents have no key: whoever may write into the
folder of a node speaks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from logagent.files.safe_open import MIB
from logagent.store.control import CONTROL_FILE, UNREADABLE, Control
from logagent.store.deletion import ANSWER_SCHEMA, Answer
from logagent.store.orders import decode, encode
from logagent.store.signing import NotSigned

ANSWER_NAME = re.compile(r"([0-9]{10}-[0-9]{10})\.([0-9a-f]{32})\.([0-9]{1,10})\.json")
ANSWERS_AT_ONCE, ANSWER_BYTES_AT_ONCE = 1_000, 256 * MIB
"""How much is read of the answers of one node at a time, so that it cannot keep everybody waiting."""
CLIPPED = 100
"""Characters of a fact in an answer that would be too large."""


def answers_folder(node_id: int) -> str:
    return f"answers/{node_id}"


def write_answer(control: Control, answer: Answer) -> bool:
    """Publish an answer (unsigned: agents have no key); False if a file of this order, agent and `seq` exists. One that
    would be too large loses its hints, and the ends of its facts."""
    name = f"{answer.order_id}.{answer.agent}.{answer.seq}.json"
    content = _answer_content(answer)
    if len(content) > CONTROL_FILE.max_bytes:
        clipped = tuple(replace(r, fact=r.fact and r.fact[:CLIPPED], hint=None) for r in answer.results)
        content = _answer_content(replace(answer, results=clipped))
    return control.create(answers_folder(answer.node_id), name, content)


def _answer_content(answer: Answer) -> bytes:
    return b'{"schema":"%s",' % ANSWER_SCHEMA.encode() + encode(answer)[1:]


def read_answer(content: bytes, name: str, node_id: int, cluster_id: str) -> Answer:
    """Parse the answer of a node's agent in file `name`. Raises NotSigned for anything else."""
    match = ANSWER_NAME.fullmatch(name)
    answer = decode(Answer, content)
    if match is None or (answer.order_id, answer.agent, str(answer.seq)) != match.groups():
        raise NotSigned("its file name does not match its content")
    if (answer.node_id, answer.cluster_id) != (node_id, cluster_id):
        raise NotSigned("it belongs to another node")
    return answer


def read_answers(control: Control, node_id: int, names: Iterable[str]) -> Iterator[tuple[str, Answer | str]]:
    """The names and answers of these files of a node, as many as may be read at once; instead of what is no answer of
    this node, why it is none."""
    left = ANSWER_BYTES_AT_ONCE
    for name in islice(names, ANSWERS_AT_ONCE):
        if left < 0:
            break
        try:
            content = control.read(answers_folder(node_id), name)
            if content is None:
                continue
            left -= len(content)
            answer: Answer | str = read_answer(content, name, node_id, control.cluster_id)
        except (NotSigned, *UNREADABLE, ValueError) as error:
            answer = str(error)
        yield name, answer


def answer_names(control: Control, node_id: int) -> dict[tuple[str, str], tuple[int, str]]:
    """(order, agent) → the highest `seq` and its file name; only that answer counts."""
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for name in control.names(answers_folder(node_id)):
        match = ANSWER_NAME.fullmatch(name)
        if match is None:
            continue
        key, seq = (match[1], match[2]), int(match[3])
        if key not in newest or newest[key][0] < seq:
            newest[key] = (seq, name)
    return newest
