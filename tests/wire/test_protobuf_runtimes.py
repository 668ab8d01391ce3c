"""Both runtimes of protobuf, with C code and without it as in the jar, read the same of any bytes."""

from google.protobuf.descriptor import FieldDescriptor

from pulsar_spark.wire import pulsar_pb2 as pb
from tests.wire import odd_texts
from tests.wire.runtimes import read_with


def test_texts_that_are_no_utf8_are_read_alike():
    read = read_with("upb", odd_texts.__name__)
    assert read_with("python", odd_texts.__name__) == read
    for text in odd_texts.TEXTS:
        assert repr(text) in read  # the key
        assert repr(text.decode(errors="replace")) in read  # the texts


def test_nothing_that_a_producer_writes_is_declared_to_be_utf8():
    reached = [pb.MessageMetadata.DESCRIPTOR, pb.SingleMessageMetadata.DESCRIPTOR]
    for kind in reached:
        fields = kind.fields
        assert [field.name for field in fields if field.type == FieldDescriptor.TYPE_STRING] == []
        inner = [field.message_type for field in fields if field.message_type is not None]
        reached += [each for each in inner if each not in reached]
    assert {"KeyValue", "EncryptionKeys"} <= {kind.name for kind in reached}
