"""A release: what an index is shown leads somewhere, and the files hold what they should and nothing else."""

import email
import json
import subprocess
import sys
import zipfile

import pytest

from integration import release
from integration.docs import ROOT
from pulsar_spark.version import VERSION
from tests.integration.test_environment import locked

URL = "https://example.org/team/pulsar_spark/blob/v1"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("[a](docs/a.md#b-c), [b](LICENSE)", f"[a]({URL}/docs/a.md#b-c), [b]({URL}/LICENSE)"),
        ("![flow](docs/img/flow.svg)", f"![flow]({URL}/docs/img/flow.svg?raw=true)"),
        ("[x](https://semver.org), [y](#read)", "[x](https://semver.org), [y](#read)"),
    ],
)
def test_links(page, expected):
    assert release.absolute_links(page, URL) == expected


def test_the_wheel(tmp_path):
    """It has all that an index shows, the packages with their files, and nothing else."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(release.source_of(URL, tmp_path))]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(tmp_path / f"pulsar_spark-{VERSION}-py3-none-any.whl") as wheel:
        names = wheel.namelist()
        about = email.message_from_bytes(wheel.read(f"pulsar_spark-{VERSION}.dist-info/METADATA"))
    assert about["License-Expression"] == "Apache-2.0"
    for name in ("Summary", "Author", "Keywords", "Requires-Python", "Description-Content-Type"):
        assert about[name], name
    homes = dict(each.split(", ", 1) for each in about.get_all("Project-URL"))
    assert homes.keys() == {"Documentation", "Changelog", "Security", "Source"}
    for home in homes.values():
        assert (ROOT / home.removeprefix(f"{URL}/")).is_file()
    assert "](docs/" not in about.get_payload()
    packages = {"pulsar_spark", "pulsar_spark_broker", "pyspark_pulsar", "pyspark_pulsar_spark"}
    assert {name.split("/")[0] for name in names} == {*packages, f"pulsar_spark-{VERSION}.dist-info"}
    settings = {name.split("/")[-1] for name in names if "pulsar_spark_broker/conf/" in name}
    assert settings == {file.name for file in (ROOT / "pulsar_spark_broker" / "conf").iterdir()}


def test_wrong_usage(tmp_path, capsys):
    """An address that will not do, and files of another release, which are not mixed in."""
    (tmp_path / "old.whl").touch()
    for arguments in (["--url", "https://example.org/"], ["--url", URL, "--dist", str(tmp_path)]):
        with pytest.raises(SystemExit):
            release.main(arguments)
    said = capsys.readouterr().err
    assert "an https:// address without a slash at its end" in said
    assert "is not empty" in said


@pytest.mark.long
def test_the_files_and_their_bill_of_materials(tmp_path):
    dist = tmp_path / "dist"
    assert release.main(["--url", URL, "--dist", str(dist), "--build", str(tmp_path)]) == 0
    assert {file.name for file in dist.iterdir()} == {
        f"pulsar_spark-{VERSION}-py3-none-any.whl",
        f"pulsar_spark-{VERSION}.tar.gz",
    }
    materials = json.loads((tmp_path / f"pulsar_spark-{VERSION}.cdx.json").read_text())
    assert materials["metadata"]["component"]["version"] == VERSION
    components = {(each["name"], each["version"]) for each in materials["components"]}
    assert components == {(each.name, str(each.specifier)[2:]) for each in locked("demo")}
    assert all(each["externalReferences"][0]["hashes"] for each in materials["components"])
