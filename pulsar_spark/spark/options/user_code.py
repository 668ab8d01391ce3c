"""Users' functions and classes: found by their dotted names in the process that calls them."""

from __future__ import annotations

import pkgutil
from typing import Any

from pulsar_spark.errors import OptionError


def load(option: str, name: str) -> Any:
    """The function or class that ``name`` (``package.module.name``), the value of ``option``, names.

    Raises:
        OptionError: it cannot be imported here, or cannot be called.
    """
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"option {option} is {name}, and there is no such name: {error}",
            advice="Install its module on the driver and on the executors, or send it with --py-files",
        ) from error
    if not callable(found):
        raise OptionError(f"option {option} is {name}, which cannot be called", advice="Name a function")
    return found
