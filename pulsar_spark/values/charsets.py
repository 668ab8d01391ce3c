"""Charsets of text, by the names that Java's client writes into the properties of a STRING schema.

Python's codecs convert texts. UTF-16 and UTF-32 are as in Java: big-endian, unless the bytes begin with a
little-endian byte order mark.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

from pulsar_spark.errors import UnsupportedError
from pulsar_spark.schema import Schema, SchemaType

# For each codec with a byte order mark: the marks, the codec without a mark, and the mark that Java writes.
_MARKED: Final = {
    "utf-16": ((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE), "utf-16-be", codecs.BOM_UTF16_BE),
    "utf-32": ((codecs.BOM_UTF32_BE, codecs.BOM_UTF32_LE), "utf-32-be", b""),
}
# Python's codecs for program text and host names, some of which take quadratic time.
_NO_CHARSETS: Final = frozenset(
    ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
)


@dataclass(frozen=True, slots=True)
class Charset:
    """A charset other than UTF-8.

    Attributes:
        codec: Python's name.
    """

    name: str
    codec: str

    def to_utf8(self, value: bytes) -> bytes:
        """Converts bytes to UTF-8; raises UnicodeError for bytes that are not text in the charset."""
        codec = self.codec
        if codec in _MARKED:
            marks, plain, _ = _MARKED[codec]
            codec = codec if value.startswith(marks) else plain
        return value.decode(codec).encode()

    def of_text(self, text: str) -> bytes:
        """Converts text to bytes; raises UnicodeError if the charset lacks a character."""
        if self.codec not in _MARKED:
            return text.encode(self.codec)
        _, plain, mark = _MARKED[self.codec]
        return mark + text.encode(plain) if text else b""


def charset_of(schema: Schema) -> Charset | None:
    """Returns the charset of a STRING schema; None: UTF-8, or another schema.

    Raises:
        UnsupportedError: Python has no such charset.
    """
    name = schema.properties.get("__charset", "UTF-8") if schema.type is SchemaType.STRING else "UTF-8"
    try:
        found = codecs.lookup(name)
        "a".encode(name)  # raises for codecs that are not for text
    except (LookupError, ValueError):
        found = None
    if found is None or found.name in _NO_CHARSETS:
        raise UnsupportedError(
            f"Python has no charset {name[:40]!a}",
            advice="Use valueFormat=raw, and decode or encode the values in the query",
        )
    return None if found.name == "utf-8" else Charset(name[:40], found.name)
