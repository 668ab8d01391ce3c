"""The archive for spark-submit: where it lies, what it holds, and that it needs no protobuf and no crc32c."""

import configparser
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pyarrow
import pytest

from pulsar_spark.cli import main, package
from pulsar_spark.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
POM = "{http://maven.apache.org/POM/4.0.0}"


@pytest.fixture(scope="module")
def jar(tmp_path_factory):
    return package.build(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with what Spark needs itself, and nothing else: neither protobuf nor crc32c."""
    folder = tmp_path_factory.mktemp("site")
    for module in (numpy, pyarrow):
        (source,) = module.__path__
        for name in (module.__name__, f"{module.__name__}.libs"):
            if (original := Path(source).with_name(name)).exists():
                (folder / name).symlink_to(original)
    return folder


def python(code, *path):
    """Run code with these folders and archives, and nothing that is installed."""
    command = [sys.executable, "-S", "-c", code]
    environment = {"PYTHONPATH": ":".join(map(str, path))}
    # Not in the checkout, which would be found first.
    folder = path[-1]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_is_laid_out_as_a_maven_repository(jar):
    repository = jar.parents[3]
    stem = f"pulsar-spark/pulsar-spark/{VERSION}/pulsar-spark-{VERSION}"
    names = {str(file.relative_to(repository)) for file in repository.rglob("*") if file.is_file()}
    assert names == {f"{stem}{end}" for end in (".jar", ".jar.sha1", ".pom", ".pom.sha1")}
    pom = ElementTree.parse(jar.with_suffix(".pom")).getroot()
    found = [pom.findtext(f"{POM}{name}") for name in ("groupId", "artifactId", "version")]
    assert ":".join(found) == package.coordinates()
    assert [each.text for each in pom.iter(f"{POM}name")] == ["Apache-2.0", "BSD-3-Clause"]
    for file in (jar, jar.with_suffix(".pom")):
        assert Path(f"{file}.sha1").read_text() == hashlib.sha1(file.read_bytes()).hexdigest()


def test_it_holds_the_packages_and_the_licences_and_nothing_compiled(jar):
    names = zipfile.ZipFile(jar).namelist()
    assert {"pulsar_spark/__init__.py", "pyspark_pulsar/__init__.py", "META-INF/MANIFEST.MF"} <= set(names)
    packages = {"pulsar_spark", "pyspark_pulsar", "pyspark_pulsar_spark"}
    assert {name.partition("/")[0] for name in names} == {"META-INF", *packages}
    for carried in ("pulsar-spark", "protobuf"):
        assert [name for name in names if name.startswith(f"META-INF/licenses/{carried}/LICENSE")]
    of_code = {"", ".py", ".html", ".css", ".js"}
    assert {Path(name).suffix for name in names if not name.startswith("META-INF/")} == of_code
    assert "pulsar_spark/spark/monitoring/page.js" in names


def test_the_same_files_make_the_same_bytes(jar, tmp_path, capsys):
    assert main(["package", str(tmp_path)]) == 0
    (again,) = tmp_path.rglob("*.jar")
    assert again.read_bytes() == jar.read_bytes()
    assert (
        f"--packages {package.coordinates()} --repositories {tmp_path.as_uri()} " in capsys.readouterr().out
    )


def test_it_works_where_neither_protobuf_nor_crc32c_is_installed(jar, site):
    code = """
import sys
import pulsar_spark
import google.protobuf
from pulsar_spark.wire import frames
from pulsar_spark.wire import pulsar_pb2 as pb
command = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())
assert pb.BaseCommand.FromString(frames.encode_command(command)[8:]) == command
assert frames.crc32c(b"123456789") == 0xE3069283
print("crc32c" in sys.modules, google.protobuf.__file__)
"""
    done = python(code, jar, site)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["False", f"{jar}/pulsar_spark/carried/google/protobuf/__init__.py"]


def test_what_is_installed_wins(jar, site, tmp_path):
    (tmp_path / "google" / "protobuf").mkdir(parents=True)
    (tmp_path / "google" / "protobuf" / "__init__.py").write_text("__version__ = '4.25.3'")
    done = python("import pulsar_spark", jar, site, tmp_path)
    assert "[PULSAR_LIBRARY] protobuf 4.25.3 is too old: pulsar_spark needs 5.29.6 or newer" in done.stderr


@pytest.mark.parametrize("name", ["numpy", "pyarrow", "protobuf"])
def test_a_folder_is_no_library(site, tmp_path, name):
    """spark-core's jar, which is on the path on YARN, has a folder google/protobuf."""
    (tmp_path / "google" / "protobuf").mkdir(parents=True)
    for other in ("numpy", "pyarrow"):
        if other == name:
            (tmp_path / other).mkdir()
        else:
            (tmp_path / other).symlink_to(site / other)
    done = python("import pulsar_spark", tmp_path, ROOT)
    why = "module 'numpy' has no" if name == "numpy" else f"{name} is not installed"
    assert f"[PULSAR_LIBRARY] pulsar_spark cannot be used by {sys.executable}: {why}" in done.stderr


def test_what_is_missing_is_named_at_once(jar, site, tmp_path):
    (tmp_path / "numpy").symlink_to(site / "numpy")
    done = python("import pulsar_spark", jar, tmp_path)
    last = done.stderr.splitlines()[-1]
    why = f"pulsar_spark cannot be used by {sys.executable}: No module named 'pyarrow'"
    assert f"[PULSAR_LIBRARY] {why}" in last
    assert "pip install" in last


def test_the_oldest_versions_are_those_of_setup_cfg():
    code = "from pulsar_spark.libraries import OLDEST; print(OLDEST)"
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].split("\n")
    wanted = dict(line.split(" >= ") for line in lines if " >= " in line)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    oldest = eval(done.stdout)
    assert oldest == {name: tuple(map(int, wanted[name].split("."))) for name in oldest}


def test_no_call_of_arrow_needs_pandas():
    """In PyArrow 18, even ``to_pandas_dtype`` of a type of numbers does."""
    for file in (ROOT / "pulsar_spark").rglob("*.py"):
        assert "to_pandas" not in file.read_text(encoding="utf-8"), file


def test_no_module_imports_pandas():
    """It takes long, and no planner needs it. Arrow imports it with its first array."""
    code = """
import importlib, pkgutil, sys, pulsar_spark
for module in pkgutil.walk_packages(pulsar_spark.__path__, "pulsar_spark."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        assert "pandas" not in sys.modules, module.name
print(len([name for name in sys.modules if name.startswith("pulsar_spark.")]))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) > 150
