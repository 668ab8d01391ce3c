"""Tables in Spark's catalog: the options of ``CREATE TABLE ... USING pulsar OPTIONS (...)``.

Spark 4.2 and 4.3 pass the options when the table is created, each a second time with the prefix ``option.``,
and together with properties of the catalog such as the owner. When the table is read or written they pass
none. So the options are stored in the metadata of the table's first column, which Spark keeps and passes
then.

    CREATE TABLE     options: topic, option.topic, owner, ...    the schema made here has them in its metadata
    SELECT           options: those of WITH (...)                the table's schema
    INSERT           options: none                               the rows' schema, with the table's metadata
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE

_PREFIX = "option."
_KEY = "pulsar_spark.options"
_CLUSTER = "service.url"

_SIDES = {"source": SOURCE, "sink": SINK}


def created_with(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being created; None if no table is.

    Raises:
        OptionError: an option is secret, and Spark would show it with the columns.
    """
    given = {name[len(_PREFIX) :]: text for name, text in options.items() if name.startswith(_PREFIX)}
    if not given:
        return None
    for option in (*CONNECTION, *SOURCE, *SINK):
        text = next((text for name, text in given.items() if name.lower() == option.name.lower()), "")
        if option.secret and text and not text.strip().startswith(("file:", "env:")):
            raise OptionError(
                f"option {option.name} of a table contains a secret, and Spark would show it with the "
                "table's description",
                advice="Give its place as file:///PATH or env:NAME, or create a temporary view instead",
            )
    return given


def for_side(options: Mapping[str, str], side: str) -> dict[str, str]:
    """A table's options without those that only the other side has; ``side`` is source or sink."""
    known = {option.name.lower() for option in (*CONNECTION, *_SIDES[side])}
    others = {option.name.lower() for table in _SIDES.values() for option in table} - known
    return {name: text for name, text in options.items() if name.lower() not in others}


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table, with the options in its metadata."""
    first, *others = schema.fields
    metadata = {_KEY: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def used_with(
    options: Mapping[str, str], schema: StructType, side: str
) -> tuple[Mapping[str, str], StructType]:
    """The options of a read or a write, and its columns without options in their metadata.

    Args:
        options: the options from Spark. If they name a cluster they are complete, because rows of a table may
            be written elsewhere and still have its metadata.
        schema: the schema from Spark; that of a table contains its options.
        side: source or sink.
    """
    kept = [field.metadata[_KEY] for field in schema.fields if _KEY in (field.metadata or {})]
    if not kept:
        return options, schema
    columns = StructType([StructField(each.name, each.dataType, each.nullable) for each in schema.fields])
    if _CLUSTER in options:
        return options, columns
    return {**for_side(json.loads(kept[0]), side), **options}, columns
