"""Settings: every problem at once with its place, the environment over the file, and the sample file told true."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.base.config.config import as_document, load
from logagent.base.config.settings import Settings, parse_duration, parse_size, write_duration, write_size
from logagent.base.errors import ConfigError, Exit

SAMPLE = Path(__file__).parents[4] / "config" / "logagent.toml"
# No default, or one that the broker's own configuration gives: the sample shows how it is written.
EXAMPLES = {
    "orders.silent_after",
    "kafka.config", "kafka.bootstrap_servers", "kafka.client", "kafka.version", "assignments.file",
    "delete.file_delete_delay_ms", "publish.store", "metrics.textfile",
}  # fmt: skip


def every_key() -> set[str]:
    return {f"{section}.{key}" for section, keys in as_document(Settings()).items() for key in keys}


def write(folder: Path, text: str) -> Path:
    path = folder / "logagent.toml"
    path.write_text(text)
    return path


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), environ or {})
    assert caught.value.exit_status is Exit.CONFIG
    assert caught.value.hint
    return list(caught.value.problems)


# The sample file


def uncommented() -> str:
    return re.sub(r"^# (\w+ = .*)$", r"\1", SAMPLE.read_text(), flags=re.MULTILINE)


def test_the_sample_as_it_is_sets_nothing() -> None:
    loaded = load(SAMPLE, {})
    assert loaded.settings == Settings()
    assert loaded.file == str(SAMPLE)


def test_the_sample_documents_every_key_with_its_default(tmp_path: Path) -> None:
    shown = {f"{section}.{key}" for section, keys in tomllib.loads(uncommented()).items() for key in keys}
    assert shown == every_key()
    got, defaults = as_document(load(write(tmp_path, uncommented()), {}).settings), as_document(Settings())
    for place in sorted(every_key()):
        section, key = place.split(".")
        if place in EXAMPLES:
            assert got[section][key] is not None
        else:
            assert got[section][key] == defaults[section][key], place


def test_every_key_of_the_sample_is_explained() -> None:
    lines = SAMPLE.read_text().splitlines()
    keys = [n for n, line in enumerate(lines) if re.match(r"# \w+ = ", line)]
    assert len(keys) == len(every_key())
    for n in keys:
        assert re.match(r"# .{10}", lines[n - 1]) and not re.match(r"# \w+ = ", lines[n - 1]), lines[n]


# Problems


def test_every_problem_at_once_each_with_its_place(tmp_path: Path) -> None:
    text = """
    [cleanup]
    mode = "delete"
    min_age = 24
    max_fraction = 1.5
    sightngs = 3
    quarantine_dirs = ["relative"]
    [assignments]
    sources = "admin"
    [delete]
    bytes_per_second = "fast"
    workers = 0
    [nonsense]
    x = 1
    """
    found = problems(
        tmp_path, text, {"LOGAGENT_GUARD__SETTLE": "soon", "LOGAGENT_GUARD__STTLE": "1m", "LOGAGENT_X__Y": "1"}
    )
    file = str(tmp_path / "logagent.toml")
    for place in (
        f"{file}: cleanup.mode: ", f"{file}: cleanup.min_age: ", f"{file}: cleanup.max_fraction: ",
        f"{file}: cleanup.sightngs: there is no such setting", f"{file}: delete.bytes_per_second: ",
        f"{file}: delete.workers: ", f"{file}: nonsense: there is no such setting",
        "environment variable LOGAGENT_GUARD__SETTLE: ",
        "environment variable LOGAGENT_GUARD__STTLE: there is no such setting",
        "environment variable LOGAGENT_X__Y: there is no such setting",
        f"{file}: cleanup.quarantine_dirs: relative is not an absolute path",
    ):  # fmt: skip
        assert [p for p in found if p.startswith(place)], (place, found)
    assert len(found) == 11


def test_what_does_not_hold_together_is_told_beside_what_does_not_parse(tmp_path: Path) -> None:
    text = """
    [assignments]
    sources = ["zookeeper", "file"]
    file = 3
    [delete]
    workers = "many"
    bytes_per_second = 12
    """
    file = str(tmp_path / "logagent.toml")
    environ = {"LOGAGENT_METRICS__LISTEN": "9640", "LOGAGENT_KAFKA__VERSION": "newest"}
    assert [p.split(": ")[:2] for p in problems(tmp_path, text, environ)] == [
        # That the source "file" lacks its file is not said: it is there, only wrong.
        [file, "assignments.file"],
        [file, "delete.workers"],
        [file, "assignments.sources"],
        ["environment variable LOGAGENT_KAFKA__VERSION", "'newest' is not a Kafka version such as 3.9.1"],
        [file, "delete.bytes_per_second"],
        ["environment variable LOGAGENT_METRICS__LISTEN", "'9640' is not HOST:PORT"],
    ]


_VALUES = st.one_of(
    st.text(max_size=5), st.integers(), st.booleans(), st.floats(), st.none(), st.lists(st.text(max_size=3), max_size=2)
)


@given(st.dictionaries(st.sampled_from(sorted(every_key())), _VALUES))
def test_whatever_the_environment_holds_comes_to_settings_or_problems(values: dict[str, object]) -> None:
    variables = {f"LOGAGENT_{key.replace('.', '__')}".upper(): str(value) for key, value in values.items()}
    try:
        load(SAMPLE, variables)
    except ConfigError as e:
        assert e.problems
        assert [p for p in e.problems if not p.startswith("environment variable LOGAGENT_")] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[assignments]\nsources = ["zookeeper"]', "assignments.sources: zookeeper is not one of"),
        ('[assignments]\nsources = ["file"]', '"file" needs assignments.file'),
        ("[delete]\nbytes_per_second = 1023", "delete.bytes_per_second"),
        ('[publish]\nstore = "s3a://bucket"', "publish.store: must be a mounted path or one of s3://"),
        ('[cleanup]\nquarantine_dirs = ["a"]', "a is not an absolute path"),
        ('[metrics]\nlisten = "9640"', "metrics.listen"),
        ('[metrics]\nlisten = "127.0.0.1:99999"', "metrics.listen"),
        ("cleanup = 1", "cleanup: "),
        ("[cleanup]\nmin_age = -1", "cleanup.min_age"),
        ("[cleanup]\nmax_dirs = true", "cleanup.max_dirs"),
        ("[cleanup]\nmax_fraction = true", "cleanup.max_fraction"),
        ("[cleanup]\nmax_fraction = nan", "cleanup.max_fraction"),
        ('[cleanup]\nmode = "enforced"', "cleanup.mode: must be 'report' or 'enforce'"),
        ('[cleanup]\nmax_dirs = "x"', "cleanup.max_dirs: must be a valid integer"),
    ],
)
def test_values_that_do_not_hold_together(tmp_path: Path, text: str, says: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert says in problem


def test_a_file_that_cannot_be_read_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "latin1.toml").write_bytes(b'[kafka]\nconfig = "\xff"\n')
    for name, said in (("latin1.toml", "byte 19 is not UTF-8"), ("absent.toml", "No such file or directory")):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, {})
        assert caught.value.problems == (f"{tmp_path / name}: {said}",)
    assert caught.value.hint == "name a file that can be read"


# 0 (or nothing) in place of each setting: None if it is refused, else what the sample says that it means.
ZEROS: dict[str, tuple[object, str | None]] = {
    "kafka.config": ("", None),
    "kafka.bootstrap_servers": ("", None),
    "kafka.client": ("", None),
    "kafka.version": ("", None),
    "assignments.sources": ([], '[]: none, and every verdict is "unknown".'),
    "assignments.file": ("", None),
    "assignments.max_age": ("0s", None),
    "cleanup.mode": ("", None),
    "cleanup.interval": ("0s", None),
    "cleanup.sightings": (0, None),
    "cleanup.min_age": ("0s", "0s: only the sightings count."),
    "cleanup.stray_retention": ("0s", "0s: it goes as soon as it may."),
    "cleanup.leftover_grace": ("0s", "0s: no longer than that delay."),
    "cleanup.max_fraction": (0, "0: never more than one."),
    "cleanup.max_dirs": (0, None),
    "cleanup.quarantine_dirs": ([], "[]: none, and they stay."),
    "guard.settle": ("0s", "0s: as soon as it says so."),
    "delete.file_delete_delay_ms": (0, "0: not at all."),
    "delete.bytes_per_second": (0, "0: no limit."),
    "delete.workers": (0, None),
    "health.probe_interval": ("0s", None),
    "health.probe_timeout": ("0s", None),
    "health.recovery_probes": (0, None),
    "health.on_all_offline": ("", None),
    "publish.store": ("", None),
    "publish.interval": ("0s", None),
    "orders.accept": ("", None),
    "orders.keys": ([], "[]: nobody's requests are carried out."),
    "orders.interval": ("0s", None),
    "orders.silent_after": ("0s", None),
    "store.trust_exclusive_create": ("", None),
    "metrics.listen": ("", '"": nowhere.'),
    "metrics.textfile": ("", None),
    "metrics.kafka_names": ("", None),
}


def explained(key: str) -> str:
    """What the sample says above a key, up to the key before it."""
    section, name = key.split(".")
    part = re.split(r"^\[(\w+)\]$", SAMPLE.read_text(), flags=re.MULTILINE)
    lines = dict(zip(part[1::2], part[2::2], strict=True))[section].splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.startswith(f"# {name} = "))
    first = max((n for n in range(at) if re.match(r"# \w+ = ", lines[n])), default=-1)
    return " ".join(line.removeprefix("#").strip() for line in lines[first + 1 : at])


def test_each_setting_is_asked_what_its_zero_means() -> None:
    assert set(ZEROS) == every_key()


@pytest.mark.parametrize("key", ZEROS)
def test_zero_is_refused_or_explained_and_never_always(tmp_path: Path, key: str) -> None:
    """A 0 that somebody takes for "no limit", or an empty value for "all"."""
    section, name = key.split(".")
    value, says = ZEROS[key]
    text = f"[{section}]\n{name} = {json.dumps(value)}\n"
    if says is not None:
        assert says in explained(key)
        assert load(write(tmp_path, text), {}).settings
        return
    (problem,) = problems(tmp_path, text)
    assert key in problem
    variable = f"LOGAGENT_{section}__{name}".upper()
    (problem,) = problems(tmp_path, "", {variable: str(value)})
    assert variable in problem


@pytest.mark.parametrize("key", [key for key, (value, _) in ZEROS.items() if value in (0, "0s")])
def test_nothing_is_negative(tmp_path: Path, key: str) -> None:
    section, name = key.split(".")
    for value in ("-1", '"-1s"', '"-1"'):
        (problem,) = problems(tmp_path, f"[{section}]\n{name} = {value}\n")
        assert key in problem


def test_a_removed_setting_is_an_error_that_says_what_to_use_instead(tmp_path: Path) -> None:
    file, text = str(tmp_path / "logagent.toml"), '[cleanup]\npressure = 0.9\npressure_floor = "24h"\nsightings = 0\n'
    variable = "LOGAGENT_CLEANUP__PRESSURE"
    found = problems(tmp_path, text) + problems(tmp_path, "", {variable: "0.9"})
    gone = [p for p in found if "this setting was removed" in p and "stray_retention" in p and "logagent rescue" in p]
    places = [f"{file}: cleanup.pressure", f"{file}: cleanup.pressure_floor", f"environment variable {variable}"]
    assert [p.split(": this setting")[0] for p in gone] == places
    assert len(found) == 4, "and beside every other problem"


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "[cleanup]\nmode = \n")
    assert str(tmp_path) in problem and "line 2" in problem


def test_a_named_file_that_is_not_there_is_an_error_and_no_default(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "missing.toml", {})
    assert "missing.toml" in caught.value.problems[0]


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "logagent.toml").write_bytes(b'[kafka]\nconfig = "\xff"\n')
    with pytest.raises(ConfigError):
        load(tmp_path / "logagent.toml", {})


# The environment


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, '[cleanup]\nmin_age = "1h"\nsightings = 7\n')
    loaded = load(path, {"LOGAGENT_CLEANUP__MIN_AGE": "2h", "LOGAGENT_ASSIGNMENTS__SOURCES": "admin, kraft-log"})
    cleanup = loaded.settings.cleanup
    assert (cleanup.min_age, cleanup.sightings) == (7_200_000, 7)
    assert loaded.settings.assignments.sources == ("admin", "kraft-log")
    assert loaded.environment == ("LOGAGENT_ASSIGNMENTS__SOURCES", "LOGAGENT_CLEANUP__MIN_AGE")


@pytest.mark.parametrize("place", sorted(every_key()))
def test_every_key_has_its_variable(tmp_path: Path, place: str) -> None:
    section, key = place.split(".")
    value = tomllib.loads(uncommented())[section][key]
    text = ",".join(value) if isinstance(value, list) else str(value)
    loaded = load(write(tmp_path, ""), {f"LOGAGENT_{section}__{key}".upper(): text})
    from_file = load(write(tmp_path, uncommented()), {}).settings
    assert as_document(loaded.settings)[section][key] == as_document(from_file)[section][key]


@pytest.mark.parametrize(
    "variable",
    [
        "LOGAGENT_CLEANUP_MODE",
        "LOGAGENT_CLEANUP.MODE",
        "LOGAGENT.CLEANUP.MODE",
        "logagent_cleanup__mode",
        "LOGAGENT_CLEANUP__MODUS",
        "LOGAGENT_MODE",
    ],
)
def test_a_variable_that_is_no_setting_is_an_error_with_the_nearest_one(tmp_path: Path, variable: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, ""), {variable: "enforce"})
    (problem,) = raised.value.problems
    assert variable in problem and "did you mean LOGAGENT_CLEANUP__MODE?" in problem


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("[cleanup]\nsightngs = 3", "cleanup.sightings"),
        ("[cleanup]\nmin_agee = '1d'", "cleanup.min_age"),
        ("[kafka]\nclients = '/a'", "kafka.client"),
        ("[kafka]\nlisten = '127.0.0.1:9640'", "metrics.listen"),
        ("[metrics]\nlistn = '127.0.0.1:9640'", "metrics.listen"),
        ("bootstrap_servers = 'a:1'", "kafka.bootstrap_servers"),
        ("bootstrap_servr = 'a:1'", "kafka.bootstrap_servers"),
        ("[kafak]\nclient = '/a'", "[kafka]"),
    ],
)
def test_a_key_that_is_no_setting_is_an_error_with_the_nearest_one(tmp_path: Path, text: str, nearest: str) -> None:
    (problem,) = problems(tmp_path, text, {})
    assert problem.endswith(f"there is no such setting; did you mean {nearest}?")


def test_variables_of_others_are_not_ours(tmp_path: Path) -> None:
    environ = {"LOGAGENT_TESTS_REQUIRE_ALL": "1", "LOGAGENTS__X": "1", "PATH": "/bin", "LOGAGENT_ORDERS_KEY_FILE": "f"}
    assert load(write(tmp_path, ""), environ).settings == Settings()


# What the kubelet sets (`pkg/kubelet/envvars`) for a service with two ports, after its own name.
POD = {
    "SERVICE_HOST": "10.0.0.1",
    "SERVICE_PORT": "8080",
    "SERVICE_PORT_HTTP": "8080",
    "SERVICE_PORT_HTTP_METRICS": "9640",
    "PORT": "tcp://10.0.0.1:8080",
    "PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "PORT_8080_TCP_PROTO": "tcp",
    "PORT_8080_TCP_PORT": "8080",
    "PORT_8080_TCP_ADDR": "10.0.0.1",
    "PORT_53_UDP": "udp://10.0.0.1:53",
}


@pytest.mark.parametrize("service", ["LOGAGENT", "LOGAGENT_FLEET", "LOGAGENT_0", "LOGAGENT_CLEANUP_PORT"])
@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1"])
def test_what_a_pod_gets_beside_a_service_of_our_name_stops_no_command(
    tmp_path: Path, service: str, address: str
) -> None:
    in_url = f"[{address}]" if ":" in address else address
    environ = {
        f"{service}_{name}": value.replace("10.0.0.1", in_url if "://" in value else address)
        for name, value in POD.items()
    }
    assert load(write(tmp_path, ""), environ).settings == Settings()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LOGAGENT_METRICS_PORT", "9640"),
        ("LOGAGENT_METRICS__PORT", "127.0.0.1:9640"),
        ("LOGAGENT_METRICS_SERVICE_HOST", "broker.example"),
        ("LOGAGENT_METRICS_SERVICE_PORT", "9640/tcp"),
        ("logagent_metrics_service_host", "10.0.0.1"),
    ],
)
def test_what_only_resembles_it_is_a_setting_that_would_not_be_in_effect(
    tmp_path: Path, variable: str, value: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, ""), {variable: value})
    (problem,) = raised.value.problems
    assert variable in problem and "did you mean LOGAGENT_" in problem


# How people write values


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h", "d", "w"])), min_size=1))
def test_durations_add_up(parts: list[tuple[int, str]]) -> None:
    ms = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
    text, total = "".join(f"{n}{unit}" for n, unit in parts), sum(n * ms[unit] for n, unit in parts)
    if total > 36_525 * ms["d"]:
        with pytest.raises(ValueError, match="100 years"):
            parse_duration(text)
    else:
        assert parse_duration(text) == total


@pytest.mark.parametrize("key", ["ORDERS__SILENT_AFTER", "ORDERS__INTERVAL", "CLEANUP__MIN_AGE", "GUARD__SETTLE"])
def test_no_duration_is_longer_than_100_years(key: str) -> None:
    """The calendar ends before such dates."""
    assert load(None, {f"LOGAGENT_{key}": "36525d"})
    for text in ("36525d1ms", "200000w", "99999999999999w", "9" * 5000 + "w"):
        with pytest.raises(ConfigError) as refused:
            load(None, {f"LOGAGENT_{key}": text})
        (problem,) = refused.value.problems
        assert key in problem


@pytest.mark.parametrize("text", ["", " ", "5", "m", "-5m", "5 m", "5M", "1.5h", "5min", 5, None, True, "5m x"])
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        (7, 7),
        ("64MiB", 64 << 20),
        ("10MB", 10**7),
        ("1 GiB", 1 << 30),
        ("2K", 2048),
        ("3 B", 3),
        ("50gib", 50 << 30),
        ("1.5GiB", 3 << 29),
        ("0.1MB", 10**5),
        ("1.0000000001KiB", 1024),
        ("1mb", 10**6),
    ],
)
def test_sizes(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "-1", -1, "1.5", "1.5B", "MiB", "1.MiB", ".5G", "1,5G", "1.2.3G", "²G", None, True, 1.5]
)
def test_what_is_no_size(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_every_section_is_a_field() -> None:
    assert {f.name for f in fields(Settings)} == set(tomllib.loads(uncommented()))


@pytest.mark.parametrize("text", ["a" + ".a" * 200_000 + " = 1", "[a" + ".a" * 200_000 + "]", '"=".' + "a." * 5000])
def test_a_key_of_thousands_of_parts_is_not_taken_apart(tmp_path: Path, text: str) -> None:
    """tomllib would take minutes."""
    file = tmp_path / "logagent.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="more than 500 dots"):
        load(file)


@given(st.integers(0, 36_525 * 86_400_000), st.integers(0, 1 << 60))
def test_what_is_written_is_read_back(ms: int, size: int) -> None:
    assert parse_duration(write_duration(ms)) == ms
    assert parse_size(write_size(size)) == size
    assert parse_size(write_size(size << 20)) == size << 20


def test_every_setting_is_written_as_the_file_takes_it(tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.touch()
    defaults = Settings()
    assert defaults.written("cleanup", "stray_retention") == "7d"
    assert defaults.written("delete", "bytes_per_second") == "200MiB"
    assert defaults.written("orders", "accept") == "false"
    assert defaults.written("orders", "silent_after") == defaults.written("cleanup", "quarantine_dirs") == ""
    for section, keys in as_document(defaults).items():
        for key, value in keys.items():
            written = defaults.written(section, key)
            name = f"LOGAGENT_{section}__{key}".upper()
            if written:
                assert as_document(load(empty, {name: written}).settings)[section][key] == value, name
