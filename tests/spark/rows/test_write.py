import datetime
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pulsar_spark.client import IN_PARALLEL, PartKind
from pulsar_spark.errors import OptionError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA, ValueFormat
from pulsar_spark.spark.rows.write import message_shape
from pulsar_spark.spark.rows.write_values import SinkValues
from pulsar_spark.spark.spark_api import HAS_READ_LIMITS, arrow_schema
from pulsar_spark.values.interfaces import EncodedValues
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from tests.work import calls

# Times have the session's zone; Spark 4.0 and 4.1 have no argument for it here.
ZONE: dict[str, Any] = {"timezone": "America/Lima"} if HAS_READ_LIMITS else {}

OUT = TopicName.parse("out")
COLUMNS = ValueFormat.COLUMNS
TEXT = StringType()
PROPERTIES = st.lists(
    st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.text(max_size=3)), max_size=4),
    max_size=6,
)


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


def messages(topic: TopicName | None, spark_schema: StructType, **columns: list):
    """The messages of one record batch as Spark would hand it over."""
    arrow = to_arrow_schema(spark_schema, **ZONE)
    batch = pa.RecordBatch.from_pydict(columns, schema=arrow)
    return list(message_shape(spark_schema, topic).messages(batch))


def only(found):
    ((topic, columns),) = found
    assert topic == OUT
    return columns


def test_one_string_column_is_the_value():
    columns = only(messages(OUT, schema(anything=TEXT), anything=["a", None, "é"]))
    assert columns.value == pa.array([b"a", None, "é".encode()], pa.binary())
    assert columns.key == pa.nulls(3, pa.binary())
    assert columns.event_time is None
    assert columns.properties is None
    assert columns.ordering_key is None
    assert columns.sequence_id is None


def test_a_delay_beyond_all_times_is_the_last_of_them():
    shape = schema(value=TEXT, __deliverAfter=LongType())
    delays = [2**63 - 1, None, -(2**63), 2**62]
    columns = only(messages(OUT, shape, value=["a"] * 4, __deliverAfter=delays))
    last, none, past, late = columns.deliver_at.to_pylist()
    assert (last, none) == (2**63 - 1, None)
    assert past < 0 < 2**62 < late


@pytest.mark.parametrize("kind", [TEXT, BinaryType()], ids=str)
def test_keys_may_be_strings_and_bytes(kind):
    shape = schema(__key=kind, __orderingKey=kind, value=BinaryType())
    key = ["k", None] if kind == TEXT else [b"k", None]
    columns = only(messages(OUT, shape, __key=key, __orderingKey=key, value=[b"", b"v"]))
    assert columns.key.to_pylist() == [b"k", None]
    assert columns.ordering_key.to_pylist() == [b"k", None]
    assert columns.value.to_pylist() == [b"", b"v"]


def test_rows_may_name_their_partition():
    shape = schema(value=TEXT, __partition=IntegerType())
    columns = only(messages(OUT, shape, value=["a", "b"], __partition=[2, None]))
    assert columns.partition == pa.array([2, None], pa.int32())
    columns = only(messages(OUT, shape, value=["a", "b"], __partition=[None, None]))
    assert columns.partition is None


def test_rows_may_have_sequence_ids():
    shape = schema(value=TEXT, __sequenceId=LongType())
    columns = only(messages(OUT, shape, value=["a", "b"], __sequenceId=[2**62, None]))
    assert columns.sequence_id == pa.array([2**62, None], pa.int64())


def test_delivery_times():
    shape = schema(value=TEXT, __deliverAt=TimestampType(), __deliverAfter=LongType())
    at = datetime.datetime(2040, 1, 1, tzinfo=datetime.timezone.utc)
    before = time.time_ns() // 1_000_000
    columns = only(
        messages(OUT, shape, value=["a"] * 3, __deliverAt=[at, None, None], __deliverAfter=[None, 5000, None])
    )
    first, second, third = columns.deliver_at.to_pylist()
    assert first == at.timestamp() * 1000
    assert before + 5000 <= second <= time.time_ns() // 1_000_000 + 5000
    assert third is None
    with pytest.raises(OptionError, match=r"a row has both __deliverAt and __deliverAfter\. Leave one"):
        messages(OUT, shape, value=["a"], __deliverAt=[at], __deliverAfter=[0])


