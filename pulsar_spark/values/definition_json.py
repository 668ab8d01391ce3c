"""Parses the JSON of a schema's definition, with bounded cost, because anyone may have written the JSON."""

from __future__ import annotations

import json
from typing import Final

from pulsar_spark.errors import SchemaError, UnsupportedError

MAX_BYTES: Final = 4 << 20  # maximum size of a definition; brokers accept 5 MiB
# Maximum commas, colons and opening brackets. Each precedes a value or name, which may use 200 bytes.
MAX_MARKS: Final = 250_000
WAY_OUT: Final = "Read the topic with valueFormat=raw"
_MARKS: Final = (b",", b":", b"[", b"{")


def parse_json(data: bytes) -> object:
    """Parses a definition.

    Raises:
        SchemaError: the data is not JSON.
        UnsupportedError: the definition is larger or more deeply nested than this version reads.
    """
    if len(data) > MAX_BYTES:
        raise too_large(f"the schema has {len(data)} bytes")
    if sum(map(data.count, _MARKS)) > MAX_MARKS:
        raise too_large(f"the schema has more than {MAX_MARKS} commas, colons and brackets")
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise too_large("the schema is nested too deeply") from None
    except ValueError as error:
        raise SchemaError(f"the topic's schema is not JSON: {error}", advice=WAY_OUT) from None


def too_large(what: str) -> UnsupportedError:
    """Returns the error for a schema that exceeds a limit of this version."""
    return UnsupportedError(what, advice=WAY_OUT)
