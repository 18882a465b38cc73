"""The controller epoch of a cluster's deletions (Kafka's `epochZkVersion`): taken by creating a file, once.

Epochs only grow. A controller that was stopped and goes on finds a higher one and ends; what it wrote meanwhile carries
its lower number, which no agent obeys.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from datetime import datetime

from logagent.errors import ConfigError, LogAgentError, ServiceUnreachable
from logagent.files.limits import KIB, FileLimit
from logagent.store.control import Control
from logagent.store.deletion import EPOCH_SCHEMA, ControllerEpoch
from logagent.store.orders import Ignored, believed, encode, instant
from logagent.store.signing import NotSigned, PrivateKey, PublicKey

FOLDER = "epoch"
PROBES = "probe"
MAX_READ = 1000
EPOCH_FILE = FileLimit("an epoch", 16 * KIB)
_NAME = re.compile(r"([1-9][0-9]{0,9})\.json")


class EpochLost(LogAgentError):
    """Another controller has taken over; this one does nothing more."""

    slug = "epoch"


class Epochs:
    """The epochs of a cluster as the store has them. Reads at most 1,000 (small) files a look; files once judged junk
    are not read again, so junk in thousands costs its listing and no more. `certain`: nothing above was left unread."""

    def __init__(self, control: Control, keys: tuple[PublicKey, ...]) -> None:
        self._control = control
        self._keys = keys
        self._judged: dict[str, ControllerEpoch | None] = {}
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
            if name not in self._judged:
                if unread == 0:
                    self.certain = False
                    break
                unread -= 1
                self._judged[name] = self._read(name, number)
            epoch = self._judged[name]
            if epoch is not None:
                return epoch
        if self.certain:
            return None
        # More junk than is read in one look: the highest that earlier looks have seen.
        known = [epoch for epoch in self._judged.values() if epoch is not None]
        return max(known, key=lambda epoch: epoch.epoch, default=None)

    def forget(self, number: int) -> None:
        """Read this epoch anew the next time."""
        self._judged.pop(f"{number}.json", None)

    def knows(self, number: int) -> bool:
        """Whether the store has this epoch, validly signed."""
        name = f"{number}.json"
        if name not in self._judged and self._control.there(FOLDER, name):
            self._judged[name] = self._read(name, number)
        return self._judged.get(name) is not None

    def _read(self, name: str, number: int) -> ControllerEpoch | None:
        try:
            content = self._control.read(FOLDER, name, EPOCH_FILE)
            if content is None:
                return None
            epoch = believed(content, ControllerEpoch, EPOCH_SCHEMA, self._keys, self._control.cluster_id)
            if (epoch.epoch, epoch.cluster_id) != (number, self._control.cluster_id):
                raise NotSigned("it lies under a name that is not its own")
        except LogAgentError as error:
            if isinstance(error, ServiceUnreachable):
                raise
            self.ignored.add(f"{FOLDER}/{name}", str(error))
            return None
        return epoch


def probe(control: Control) -> None:
    """Raises ConfigError if the store lies about create-if-absent: then it cannot tell two controllers apart."""
    name = f"{secrets.token_hex(16)}.json"
    first = control.create(PROBES, name, b"1")
    second = control.create(PROBES, name, b"2")
    kept = control.read(PROBES, name)
    control.remove(PROBES, name)
    if not first or second or kept != b"1":
        raise ConfigError(
            f"the store {control.store} creates a file that is there already: it cannot keep two controllers apart",
            hint="use a store whose create-if-absent holds (a local or NFS directory)",
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
    """A new epoch above the store's highest and above `above` (the highest in any answer: a store restored from a
    backup forgets). Raises EpochLost if others keep taking it first."""
    known = epochs.highest()
    while not epochs.certain:
        known = epochs.highest()
    number = max(above, known.epoch if known is not None else 0)
    for _ in range(MAX_READ):
        number += 1
        if number > 9_999_999_999:
            raise ConfigError("the epochs of this store are used up")
        epoch = ControllerEpoch(control.cluster_id, number, secrets.token_hex(16), by, host, instant(now()))
        content = key.sign(EPOCH_SCHEMA, encode(epoch))
        if control.create(FOLDER, f"{number}.json", content) and control.read(FOLDER, f"{number}.json") == content:
            return epoch
    raise EpochLost("other controllers keep taking the epoch", hint="see `logagent topics status`")


def check(control: Control, epochs: Epochs, ours: ControllerEpoch) -> None:
    """Raises EpochLost unless `ours` is still the highest and its nonce is in the store, read anew."""
    epochs.forget(ours.epoch)
    highest = epochs.highest()
    if highest is None or highest.epoch < ours.epoch:
        raise EpochLost(f"epoch {ours.epoch} is gone from the store: it was put back to an older state")
    if highest != ours:
        raise EpochLost(f"epoch {highest.epoch} was taken by {highest.by} on {highest.host} at {highest.at}")