@pytest.mark.parametrize("kind", [LongType(), IntegerType()], ids=str)
def test_one_way_to_say_when_to_deliver(kind):
    shape = schema(value=TEXT, __deliverAfter=kind)
    columns = only(messages(OUT, shape, value=["a", "b"], __deliverAfter=[0, None]))
    assert columns.deliver_at.type == pa.int64()
    assert columns.deliver_at.null_count == 1
    columns = only(messages(OUT, shape, value=["a"], __deliverAfter=[None]))
    assert columns.deliver_at is None
    at = datetime.datetime(2040, 1, 1, tzinfo=datetime.timezone.utc)
    columns = only(
        messages(OUT, schema(value=TEXT, __deliverAt=TimestampType()), value=["a"], __deliverAt=[at])
    )
    assert columns.deliver_at == pa.array([at.timestamp() * 1000], pa.int64())


def test_event_times_are_milliseconds():
    times = [datetime.datetime(1970, 1, 1, 0, 0, 1, 234567, datetime.timezone.utc), None]
    columns = only(
        messages(OUT, schema(value=TEXT, __eventTime=TimestampType()), value=["a", "b"], __eventTime=times)
    )
    assert columns.event_time == pa.array([1234, None], pa.int64())
    columns = only(
        messages(OUT, schema(value=TEXT, __eventTime=LongType()), value=["a", "b"], __eventTime=[5, None])
    )
    assert columns.event_time == pa.array([5, None], pa.int64())


def test_properties_have_no_nulls():
    kind = MapType(TEXT, TEXT)
    maps = [[("a", "1"), ("b", "2")], None, [], [("c", "3")]]
    columns = only(
        messages(OUT, schema(value=TEXT, __messageProperties=kind), value=[""] * 4, __messageProperties=maps)
    )
    assert columns.properties.null_count == 0
    assert columns.properties.to_pylist() == [[("a", "1"), ("b", "2")], [], [], [("c", "3")]]


@given(PROPERTIES, st.integers(0, 3), st.integers(0, 3))
def test_a_property_without_a_value_is_left_out(maps, before, after):
    rows = pa.array(
        [[("x", None)]] * before + maps + [[("y", "1")]] * after, pa.map_(pa.string(), pa.string())
    )
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.nulls(len(rows), pa.string()), "__messageProperties": rows}
    ).slice(before, len(maps))
    shape = message_shape(schema(value=TEXT, __messageProperties=MapType(TEXT, TEXT)), OUT)
    ((_, columns),) = shape.messages(batch)
    expected = [[(name, value) for name, value in each or [] if value is not None] for each in maps]
    if any(expected):
        assert columns.properties.to_pylist() == expected
        encode_batch_messages(columns)
    else:
        assert columns.properties is None


def test_columns_that_say_nothing_cost_nothing():
    shape = schema(
        value=TEXT, __eventTime=NullType(), __messageProperties=MapType(TEXT, TEXT), __key=NullType()
    )
    nothing: dict[str, list] = {
        "__eventTime": [None, None],
        "__messageProperties": [[], None],
        "__key": [None, None],
    }
    columns = only(messages(OUT, shape, value=["a", "b"], **nothing))
    assert columns.event_time is None
    assert columns.properties is None
    assert columns.key == pa.nulls(2, pa.binary())


def test_slices_and_large_types():
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["a", "b", "c"], pa.large_string()),
            "__key": pa.array([b"1", b"2", b"3"], pa.large_binary()),
            "__eventTime": pa.array([1000, 2000, None], pa.timestamp("us", "UTC")),
            "__messageProperties": pa.array(
                [[("a", "1")], [], None], pa.map_(pa.large_string(), pa.large_string())
            ),
        }
    )
    kinds = {"value": TEXT, "__key": BinaryType(), "__eventTime": TimestampType()}
    shape = message_shape(schema(**kinds, __messageProperties=MapType(TEXT, TEXT)), OUT)
    ((_, columns),) = shape.messages(batch.slice(1))
    assert columns.value.to_pylist() == [b"b", b"c"]
    assert columns.key.to_pylist() == [b"2", b"3"]
    assert columns.event_time.to_pylist() == [2, None]
    assert columns.properties is None


