"""Errors for users, without the frames of this package and without causes.

If a Python source or sink raises, Spark puts the traceback with all causes into the exception that the user
gets, and again into each of its log entries about it. The text of a :class:`PulsarError` has the fault and
advice. So at the boundary to Spark all other information is only logged, at DEBUG. Any other exception is a
bug in the package, or in a user's code, and keeps its traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from pulsar_spark.errors import PulsarError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger(__name__)


def short_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Wraps a method for Spark: removes the cause and the inner traceback of its PulsarErrors."""

    @wraps(method)
    def shortened(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except PulsarError as error:
            raise _short(error) from None

    return shortened


def with_short_errors(rows: Iterator[T]) -> Iterator[T]:
    """Wraps an iterator of rows for Spark, like :func:`short_errors`; closing it closes ``rows``."""
    try:
        yield from rows
    except PulsarError as error:
        raise _short(error) from None


def _short(error: PulsarError) -> PulsarError:
    _log.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
