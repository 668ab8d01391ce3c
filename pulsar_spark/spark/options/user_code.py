"""Users' functions and classes: found by their dotted names in the process that calls them.

Who writes options need not be allowed to run any Python: a table's options come from SQL. So nothing is
called before it is known to have the interface that the option asks for, and no text of an option is an
argument.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pulsar_spark.errors import OptionError


def load_function(option: str, name: str, arguments: int) -> Callable[..., Any]:
    """The function that ``name`` (``package.module.name``), the value of ``option``, names.

    Args:
        option: name of the user's option.
        name: its value.
        arguments: how many the function is called with.

    Raises:
        OptionError: it cannot be imported here, or is not a function of that number of arguments.
    """
    found = _load(option, name, "function")
    if not callable(found) or isinstance(found, type) or not _takes(found, arguments):
        raise OptionError(
            f"option {option} is {name}, which is not a function of {arguments} arguments",
            advice="docs/options.md says what it is called with",
        )
    return found


def load_class(option: str, name: str, *methods: str) -> type[Any]:
    """The class that ``name`` (``package.module.Class``), the value of ``option``, names; not instantiated.

    Raises:
        OptionError: it cannot be imported here, or is no class with these methods.
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


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except (TypeError, ValueError):  # the latter: it is not known what a function in C takes
        return False
    return True
