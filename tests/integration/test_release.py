"""A release: what an index is shown leads somewhere, and the files hold what they should and nothing else."""

import email
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from integration import release
from integration.docs import ROOT
from pulsar_spark.version import VERSION

URL = "https://example.org/team/pulsar_spark/blob/v1"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("see [all](docs/index.md#a-b)", f"see [all]({URL}/docs/index.md#a-b)"),
        ("[a](docs/a.md), [b](LICENSE)", f"[a]({URL}/docs/a.md), [b]({URL}/LICENSE)"),
        ("![flow](docs/img/flow.svg)", f"![flow]({URL}/docs/img/flow.svg?raw=true)"),
        ("[x](https://semver.org)", "[x](https://semver.org)"),
        ("[x](#read)", "[x](#read)"),
    ],
)
def test_links(page, expected):
    assert release.absolute_links(page, URL) == expected


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The wheel and the sdist."""
    made = release.build(URL, tmp_path_factory.mktemp("dist"))
    return {file.suffix: file for file in made}


def test_the_files_are_of_this_version(files):
    assert {file.name for file in files.values()} == {
        f"pulsar_spark-{VERSION}-py3-none-any.whl",
        f"pulsar_spark-{VERSION}.tar.gz",
    }


def test_the_metadata_is_complete(files):
    with zipfile.ZipFile(files[".whl"]) as wheel:
        about = email.message_from_bytes(wheel.read(f"pulsar_spark-{VERSION}.dist-info/METADATA"))
    assert about["Version"] == VERSION
    assert about["License-Expression"] == "Apache-2.0"
    assert about.get_all("License-File") == ["LICENSE"]
    for name in ("Summary", "Author", "Keywords", "Requires-Python", "Description-Content-Type"):
        assert about[name], name
    homes = dict(each.split(", ", 1) for each in about.get_all("Project-URL"))
    assert homes.keys() == {"Documentation", "Changelog", "Security", "Source"}
    for home in homes.values():
        assert (ROOT / home.removeprefix(f"{URL}/")).is_file()
    assert "](docs/" not in about.get_payload()
    assert f"]({URL}/docs/quickstart.md)" in about.get_payload()


def test_they_hold_the_packages_and_nothing_else(files):
    with zipfile.ZipFile(files[".whl"]) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
        settings = {name.split("/")[-1] for name in wheel.namelist() if "pulsar_spark_broker/conf/" in name}
    packages = {"pulsar_spark", "pulsar_spark_broker", "pyspark_pulsar", "pyspark_pulsar_spark"}
    assert tops == {*packages, f"pulsar_spark-{VERSION}.dist-info"}
    assert settings == {file.name for file in (ROOT / "pulsar_spark_broker" / "conf").iterdir()}
    with tarfile.open(files[".gz"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "setup.cfg", "pyproject.toml", "pulsar_spark/version.py"} <= names
    assert not {name for name in names if name.startswith(("tests", "integration", "conf"))}


@pytest.mark.parametrize("wrong", ["http://example.org", "https://example.org/", "docs", "https://a/b?c"])
def test_an_address_that_will_not_do(wrong, capsys):
    with pytest.raises(SystemExit):
        release.main(["--url", wrong])
    assert "an https:// address without a slash at its end" in capsys.readouterr().err


def test_files_of_another_release_are_not_mixed_in(tmp_path, capsys):
    (tmp_path / "old.whl").touch()
    with pytest.raises(SystemExit):
        release.main(["--url", URL, "--dist", str(tmp_path)])
    assert "is not empty" in capsys.readouterr().err


def test_nothing_is_wrong_with_them(files):
    assert release.check(files[".whl"], files[".gz"]) == []


def test_the_checks_find_what_is_wrong(files, tmp_path):
    """A wheel with a compiled file, which the sdist does not give."""
    wheel = shutil.copy(files[".whl"], tmp_path)
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("pulsar_spark/__pycache__/a.pyc", "")
    problems = release.check(Path(wheel), files[".gz"])
    assert problems[-1] == "pulsar_spark/__pycache__/a.pyc differs in the wheel that the sdist gives"
