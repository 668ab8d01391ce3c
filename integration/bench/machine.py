"""What a run was measured on, without names of hosts, users or folders."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from pulsar_spark_broker.jars import pulsar_version
from pulsar_spark_broker.java import java

_PACKAGES = ("pyspark", "pyarrow", "numpy", "protobuf", "pulsar-client")


def facts() -> dict[str, str]:
    """Name and value of what rates depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "Pulsar": f"{pulsar_version()}, one standalone broker on the same machine",
        "Java": _java_version(),
        "Python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    answer = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    return answer.stderr.split('"')[1]