def test_rows_go_to_the_topics_they_name_in_their_order():
    names = ["a", "b", "persistent://public/default/a", "a", "x/y/b"]
    found = messages(None, schema(value=TEXT, __topic=TEXT), value=list("12345"), __topic=names)
    assert [(str(topic), columns.value.to_pylist()) for topic, columns in found] == [
        ("persistent://public/default/a", [b"1", b"3", b"4"]),
        ("persistent://public/default/b", [b"2"]),
        ("persistent://x/y/b", [b"5"]),
    ]


def test_as_many_topics_as_rows():
    def spread_over(count):
        names = [f"t{number:05d}" for number in range(count)]
        found = messages(None, schema(value=TEXT, __topic=TEXT), value=names, __topic=names)
        assert [(topic.local, columns.value.to_pylist()) for topic, columns in found] == [
            (name, [name.encode()]) for name in names
        ]

    few, many = (calls(partial(spread_over, count)) for count in (200, 800))
    assert many < 6 * few, "quadratic in the number of topics"  # 4 is linear, 16 quadratic


def test_no_rows_no_messages():
    assert messages(None, schema(value=TEXT, __topic=TEXT), value=[], __topic=[]) == []
    assert len(only(messages(OUT, schema(value=TEXT), value=[]))) == 0


def test_the_option_wins_over_the_column():
    """A copy of what was read is written where the option says, whatever the rows' topics were."""
    names = ["public/default/out", "elsewhere", None, "non-persistent://public/default/t"]
    columns = only(messages(OUT, schema(value=TEXT, __topic=TEXT), value=list("abcd"), __topic=names))
    assert columns.value.to_pylist() == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("name", "text"),
    [(None, "its __topic is null"), ("non-persistent://public/default/t", "not persistent")],
)
def test_bad_topics_of_rows(name, text):
    with pytest.raises(OptionError, match=text):
        messages(None, schema(value=TEXT, __topic=TEXT), value=["a", "b"], __topic=["out", name])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "rows have no value"),
        ({"__key": TEXT}, "rows have no value"),
        (
            {"a": TEXT, "b": TEXT},
            r"the rows have 2: a, b\. .* combine them into one column: to_json\(struct\(a, b\)\) as value",
        ),
        ({"value": IntegerType()}, "the value column value is int. Set valueFormat, cast it"),
        ({"value": TEXT, "__key": IntegerType()}, "__key is int. Cast it to string or binary"),
        ({"value": TEXT, "__eventTime": TimestampNTZType()}, "Cast it to timestamp or bigint"),
        ({"value": TEXT, "__messageProperties": MapType(TEXT, LongType())}, r"Cast it to map<string,string>"),
        ({"value": TEXT, "__topic": BinaryType()}, "Cast it to string"),
        ({"value": TEXT, "__deliverAt": LongType()}, "__deliverAt is bigint. Cast it to timestamp"),
        ({"value": TEXT, "__deliverAfter": TEXT}, "__deliverAfter is string. Cast it to bigint or int"),
        ({"value": TEXT, "__sequenceId": IntegerType()}, "__sequenceId is int. Cast it to bigint"),
        ({"value": TEXT, "__partition": LongType()}, "__partition is bigint. Cast it to int"),
    ],
)
def test_bad_shapes(columns, text):
    with pytest.raises(OptionError, match=text):
        message_shape(schema(**columns), OUT)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("__eventtime", "Did you mean __eventTime"),
        ("__evenTime", "Did you mean __eventTime"),
        ("__properties", "Did you mean __messageProperties"),
        ("__Key", "Did you mean __key"),
        ("__deliverat", "Did you mean __deliverAt"),
        ("__foo", "Rename it: names that begin with __"),
    ],
)
@pytest.mark.parametrize("values", [SinkValues(), SinkValues(COLUMNS, key_columns=("id",))])
def test_a_name_of_no_known_column_is_no_field(name, known, values):
    columns = schema(**{"id": LongType(), "n": TEXT, name: LongType()})
    with pytest.raises(OptionError, match=rf"the sink has no column {name}\. {known}"):
        message_shape(columns, OUT, values=values)


