"""What each error code means, and what to do: for ``pulsar_spark explain`` and ``docs/errors.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.errors import PulsarError


class ErrorExplanation(NamedTuple):
    """One line of ``docs/errors.md``.

    Attributes:
        code: such as ``PULSAR_AUTH``.
        meaning: what happened.
        is_retriable: whether the operation is retried until its timeout.
        advice: what to do.
    """

    code: str
    meaning: str
    is_retriable: bool
    advice: str


def explanations() -> list[ErrorExplanation]:
    """What each code means, and what to do, in the order of the tree."""
    return [
        ErrorExplanation(
            kind.code,
            (kind.__doc__ or "").splitlines()[0].replace("``", "`"),
            kind.retriable,
            (kind.usual_advice or "See the text of the error").rstrip(".") + ".",
        )
        for kind in _kinds(PulsarError)
    ]


def _kinds(base: type[PulsarError]) -> Iterator[type[PulsarError]]:
    """All classes of the tree below one, each before its own, in the order in which they are written."""
    for kind in base.__subclasses__():
        if kind.__module__ == base.__module__:
            yield kind
            yield from _kinds(kind)
