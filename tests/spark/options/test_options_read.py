"""Each option is read, and what is made of it is read by code outside of the tables."""

import ast
from pathlib import Path

import pytest

from tests.test_modules import ROOT

OPTIONS = ROOT / "pulsar_spark" / "spark" / "options"


def trees(paths):
    return [ast.parse(path.read_text()) for path in paths]


def names_of_options(tree):
    """The variables of a module that hold options: ``_TOPIC = SOURCE.add(...)``."""
    return {
        ast.unparse(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "add"
    }


def reads_of(tree, name):
    """Nodes that read a variable, other than its definition and tables of names."""
    return [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name
    ]


def fields_made_of(tree):
    """Names of keyword arguments whose value is one of ``values[OPTION]``, by option."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg:
            for part in ast.walk(node.value):
                if isinstance(part, ast.Subscript) and ast.unparse(part.value) == "values":
                    found.setdefault(ast.unparse(part.slice), set()).add(node.arg)
    return found


def read_attributes(paths):
    return {
        node.attr
        for tree in trees(paths)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def unread(options, others):
    """Options that nothing reads, and fields made of options that nothing outside of the tables reads."""
    attributes = read_attributes(others)
    modules = trees(options)
    for module in modules:
        for name in names_of_options(module):
            if not any(reads_of(each, name) for each in modules):
                yield name
            for each in modules:
                for field in fields_made_of(each).get(name, ()):
                    if field not in attributes:
                        yield f"{name} as {field}"


def test_all_that_users_can_set_is_read():
    options = sorted(OPTIONS.glob("*.py"))
    others = [
        path
        for path in (ROOT / "pulsar_spark").rglob("*.py")
        if OPTIONS not in path.parents and not path.stem.endswith("_pb2")
    ]
    assert sum(len(names_of_options(tree)) for tree in trees(options)) > 90
    assert list(unread(options, others)) == []


@pytest.mark.parametrize(
    ("made", "used", "found"),
    [
        ("def f(values): return C(topic=values[_TOPIC])", "print(c.topic)", []),
        ("def f(values): return C(topic=values[_TOPIC])", "c.topic = 1", ["_TOPIC as topic"]),
        ("def f(values): return C(topic=check(values[_TOPIC]))", "", ["_TOPIC as topic"]),
        ("def f(values): return 1", "print(c.topic)", ["_TOPIC"]),
    ],
)
def test_an_option_that_nothing_reads_is_found(tmp_path: Path, made, used, found):
    options, other = tmp_path / "options.py", tmp_path / "other.py"
    options.write_text(f'_TOPIC = SOURCE.add("topic")\n{made}\n')
    other.write_text(used)
    assert list(unread([options], [other])) == found
