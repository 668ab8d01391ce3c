"""What one JSON value may still take, and what its unions were found to be."""

from __future__ import annotations

from typing import Final

from pulsar_spark.values.value_size import ValueRoom, accepted

_AGAIN: Final = 1_000_000  # characters that may be read again, of any value
_AGAIN_PER_BYTE: Final = 16


class JsonRoom(ValueRoom):
    """What is accepted of one value, as columns and as work.

    Attributes:
        again: characters that may still be read again, to find the types of unions.
        at: the last position at which a name or an item began.
        tries: unions of which a member is being tried.
        choices: by the union's number and the position of a value, which member it is; None: it is of none.
            A value in a union is tried with each member around it: without this, that takes time that is
            exponential in how deep unions are in each other.
    """

    __slots__ = ("again", "at", "choices", "tries")

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self.choices: dict[tuple[int, int], int | None] = {}
        self.begin(size)

    def begin(self, size: int) -> None:
        """Begin with a value of so many bytes."""
        self.left = self.accepted = accepted(size)
        self.again = _AGAIN + _AGAIN_PER_BYTE * size
        self.at = self.tries = 0
        self.choices.clear()

    @property
    def is_full(self) -> bool:
        """Whether the value is bad whatever member of a union it may be."""
        return self.left < 0 or self.again < 0
