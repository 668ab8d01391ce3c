import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_spark
from pulsar_spark import client
from pulsar_spark.late_names import late_names

PACKAGES = (pulsar_spark, client)


def tree_of(package):
    return ast.parse(Path(package.__file__).read_text())


def names_for_types(package):
    """Where each name comes from, of the imports that only type checkers see."""
    (block,) = (node for node in tree_of(package).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def names_at_run_time(package):
    (call,) = (
        node
        for node in ast.walk(tree_of(package))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "late_names"
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
        client.Nothing  # noqa: B018


def test_a_name_is_asked_for_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "package", type(sys)("package"))
    get = late_names("package", {"json": "loads dumps"})
    assert get("dumps") is sys.modules["package"].dumps
    assert not hasattr(sys.modules["package"], "loads")


@pytest.mark.parametrize(
    ("used", "not_loaded"),
    [
        ("from pulsar_spark.client import Client", ("client.writing", "client.reading", "values")),
        (
            "from pulsar_spark.spark.data_source import PulsarDataSource",
            ("spark.writer", "spark.sink", "values.json.json_read"),
        ),
        (
            "import pulsar_spark.values.formats",
            ("values.json.json_read", "values.protobuf", "values.avro.avro_read"),
        ),
        ("from pulsar_spark import PulsarError", ("spark", "client")),
    ],
)
def test_a_process_imports_what_it_uses(used, not_loaded):
    code = f"import sys\n{used}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "pulsar_spark.errors" in loaded
    assert [
        each for each in loaded if each.startswith(tuple(f"pulsar_spark.{part}" for part in not_loaded))
    ] == []
