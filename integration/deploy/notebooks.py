"""The quickstart as a notebook, in a plain session of Spark and in two of Spark Connect.

The notebook has the code of the page in its order, and a table by pandas; each table of the page must be
printed in its place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from integration.broker import StandaloneBroker
from integration.deploy.environments import Environment, installed
from integration.deploy.ways import connect_server
from integration.docs import ROOT, blocks

_PAGE = ROOT / "docs" / "quickstart.md"
_TABLE_BY_PANDAS = 'result.selectExpr("CAST(value AS STRING) AS count").sort("count").toPandas()'


def run_notebooks(home: Path, wheel: str, broker: StandaloneBroker) -> None:
    """Run it in each kind of session.

    Raises:
        AssertionError: a cell failed, or printed another table than the page shows.
    """
    # Of pyspark the extra, as in docs/deploying.md; the others are what runs a notebook without a browser.
    environment = installed(
        home / "environment",
        sys.executable,
        wheel,
        "pyspark[connect]>=4.2",
        "pandas<3",
        "nbclient",
        "ipykernel",
    )
    _run(environment, home / "plain", broker, {})
    with connect_server(environment, home, "local[2]") as address:
        _run(environment, home / "connect", broker, {"SPARK_REMOTE": address})
    own_server = {"SPARK_REMOTE": "local[2]", "PYSPARK_PYTHON": str(environment.python)}
    _run(environment, home / "own-server", broker, own_server)


def _run(environment: Environment, home: Path, broker: StandaloneBroker, variables: dict[str, str]) -> None:
    home.mkdir()
    notebook = home / "quickstart.ipynb"
    notebook.write_text(json.dumps(_notebook(home, broker.service_url)))
    # The environment is not active: what Jupyter starts has the PATH of whoever started Jupyter.
    here = {name: os.environ[name] for name in ("PATH", "HOME")} | {"SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(environment.python.with_name("jupyter-execute")), "--inplace", str(notebook)]
    done = subprocess.run(
        command, cwd=home, env=here | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = "".join(
        "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
        for cell in json.loads(notebook.read_text())["cells"]
        for output in cell["outputs"]
        if output.get("name") != "stderr"
    )
    for table in (block.text for block in blocks(_PAGE, "text")):
        _, found, printed = printed.partition(table)
        assert found, f"{home.name}: this is not printed in its place:\n{table}"
    assert "  count\n0     1\n1     2" in printed, printed
    for topic in broker.admin.topics():  # the next session finds none
        broker.admin.delete_topic(topic)


def _notebook(home: Path, service_url: str) -> dict[str, object]:
    """The page's code as a notebook; each session begins with `register`, as the page says."""
    first, *others = (block.text for block in blocks(_PAGE, "python"))
    register = "import pulsar_spark\n\npulsar_spark.register(spark)"
    opened = 'spark = SparkSession.builder.appName("quickstart").getOrCreate()\n'
    assert opened in first
    codes = [first.replace(opened, f"{opened}{register}\n"), *others, _TABLE_BY_PANDAS, "spark.stop()"]
    cells = []
    for number, code in enumerate(codes):
        source = code.replace("pulsar://localhost:6650", service_url)
        source = source.replace('"checkpoints/', f'"{home}/checkpoints/')  # a server has its own folder
        cell = {"cell_type": "code", "id": f"cell-{number}", "source": source}
        cells.append(cell | {"metadata": {}, "outputs": [], "execution_count": None})
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}
