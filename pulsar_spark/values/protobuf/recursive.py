"""Messages that contain themselves -> JSON text, because no column has their type.

The text has the names and values of columns. Absent fields are left out, bytes are base64, and NaN and
infinity are text. A message within the text may lack required fields.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.values.protobuf.readers import EnumReader, NumberReader, ReadColumn, TextReader, TypeReader


class JsonField(NamedTuple):
    """A field of a message that is read as JSON.

    Attributes:
        name: name of the field.
        reader: reader of a value; JsonReader for messages.
        is_repeated: True if the field has items.
        is_null_if_zero: True if zero and empty values are left out.
        entries: attributes of key and value, and the reader of keys, if the field is a map.
    """

    name: str
    reader: TypeReader
    is_repeated: bool
    is_null_if_zero: bool
    entries: tuple[str, str, TypeReader] | None = None


@dataclass(slots=True)
class JsonReader:
    """Reads messages as JSON; ``fields``: their fields by full name in the plan's file, as in ``M0.f1``."""

    fields: dict[str, JsonField] = field(default_factory=dict)
    type: ClassVar = pa.string()

    def read(self, values: list[Any]) -> ReadColumn:
        """Reads values."""
        texts: list[str | None] = []
        for value in values:
            try:
                texts.append(json.dumps(self._plain(self, value), ensure_ascii=False, separators=(",", ":")))
            except UnicodeDecodeError:
                texts.append(None)
        column = pa.array(texts, pa.string())
        if not column.null_count:
            return ReadColumn(column)
        return ReadColumn(column, np.array(column.is_null()), ": text in it is not UTF-8")

    def _plain(self, reader: TypeReader, value: Any) -> object:
        """Returns a value in a form that ``json`` encodes."""
        if isinstance(reader, JsonReader):
            return self._object(value)
        if isinstance(reader, TextReader):
            return value.decode()
        if isinstance(reader, EnumReader):
            return reader.name_of(value)
        if isinstance(value, bytes):
            return b64encode(value).decode()
        if not isinstance(value, float):
            return value
        if not isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        is_float = isinstance(reader, NumberReader) and reader.natural == pa.float32()
        return float(str(np.float32(value))) if is_float else value

    def _object(self, message: Any) -> dict[str, object]:
        found: dict[str, object] = {}
        for descriptor, value in message.ListFields():
            own = self.fields.get(descriptor.full_name)  # None: added by ``plan.parser``
            if own is None or (own.is_null_if_zero and not value and str(value) != "-0.0"):
                continue
            if own.entries is not None:
                key, item, keys = own.entries
                found[own.name] = {
                    self._plain(keys, getattr(entry, key)): self._plain(own.reader, getattr(entry, item))
                    for entry in value
                }
            elif own.is_repeated:
                found[own.name] = [self._plain(own.reader, item) for item in value]
            else:
                found[own.name] = self._plain(own.reader, value)
        return found
