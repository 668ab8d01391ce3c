"""Who may import whom: spark, cli -> client -> protocol -> wire and values -> arrow, no cycles.

Sockets and clocks are in client. wire and values do not know each other. The embedded broker knows only
itself, and testing alone knows it.

Within protocol, client and spark folders have an order, too. A folder says what it owns and holds few
modules, and no two public classes share a name.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.loops import for_each

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("pulsar_spark", "pulsar_spark_broker", "pyspark_pulsar", "pyspark_pulsar_spark")

# What a layer may import of this project, besides itself.
BELOW = {
    "errors": set(),
    "ids": {"errors"},
    "libraries": {"errors"},
    "lazy_imports": set(),
    "version": set(),
    "schema": {"errors"},
    "unparsable": set(),
    "arrow": {"errors"},
    "wire": {"errors", "ids", "schema", "unparsable", "arrow"},
    "values": {"errors", "schema", "unparsable", "arrow"},
    "protocol": {"errors", "ids", "schema", "version", "arrow", "wire", "values"},
    "client": {"errors", "ids", "lazy_imports", "schema", "arrow", "wire", "values", "protocol"},
    "spark": {"errors", "ids", "version", "client"},
    "cli": {"errors", "ids", "version", "client", "spark", "pulsar_spark_broker"},
    "testing": {"ids", "client", "spark", "pulsar_spark_broker"},
    "__main__": {"cli"},
    "pulsar_spark": {"errors", "ids", "lazy_imports", "libraries", "version", "client", "spark"},
    "pulsar_spark_broker": set(),
    "pyspark_pulsar": {"spark"},
    "pyspark_pulsar_spark": {"spark"},
}
# The folders and modules of a layer, lowest first: each may import itself and those of lower lines. Those of
# the last line, the layer's face, may import each other. FRONT is the layer's __init__: other layers import
# of client only what that gives.
FRONT = ""
ORDER = {
    "protocol": (
        {"encryption", "lookup", "pauses", "segments"},
        {"reading", "writing"},
        {"connection", "replay", FRONT},
    ),
    "client": (
        {"closing", "parallel", "pending_calls", "net"},
        {"schemas"},
        {"client", "encryption"},
        {"login_checks", "watches"},
        {"consuming"},
        {"reading"},
        {"writing"},
        {FRONT},
    ),
    "spark": (
        {"processes", "short_errors", "spark_api"},
        {"rows"},
        {"monitoring"},
        {"options"},
        {"plan", "sink", "row_plan"},
        {"data_source", "older_spark", "reader", "writer", "progress_listener", "lineage_listener", FRONT},
    ),
}
# Modules of a folder, without __init__ and what is generated.
MAX_MODULES = {"pulsar_spark.spark.plan": 18}
MAX_MODULES_ELSEWHERE = 14

BLOCKING = (
    *("socket", "ssl", "select", "selectors", "time", "sched", "threading", "_thread", "queue"),
    *("concurrent", "asyncio", "multiprocessing"),
)
ONLY_IN = {
    **{name: {"client", "pulsar_spark_broker"} for name in BLOCKING},
    "pyspark": {"spark", "testing", "pyspark_pulsar", "pyspark_pulsar_spark"},
}
# Ways to import past the import statement, and who may use them.
BACK_DOORS = {
    **{name: set() for name in ("__import__", "run_module", "run_path", "exec", "eval")},
    # What packages give: their imports for types, which are looked at here.
    "import_module": {"pulsar_spark.lazy_imports"},
    "resolve_name": {
        "pulsar_spark.spark.options.user_code",  # what users name in options
        "pulsar_spark.client.net.auth",  # the same, of logins, which the command line takes too
        "pulsar_spark.client.encryption",  # a module that needs an extra; its name is checked as an import
        "pulsar_spark.client.net.tls",  # the same
    },
}
# Modules that import within functions, since few processes need what they import.
LATE = (
    *("pulsar_spark.cli.explain", "pulsar_spark.values.formats"),
    *("pulsar_spark.spark.data_source", "pulsar_spark.spark.lineage_listener"),
)


def layer_of(module):
    """The layer that a module of this project belongs to."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] or top if top == "pulsar_spark" else top


