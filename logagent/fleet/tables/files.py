"""Files of the store and of reports through Hadoop's file system API; local ones directly, without the JVM."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from logagent.base.files.safe_open import STORE_FILE, create_file, read_regular, whole_file
from logagent.store.objects import ObjectTree

LOCAL = "file:"
_CONDITIONAL = "fs.option.create.conditional.overwrite"


def literal(path: str) -> str:
    """`path` for Spark's readers, which treat brackets, braces, stars and the like as patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def write_local(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file whole, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, durable=durable) as file:
        file.write(content)


def relative(uri: str, path: Any) -> str:
    """A listed path, relative to `uri`. Raises Py4JError for one in another form: what cannot be placed is not nothing,
    and a listing without it would read as empty."""
    start, _, name = str(path.toString()).partition(f"{uri}/")
    if start or not name:
        raise Py4JError(f"{path.toString()} is listed below {uri}, in another form")
    return name


_NOT_OURS = (
    "fs.s3a.encryption.algorithm", "fs.s3a.server-side-encryption-algorithm", "fs.s3a.acl.default", "fs.s3a.proxy.host",
)  # fmt: skip
_PROVIDERS = re.compile(r"(Temporary|Simple|Environment|IAMInstance|Default|WebIdentity)\w*Provider(V2)?")
_AMAZON = re.compile(r"(https?://)?s3[.-]?([a-z0-9-]*)\.amazonaws\.com(\.cn)?/?")


