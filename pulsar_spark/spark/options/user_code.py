"""Users' functions and classes: loaded by their dotted names in the process that calls them.

Somebody who can set options, for example in SQL, may lack permission to run Python. So the parameters of a
function, or methods of a class, are checked before a call, and no option value is passed to it.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pulsar_spark.errors import OptionError


def load_function(option: str, name: str) -> Callable[..., Any]:
    """Returns the function ``name`` (``package.module.name``).

    Raises OptionError: the function cannot be imported here, or does not accept two arguments.
    """
    found = _load(option, name, "function")
    if not callable(found) or isinstance(found, type) or not _takes_two(found):
        raise OptionError(
            f"option {option} is {name}, which is not a function of 2 arguments",
            advice="docs/options.md says what it is called with",
        )
    return found


def load_class(option: str, name: str, *methods: str) -> type[Any]:
    """Returns the class ``name`` (``package.module.Class``).

    Raises OptionError: the class cannot be imported here, or lacks one of the methods.
    """
    found = _load(option, name, "Class")
    if not isinstance(found, type) or not all(callable(getattr(found, each, None)) for each in methods):
        raise OptionError(
            f"option {option} is {name}, which is not a class with the methods {' and '.join(methods)}",
            advice="Name your own class, as package.module.Class",
        )
    return found


def _load(option: str, name: str, kind: str) -> object:
    try:
        found: object = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"option {option} is {name}, and there is no such name: {error}",
            advice="Install its module on the driver and on the executors, or send it with --py-files",
        ) from error
    if isinstance(found, ModuleType):
        raise OptionError(f"option {option} is {name}, a module", advice=f"Write {name}.{kind}")
    return found


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):  # ValueError: the parameters of a function in C are unknown
        return False
    return True
