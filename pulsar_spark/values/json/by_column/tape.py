"""The tokens of many JSON payloads, and which belong together: found for all payloads at once.

Tokens are the brackets, commas and colons outside of strings, and the opening quotes of strings; numbers and
words lie between them. They are numbered as they come. Their level is how many brackets are open there, their
own included. Sorted by level, the tokens of one object or array lie side by side, without those of what is in
it:

    {"a":[1,2],"b":"x"}     { " : , " : " }   [ , ]

So what is in an object is found by counting in that order, and where it is in the payload by the numbers.
Numbers of tokens are "tokens" below, and their places in the sorted order "places".
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.values.json.by_column.cursor import JsonPayloads, Places

_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _LIST, _END_OF_LIST = b'",:{}[]'
_CASE: Final = 0x20  # of which a brace has one bit more than its bracket
_MAX_LEVEL: Final = 100
_MORE: Final = 3
_CHUNK: Final = 1 << 16  # bytes


class JsonValues(NamedTuple):
    """n values in payloads.

    Attributes:
        start: int64[n], where they begin.
        token: int64[n], the first token at or after that.
    """

    start: Ints
    token: Ints

    def some(self, which: Ints) -> JsonValues:
        """Those of some indexes."""
        return JsonValues(self.start[which], self.token[which])


class JsonParts(NamedTuple):
    """What is in n objects or arrays: m members or items, in the order of their owners.

    Attributes:
        owner: int64[m], index of the object or array.
        names: int64[m], tokens of the names; of arrays none.
        values: m of them.
        counts: int64[n].
        ok: bool[n], whether all between the brackets is right, except the values, which are not read.
    """

    owner: Ints
    names: Ints
    values: JsonValues
    counts: Ints
    ok: Flags


class Tape:
    """The tokens of payloads.

    Args:
        payloads: those that are not usable have no tokens here.
    """

    def __init__(self, payloads: JsonPayloads) -> None:
        self.payloads = payloads
        self._body = payloads.body
        at, kind, quote = self._tokens()
        starts, ends = payloads.spans
        first = np.searchsorted(at, starts.astype(np.int32))
        counts = np.diff(first, append=len(at))
        is_open, is_close = (kind | _CASE) == _OPEN, (kind | _CASE) == _CLOSE
        depth = np.cumsum(is_open.astype(np.int8) - is_close.astype(np.int8), dtype=np.int32)
        ok = payloads.is_usable & (counts > 0)
        ok &= _are_balanced(depth, first, counts, ok)
        if not ok.all():
            keep = np.repeat(ok, counts)
            at, kind, quote = at[keep], kind[keep], quote[keep]
            counts = np.where(ok, counts, 0)
            first = np.cumsum(counts) - counts
            is_open, is_close = is_open[keep], is_close[keep]
            depth = np.cumsum(is_open.astype(np.int8) - is_close.astype(np.int8), dtype=np.int32)
        self._ok, self._first = ok, first
        # What is looked at after the last token.
        self.at: Places = np.append(at, np.full(_MORE, ends[-1] if len(ends) else 0, np.int32))
        self._quote = np.append(quote, np.zeros(_MORE, np.int32))
        level = (depth + is_close).astype(np.uint8)
        self._order = np.argsort(level, kind="stable").astype(np.int32)
        self._rank = np.zeros(len(at) + _MORE, np.int32)
        self._rank[self._order] = np.arange(len(at), dtype=np.int32)
        self.kind = np.append(kind, np.zeros(_MORE, np.uint8))
        self._sorted = np.append(kind[self._order], np.zeros(_MORE, np.uint8))
        self._match()

    def _tokens(self) -> tuple[Places, npt.NDArray[np.uint8], Places]:
        """Positions and bytes of all tokens, and the number of the first quote at or after each."""
        payloads, body = self.payloads, self._body
        parts = []
        for begin in range(0, len(body), _CHUNK):
            some = body[begin : begin + _CHUNK]
            braces = some | np.uint8(_CASE)
            is_token = (braces == _OPEN) | (braces == _CLOSE)
            is_token |= (some == _COMMA) | (some == _COLON) | (some == _QUOTE)
            parts.append((np.flatnonzero(is_token) + begin).astype(np.int32))
        at = np.concatenate(parts)
        kind = body[at]
        is_quote = kind == _QUOTE
        quotes = payloads.quotes[:-2]
        if np.count_nonzero(is_quote) > len(quotes):
            keep = ~is_quote
            keep[is_quote] = np.isin(at[is_quote], quotes, assume_unique=True)
            at, kind, is_quote = at[keep], kind[keep], is_quote[keep]
        number = np.cumsum(is_quote, dtype=np.int32) - is_quote
        # Payloads have an even number of quotes, or are not usable.
        outside = np.flatnonzero(number & 1 == 0)
        return at[outside], kind[outside], number[outside]

    def _match(self) -> None:
        """Find the closing bracket of each opening one; in places."""
        kinds = self._sorted
        opens = np.flatnonzero((kinds | _CASE) == _OPEN)
        closes = np.flatnonzero((kinds | _CASE) == _CLOSE)
        self._closer = np.zeros(len(kinds), np.int32)
        self._closer[opens] = closes
        self._is_matched = np.zeros(len(kinds), np.bool_)
        self._is_matched[opens] = kinds[closes] - kinds[opens] == 2
        self._colons = np.flatnonzero(kinds == _COLON)
        self._commas = np.flatnonzero(kinds == _COMMA)
        self._colons_before = _counted(kinds == _COLON)
        self._commas_before = _counted(kinds == _COMMA)

    # ---- values

    def roots(self) -> tuple[Ints, JsonValues]:
        """The payloads that are an object or an array, and what they are."""
        starts, ends = self.payloads.spans
        rows = np.flatnonzero(self._ok)
        values = JsonValues(self.after_space(starts[rows]), self._first[rows])
        good = self.at[values.token] == values.start
        rows, values = rows[good], values.some(np.flatnonzero(good))
        is_root = (self.kind[values.token] | _CASE) == _OPEN
        rows, values = rows[is_root], values.some(np.flatnonzero(is_root))
        last = self._order[self._closer[self._rank[values.token]]]
        whole = self.after_space(self.at[last].astype(np.int64) + 1) == ends[rows]
        return rows[whole], values.some(np.flatnonzero(whole))

    def ends(self, values: JsonValues) -> tuple[Ints, Flags]:
        """Where the token after each value is, apart from white space; and whether it may come after one."""
        token = values.token
        kind = self.kind[token]
        last = token.copy()
        containers = np.flatnonzero(((kind | _CASE) == _OPEN) & (self.at[token] == values.start))
        if len(containers):
            last[containers] = self._order[self._closer[self._rank[token[containers]]]] + 1
        last += kind == _QUOTE
        follows = self.kind[last]
        return self.at[last].astype(np.int64), (follows == _COMMA) | ((follows | _CASE) == _CLOSE)

    def closing(self, values: JsonValues) -> Ints:
        """For objects and arrays: where the closing bracket is."""
        return self.at[self._order[self._closer[self._rank[values.token]]]].astype(np.int64)

    def quotes(self, values: JsonValues) -> Ints:
        """For strings: the number of the opening quote."""
        return self._quote[values.token].astype(np.int64)

    def after_space(self, at: Ints) -> Ints:
        """The first position from each on that is not white space."""
        return self.payloads.after_space(at)

    def _value_after(self, tokens: Ints) -> JsonValues:
        return JsonValues(self.after_space(self.at[tokens].astype(np.int64) + 1), tokens + 1)

    # ---- objects and arrays

    def objects(self, values: JsonValues) -> JsonParts:
        """The members of values, all of which must be objects."""
        places = self._rank[values.token].astype(np.int64)
        closers = self._closer[places]
        kinds = self._sorted
        ok = (self.kind[values.token] == _OPEN) & (self.at[values.token] == values.start)
        ok &= self._is_matched[places]
        closers = np.where(ok, closers, places)
        begin, end = self._colons_before[places], self._colons_before[closers]
        counts = end - begin
        ok &= (kinds[places + 1] == _CLOSE) | ((kinds[places + 1] == _QUOTE) & (kinds[places + 2] == _COLON))
        owner, colons = _ranges(begin, counts)
        colons = self._colons[colons]
        # After a value there is the end, or a comma, a name and a colon.
        after = colons + 1
        after = after + (kinds[after] == _QUOTE)
        is_comma = kinds[after] == _COMMA
        good = (kinds[after] == _CLOSE) | (
            is_comma & (kinds[after + 1] == _QUOTE) & (kinds[np.minimum(after + 2, len(kinds) - 1)] == _COLON)
        )
        names = self._order[colons - 1].astype(np.int64)
        colon_tokens = self._order[colons].astype(np.int64)
        # What stands before a name is a token or white space, and so is what stands after it.
        before = np.maximum(self._order[colons - 2], 0)
        good &= self.after_space(self.at[before].astype(np.int64) + 1) == self.at[names]
        closing = self.payloads.quotes[self._quote[names] + 1].astype(np.int64)
        good &= self.after_space(closing + 1) == self.at[colon_tokens]
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            tokens = values.token[empty]
            ok[empty] &= self.kind[tokens + 1] == _CLOSE
            ok[empty] &= self.after_space(values.start[empty] + 1) == self.at[tokens + 1]
        fail_owners(ok, owner, good)
        return JsonParts(owner, names, self._value_after(colon_tokens), counts, ok)

    def arrays(self, values: JsonValues) -> JsonParts:
        """The items of values, all of which must be arrays."""
        places = self._rank[values.token].astype(np.int64)
        kinds = self._sorted
        ok = (self.kind[values.token] == _LIST) & (self.at[values.token] == values.start)
        ok &= self._is_matched[places]
        closers = np.where(ok, self._closer[places], places)
        begin, end = self._commas_before[places], self._commas_before[closers]
        has_none = (closers == places + 1) & (self.after_space(values.start + 1) == self.at[values.token + 1])
        has_none &= self.kind[values.token + 1] == _END_OF_LIST
        counts = np.where(ok & ~has_none, end - begin + 1, 0)
        owner, number = _ranges(np.zeros(len(counts), np.int64), counts)
        if len(self._commas):
            comma = self._commas[np.minimum(begin[owner] + np.maximum(number - 1, 0), len(self._commas) - 1)]
            before = np.where(number == 0, places[owner], comma)
        else:
            before = places[owner]
        after = before + 1
        after = after + (kinds[after] == _QUOTE)
        good = (kinds[after] == _COMMA) | (kinds[after] == _END_OF_LIST)
        fail_owners(ok, owner, good)
        return JsonParts(owner, number, self._value_after(self._order[before].astype(np.int64)), counts, ok)


def _are_balanced(depth: Places, first: Ints, counts: Ints, ok: Flags) -> Flags:
    """Whether each row closes what it opens, and nothing else, and not too deep."""
    has = np.flatnonzero(counts > 0)
    balanced = np.zeros(len(first), np.bool_)
    if len(has):
        before = np.append(np.int32(0), depth)[first[has]]
        lowest = np.minimum.reduceat(depth, first[has]) - before
        highest = np.maximum.reduceat(depth, first[has]) - before
        last = depth[first[has] + counts[has] - 1] - before
        balanced[has] = (lowest >= 0) & (last == 0) & (highest <= _MAX_LEVEL)
    return balanced


def _counted(flags: Flags) -> Places:
    """How many are set before each."""
    counted = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags, out=counted[1:])
    return counted


def _ranges(begin: npt.NDArray[np.integer], counts: npt.NDArray[np.integer]) -> tuple[Ints, Ints]:
    """``counts`` numbers from ``begin`` on, for each; and whose they are."""
    owner = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) + (begin - before)[owner]


def fail_owners(ok: Flags, owner: Ints, good: Flags) -> None:
    """Let those fail of which a part is not good."""
    if not good.all():
        ok[owner[~good]] = False
