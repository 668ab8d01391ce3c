"""Random schemas of Avro, what becomes of them later, values of them, and their bytes.

A schema is Avro's JSON with each named type written out wherever it is used; ``as_json`` writes it once. So
two uses may lie in any order. The encoder is its own, since it must write what no library writes: several
blocks, blocks with sizes, numbers with needless bytes.
"""

from __future__ import annotations

import copy
import random
import struct
from typing import Any

from pulsar_spark.values.avro.avro_write import varint

PROMOTIONS = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
_LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
]
_PLAIN = ["boolean", "int", "long", "float", "double", "string", "bytes"]
# Of which a union has one at most: fastavro takes the first branch that a value may become, and not the best.
_FAMILIES = [["int", "long", "float", "double"], ["string", "bytes"], ["boolean"]]
_LONGS = [0, -1, 1, 63, 64, -65, 8191, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63)]
_NUMBERS = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-300, 16777217.0]
_TEXTS = ["", "a", "é", "語" * 5, "x" * 70, "\0", "name-000001"]


class Schemas:
    """Draws schemas; the same ``rnd`` gives the same.

    Args:
        has_nothing: whether items of arrays may be of types without bytes.
    """

    def __init__(self, rnd: random.Random, *, has_nothing: bool) -> None:
        self._rnd = rnd
        self._has_nothing = has_nothing
        self._names = 0
        self._known: list[Any] = []

    def root(self) -> Any:
        """A schema: most are records."""
        if self._rnd.random() < 0.1:
            return self.any(3)
        return self.record(3)

    def any(self, depth: int) -> Any:
        """A type of any kind."""
        rnd = self._rnd
        kind = rnd.choice(
            _PLAIN * 2
            + ["logical", "enum", "fixed"]
            + ["array", "map", "record", "union"] * (2 * (depth > 0))
        )
        if kind in _PLAIN:
            return kind
        if kind == "logical":
            return dict(rnd.choice(_LOGICAL))
        if kind in ("enum", "fixed", "record"):
            if self._known and rnd.random() < 0.2:
                return rnd.choice(self._known)
            made = {"enum": self._enum, "fixed": self._fixed, "record": lambda: self.record(depth - 1)}[
                kind
            ]()
            self._known.append(made)
            return made
        if kind == "union":
            return self._union(depth - 1)
        item = self._item(depth - 1)
        return {"type": "array", "items": item} if kind == "array" else {"type": "map", "values": item}

    def record(self, depth: int) -> Any:
        """A record of up to 7 fields."""
        name = self._name("R")
        names = self._rnd.sample(
            ["id", "a", "b$", "c-d", "e.f", "Größe", "x1", "x2", "x3"], self._rnd.randint(1, 7)
        )
        return {
            "type": "record",
            "name": name,
            "fields": [{"name": each, "type": self.any(depth)} for each in names],
        }

    def _item(self, depth: int) -> Any:
        if self._has_nothing and self._rnd.random() < 0.15:
            return self._rnd.choice(["null", {"type": "record", "name": self._name("N"), "fields": []}])
        return self.any(depth)

    def _enum(self) -> Any:
        count = self._rnd.choice([1, 3, 3, 100])
        return {"type": "enum", "name": self._name("E"), "symbols": [f"S{i}" for i in range(count)]}

    def _fixed(self) -> Any:
        made: dict[str, Any] = {
            "type": "fixed",
            "name": self._name("F"),
            "size": self._rnd.choice([1, 3, 9, 20]),
        }
        if made["size"] > 3 and self._rnd.random() < 0.5:
            made |= {"logicalType": "decimal", "precision": 18, "scale": 3}
        return made

    def _union(self, depth: int) -> Any:
        rnd = self._rnd
        if rnd.random() < 0.6:
            one = self.any(depth)
            some = one if isinstance(one, list) else [one]
        elif rnd.random() < 0.2:
            some = list(rnd.choice([["int", "long"], ["float", "double"]]))
        else:
            some = [rnd.choice(family) for family in rnd.sample(_FAMILIES, rnd.randint(1, 3))]
            some += [self.record(depth) for _ in range(rnd.randint(0, 2))]
            if rnd.random() < 0.3:
                some.append({"type": "array", "items": self._item(depth)})
        some = [each for each in some if each != "null"]
        if rnd.random() < 0.8:
            some.insert(rnd.choice([0, len(some)]), "null")
        return some

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{self._rnd.choice(['n.s.', 'com.Outer$.'])}{kind}{self._names}"


