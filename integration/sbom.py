"""The bill of materials of a release: what an installation of the package brings, as CycloneDX writes it.

It is made from the lock of the packages that setup.cfg requires, so it is never older than that. The package
itself contains no other one. The same files give the same text: it has no time and no number of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from integration.__main__ import lock_file
from pulsar_spark.version import VERSION

_LOCK = "demo"  # what users need, without tools
_NAME = "pulsar-spark"
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;]+)(?: *; *(?P<marker>.+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def sbom() -> str:
    """The JSON of CycloneDX 1.6.

    Raises:
        ValueError: the lock has a line of another form.
    """
    components = [_component(line) for line in _lines()]
    own = {"type": "library", **_identity(_NAME, VERSION), "licenses": [{"expression": "Apache-2.0"}]}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def _lines() -> list[str]:
    return lock_file(_LOCK).read_text().replace("\\\n", " ").splitlines()


def _component(line: str) -> dict[str, Any]:
    requirement, *_ = line.split("--hash=")
    found = _REQUIREMENT.fullmatch(requirement.strip())
    if found is None:
        raise ValueError(f"the lock has a line of another form: {line[:100]}")
    made: dict[str, Any] = {"type": "library", **_identity(found["name"], found["version"])}
    if found["marker"]:
        made["properties"] = [{"name": "python:environment-marker", "value": found["marker"]}]
    # One of them is that of the file that a machine gets.
    made["externalReferences"] = [
        {
            "type": "distribution",
            "url": f"https://pypi.org/project/{found['name']}/{found['version']}/",
            "hashes": [{"alg": "SHA-256", "content": content} for content in _HASH.findall(line)],
        }
    ]
    return made


def _identity(name: str, version: str) -> dict[str, str]:
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    return {"bom-ref": purl, "name": name, "version": version, "purl": purl}
