"""Tables in Spark's catalog: the options of ``CREATE TABLE ... USING pulsar OPTIONS (...)``.

Spark 4.2 and 4.3 pass the options only when the table is created, each a second time with the prefix
``option.``, and with properties of the catalog such as the owner. So the options are stored in the metadata
of the table's first column, which Spark keeps, and passes when the table is read.

    CREATE TABLE     options: topic, option.topic, owner, ...    the schema made here has them in its metadata
    SELECT           options from WITH (...)                      the table's schema
    INSERT, save     options from WITH (...)                      the rows' schema, with any metadata

A write never uses these options, because Spark passes the metadata of the rows, such as that of a Parquet
file or another table, if their names and types are the table's. So the writer of a file could choose the
cluster for the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.connection import CONNECTION, LOGIN, SERVICE_URL
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE

_PREFIX = "option."
# Properties that Spark 4.2 and 4.3 always pass when a table is created.
_OF_A_TABLE = frozenset({"owner", "provider"})
_KEY = "pulsar_spark.options"


def created_with(options: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options of a table that is being created; None if no table is being created.

    Raises:
        OptionError: there are no options, or an option is secret and Spark would show it with the columns.
    """
    given = {name[len(_PREFIX) :]: text for name, text in options.items() if name.startswith(_PREFIX)}
    if not given and options.keys() >= _OF_A_TABLE:
        raise OptionError(
            "the table has no OPTIONS; other properties are not used",
            advice="CREATE TABLE t USING pulsar OPTIONS ('service.url' 'pulsar://host:6650', topic 'orders')",
        )
    if not given:
        return None
    if "path" in options:  # has no prefix; it is kept, so that the parser of options refuses it
        given["path"] = options["path"]
    for option in (*CONNECTION, *SOURCE, *SINK):
        text = next((text for name, text in given.items() if name.lower() == option.name.lower()), "")
        if option.secret and text and not text.strip().startswith(("file:", "env:")):
            raise OptionError(
                f"option {option.name} of a table contains a secret, and Spark would show it with the "
                "table's description",
                advice="Give its place as file:///PATH or env:NAME, or create a temporary view instead",
            )
    return given


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Returns the schema of a table, with the options in its metadata."""
    first, *others = schema.fields
    metadata = {_KEY: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def read_with(options: Mapping[str, str], schema: StructType) -> tuple[Mapping[str, str], StructType]:
    """Returns the options of a read, and its columns without options in their metadata.

    Args:
        options: options from Spark. If they name a cluster they are complete, else they are added to the
            table's options.
        schema: schema from Spark; a table's schema contains its options.

    Raises:
        OptionError: the options have a login and no cluster. A schema from elsewhere must not choose the
            cluster that gets the login.
    """
    kept = [field.metadata[_KEY] for field in schema.fields if _KEY in (field.metadata or {})]
    if not kept:
        return options, schema
    given = {name.lower() for name in options}
    if SERVICE_URL.name not in given:
        login = next((option.name for option in LOGIN if option.name.lower() in given), None)
        if login is not None:
            raise OptionError(
                f"option {login} is given without service.url for the read of a table",
                advice="Give all options, or set the login when you create the table",
            )
        options = {**_parsed(kept[0]), **options}
    columns = [StructField(each.name, each.dataType, each.nullable) for each in schema.fields]
    return options, StructType(columns)


def _parsed(text: object) -> dict[str, str]:
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise OptionError(
            "the options in the metadata of the table's columns cannot be read",
            advice="Create the table again",
        )
    return found