def s3_settings(said: Callable[[str], str | None]) -> dict[str, Any] | None:
    """What obstore needs to be who S3A is, from S3A's settings by name; None where S3A encrypts, finds credentials or
    connects in a way of its own. Without keys it finds the role of its machine, as S3A does. Pure."""
    providers = re.split(r"[\s,]+", (said("fs.s3a.aws.credentials.provider") or "").strip())
    known = all(_PROVIDERS.fullmatch(each.rpartition(".")[2]) for each in providers if each)
    if not known or any(said(name) for name in _NOT_OURS) or said("fs.s3a.delegation.token.binding"):
        return None
    names = {"access_key_id": "access.key", "secret_access_key": "secret.key", "session_token": "session.token"}
    found: dict[str, Any] = {ours: said(f"fs.s3a.{theirs}") for ours, theirs in names.items()}
    endpoint, region = said("fs.s3a.endpoint") or "", said("fs.s3a.endpoint.region")
    if (amazon := _AMAZON.fullmatch(endpoint)) is not None:
        region = region or amazon[2]
    elif endpoint:
        scheme = "http" if said("fs.s3a.connection.ssl.enabled") == "false" else "https"
        found["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    return {name: value for name, value in (found | {"region": region}).items() if value not in (None, "")}


class Files:
    """The file system operations that we need. Paths are URIs as `qualify` gives them."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        system = path.getFileSystem(self._conf)
        # Without Hadoop's checksum file beside each local one, which becomes stale when the file is rewritten.
        return (system.getRawFileSystem() if str(system.getScheme()) == "file" else system), path

    def qualify(self, path: str) -> str:
        """The URI of a path; a path without scheme and leading slash is relative to the working directory.

        What agents call `s3://` is Hadoop's `s3a://`.
        """
        if path.startswith("s3://"):
            path = "s3a" + path.removeprefix("s3")
        if "://" not in path and not path.startswith(("/", LOCAL)):
            path = str(Path(path).absolute())
        path_object = self._jvm.org.apache.hadoop.fs.Path(path)
        system = path_object.getFileSystem(self._conf)
        return str(system.makeQualified(path_object).toString()).rstrip("/")

    @staticmethod
    def local(uri: str) -> Path | None:
        """The path of a local file, None for one on another file system."""
        return Path(uri.removeprefix(LOCAL)) if uri.startswith(LOCAL) else None

    def exists(self, uri: str) -> bool:
        if (local := self.local(uri)) is not None:
            return local.exists()
        system, path = self._at(uri)
        return bool(system.exists(path))

    def names(self, uri: str) -> list[str]:
        """Names of the entries of a directory, sorted; empty if it does not exist. Raises OSError, Py4JError."""
        if (local := self.local(uri)) is not None:
            return sorted(os.listdir(local)) if local.is_dir() else []
        return sorted(name for name, *_ in self.statuses(uri))

    def paths(self, uri: str) -> list[str]:
        """The files in the folders of a directory, as `folder/name`; on another file system those at any depth."""
        if self.local(uri) is not None:
            return [f"{folder}/{name}" for folder in self.names(uri) for name in self.names(f"{uri}/{folder}")]
        return sorted(path for path, *_ in self.below(uri) if not path.endswith("/"))

    def below(self, uri: str) -> Iterator[tuple[str, int, int]]:
        """`(path below it, bytes, modification time in ms)` of every file below a directory, in one listing: of object
        stores a request for each thousand. Of S3 also the markers of folders, which end in a slash. None if it does not
        exist. Raises Py4JError."""
        system, path = self._at(uri)
        if not system.exists(path):
            return
        is_s3 = str(system.getScheme()) == "s3a"
        found = system.listFilesAndEmptyDirectories(path, True) if is_s3 else system.listFiles(path, True)
        while found.hasNext():
            each = found.next()
            if each.isDirectory() and str(each.getPath().toString()) == uri:
                continue
            name = relative(uri, each.getPath()) + ("/" if each.isDirectory() else "")
            yield name, int(each.getLen()), int(each.getModificationTime())

    def delete_markers(self, uri: str, folders: Sequence[str]) -> None:
        """Removes the markers of folders below a directory in S3, which `below` has listed. Raises Py4JError."""
        system, base = self._at(uri)
        removing = system.createMarkerToolOperations(uri)
        key = self._jvm.software.amazon.awssdk.services.s3.model.ObjectIdentifier
        size = int(system.createBulkDelete(base).pageSize())
        for start in range(0, len(folders), size):
            page = self._jvm.java.util.ArrayList()
            for folder in folders[start : start + size]:
                path = self._at(f"{uri}/{folder}")[1]
                page.add(key.builder().key(f"{system.pathToKey(path)}/").build())
            removing.removeKeys(page, False)

    def delete_many(self, uri: str, paths: Sequence[str]) -> dict[str, str]:
        """Removes files below a directory of another file system, in this order: of S3 by a request for each page of
        them, which makes no folder markers. Returns why not, by path; one that is gone is removed."""
        system, base = self._at(uri)
        bulk, failed = system.createBulkDelete(base), dict[str, str]()
        try:
            size = int(bulk.pageSize())
            for start in range(0, len(paths), size):
                page = self._jvm.java.util.ArrayList()
                for path in paths[start : start + size]:
                    page.add(self._at(f"{uri}/{path}")[1])
                for each in bulk.bulkDelete(page):
                    failed[relative(uri, each.getKey())] = str(each.getValue())
        finally:
            bulk.close()
        return failed

    @contextmanager
    def opened(self, uri: str, size: int | None) -> Iterator[IO[bytes]]:
        """A file, for reading from begin to end. `size`: its bytes, if known. (S3A of Hadoop 3.5 asks all the same.)"""
        system, path = self._at(uri)
        builder = system.openFile(path).opt("fs.option.openfile.read.policy", "whole-file")
        if size is not None:
            builder = builder.opt("fs.option.openfile.length", str(size))
        stream = builder.build().get()
        try:
            yield _OfJvm(self._jvm, stream)  # type: ignore[misc]
        finally:
            stream.close()

    def of_executors(self, uri: str) -> BucketFiles | None:
        """The same for those who have no JVM to ask, with what this session has; None where they cannot."""
        bucket, _, _ = uri.removeprefix("s3a://").partition("/")
        if not uri.startswith("s3a://"):
            return None
        conf = self._jvm.org.apache.hadoop.fs.s3a.S3AUtils.propagateBucketOptions(self._conf, bucket)

        def said(name: str) -> str | None:
            # Keys may be in a file of credentials.
            value = conf.getPassword(name) if name.endswith((".key", ".token")) else conf.getTrimmed(name)
            return "".join(value) if value is not None else None

        settings = s3_settings(said)
        return None if settings is None else BucketFiles(f"s3a://{bucket}", settings)

    def statuses(self, uri: str) -> list[tuple[str, bool, int, int]]:
        """`(name, is a directory, bytes, modification time in ms)` of the entries; empty if it does not exist."""
        system, path = self._at(uri)
        if not system.exists(path):
            return []
        return [
            (str(s.getPath().getName()), bool(s.isDirectory()), int(s.getLen()), int(s.getModificationTime()))
            for s in system.listStatus(path)
        ]

    def size(self, uri: str) -> int | None:
        """Bytes of a file, None if it does not exist."""
        if (local := self.local(uri)) is not None:
            return local.stat().st_size if local.is_file() else None
        system, path = self._at(uri)
        return int(system.getFileStatus(path).getLen()) if system.exists(path) else None

    def modified_ms(self, uri: str) -> int:
        """Modification time on the store's own clock, in milliseconds since 1970."""
        system, path = self._at(uri)
        return int(system.getFileStatus(path).getModificationTime())

    def delete(self, uri: str) -> None:
        """Removes one of our files or trees, if it exists. A symlink itself is removed, not its target."""
        if (local := self.local(uri)) is not None and local.is_symlink():
            local.unlink()
            return
        system, path = self._at(uri)
        system.delete(path, True)

    def move(self, source: str, target: str) -> None:
        """Renames a file over `target`."""
        if (old := self.local(source)) is not None and (new := self.local(target)) is not None:
            old.replace(new)
            return
        system, path = self._at(target)
        system.delete(path, True)
        system.rename(self._at(source)[1], path)

    def create_new(self, uri: str, content: bytes) -> bool:
        """Creates a complete file if nothing has its name; returns whether it did. It never overwrites: of two callers
        one wins.

        Local and mounted ones: a private file and `link()`. Object stores: the conditional create of Hadoop 3.5 (S3;
        others refuse the option, and then their own create-if-absent is used, which is untested). HDFS: a private file
        and a rename, which does not replace.
        """
        if (local := self.local(uri)) is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
            return create_file(local, content)
        system, path = self._at(uri)
        if system.exists(path):
            return False
        if str(system.getScheme()) in ("hdfs", "viewfs"):
            private = f"{uri}.{uuid4().hex}.tmp"
            self._write(*self._at(private), content)
            done = bool(system.rename(self._at(private)[1], path))
            if not done:
                self.delete(private)
            return done
        builder = system.createFile(path).recursive()
        with suppress(Py4JError):
            builder = builder.overwrite(False)
        if str(system.getScheme()) == "s3a":
            builder = builder.must(_CONDITIONAL, "true")
        try:
            stream = builder.build()
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
        except Py4JJavaError as error:
            if re.search(r"FileAlreadyExists|PreconditionFailed|412|RemoteFileChanged", str(error)):
                return False
            raise
        return True

    def overwrite(self, uri: str, content: bytes) -> None:
        """Writes a small file in place: it exists at every moment, and a local one that stays as long is complete."""
        if (local := self.local(uri)) is not None:
            # A symlink or a FIFO of that name fails at once.
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(local, flags, 0o666), "wb") as file:
                file.write(content)
                file.truncate()
            return
        self._write(*self._at(uri), content)

    def write(self, uri: str, content: bytes, *, durable: bool = True) -> None:
        """Writes a file atomically, under a temporary name first."""
        if (local := self.local(uri)) is not None:
            write_local(local, content, durable=durable)
            return
        self._write(*self._at(uri + ".tmp"), content)
        self.move(uri + ".tmp", uri)

    def _write(self, system: Any, path: Any, content: bytes) -> None:
        stream = system.create(path, True)
        try:
            for start in range(0, len(content), 1 << 20):
                stream.write(bytearray(content[start : start + (1 << 20)]))
        finally:
            stream.close()

    def write_in_place(self, uri: str, content: bytes) -> None:
        """Writes a file of another file system under its own name: nobody reads it before this returns."""
        self._write(*self._at(uri), content)

    def prepend(self, source: str, head: bytes, target: str) -> None:
        """Writes `head` and the content of the file `source` to `target`, without reading it into memory."""
        system, path = self._at(source)
        stream = system.open(path)
        sink_system, sink_path = self._at(target + ".tmp")
        sink = sink_system.create(sink_path, True)
        try:
            sink.write(bytearray(head))
            self._jvm.org.apache.commons.io.IOUtils.copyLarge(stream, sink)
        finally:
            stream.close()
            sink.close()
        self.move(target + ".tmp", target)

    def read(self, uri: str) -> bytes:
        """The content of a file. Raises FileNotFoundError and UnreadableError for a local one, Py4JError for others."""
        if (local := self.local(uri)) is not None:
            return read_regular(local, STORE_FILE)
        system, path = self._at(uri)
        stream = system.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def parquet_files(self, folder: str) -> dict[str, int]:
        """The rows of each Parquet file of a folder, by name."""
        found = [name for name in self.names(folder) if name.endswith(".parquet") and name[0] not in "._"]
        return {name: self.parquet_rows(f"{folder}/{name}") for name in found}

    def parquet_rows(self, uri: str) -> int:
        """Rows of a Parquet file, from its footer."""
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        source = self._jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, self._conf)
        reader = self._jvm.org.apache.parquet.hadoop.ParquetFileReader.open(source)
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()


class _OfJvm:
    """A stream of the JVM, for Python."""

    def __init__(self, jvm: Any, stream: Any) -> None:
        self._utils = jvm.org.apache.commons.io.IOUtils
        self._bytes = jvm.java.io.ByteArrayOutputStream
        self._stream = stream

    def read(self, size: int) -> bytes:
        sink = self._bytes()
        self._utils.copyLarge(self._stream, sink, 0, size)
        return bytes(sink.toByteArray())


@dataclass(frozen=True)
class BucketFiles:
    """A bucket for executors, which read and write it through obstore: this is sent to them, with the keys in it."""

    bucket: str
    settings: dict[str, Any] = field(repr=False)

    @cached_property
    def _tree(self) -> ObjectTree:
        return ObjectTree(self.bucket, self.settings)

    def opened(self, uri: str, size: int | None) -> AbstractContextManager[IO[bytes]]:
        """As `Files.opened`. Raises OSError, ConfigError where there is no obstore."""
        return self._tree.opened(uri.removeprefix(f"{self.bucket}/").split("/"))

    def write_in_place(self, uri: str, content: bytes) -> None:
        self._tree.put(uri.removeprefix(f"{self.bucket}/").split("/"), io.BytesIO(content))
