"""The fleet store as agents and controller use it, on a mounted path or in an object store, behind one protocol.

Both guarantee: a file appears complete or not at all; `create_new` never overwrites, and of two callers one wins; what
was put is visible to everyone who looks afterwards. Nothing relies on renames or on an atomic listing of two folders,
which object stores do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import IO, Protocol, Self

from logagent.base.config.settings import is_uri, problem_of
from logagent.base.errors import ConfigError, ServiceUnreachable
from logagent.base.files.safe_open import FileLimit
from logagent.store.tree import MARKER, MAX_LISTED, Stamp, StoredFile, StoreTree


class SharedStore(Protocol):
    """An open store. Names are components of a path below its root. Methods raise OSError."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def files(self, names: Sequence[str], most: int = MAX_LISTED) -> list[StoredFile]:
        """The regular files of a folder, sorted; empty if there is no such folder. Raises UnreadableError above `most`
        entries."""

    def folders(self, names: Sequence[str], most: int = MAX_LISTED) -> dict[str, Stamp]:
        """The subfolders of a folder, each with a stamp of its files; empty if there is no such folder. Raises
        UnreadableError above `most` entries."""

    def names(self, names: Sequence[str]) -> list[str]:
        """All names in a folder, of files of any kind and of subfolders; empty if there is no such folder."""

    def read(self, names: Sequence[str], limit: FileLimit) -> bytes:
        """Read a whole file. Raises FileNotFoundError, and UnreadableError if it is too big or not a regular file."""

    def read_owned(self, names: Sequence[str], limit: FileLimit) -> tuple[bytes, frozenset[int]]:
        """`read`, with the user ids that the file and its folder belong to; none in an object store."""

    def owner(self, folder: Sequence[str]) -> int | None:
        """The user id that a folder belongs to, None in an object store. Raises FileNotFoundError."""

    def exists(self, names: Sequence[str]) -> bool:
        """Whether anything has this name."""

    def modified(self, names: Sequence[str]) -> float:
        """When a file was written, in seconds since 1970 by the store's clock. Raises FileNotFoundError."""

    def put(
        self, names: Sequence[str], source: IO[bytes], beat: Callable[[], None] = lambda: None, *, keyed: bool = False
    ) -> None:
        """Write a file, completely or not at all, replacing an existing one. `beat` is called between pieces. `keyed`:
        as for `create_new`."""

    def create_new(self, names: Sequence[str], content: bytes, *, keyed: bool = False) -> bool:
        """Create a file if its name is free; returns whether it was created. `keyed`: on a mounted store, the folders
        that are made for it are writable for key holders only, whatever the mode of the store."""

    def open_to_others(self, names: Sequence[str]) -> tuple[str, str] | None:
        """Why others than key holders can write to a folder, and the command that ends it; None if they cannot, or if
        only the policy of an object store says who can."""

    def remove_file(self, names: Sequence[str]) -> None:
        """Remove a file; it need not exist."""

    def loose(self) -> dict[Path, int]:
        """The folders in which whoever may write can rename or remove what is others', each with the mode that ends
        it. Of an object store, only its policy says who can."""

    def is_marked(self) -> bool:
        """Whether this was marked as a fleet store (`logagent fleet init`)."""

    def mark(self) -> bool:
        """Mark this as a fleet store, and make sticky what others may write to; False if it was marked already."""


def open_store(store: str) -> SharedStore:
    """Open a store. Raises OSError if a mounted one does not exist, ConfigError for a URI that cannot be used."""
    if not is_uri(store):
        return StoreTree(store)
    problem = problem_of(store)
    if problem is not None:
        raise ConfigError(f"the fleet store {store} {problem}", hint="for example s3://kafka-fleet/logagent")
    from logagent.store.objects import ObjectTree

    return ObjectTree(store)


def check_store(store: str) -> None:
    """Raises ServiceUnreachable unless `store` is a fleet store: it has the marker file (a mounted store from before
    there were markers has at least a `landing`). An empty directory is probably a mount point with nothing mounted:
    a later mount would hide what is written there. A missing marker in an object store may be a mistyped bucket or
    prefix.
    """
    new = f"for a new store run `logagent fleet init --store {quote(store)}` once, on any host"
    hint = f"check bucket, region and credentials; {new}" if is_uri(store) else f"mount it; {new}"
    try:
        with open_store(store) as opened:
            marked = opened.is_marked()
    except OSError as e:
        raise ServiceUnreachable(f"the fleet store {store} does not exist: {e.strerror or e}", hint=hint) from e
    if not marked:
        raise ServiceUnreachable(f"{store} is not a fleet store: it has no {MARKER}", hint=hint)


def refuse_loose(store: str, opened: SharedStore) -> None:
    """Raises ConfigError where whoever may write could rename what is others': also all that was ever decided."""
    loose = opened.loose()
    if loose:
        by_mode = {mode: [quote(str(p)) for p, m in loose.items() if m == mode] for mode in sorted(set(loose.values()))}
        raise ConfigError(
            f"whoever may write to the fleet store {store} can rename and remove what others have there: "
            f"{', '.join(map(str, loose))} {'is' if len(loose) == 1 else 'are'} not sticky",
            hint=" && ".join(f"chmod {mode:o} {' '.join(paths)}" for mode, paths in by_mode.items()),
        )


def init_store(store: str) -> bool:
    """Mark a directory or a prefix as a fleet store; False if it was marked already. Raises OSError, and ConfigError
    for a directory in which whoever may write can rename what is others', and that is not ours to change."""
    with open_store(store) as opened:
        made = opened.mark()
        refuse_loose(store, opened)
        return made
