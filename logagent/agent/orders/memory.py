"""What an agent must not forget about orders: its id, the highest epoch it saw, and what it did.

One small file in the state dir, replaced as a whole and only under the executor lock. If it is lost the agent is
another one from then on: it obeys no order that is older than itself.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logagent.errors import JournalError, LogAgentError
from logagent.files.limits import MIB, FileLimit
from logagent.files.safe_open import read_regular

NAME = "orders.json"
SEEN_NAME = "orders-seen.json"
LIMIT = FileLimit("the memory of orders", 256 * MIB)
# Far more than controllers write in the days that an order can last.
MAX_ORDERS = 2_000


@dataclass(slots=True)
class OrderMemory:
    """`agent`: the id it was born with, at `born_ms`. `answers`: by order id the last answer, as it was written;
    `done`: by order id the results of what was done, by a key of the ordered directory."""

    agent: str
    born_ms: int
    highest_epoch: int = 0
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, state_dir: str, now_ms: int) -> OrderMemory:
        """The memory of this state dir, or a new one. Raises JournalError for a file that cannot be read: an agent
        that cannot know what it did does nothing."""
        path = Path(state_dir, NAME)
        try:
            read = json.loads(read_regular(path, LIMIT))
            return cls(**{name: read[name] for name in ("agent", "born_ms", "highest_epoch", "answers", "done")})
        except FileNotFoundError:
            return cls(secrets.token_hex(16), now_ms)
        except (OSError, LogAgentError, ValueError, KeyError, TypeError) as error:
            hint = "move it away: this agent then obeys only orders that are newer"
            raise JournalError(f"{path} cannot be read: {error}", hint=hint) from error

    def save(self, state_dir: str) -> None:
        """Durably. Raises JournalError."""
        for known in (self.answers, self.done):
            for order in sorted(known)[: max(0, len(known) - MAX_ORDERS)]:
                del known[order]
        content = {
            "agent": self.agent,
            "born_ms": self.born_ms,
            "highest_epoch": self.highest_epoch,
            "answers": self.answers,
            "done": self.done,
        }
        replace_file(Path(state_dir), NAME, json.dumps(content).encode())


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of the state dir as a whole, durably (0600). Raises JournalError."""
    part = folder / f"{name}.{os.getpid()}.tmp"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / name)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise JournalError(f"{folder / name} cannot be written: {error.strerror or error}") from error
