"""Calls: the pending requests about the partitions of one query, and the pauses after failed ones.

A partition is an object with a life of its own (:class:`partition.Partition`). A topic that was deleted and
created again is another partition, so a late answer about the old one is never taken for the new one:
:meth:`Calls.leave` drops all requests about a partition, of every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar, runtime_checkable

from pulsar_spark.client import PendingCalls

K = TypeVar("K")


class Kind(Enum):
    """The subject of a request. Each kind has its own threads, so slow brokers delay no other kind."""

    LAST_MESSAGE = auto()  # only these open a lost consumer again, on a thread that has it to itself
    ACK = auto()
    BACKLOG = auto()
    CHUNKS = auto()
    TAIL = auto()
    ENTRIES = auto()
    SEARCH = auto()
    FINAL_END = auto()


class Calls(Generic[K]):
    """The pending requests about partitions, by kind.

    Args:
        make: makes the requests of one kind.
    """

    def __init__(self, make: Callable[[], PendingCalls[K]] = PendingCalls) -> None:
        self._kinds = {kind: make() for kind in Kind}

    def __getitem__(self, kind: Kind) -> PendingCalls[K]:
        return self._kinds[kind]

    def leave(self, partition: K) -> None:
        """Drop all requests about a partition, and its pauses."""
        for pending in self._kinds.values():
            pending.leave(partition, _close)
            pending.pauses.succeeded(partition)


@runtime_checkable
class _Closeable(Protocol):
    def close(self) -> None: ...


def _close(result: object) -> None:
    """Close a result that nobody takes."""
    if isinstance(result, _Closeable):
        result.close()
