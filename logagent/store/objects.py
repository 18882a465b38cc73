"""The fleet store in an object store: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

An object appears complete or not at all, and `If-None-Match: *` (generation 0 on Google Cloud Storage) creates it only
if it is absent, like `rename()` and `link()` on a mounted store. There are no folders: listing uses a prefix, and there
is nothing to make or remove. Object stores list a new object immediately (S3 since 2020).

Credentials are found as the clouds' own tools find them, in this order: environment, profile files (S3: static keys of
`AWS_PROFILE`), workload identity, the machine's role. Needs obstore (the extra `objects`).
"""

from __future__ import annotations

import configparser
import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Self

from logagent.base.errors import ConfigError, UnreadableError
from logagent.base.files.safe_open import FileLimit
from logagent.store.tree import MARKER, MARKER_CONTENT, MAX_LISTED, Stamp, StoredFile

TIMEOUT = timedelta(seconds=30)
"""For one request, which carries at most 5 MiB."""
CONNECT_TIMEOUT = timedelta(seconds=10)
RETRY_SECONDS = 60
_RETRIES = 4
_MAX_ERROR_CHARS = 200
_IN_MEMORY = 16 << 20
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ENDPOINTS = {"s3": _S3_ENDPOINTS, "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")}


class ObjectTree:
    """A store below `SCHEME://BUCKET/PREFIX`. The constructor sends no request. Methods raise OSError. `settings`:
    obstore's, instead of those of the profile."""

    def __init__(self, uri: str, settings: Mapping[str, Any] | None = None) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as e:
            raise ConfigError(
                f"the fleet store {uri} needs obstore", hint="install logagent with the extra `objects`"
            ) from e
        self.uri = uri.rstrip("/")
        self._obstore = obstore
        options: dict[str, Any] = {"timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT}
        scheme = uri.partition(":")[0]
        config: dict[str, Any] = dict(settings or {}) if settings is not None or scheme != "s3" else profile(os.environ)
        endpoints = [*(os.environ.get(name) for name in _ENDPOINTS.get(scheme, ())), config.get("endpoint")]
        if next(filter(None, endpoints), "").startswith("http://"):
            # An endpoint with http:// is explicit consent.
            options["allow_http"] = True
        retry = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
        with self._failures():
            make: Any = from_url
            self._store: Any = make(self.uri, client_options=options, retry_config=retry, **config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turns obstore's errors into OSError, without obstore's notes for developers."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as e:
            raise PermissionError(errno.EACCES, _in_words(e), self.uri) from e
        except FileNotFoundError as e:
            raise FileNotFoundError(errno.ENOENT, _in_words(e), self.uri) from e
        except (BaseError, ValueError) as e:
            raise OSError(errno.EIO, _in_words(e), self.uri) from e

    def files(self, names: Sequence[str], most: int = MAX_LISTED) -> list[StoredFile]:
        found = self._listed(names)["objects"]
        if len(found) > most:
            raise UnreadableError(f"there are more than {most} files in {self.uri}/{'/'.join(names)}")
        listed = [(each["path"].rpartition("/")[2], each["size"], each["last_modified"].timestamp()) for each in found]
        return sorted(StoredFile(*each) for each in listed)

    def folders(self, names: Sequence[str], most: int = MAX_LISTED) -> dict[str, Stamp]:
        """Lists everything below in one pass, a thousand objects per request: fewer than one request per folder."""
        prefix, found = _prefix(names), dict[str, Stamp]()
        listed = 0
        with self._failures():
            for page in self._obstore.list(self._store, prefix or None):
                for each in page:
                    folder, slash, _ = each["path"].removeprefix(prefix).partition("/")
                    if slash:
                        count, latest = found.get(folder, (0, 0.0))
                        found[folder] = (count + 1, max(latest, each["last_modified"].timestamp()))
                listed += len(page)
                if listed > most:
                    raise UnreadableError(f"there are more than {most} files below {self.uri}/{prefix}")
        return found

    def names(self, names: Sequence[str]) -> list[str]:
        found = self._listed(names)
        files = [each["path"] for each in found["objects"]]
        return [path.rpartition("/")[2] for path in (*files, *(path.rstrip("/") for path in found["common_prefixes"]))]

    def _listed(self, names: Sequence[str]) -> Any:
        """List one folder, all pages, without the contents of its subfolders."""
        with self._failures():
            return self._obstore.list_with_delimiter(self._store, _prefix(names) or None)

    def read(self, names: Sequence[str], limit: FileLimit) -> bytes:
        with self._failures():
            found = self._obstore.get(self._store, "/".join(names))
            if found.meta["size"] > limit.max_bytes:
                raise UnreadableError(f"{self.uri}/{'/'.join(names)}: {limit.what} of {found.meta['size']} bytes")
            return bytes(found.bytes())

    @contextmanager
    def opened(self, names: Sequence[str]) -> Iterator[IO[bytes]]:
        """A whole object, for reading; a large one is not held in memory."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            with self._failures():
                for piece in self._obstore.get(self._store, "/".join(names)).stream():
                    file.write(piece)
            file.seek(0)
            yield file

    def read_owned(self, names: Sequence[str], limit: FileLimit) -> tuple[bytes, frozenset[int]]:
        return self.read(names, limit), frozenset()

    def owner(self, folder: Sequence[str]) -> int | None:
        return None

    def put(
        self, names: Sequence[str], source: IO[bytes], beat: Callable[[], None] = lambda: None, *, keyed: bool = False
    ) -> None:
        beat()
        with self._failures():
            # More than 5 MiB is sent as a multipart upload, which becomes an object complete or not at all.
            self._obstore.put(self._store, "/".join(names), source)
        beat()

    def create_new(self, names: Sequence[str], content: bytes, *, keyed: bool = False) -> bool:
        """Also False if a retry finds the object that our own first attempt created (its response was lost): that
        does not count as having created it."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._failures():
            try:
                self._obstore.put(self._store, "/".join(names), content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def open_to_others(self, names: Sequence[str]) -> tuple[str, str] | None:
        return None

    def loose(self) -> dict[Path, int]:
        return {}

    def remove_file(self, names: Sequence[str]) -> None:
        with self._failures():
            try:
                self._obstore.delete(self._store, "/".join(names))
            except FileNotFoundError:
                pass

    def exists(self, names: Sequence[str]) -> bool:
        with self._failures():
            try:
                self._obstore.head(self._store, "/".join(names))
            except FileNotFoundError:
                return False
        return True

    def modified(self, names: Sequence[str]) -> float:
        with self._failures():
            return float(self._obstore.head(self._store, "/".join(names))["last_modified"].timestamp())

    def is_marked(self) -> bool:
        return self.exists([MARKER])

    def mark(self) -> bool:
        return self.create_new([MARKER], MARKER_CONTENT)


def _prefix(names: Sequence[str]) -> str:
    return "".join(f"{name}/" for name in names)


def _in_words(error: BaseException) -> str:
    """An error's text for operators, without what object_store adds for developers and without the response body."""
    first = re.split(r"\n|Debug source:|: <\?xml", str(error).strip())[0]
    text = first.rpartition(" - ")[2] or first
    code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", str(error))
    return (f"{code.group(1)}: " if code else "") + text[:_MAX_ERROR_CHARS].strip()


def profile(environment: Any) -> dict[str, str]:
    """Settings from the AWS profile files that the environment does not have: static keys, region, endpoint.

    The profile is `AWS_PROFILE`, else `default`. Raises ConfigError if `AWS_PROFILE` names a profile that is missing or
    has another kind of credentials (SSO, a role to assume): ignoring it would act under another identity.
    """
    home = environment.get("HOME") or os.path.expanduser("~")
    name = environment.get("AWS_PROFILE") or "default"
    places = (
        (environment.get("AWS_CONFIG_FILE") or f"{home}/.aws/config", name if name == "default" else f"profile {name}"),
        (environment.get("AWS_SHARED_CREDENTIALS_FILE") or f"{home}/.aws/credentials", name),
    )
    settings: dict[str, str] = {}
    for path, section in places:
        read = configparser.RawConfigParser(strict=False)
        try:
            read.read(path, encoding="utf-8")
        except (OSError, UnicodeDecodeError, configparser.Error) as e:
            raise ConfigError(f"{path} cannot be read: {type(e).__name__}", hint="correct it, or its mode") from e
        if read.has_section(section):
            settings |= dict(read.items(section))
    has_keys = bool(environment.get("AWS_ACCESS_KEY_ID"))
    if not has_keys and environment.get("AWS_PROFILE") and "aws_access_key_id" not in settings:
        raise ConfigError(
            f"the AWS profile {name} has no static keys",
            hint="logagent reads static keys from profiles; use the environment, a web identity or the instance's role",
        )
    names = {"region": "region", "endpoint_url": "endpoint"}
    if not has_keys:
        names |= {
            "aws_access_key_id": "access_key_id",
            "aws_secret_access_key": "secret_access_key",
            "aws_session_token": "session_token",
        }
    found = {ours: settings[theirs] for theirs, ours in names.items() if settings.get(theirs)}
    for ours, variables in {"region": ("AWS_REGION", "AWS_DEFAULT_REGION"), "endpoint": _S3_ENDPOINTS}.items():
        if any(environment.get(each) for each in variables):
            found.pop(ours, None)
    return found
