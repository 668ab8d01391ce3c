"""The fuzzer of values with a schema: what is decoded must be what fastavro gives, with documented errors.

A round draws a schema, another version of it, and payloads, a third of them broken. All are decoded together.
Then each good row must be what fastavro gives for it alone, and each bad one bad to fastavro, or bad by a
rule of ours that it does not have. The walker over single values must find the same rows bad.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa

from integration.hostile.avro_schemas import (
    Evolution,
    Payloads,
    Schemas,
    as_json,
    broken,
    without_logical_types,
)
from integration.hostile.entries import DifferenceError
from integration.hostile.rounds import bad_rows, rounds
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro.avro_read import decoder
from pulsar_spark.values.interfaces import ValueDecoder
from pulsar_spark.values.json_types import column_type

ROWS = 1000  # payloads of a round

# Reasons why a value is bad here that is good to fastavro.
_OURS = re.compile(
    r"bytes remain|is out of range|a boolean is 0 or 1|more than 64 bits|more than 10 bytes|branch -\d"
    r"|symbol -\d|a decimal (?:of|without)|9223372036854775808 items"
    r"|(?:date|time|decimal)\S* cannot be read as .*(?:date|time|string)|string cannot be read as .*decimal"
)
# What fastavro gives where it fails though a payload may be good.
FAULT = object()


def run(seed: int, payloads: int) -> Iterator[int]:
    """Decode at least so many payloads; see ``rounds``."""
    return rounds(seed, payloads, differential_round, hostile_round)


def differential_round(seed: str, counts: Counter[str]) -> int:
    """Compare one schema's payloads with what fastavro gives; returns how many were.

    All are read as what they are, then as the other version has them: by fastavro those only that were not
    broken, since it does not look closely at what is not wanted, and goes on beyond the end.
    """
    rnd = random.Random(seed)
    writer = Schemas(rnd, has_nothing=False).root()
    reader = Evolution(rnd).of(writer)
    schemas = [as_json(writer), as_json(reader)]
    texts = [json.dumps(each).encode() for each in schemas]
    sound = Payloads(rnd)
    whole = [sound.of(writer) for _ in range(ROWS)]
    payloads = a_third_broken(rnd, whole)
    other = Fastavro(schemas[0], schemas[0])
    compare(f"seed {seed}", made_decoder(texts[0], texts[0]), other, payloads, counts)
    counts["schemas"] += 1
    try:
        decode = made_decoder(*texts)
    except SchemaError:
        counts["pairs of schemas that do not go together"] += 1
        return ROWS
    counts["pairs of schemas"] += 1
    where = f"seed {seed}, evolved"
    verdicts = compare(where, decode, Fastavro(*schemas), whole, counts)
    for sound_one, expected, payload, is_bad in zip(
        whole, verdicts, payloads, decoded(decode, payloads)[1], strict=True
    ):
        if payload is not sound_one:
            check_walker(decode, payload, is_bad, f"{where}: payload {payload.hex()}")
        elif is_bad != expected:
            raise DifferenceError(f"{where}: payload {payload.hex()} among broken ones: bad is {is_bad}")
    return ROWS


def compare(
    where: str, decode: ValueDecoder, other: Fastavro, payloads: list[bytes], counts: Counter[str]
) -> list[bool]:
    """Compare what is decoded with what fastavro gives; returns which rows are bad."""
    column, bad = decoded(decode, payloads)
    for payload, row, is_bad in zip(payloads, as_python(column), bad, strict=True):
        expected = other.read(payload)
        here = f"{where}: payload {payload.hex()}"
        check_walker(decode, payload, is_bad, here)
        if expected is FAULT:
            counts["faults of fastavro"] += 1
        elif not is_bad and same(row, expected):
            counts["good"] += 1
        elif not is_bad:
            raise DifferenceError(f"{here} is {row!r}, and to fastavro {expected!r}")
        elif isinstance(expected, Exception):
            counts["bad to both"] += 1
        elif _OURS.search(decode.explain(payload, None)):
            counts["bad to us only"] += 1
        else:
            raise DifferenceError(f"{here} is {expected!r} to fastavro: {decode.explain(payload, None)}")
    return bad


def hostile_round(seed: str, counts: Counter[str]) -> int:
    """Decode payloads with schemas in which something is broken; returns how many were."""
    rnd = random.Random(f"hostile {seed}")
    writer = Schemas(rnd, has_nothing=True).root()
    texts = [json.dumps(as_json(each)) for each in (writer, Evolution(rnd).of(writer))]
    if rnd.random() < 0.5:
        texts[rnd.randrange(2)] = broken_schema(rnd, rnd.choice(texts))
    try:
        decode = made_decoder(*(text.encode(errors="surrogatepass") for text in texts))
    except (SchemaError, UnsupportedError):
        counts["schemas that are refused"] += 1
        return 1
    sound = Payloads(rnd)
    payloads = a_third_broken(rnd, [sound.of(writer) for _ in range(ROWS)])
    column, bad = decoded(decode, payloads)
    column.validate(full=True)
    counts["payloads of hostile schemas"] += ROWS
    where = f"seed {seed}: hostile, {texts}"
    for payload, is_bad in zip(payloads, bad, strict=True):
        check_walker(decode, payload, is_bad, f"{where}, {payload[:200].hex()}")
    # What is decoded together is what is decoded alone.
    for i in rnd.sample(range(ROWS), 10):
        alone, alone_bad = decoded(decode, [payloads[i]])
        if not (same(as_python(alone), as_python(column[i : i + 1])) and alone_bad[0] == bad[i]):
            raise DifferenceError(f"{where}: {payloads[i].hex()} alone is {alone}, bad {alone_bad}")
    return ROWS


def made_decoder(writer: bytes, reader: bytes) -> ValueDecoder:
    """A decoder of all columns."""
    read = Schema(SchemaType.AVRO, reader)
    return decoder(Schema(SchemaType.AVRO, writer), read, column_type(read))


def a_third_broken(rnd: random.Random, payloads: list[bytes]) -> list[bytes]:
    """The payloads, a third of them broken."""
    return [broken(rnd, each) if rnd.random() < 1 / 3 else each for each in payloads]


def decoded(decode: ValueDecoder, payloads: list[bytes]) -> tuple[pa.Array, list[bool]]:
    """The column, and which rows are bad."""
    values = pa.array(payloads, pa.binary())
    done = decode.decode(values, pa.nulls(len(payloads), pa.binary()))
    if not done.column.type.equals(decode.type) or len(done.column) != len(payloads):
        raise DifferenceError(f"{len(done.column)} rows of {done.column.type}")
    return done.column, bad_rows(done)


def check_walker(decode: ValueDecoder, payload: bytes, is_bad: bool, where: str) -> None:
    """Check that the walker over single values thinks the same of a value."""
    reason = decode.explain(payload, None)
    if is_bad == reason.startswith("0 bytes remain"):
        raise DifferenceError(f"{where}: bad is {is_bad}, and the walker says: {reason}")


def as_python(column: pa.Array) -> list[Any]:
    """A column as values that can be compared: times as numbers, maps as dicts, floats as their bits."""
    kind = column.type
    is_valid = column.is_valid().to_pylist()
    values: list[Any]
    if pa.types.is_struct(kind):
        parts = [as_python(part) for part in column.flatten()]
        names = [field.name for field in kind]
        values = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)] or [{}] * len(
            column
        )
    elif pa.types.is_map(kind):
        offsets = column.offsets.to_pylist()
        keys, items = column.keys.to_pylist(), as_python(column.items)
        values = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(offsets)]
    elif pa.types.is_list(kind):
        offsets = column.offsets.to_pylist()
        items = as_python(column.values)
        values = [items[a:b] for a, b in pairwise(offsets)]
    elif pa.types.is_temporal(kind):
        values = column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    elif pa.types.is_floating(kind):
        size = "<f" if kind.bit_width == 32 else "<d"
        values = [None if each is None else bits(each, size) for each in column.to_pylist()]
    else:
        values = column.to_pylist()
    return [value if valid else None for value, valid in zip(values, is_valid, strict=True)]


def bits(number: float, size: str) -> Any:
    """A float as what is compared: all that are no numbers are equal."""
    return "nan" if number != number else struct.pack(size, number)


def same(mine: Any, other: Any) -> bool:
    """Whether two values are equal, and of equal types: 1 is not true."""
    if isinstance(mine, dict) and isinstance(other, dict):
        return mine.keys() == other.keys() and all(same(mine[key], other[key]) for key in mine)
    if isinstance(mine, list) and isinstance(other, list):
        return len(mine) == len(other) and all(map(same, mine, other))
    return type(mine) is type(other) and mine == other


def broken_schema(rnd: random.Random, text: str) -> str:
    """Something near a schema's JSON."""
    at = rnd.randrange(len(text))
    kind = rnd.randrange(4)
    if kind == 0:
        return text[:at] + chr(rnd.choice([0, 34, 44, 49, 91, 93, 123, 125, 0xD800])) + text[at + 1 :]
    words = re.findall(r'"[^"]*"', text)
    if kind == 1:
        return text.replace(rnd.choice(words), rnd.choice(words), 1)
    if kind == 2:
        return text.replace(
            rnd.choice(words), rnd.choice(["{}", "[]", "null", "-1", '"int"', "1e999", '"' * 3])
        )
    return text.replace('"int"', text, 1) if len(text) < 100_000 else text[:at]


