"""Imports the libraries that the package needs besides Spark, installed or in the jar; else raises an error.

The jar that ``pulsar_spark package`` builds contains the pure Python libraries. They are put at the end of
the path, so installed libraries win.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pulsar_spark.errors import LibraryError

CARRIED = Path(__file__).parent / "carried"
# As in setup.cfg; docs/developers/dependencies.md has the reason for each.
OLDEST = {"numpy": (1, 26), "pyarrow": (18,), "protobuf": (5, 29, 6)}

# In a zip archive, no folder can be checked.
if (CARRIED.is_dir() or not Path(__file__).exists()) and str(CARRIED) not in sys.path:
    sys.path.append(str(CARRIED))

try:
    import google.protobuf
    import numpy
    import pyarrow
except (ImportError, AttributeError) as _error:  # AttributeError: PyArrow found only a folder named numpy
    raise LibraryError(f"pulsar_spark cannot be used by {sys.executable}: {_error}") from _error


def check(versions: dict[str, str | None]) -> None:
    """Compares versions with the oldest supported versions.

    Args:
        versions: versions by name, as in OLDEST; None: only a folder of this name was imported.

    Raises:
        LibraryError: a library is missing, or its version is too old.
    """
    for name, version in versions.items():
        if version is None:  # only a folder was found, such as google/protobuf in spark-core's jar
            raise LibraryError(f"pulsar_spark cannot be used by {sys.executable}: {name} is not installed")
        oldest = OLDEST[name]
        if tuple(int(part) for part in re.findall(r"\d+", version)[: len(oldest)]) < oldest:
            wanted = ".".join(map(str, oldest))
            raise LibraryError(f"{name} {version} is too old: pulsar_spark needs {wanted} or newer")


check(
    {
        name: getattr(module, "__version__", None)
        for name, module in (("numpy", numpy), ("pyarrow", pyarrow), ("protobuf", google.protobuf))
    }
)
