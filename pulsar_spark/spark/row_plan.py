"""The plan of rows for a whole read: the schema that decodes payloads, and the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from pulsar_spark.client import (
    OPAQUE_TYPES,
    Client,
    PlanningClient,
    ReaderSchema,
    Schema,
    SchemaType,
    TypedValueReader,
    WorkPool,
    impatient_client,
    run_all,
    schema_like,
)
from pulsar_spark.errors import OptionError, PulsarError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.options.values import EvolutionMode, ValueOptions, given_schema
from pulsar_spark.spark.rows.read import PayloadReader, SchemaValues, raw_values
from pulsar_spark.spark.rows.schema import MAX_ROWS, MAX_TYPED_ROWS, RowColumns, ValueFormat

_SHOWN_TOPICS = 10  # maximum topics of each schema in an error
_SHOWN_TYPE = 500  # maximum characters of a type in an error
_NO_SCHEMA = -1, Schema(SchemaType.NONE)

_Found = Mapping[TopicName, tuple[int, Schema]]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The plan of rows, the same in all tasks of a read.

    Attributes:
        reader: schema that decodes payloads; None: payloads are not decoded.
        pool: limit of the decoding work of all values in a task. Each task unpickles its own pool.
    """

    columns: RowColumns
    reader: ReaderSchema | None = None
    pool: WorkPool = field(default_factory=WorkPool, compare=False)

    @property
    def max_rows(self) -> int:
        """Returns the number of rows at which a record batch is closed."""
        return MAX_ROWS if self.reader is None else MAX_TYPED_ROWS

    def values(
        self, client: Client, topic: TopicName, options: ValueOptions, *, ledger: int
    ) -> PayloadReader:
        """Returns the PayloadReader for a range of a topic partition; ``ledger``: ledger id of its end."""
        if self.reader is None:
            return raw_values(self.columns)
        # A topic that is deleted and created again has new ledgers, and its schema versions start at 0. So
        # the cache key contains the ledger, and schemas of the deleted topic are not used for the new one.
        versions_of = partial(client.schemas.at_all, load=f"{self.reader.load}/{ledger}")
        refuses = options.evolution is EvolutionMode.RESTART
        return SchemaValues(
            TypedValueReader(
                versions_of, topic, self.reader, self.columns.target, refuse_changes=refuses, pool=self.pool
            ),
            self.columns,
            options.bad_rows,
        ).read

    def projected(self, wanted: StructType) -> RowPlan:
        """Returns the plan, limited to the columns that the user selects.

        Raises OptionError: a column does not exist, or cannot have its type.
        """
        columns = self.columns.projected(wanted)
        if self.reader is not None and columns is not self.columns:
            try:
                self.reader.check(columns.target)
            except SchemaError as error:
                raise OptionError(
                    f".schema(...) does not fit the schema of the values: {error.what}",
                    advice=f"The columns of the schema are {_shown(self.reader.type)}",
                ) from None
        return replace(self, columns=columns)


def plan_rows(
    options: SourceOptions, known: RowPlan | None = None, wanted: StructType | None = None
) -> RowPlan:
    """Plans rows, with requests to the broker if columns depend on the schemas of topics.

    Args:
        known: plan that was made for the schema; None: it is made now.
        wanted: columns that the user selects with ``.schema(...)``; None: all columns.

    Raises:
        OptionError: a topic has no schema, topics have different schemas, or columns cannot be combined.
        UnsupportedError: values of the schema cannot be columns.
    """
    if known is None:
        known = _plan(options, wanted)
    return known if wanted is None else known.projected(wanted)


def _plan(options: SourceOptions, wanted: StructType | None) -> RowPlan:
    values = options.values
    if values.format is ValueFormat.RAW:
        return RowPlan(options.columns)
    if wanted is not None and values.evolution is EvolutionMode.RESTART:
        raise OptionError(
            "schemaEvolutionMode=restart has no effect with .schema(...), which keeps the columns as they "
            "are",
            advice="Leave one of them out",
        )
    found = _schemas(options)
    if values.schema is not None or values.key_schema is not None:
        return _typed(options, _given_reader(found, values), wanted)
    schemas = list(dict.fromkeys(schema for _, schema in found.values()))
    load = uuid4().hex
    # If the user has selected columns, only the first of the widest schemas is tried.
    for schema in _widest(schemas)[: None if wanted is None else 1]:
        reader = ReaderSchema(schema, found, is_default=schema.type is SchemaType.NONE, load=load)
        plan = _typed(options, reader, wanted)
        target = plan.columns.target if wanted is None else plan.columns.projected(wanted).target
        if all(_is_read_by(reader, each, target, wanted) for each in schemas):
            return plan
    raise _different(found, wanted)


def _typed(options: SourceOptions, reader: ReaderSchema, wanted: StructType | None) -> RowPlan:
    if wanted is None:
        reader.check_columns()
    columns = replace(
        options.columns, value_type=reader.type, is_flat=options.values.format is ValueFormat.COLUMNS
    )
    reader.check(reader.type)
    return RowPlan(columns, reader)