class Fastavro:
    """What fastavro gives for a payload, in the form of ``as_python``."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer = fastavro.parse_schema(without_logical_types(writer))
        self._reader = fastavro.parse_schema(without_logical_types(reader))
        self._named: dict[str, Any] = {}
        self._root = reader
        _collect(reader, self._named)

    def read(self, payload: bytes) -> Any:
        """The value, an exception, or FAULT."""
        stream = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(stream, self._writer, self._reader, return_record_name=True)
        except Exception as error:  # noqa: BLE001 - all kinds come
            # Where it looks for a named type in a union.
            return FAULT if isinstance(error, TypeError) else error
        if stream.tell() != len(payload):
            return ValueError("bytes are left over")
        try:
            return self._shaped(value, self._root)
        except (OverflowError, struct.error) as error:
            return error

    def _shaped(self, value: Any, schema: Any) -> Any:
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            return self._member(value, schema)
        value = value[1] if isinstance(value, tuple) else value
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if kind == "record":
            return {
                field["name"]: self._shaped(value[field["name"]], field["type"]) for field in schema["fields"]
            }
        if kind == "array":
            return [self._shaped(each, schema["items"]) for each in value]
        if kind == "map":
            return {key: self._shaped(each, schema["values"]) for key, each in value.items()}
        if logical == "decimal":
            number = int.from_bytes(value, "big", signed=True)
            return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -schema["scale"]))
        if kind in ("float", "double"):
            size = "<f" if kind == "float" else "<d"
            return bits(float(value), size)
        if kind == "bytes" and isinstance(value, str):
            return value.encode("latin-1")
        return value * 1000 if logical.endswith("timestamp-millis") else value

    def _member(self, value: Any, union: list[Any]) -> Any:
        members = [each for each in union if each != "null"]
        if value is None or len(members) == 1:
            return None if value is None else self._shaped(value, members[0])
        fits = [i for i, each in enumerate(members) if self._is_of(value, each)]
        if sorted(map(str, members)) in (["int", "long"], ["double", "float"]):
            return bits(value, "<d") if "float" in members else value
        if len(fits) != 1:
            raise AssertionError(f"{value!r} is of {fits} of {union}")
        shaped = self._shaped(value, members[fits[0]])
        return {f"member{i}": shaped if i == fits[0] else None for i in range(len(members))}

    def _is_of(self, value: Any, member: Any) -> bool:
        member = self._named.get(member, member) if isinstance(member, str) else member
        kind = member if isinstance(member, str) else member["type"]
        if isinstance(value, tuple):
            return isinstance(member, dict) and value[0] == member.get("name")
        kinds = {
            bool: "boolean",
            int: "int long",
            float: "float double",
            str: "string enum",
            bytes: "bytes fixed",
        }
        kinds |= {list: "array", dict: "map record"}
        return kind in kinds[type(value)].split()


def _collect(schema: Any, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _collect(each, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for part in ("items", "values"):
            if part in schema:
                _collect(schema[part], named)
        for field in schema.get("fields", ()):
            _collect(field["type"], named)
