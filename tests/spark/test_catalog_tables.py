"""Options of tables: found in what Spark gives, kept with the schema, given to the side that knows them."""

import json

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.catalog_tables import created_with, for_side, used_with, with_options

# As Spark 4.2 and 4.3 give them for: CREATE TABLE t USING pulsar OPTIONS (topic 'T', 'service.url' 'pulsar://h')
# COMMENT 'hello' TBLPROPERTIES ('a.b'='c')
CREATED = {
    "provider": "pulsar",
    "comment": "hello",
    "service.url": "pulsar://h",
    "option.service.url": "pulsar://h",
    "a.b": "c",
    "topic": "T",
    "owner": "root",
    "option.topic": "T",
}
COLUMNS = StructType([StructField("value", BinaryType()), StructField("n", LongType(), nullable=False)])
TABLE = with_options(COLUMNS, {"service.url": "pulsar://h", "topic": "t", "startingoffsets": "latest"})


def test_the_options_are_those_with_the_prefix():
    assert created_with(CREATED) == {"service.url": "pulsar://h", "topic": "T"}
    assert created_with({"service.url": "pulsar://h", "topic": "T"}) is None


@pytest.mark.parametrize("text", ["token:secret", "secret", '{"userId": "u", "password": "secret"}'])
def test_a_secret_is_not_kept(text):
    name = "pulsar.client.authParams"
    for given in (name, name.lower()):
        with pytest.raises(
            OptionError, match=r"authParams of a table contains a secret.*file:///PATH"
        ) as caught:
            created_with({**CREATED, given: text, f"option.{given}": text})
        assert "secret:" not in str(caught.value)


@pytest.mark.parametrize("text", ["file:///run/token", "env:TOKEN", " env:TOKEN"])
def test_the_place_of_a_secret_is(text):
    assert created_with({"option.pulsar.client.authparams": text}) == {"pulsar.client.authparams": text}


def test_the_schema_keeps_them_and_its_columns():
    assert TABLE.names == COLUMNS.names
    assert [each.dataType for each in TABLE] == [each.dataType for each in COLUMNS]
    through_spark = StructType.fromJson(json.loads(TABLE.json()))
    options, columns = used_with({}, through_spark, "source")
    assert options == {"service.url": "pulsar://h", "topic": "t", "startingoffsets": "latest"}
    assert columns == COLUMNS


def test_each_side_gets_what_it_knows():
    given = {"topic": "t", "startingOffsets": "latest", "delivery": "at-least-once", "valueFormat": "json"}
    assert for_side(given, "source") == {"topic": "t", "startingOffsets": "latest", "valueFormat": "json"}
    assert for_side(given, "sink") == {"topic": "t", "delivery": "at-least-once", "valueFormat": "json"}
    assert for_side({"nonsense": "x"}, "sink") == {"nonsense": "x"}  # it is refused, not left out
    assert used_with({}, TABLE, "sink")[0] == {"service.url": "pulsar://h", "topic": "t"}


def test_options_of_the_query_win():
    options, _ = used_with({"topic": "other"}, TABLE, "sink")
    assert options == {"service.url": "pulsar://h", "topic": "other"}


def test_rows_of_a_table_that_are_written_elsewhere_do_not_take_its_options_along():
    given = {"service.url": "pulsar://elsewhere"}
    assert used_with(given, TABLE, "sink") == (given, COLUMNS)


def test_what_is_no_table_is_as_it_is():
    schema = StructType([StructField("value", StringType(), metadata={"comment": "mine"})])
    given = {"topic": "t"}
    assert used_with(given, schema, "source") == (given, schema)
