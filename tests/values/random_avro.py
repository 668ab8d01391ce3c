"""Random schemas of Avro, and values of them: as fastavro has them, and as columns."""

import copy
import datetime as dt
import decimal
import json
import random
import struct

import pyarrow as pa

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
    arrow_type,
    is_member_struct,
    is_null,
    parse,
)

_PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL = (
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
)
# Types of two versions, the second of which does not mean what the first one's numbers are.
OTHER_TIMES = [
    *(
        ({"type": kind, "logicalType": old}, {"type": wider, "logicalType": new}, f"{old} cannot be read as")
        for kind, old, wider, new in (
            ("int", "date", "long", "timestamp-millis"),
            ("int", "date", "long", "local-timestamp-nanos"),
            ("int", "date", "int", "time-millis"),
            ("int", "time-millis", "int", "date"),
            ("int", "time-millis", "long", "time-micros"),
            ("long", "time-micros", "long", "timestamp-micros"),
        )
    ),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "time-micros"},
        "timestamp cannot be read as time-micros",
    ),
]
# What a mutation puts in the place of anything.
_ATOMS: tuple[object, ...] = (
    *("null", "boolean", "int", "long", "float", "double", "string", "bytes", "T1", "T2", "", "a.b"),
    *("record", "enum", "array", "map", "fixed", "decimal", "date", "timestamp-millis", "timestamp-micros"),
    *(0, 1, -1, 3, 10**30, 1.5, True, None, [], {}, ["null", "int"]),
    {"type": "int", "logicalType": "date"},
)
_KEYS = ("default", "aliases", "namespace", "logicalType", "scale", "precision")
_EPOCH = dt.datetime(1970, 1, 1)
_LETTERS = 'ab"\\\n\x00\x1f\x7fé\u2028漢😀 {}[],:'


class Names:
    """Names of named types, none twice."""

    def __init__(self):
        self.count = 0

    def next(self):
        self.count += 1
        return f"T{self.count}"


def record(*fields):
    """A record of ``(name, type)`` or ``(name, type, default)``."""
    keys = ("name", "type", "default")
    return {
        "type": "record",
        "name": "R",
        "fields": [dict(zip(keys, field, strict=False)) for field in fields],
    }


def random_record(rng, depth=3, width=6, names=None):
    """The tree of a record, as parsed JSON."""
    names = names or Names()
    fields = []
    for number in range(rng.randint(1, width)):
        field = {"name": f"f{number}", "type": random_type(rng, depth - 1, names)}
        fields.append(field)
    return {"type": "record", "name": names.next(), "fields": fields}


def random_type(rng, depth, names, is_branch=False):
    choices = ["plain", "plain", "plain", "logical", "decimal", "fixed", "enum"]
    if not is_branch:
        choices += ["nullable", "nullable", "nullable", "union", "null"]
    if depth > 0:
        choices += ["array", "map", "record"]
    choice = rng.choice(choices)
    if choice == "null":
        return "null"
    if choice == "plain":
        return rng.choice(_PLAIN)
    if choice == "logical":
        kind, logical = rng.choice(_LOGICAL)
        return {"type": kind, "logicalType": logical}
    if choice == "decimal":
        precision = rng.choice((1, 9, 18, 19, 38))
        more = {"logicalType": "decimal", "precision": precision, "scale": rng.randint(0, precision)}
        if rng.random() < 0.5:
            return {"type": "bytes", **more}
        return {"type": "fixed", "name": names.next(), "size": rng.choice((16, 17, 20)), **more}
    if choice == "fixed":
        return {"type": "fixed", "name": names.next(), "size": rng.choice((0, 1, 5))}
    if choice == "enum":
        symbols = [f"S{number}" for number in range(rng.choice((1, 3, 100)))]
        return {"type": "enum", "name": names.next(), "symbols": symbols}
    if choice == "array":
        return {"type": "array", "items": random_type(rng, depth - 1, names)}
    if choice == "map":
        return {"type": "map", "values": random_type(rng, depth - 1, names)}
    if choice == "record":
        return random_record(rng, depth, 4, names)
    one = random_type(rng, depth - 1, names, is_branch=True)
    if choice == "nullable":
        return rng.choice((["null", one], [one, "null"]))
    branches = rng.sample(("null", "boolean", "int", "long", "float", "double", "bytes", "string"), 3)
    return [*branches, {"type": "fixed", "name": names.next(), "size": 3}]


def schema_of_tree(tree, kind=SchemaType.AVRO):
    return Schema(kind, json.dumps(tree).encode())


