"""JSON payloads -> a column, one payload after the other: any schema, any payload, and what is wrong.

    ===============  ==================================================================================
    column           JSON that is read as it; null is always null
    ===============  ==================================================================================
    boolean          ``true``, ``false``, or text that is one
    int, bigint      a number without a rest (5, 5.0, 5e2) in the type's range, or text that is one
    float, double    a number in the type's range, ``NaN``, ``Infinity``, ``-Infinity``, or text that is one
    string           text; or a number, as it is written (an enum of Python's client may be one)
    binary           text: base64, see ``json_read``; a fixed must have its size
    date             ``[y, m, d]``; days since 1970; text ``y-m-d``
    timestamp        a number with a point or an exponent: seconds (``-2.25`` is 1.75 s before 1970, as Java
                     writes that); another: of the schema's unit; text: ISO 8601 (UTC where it names no
                     zone), or a number
    timestamp_ntz    the same, without a zone; ``[y, m, d, h, min]``, also with seconds and nanoseconds
    decimal          a number, or text of one, that needs no more digits than the type has
    time of day      a number of the schema's unit; ``[h, min]``, also with seconds and nanoseconds; text
                     ``h:min``, also with seconds
    any JSON         its own text
    array, map       array; object with names that differ. Pairs of keys and values: array or object
    struct           object; a name that the schema does not have is ignored, and a missing one gives its
                     default or null; one of the schema's that is repeated is bad: which one is meant?
    struct<member0>  a union: the first member that reads it, of those that its JSON looks like, then of all;
                     any JSON comes last
    ===============  ==================================================================================

Fractions of a microsecond are cut towards the past. A column takes memory as its Arrow array does:
values become bytes as soon as they are read, and no tree of Python objects is made of a payload.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pulsar_spark.values.interfaces import DecodedValues
from pulsar_spark.values.json.columns import JsonColumn, JsonRoom
from pulsar_spark.values.json.nested_columns import make_column
from pulsar_spark.values.json.scan import END, BadJsonError, skip_space, unexpected
from pulsar_spark.values.json.tree import JsonNode


def read_rows(node: JsonNode, payloads: Iterable[bytes | pa.Buffer | None]) -> DecodedValues:
    """Read payloads one by one; null is a null row, and not bad."""
    room = JsonRoom()
    column = make_column(node, room)
    bad = []
    for row, payload in enumerate(payloads):
        if payload is None:
            column.add_null()
            continue
        try:
            _read(column, payload, room)
        except BadJsonError:
            column.truncate(row)
            column.add_null()
            bad.append(row)
    rows = column.finish()
    if not bad:
        return DecodedValues(rows)
    is_bad = np.zeros(len(rows), np.bool_)
    is_bad[bad] = True
    return DecodedValues(rows, is_bad)


def explain(node: JsonNode, payload: bytes) -> str:
    """Say why a payload is bad: the field's path, and what is wrong there; empty if it is not."""
    try:
        room = JsonRoom()
        _read(make_column(node, room), payload, room)
    except BadJsonError as error:
        path = "".join(reversed(error.path)).lstrip(".")
        return f"field {path!r}: {error.reason}" if path else error.reason
    return ""


def _read(column: JsonColumn, payload: bytes | pa.Buffer, room: JsonRoom) -> None:
    room.begin(len(payload))
    try:
        # The end is appended as bytes: text may take four times as much.
        text = b"".join((payload, END.encode())).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJsonError(f"the payload is not UTF-8 at byte {error.start}") from None
    at = skip_space(text, column.read(text, skip_space(text, 0)))
    if at != len(text) - 1:
        raise unexpected(text, at, "the payload's end")
