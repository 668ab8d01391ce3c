"""Tables in SQL, the second name of the format, and a write without a mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from integration.fix_spark import Collector, PulsarInSpark, drain
from integration.peer import Peer, Record
from pulsar_spark.errors import OptionError


@pytest.fixture
def table(pulsar_in_spark: PulsarInSpark) -> Iterator[str]:
    """The name of a table that goes with the test."""
    yield "pulsar_table"
    pulsar_in_spark.spark.sql("DROP TABLE IF EXISTS pulsar_table")


def values(rows) -> list[str]:
    return [bytes(row.value).decode() for row in rows]


@pytest.mark.parametrize("name", ["pulsar", "pulsar_spark"])
def test_a_table_is_read_and_written(
    pulsar_in_spark: PulsarInSpark, peer: Peer, topic: str, table: str, checkpoint: Path, name: str
):
    spark = pulsar_in_spark.spark
    sent = [str(number) for number in range(5)]
    peer.produce(topic, [Record(each.encode()) for each in sent])
    spark.sql(
        f"CREATE TABLE {table} USING {name} OPTIONS ('service.url' '{pulsar_in_spark.service_url}', "
        f"topic '{topic}', metadataColumns '__key', 'pulsar.producer.compressionType' 'LZ4') COMMENT 'ours'"
    )
    assert spark.table(table).columns == ["value", "__key"]
    assert values(spark.sql(f"SELECT value FROM {table}").collect()) == sent
    spark.sql(f"INSERT INTO {table} SELECT CAST('5' AS BINARY), CAST('k' AS BINARY)")
    spark.sql(f"INSERT INTO {table} (value) VALUES (CAST('6' AS BINARY))")
    rows = spark.sql(f"SELECT * FROM {table} WHERE CAST(value AS STRING) > '4'").collect()
    assert [(bytes(row.value), row["__key"]) for row in rows] == [(b"5", b"k"), (b"6", None)]
    assert [each.key for each in peer.read_all(topic)[-2:]] == ["k", None]
    assert spark.sql(f"SELECT * FROM {table} WITH (endingOffsets = 'earliest')").count() == 0
    sink = Collector()
    drain(spark.readStream.option("startingOffsets", "earliest").table(table), sink, checkpoint)
    assert sink.values == [*sent, "5", "6"]


def test_rows_of_a_table_are_written_elsewhere(
    pulsar_in_spark: PulsarInSpark, peer: Peer, topic: str, table: str
):
    peer.produce(topic, [Record(b"1")])
    spark = pulsar_in_spark.spark
    spark.sql(
        f"CREATE TABLE {table} USING pulsar OPTIONS ('service.url' '{pulsar_in_spark.service_url}', "
        f"topic '{topic}', metadataColumns '')"
    )
    pulsar_in_spark.write(spark.table(table), f"{topic}-copy")
    assert [each.value for each in peer.read_all(f"{topic}-copy")] == [b"1"]
    assert len(peer.read_all(topic)) == 1


def test_a_temporary_view(pulsar_in_spark: PulsarInSpark, peer: Peer, topic: str):
    peer.produce(topic, [Record(b"1")])
    spark = pulsar_in_spark.spark
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW pulsar_view USING pulsar OPTIONS "
        f"('service.url' '{pulsar_in_spark.service_url}', topic '{topic}')"
    )
    assert values(spark.table("pulsar_view").collect()) == ["1"]
    spark.catalog.dropTempView("pulsar_view")


def test_the_second_name_reads_and_writes(
    pulsar_in_spark: PulsarInSpark, peer: Peer, topic: str, checkpoint: Path
):
    here = {"service.url": pulsar_in_spark.service_url, "topic": topic}
    rows = pulsar_in_spark.rows([("1",), ("2",)], "value string")
    rows.write.format("pulsar_spark").options(**here).mode("append").save()
    assert values(pulsar_in_spark.spark.read.format("pulsar_spark").options(**here).load().collect()) == [
        "1",
        "2",
    ]
    stream = pulsar_in_spark.spark.readStream.format("pulsar_spark").options(
        **here, startingOffsets="earliest"
    )
    sink = Collector()
    drain(stream.load(), sink, checkpoint)
    assert sink.values == ["1", "2"]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (None, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("ignore", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("overwrite", 'a topic cannot be overwritten. Write with .mode("append")'),
    ],
)
def test_a_write_in_another_mode(pulsar_in_spark: PulsarInSpark, topic: str, mode: str | None, said: str):
    """Spark itself refuses the first two; docs/errors.md says what to do."""
    rows = pulsar_in_spark.rows([("1",)], "value string")
    writer = rows.write.format("pulsar").options(
        **{"service.url": pulsar_in_spark.service_url, "topic": topic}
    )
    with pytest.raises(PySparkException) as caught:
        (writer if mode is None else writer.mode(mode)).save()
    assert said in str(caught.value)
    assert OptionError.code in str(caught.value) or mode != "overwrite"