def part_of(module, layer):
    """The folder or module of a layer's order that a module, or a name imported from one, belongs to.

    A name that the order does not know is one of the front's: ``pulsar_spark.client.Client``.
    """
    part = [*module.split("."), FRONT, FRONT][2]
    return part if any(part in line for line in ORDER[layer]) else FRONT


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
        may_be_late = id(node) in heads or module in LATE
        if isinstance(node, ast.Import | ast.ImportFrom) and not may_be_late:
            yield f"{module}:{node.lineno} imports elsewhere than at its head"
        for name in named_in(node) & BACK_DOORS.keys():
            if module not in BACK_DOORS[name]:
                yield f"{module}:{getattr(node, 'lineno', 0)} uses {name}"


def named_in(node):
    """The names that a node by itself uses or imports, without the modules they are in."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    return {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()


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
            elif target == layer and not keeps_order(module, name, layer):
                yield f"{module}:{lineno} imports {name} against the order of {layer}"
            elif target == "client" != layer and not is_of_front(name):
                yield f"{module}:{lineno} imports {name} past the front of client"
        elif top in ONLY_IN and layer not in ONLY_IN[top]:
            yield f"{module}:{lineno} is in {layer} and imports {name}"


def keeps_order(module, name, layer):
    """Whether a module may import a name of its own layer."""
    if layer not in ORDER:
        return True
    own, other = part_of(module, layer), part_of(name, layer)
    place = {part: number for number, line in enumerate(ORDER[layer]) for part in line}
    return own == other or place[other] < place[own] or place[own] == len(ORDER[layer]) - 1


def is_of_front(name):
    """Whether an imported name of a layer with an order is its front, or one that the front gives."""
    return name.count(".") <= 2 and part_of(name, layer_of(name)) == FRONT


def folder_violations(sources):
    """Folders that do not say what they own, or hold too many modules; modules that have no place."""
    folders = {module for module, (_, is_package) in sources.items() if is_package}
    sizes = Counter(module.rpartition(".")[0] for module in sources if module not in folders)
    for folder in sorted(folders):
        if not ast.get_docstring(ast.parse(sources[folder][0])):
            yield f"{folder} does not say what it owns"
        if sizes[folder] > MAX_MODULES.get(folder, MAX_MODULES_ELSEWHERE):
            yield f"{folder} has {sizes[folder]} modules"
    for module in sources:
        folder = module.rpartition(".")[0]
        if folder and folder not in folders:
            yield f"{module} is in a folder without __init__"
        part = [*module.split("."), FRONT, FRONT][2]
        if not any(part in line for line in ORDER.get(layer_of(module), [{part}])):
            yield f"{module} has no place in the order of {layer_of(module)}"


def class_violations(sources):
    """Public classes that share a name."""
    places = {}
    for module, (source, _) in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{module}:{node.lineno}")
    for name, found in places.items():
        if len(found) > 1:
            yield f"{name} is the name of classes in {', '.join(found)}"


def imports(tree, module, is_package):
    """What a module imports: the line of each import, and absolute names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node.lineno, imported_names(node, module, is_package)
        elif isinstance(node, ast.Call) and "resolve_name" in named_in(node.func):
            literals = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield node.lineno, [str(name).rstrip(":") for name in literals]


def violations(sources):
    """All violations of imports in ``{module: (source, is_package)}``, one line each."""
    found = []
    graph = {}
    for module, (source, is_package) in sources.items():
        tree = ast.parse(source)
        found.extend(place_violations(tree, module))
        graph[module] = set()
        for lineno, names in imports(tree, module, is_package):
            found.extend(name_violations(names, module, lineno))
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
    layers = {*("errors", "ids", "arrow", "wire", "values", "protocol", "client", "cli", "spark")}
    assert {layer_of(module) for module in sources} >= layers
    assert violations(sources) == []


def test_every_file_belongs_to_a_layer():
    assert {layer_of(module) for module in project_sources()} <= set(BELOW)


def test_folders_are_small_and_say_what_they_own():
    assert list(folder_violations(project_sources())) == []


def test_no_two_public_classes_share_a_name():
    assert list(class_violations(project_sources())) == []


def test_what_may_use_a_back_door_does():
    sources = project_sources()
    for name, modules in BACK_DOORS.items():
        for module in modules:
            assert any(name in named_in(node) for node in ast.walk(ast.parse(sources[module][0]))), module


def test_the_order_knows_no_part_that_is_not_there():
    sources = project_sources()
    for layer, lines in ORDER.items():
        parts = {part for line in lines for part in line}
        assert {f"pulsar_spark.{layer}.{part}".rstrip(".") for part in parts} <= set(sources)


