"""Names of members in payloads, of many at once: which of the known ones each is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import numpy as np

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.values.json.by_column.cursor import JsonPayloads, Words

_WORD: Final = 8  # bytes
_LONGEST: Final = 128  # bytes of a known name, a multiple of a word
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


class Names:
    """Finds names by a mix of their bytes and their length, and compares them.

    Args:
        names: the known ones, none twice.

    Attributes:
        can_find: whether it finds all of them: none is too long, or needs escapes, or mixes as another does.
    """

    def __init__(self, names: Iterable[str]) -> None:
        texts = [json.dumps(name, ensure_ascii=False)[1:-1].encode("utf-8", "replace") for name in names]
        sizes = np.array([len(text) for text in texts], np.int64)
        self._longest = max(_WORD, int(sizes.max(initial=0)))
        self.can_find = self._longest <= _LONGEST and not any(b"\\" in text for text in texts)
        whole = b"".join(text[:_LONGEST].ljust(_LONGEST, b"\0") for text in texts)
        words = np.frombuffer(whole, "<u8").reshape(len(texts), _LONGEST // _WORD)
        keys = _mixed(words.T[: -(-self._longest // _WORD)], sizes)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._words, self._sizes = words[self._order], sizes[self._order]
        self.can_find &= not (self._keys[1:] == self._keys[:-1]).any()

    def find(self, payloads: JsonPayloads, start: Ints, end: Ints) -> Ints:
        """Which name lies in each span; -1: none of the known ones, int64[n]."""
        if not len(self._keys):
            return np.full(len(start), -1, np.int64)
        sizes = end - start
        words = [payloads.words_at(start + at) & _mask(sizes - at) for at in range(0, self._longest, _WORD)]
        place = np.minimum(np.searchsorted(self._keys, _mixed(words, sizes)), len(self._keys) - 1)
        is_same = self._sizes[place] == sizes
        for number, word in enumerate(words):
            is_same &= self._words[place, number] == word
        found: Ints = np.where(is_same, self._order[place], -1)
        return found


def _mask(sizes: Ints) -> Words:
    """The bits of this many bytes, from none to eight."""
    unused = (np.uint64(_WORD) - np.clip(sizes, 1, _WORD).view(np.uint64)) << np.uint64(3)
    mask: Words = np.where(sizes > 0, _ALL >> unused, np.uint64(0))
    return mask


def _mixed(words: Iterable[Words], sizes: Ints) -> Words:
    keys: Words = sizes.astype(np.uint64)
    for word in words:
        keys = (keys ^ word) * _FACTOR
    keys ^= keys >> np.uint64(32)
    return keys
