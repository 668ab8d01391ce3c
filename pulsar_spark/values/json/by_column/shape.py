"""The names that payloads have, in their order: what reading by column goes by, learned from the payloads.

A shape decides how fast payloads are read, never what is read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

_MAX_BYTES: Final = 1 << 14  # of a payload that is learned from
_MAX_KEYS: Final = 1_000  # of an object
_MAX_ITEMS: Final = 3  # of an array that are looked at
_MAX_DEPTH: Final = 100  # to which values are looked at: Python 3.12 parses deeper ones than its stack holds
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SPACE: Final = re.compile(r"\s")


@dataclass(slots=True)
class Shape:
    """What values look like at one node.

    Attributes:
        keys: of objects, in the order in which payloads have them.
        item: of arrays.
        is_object: whether the last value was an object.
        is_array: whether it was an array.
    """

    keys: dict[str, Shape] = field(default_factory=dict)
    item: Shape | None = None
    is_object: bool = False
    is_array: bool = False

    def merge(self, value: object, depth: int = _MAX_DEPTH) -> None:
        """Learn from a parsed value; where it differs in kind from those before, it counts."""
        if value is None or depth == 0:
            return
        self.is_object, self.is_array = isinstance(value, dict), isinstance(value, list)
        if isinstance(value, dict):
            order = _merged(list(self.keys), list(value))
            self.keys = {key: self.keys.get(key) or Shape() for key in order}
            for key, each in value.items():
                if key in self.keys:
                    self.keys[key].merge(each, depth - 1)
        elif isinstance(value, list):
            self.item = self.item or Shape()
            for each in value[:_MAX_ITEMS]:
                self.item.merge(each, depth - 1)


@dataclass(slots=True)
class JsonLayout:
    """How payloads are laid out.

    Attributes:
        shape: of the whole payload.
        has_space: whether there is white space between tokens.
        is_known: whether anything was learned.
    """

    shape: Shape = field(default_factory=Shape)
    has_space: bool = False
    is_known: bool = False

    def learn(self, payload: bytes) -> bool:
        """Learn from a payload; tells whether it was fit for that."""
        if len(payload) > _MAX_BYTES:
            return False
        try:
            text = payload.decode("utf-8")
            value = json.loads(text, parse_int=str)
        except (ValueError, RecursionError):
            return False
        self.is_known = True
        self.shape.merge(value)
        self.has_space |= _SPACE.search(_STRING.sub("", text)) is not None
        return True


def _merged(known: list[str], seen: list[str]) -> list[str]:
    """An order that both have; where there is none, or it is too long, that of those seen comes first."""
    place = {key: index for index, key in enumerate(known)}
    merged: list[str] = []
    done = 0
    for key in seen:
        index = place.get(key)
        if index is None:
            merged.append(key)
        elif index >= done:
            merged += known[done : index + 1]
            done = index + 1
        else:
            merged = seen + [key for key in known if key not in set(seen)]
            break
    else:
        merged += known[done:]
    return merged if len(merged) <= _MAX_KEYS else seen[:_MAX_KEYS]
