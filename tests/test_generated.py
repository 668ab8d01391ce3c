"""The generated protocol classes: the committed files are the generator's, and mean what they should."""

import importlib.util
from pathlib import Path

import pytest

from pulsar_spark.wire import pulsar_pb2 as pb

ROOT = Path(__file__).resolve().parent.parent
WIRE = ROOT / "pulsar_spark" / "wire"

TYPES = {value.name: value.number for value in pb.BaseCommand.Type.DESCRIPTOR.values}
# Types whose message is not called like them.
OTHER_NAMES = {
    "PARTITIONED_METADATA": "CommandPartitionedTopicMetadata",
    "PARTITIONED_METADATA_RESPONSE": "CommandPartitionedTopicMetadataResponse",
    "LOOKUP": "CommandLookupTopic",
    "LOOKUP_RESPONSE": "CommandLookupTopicResponse",
}


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generate()


@pytest.mark.parametrize("name", ["pulsar_pb2.py", "pulsar_pb2.pyi"])
def test_the_committed_file_is_what_the_generator_makes(generated, name):
    assert (WIRE / name).read_text() == generated[name], "run: python proto/generate.py"


def test_no_protobuf_runtime_is_demanded(generated):
    code = generated["pulsar_pb2.py"]
    assert "ValidateProtobufRuntimeVersion" not in code
    assert "runtime_version" not in code
    assert "AddSerializedFile" in code


def test_each_command_type_has_its_field():
    fields = pb.BaseCommand.DESCRIPTOR.fields_by_number
    assert {name: fields[number].message_type.name for name, number in TYPES.items()} == {
        name: OTHER_NAMES.get(name, "Command" + name.title().replace("_", "")) for name in TYPES
    }


def test_there_is_no_field_without_a_type():
    assert {field.number for field in pb.BaseCommand.DESCRIPTOR.fields} == {1, *TYPES.values()}
    assert len(TYPES) == 70


def parsed(kind, text):
    return kind.FromString(bytes.fromhex(text))


# Written by hand from the field numbers: tag = number << 3 | wire type (0 varint, 2 bytes).
GOLDEN = {
    "CONNECT": (
        "0802 1205 0a0176 2015",
        pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect={"client_version": "v", "protocol_version": 21}),
    ),
    "SUBSCRIBE": (
        "0804 220e 0a0174 120173 1802 2007 2809 4000",
        pb.BaseCommand(
            type=pb.BaseCommand.SUBSCRIBE,
            subscribe={
                "topic": "t",
                "subscription": "s",
                "subType": pb.CommandSubscribe.Failover,
                "consumer_id": 7,
                "request_id": 9,
                "durable": False,
            },
        ),
    ),
    "PRODUCER": (
        "0805 2a0a 0a0174 1007 1809 22016e",
        pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER,
            producer={"topic": "t", "producer_id": 7, "request_id": 9, "producer_name": "n"},
        ),
    ),
    "SEND": (
        "0806 3208 0807 1009 1802 300a",
        pb.BaseCommand(
            type=pb.BaseCommand.SEND,
            send={"producer_id": 7, "sequence_id": 9, "num_messages": 2, "highest_sequence_id": 10},
        ),
    ),
    "MESSAGE": (
        "0809 4a0a 0807 1206 0801 1002 2003",
        pb.BaseCommand(
            type=pb.BaseCommand.MESSAGE,
            message={"consumer_id": 7, "message_id": {"ledgerId": 1, "entryId": 2, "batch_index": 3}},
        ),
    ),
    "ACK": (
        "080a 520c 0807 1001 1a04 08011002 4009",
        pb.BaseCommand(
            type=pb.BaseCommand.ACK,
            ack={
                "consumer_id": 7,
                "ack_type": pb.CommandAck.Cumulative,
                "message_id": [{"ledgerId": 1, "entryId": 2}],
                "request_id": 9,
            },
        ),
    ),
    "FLOW": (
        "080b 5a05 0807 10e807",
        pb.BaseCommand(type=pb.BaseCommand.FLOW, flow={"consumer_id": 7, "messagePermits": 1000}),
    ),
    "PING": ("0812 920100", pb.BaseCommand(type=pb.BaseCommand.PING, ping={})),
    "LOOKUP": (
        "0817 ba0107 0a0174 1009 1801",
        pb.BaseCommand(
            type=pb.BaseCommand.LOOKUP, lookupTopic={"topic": "t", "request_id": 9, "authoritative": True}
        ),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name):
    text, command = GOLDEN[name]
    assert command.SerializeToString(deterministic=True).hex() == text.replace(" ", "")
    assert parsed(pb.BaseCommand, text) == command


def test_golden_metadata():
    text = "0a0170 1002 1803 4001 4809 5805 c00106 e80102"
    metadata = parsed(pb.MessageMetadata, text)
    assert (metadata.producer_name, metadata.sequence_id, metadata.publish_time) == (b"p", 2, 3)
    assert (metadata.compression, metadata.uncompressed_size) == (pb.LZ4, 9)
    assert (metadata.num_messages_in_batch, metadata.highest_sequence_id) == (5, 6)
    assert metadata.chunk_id == 2
    single = parsed(pb.SingleMessageMetadata, "12016b 1805 2807 4003 4801")
    assert (single.partition_key, single.payload_size, single.event_time) == (b"k", 5, 7)
    assert (single.sequence_id, single.null_value) == (3, True)


def test_defaults_that_the_client_leans_on():
    assert pb.MessageMetadata().num_messages_in_batch == 1
    assert pb.MessageMetadata().compression == pb.NONE == 0
    assert (pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY) == (1, 2, 3, 4)
    assert pb.MessageIdData().batch_index == -1
    assert pb.CommandSubscribe().durable
    assert pb.CommandSubscribe().force_topic_creation
    assert pb.CommandSubscribe().initialPosition == pb.CommandSubscribe.Latest
    assert pb.CommandProducerSuccess().last_sequence_id == -1
    assert pb.CommandProducerSuccess().producer_ready


def test_server_errors():
    names = {value.number: value.name for value in pb.ServerError.DESCRIPTOR.values}
    assert sorted(names) == list(range(26))
    assert [names[number] for number in (3, 5, 6, 11, 14, 15, 16, 25)] == [
        *("AuthenticationError", "ConsumerBusy", "ServiceNotReady", "TopicNotFound"),
        *("TooManyRequests", "TopicTerminatedError", "ProducerBusy", "ProducerFenced"),
    ]
