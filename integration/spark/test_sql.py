"""Tables in SQL, by both names of the format, and a write without a mode."""

import pytest
from pyspark.errors import PySparkException

from integration.fixtures.spark import Collector, drain
from integration.helpers.peer import Record
from pulsar_spark.errors import OptionError


@pytest.fixture
def table(pulsar_in_spark):
    """The name of a table that goes with the test."""
    yield "pulsar_table"
    pulsar_in_spark.spark.sql("DROP TABLE IF EXISTS pulsar_table")


def values(rows):
    return [bytes(row.value).decode() for row in rows]


@pytest.mark.parametrize("name", ["pulsar", "pulsar_spark"])
def test_a_table_is_read_and_written(pulsar_in_spark, peer, topic, table, checkpoint, name):
    spark = pulsar_in_spark.spark
    sent = [str(number) for number in range(5)]
    peer.produce(topic, [Record(each.encode()) for each in sent])
    spark.sql(
        f"CREATE TABLE {table} USING {name} OPTIONS ('service.url' '{pulsar_in_spark.service_url}', "
        f"topic '{topic}', metadataColumns '__key') COMMENT 'ours'"
    )
    assert spark.table(table).columns == ["value", "__key"]
    assert values(spark.sql(f"SELECT value FROM {table}").collect()) == sent
    options = f"'service.url' = '{pulsar_in_spark.service_url}', topic = '{topic}'"
    spark.sql(f"INSERT INTO {table} WITH ({options}) SELECT CAST('5' AS BINARY), CAST('k' AS BINARY)")
    spark.sql(f"INSERT INTO {table} WITH ({options}) (value) VALUES (CAST('6' AS BINARY))")
    rows = spark.sql(f"SELECT * FROM {table} WHERE CAST(value AS STRING) > '4'").collect()
    assert [(bytes(row.value), row["__key"]) for row in rows] == [(b"5", b"k"), (b"6", None)]
    assert [each.key for each in peer.read_all(topic)[-2:]] == ["k", None]
    assert spark.sql(f"SELECT * FROM {table} WITH (endingOffsets = 'earliest')").count() == 0
    sink = Collector()
    drain(spark.readStream.option("startingOffsets", "earliest").table(table), sink, checkpoint)
    assert sink.values == [*sent, "5", "6"]


def test_rows_never_choose_where_they_are_written(pulsar_in_spark, peer, topic, table, tmp_path, checkpoint):
    """Rows of a table carry its options in their metadata, also through a file, which may be anybody's."""
    peer.produce(topic, [Record(b"1")])
    spark = pulsar_in_spark.spark
    options = f"'service.url' '{pulsar_in_spark.service_url}', topic '{{}}', metadataColumns ''"
    spark.sql(f"CREATE TABLE {table} USING pulsar OPTIONS ({options.format(topic)})")
    spark.table(table).write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert "pulsar_spark.options" in rows.schema["value"].metadata
    rows.createOrReplaceTempView("rows_of_a_file")
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    try:
        spark.sql(f"CREATE TABLE other_table USING pulsar OPTIONS ({options.format(topic + '-other')})")
        for write in (
            lambda: spark.sql("INSERT INTO other_table SELECT * FROM rows_of_a_file"),
            lambda: spark.sql(f"INSERT INTO other_table SELECT * FROM {table}"),
            lambda: rows.writeTo("other_table").append(),
            lambda: rows.write.format("pulsar").mode("append").save(),
            lambda: spark.sql("CREATE TABLE third_table USING pulsar AS SELECT * FROM rows_of_a_file"),
            lambda: drain_into(stream, "other_table", checkpoint),
        ):
            with pytest.raises(PySparkException, match=r"service\.url is missing"):
                write()
        assert not spark.catalog.tableExists("third_table")
    finally:
        spark.sql("DROP TABLE IF EXISTS other_table")
        spark.catalog.dropTempView("rows_of_a_file")
    assert [each.value for each in peer.read_all(topic)] == [b"1"]


def drain_into(rows, table, checkpoint, **options):
    """Write the rows of a stream into a table, all that there are."""
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.options(**options).toTable(table).awaitTermination()


