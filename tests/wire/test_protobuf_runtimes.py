"""Both runtimes of protobuf, with C code and without it as in the jar, read the same of any bytes."""

import os
import subprocess
import sys

from google.protobuf.descriptor import FieldDescriptor

from pulsar_spark.wire import pulsar_pb2 as pb
from tests.wire import odd_texts


def read_with(runtime):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.wire.odd_texts"],
        env={
            **os.environ,
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": runtime,
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, read = done.stdout.splitlines()
    assert name == runtime
    return read


def test_texts_that_are_no_utf8_are_read_alike():
    read = read_with("upb")
    assert read_with("python") == read
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
