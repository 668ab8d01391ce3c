"""Closing: base class of objects that are closed at the end of a ``with`` block; and close_all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from types import TracebackType
from typing import Protocol, TypeVar

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


class _BeginsToClose(Protocol):
    def begin_close(self) -> object: ...

    def close(self) -> None: ...


def close_all(opened: Collection[_BeginsToClose]) -> None:
    """Begins to close all writers or producers, then waits, so an unreachable broker costs one timeout."""
    for each in opened:
        each.begin_close()
    for each in opened:
        each.close()
