"""Messages that contain themselves -> JSON text, because no column has their type.

The text has the names and values of columns. Absent fields are left out, bytes are base64, and NaN and
infinity are text. A message within the text may lack required fields.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pulsar_spark.values.protobuf.readers import (
    EnumReader,
    FieldReader,
    MapReader,
    NumberReader,
    Presence,
    ReadColumn,
    RepeatedReader,
    SingularReader,
    TextReader,
    TypeReader,
)


@dataclass(slots=True)
class JsonReader:
    """Reads messages as JSON; ``fields``: their fields by full name in the plan's file, as in ``M0.f1``."""

    fields: dict[str, FieldReader] = field(default_factory=dict)
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
            own = self.fields.get(descriptor.full_name)  # None for a field that ``plan.parser`` added
            if isinstance(own, MapReader):
                key, item = map(_single, own.entry.fields)
                found[own.name] = {
                    self._plain(key.reader, getattr(entry, key.attribute)): self._plain(
                        item.reader, getattr(entry, item.attribute)
                    )
                    for entry in value
                }
            elif isinstance(own, RepeatedReader):
                found[own.name] = [self._plain(own.reader, each) for each in value]
            elif own is not None:
                single = _single(own)
                if single.presence is Presence.EXPLICIT or value or str(value) == "-0.0":
                    found[own.name] = self._plain(single.reader, value)
        return found


def _single(own: FieldReader) -> SingularReader:
    assert isinstance(own, SingularReader)
    return own
