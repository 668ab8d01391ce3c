"""The differential fuzzer: what is decoded together must give what it gives alone, in all bytes and errors.

A round draws entries of a few kinds, each kind decoded alone first, then all of them as a consumer gets them:
by column, joined, in portions. An entry counts when it was decoded together with others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from integration.hostile.wire import Wire
from pulsar_spark.client import DecodedMessages, EntryField, RangeEntries, decode_entries
from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire.columns.message_ids import parse_message_id
from pulsar_spark.wire.entry.entries import Entries, decode
from pulsar_spark.wire.frame_runs import Messages, joined

_TOPIC = TopicName.parse("persistent://a/b/t-partition-3")
_LEDGER = 7

# Of these it is read whether there are any, or they are compared as the properties of messages.
_PRESENT = (EntryField.PROPERTIES, EntryField.ENCRYPTION_KEYS, EntryField.REPLICATE_TO)

_Column = Callable[[DecodedMessages], "pa.Array | None"]
# Columns of messages, with the type of those that may be None.
_COLUMNS: dict[str, tuple[_Column, pa.DataType | None]] = {
    "value": (lambda rows: rows.value, None),
    "is_null": (lambda rows: rows.is_null, None),
    "key": (lambda rows: rows.key, None),
    "ordering_key": (lambda rows: rows.ordering_key, pa.binary()),
    "event_time": (lambda rows: rows.event_time, pa.int64()),
    "properties": (lambda rows: rows.properties, pa.map_(pa.string(), pa.string())),
    "sequence_id": (lambda rows: rows.sequence_id, None),
    "batch_index": (lambda rows: rows.batch_index, pa.int64()),
    "broker_index": (lambda rows: rows.broker_index, None),
    **{
        field.name: (partial(DecodedMessages.entry_field, field=field), None)
        for field in EntryField
        if field not in _PRESENT
    },
}


class DifferenceError(AssertionError):
    """Together is not as alone; the text has the input."""


@dataclass(frozen=True, slots=True)
class _Alone:
    """What one section gives by itself.

    Attributes:
        section: its bytes.
        refused: what is wrong with the section; None where it can be taken apart.
        facts: of the entry, as a consumer sees it.
        failed: what is wrong with what it holds; None where it is decoded.
        columns: of its messages.
    """

    section: bytes
    refused: str | None
    facts: tuple[Any, ...]
    failed: str | None
    columns: dict[str, pa.Array]


def run(seed: int, entries: int) -> Iterator[int]:
    """Decode at least so many entries; gives how many after each round.

    Raises:
        DifferenceError: with the seed of its round, and the bytes.
    """
    done = rounds = 0
    while done < entries:
        done += one_round(f"{seed}/{rounds}")
        rounds += 1
        yield done


def one_round(seed: str) -> int:
    """Decode the entries of one round; returns how many; raises DifferenceError."""
    chance = random.Random(seed)
    wire = Wire(chance, chance.choice((0.0, 0.0, 0.01, 0.05)))
    if chance.random() < 0.03:
        sections = wire.shifted_sections()
        order = list(range(len(sections)))
    else:
        sections = [wire.section() for _ in range(chance.choice((1, 1, 2, 3, 6)))]
        often = [1, *[chance.choice((0.1, 1))] * (len(sections) - 1)]
        order = chance.choices(range(len(sections)), often, k=_count(chance))
    try:
        kinds = [_alone(section) for section in sections]
        _compare(chance, [kinds[kind] for kind in order])
    except Exception as error:
        text = f"seed {seed}: {error!r}\nsections {[one.hex() for one in sections]}\nin this order {order}"
        raise DifferenceError(text) from error
    return len(order)


def _count(chance: random.Random) -> int:
    return chance.choice((2, 5, 23, 24, 60, 200, 500))  # from 24 on they are read by column


def _alone(section: bytes) -> _Alone:
    entries, corrupt, _ = decode([_messages([section], 0)])
    if corrupt is not None:
        return _Alone(section, corrupt.what, (), None, {})
    facts = tuple(each[0] for each in _facts(entries))
    try:
        rows = list(decode_entries([RangeEntries(_TOPIC, [entries])], max_rows=1 << 30, max_bytes=1 << 30))
    except CorruptError as error:
        return _Alone(section, None, facts, error.what, {})
    return _Alone(section, None, facts, None, {name: _column(rows, name) for name in _COLUMNS})


def _compare(chance: random.Random, drawn: Sequence[_Alone]) -> None:
    first_id = chance.choice((0, 100, 120, 16_380, 1 << 40))
    cut = chance.randrange(1, len(drawn) + 1)
    sections = [one.section for one in drawn]
    parts = [_messages(sections[:cut], first_id)]
    if cut < len(drawn):
        parts.append(_messages(sections[cut:], first_id + cut))
    entries, corrupt, corrupt_id = decode(parts)

    stop = next((row for row, one in enumerate(drawn) if one.refused is not None), len(drawn))
    _require(len(entries) == stop, f"{len(entries)} entries, where {stop} are right")
    _require((corrupt is None) == (stop == len(drawn)), "a corrupt section")
    if corrupt is not None:
        _require(corrupt.what == drawn[stop].refused, f"{corrupt.what!r} for {drawn[stop].refused!r}")
        _require(corrupt_id == MessageId(_LEDGER, first_id + stop), f"{corrupt_id} is corrupt")
    drawn = drawn[:stop]
    _require(list(zip(*_facts(entries), strict=True)) == [one.facts for one in drawn], "facts of entries")
    _compare_rows(chance, entries, drawn, first_id)


def _compare_rows(chance: random.Random, entries: Entries, drawn: Sequence[_Alone], first_id: int) -> None:
    # As one group or as several, which a reader that slices makes; in portions of any size.
    cut = chance.randrange(len(drawn) + 1)
    groups = [group for group in (entries[:cut], entries[cut:]) if len(group)]
    max_rows = max_bytes = 1 << 30
    if chance.random() < 0.1:
        max_rows = chance.choice((1, 10, 1000))
    elif chance.random() < 0.1:
        max_bytes = chance.choice((1, 10, 1000))
    leave_out = chance.random() < 0.5
    rows: list[DecodedMessages] = []
    error = None
    try:
        for portion in decode_entries(
            [RangeEntries(_TOPIC, groups)],
            max_rows=max_rows,
            max_bytes=max_bytes,
            leave_out_corrupt=leave_out,
        ):
            rows.append(portion)
    except CorruptError as raised:
        error = raised
    failing = {str(MessageId(_LEDGER, first_id + row)): one.failed for row, one in enumerate(drawn)}
    failing = {place: failed for place, failed in failing.items() if failed is not None}
    _require((error is None) == (leave_out or not failing), f"{error!r}, where {failing} are wrong")
    if error is not None:
        # What is too large is refused before its neighbours are decoded: any of the corrupt ones is named.
        _require(failing.get(str(error.message_id)) == error.what, f"{error!r}, where {failing} are wrong")
    given = sum(map(len, rows))
    counts = [len(one.columns.get("value", ())) for one in drawn]
    whole = np.cumsum([0, *counts])
    _require(given in whole or error is None, f"{given} rows end within an entry")
    taken = [one for one in drawn if one.failed is None] if error is None else _prefix(drawn, given)
    for name in _COLUMNS:
        found = _column(rows, name)
        expected = _joined([one.columns[name] for one in taken], found.type)
        if len(found) + len(expected) and not found.equals(expected):
            raise AssertionError(f"column {name}: {_first_difference(found, expected)}")
        found.validate(full=True)
    places = [
        first_id + row for row, one in enumerate(drawn) for _ in range(len(one.columns.get("value", ())))
    ]
    for portion in rows:
        _require(portion.ledger.to_pylist() == [_LEDGER] * len(portion), "ledger ids")
        _require(portion.entry.to_pylist() == places[: len(portion)], "entry ids")
        _require(_ids(portion) == places[: len(portion)], "serialized ids")
        places = places[len(portion) :]


def _prefix(drawn: Sequence[_Alone], rows: int) -> list[_Alone]:
    """The first entries that have so many rows, none of which fails."""
    taken, count = [], 0
    for one in drawn:
        if one.failed is not None or count + len(one.columns["value"]) > rows:
            break
        taken.append(one)
        count += len(one.columns["value"])
    return taken


def _ids(rows: DecodedMessages) -> list[int]:
    """The entry in each serialized id, read at one place of the portion only: they take their time."""
    entries = rows.entry.to_pylist()
    ids = rows.message_id
    for row in {0, len(rows) - 1} if len(rows) else ():
        data = ids[row].as_py()
        index = -1 if rows.batch_index is None else rows.batch_index[row].as_py()
        expected = MessageId(_LEDGER, entries[row], -1 if index is None else index)
        _require(parse_message_id(data) == expected, f"id {data.hex()} for {expected}")
    return [int(entry) for entry in entries]


def _facts(entries: Entries) -> tuple[list[Any], ...]:
    numbers = ("messages", "publish_time", "sequence_id", "chunked", "compression", "uncompressed_size")
    columns = [getattr(entries, name).tolist() for name in (*numbers, "encrypted", "index", "sizes")]
    metadata = [one.metadata.SerializePartialToString(deterministic=True) for one in entries]
    columns.append(entries.texts(EntryField.REPLICATE_TO).is_valid().to_pylist())
    return (*columns, [bytes(payload) for payload in entries.payloads], metadata)


def _messages(sections: Sequence[bytes], first_id: int) -> Messages:
    """Sections as a session hands them to a consumer."""
    ends = np.cumsum([len(each) for each in sections])
    starts = ends - np.array([len(each) for each in sections])
    count = len(sections)
    ids = np.full(count, _LEDGER), np.arange(first_id, first_id + count)
    return joined([Messages(1, b"".join(sections), *ids, starts, ends)])


def _column(rows: Sequence[DecodedMessages], name: str) -> pa.Array:
    make, kind = _COLUMNS[name]
    arrays = []
    for portion in rows:
        array = make(portion)
        if array is None:
            assert kind is not None
            empty: list[Any] = [[] if pa.types.is_map(kind) else None] * len(portion)
            array = pa.array(empty, kind)
        arrays.append(array)
    return _joined(arrays, kind)


def _joined(arrays: Sequence[pa.Array], kind: pa.DataType | None) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind or pa.null())


def _first_difference(found: pa.Array, expected: pa.Array) -> str:
    if len(found) != len(expected) or found.type != expected.type:
        return f"{len(found)} {found.type} for {len(expected)} {expected.type}"
    pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
    return next(
        (f"row {row}: {one!r} for {other!r}" for row, (one, other) in enumerate(pairs) if one != other), "?"
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
