"""Signatures, epochs and create-if-absent on a real store: what is forged is ignored."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logagent.errors import ConfigError, ServiceUnreachable
from logagent.store import epochs as epoch_store
from logagent.store.control import Control
from logagent.store.deletion import ControllerEpoch, Order, OrderedPartition
from logagent.store.epochs import EpochLost, Epochs
from logagent.store.orders import UnknownSchema, encode, order_id, orders_folder, read_order, write_order
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
STRANGER = PrivateKey("ops", b"\x02" * 32)
AT = "2026-11-21T00:00:00.000Z"


def epoch(number: int, key: PrivateKey = KEY) -> bytes:
    return key.sign("logagent.epoch/1", encode(ControllerEpoch(CLUSTER, number, "0" * 32, "ops", "shell", AT)))


def take(control: Control, above: int = 0) -> ControllerEpoch:
    return epoch_store.take(
        control, Epochs(control, KEYS), KEY, above=above, by="ops", host="shell", now=lambda: datetime.now(UTC)
    )


def forge(control: Control, name: str, content: bytes) -> None:
    folder = Path(control.store) / "control" / CLUSTER / "epoch"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


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
    signed = KEY.sign("logagent.order/1", b"{}")
    assert verify(signed, KEYS, CLUSTER) == ("logagent.order/1", b"{}")
    for change in ({"schema": "logagent.epoch/1"}, {"payload": "e30K"}, {"key_id": "other"}, {"signature": "AAAA"}):
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


@pytest.mark.parametrize(("mode", "ours"), [(0o1777, 0o755), (0o2770, 0o2770), (0o2775, 0o2775), (0o755, 0o755)])
def test_where_all_may_write_the_controllers_folders_are_its_own(tmp_path: Path, mode: int, ours: int) -> None:
    """Else anybody could take the names of what it will write. Agents have users of their own."""
    tmp_path.chmod(mode)
    control = Control(tmp_path, CLUSTER)
    for folder in ("epoch", "orders/1", "requests/request-1", "answers/1"):
        control.create(folder, "1.json", b"x")
    modes = {str(p.relative_to(tmp_path / "control" / CLUSTER)): p.stat().st_mode & 0o7777
             for p in (tmp_path / "control").rglob("*") if p.is_dir()}  # fmt: skip
    theirs = dict.fromkeys((".", "answers", "answers/1"), mode)
    assert modes == {**dict.fromkeys(modes, ours), **theirs}


def test_create_is_if_absent_and_whole(tmp_path: Path) -> None:
    control = Control(tmp_path, CLUSTER)
    assert control.create("epoch", "1.json", b"one") and not control.create("epoch", "1.json", b"two")
    assert control.read("epoch", "1.json") == b"one" and control.names("epoch") == ["1.json"]
    assert control.read("epoch", "2.json") is None and control.names("orders/9") == []


def test_of_many_that_create_one_name_one_wins(tmp_path: Path) -> None:
    won = list[int]()

    def attempt(number: int) -> None:
        if Control(tmp_path, CLUSTER).create("epoch", "1.json", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert Control(tmp_path, CLUSTER).read("epoch", "1.json") == str(won[0]).encode()


def test_no_symlink_leads_out_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store" / "control").symlink_to(tmp_path / "elsewhere")
    control = Control(tmp_path / "store", CLUSTER)
    with pytest.raises(ServiceUnreachable):
        control.create("epoch", "1.json", b"x")
    with pytest.raises(ServiceUnreachable):
        control.names("epoch")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_store_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnreachable):
        Control(tmp_path / "gone", CLUSTER).names("epoch")


def test_a_store_that_lies_about_create_if_absent_is_refused(tmp_path: Path) -> None:
    class Lying(Control):
        def create(self, folder: str, name: str, content: bytes) -> bool:
            self.remove(folder, name)
            return super().create(folder, name, content)

    epoch_store.probe(Control(tmp_path, CLUSTER))
    with pytest.raises(ConfigError, match="two controllers apart"):
        epoch_store.probe(Lying(tmp_path, CLUSTER))


def test_epochs_only_grow(tmp_path: Path) -> None:
    control = Control(tmp_path, CLUSTER)
    assert [take(control).epoch, take(control).epoch, take(control, above=40).epoch] == [1, 2, 41]


def test_a_forged_epoch_stops_no_controller(tmp_path: Path) -> None:
    control = Control(tmp_path, CLUSTER)
    ours = take(control)
    forge(control, "7.json", epoch(7, STRANGER))
    forge(control, "8.json", epoch(3))  # ours, under another name
    forge(control, "9.json", b"junk")
    os.mkfifo(tmp_path / "control" / CLUSTER / "epoch" / "10.json")
    epochs = Epochs(control, KEYS)
    epoch_store.check(control, epochs, ours)
    assert epochs.highest() == ours and epochs.ignored.count == 4
    forge(control, "11.json", epoch(11))
    with pytest.raises(EpochLost):
        epoch_store.check(control, epochs, ours)


def test_junk_in_thousands_is_read_once(tmp_path: Path) -> None:
    control = Control(tmp_path, CLUSTER)
    ours = take(control)
    for number in range(2, 2_600):
        forge(control, f"{number}.json", b"junk")
    epochs = Epochs(control, KEYS)
    looks = 0
    while epochs.highest() is None or not epochs.certain:
        looks += 1
        assert looks < 5
    assert epochs.highest() == ours and epochs.ignored.count == 2_598
    assert epochs.highest() == ours and epochs.ignored.count == 2_598


def test_an_order_counts_under_its_own_name_only(tmp_path: Path) -> None:
    control = Control(tmp_path, CLUSTER)
    part = OrderedPartition("request-1", "clicks", "A" * 22, 0)
    order = Order(order_id(3, 1), 3, CLUSTER, 1, "stop", AT, AT, (part,))
    assert write_order(control, order, KEY) and not write_order(control, order, KEY)
    content = control.read(orders_folder(1), f"{order.order_id}.json")
    assert content is not None
    assert read_order(content, f"{order.order_id}.json", 1, KEYS, CLUSTER) == order
    with pytest.raises(NotSigned):
        read_order(content, f"{order_id(9, 1)}.json", 1, KEYS, CLUSTER)
    with pytest.raises(UnknownSchema):
        read_order(KEY.sign("logagent.order/2", b"{}"), f"{order.order_id}.json", 1, KEYS, CLUSTER)
    with pytest.raises(NotSigned):
        read_order(KEY.sign("logagent.order/1", b"{}"), f"{order.order_id}.json", 1, KEYS, CLUSTER)