# Modules are of pulsar_spark, which is p in the sources.
BAD = {
    "wire imports protocol": ("wire.a", "from p.protocol import acks"),
    "wire imports protocol, plainly": ("wire.a", "import p.protocol.reading.acks"),
    "wire imports protocol, relatively": ("wire.a", "from ..protocol import acks"),
    "a package's own import, relatively": ("wire", "from ..client import pool", True),
    "wire imports values": ("wire.a", "from p.values.formats import decoder"),
    "values import wire": ("values.a", "from p.wire import pulsar_pb2"),
    "values import protocol": ("values.a", "from p.protocol import acks"),
    "arrow imports wire": ("arrow.a", "from p.wire.frames import Frame"),
    "arrow imports values": ("arrow.a", "from p.values import formats"),
    "spark imports values": ("spark.reader", "from p.values import formats"),
    "protocol imports client": ("protocol.a", "from p.client.net.deadline import Deadline"),
    "spark imports wire": ("spark.reader", "from p.wire.entry.entries import Entry"),
    "spark imports protocol": ("spark.plan.a", "import p.protocol.reading.permits"),
    "cli imports wire": ("cli.a", "from p.wire import commands"),
    "cli imports protocol": ("cli.a", "from p.protocol.lookup import Lookup"),
    "the root imports wire": ("", "from p.wire.frames import Frame", True),
    "spark imports past the front of the client": (
        "spark.reader",
        "from p.client.reading.message_range import read_ranges",
    ),
    "cli imports a part of the client": ("cli.a", "from p.client import encryption"),
    "spark imports a module of the client that the order does not know": (
        "spark.reader",
        "from p.client.new import New",
    ),
    "writing knows replays": ("protocol.writing.a", "from p.protocol.replay.stored_rows import StoredRows"),
    "reading knows writing, of rules": ("protocol.reading.a", "from p.protocol.writing import packer"),
    "connections know the client": ("client.net.a", "from p.client.client import Client"),
    "connections know reading": ("client.net.a", "from p.client.consuming.inbox import Inbox"),
    "connections run in parallel": ("client.net.a", "from p.client.parallel import run_all"),
    "the client knows encryption": ("client.client", "from p.client import encryption"),
    "reading knows writing": ("client.reading.a", "from ..writing.producer import Producer"),
    "encryption knows reading": ("client.encryption", "import p.client.consuming.consumer"),
    "a part of the client imports its front": ("client.writing.a", "from p.client import Client"),
    "rows know options": ("spark.rows.a", "from p.spark.options.source import Limits"),
    "options know the plan": ("spark.options.a", "from p.spark.plan.offsets import Offsets"),
    "options know the sink": ("spark.options.a", "from p.spark.sink import report"),
    "the plan knows the sink": ("spark.plan.a", "from ..sink.report import TaskReport"),
    "the sink knows the plan": ("spark.sink.a", "import p.spark.plan.topics"),
    "the sink knows a face": ("spark.sink.a", "from p.spark.writer import PulsarWriter"),
    "the plan knows a face, for types": (
        "spark.plan.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.spark import reader",
    ),
    "client imports cli": ("client.net.a", "import p.cli"),
    "spark imports cli": ("spark.plan.a", "from p import cli"),
    "pyspark in cli": ("cli.a", "import pyspark"),
    "client imports spark": ("client.net.a", "import p.spark.rows.read"),
    "errors imports ids": ("errors", "from p.ids import MessageId"),
    "a layer imports the root": ("wire.a", "from p import version"),
    "the package imports its entry": ("spark.plan.a", "import pyspark_pulsar"),
    "only for types": (
        "wire.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.client import Client",
    ),
    "a clock in protocol": ("protocol.a", "import time"),
    "a clock in spark": ("spark.plan.a", "from time import sleep"),
    "a thread in wire": ("wire.a", "from concurrent.futures import Future"),
    "a socket in protocol": ("protocol.a", "import socket as s"),
    "TLS in spark": ("spark.plan.a", "import ssl"),
    "pyspark in client": ("client.net.a", "from pyspark.sql import Row"),
    "inside a function": ("client.net.a", "def f():\n    import json"),
    "inside a method": ("client.net.a", "class A:\n    def f(self):\n        from json import loads"),
    "at the end": ("client.net.a", "class A: ...\nimport json"),
    "at the end, for types": (
        "client.net.a",
        "from typing import TYPE_CHECKING\ndef f(): ...\nif TYPE_CHECKING:\n    import json",
    ),
    "in the branch that runs": (
        "client.net.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import json",
    ),
    "behind a condition": ("client.net.a", "import sys\nif sys.argv:\n    import json"),
    "by name": ("client.net.a", "import importlib\njson = importlib.import_module('json')"),
    "by the builtin": ("client.net.a", "def f():\n    return __import__('json')"),
    "by pkgutil": ("client.net.a", "import pkgutil\njson = pkgutil.resolve_name('json')"),
    "by pkgutil, renamed": ("spark.plan.a", "from pkgutil import resolve_name as find"),
    "by pkgutil, kept": ("spark.reader", "import pkgutil\nfind = pkgutil.resolve_name"),
    "by runpy": ("cli.a", "import runpy\nrunpy.run_module('json')"),
    "by pkgutil where that is allowed, against the layers": (
        "client.encryption",
        "import pkgutil\npkgutil.resolve_name('p.spark.reader:')",
    ),
}


