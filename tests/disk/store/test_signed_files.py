"""Signatures and create-if-absent on a real store: what is forged is ignored."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from logagent.base.errors import ConfigError, ServiceUnreachable
from logagent.deletion.store.requests import ControlFolder
from logagent.store.signing import (
    NotSigned,
    PrivateKey,
    generate,
    load_private_key,
    public_key,
    verify,
)

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
KEY = PrivateKey("ops", b"\x01" * 32)
KEYS = (public_key(KEY.public()),)


def test_a_key_is_private_and_never_printed(tmp_path: Path) -> None:
    key = generate("ops-1", tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert load_private_key(tmp_path / "key") == key
    assert repr(key) == "PrivateKey(key_id='ops-1')" and "raw" not in repr(public_key(key.public()))
    with pytest.raises(FileExistsError):
        generate("ops-1", tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(ConfigError, match="users other than its owner"):
        load_private_key(tmp_path / "key")


@pytest.mark.parametrize("text", ["", "ops", "ops:", "ops:AAAA", "ops:?", "a b:" + "A" * 43 + "=", "ops:" + "A" * 44])
def test_a_private_key_has_one_form(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(ConfigError, match="not one of logagent's private keys") as caught:
        load_private_key(path)
    assert "AAAA" not in str(caught.value)


@pytest.mark.parametrize("text", ["ops", "ops:short", "ops:" + "A" * 44, f"{KEY.public()}@../x", f"a b{KEY.public()}"])
def test_a_public_key_has_one_form(text: str) -> None:
    with pytest.raises(ValueError, match="KEY_ID:BASE64"):
        public_key(text)


def test_a_signature_holds_for_its_schema_payload_key_and_cluster_only() -> None:
    signed = KEY.sign("logagent.request/2", b"{}")
    assert verify(signed, KEYS, CLUSTER) == ("logagent.request/2", b"{}")
    for change in ({"schema": "logagent.decision/1"}, {"payload": "e30K"}, {"key_id": "other"}, {"signature": "AAAA"}):
        with pytest.raises(NotSigned):
            verify(json.dumps({**json.loads(signed), **change}).encode(), KEYS, CLUSTER)
    with pytest.raises(NotSigned):
        verify(signed, (public_key(KEY.public() + "@another"),), CLUSTER)
    assert verify(signed, (public_key(f"{KEY.public()}@{CLUSTER}"),), CLUSTER)
    retired = (public_key(f"{KEY.public()}:retired"),)
    assert verify(signed, retired, CLUSTER, retired=True)
    with pytest.raises(NotSigned, match="retired"):
        verify(signed, retired, CLUSTER)
    for junk in (b"", b"[]", b"null", b"[" * 100_000, b'{"schema": 1, "key_id": 2, "payload": "", "signature": ""}'):
        with pytest.raises(NotSigned):
            verify(junk, KEYS, CLUSTER)


def test_create_is_if_absent_and_whole(tmp_path: Path) -> None:
    control = ControlFolder(tmp_path, CLUSTER)
    assert control.create("requests", "1.json", b"one") and not control.create("requests", "1.json", b"two")
    assert control.read("requests", "1.json") == b"one" and control.names("requests") == ["1.json"]
    assert control.read("requests", "2.json") is None and control.names("requests/9") == []


def test_of_many_that_create_one_name_one_wins(tmp_path: Path) -> None:
    won = list[int]()

    def attempt(number: int) -> None:
        if ControlFolder(tmp_path, CLUSTER).create("requests", "1.json", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert ControlFolder(tmp_path, CLUSTER).read("requests", "1.json") == str(won[0]).encode()


def test_no_symlink_leads_out_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store" / "control").symlink_to(tmp_path / "elsewhere")
    control = ControlFolder(tmp_path / "store", CLUSTER)
    with pytest.raises(ServiceUnreachable):
        control.create("requests", "1.json", b"x")
    with pytest.raises(ServiceUnreachable):
        control.names("requests")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_store_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnreachable):
        ControlFolder(tmp_path / "gone", CLUSTER).names("requests")
