"""The limits of docs/schemas.md: what is at a limit is read, and what is beyond is refused by its words."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from pulsar_spark.errors import UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.avro import defaults
from pulsar_spark.values.protobuf import plan
from tests.loops import for_each
from tests.values.protobuf_files import TYPES, file
from tests.values.protobuf_files import schema as protobuf_schema

ROOT = Path(__file__).resolve().parents[2]

INT = {"name": "a", "type": "int"}


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": list(fields)}


def limits():
    """The numbers of the table on the page, by what they are of."""
    page = (ROOT / "docs" / "schemas.md").read_text(encoding="utf-8")
    table = page.partition("## Limits")[2].partition("|---|---|\n")[2].partition("\n\n")[0]
    found = {}
    for line in table.splitlines():
        what, most = line.strip("| ").split(" | ")
        for name, number in zip(what.split("; "), re.findall(r"[0-9,]+", most), strict=True):
            found[name.partition(": a ")[0]] = int(number.replace(",", ""))
    return found


def texts(size):
    """A schema of this many bytes."""
    text = json.dumps(record(INT)).encode()
    return text + b" " * ((size << 20) - len(text))


def marks(count):
    """A schema of so many commas, colons and brackets: of those of ``doc``, too."""
    text = json.dumps(record(INT) | {"doc": ""})
    own = sum(map(text.count, ",:[{"))
    return json.dumps(record(INT) | {"doc": "," * (count - own)}).encode()


def nullable(name, default=None):
    return {"name": name, "type": ["null", "int"], "default": default}


def types(count):
    """A record with nullable fields, and others: so many types."""
    threes = (count - 1) // 3
    rest = [INT | {"name": f"i{number}"} for number in range(count - 1 - 3 * threes)]
    return record(*(nullable(f"f{number}") for number in range(threes)), *rest)


def structs(depth):
    """A type within so many: nullable structs, and an array where the number is odd."""
    tree: object = {"type": "array", "items": "int"} if depth % 2 else "int"
    for level in range(depth // 2):
        tree = ["null", record({"name": "a", "type": tree}, name=f"R{level}")]
    return tree


def named(length):
    return record(INT | {"name": "n" * length})


def symbols(length):
    return record({"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["s" * length]}})


def aliases(length):
    return record(INT | {"aliases": ["n" * length]})


def missing(size):
    """Two text defaults of so many KiB together."""
    one = "x" * (size << 9)
    return record(*({"name": name, "type": "string", "default": one} for name in "bc"))


def values(count):
    """Nullable arrays whose defaults have so many values in all; each array is one, too."""
    fields = [
        {"name": f"a{number}", "type": {"type": "array", "items": "int"}} for number in range(count // 1000)
    ]
    return record(*(field | {"default": [1] * 999} for field in fields))


AVRO_LIMITS = [
    ("text", texts),
    ("commas, colons and brackets in it", marks),
    ("types", types),
    ("nesting of types", structs),
    ("characters of a name, a symbol or an alias", named),
    ("characters of a name, a symbol or an alias", symbols),
    ("characters of a name, a symbol or an alias", aliases),
]


def schema_of(kind, tree):
    return Schema(kind, tree if isinstance(tree, bytes) else json.dumps(tree).encode())


def made(schema, writer=None):
    """All that load() makes of a schema."""
    formats.check_columns(schema)
    return formats.decoder(writer or schema, schema, formats.column_type(schema))


@for_each("kind", [SchemaType.AVRO, SchemaType.JSON])
@for_each(("what", "tree"), AVRO_LIMITS)
def test_a_schema_at_a_limit_is_read_and_one_beyond_is_refused(kind, what, tree):
    most = limits()[what]
    made(schema_of(kind, tree(most)))
    with pytest.raises(UnsupportedError, match="valueFormat=raw"):
        made(schema_of(kind, tree(most + 1)))


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_defaults_up_to_the_limit_are_added_and_more_are_refused(kind):
    older = schema_of(kind, record({"name": "z", "type": "int"}))
    most = limits()["defaults of fields that a message lacks, in all"]
    made(schema_of(kind, missing(most - 1)), older)
    with pytest.raises(UnsupportedError, match="defaults"):
        made(schema_of(kind, missing(most + 1)), older)


def test_all_defaults_up_to_the_limit_are_read_and_more_are_refused(monkeypatch):
    assert limits()["all defaults"] == defaults.MAX_VALUES
    monkeypatch.setattr(defaults, "MAX_VALUES", most := 3000)
    rows = pa.struct([("z", pa.int32())])
    for count, is_fine in ((most, True), (most + 1000, False)):
        tree = values(count)
        tree["fields"].append({"name": "z", "type": "int"})
        for kind in (SchemaType.AVRO, SchemaType.JSON):
            if is_fine:
                formats.encoder(schema_of(kind, tree), rows)
                continue
            with pytest.raises(UnsupportedError, match="defaults"):
                formats.encoder(schema_of(kind, tree), rows)


def test_a_version_beyond_is_refused_where_the_columns_are_older():
    most = limits()["types"]
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        with pytest.raises(UnsupportedError):
            made(schema_of(kind, record(INT)), schema_of(kind, types(most + 1)))


def test_protobuf(monkeypatch):
    fields, depth = (limits()[what] for what in ("PROTOBUF_NATIVE: fields", "nesting of messages"))
    assert fields == plan._MAX_FIELDS
    monkeypatch.setattr(plan, "_MAX_FIELDS", fields := 300)
    for count in (fields, fields + 1):
        own = file("message M")
        for number in range(1, count + 1):
            own.message_type[0].field.add(name=f"f{number}", number=number, type=TYPES.TYPE_INT32, label=1)
        check(protobuf_schema(own, "p.M"), is_fine=count == fields)
    for count in (depth, depth + 1):
        check(protobuf_schema(nested_messages(count), "p.N1"), is_fine=count == depth)


def nested_messages(count):
    """A file of messages N1, N2 and so on, each with the next one as its field."""
    own = file("\n".join(f"message N{level}" for level in range(1, count + 1)))
    for level, message in enumerate(own.message_type[:-1], 2):
        message.field.add(name="a", number=1, type=TYPES.TYPE_MESSAGE, type_name=f".p.N{level}", label=1)
    own.message_type[-1].field.add(name="a", number=1, type=TYPES.TYPE_INT32, label=1)
    return own


def check(schema, *, is_fine):
    if is_fine:
        made(schema)
        return
    with pytest.raises(UnsupportedError, match="valueFormat=raw"):
        made(schema)