@pytest.mark.parametrize("values", [SinkValues(), SinkValues(COLUMNS, PartKind.PRIMITIVE)])
def test_a_value_whose_name_is_that_of_metadata(values):
    """It would be sent as the value, also where it is a mistyped name."""
    for name, advice in {"__payload": "rename it to value", "__evenTime": "Did you mean __eventTime"}.items():
        with pytest.raises(OptionError, match=rf"the sink has no column {name}\. .*{advice}"):
            message_shape(schema(**{"__key": TEXT, name: TEXT}), OUT, values=values)


def test_fields_of_a_whole_record_have_any_name():
    columns = schema(value=schema(id=LongType(), __op=TEXT))
    shape = message_shape(columns, OUT, values=SinkValues(ValueFormat.STRUCT))
    assert not isinstance(shape.value, str)
    assert [field.name for field in shape.value.type.value.arrow] == ["id", "__op"]


def test_two_columns_of_one_name():
    with pytest.raises(OptionError, match="two columns have the same name"):
        message_shape(schema(value=TEXT).add("value", TEXT), OUT)


def test_without_any_topic():
    with pytest.raises(OptionError, match=r"no topic is given for the rows. Set .option\(\"topic\""):
        message_shape(schema(value=TEXT), None)


def test_fields_that_only_have_kafkas_names_are_written():
    avro, pair = SinkValues(COLUMNS), SinkValues(COLUMNS, key_columns=("key",))
    for columns, values in (
        ({"key": TEXT, "value": TEXT}, pair),
        ({"key": TEXT, "value": LongType()}, avro),
        ({"key": TEXT, "value": TEXT, "id": TEXT}, avro),
        ({"key": TEXT, "topic": TEXT}, avro),
        ({"value": schema(key=TEXT, value=TEXT)}, avro),
    ):
        message_shape(schema(**columns), OUT, values=values)
    with pytest.raises(OptionError, match="Kafka's sink: key"):
        message_shape(schema(key=TEXT, value=TEXT, id=TEXT), OUT)


def test_rows_can_be_written_as_they_were_read():
    shape = message_shape(SOURCE_SCHEMA, None)
    assert shape.value == "value"
    assert shape.ignored == ("__messageId", "__publishTime")


def test_upserts_need_keys():
    with pytest.raises(OptionError, match="upsert is true, but the rows have no column __key"):
        message_shape(schema(value=TEXT), OUT, upsert=True)
    keyed = schema(__key=TEXT, value=TEXT)
    arrow = arrow_schema(keyed)
    shape = message_shape(keyed, OUT, upsert=True)
    ((_, columns),) = shape.messages(pa.RecordBatch.from_pydict({"__key": [""], "value": [None]}, arrow))
    assert columns.value.null_count == 1
    without = pa.RecordBatch.from_pydict({"__key": ["k", None], "value": ["a", "b"]}, arrow)
    with pytest.raises(OptionError, match=r"a row has no key: its __key is null\. Give each row a key"):
        list(shape.messages(without))


class FakeEncoder:
    """An encoder of one topic: a row's payload is its text; it notes what it was given."""

    def __init__(self, keys: bool = False, fails: bool = False) -> None:
        self.given: list[list] = []
        self._keys = keys
        self._fails = fails

    def __call__(self, rows: pa.Array) -> EncodedValues:
        self.given.append(rows.to_pylist())
        if self._fails:
            raise SchemaError("row 1 does not fit")
        values = pa.array([None if row is None else str(row).encode() for row in self.given[-1]], pa.binary())
        keys = pa.array([row["key"] for row in self.given[-1]], pa.binary()) if self._keys else None
        return EncodedValues(values, keys)


