"""What users name by dotted names: found in the process that calls it."""

from __future__ import annotations

import pkgutil
from typing import Any

from pulsar_spark.errors import OptionError


def load(option: str, name: str) -> Any:
    """What ``name`` (``package.module.name``), the value of ``option``, stands for.

    Raises:
        OptionError: it cannot be imported here, or cannot be called.
    """
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"option {option} is {name}, and there is no such name: {error}",
            advice="Install its module on the driver and on the workers, or send it with --py-files",
        ) from error
    if not callable(found):
        raise OptionError(f"option {option} is {name}, which cannot be called", advice="Name a function")
    return found
