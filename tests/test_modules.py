"""Every module of the package has a test file of its own, or its reason here why not."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A reason names the file that covers the module, from the project's root.
REASONS = {
    "__main__.py": "one call of the command line, which integration/ops/test_cli_subscriptions.py starts",
    "cli/__init__.py": "tests/cli/test_main.py",
    "cli/messages.py": "integration/ops/test_cli_messages.py: it speaks to a broker",
    "client/watches.py": "tests/client/test_topic_watch.py, test_scalable_watches.py, test_segment_watch.py",
    "client/closing.py": "tests/client/consuming/test_consumer.py",
    "client/writing/producer_options.py": "tests/client/writing/test_topic_writer_partitions.py",
    "libraries.py": "tests/cli/test_package.py imports the package without each library",
    "testing.py": "integration/ops/test_testing.py: a user's test runs with it",
    "unparsable.py": "values only",
    "wire/fields/field_walk.py": "a step of decoding: tests/wire/fields/test_batch_fields.py",
    "wire/pulsar_pb2.py": "generated: tests/test_generated.py",
    "values/encode/pieces.py": "a step of encoding: tests/values/avro/test_avro_write.py",
    "values/json/json_text.py": "a step of encoding: tests/values/json/test_json_write.py",
    "values/encode/column_values.py": "a step of encoding: tests/values/avro/test_avro_write.py",
    "values/protobuf/readers.py": "a step: tests/values/protobuf/test_protobuf_native.py",
    "values/protobuf/plan.py": "a step: tests/values/protobuf/test_protobuf_native.py",
    "values/json/budget.py": "a step: tests/values/json/test_unions.py, tests/values/test_item_counts.py",
    "values/protobuf/costs.py": "a step of reading: tests/values/test_value_bounds.py",
    "values/avro/value_ends.py": "a step of decoding: tests/values/avro/test_avro_read.py",
    "values/avro/items.py": "a step of decoding: tests/values/avro/test_avro_read.py",
    "values/avro/steps.py": "a step of decoding: tests/values/avro/test_avro_read.py",
    "values/avro/check_value.py": "a step of decoding: tests/values/avro/test_avro_read.py",
    "values/interfaces.py": "tests/values/encode/test_field_fit.py",
    "wire/entry/entry_fields.py": "a step of decoding: tests/wire/entry/test_entries.py",
}

HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def needs_test(path, source):
    """Whether a module has code of its own; an `__init__.py` that only imports has none."""
    defines = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return path.name != "__init__.py" or any(isinstance(node, defines) for node in ast.parse(source).body)


def own_test(module):
    return module.with_name(f"test_{module.name}")


def findings(modules, tests, reasons):
    """What is wrong, one line each.

    Args:
        modules: paths below pulsar_spark of the modules that need a test.
        tests: paths below tests of all test files.
        reasons: as REASONS.
    """
    for module in sorted(modules):
        has_test = own_test(module) in tests
        if has_test and str(module) in reasons:
            yield f"{module} has its test file: take it out of REASONS"
        elif not has_test and str(module) not in reasons:
            yield f"{module} has neither tests/{own_test(module)} nor a reason in REASONS"
    for name in sorted(reasons):
        if Path(name) not in modules:
            yield f"{name} is no module that needs a test: take it out of REASONS"


def test_every_module_has_its_test_file_or_a_reason():
    package = ROOT / "pulsar_spark"
    modules = {
        path.relative_to(package)
        for path in package.rglob("*.py")
        if needs_test(path, path.read_text(encoding="utf-8"))
    }
    tests = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    assert list(findings(modules, tests, REASONS)) == []


def test_reasons_name_files_that_exist():
    named = [
        name
        for reason in REASONS.values()
        for name in re.findall(r"\b(?:tests|integration)/[\w/.]+\.py", reason)
    ]
    assert [name for name in named if not (ROOT / name).is_file()] == []
    without = [
        module for module, reason in REASONS.items() if "test_" not in reason and reason != "values only"
    ]
    assert without == []


def test_findings():
    module, test = Path("wire/a.py"), Path("wire/test_a.py")
    reasons = {"wire/a.py": "values only"}
    assert list(findings({module}, {test}, {})) == []
    assert list(findings({module}, set(), reasons)) == []
    assert list(findings({module}, {Path("protocol/test_a.py")}, {})) == [
        "wire/a.py has neither tests/wire/test_a.py nor a reason in REASONS"
    ]
    assert list(findings({module}, {test}, reasons)) == [
        "wire/a.py has its test file: take it out of REASONS"
    ]
    assert list(findings(set(), set(), reasons)) == [
        "wire/a.py is no module that needs a test: take it out of REASONS"
    ]


def test_an_init_needs_a_test_where_it_defines_something():
    init = Path("a/__init__.py")
    assert not needs_test(init, '"""Text."""\nfrom a.b import C\n__all__ = ["C"]')
    assert needs_test(init, "def f(): ...")
    assert needs_test(Path("a/b.py"), "")


def detached_texts(source):
    """Lines of texts that nothing uses and that document nothing: a part that was cut off from a message."""
    for parent in ast.walk(ast.parse(source)):
        body = getattr(parent, "body", None)
        before = parent if isinstance(parent, HAVE_DOCSTRINGS) else None
        for node in body if isinstance(body, list) else ():
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr)
            documents = before is parent or isinstance(before, ast.Assign | ast.AnnAssign)
            if is_text and not documents and ast.unparse(node) != "...":
                yield node.lineno
            before = node


def test_no_text_is_detached():
    files = [path for path in (ROOT / "pulsar_spark").rglob("*.py") if not path.stem.endswith("_pb2")]
    assert len(files) > 100
    assert {path.name: lines for path in files if (lines := [*detached_texts(path.read_text())])} == {}


def test_a_detached_text_is_found():
    assert [*detached_texts('"""Doc."""\nx = 1\n"""Of x."""\ndef f():\n    return "a "\n"b"\n')] == [6]
    assert [*detached_texts('class A:\n    """Doc."""\n    if f():\n        g("a ")\n        f"b{c}"\n')] == [
        5
    ]
