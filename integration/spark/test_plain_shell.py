"""A user's program where nothing says which Python Spark takes, and ``python3`` of the PATH is another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration.deploy.environments import link, linked
from integration.helpers.local_spark import ROOT

PROGRAM = """
import sys
import pulsar_spark
from pyspark.sql import SparkSession

service_url, topic, checkpoint, is_registered = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
if is_registered == "True":
    pulsar_spark.register(spark)
options = {"service.url": service_url, "topic": topic}
rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("pulsar").options(**options).mode("append").save()
rows = spark.readStream.format("pulsar").options(**options).option("startingOffsets", "earliest").load()
query = rows.writeStream.format("memory").queryName("found").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
doubled = spark.udf.register("doubled", lambda number: 2 * number, "int")
values = spark.sql("SELECT doubled(CAST(CAST(value AS STRING) AS INT)) AS n FROM found").collect()
print(sorted(row.n for row in values))
"""


@pytest.fixture
def environment(tmp_path):
    """A virtual environment that nobody has activated, with the checkout's package."""
    made = linked(tmp_path / "environment")
    for name in ("protobuf", "crc32c", "msgspec"):
        link(name, made.site)
    for name in ("pulsar_spark", "pyspark_pulsar"):
        (made.site / name).symlink_to(ROOT / name)
    return made


@pytest.fixture
def plain_shell(tmp_path):
    """The variables of ``env -i PATH HOME``, with a ``python3`` that has no packages."""
    folder = tmp_path / "bin"
    folder.mkdir()
    bare = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (folder / "python3").write_text(f'#!/bin/sh\nexec "{bare}" -S "$@"\n')
    (folder / "python3").chmod(0o755)
    java = shutil.which("java")
    assert java is not None
    path = os.pathsep.join([str(folder), str(Path(java).parent), "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": str(tmp_path)}


def run(environment, variables, home, *arguments):
    program = home / "program.py"
    program.write_text(PROGRAM)
    command = [str(environment.python), str(program), *arguments]
    return subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_register_lets_spark_find_the_package(environment, plain_shell, tmp_path, cluster, topic):
    given = (cluster.service_url, topic, str(tmp_path / "checkpoint"))
    done = run(environment, plain_shell, tmp_path, *given, "True")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([2 * n for n in range(10)])


@pytest.mark.long
def test_without_it_spark_says_what_the_docs_explain(environment, plain_shell, tmp_path):
    done = run(environment, plain_shell, tmp_path, "pulsar://localhost:1", "t", "unused", "False")
    assert done.returncode == 1
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: pulsar" in done.stderr
    assert "`DATA_SOURCE_NOT_FOUND`" in (ROOT / "docs" / "errors.md").read_text()