class Evolution:
    """Draws a reader's schema for a writer's: what a later or earlier version may be."""

    def __init__(self, rnd: random.Random) -> None:
        self._rnd = rnd
        self._done: dict[str, Any] = {}

    def of(self, schema: Any) -> Any:
        """The schema as a reader has it."""
        rnd = self._rnd
        if isinstance(schema, list):
            some = [self.of(each) if isinstance(each, dict) else each for each in schema]
            if len(some) > 1 and rnd.random() < 0.1:
                some.remove(rnd.choice(some))
            return some[0] if len(some) == 1 and rnd.random() < 0.5 else some
        if isinstance(schema, str):
            if rnd.random() < 0.15 and schema in PROMOTIONS:
                return rnd.choice(PROMOTIONS[schema])
            return ["null", schema] if rnd.random() < 0.1 else schema
        if "name" in schema:
            if schema["name"] not in self._done:
                self._done[schema["name"]] = self._named(schema)
            return self._done[schema["name"]]
        if schema["type"] == "array":
            return {"type": "array", "items": self.of(schema["items"])}
        if schema["type"] == "map":
            return {"type": "map", "values": self.of(schema["values"])}
        return schema

    def _named(self, schema: Any) -> Any:
        rnd = self._rnd
        made = dict(schema)
        if rnd.random() < 0.1:
            made |= {"name": f"{schema['name']}x", "aliases": [schema["name"]]}
        if schema["type"] == "enum" and rnd.random() < 0.4:
            made["symbols"] = [*rnd.sample(schema["symbols"], rnd.randint(1, len(schema["symbols"]))), "New"]
            if rnd.random() < 0.5:
                made["default"] = "New"
        if schema["type"] != "record":
            return made
        fields = []
        for field in schema["fields"]:
            if rnd.random() < 0.1:
                continue
            field = field | {"type": self.of(field["type"])}
            if rnd.random() < 0.1:
                field |= {"name": f"{field['name']}_new", "aliases": [field["name"]]}
            fields.append(field)
        for number in range(rnd.choice([0, 0, 0, 1, 2])):
            kind, default = rnd.choice(DEFAULTS)
            fields.insert(
                rnd.randint(0, len(fields)), {"name": f"d{number}", "type": kind, "default": default}
            )
        if rnd.random() < 0.2:
            rnd.shuffle(fields)
        return made | {"fields": fields}


DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 7),
    ("double", 0.5),
    ("string", "é"),
    ("boolean", True),
    ("bytes", "\u00ff\u0000"),
    (["null", "string"], None),
    (["string", "null"], "text"),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": ["null", "long"]}, {}),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_000),
]


def as_json(schema: Any, seen: set[str] | None = None) -> Any:
    """The schema with each named type written out where it comes first, and named after that."""
    seen = set() if seen is None else seen
    if isinstance(schema, list):
        return [as_json(each, seen) for each in schema]
    if isinstance(schema, str):
        return schema
    if "name" in schema:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    made = dict(schema)
    if schema["type"] == "record":
        made["fields"] = [field | {"type": as_json(field["type"], seen)} for field in schema["fields"]]
    for part in ("items", "values"):
        if part in schema:
            made[part] = as_json(schema[part], seen)
    return made


