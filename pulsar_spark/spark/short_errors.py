"""What a user reads of an error: its text, without the frames of this package and without its causes.

Spark prints the traceback of what a Python source or sink raises, with all causes, into the exception that
the user gets, and again into each entry of its own log about it. The text of a :class:`PulsarError` says what
happened and what to do, so at Spark's boundary the rest goes to this package's log at DEBUG. Any other
exception is a fault of the package, or of a user's code, and keeps its traceback.
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
    """Make a method that Spark calls, whose PulsarErrors have no traceback but from here on, and no cause."""

    @wraps(method)
    def shortened(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except PulsarError as error:
            raise _short(error) from None

    return shortened


def with_short_errors(rows: Iterator[T]) -> Iterator[T]:
    """The same for an iterator that Spark takes rows from; closing it closes ``rows``."""
    try:
        yield from rows
    except PulsarError as error:
        raise _short(error) from None


def _short(error: PulsarError) -> PulsarError:
    _log.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
