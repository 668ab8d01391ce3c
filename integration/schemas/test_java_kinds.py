"""Each kind of field that a class of Java may have: Spark shows what Java gets, and writes it back.

Rows have a value in each field, null in each, extremes, and none: where an older version lacks the field, it
has its default, or null. Where a column is not what Java has, ``AS_JAVA`` says what it is instead.
"""

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from integration.helpers.java_kinds import java_kinds
from integration.helpers.java_values import as_json

# What Java's JSON leaves out is the class's own initial value there, and the schema's default here.
DEFAULTS = {
    "primitiveBoolean": True,
    "primitiveByte": 7,
    "primitiveShort": 7,
    "primitiveChar": "c",
    "primitiveInt": 7,
    "primitiveLong": 7,
    "primitiveFloat": 1.5,
    "primitiveDouble": 1.5,
}
# Units of columns, in ns: what is less is cut.
UNITS = {"localTime": 1_000_000, "instant": 1_000}


def _pairs(value):
    return {str(each["key"]): each["value"] for each in value}


def _without_nulls(value):
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _duration(seconds):
    return f"PT{Decimal(seconds).normalize():f}S"


def _decimal(value):
    unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return str(Decimal((int(unscaled < 0), digits, -2)))


_BOTH: dict[str, Callable[[Any], Any]] = {
    "localTime": lambda value: value * 1_000_000,
    **dict.fromkeys(("byInteger", "partsByLong", "byColor", "byUuid"), _pairs),
}
# What a column's value is in Java, by kind of schema and field.
AS_JAVA: dict[str, dict[str, Callable[[Any], Any]]] = {
    "AVRO": {
        **_BOTH,
        **dict.fromkeys(("primitiveChar", "boxedChar"), chr),
        **dict.fromkeys(("chars", "characters"), lambda codes: list(map(chr, codes))),
        "wide": _decimal,
    },
    "JSON": {
        **_BOTH,
        "chars": list,
        "duration": _duration,
        **dict.fromkeys(("atomic", "node", "object", "period", "sqlTime", "next"), json.loads),
        "kids": lambda kids: list(map(json.loads, kids)),
        "objects": lambda objects: {name: json.loads(each) for name, each in objects.items()},
    },
}


def shown(kind, row):
    """A row of Spark's as Java would say it."""
    forms = AS_JAVA[kind]
    values = {name: as_json(value) for name, value in row.items()}
    return {
        name: forms[name](value) if name in forms and value is not None else value
        for name, value in values.items()
    }


def cut(row):
    """A value of Java's, as exact as columns are; of records in it, without nulls, which JSON leaves out."""
    exact = {
        name: value // UNITS[name] * UNITS[name] if name in UNITS and value is not None else value
        for name, value in row.items()
    }
    return exact | {name: _without_nulls(exact[name]) for name in ("next", "kids") if name in exact}


@pytest.fixture(scope="module")
def java(cluster, tmp_path_factory):
    with java_kinds(cluster.service_url, tmp_path_factory.mktemp("java") / "log") as opened:
        yield opened


@pytest.fixture
def case_sensitive(pulsar_in_spark):
    """Two fields differ only by case."""
    pulsar_in_spark.spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    pulsar_in_spark.spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.usefixtures("case_sensitive")
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_each_kind_of_field(pulsar_in_spark, java, topic, kind):
    copy = f"{topic}-copy"
    java.write(kind, topic)
    java.register(kind, copy)
    rows = pulsar_in_spark.read(topic, valueFormat="columns", metadataColumns="")
    found = [shown(kind, row) for row in rows.toArrow().to_pylist(maps_as_pydicts="strict")]
    expected = [cut(row) for row in java.read(kind, topic)]
    assert len(expected) == 5
    assert len(expected[1]) > 45
    assert None not in expected[1].values()
    for row in (0, 4):
        expected[row] |= DEFAULTS
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs
    pulsar_in_spark.write(rows, copy, valueFormat="columns", schemaRegistration="existing")
    for ours, theirs in zip(map(cut, java.read(kind, copy)), expected, strict=True):
        assert ours == theirs