def without_logical_types(schema: Any) -> Any:
    """The JSON of a schema with the types below its logical types."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = copy.copy(schema)
    plain.pop("logicalType", None)
    if "fields" in plain:
        plain["fields"] = [
            field | {"type": without_logical_types(field["type"])} for field in plain["fields"]
        ]
    for part in ("items", "values"):
        if part in plain:
            plain[part] = without_logical_types(plain[part])
    return plain


class Payloads:
    """Draws payloads of a schema, good ones."""

    def __init__(self, rnd: random.Random) -> None:
        self._rnd = rnd

    def of(self, schema: Any) -> bytes:
        """The bytes of a value."""
        rnd = self._rnd
        if isinstance(schema, list):
            index = rnd.randrange(len(schema))
            return self._varint(index) + self.of(schema[index])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return b"".join(self.of(field["type"]) for field in schema["fields"])
        if kind in ("array", "map"):
            return self._blocks(schema)
        if kind == "enum":
            return self._varint(rnd.randrange(len(schema["symbols"])))
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            return self._decimal(schema)
        if kind == "fixed":
            return rnd.randbytes(schema["size"])
        return self._plain(kind, schema)

    def _plain(self, kind: str, schema: Any) -> bytes:
        rnd = self._rnd
        if kind == "null":
            return b""
        if kind == "boolean":
            return rnd.choice([b"\0", b"\1"])
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            if "millis" in str(schema):
                bits = 53  # more millis than this are no micros of 64 bits
            number = rnd.choice([*_LONGS, rnd.randrange(-100, 100), rnd.randrange(1 << bits)])
            return self._varint(max(min(number, (1 << bits) - 1), -(1 << bits)))
        if kind == "float":
            return struct.pack("<f", rnd.choice([*_NUMBERS[:6], rnd.random()]))
        if kind == "double":
            return struct.pack("<d", rnd.choice([*_NUMBERS, rnd.random()]))
        if kind == "string":
            raw = (rnd.choice(_TEXTS) if rnd.random() < 0.98 else "y" * 9000).encode()
        else:
            raw = rnd.choice([b"", b"text", rnd.randbytes(rnd.randrange(12))])
        return self._varint(len(raw)) + raw

    def _decimal(self, schema: Any) -> bytes:
        bound = 10 ** schema["precision"]
        number = self._rnd.choice(
            [0, -1, 128, -129, bound - 1, 1 - bound, self._rnd.randrange(-bound + 1, bound)]
        )
        if schema["type"] == "fixed":
            return number.to_bytes(schema["size"], "big", signed=True)
        size = number.bit_length() // 8 + 1 + self._rnd.choice([0, 0, 0, 1, 9])
        return self._varint(size) + number.to_bytes(size, "big", signed=True)

    def _blocks(self, schema: Any) -> bytes:
        rnd = self._rnd
        count = rnd.choice([0, 0, 1, 2, 3, 5]) if rnd.random() < 0.99 else rnd.randrange(200)
        made = []
        for i in range(count):
            key = b"" if schema["type"] == "array" else self._varint(len(str(i))) + str(i).encode()
            made.append(key + self.of(schema["items" if schema["type"] == "array" else "values"]))
        if not any(made):
            made = made[:1]  # a longer array of nothing is bad
        whole = b""
        while made:
            some = made[: rnd.choice([1, len(made), len(made)])]
            made = made[len(some) :]
            body = b"".join(some)
            if rnd.random() < 0.2:
                whole += self._varint(-len(some)) + self._varint(len(body)) + body
            else:
                whole += self._varint(len(some)) + body
        return whole + b"\0"

    def _varint(self, number: int) -> bytes:
        made = bytearray(varint(number))
        if len(made) < 9 and self._rnd.random() < 0.01:
            made[-1] |= 0x80
            made.append(0)
        return bytes(made)


def broken(rnd: random.Random, payload: bytes) -> bytes:
    """Something near a payload; some are still good."""
    kind = rnd.randrange(7)
    at = rnd.randrange(len(payload) + 1)
    if kind == 0:
        return payload[:at]
    if kind == 1:
        return payload + rnd.randbytes(rnd.randint(1, 3))
    if kind == 2:
        return payload[:at] + rnd.randbytes(rnd.randint(1, 3)) + payload[at:]
    if kind == 3:
        return payload[:at] + payload[at + rnd.randint(1, 3) :]
    if kind == 4:
        return rnd.randbytes(rnd.randrange(20))
    if kind == 5:
        return (
            payload[:at]
            + rnd.choice([b"\xff" * 9 + b"\1", b"\xff" * 10, b"\x80" * 12, b"\xfe\xff\xff\xff\x0f"])
            + payload[at + 1 :]
        )
    flipped = bytearray(payload)
    if flipped:
        flipped[min(at, len(flipped) - 1)] ^= 1 << rnd.randrange(8)
    return bytes(flipped)
