"""Imports the libraries that the package needs besides Spark; raises LibraryError if one is missing or old.

The jar that ``pulsar_spark package`` builds contains the pure Python libraries, in the folder ``carried``.
The folder is the last one in ``sys.path``, so installed libraries are preferred.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pulsar_spark.errors import LibraryError

CARRIED = Path(__file__).parent / "carried"
# Oldest supported versions, as in setup.cfg; docs/developers/dependencies.md has the reasons.
OLDEST = {"numpy": (1, 26), "pyarrow": (18,), "protobuf": (5, 29, 6)}

# If this file is in a zip archive, is_dir() is always False, so the folder is added without a check.
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
        versions: version of each library by name; None: the module has no ``__version__``.

    Raises:
        LibraryError: a library is missing, or its version is too old.
    """
    for name, version in versions.items():
        if version is None:  # a folder without the library, such as google/protobuf in spark-core's jar
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
