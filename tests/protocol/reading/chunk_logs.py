"""Chunks as a topic has them, and the messages that they make."""

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.chunk_assembler import ChunkAssembler, ChunkLimits, message_key
from pulsar_spark.wire import pulsar_pb2 as pb


def held_bytes(chunks):
    """Bytes that have arrived of incomplete messages."""
    several = (choices for message in chunks._open.values() for choices in message.pieces)
    return sum(len(piece.payload) for choices in several for piece in choices)


def metadata_of(uuid, number, chunks, total, *, producer_name=b"p", publish_time=0, sequence_id=0):
    return pb.MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        uuid=uuid.encode(),
        chunk_id=number,
        num_chunks_from_msg=chunks,
        total_chunk_msg_size=total,
    )


def key_of(uuid, chunks=3, total=None):
    return message_key(metadata_of(uuid, 0, chunks, len(whole(uuid, chunks)) if total is None else total))


class Log:
    """A topic: each chunk that is taken is an entry of it, numbered from 0."""

    def __init__(self, **limits):
        self.chunks = ChunkAssembler(ChunkLimits(**limits))
        self.entries = 0

    def take(self, uuid, number, chunks=3, payload=None, total=None, now=0.0, **more):
        payload = text(uuid, number) if payload is None else payload
        total = len(whole(uuid, chunks)) if total is None else total
        message_id = MessageId(1, self.entries)
        self.entries += 1
        return self.chunks.take(metadata_of(uuid, number, chunks, total, **more), payload, message_id, now)

    def take_all(self, uuid, numbers, **more):
        """What the last of them gave; the others give nothing."""
        *first, last = [self.take(uuid, number, **more) for number in numbers]
        assert first == [None] * len(first)
        return last


def text(uuid, number):
    return f"{uuid}.{number};".encode()


def whole(uuid, chunks=3):
    return b"".join(text(uuid, number) for number in range(chunks))
