"""Blocks of code are in a language that is known, and name what exists: modules, options, commands."""

import ast
import importlib.util
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from integration.__main__ import COMMANDS
from integration.docs import PAGES, ROOT, blocks
from pulsar_spark.cli import parser
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE

OPTIONS = {option.name.lower() for option in (*CONNECTION, *SOURCE, *SINK)}
SPARKS_OPTIONS = {"checkpointlocation"}
# Commands that no environment of ours has.
ELSEWHERE = {"docker", "pulsar-admin", "venv-pack"}
BUILT_IN = {".", "export"}

BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "sh"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def each(found):
    return pytest.mark.parametrize("block", found, ids=lambda block: block.place)


def commands(text):
    """The words of each command of a shell text."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


@each(BLOCKS)
def test_the_language_is_known(block):
    name, _, argument = block.language.partition(" ")
    assert name in {"python", "sh", "json", "text", "{toctree}", "{literalinclude}", ""}, block.language
    if name == "{literalinclude}":
        assert (block.page.parent / argument).is_file()
    if name == "json":
        json.loads(block.text)


@each(PYTHON)
def test_python_compiles_and_imports_what_exists(block):
    # A block may begin in the middle of a chain of calls.
    text = f"(reader\n{block.text}\n)" if block.text.startswith(".") else block.text
    for node in ast.walk(ast.parse(text, block.place)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"
        for name in names:
            assert importlib.util.find_spec(name), f"there is no module {name}"


@pytest.mark.parametrize(
    "text",
    [block.text for block in PYTHON] + [file.read_text() for file in EXAMPLES],
    ids=[block.place for block in PYTHON] + [file.name for file in EXAMPLES],
)
def test_options_exist(text):
    for name in re.findall(r'\boption\("([^"]+)"', text):
        assert name.lower() in OPTIONS | SPARKS_OPTIONS, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_named_with_their_prefix_exist(page):
    for name in re.findall(r"`(pulsar\.(?:client|producer|reader)\.\w+)", page.read_text()):
        assert name.lower() in OPTIONS, name


@each(SHELL)
def test_commands_exist(block):
    for words in commands(block.text):
        command, *rest = words
        name = Path(command).name or command
        if name == "pulsar_spark":
            parser().parse_args(rest)
        elif name in {"python", "python3"}:
            check_python(rest)
        elif name not in ELSEWHERE | BUILT_IN:
            beside = Path(sys.executable).with_name(name)
            assert beside.exists() or shutil.which(name), f"there is no {name}"
        for word in rest:
            if word.startswith(("examples/", "proto/", "integration/", "tests/", "docs/")):
                assert (ROOT / word).exists(), word


def check_python(words):
    if words[0] != "-m":
        assert (ROOT / words[0]).is_file(), words[0]
        return
    _, module, *rest = words
    assert importlib.util.find_spec(module), f"there is no module {module}"
    if module == "integration":
        assert rest[0] in COMMANDS, f"python3 -m integration has no {rest[0]}"
