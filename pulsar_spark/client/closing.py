"""Closing: base class of objects that are closed at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

_T = TypeVar("_T", bound="Closing")


class Closing(ABC):
    """A context manager that closes itself, whether the block ends with an error or not."""

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Releases the object's resources, at the broker and in this process."""
