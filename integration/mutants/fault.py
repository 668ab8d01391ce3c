"""Fault: one change of one file that a named test must catch."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class DriftError(Exception):
    """The code or the tests have changed, and a fault no longer fits them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: what is wrong, in a few words joined by hyphens; no two faults share one.
        file: path from the project's root.
        old: text that occurs exactly once in the file.
        new: what takes its place.
        test: pytest's node id of the test that must fail: ``tests/x/test_y.py::test_z``, with ``[...]``
            after it for one set of parameters.
    """

    name: str
    file: str
    old: str
    new: str
    test: str

    @property
    def layer(self) -> str:
        """The folder of the package that the file is in, such as ``client/net``; the file for one outside."""
        path = PurePosixPath(self.file)
        folder = str(path.relative_to(path.parts[0]).parent)
        return path.stem if folder == "." else folder

    def planted(self, source: str) -> str:
        """The text of the file with this fault.

        Raises:
            DriftError: the old text does not occur exactly once, or the new one is no Python.
        """
        found = source.count(self.old)
        if found != 1:
            raise DriftError(f"{self.name}: {self.file} has its old text {found} times and not once")
        mutated = source.replace(self.old, self.new)
        try:
            different = ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
        except SyntaxError as error:
            raise DriftError(f"{self.name}: {self.file} is no Python with it: {error}") from None
        if not different:
            raise DriftError(f"{self.name}: {self.file} means the same with it")
        return mutated

    def plant(self, root: Path) -> None:
        """Write the fault into the copy of the project in ``root``. Raises DriftError."""
        path = root / self.file
        path.write_text(self.planted(path.read_text(encoding="utf-8")), encoding="utf-8")


def missing_test(root: Path, test: str) -> str | None:
    """The part of a node id that does not exist: its file, or all of it; None where the test exists."""
    file, _, name = test.partition("::")
    path = root / file
    if not path.is_file():
        return file
    *classes, function = name.partition("[")[0].split("::")
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for each in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each), [])
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return None if function in names else test
