"""Finds misnamed payloads: no name is in the schema, but some differ from the schema's only in case."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.values.json.tree import JsonRecord

_MAX_NAMES: Final = 100  # maximum names of a pattern
_SHOWN: Final = 100


def misnamed(node: JsonRecord, values: list[Any], column: pa.StructArray) -> dict[int, str]:
    """Returns the reason for each misnamed value, by its row; ``values``: parsed values of the column."""
    rows = _without_values(column)
    if not len(rows):
        return {}
    similar = {key.lower(): key for key in sorted(node.names)}
    found = {}
    for row in rows.tolist():
        if type(values[row]) is dict and node.names.isdisjoint(values[row]):
            for name in values[row]:
                key = similar.get(name.lower())
                if key is not None:
                    found[row] = f"the schema has {key[:_SHOWN]!a}, but not {name[:_SHOWN]!a}"
                    break
    return found


def may_be_misnamed(node: JsonRecord, payloads: pa.BinaryArray, column: pa.StructArray) -> Flags | None:
    """Returns flags of the payloads that may be misnamed, bool[n]; None: no payload is.

    Args:
        node: root, with at least one member.
        payloads: payloads in UTF-8, n.
    """
    rows = _without_values(column)
    if not len(rows):
        return None
    flags = np.zeros(len(payloads), np.bool_)
    flags[rows] = True
    if len(node.names) <= _MAX_NAMES:
        names = "|".join(map(re.escape, sorted(node.names)))
        texts = payloads.take(pa.array(rows)).cast(pa.string())
        # An escape in a payload may be part of any name.
        is_similar = pc.match_substring_regex(texts, rf'"({names})"|\\', ignore_case=True)
        # A payload whose first field has a name of the schema is not misnamed. Later names may be of inner
        # fields.
        has_null = pc.match_substring_regex(texts, rf'^\s*{{\s*"({names})"\s*:\s*null')
        flags[rows] = pc.and_not(is_similar, has_null).to_numpy(zero_copy_only=False)
    return flags if flags.any() else None


def _without_values(column: pa.StructArray) -> Ints:
    """Returns the rows of structs whose fields are all null, ascending."""
    found = column.is_valid().to_numpy(zero_copy_only=False)
    for number in range(column.type.num_fields):
        child = column.field(number)
        if not child.null_count:
            return np.zeros(0, np.int64)
        found = found & child.is_null().to_numpy(zero_copy_only=False)
    return np.flatnonzero(found)
