"""The controller epoch of a cluster's deletions (Kafka's `epochZkVersion`), taken by creating a file.

Epochs only grow. A controller that was suspended and continues finds a higher epoch and ends; whatever it wrote in
between carries its own lower epoch, which no agent obeys.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable
from datetime import datetime

from logagent.errors import ConfigError, LogAgentError, ServiceUnreachable
from logagent.files.safe_open import KIB, FileLimit
from logagent.store.control import Control
from logagent.store.deletion import EPOCH_SCHEMA, ControllerEpoch
from logagent.store.orders import Ignored, encode, instant, verified
from logagent.store.signing import NotSigned, PrivateKey, PublicKey

FOLDER = "epoch"
PROBES = "probe"
MAX_READ = 1000
EPOCH_FILE = FileLimit("an epoch", 16 * KIB)
_NAME = re.compile(r"([1-9][0-9]{0,9})\.json")


class EpochLost(LogAgentError):
    """This controller no longer holds the highest epoch and must stop."""

    slug = "epoch"


class Epochs:
    """The epochs of a cluster in the store. `highest()` reads at most 1,000 (small) files per call and never reads a
    file again that it found invalid, so thousands of junk files cost only their listing. `certain`: no higher file was
    left unread."""

    def __init__(self, control: Control, keys: tuple[PublicKey, ...]) -> None:
        self._control = control
        self._keys = keys
        self._checked: dict[str, ControllerEpoch | None] = {}
        self.ignored = Ignored()
        self.certain = True

    def highest(self) -> ControllerEpoch | None:
        """The highest validly signed epoch. Raises ServiceUnreachable."""
        numbers = sorted(
            (int(match[1]) for name in self._control.names(FOLDER) if (match := _NAME.fullmatch(name))), reverse=True
        )
        unread, self.certain = MAX_READ, True
        for number in numbers:
            name = f"{number}.json"
            if name not in self._checked:
                if unread == 0:
                    self.certain = False
                    break
                unread -= 1
                self._checked[name] = self._read(name, number)
            epoch = self._checked[name]
            if epoch is not None:
                return epoch
        if self.certain:
            return None
        # Too much junk to read in one call: return the highest epoch that earlier calls found.
        known = [epoch for epoch in self._checked.values() if epoch is not None]
        return max(known, key=lambda epoch: epoch.epoch, default=None)

    def free_above(self, number: int) -> int:
        """The next number above `number` that no file has, not even junk. Raises ServiceUnreachable."""
        names = set(self._control.names(FOLDER))
        return next(n for n in itertools.count(number + 1) if f"{n}.json" not in names)

    def forget(self, number: int) -> None:
        """Read this epoch's file again next time."""
        self._checked.pop(f"{number}.json", None)

    def knows(self, number: int) -> bool:
        """Whether the store has this epoch with a valid signature."""
        name = f"{number}.json"
        if name not in self._checked and self._control.exists(FOLDER, name):
            self._checked[name] = self._read(name, number)
        return self._checked.get(name) is not None

    def _read(self, name: str, number: int) -> ControllerEpoch | None:
        try:
            content = self._control.read(FOLDER, name, EPOCH_FILE)
            if content is None:
                return None
            epoch = verified(content, ControllerEpoch, EPOCH_SCHEMA, self._keys, self._control.cluster_id)
            if (epoch.epoch, epoch.cluster_id) != (number, self._control.cluster_id):
                raise NotSigned("its file name does not match its content")
        except LogAgentError as error:
            if isinstance(error, ServiceUnreachable):
                raise
            self.ignored.add(f"{FOLDER}/{name}", str(error))
            return None
        return epoch


def probe(control: Control) -> None:
    """Raises ConfigError if create-if-absent overwrites files in this store: two controllers could take one epoch."""
    name = f"{secrets.token_hex(16)}.json"
    first = control.create(PROBES, name, b"1")
    second = control.create(PROBES, name, b"2")
    kept = control.read(PROBES, name)
    control.remove(PROBES, name)
    if not first or second or kept != b"1":
        raise ConfigError(
            f"the store {control.store} overwrites a file that exists already: it cannot keep two controllers apart",
            hint="a local or NFS directory holds it, and object stores that support If-None-Match",
        )


def take(
    control: Control,
    epochs: Epochs,
    key: PrivateKey,
    *,
    above: int,
    by: str,
    host: str,
    now: Callable[[], datetime],
) -> ControllerEpoch:
    """Take a new epoch above the store's highest and above `above` (the highest in any answer: a store restored from a
    backup may have lost epochs). Raises EpochLost if other controllers keep taking it first."""
    known = epochs.highest()
    while not epochs.certain:
        known = epochs.highest()
    number = max(above, known.epoch if known is not None else 0)
    for _ in range(MAX_READ):
        number = epochs.free_above(number)
        if number > 9_999_999_999:
            raise ConfigError("the epochs of this store are used up")
        epoch = ControllerEpoch(control.cluster_id, number, secrets.token_hex(16), by, host, instant(now()))
        content = key.sign(EPOCH_SCHEMA, encode(epoch))
        if control.create(FOLDER, f"{number}.json", content) and control.read(FOLDER, f"{number}.json") == content:
            return epoch
    raise EpochLost("other controllers keep taking the epoch", hint="see `logagent topics status`")


def check(control: Control, epochs: Epochs, ours: ControllerEpoch) -> None:
    """Raises EpochLost unless `ours`, read again from the store, is still the highest epoch and has our nonce."""
    epochs.forget(ours.epoch)
    highest = epochs.highest()
    if highest is None or highest.epoch < ours.epoch:
        raise EpochLost(f"epoch {ours.epoch} is gone from the store: it was restored to an older state")
    if highest != ours:
        raise EpochLost(f"epoch {highest.epoch} was taken by {highest.by} on {highest.host} at {highest.at}")
