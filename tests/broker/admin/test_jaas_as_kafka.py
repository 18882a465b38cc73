"""`sasl.jaas.config` against Kafka's own reader: thousands of generated texts, the same answer to each."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

from logagent.kafka.admin.client_properties import parse_jaas
from tests.broker.rig.jars import QUICK_FLAGS, kafka_jars
from tests.needs import need_command

SOURCE = Path(__file__).parent / "java" / "JaasAnswers.java"
WORDS = [
    "a.B",
    "required",
    "Optional",
    "username",
    "password",
    "u",
    "x-y",
    "_z",
    "$",
    "é",
    "€uro",
    "12",
    "1a",
    ".5",
    "-q",
]
MARKS = [
    "=",
    "=",
    "=",
    ";",
    ";",
    " ",
    " ",
    "\t",
    "\n",
    "\r",
    "/",
    "//c\n",
    "/*c*/",
    "/*",
    "{",
    "#",
    ",",
    "-",
    ".",
    "\x00",
    "\x7f",
    "\x9f",
]
IN_QUOTES = ["a", "b", " ", "\\", "\\", "'", '"', "n", "0", "7", "8", "377", "400", "\n", "é", "€", "/", ";", "\t", "𝄞"]


def generated(count: int, seed: int) -> list[str]:
    """Texts from nearly right to wild."""
    draw = random.Random(seed)

    def quoted() -> str:
        quote = draw.choice("\"'")
        return quote + "".join(draw.choices(IN_QUOTES, k=draw.randrange(6))) + quote

    def value() -> str:
        return quoted() if draw.random() < 0.6 else "".join(draw.choices(WORDS, k=draw.randrange(1, 3)))

    def blank() -> str:
        return draw.choice([" ", " ", "  ", "\n", "\t", " /*x*/ ", " // y\n"])

    def likely() -> str:
        options = "".join(f"{blank()}{draw.choice(WORDS)}={value()}" for _ in range(draw.randrange(4)))
        return f"a.B{blank()}{draw.choice(['required', 'SUFFICIENT', 'need'])}{options};" + (
            "" if draw.random() < 0.9 else blank()
        )

    def wild() -> str:
        return "".join(
            draw.choice([draw.choice(WORDS), draw.choice(MARKS), quoted()]) for _ in range(draw.randrange(14))
        )

    def cut(text: str) -> str:
        where = draw.randrange(len(text) + 1)
        return text[:where] + draw.choice([*MARKS, ""]) + text[where + draw.randrange(2) :]

    return [draw.choice([likely, likely, lambda: cut(likely()), wild])() for _ in range(count)]


def ours(text: str) -> str:
    try:
        module = parse_jaas(text)
    except ValueError:
        return "refused"
    words = [encode(module.module), *(f"{encode(k)}={encode(v)}" for k, v in sorted(module.options.items()))]
    return " ".join(["ok", *words])


def encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_every_answer_is_kafkas() -> None:
    need_command("javac")  # `java` runs a source file only where a compiler is
    jars = kafka_jars("4.4.0")
    texts = generated(12_000, seed=4711)
    lines = "".join(base64.b64encode(text.encode()).decode() + "\n" for text in texts)
    done = subprocess.run(
        ["java", *QUICK_FLAGS, "-cp", jars.classpath, str(SOURCE)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(texts)
    wrong = [(t, k, o) for t, k in zip(texts, theirs, strict=True) if (o := ours(t)) != k]
    assert wrong[:5] == []
    accepted = sum(answer != "refused" for answer in theirs)
    assert 2000 < accepted < 10_000, "the texts should be a mixture of good and bad"
