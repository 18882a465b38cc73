"""The software bill of materials (CycloneDX 1.6, JSON): what the packages hold that is not ours.

    python packaging/sbom.py VERSION WHEELS FILE

Versions and hashes are those of `requirements.txt`; file names, licences and who needs whom come from the wheels that
were unpacked (WHEELS: what `tree.py` downloaded). Raises SystemExit if these do not fit, or if the result is not
what the schema of CycloneDX asks for. The same wheels and SOURCE_DATE_EPOCH give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tomllib
import uuid
import zipfile
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from lock import HERE, PYTHONS
from packageurl import PackageURL
from packaging.requirements import Requirement

_PIN = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def pins() -> dict[str, tuple[str, frozenset[str]]]:
    """Name as wheels have it → version, and SHA-256 of every wheel."""
    found = _PIN.findall((HERE / "requirements.txt").read_text())
    return {_plain(name): (version, frozenset(re.findall(r"[0-9a-f]{64}", hashes))) for name, version, hashes in found}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def components(wheels: Path) -> dict[str, tuple[Component, Message]]:
    """By name, with the metadata of each."""
    locked, made = pins(), dict[str, tuple[Component, Message]]()
    for path in sorted({path.name: path for path in wheels.rglob("*.whl")}.values(), key=lambda path: path.name):
        name, sha256 = _plain(path.name.split("-")[0]), hashlib.sha256(path.read_bytes()).hexdigest()
        version, hashes = locked[name]
        if sha256 not in hashes:
            sys.exit(f"sbom.py: {path.name} is not what requirements.txt pins")
        if name not in made:
            with zipfile.ZipFile(path) as packed:
                (metadata,) = (n for n in packed.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
                said = message_from_bytes(packed.read(metadata))
            licence = str(said["License-Expression"] or said["License"] or "").splitlines()
            component = Component(
                name=str(said["Name"]), version=version, type=ComponentType.LIBRARY, bom_ref=f"{name}@{version}",
                purl=PackageURL("pypi", name=name, version=version), description=said["Summary"],
                licenses=[LicenseFactory().make_from_string(licence[0])] if licence else [],
            )  # fmt: skip
            made[name] = component, said
        digest = HashType(alg=HashAlgorithm.SHA_256, content=sha256)
        made[name][0].external_references.add(
            ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(path.name), hashes=[digest])
        )
    if missing := sorted(set(locked) - set(made)):
        sys.exit(f"sbom.py: no wheel of {', '.join(missing)} in {wheels}")
    return made


def _needed(requirements: list[str]) -> set[str]:
    """What they name, for any Python that is supported and not only for the one that runs this; no extras."""
    places = [{"extra": "", "python_version": python, "python_full_version": f"{python}.0"} for python in PYTHONS]
    asked = map(Requirement, requirements)
    return {
        _plain(one.name) for one in asked if one.marker is None or any(one.marker.evaluate(place) for place in places)
    }


def bill(version: str, wheels: Path) -> Bom:
    made, project = components(wheels), tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    # Not pkg:pypi: the name is on no index.
    own = Component(
        name="logagent", version=version, type=ComponentType.APPLICATION, bom_ref=f"logagent@{version}",
        purl=PackageURL("generic", name="logagent", version=version), description=project["description"],
        licenses=[LicenseFactory().make_from_string(project["license"])],
    )  # fmt: skip
    bom = Bom(components=[component for component, _ in made.values()])
    bom.metadata.component = own
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    lock = hashlib.sha256((HERE / "requirements.txt").read_bytes()).hexdigest()
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"logagent {version} {lock} {os.environ['SOURCE_DATE_EPOCH']}")
    bom.register_dependency(own, [made[name][0] for name in _needed(project["dependencies"])])
    for component, said in made.values():
        needs = _needed([str(line) for line in said.get_all("Requires-Dist") or []])
        bom.register_dependency(component, [made[name][0] for name in needs if name in made])
    return bom


def main() -> None:
    version, wheels, file = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    text = JsonV1Dot6(bill(version, wheels)).output_as_string(indent=1) + "\n"
    if (wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        sys.exit(f"sbom.py: not as the schema of CycloneDX 1.6 asks for: {wrong}")
    file.write_text(text)


if __name__ == "__main__":
    main()
