"""A small local Spark for the demo, the benchmark, the fault runs and the tests: set up in one place."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


# What spares time and memory: a short run is over before the second compiler has paid.
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def local_spark(
    home: Path, name: str, settings: Mapping[str, str], cores: str = "2", java: str = ""
) -> SparkSession:
    """Start Spark in this process.

    Args:
        cores: how many, or ``*`` for all.
        java: options of its JVM.
    """
    # Spark's workers are this Python, and import this package from the checkout, installed or not.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    builder = SparkSession.builder.master(f"local[{cores}]").appName(f"pulsar_spark {name}")
    return builder.config(map={**_usual(home, java), **settings}).getOrCreate()


def _usual(home: Path, java: str) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} {java}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.log.level": "ERROR",
    }
