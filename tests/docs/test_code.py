"""Blocks of code are in a language that is known, and name what exists: modules, options, commands."""

import ast
import importlib.util
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from integration.__main__ import COMMANDS
from integration.docs import PAGES, ROOT, blocks
from pulsar_spark.cli import parser
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE

OPTIONS = {option.name.lower() for option in (*CONNECTION, *SOURCE, *SINK)}
SPARKS_OPTIONS = {"checkpointlocation", "path"}
# Commands that no environment of ours has.
ELSEWHERE = {"docker", "protoc", "venv-pack"}
# Modules that no environment of ours has; `python3 -m integration deploy` installs them.
MODULES_ELSEWHERE = {"pyiceberg"}
DIRECTIVES = {"{toctree}", "{literalinclude}", "{eval-rst}"}
BUILT_IN = {".", "export"}

BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "sh"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def commands(text):
    """The words of each command of a shell text."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def test_the_language_is_known():
    for block in BLOCKS:
        name, _, argument = block.language.partition(" ")
        assert name in {"python", "sh", "json", "text", *DIRECTIVES, ""}, block.place
        if name == "{literalinclude}":
            assert (block.page.parent / argument).is_file(), block.place
        if name == "json":
            json.loads(block.text)


def test_python_compiles_and_imports_what_exists():
    for block in PYTHON:
        # A block may begin in the middle of a chain of calls.
        text = f"(reader\n{block.text}\n)" if block.text.startswith(".") else block.text
        for node in ast.walk(ast.parse(text, block.place)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] not in MODULES_ELSEWHERE:
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{block.place}: {node.module} has no {alias.name}"
            for name in names:
                assert importlib.util.find_spec(name), f"{block.place}: there is no module {name}"


def test_options_exist():
    texts = {block.place: block.text for block in PYTHON}
    texts |= {file.name: file.read_text() for file in EXAMPLES}
    for place, text in texts.items():
        for name in re.findall(r'\boption\("([^"]+)"', text):
            assert name.lower() in OPTIONS | SPARKS_OPTIONS, f"{place}: there is no option {name}"


def test_options_that_are_named_with_their_prefix_exist():
    for page in PAGES:
        for name in re.findall(r"`(pulsar\.(?:client|producer|reader)\.\w+)", page.read_text()):
            assert name.lower() in OPTIONS, f"{page.name}: there is no option {name}"


def test_commands_exist():
    for block in SHELL:
        check_commands(block)


def check_commands(block):
    for words in commands(block.text):
        command, *rest = words
        name = Path(command).name or command
        if name == "pulsar_spark":
            parser().parse_args(rest)
        elif name in {"python", "python3"}:
            check_python(rest)
        elif name not in ELSEWHERE | BUILT_IN:
            beside = Path(sys.executable).with_name(name)
            assert beside.exists() or shutil.which(name), f"{block.place}: there is no {name}"
        for word in rest:
            if word.startswith(("examples/", "proto/", "integration/", "tests/", "docs/")):
                assert (ROOT / word).exists(), f"{block.place}: there is no {word}"


def check_python(words):
    if words[0] != "-m":
        assert any((folder / words[0]).is_file() for folder in (ROOT, ROOT / "examples")), words[0]
        return
    _, module, *rest = words
    assert importlib.util.find_spec(module), f"there is no module {module}"
    if module == "integration":
        assert rest[0] in COMMANDS, f"python3 -m integration has no {rest[0]}"
