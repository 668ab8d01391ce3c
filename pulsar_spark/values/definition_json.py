"""The JSON of a schema's definition, whose cost is bounded before it is parsed: it is data of others."""

from __future__ import annotations

import json
from typing import Final

from pulsar_spark.errors import SchemaError, UnsupportedError

MAX_BYTES: Final = 4 << 20  # of the text; a broker takes 5 MiB
# Commas, colons and opening brackets: each value and each name has one before it. A value of a few bytes may
# take 200 bytes of memory.
MAX_MARKS: Final = 250_000
WAY_OUT: Final = "Read the topic with valueFormat=raw"
_MARKS: Final = (b",", b":", b"[", b"{")


def parse_json(data: bytes) -> object:
    """Parse a definition.

    Raises:
        SchemaError: it is not JSON.
        UnsupportedError: it is larger than any that this version reads.
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
    """The error of a schema that is larger than any that this version reads."""
    return UnsupportedError(what, advice=WAY_OUT)
