"""The fuzzer of JSON: values and verdicts are those of a second reader, and of reading one by one.

A round draws a schema and payloads: names in any order, unions, long arrays, escapes, lenient forms, and
bytes that are changed. Payloads of the tests' generator are also read by the tests' model, over
``json.loads``. Others, whose schemas the model does not have, are read together and each by itself, some also
by PyArrow.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from integration.hostile.avro_schemas import Schemas, as_json, broken
from integration.hostile.entries import DifferenceError
from integration.hostile.rounds import bad_rows, rounds
from integration.hostile.values import as_python
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.json.json_read import ArrowReader, decoder
from pulsar_spark.values.json.objects import ObjectReader
from pulsar_spark.values.json.tree import JsonNode, make_tree
from pulsar_spark.values.json_types import column_type
from tests.values.json_payloads import Maker, ModelError, UnknownError, json_schema, model, plain
from tests.values.json_payloads import broken as change

ROWS = 1000  # payloads of a round
_LINES = 200  # of them, that are also read by PyArrow alone
_ODD = (
    *(
        "1",
        "-0",
        "1.0",
        "1e2",
        "5.5",
        "1e400",
        "NaN",
        "01",
        "true",
        "null",
        '"5"',
        '"x"',
        '"AP8="',
        "[]",
        "{}",
    ),
    *("[2020,1,1]", '"2020-01-01"', '"2020-01-01T10:11:12.5Z"', "9223372036854775808", '"\\ud800"', '"\\n"'),
    *('{"a":1}', "[1,2]", '"\\u00e9\\"{,"', "123456789012345678901234567890"),
)


def run(seed: int, payloads: int) -> Iterator[int]:
    """Read at least so many payloads; see ``rounds``."""
    return rounds(seed, payloads, model_round, one_round)


def model_round(seed: str, counts: Counter[str]) -> int:
    """Compare the payloads of one schema with the model; returns how many were."""
    maker = Maker(f"json model {seed}")
    tree = maker.record()
    schema = json_schema(tree)
    payloads = [maker.payload(tree) for _ in range(ROWS)]
    damaged = maker.random.choice((0.0, 0.005, 0.15))
    for row in range(ROWS):
        if maker.random.random() < damaged:
            payloads[row] = change(maker.random, payloads[row], payloads[row - 1])
    column = pa.array(payloads, pa.binary())
    found = decoder(schema, schema, column_type(schema)).decode(column, pa.nulls(ROWS, pa.binary()))
    for payload, row, is_bad in zip(payloads, plain(found.column), bad_rows(found), strict=True):
        try:
            expected, is_bad_there = model(tree, payload), False
        except ModelError:
            expected, is_bad_there = None, True
        except UnknownError:
            continue
        if is_bad != is_bad_there or repr(row) != repr(expected):
            raise DifferenceError(
                f"seed {seed}: {payload!r} is {row!r}, bad {is_bad}; "
                f"by the model {expected!r}, bad {is_bad_there}"
            )
        counts["bad by the model" if is_bad else "good by the model"] += 1
    counts["schemas of the model"] += 1
    return ROWS


def one_round(seed: str, counts: Counter[str]) -> int:
    """Compare the payloads of one schema; returns how many were."""
    rnd = random.Random(f"json {seed}")
    tree = Schemas(rnd, has_nothing=True).root()
    schema = Schema(SchemaType.JSON, json.dumps(as_json(tree)).encode())
    texts = Texts(rnd)
    payloads: list[bytes | None] = [texts.payload(tree) for _ in range(ROWS)]
    damaged = rnd.choice((0.0, 0.005, 0.15))
    for row in range(ROWS):
        if rnd.random() < damaged:
            payloads[row] = broken(rnd, payloads[row] or b"")
    column = pa.array(payloads, pa.binary())
    kind = column_type(schema)
    found = decoder(schema, schema, kind).decode(column, pa.nulls(ROWS, pa.binary()))
    found.column.validate(full=True)
    node = make_tree(schema, schema, kind)
    reader = ObjectReader(node)
    alone = [reader.read(column[row : row + 1]) for row in range(ROWS)]
    mine, other = as_python(found.column), [as_python(each.column)[0] for each in alone]
    bad, bad_alone = bad_rows(found), [bad_rows(each)[0] for each in alone]
    for row, payload in enumerate(payloads):
        if bad[row] != bad_alone[row] or repr(mine[row]) != repr(other[row]):
            raise DifferenceError(
                f"seed {seed}: {payload!r} is {mine[row]!r}, bad {bad[row]}; "
                f"by itself {other[row]!r}, bad {bad_alone[row]}"
            )
        counts["bad" if bad[row] else "good"] += 1
    counts["schemas"] += 1
    _compare_lines(seed, node, payloads, other, counts, rnd.sample(range(ROWS), _LINES))
    return ROWS


def _compare_lines(
    seed: str,
    node: JsonNode,
    payloads: list[bytes | None],
    alone: list[Any],
    counts: Counter[str],
    some: list[int],
) -> None:
    """Read some payloads each as a line."""
    lines = ArrowReader(node, fewest_of_part=1)
    if not lines.can_read:
        return
    for row in some:
        payload = payloads[row]
        for column, _ in lines.read(pa.array([payload], pa.binary()), np.arange(1)):
            column.validate(full=True)
            found = as_python(column)[0]
            if repr(found) != repr(alone[row]):
                raise DifferenceError(
                    f"seed {seed}: {payload!r} is {found!r} as a line, and not {alone[row]!r}"
                )
            counts["lines"] += 1


class Texts:
    """Draws JSON of Avro's schemas: all payloads in one style, with some that differ."""

    def __init__(self, rnd: random.Random) -> None:
        self._rnd = rnd
        self._gap = rnd.choice(("", "", " ", "\n\t"))
        self._shuffles = rnd.choice((0.0, 0.0, 0.1, 1.0))
        self._odd = rnd.choice((0.0, 0.02, 0.2))
        self._count = rnd.choice((3, 3, 3, 80))
        self._writes_times = rnd.random() < 0.5  # as texts, as our sink does
        self._left = 0  # values that the payload may still have

    def payload(self, schema: Any) -> bytes:
        """A payload of the schema."""
        self._left = 200
        return self.of(schema).encode()

    def of(self, schema: Any) -> str:
        """The text of a value."""
        rnd = self._rnd
        self._left -= 1
        if rnd.random() < self._odd:
            return rnd.choice(_ODD)
        if isinstance(schema, list):
            return self.of(rnd.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            return self._joined("[]", [self.of(schema["items"]) for _ in range(self._items())])
        if kind == "map":
            members = {f"k{number}": self.of(schema["values"]) for number in range(self._items())}
            return self._joined("{}", [self._member(*each) for each in members.items()])
        if kind == "enum":
            return json.dumps(rnd.choice(schema["symbols"]))
        logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
        if self._writes_times and (logical == "date" or "timestamp" in logical):
            return json.dumps(self._time(logical))
        return self._plain(kind)

    def _time(self, logical: str) -> str:
        rnd = self._rnd
        moment = datetime(rnd.choice((1, 1969, 2023, 9999)), rnd.randrange(1, 13), rnd.randrange(1, 29))
        if logical == "date":
            return f"{moment.date()}"
        moment += timedelta(microseconds=rnd.randrange(60_000_000))
        zone = "" if "local" in logical else "Z"
        return moment.isoformat() + (rnd.choice(("", "Z", "+01:00")) if rnd.random() < self._odd else zone)

    def _plain(self, kind: str) -> str:
        rnd = self._rnd
        if kind in ("int", "long"):
            return str(rnd.choice((0, -1, rnd.randrange(10**9), -rnd.randrange(10**6))))
        if kind in ("float", "double"):
            return repr(rnd.choice((0.0, -1.5, rnd.random(), 1e22, float(rnd.randrange(1000)))))
        if kind in ("boolean", "null"):
            return rnd.choice(("true", "false")) if kind == "boolean" else "null"
        text = rnd.choice(("", "a", "schön", "\U0001d11e", 'quo"te', "back\\slash", "}{][,:", "AP8=", "12"))
        return json.dumps(text, ensure_ascii=rnd.random() < 0.3)

    def _items(self) -> int:
        if self._left < 0:
            return 0
        return (
            self._rnd.choice((0, 1, 2, self._count)) if self._rnd.random() < 0.3 else self._rnd.randrange(3)
        )

    def _record(self, schema: Any) -> str:
        rnd = self._rnd
        members = [self._member(each["name"], self.of(each["type"])) for each in schema["fields"]]
        if rnd.random() < self._shuffles:
            rnd.shuffle(members)
        if members and rnd.random() < self._odd:
            members.append(rnd.choice((members[0], self._member("?", rnd.choice(_ODD)), '"\\u0061":1', "")))
        if members and rnd.random() < 0.1:
            members.pop(rnd.randrange(len(members)))
        return self._joined("{}", members)

    def _member(self, name: str, value: str) -> str:
        return json.dumps(name, ensure_ascii=False) + self._gap + ":" + self._gap + value

    def _joined(self, around: str, parts: list[str]) -> str:
        gap = self._gap
        return around[0] + gap + f"{gap},{gap}".join(parts) + gap + around[1]
