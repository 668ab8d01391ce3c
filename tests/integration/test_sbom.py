"""The bill of materials: all that is required, nothing else, and the form of CycloneDX."""

import json

import pytest

from integration import sbom
from pulsar_spark.version import VERSION
from tests.integration.test_environment import locked, wanted


def test_it_has_what_an_installation_brings():
    made = json.loads(sbom.sbom())
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["component"]["purl"] == f"pkg:pypi/pulsar-spark@{VERSION}"
    requirements = {f"{each.name}{each.specifier}": count for each, count in locked("demo").items()}
    components = {f"{each['name']}=={each['version']}": each for each in made["components"]}
    assert components.keys() == requirements.keys()
    assert {each.name for each in wanted()} <= {each["name"] for each in made["components"]}
    for name, each in components.items():
        (reference,) = each["externalReferences"]
        assert len(reference["hashes"]) == requirements[name], name
    references = [each["bom-ref"] for each in made["components"]]
    assert len(references) == len(set(references))


def test_the_same_files_give_the_same_text():
    assert sbom.sbom() == sbom.sbom()


def test_a_line_of_another_form(monkeypatch, tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text("numpy>=2\n")
    monkeypatch.setattr(sbom, "lock_file", lambda name: lock)
    with pytest.raises(ValueError, match="a line of another form: numpy>=2"):
        sbom.sbom()
