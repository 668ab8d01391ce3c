"""Who may import whom: spark, cli -> client -> protocol -> wire, sockets and clocks in client, no cycles."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("pulsar_spark", "pyspark_pulsar")

# What a layer may import of this project: itself, what is below it, and the two modules under them all.
BELOW = {
    "errors": set(),
    "ids": {"errors"},
    "libraries": {"errors"},
    "wire": {"errors", "ids"},
    "protocol": {"errors", "ids", "wire"},
    "client": {"errors", "ids", "wire", "protocol"},
    "spark": {"errors", "ids", "wire", "protocol", "client"},
    "cli": {"errors", "ids", "wire", "protocol", "client"},
    "__main__": {"cli"},
    "pulsar_spark": {"errors", "ids", "libraries", "wire", "protocol", "client", "spark"},
    "pyspark_pulsar": {"errors", "ids", "wire", "protocol", "client", "spark", "pulsar_spark"},
}
BLOCKING = (
    *("socket", "ssl", "select", "selectors", "time", "sched", "threading", "_thread", "queue"),
    *("concurrent", "asyncio", "multiprocessing"),
)
ONLY_IN = {**{name: {"client"} for name in BLOCKING}, "pyspark": {"spark", "pyspark_pulsar"}}
BACK_DOORS = {"__import__", "import_module", "exec", "eval"}


def layer_of(module):
    """The layer that a module of this project belongs to."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] or top if top == "pulsar_spark" else top


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imported_names(node, module, is_package):
    """Absolute names that one import statement asks for; ``from a import b`` gives ``a.b``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    origin = node.module or ""
    if node.level:
        keep = len(module.split(".")) - node.level + (1 if is_package else 0)
        origin = ".".join([*module.split(".")[:keep], *filter(None, [origin])])
    return [f"{origin}.{alias.name}" for alias in node.names]


def allowed_places(tree):
    """Ids of the import statements that stand where imports belong: the head of the file."""
    places = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            break
        if isinstance(node, ast.Import | ast.ImportFrom):
            places.add(id(node))
        elif is_type_checking(node) or isinstance(node, ast.Try):
            places.update(id(inner) for inner in node.body)
    return places


def place_violations(tree, module):
    heads = allowed_places(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in heads:
            yield f"{module}:{node.lineno} imports elsewhere than at its head"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in BACK_DOORS:
                yield f"{module}:{node.lineno} calls {called}"


def name_violations(names, module, lineno):
    layer = layer_of(module)
    for name in names:
        top = name.partition(".")[0]
        if top in PACKAGES:
            target = layer_of(name)
            # `import pulsar_spark` alone, or a name of the root package, is the root package's layer.
            target = target if target in BELOW else "pulsar_spark"
            if target != layer and target not in BELOW[layer]:
                yield f"{module}:{lineno} is in {layer} and imports {name}"
        elif top in ONLY_IN and layer not in ONLY_IN[top]:
            yield f"{module}:{lineno} is in {layer} and imports {name}"


def imports(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def violations(sources):
    """All violations in ``{module: (source, is_package)}``, one line each."""
    found = []
    graph = {}
    for module, (source, is_package) in sources.items():
        tree = ast.parse(source)
        found.extend(place_violations(tree, module))
        graph[module] = set()
        for node in imports(tree):
            names = imported_names(node, module, is_package)
            found.extend(name_violations(names, module, node.lineno))
            graph[module].update(target for name in names if (target := resolved(name, sources)))
    found.extend(f"import cycle: {' -> '.join(cycle)}" for cycle in [find_cycle(graph)] if cycle)
    return found


def resolved(name, sources):
    """The module that an imported name is or lives in; None outside of this project."""
    return next((one for one in (name, name.rpartition(".")[0]) if one in sources), None)


def find_cycle(graph):
    """One path that returns to its beginning, or an empty list."""
    done = set()

    def visit(module, path):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        found = next(filter(None, (visit(target, [*path, module]) for target in sorted(graph[module]))), [])
        done.add(module)
        return found

    return next(filter(None, (visit(module, []) for module in sorted(graph))), [])


def project_sources():
    sources = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1].endswith("_pb2"):
                continue  # generated: looked at by test_generated, and it imports protobuf only
            is_package = parts[-1] == "__init__"
            sources[".".join(parts[:-1] if is_package else parts)] = path.read_text(), is_package
    return sources


def test_the_project_keeps_to_its_layers():
    sources = project_sources()
    assert {layer_of(module) for module in sources} >= {
        "errors",
        "ids",
        "wire",
        "protocol",
        "client",
        "cli",
        "spark",
    }
    assert violations(sources) == []


def test_every_file_belongs_to_a_layer():
    assert {layer_of(module) for module in project_sources()} <= set(BELOW)


BAD = {
    "wire imports protocol": ("pulsar_spark.wire.a", "from pulsar_spark.protocol import acks"),
    "wire imports protocol, plainly": ("pulsar_spark.wire.a", "import pulsar_spark.protocol.acks"),
    "wire imports protocol, relatively": ("pulsar_spark.wire.a", "from ..protocol import acks"),
    "a package's own import, relatively": ("pulsar_spark.wire", "from ..client import pool", True),
    "protocol imports client": (
        "pulsar_spark.protocol.a",
        "from pulsar_spark.client.net.deadline import Deadline",
    ),
    "client imports cli": ("pulsar_spark.client.a", "import pulsar_spark.cli"),
    "spark imports cli": ("pulsar_spark.spark.a", "from pulsar_spark import cli"),
    "cli imports spark": ("pulsar_spark.cli.a", "from pulsar_spark.spark import options"),
    "pyspark in cli": ("pulsar_spark.cli.a", "import pyspark"),
    "client imports spark": ("pulsar_spark.client.a", "import pulsar_spark.spark.rows.read"),
    "errors imports ids": ("pulsar_spark.errors", "from pulsar_spark.ids import MessageId"),
    "a layer imports the root": ("pulsar_spark.wire.a", "from pulsar_spark import version"),
    "the package imports its entry": ("pulsar_spark.spark.a", "import pyspark_pulsar"),
    "only for types": (
        "pulsar_spark.wire.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pulsar_spark.client import Client",
    ),
    "a clock in protocol": ("pulsar_spark.protocol.a", "import time"),
    "a clock in spark": ("pulsar_spark.spark.a", "from time import sleep"),
    "a thread in wire": ("pulsar_spark.wire.a", "from concurrent.futures import Future"),
    "a socket in protocol": ("pulsar_spark.protocol.a", "import socket as s"),
    "TLS in spark": ("pulsar_spark.spark.a", "import ssl"),
    "pyspark in client": ("pulsar_spark.client.a", "from pyspark.sql import Row"),
    "inside a function": ("pulsar_spark.client.a", "def f():\n    import json"),
    "inside a method": (
        "pulsar_spark.client.a",
        "class A:\n    def f(self):\n        from json import loads",
    ),
    "at the end": ("pulsar_spark.client.a", "class A: ...\nimport json"),
    "at the end, for types": (
        "pulsar_spark.client.a",
        "from typing import TYPE_CHECKING\ndef f(): ...\nif TYPE_CHECKING:\n    import json",
    ),
    "in the branch that runs": (
        "pulsar_spark.client.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import json",
    ),
    "behind a condition": ("pulsar_spark.client.a", "import sys\nif sys.argv:\n    import json"),
    "by name": ("pulsar_spark.client.a", "import importlib\njson = importlib.import_module('json')"),
    "by the builtin": ("pulsar_spark.client.a", "def f():\n    return __import__('json')"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_source_is_caught(case):
    module, source, is_package = (*case, False)[:3]
    sources = {module: (source, is_package)}
    assert len(violations(sources)) == 1


def test_a_cycle_is_caught():
    sources = {
        "pulsar_spark.client": ("from pulsar_spark.client.a import A", True),
        "pulsar_spark.client.a": ("from pulsar_spark.client import b", False),
        "pulsar_spark.client.b": ("import pulsar_spark.client.c", False),
        "pulsar_spark.client.c": ("from pulsar_spark.client.a import A", False),
    }
    (found,) = violations(sources)
    assert "client.a -> pulsar_spark.client.b -> pulsar_spark.client.c -> pulsar_spark.client.a" in found


def test_good_sources_pass():
    sources = {
        "pulsar_spark.errors": ("import re", False),
        "pulsar_spark.wire": ("", True),
        "pulsar_spark.wire.a": ("from pulsar_spark.errors import PulsarError\nimport struct", False),
        "pulsar_spark.client": ("from .b import B", True),
        "pulsar_spark.client.b": (
            '"""Text."""\nfrom __future__ import annotations\nimport time, socket\n'
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..wire.a import A\nX = 1\n"
            "def f(): ...",
            False,
        ),
        "pulsar_spark.spark.c": ("import pyspark.sql\nfrom pulsar_spark.client import B", False),
        "pyspark_pulsar": (
            "try:\n    from pulsar_spark.spark.c import C\nexcept ImportError:\n    C = None",
            True,
        ),
    }
    assert violations(sources) == []
