"""Find the Java that runs the broker and, where there is no `mvn`, Maven."""

from __future__ import annotations

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