def random_value(rng, avro):
    """A value as fastavro reads it; of a union with several members a pair of branch and value."""
    if isinstance(avro, AvroUnion):
        if is_member_struct(avro) or len(avro.members) > 1:
            branch = rng.choice(avro.branches)
            return (avro.branches.index(branch), random_value(rng, branch))
        return random_value(rng, rng.choice(avro.branches))
    if isinstance(avro, AvroRecord):
        return {field.name: random_value(rng, field.type) for field in avro.fields}
    if isinstance(avro, AvroArray):
        return [random_value(rng, avro.items) for _ in range(rng.choice((0, 0, 1, 2, 5)))]
    if isinstance(avro, AvroMap):
        return {random_text(rng): random_value(rng, avro.values) for _ in range(rng.choice((0, 0, 1, 3)))}
    if isinstance(avro, AvroEnum):
        return rng.choice(avro.symbols)
    if avro.logical == "decimal":
        digits = rng.randint(1, avro.precision)
        number = rng.choice((0, 1, -1, 10**digits - 1, 1 - 10**digits, rng.randint(0, 10**digits - 1)))
        return decimal.Decimal(number).scaleb(-avro.scale, decimal.Context(prec=60))
    if isinstance(avro, AvroFixed):
        return rng.randbytes(avro.size)
    if avro.logical:
        return _random_time(rng, avro.logical)
    return _random_plain(rng, avro.kind)


def random_text(rng):
    if rng.random() < 0.02:
        return "long" * rng.randint(1000, 3000)
    return "".join(rng.choice(_LETTERS) for _ in range(rng.choice((0, 1, 5, 70))))


def _random_plain(rng, kind):
    if kind == "null":
        return None
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in ("int", "long"):
        bits = rng.randint(1, 31 if kind == "int" else 63)
        return rng.choice((0, -1, (1 << bits) - 1, -(1 << bits), rng.randint(-(1 << bits), (1 << bits) - 1)))
    if kind == "double":
        return rng.choice((0.0, -0.0, 1.0, -2.5, 1e300, 5e-324, 1e16, 123456789.0, rng.random()))
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", rng.choice((0.0, 1.0, -2.5, 3e38, 16.0, rng.random()))))[
            0
        ]
    return random_text(rng) if kind == "string" else rng.randbytes(rng.choice((0, 1, 2, 3, 40)))


def _random_time(rng, logical):
    days = rng.randint(-719162 + 5, 2932896 - 5)  # of the years 1 to 9999
    if logical == "date":
        return dt.date(1970, 1, 1) + dt.timedelta(days)
    micros = rng.choice((0, 1000 * rng.randint(0, 86399999)))
    if logical.endswith("micros"):
        micros += rng.randint(0, 999)
    time = _EPOCH + dt.timedelta(days=days, microseconds=micros)
    return time if logical.startswith("local") else time.replace(tzinfo=dt.timezone.utc)


def column(values, avro):
    """The values as a column, in the type that reading gives."""
    return pa.array([to_arrow(value, avro) for value in values], arrow_type(avro))


def to_arrow(value, avro):
    """A value of :func:`random_value` as pyarrow makes columns of it."""
    if isinstance(avro, AvroUnion) and len(avro.members) > 1:
        branch, inner = value
        if is_null(avro.branches[branch]):
            return None
        if not is_member_struct(avro):
            return inner
        number = avro.members.index(avro.branches[branch])
        return {f"member{number}": to_arrow(inner, avro.branches[branch])}
    if value is None:
        return None
    if isinstance(avro, AvroUnion):
        return to_arrow(value, avro.members[0])
    if isinstance(avro, AvroRecord):
        return {field.name: to_arrow(value[field.name], field.type) for field in avro.fields}
    if isinstance(avro, AvroArray):
        return [to_arrow(item, avro.items) for item in value]
    if isinstance(avro, AvroMap):
        return [(key, to_arrow(item, avro.values)) for key, item in value.items()]
    return value


def bare(value):
    """A value of :func:`random_value` as fastavro reads it: without the branches of unions."""
    if isinstance(value, tuple):
        return bare(value[1])
    if isinstance(value, list):
        return [bare(item) for item in value]
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items()}
    return value


def random_case(rng, count, depth=3):
    """A tree, its types and ``count`` values."""
    tree = random_record(rng, depth)
    avro = parse(schema_of_tree(tree))
    return tree, avro, [random_value(rng, avro) for _ in range(count)]


def check_written(seed, encoded, read, expected):
    """Check that rows of a random schema, also in a slice, are written as payloads that are read again.

    ``encoded`` writes rows by a tree, ``read`` reads a payload by it as ``expected`` of a value and its type.
    """
    rng = random.Random(seed)
    tree, avro, values = random_case(rng, rng.choice((1, 7, 40)))
    rows = column(values, avro)
    payloads = encoded(tree, rows)
    assert payloads.type == pa.binary()
    assert payloads.null_count == 0
    assert [read(tree, payload) for payload in payloads.to_pylist()] == [
        expected(value, avro) for value in values
    ]
    start, stop = sorted((rng.randint(0, len(rows)), rng.randint(0, len(rows))))
    assert encoded(tree, rows.slice(start, stop - start)).to_pylist() == payloads.to_pylist()[start:stop]


def mutated(rng, tree):
    """The tree of a schema with one to three changes at any places of it; often no schema any more."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return tree
        place, key = rng.choice(places)
        choice = rng.random()
        if choice < 0.2:
            del place[key]
        elif choice < 0.4:
            other, other_key = rng.choice(places)
            place[key] = copy.deepcopy(other[other_key])
        elif choice < 0.6 and isinstance(place, dict):
            place[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_ATOMS))
        else:
            place[key] = copy.deepcopy(rng.choice(_ATOMS))
    return tree


def _places(tree):
    """Each object or list of parsed JSON with each of its keys."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])
