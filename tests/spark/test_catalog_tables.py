"""Options of tables: found in what Spark gives, kept with the schema, and used for reads only."""

import json

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.data_source import created_with, read_with, with_options
from pulsar_spark.spark.options.connection import LOGIN
from tests.loops import for_each

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


def test_a_path_of_the_table_is_an_option_too():
    """Spark gives ``LOCATION`` and ``OPTIONS (path ...)`` without the prefix; the parser refuses it."""
    found = created_with({**CREATED, "location": "payments", "path": "payments"})
    assert found == {"service.url": "pulsar://h", "topic": "T", "path": "payments"}


def test_a_table_without_options_is_refused_when_it_is_created():
    """With TBLPROPERTIES alone, too."""
    for more in ({}, {"service.url": "pulsar://h", "topic": "T"}):
        with pytest.raises(
            OptionError, match=r"the table has no OPTIONS.*CREATE TABLE t USING pulsar OPTIONS"
        ):
            created_with({"provider": "pulsar", "owner": "root", **more})


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
    options, columns = read_with({}, through_spark)
    assert options == {"service.url": "pulsar://h", "topic": "t", "startingoffsets": "latest"}
    assert columns == COLUMNS


def test_options_of_the_query_win():
    options, _ = read_with({"topic": "other"}, TABLE)
    assert options == {"service.url": "pulsar://h", "topic": "other", "startingoffsets": "latest"}


@pytest.mark.parametrize("name", ["service.url", "SERVICE.URL"])
def test_options_that_name_a_cluster_are_complete(name):
    given = CaseInsensitiveDict({name: "pulsar://elsewhere"})
    assert read_with(given, TABLE) == (given, COLUMNS)


@for_each("option", LOGIN)
def test_a_login_is_not_given_to_the_cluster_that_a_schema_names(option):
    """A schema need not be that of a table: a program may take it from a file."""
    for name in (option.name, option.name.lower()):
        with pytest.raises(OptionError, match=f"option {option.name} is given without service.url"):
            read_with({name: "x"}, TABLE)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "[" * 100_000, 5, None, {"a": "b"}])
def test_metadata_of_others_is_an_error_with_a_code(text):
    schema = StructType([StructField("value", BinaryType(), metadata={"pulsar_spark.options": text})])
    with pytest.raises(OptionError, match="cannot be read"):
        read_with({}, schema)


def test_what_is_no_table_is_as_it_is():
    schema = StructType([StructField("value", StringType(), metadata={"comment": "mine"})])
    given = {"topic": "t"}
    assert read_with(given, schema) == (given, schema)