@for_each("case", BAD.values())
def test_a_bad_source_is_caught(case):
    module, source, is_package = (*case, False)[:3]
    source = re.sub(r"\bp\b(?=\.| import)", "pulsar_spark", source)
    sources = {f"pulsar_spark.{module}".rstrip("."): (source, is_package)}
    assert len(violations(sources)) == 1


BAD_FOLDERS = {
    "no docstring": {"pulsar_spark.cli": ("import re", True)},
    "a journey that is too large": {
        "pulsar_spark.cli": ('"""Text."""', True),
        **{f"pulsar_spark.cli.m{number}": ("", False) for number in range(15)},
    },
    "a layer that is too large": {
        "pulsar_spark.wire": ('"""Text."""', True),
        **{f"pulsar_spark.wire.m{number}": ("", False) for number in range(15)},
    },
    "no __init__": {"pulsar_spark.cli.a": ("", False)},
    "no place in the order": {
        "pulsar_spark.spark": ('"""Text."""', True),
        "pulsar_spark.spark.new": ("", False),
    },
}


@pytest.mark.parametrize("sources", BAD_FOLDERS.values(), ids=BAD_FOLDERS.keys())
def test_a_bad_folder_is_caught(sources):
    root = {"pulsar_spark": ('"""Text."""', True)}
    assert list(folder_violations(root)) == []
    assert len(list(folder_violations({**root, **sources}))) == 1


def test_classes_of_the_same_name_are_caught():
    sources = {
        "pulsar_spark.wire.a": ("class Chunk: ...\nclass _Kind: ...", False),
        "pulsar_spark.client.net.b": ("class _Kind: ...\nif True:\n    class Chunk: ...", False),
    }
    (found,) = class_violations(sources)
    assert found == "Chunk is the name of classes in pulsar_spark.wire.a:1, pulsar_spark.client.net.b:3"


def test_a_cycle_is_caught():
    sources = {
        "pulsar_spark.client": ("from pulsar_spark.client.net.a import A", True),
        "pulsar_spark.client.net.a": ("from pulsar_spark.client.net import b", False),
        "pulsar_spark.client.net.b": ("import pulsar_spark.client.net.c", False),
        "pulsar_spark.client.net.c": ("from pulsar_spark.client.net.a import A", False),
    }
    (found,) = violations(sources)
    assert found == "import cycle: " + " -> ".join(f"pulsar_spark.client.net.{name}" for name in "abca")


def test_good_sources_pass():
    sources = {
        "pulsar_spark.errors": ("import re", False),
        "pulsar_spark.wire": ("", True),
        "pulsar_spark.wire.a": ("from pulsar_spark.errors import PulsarError\nimport struct", False),
        "pulsar_spark.client": ("from .reading.b import B", True),
        "pulsar_spark.client.reading.b": (
            '"""Text."""\nfrom __future__ import annotations\nimport time, socket\n'
            "from pulsar_spark.client.net.deadline import Deadline\n"
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ...wire.a import A\nX = 1\n"
            "def f(): ...",
            False,
        ),
        "pulsar_spark.spark.options.user_code": (
            "import pkgutil\ndef load(name):\n    return pkgutil.resolve_name(name)",
            False,
        ),
        "pulsar_spark.spark.plan.c": (
            "import pyspark.sql\nfrom pulsar_spark.client import B\n"
            "from pulsar_spark.spark.options.user_code import load\nfrom . import d",
            False,
        ),
        "pulsar_spark.spark.plan.d": ("from pulsar_spark.spark.rows.schema import KEY", False),
        "pulsar_spark.spark.data_source": (
            "from pulsar_spark.spark import reader\nfrom pulsar_spark.spark.plan.c import C",
            False,
        ),
        "pyspark_pulsar": (
            "try:\n    from pulsar_spark.spark.data_source import C\nexcept ImportError:\n    C = None",
            True,
        ),
    }
    assert violations(sources) == []
