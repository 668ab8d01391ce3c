"""Lets a package give names of its modules without importing them before they are used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_imports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Make the ``__getattr__`` of a package (PEP 562).

    Args:
        package: its ``__name__``.
        modules: the names that each module has for it, with spaces between them.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def getattribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(module_of[name])
        except AttributeError as error:  # Python would say that there is no such name, and not why
            raise ImportError(f"{module_of[name]} cannot be imported: {error}") from error
        found: object = getattr(module, name)
        setattr(sys.modules[package], name, found)  # so that it is asked for once
        return found

    return getattribute
