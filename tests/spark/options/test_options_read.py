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
        and node.value.func.attr in ("add", "add_optional")
    }


def names_read(tree):
    """The variables that functions read: not definitions and tables of names."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.id for each in functions for node in ast.walk(each) if isinstance(node, ast.Name)}


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
    read = set().union(*map(names_read, modules))
    made = [fields_made_of(each) for each in modules]
    for name in (name for module in modules for name in names_of_options(module)):
        if name not in read:
            yield name
        fields = (field for each in made for field in each.get(name, ()))
        yield from (f"{name} as {field}" for field in fields if field not in attributes)


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
