"""SchemaType and Schema."""

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb


def test_every_kind_of_the_protocol_is_known():
    assert sorted(SchemaType) == sorted(pb.Schema.Type.values())


def test_schemas_of_equal_contents_are_equal():
    first, second = (Schema(SchemaType.JSON, b"{}", {"a": "1"}, "s") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Schema(SchemaType.JSON, b"{}", {"a": "2"}, "s")


def test_names_of_topics_do_not_tell_schemas_apart():
    first, second = (
        Schema(SchemaType.STRING, name=name) for name in ("public/default/a", "public/default/b")
    )
    assert first == second
    assert hash(first) == hash(second)