def _given_reader(found: _Found, values: ValueOptions) -> ReaderSchema:
    """Returns the user's schema, of the same type as the topics' schemas.

    Raises OptionError: the type is unknown, topics have several types, or the schema cannot read a topic's
    values.
    """
    value = values.schema and partial(given_schema, "valueSchema", values.schema, message=values.message)
    key = values.key_schema and partial(given_schema, "keySchema", values.key_schema)
    own = {topic: schema for topic, (_, schema) in found.items() if schema.type not in OPAQUE_TYPES}
    others = [topic for topic in found if topic not in own]
    default = value(values.type.type) if value and values.type else None
    if default is None and (others or not own):
        topic = others[0] if others else "of topicsPattern"
        raise OptionError(
            f"topic {topic} has no schema that says what its values are",
            advice="Set schemaType to avro, json, protobuf or primitive, and valueSchema to their schema",
        )
    kinds = {schema_like(schema, value or None, key or None) for schema in own.values()}
    schema = next(iter(kinds), default)
    if schema is None or len(kinds) > 1 or (others and schema != default):
        raise _different(found, None)
    if key and schema.type is not SchemaType.KEY_VALUE:
        raise OptionError("option keySchema is for KEY_VALUE, but the values are not", advice="Leave it out")
    reader = ReaderSchema(schema, found, is_given=True, is_default=schema == default, load=uuid4().hex)
    for topic, each in own.items():
        why = reader.decoder(each, each, reader.type)
        if isinstance(why, str):
            raise OptionError(
                f"the values of topic {topic} cannot be read by the options' schema: {why}",
                advice="Give the new names of fields aliases with the old ones, and new fields a default",
            )
    return reader


def _schemas(options: SourceOptions) -> _Found:
    """Returns the version and schema of each topic: the latest version, or the user's ``schemaVersion``.

    A topic without a schema has :data:`_NO_SCHEMA`.
    """
    with impatient_client(options.client) as client:
        pattern = options.pattern
        given = options.topics if pattern is None else PlanningClient(client).topics_matching(pattern)
        topics = list(dict.fromkeys(topic.base for topic in given))
        answers = run_all([partial(_schema_of, client, topic, options.values) for topic in topics])
    if not topics and options.values.type is None:
        raise OptionError(
            "no topic matches topicsPattern yet, so there is no schema to decode values with",
            advice="Start the query when a topic exists, or set valueFormat=raw",
        )
    found: dict[TopicName, tuple[int, Schema]] = {}
    same: dict[Schema, Schema] = {}  # equal schemas are one object, so that the plan has each schema once
    for topic, answer in zip(topics, answers, strict=True):
        if isinstance(answer, PulsarError):
            raise answer
        version, schema = answer
        found[topic] = version, same.setdefault(schema, schema)
    return found


def _schema_of(client: Client, topic: TopicName, values: ValueOptions) -> tuple[int, Schema]:
    if values.version is not None:
        schema = client.schemas.at(topic, values.version)
        if schema is None:
            raise OptionError(
                f"topic {topic} has no version {values.version} of its schema",
                advice="List its versions with pulsar_spark admin schemas, or leave schemaVersion out",
            )
        return values.version, schema
    latest = client.schemas.latest(topic)
    if latest is None:
        return _NO_SCHEMA
    return latest


def _widest(schemas: Sequence[Schema]) -> list[Schema]:
    """Returns candidates to read all topics: the schemas with most fields, one for each distinct column type.

    Returns [] if the schemas differ in SchemaType, such as AVRO and JSON.
    """
    if len({schema.type for schema in schemas}) > 1:
        return []
    of_type: dict[pa.DataType, Schema] = {}
    for schema in schemas:
        of_type.setdefault(ReaderSchema(schema).type, schema)
    most = max(map(_width, of_type))
    return [schema for kind, schema in of_type.items() if _width(kind) == most]


def _width(kind: pa.DataType) -> int:
    """Returns the number of fields of a type, at any depth."""
    children = [kind.field(number).type for number in range(kind.num_fields)]
    return 1 + sum(map(_width, children))


def _is_read_by(reader: ReaderSchema, schema: Schema, target: pa.DataType, wanted: StructType | None) -> bool:
    if schema == reader.schema:
        return True
    if reader.has_all_of(schema):
        return not isinstance(reader.decoder(schema, schema, target), str)
    if wanted is None:
        return False
    try:
        ReaderSchema(schema).check(target)
    except SchemaError:
        return False
    return True


def _different(found: _Found, wanted: StructType | None) -> OptionError:
    topics: dict[str, list[str]] = {}
    for topic, (_, schema) in found.items():
        topics.setdefault(_schema_text(schema), []).append(str(topic))
    texts = [f"{', '.join(_first(names))}: {text}" for text, names in topics.items()]
    columns = "choose columns that they share with .schema(...)"
    if wanted is not None:
        columns = "leave columns that they do not share out of .schema(...)"
    return OptionError(
        f"topics have different schemas: {'; '.join(_first(texts))}",
        advice=f"Read them one by one, {columns}, or set valueFormat=raw to get the bytes of their values",
    )


def _schema_text(schema: Schema) -> str:
    if schema.type is SchemaType.NONE:
        return "no schema"
    columns = "" if schema.type in OPAQUE_TYPES else f" {_shown(ReaderSchema(schema).type)}"
    return f"{schema.type.name}{columns}"


def _first(texts: Sequence[str]) -> list[str]:
    more = len(texts) - _SHOWN_TOPICS
    return [*texts[:_SHOWN_TOPICS], *([f"{more} more"] if more > 0 else [])]


def _shown(kind: pa.DataType) -> str:
    text = from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
    return text if len(text) <= _SHOWN_TYPE else f"{text[:_SHOWN_TYPE]}..."
