"""Charsets of Java: their names, byte order marks, and names that are no charsets."""

import pytest

from pulsar_spark.errors import UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.primitives import charset_of


def of_name(name, kind=SchemaType.STRING):
    return charset_of(Schema(kind, b"", {"__charset": name}))


def test_utf8_and_other_schemas_have_no_charset():
    assert charset_of(Schema(SchemaType.STRING)) is None
    assert of_name("UTF-8") is None
    assert of_name("UTF-16", SchemaType.NONE) is None


@pytest.mark.parametrize(
    ("name", "written", "others"),
    [  # what Java's String.getBytes makes of "t\u00e9", and what else its new String reads as that
        ("UTF-16", "feff007400e9", ["007400e9", "fffe7400e900"]),
        ("UTF-16LE", "7400e900", []),
        ("UTF-32", "00000074000000e9", ["0000feff00000074000000e9", "fffe000074000000e9000000"]),
        ("ISO-8859-1", "74e9", []),
        ("windows-1252", "74e9", []),
        ("IBM037", "a351", []),
        ("GB18030", "74a8a6", []),
    ],
)
def test_text_is_converted_as_java_does(name, written, others):
    charset = of_name(name)
    assert charset.of_text("t\u00e9").hex() == written
    for stored in (written, *others):
        assert charset.to_utf8(bytes.fromhex(stored)) == b"t\xc3\xa9"
    assert charset.of_text("") == charset.to_utf8(b"") == b""


@pytest.mark.parametrize(
    "name", ["", "x-none", "\0", "a.b", "rot13", "zlib", "punycode", "unicode_escape", "utf_7", "undefined"]
)
def test_other_names_are_refused(name):
    with pytest.raises(UnsupportedError, match=r"Python has no charset .*\. Use valueFormat=raw"):
        of_name(name)