def test_a_typed_table_is_read_and_written(pulsar_in_spark, topic, table, checkpoint):
    """With the same options for SELECT and for INSERT, whatever schema the topic has."""
    spark = pulsar_in_spark.spark
    names = {"service.url": pulsar_in_spark.service_url, "valueFormat": "columns"}
    pulsar_in_spark.write(
        pulsar_in_spark.rows([(1, "tea")], "id bigint, item string"),
        topic,
        valueFormat="columns",
        schemaType="json",
    )
    pairs = pulsar_in_spark.rows([(1, "a")], "key bigint, value string")
    pulsar_in_spark.write(
        pairs, f"{topic}-pairs", valueFormat="columns", schemaType="primitive", keyColumns="key"
    )
    for name, first, second in ((topic, "id", "item"), (f"{topic}-pairs", "key", "value")):
        given = ", ".join(f"'{option}' '{text}'" for option, text in {**names, "topic": name}.items())
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        spark.sql(f"CREATE TABLE {table} USING pulsar OPTIONS ({given}, metadataColumns '')")
        same = given.replace("' '", "' = '")
        spark.sql(f"INSERT INTO {table} WITH ({same}) VALUES (2, 'rice')")
        # A view has no other options for what is inserted.
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW pulsar_view USING pulsar OPTIONS ({given})")
        spark.sql(f"INSERT INTO pulsar_view ({first}, {second}) VALUES (3, 'milk')")
        assert spark.table("pulsar_view").count() == 3
        rows = spark.sql(
            f"SELECT {first}, {second} FROM {table} WHERE {first} > 1 ORDER BY {first}"
        ).collect()
        assert [tuple(row) for row in rows] == [(2, "rice"), (3, "milk")]
    spark.catalog.dropTempView("pulsar_view")
    drain_into(
        pulsar_in_spark.stream(f"{topic}-pairs", valueFormat="columns", metadataColumns=""),
        table,
        checkpoint,
        **{**names, "topic": f"{topic}-pairs"},
    )
    assert spark.table(table).count() == 6


def test_a_table_that_keeps_no_options_is_named_in_the_error(pulsar_in_spark, topic, table):
    spark = pulsar_in_spark.spark
    given = f"'service.url' '{pulsar_in_spark.service_url}', topic '{topic}'"
    rows = pulsar_in_spark.rows([("1",)], "value string")
    here = {"service.url": pulsar_in_spark.service_url, "topic": topic}
    for make in (
        lambda: spark.sql(f"CREATE TABLE {table} (value BINARY) USING pulsar OPTIONS ({given})"),
        lambda: rows.write.format("pulsar").options(**here).mode("append").saveAsTable(table),
    ):
        make()
        with pytest.raises(PySparkException, match="A table has no options if it was made with listed"):
            spark.table(table).collect()
        spark.sql(f"DROP TABLE {table}")
    with pytest.raises(PySparkException, match=r"Instead of CREATE TABLE \.\.\. AS SELECT, create the table"):
        spark.sql(f"CREATE TABLE {table} USING pulsar OPTIONS ({given}) AS SELECT 'x' AS value")
    with pytest.raises(PySparkException, match=r"the table has no OPTIONS"):
        spark.sql(f"CREATE TABLE {table} USING pulsar TBLPROPERTIES (topic = '{topic}')")


def test_rows_of_a_table_are_written_elsewhere(pulsar_in_spark, peer, topic, table):
    peer.produce(topic, [Record(b"1")])
    spark = pulsar_in_spark.spark
    spark.sql(
        f"CREATE TABLE {table} USING pulsar OPTIONS ('service.url' '{pulsar_in_spark.service_url}', "
        f"topic '{topic}', metadataColumns '')"
    )
    pulsar_in_spark.write(spark.table(table), f"{topic}-copy")
    assert [each.value for each in peer.read_all(f"{topic}-copy")] == [b"1"]
    assert len(peer.read_all(topic)) == 1


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (None, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        ("overwrite", 'a topic cannot be overwritten. Write with .mode("append")'),
    ],
)
def test_a_write_in_another_mode(pulsar_in_spark, topic, mode, said):
    """Spark itself refuses the first; docs/errors.md says what to do."""
    rows = pulsar_in_spark.rows([("1",)], "value string")
    writer = rows.write.format("pulsar").options(
        **{"service.url": pulsar_in_spark.service_url, "topic": topic}
    )
    with pytest.raises(PySparkException) as caught:
        (writer if mode is None else writer.mode(mode)).save()
    assert said in str(caught.value)
    assert OptionError.code in str(caught.value) or mode != "overwrite"
