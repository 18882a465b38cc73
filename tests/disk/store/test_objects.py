"""The fleet store in an object store, on real servers: S3 (S3Proxy) and Azure's emulator; and on obstore's own backend
for local directories, which keeps the same promises.

What is asked of a mounted store is asked of these: whole or not there, one winner, nothing mistaken for empty.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logagent.base.config.settings import problem_of
from logagent.base.errors import ConfigError, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import FileLimit
from logagent.deletion.store.requests import ControlFolder
from logagent.store import shared
from logagent.store.objects import profile
from logagent.store.shared import SharedStore, check_store, init_store, open_store
from tests import object_servers
from tests.object_servers import BUCKET
from tests.publish_host import Publishing

SMALL = FileLimit("a test's file", 1 << 20)


@pytest.fixture(scope="module", params=["file", "s3", "az"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server; what has to be in the environment, and its scheme under `scheme`."""
    if request.param == "file":
        yield {"scheme": "file"}
        return
    served = object_servers.s3 if request.param == "s3" else object_servers.azure
    with served(tmp_path_factory.mktemp("objects") / "root") as environment:
        yield {**environment, "scheme": request.param}


@pytest.fixture
def uri(server: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in server.items():
        if name != "scheme":
            monkeypatch.setenv(name, value)
    if server["scheme"] == "file":
        # Agents do not take it: a mounted path has a store of its own kind.
        monkeypatch.setattr(shared, "problem_of", lambda store: None)
        (tmp_path / "objects").mkdir()
        return f"file://{tmp_path}/objects"
    return f"{server['scheme']}://{BUCKET}/{tmp_path.name}/store"


@pytest.fixture
def store(uri: str) -> Iterator[SharedStore]:
    init_store(uri)
    with open_store(uri) as opened:
        yield opened


def test_only_what_was_marked_is_a_store(uri: str) -> None:
    """A mistyped prefix is not an empty store that one may write to."""
    with pytest.raises(ServiceUnreachable, match="is not a fleet store"):
        check_store(uri)
    assert init_store(uri)
    assert not init_store(uri), "it is one already"
    check_store(uri)


def test_a_bucket_that_is_not_there_is_said(server: dict[str, str], tmp_path: Path) -> None:
    """Of a mounted store it is the directory."""
    scheme = server["scheme"]
    store = str(tmp_path / "nowhere") if scheme == "file" else f"{scheme}://no-such-bucket/fleet"
    command = [sys.executable, "-m", "logagent", "fleet", "init", "--store", store]
    done = subprocess.run(command, env={**os.environ, **server}, capture_output=True, text=True)
    assert done.returncode == 1
    if scheme == "file":
        assert "hint: mount or create the directory first" in done.stderr
    else:
        assert done.stderr.startswith("logagent: there is no bucket no-such-bucket: ")
        assert "hint: create no-such-bucket first" in done.stderr


def test_of_many_who_create_one_wins(store: SharedStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(8):
            names = ["control", "c", "epoch", f"{number}.json"]
            won = list(pool.map(lambda n, names=names: store.create_new(names, b"%d" % n), range(8)))
            assert won.count(True) == 1
            assert store.read(names, SMALL) == b"%d" % won.index(True)


def test_files_are_listed_read_and_removed(store: SharedStore) -> None:
    folder = ["landing", "c", "2026-11-22", "7"]
    assert store.files(folder) == []
    for name in ("b", "a"):
        store.put([*folder, name], io.BytesIO(name.encode() * 3))
    store.put([*folder, "below", "x"], io.BytesIO(b"not in this folder"))
    assert [(f.name, f.bytes) for f in store.files(folder)] == [("a", 3), ("b", 3)]
    assert [f for f in store.files(folder) if f.modified <= 1.7e9] == []
    assert [f for f in store.files(folder) if abs(f.modified - store.modified([*folder, f.name])) >= 1] == []
    assert store.exists([*folder, "a"]) and not store.exists(folder)
    store.remove_file([*folder, "a"])
    store.remove_file([*folder, "a"])
    with pytest.raises(FileNotFoundError) as missing:
        store.read([*folder, "a"], SMALL)
    assert "<" not in str(missing.value) and "\n" not in str(missing.value)
    with pytest.raises(FileNotFoundError):
        store.modified([*folder, "a"])


def test_what_is_large_goes_in_parts_and_is_not_read_beyond_its_limit(store: SharedStore) -> None:
    content = bytes(range(256)) * 50_000
    store.put(["large"], io.BytesIO(content))
    assert store.read(["large"], FileLimit("large", 1 << 30)) == content
    with pytest.raises(UnreadableError, match=r"a test's file of 12800000 bytes"):
        store.read(["large"], SMALL)


@pytest.mark.parametrize("server", ["s3", "az"], indirect=True)
def test_wrong_credentials_are_told_without_them(
    uri: str, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    init_store(uri)
    key = "AWS_SECRET_ACCESS_KEY" if server["scheme"] == "s3" else "AZURE_STORAGE_ACCOUNT_KEY"
    monkeypatch.setenv(key, "d3Jvbmc=")
    with pytest.raises(ServiceUnreachable, match=r"40[13]") as refused:
        check_store(uri)
    assert "d3Jvbmc" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_control_folder_is_the_same_there(uri: str) -> None:
    init_store(uri)
    control = ControlFolder(uri, "c")
    assert control.names("epoch") == [] and control.read("epoch", "1.json") is None
    assert control.create("epoch", "1.json", b"first") and not control.create("epoch", "1.json", b"second")
    assert control.exists("epoch", "1.json") and control.names("epoch") == ["1.json"]
    written = control.modified("epoch", "1.json")
    assert written is not None and abs(datetime.now(UTC) - written) < timedelta(minutes=5)
    assert control.modified("epoch", "2.json") is None
    assert control.read("epoch", "1.json") == b"first"
    control.remove("epoch", "1.json")
    assert not control.exists("epoch", "1.json")


def test_a_host_publishes(uri: str, tmp_path: Path) -> None:
    """The daemon's own publisher: the snapshot and the assignments arrive, the second time only the snapshot."""
    publishing = Publishing(tmp_path, Path("unused"))
    publishing.store = uri  # type: ignore[assignment]
    publishing.publisher = publishing.started()
    publishing.look()
    told = publishing.publisher.send()
    assert told.sent == 0 and told.error is not None and "is not a fleet store" in told.error
    init_store(uri)
    told = publishing.publisher.send()
    assert (told.sent, told.waiting, told.error) == (2, 0, None)
    publishing.clock.ahead_ms = 1000
    snapshot_id = publishing.look()
    assert publishing.publisher.send().sent == 1
    node, day = snapshot_id.rpartition("-")[2], f"{snapshot_id[:4]}-{snapshot_id[4:6]}-{snapshot_id[6:8]}"
    manifests = []
    with open_store(uri) as store:
        cluster = publishing.host.run("scan", "--json").json["cluster_id"]
        for place in (node, "assignments"):
            for file in store.files(["landing", cluster, day, place]):
                if file.name.endswith(".manifest.json"):
                    read = store.read(["landing", cluster, day, place, file.name], SMALL)
                    manifests.append(json.loads(read)["kind"])
    assert len(manifests) == 3 and manifests.count("assignments") == 1


# No server


def test_a_server_that_is_gone_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{object_servers.free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    with pytest.raises(ServiceUnreachable, match="does not exist: HTTP error") as gone:
        check_store(f"s3://{BUCKET}/store")
    assert "\n" not in str(gone.value) and "nothing" not in str(gone.value)


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("/mnt/fleet", None),
        ("s3://bucket", None),
        ("gs://bucket/a/b", None),
        ("az://container/prefix", None),
        ("s3a://bucket", "does not write"),
        ("hdfs://name/store", "does not write"),
        ("s3://", "must be s3://BUCKET"),
        ("s3://user:secret@bucket/x", "must be s3://BUCKET"),
        ("s3://bucket//x", "must be s3://BUCKET"),
        ("s3://bucket/x?versionId=1", "must be s3://BUCKET"),
    ],
)
def test_which_stores_an_agent_takes(store: str, says: str | None) -> None:
    problem = problem_of(store)
    assert (problem is None) if says is None else (problem is not None and says in problem)


def _aws(home: Path, config: str = "", credentials: str = "") -> dict[str, str]:
    (home / ".aws").mkdir()
    (home / ".aws/config").write_text(config)
    (home / ".aws/credentials").write_text(credentials)
    return {"HOME": str(home)}


KEYS = "aws_access_key_id = A\naws_secret_access_key = B\n"


def test_the_default_profile_counts_unless_the_environment_says_otherwise(tmp_path: Path) -> None:
    environment = _aws(
        tmp_path, "[default]\nregion = eu-west-1\nendpoint_url = https://s3.test\n", f"[default]\n{KEYS}"
    )
    found = profile(environment)
    keys = {"access_key_id": "A", "secret_access_key": "B"}
    assert found == keys | {"region": "eu-west-1", "endpoint": "https://s3.test"}
    told = {"AWS_ACCESS_KEY_ID": "X", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "https://elsewhere"}
    assert profile(environment | told) == {}


def test_a_named_profile_is_taken_whole_or_refused(tmp_path: Path) -> None:
    config = "[profile one]\nregion = eu-north-1\n[profile sso]\nsso_session = x\n"
    environment = _aws(tmp_path, config, f"[one]\n{KEYS}")
    assert profile(environment | {"AWS_PROFILE": "one"})["region"] == "eu-north-1"
    assert profile(environment) == {}, "another one's keys are not taken"
    for name in ("sso", "nobody"):
        with pytest.raises(ConfigError, match=f"profile {name} has no static keys"):
            profile(environment | {"AWS_PROFILE": name})
