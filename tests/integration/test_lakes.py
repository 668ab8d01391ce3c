"""The recipes for Delta and Iceberg say what is run."""

import re

from integration.deploy.lakes import DELTA, ICEBERG
from integration.docs import ROOT


def first_line(recipe):
    page = (ROOT / "docs" / "recipes.md").read_text()
    return re.search(rf"\n## {recipe.heading}\n\n(.+)", page)[1]


def test_the_first_line_for_delta_names_the_versions_of_the_commands():
    (spark,), arguments = DELTA.commands()
    delta = arguments[arguments.index("--packages") + 1].rpartition(":")[2]
    assert f"Spark {spark.removeprefix('pyspark==')} and Delta {delta}" in first_line(DELTA)


def test_the_first_line_for_iceberg_names_the_versions_of_the_commands():
    (spark, iceberg), arguments = ICEBERG.commands()
    assert not arguments
    versions = f"Spark {spark.removeprefix('pyspark==')} and PyIceberg {iceberg.rpartition('==')[2]}"
    assert versions in first_line(ICEBERG)