class FakeEncoders(dict[TopicName, FakeEncoder]):
    def __init__(self, encoders: dict[TopicName, FakeEncoder]) -> None:
        super().__init__(encoders)
        self.prepared: list[TopicName] = []

    def of(self, topic: TopicName) -> FakeEncoder:
        assert topic in self.prepared or topic == OUT
        return self[topic]

    def prepare(self, topics: Sequence[TopicName]) -> None:
        assert 0 < len(topics) <= IN_PARALLEL
        self.prepared += topics


def typed(
    encoders: FakeEncoders,
    spark_schema: StructType,
    *key: str,
    upsert: bool = False,
    form: ValueFormat = COLUMNS,
    **columns: list,
):
    """The messages of one record batch whose values a schema makes."""
    values = SinkValues(form, key_columns=key)
    topic = None if "__topic" in columns else OUT
    shape = message_shape(spark_schema, topic, upsert=upsert, values=values)
    arrow = to_arrow_schema(spark_schema, **ZONE)
    return list(shape.messages(pa.RecordBatch.from_pydict(columns, arrow), encoders))


def test_each_topics_rows_are_given_to_its_encoder():
    names = ["a", "b", "a"]
    a, b = TopicName.parse("a"), TopicName.parse("b")
    encoders = FakeEncoders({a: FakeEncoder(), b: FakeEncoder()})
    shape = schema(n=IntegerType(), __topic=TEXT, __key=TEXT)
    found = typed(encoders, shape, n=[1, 2, None], __topic=names, __key=["x", "y", "z"])
    assert encoders[a].given == [[{"n": 1}, {"n": None}]]
    assert encoders[b].given == [[{"n": 2}]]
    assert [(topic, columns.value.to_pylist(), columns.key.to_pylist()) for topic, columns in found] == [
        (a, [b"{'n': 1}", b"{'n': None}"], [b"x", b"z"]),
        (b, [b"{'n': 2}"], [b"y"]),
    ]


def test_topics_are_prepared_once_before_their_rows_are_encoded():
    topics = [TopicName.parse(f"t{number}") for number in range(2 * IN_PARALLEL + 1)]
    encoders = FakeEncoders({topic: FakeEncoder() for topic in topics})
    names = [str(topic) for topic in topics] * 2
    typed(encoders, schema(n=IntegerType(), __topic=TEXT), n=list(range(len(names))), __topic=names)
    assert encoders.prepared == topics


def test_a_null_struct_is_a_deletion():
    encoders = FakeEncoders({OUT: FakeEncoder()})
    shape = schema(value=schema(n=IntegerType()), __key=TEXT)
    keyed: dict[str, Any] = {"value": [{"n": 1}, None], "__key": ["a", "b"]}
    columns = only(typed(encoders, shape, upsert=True, form=ValueFormat.STRUCT, **keyed))
    assert columns.value.to_pylist() == [b"{'n': 1}", None]


def test_a_schema_may_make_the_keys():
    encoders = FakeEncoders({OUT: FakeEncoder(keys=True)})
    shape = schema(k=BinaryType(), n=IntegerType())
    columns = only(typed(encoders, shape, "k", upsert=True, k=[b"1", b"2"], n=[1, 2]))
    assert columns.key.to_pylist() == [b"1", b"2"]
    assert encoders[OUT].given == [[{"key": b"1", "value": {"n": 1}}, {"key": b"2", "value": {"n": 2}}]]
    with pytest.raises(OptionError, match="upsert is true, but a row has no key"):
        typed(encoders, shape, "k", upsert=True, k=[b"1", None], n=[1, 2])
    both = schema(k=BinaryType(), n=IntegerType(), __key=TEXT)
    with pytest.raises(OptionError, match=r"rows have __key, but with .*SEPARATED .*; topic .*/out\. Leave"):
        typed(encoders, both, "k", k=[b"1"], n=[1], __key=["x"])
    inline = FakeEncoders({OUT: FakeEncoder()})
    assert only(typed(inline, both, "k", k=[b"1"], n=[1], __key=["x"])).key.to_pylist() == [b"x"]


def test_a_row_that_does_not_fit_names_its_topic():
    with pytest.raises(SchemaError, match="row 1 does not fit; topic persistent://public/default/out"):
        typed(FakeEncoders({OUT: FakeEncoder(fails=True)}), schema(n=IntegerType()), n=[1])
