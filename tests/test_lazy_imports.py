import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pulsar_spark
from pulsar_spark import client
from pulsar_spark.lazy_imports import lazy_imports

PACKAGES = (pulsar_spark, client)


def block_of(package):
    """The statement ``if TYPE_CHECKING``."""
    tree = ast.parse(Path(package.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return block


def names_for_types(package):
    """Where each name comes from, of the imports that only type checkers see."""
    imports = [node for node in block_of(package).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def names_at_run_time(package):
    """What they do not see: they would take a ``__getattr__`` to give any name, and find no wrong one."""
    (call,) = (
        node
        for statement in block_of(package).orelse
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_imports"
    )
    modules = ast.literal_eval(call.args[1])
    return {name: module for module, names in modules.items() for name in names.split()}


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_gives_is_what_type_checkers_see(package):
    assert names_at_run_time(package) == names_for_types(package) != {}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_that_of_its_module(package):
    for name, module in names_for_types(package).items():
        assert getattr(package, name) is getattr(sys.modules[module], name), name


def test_a_name_that_a_package_does_not_give():
    with pytest.raises(AttributeError, match=r"module 'pulsar_spark\.client' has no attribute 'Nothing'"):
        client.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_is_asked_for_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "package", type(sys)("package"))
    get = lazy_imports("package", {"json": "loads dumps"})
    assert get("dumps") is sys.modules["package"].dumps
    assert not hasattr(sys.modules["package"], "loads")


def test_a_module_that_lacks_something_is_not_taken_for_a_name_that_is_not_there(tmp_path, monkeypatch):
    """Python's ``from package import name`` says of an AttributeError only that there is no such name."""
    (tmp_path / "with_a_late_name").mkdir()
    late = "from pulsar_spark.lazy_imports import lazy_imports"
    package = f"{late}\n__getattr__ = lazy_imports(__name__, {{'with_a_late_name.inner': 'Name'}})"
    (tmp_path / "with_a_late_name/__init__.py").write_text(package)
    (tmp_path / "with_a_late_name/inner.py").write_text("import json\nclass Name(json.Gone): pass")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"with_a_late_name\.inner cannot be imported: .* 'Gone'") as caught:
        import_module("with_a_late_name").Name  # noqa: B018
    assert isinstance(caught.value.__cause__, AttributeError)


def test_names_that_are_not_imported_yet_are_shown(monkeypatch):
    """Editors complete, and ``help`` shows, what ``dir`` has."""
    for name in names_for_types(pulsar_spark):
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
