"""ahead: making the next of something while the one before is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Give the same items, each made in a thread while the one before is used; errors come in their place.

    No item is None. One more is in memory. To close this early waits for the item in the making, however long
    that takes.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="pulsar ahead") as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item
