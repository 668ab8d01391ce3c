"""Lets a package export names of its modules, and import a module when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_imports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Makes the ``__getattr__`` of a package (PEP 562).

    Args:
        package: the package's ``__name__``.
        modules: exported names of each module, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def getattribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(module_of[name])
        except AttributeError as error:  # because Python would hide the cause
            raise ImportError(f"{module_of[name]} cannot be imported: {error}") from error
        found: object = getattr(module, name)
        setattr(sys.modules[package], name, found)  # so that this function runs once for each name
        return found

    return getattribute
