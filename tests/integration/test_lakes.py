"""The recipes for Delta and Iceberg say what is run, and their blocks make scripts."""

import ast
import re

import pytest

from integration.deploy.lakes import DELTA, ICEBERG
from integration.docs import ROOT


@pytest.mark.parametrize("recipe", [DELTA, ICEBERG], ids=lambda recipe: recipe.heading)
def test_the_first_line_names_the_versions_of_the_commands(recipe):
    page = (ROOT / "docs" / "recipes.md").read_text()
    first_line = re.search(rf"\n## {recipe.heading}\n\n(.+)", page)[1]
    requirements, arguments = recipe.commands()
    assert f"Spark {requirements[0].removeprefix('pyspark==')}" in first_line
    package = arguments[arguments.index("--packages") + 1]
    assert f"{recipe.heading.split()[0]} {package.rpartition(':')[2]}" in first_line


@pytest.mark.parametrize("recipe", [DELTA, ICEBERG], ids=lambda recipe: recipe.heading)
def test_each_query_of_a_script_runs_for_ever_or_to_the_end(recipe):
    for_ever, to_end = recipe.script(to_end=False), recipe.script(to_end=True)
    for script in (for_ever, to_end):
        ast.parse(script)
        assert recipe.copy in script
    queries = len(re.findall(r"\.writeStream\b", for_ever))
    assert queries == 3
    assert to_end.count(".awaitTermination()") == to_end.count("availableNow=True") == queries
    folders = re.findall(r'"checkpointLocation", "(/lake/checkpoints/[\w-]+)"', for_ever)
    assert len(set(folders)) == queries
