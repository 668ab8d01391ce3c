import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pulsar_spark
from pulsar_spark import client

PACKAGES = (pulsar_spark, client)


def names_of(package):
    """Where each name comes from, of the imports that only type checkers see."""
    tree = ast.parse(Path(package.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_that_of_its_module(package):
    for name, module in names_of(package).items():
        assert getattr(package, name) is getattr(sys.modules[module], name), name


def test_a_name_that_a_package_does_not_give():
    with pytest.raises(AttributeError, match=r"module 'pulsar_spark\.client' has no attribute 'Nothing'"):
        client.Nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Makes a package that gives the names of a module in it."""

    def make(name, inner, names):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "from typing import TYPE_CHECKING\nfrom pulsar_spark.lazy_imports import lazy_imports\n"
            f"if TYPE_CHECKING:\n    from {name}.inner import {names}\n"
            "else:\n    __getattr__ = lazy_imports(__name__)\n"
        )
        (tmp_path / name / "inner.py").write_text(inner)
        monkeypatch.syspath_prepend(tmp_path)
        return import_module(name)

    return make


def test_a_name_is_asked_for_once(packages):
    package = packages("with_two_names", "one = object()\ntwo = object()", "one, two")
    assert "one" not in vars(package)
    assert package.one is vars(package)["one"] is sys.modules["with_two_names.inner"].one
    assert "two" not in vars(package)


def test_a_module_that_lacks_something_is_not_taken_for_a_name_that_is_not_there(packages):
    """Python's ``from package import name`` says of an AttributeError only that there is no such name."""
    package = packages("with_a_late_name", "import json\nclass Name(json.Gone): pass", "Name")
    with pytest.raises(ImportError, match=r"with_a_late_name\.inner cannot be imported: .* 'Gone'") as caught:
        package.Name  # noqa: B018
    assert isinstance(caught.value.__cause__, AttributeError)


def test_names_that_are_not_imported_yet_are_shown(monkeypatch):
    """Editors complete, and ``help`` shows, what ``dir`` has."""
    for name in names_of(pulsar_spark):
        monkeypatch.delitem(vars(pulsar_spark), name, raising=False)
    assert {*pulsar_spark.__all__, "__file__"} - set(dir(pulsar_spark)) == set()


# One after the other in one process.
USED = [
    ("from pulsar_spark import PulsarError", ("spark", "client")),
    ("from pulsar_spark.client import Client", ("client.writing", "client.reading", "values")),
    (
        "import pulsar_spark.values.formats",
        ("values.json.json_read", "values.protobuf", "values.avro.avro_read"),
    ),
    (
        "from pulsar_spark.spark.data_source import PulsarDataSource",
        ("spark.writer", "spark.sink", "values.json.json_read"),
    ),
]


def test_a_process_imports_what_it_uses():
    code = "import sys\n" + "".join(f"{used}\nprint(*sys.modules)\n" for used, _ in USED)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for (used, not_loaded), line in zip(USED, done.stdout.splitlines(), strict=True):
        loaded, none_of = line.split(), tuple(f"pulsar_spark.{part}" for part in not_loaded)
        assert "pulsar_spark.errors" in loaded
        assert [each for each in loaded if each.startswith(none_of)] == [], used
