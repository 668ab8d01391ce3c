"""Lets a package export names of its modules, and import a module when a name is first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_imports(package: str) -> Callable[[str], object]:
    """Returns the ``__getattr__`` of a package (PEP 562).

    The exported names are those that the package imports ``if TYPE_CHECKING``, so each is listed once.
    """
    own = sys.modules[package]
    module_of = _imported_for_types(own)

    def getattribute(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(module_of[name])
        except AttributeError as error:  # the caller would think that ``name`` is missing
            raise ImportError(f"{module_of[name]} cannot be imported: {error}") from error
        found: object = getattr(module, name)
        setattr(own, name, found)  # so that this function runs once for each name
        return found

    return getattribute


def _imported_for_types(package: ModuleType) -> dict[str, str]:
    """Returns the names that a package imports ``if TYPE_CHECKING``, each with its module's name."""
    loader: Any = package.__loader__  # faster than inspect, which first searches all imported modules
    source = loader.get_source(package.__name__)
    if source is None:
        raise ImportError(f"{package.__name__} was installed without its source")
    return {
        alias.name: str(imported.module)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        for imported in statement.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
