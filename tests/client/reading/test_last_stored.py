from pulsar_spark.client.client import Client, ClientOptions
from pulsar_spark.client.reading.last_stored import _Search
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entries import Entries, Entry

TOPIC = TopicName.parse("persistent://a/b/t")


def entry(number: int, sequence_id: int, *, name: str = "me", **more) -> Entry:
    metadata = pb.MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1, **more)
    return Entry(3, number, metadata, b"", None)


def found(*entries: Entry, last: int) -> Entry | None:
    with Client(ClientOptions(service_url="pulsar://localhost:1")) as client:
        return _Search(client, TOPIC, "me", last)._match(Entries.of(entries))


def test_the_entry_that_ends_with_the_id():
    batch = entry(1, 5, num_messages_in_batch=3)
    assert found(entry(0, 4), batch, entry(2, 7, name="other"), last=7) == batch
    assert found(entry(0, 4), batch, last=6) is None


def test_of_a_message_in_chunks_only_the_last_proves_that_it_is_stored():
    """A broker that restarts takes the message's id from its first chunk."""
    chunks = [entry(number, 7, num_chunks_from_msg=3, chunk_id=number) for number in range(3)]
    assert found(*chunks, last=7) == chunks[2]
    assert found(*chunks[:2], last=7) is None
