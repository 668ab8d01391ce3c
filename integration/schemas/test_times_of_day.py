"""Spark's time beside times of day: AVRO, JSON, LOCAL_TIME and KEY_VALUE, in Spark 4.3, both ways."""

from __future__ import annotations

from datetime import time

import pytest
from pyspark.errors import PySparkException

from integration.helpers.payloads import register

ENABLED = "spark.sql.timeType.enabled"
LAST = time(23, 59, 59, 999_999)
TYPES = "t time(6), a array<time(6)>, m map<string,time(6)>, s struct<x: time(6)>"
ROWS = [
    (time(10, 11, 12, 123_456), [time(0), None, LAST], {"a": LAST, "b": None}, (time(1),)),
    (None, None, None, None),
    (time(0), [], {}, (None,)),
]
COLUMNS = {"valueFormat": "columns"}


@pytest.fixture
def here(pulsar_in_spark):
    """Spark's type is off by default. ``.schema`` takes it nevertheless, expressions do not."""
    pulsar_in_spark.spark.conf.set(ENABLED, "true")
    yield pulsar_in_spark
    pulsar_in_spark.spark.conf.unset(ENABLED)


def read(here, topic, schema, **options):
    reader = here.spark.read.schema(schema).format("pulsar")
    return reader.options(**{"service.url": here.service_url, "topic": topic, **COLUMNS, **options}).load()


def found(rows):
    return [tuple(row) for row in rows.collect()]


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_times_at_any_depth(here, topic, kind):
    here.write(here.rows(ROWS, TYPES), topic, **COLUMNS, schemaType=kind)
    assert found(read(here, topic, TYPES)) == ROWS
    here.spark.conf.unset(ENABLED)  # reading does not need it
    some = read(here, topic, "a array<time(6)>")
    assert some.schema.simpleString() == "struct<a:array<time(6)>>"
    assert found(some) == [(row[1],) for row in ROWS]
    numbers = here.read(topic, **COLUMNS, metadataColumns="")
    assert numbers.schema.simpleString() == (
        "struct<t:bigint,a:array<bigint>,m:map<string,bigint>,s:struct<x:bigint>>"
    )
    assert numbers.first().t == 36_672_123_456


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_topic_of_milliseconds(here, topic, admin, kind):
    unit = {"type": "int", "logicalType": "time-millis"}
    register(admin, topic, kind, {"type": "record", "name": "R", "fields": [{"name": "t", "type": unit}]})
    rows = [(time(10, 11, 12, 123_000),), (time(23, 59, 59, 999_000),)]
    here.write(here.rows(rows, "t time(6)"), topic, **COLUMNS)
    assert found(read(here, topic, "t time(6)")) == rows
    with pytest.raises(PySparkException, match="more digits than the topic's unit has"):
        here.write(here.rows([(LAST,)], "t time(6)"), topic, **COLUMNS)


def test_a_primitive_and_a_key(here, topic):
    rows = [(LAST,), (time(0),)]
    here.write(here.rows(rows, "t time(6)"), topic, **COLUMNS, schemaType="primitive")
    assert found(read(here, topic, "value time(6)")) == rows
    assert here.read(topic, **COLUMNS, metadataColumns="").first().value == 86_399_999_999_000
    pairs = f"{topic}-pairs"
    keyed = [(LAST, time(1)), (time(0), None)]
    here.write(here.rows(keyed, "k time(6), t time(6)"), pairs, **COLUMNS, keyColumns="k")
    flat = read(here, pairs, "key time(6), value struct<t: time(6)>").select("key", "value.t")
    assert sorted(found(flat), reverse=True) == keyed


def test_a_stream_copies_times(here, topic, tmp_path):
    here.write(here.rows(ROWS, TYPES), topic, **COLUMNS)
    copy = f"{topic}-copy"
    reader = here.spark.readStream.schema(TYPES).format("pulsar")
    options = {"service.url": here.service_url, "startingOffsets": "earliest", **COLUMNS}
    rows = reader.options(**options, topic=topic).load()
    query = (
        here.write_stream(rows, tmp_path / "checkpoint", copy, **COLUMNS).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert found(read(here, copy, TYPES)) == ROWS


def test_other_types_are_no_times(here, topic):
    here.write(here.rows([(1, time(1))], "n bigint, t time(6)"), topic, **COLUMNS)
    with pytest.raises(PySparkException, match=r"'n' .* is long, which cannot be read as time\(6\)"):
        read(here, topic, "n time(6)").collect()
    with pytest.raises(PySparkException, match=r"column t is time\(3\).*Write it as time\(6\)"):
        read(here, topic, "t time(3)").collect()
    assert found(read(here, topic, "t time(6)").selectExpr("CAST(t AS STRING)")) == [("01:00:00",)]
