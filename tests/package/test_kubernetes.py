"""packaging/kubernetes: each manifest by Kubernetes' own schemas, and by what logagent needs in a pod."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from logagent import __version__
from logagent.base.config.config import load_valid_part
from tests.markdown import ROOT, prose, why_not_a_command
from tests.needs import missing

MANIFESTS = sorted((ROOT / "packaging/kubernetes").glob("*.yaml"))
# The oldest release that is supported anywhere, and a new one.
RELEASES = ("1.29", "1.34")
PAGE = ROOT / "docs/how-to/containers.md"


def documents(manifest: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(manifest.read_text(encoding="utf-8")))


def pods(manifest: Path) -> Iterator[dict[str, Any]]:
    """The spec of each pod in it, whatever makes it."""
    for document in documents(manifest):
        spec = document["spec"]
        if document["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if document["kind"] not in ("PersistentVolumeClaim", "VolumeSnapshot"):
            yield spec["template"]["spec"] if "template" in spec else spec


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda m: m.stem)
def test_a_manifest_is_what_kubernetes_takes(manifest: Path, release: str) -> None:
    try:
        validator = importlib.import_module("kubernetes_validate")
    except ImportError:
        missing("kubernetes-validate, with the schemas of Kubernetes")
    # A VolumeSnapshot is not Kubernetes' own: its schema comes with the driver.
    own = [document for document in documents(manifest) if document["kind"] != "VolumeSnapshot"]
    for document in own:
        validator.validate(document, release, strict=True)
    broken = own[0]
    broken["spec"]["nodename"] = "x"
    with pytest.raises(validator.ValidationError):
        validator.validate(broken, release, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda m: m.stem)
def test_what_it_starts_is_a_command_with_settings_that_exist(manifest: Path, tmp_path: Path) -> None:
    empty = tmp_path / "logagent.toml"
    empty.touch()
    for pod in pods(manifest):
        ours = [c for c in [*pod.get("initContainers", []), *pod["containers"]] if "logagent" in c["image"]]
        assert ours
        for container in ours:
            assert container["image"].endswith(f":{__version__}")
            words = container["args"] if "fleet" not in container["image"] else ["fleet", *container["args"]]
            assert why_not_a_command(words) is None
            environment = {e["name"]: e["value"] for e in container.get("env", [])}
            assert load_valid_part(empty, environment)[1] == []


def test_a_sidecar_sees_its_broker() -> None:
    """The same processes, user, paths; and its state outlives it."""
    (pod,) = pods(ROOT / "packaging/kubernetes/sidecar.yaml")
    kafka, agent = pod["containers"]
    (prestart,) = pod["initContainers"]
    shared = ("image", "env", "volumeMounts", "securityContext")
    assert {key: prestart[key] for key in shared} == {key: agent[key] for key in shared}
    assert pod["shareProcessNamespace"] and pod["securityContext"]["runAsUser"]
    assert {m["name"]: m["mountPath"] for m in kafka["volumeMounts"]}.items() <= {
        m["name"]: m["mountPath"] for m in agent["volumeMounts"]
    }.items()
    (document,) = documents(ROOT / "packaging/kubernetes/sidecar.yaml")
    assert "logagent-state" in [claim["metadata"]["name"] for claim in document["spec"]["volumeClaimTemplates"]]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda m: m.stem)
def test_who_asks_a_cluster_has_its_client_properties(manifest: Path) -> None:
    """In a secret, mounted where the setting points to."""
    for pod in pods(manifest):
        volumes = {v["name"] for v in pod["volumes"] if "secret" in str(v)}
        for container in (
            c for c in [*pod.get("initContainers", []), *pod["containers"]] if "/logagent:" in c["image"]
        ):
            environment = {e["name"]: e["value"] for e in container["env"]}
            mounted = {m["mountPath"] for m in container["volumeMounts"] if m["name"] in volumes and m["readOnly"]}
            assert str(Path(environment["LOGAGENT_KAFKA__CLIENT"]).parent) in mounted
            assert "9092" not in environment.get("LOGAGENT_KAFKA__BOOTSTRAP_SERVERS", "")


def test_the_snapshot_is_what_the_copy_is_made_from() -> None:
    snapshot, claim, _ = documents(ROOT / "packaging/kubernetes/snapshot-job.yaml")
    assert snapshot["apiVersion"].split("/")[0] == claim["spec"]["dataSource"]["apiGroup"]
    assert snapshot["metadata"]["name"] == claim["spec"]["dataSource"]["name"]


def test_what_only_looks_cannot_write_to_a_living_disk() -> None:
    (pod,) = pods(ROOT / "packaging/kubernetes/node-debug-pod.yaml")
    assert pod["hostPID"] and [m for m in pod["containers"][0]["volumeMounts"] if not m["readOnly"]] == []


def test_the_page_names_each_of_them() -> None:
    assert [m.name for m in MANIFESTS if f"packaging/kubernetes/{m.name}" not in prose(PAGE)] == []
