"""What a process reads of texts that are no UTF-8, where protobuf has the runtime that the process was told.

``python -m tests.wire.odd_texts`` prints it; nothing is imported before the runtime is chosen.
"""

import numpy as np
from google.protobuf.internal import api_implementation

from pulsar_spark.client import EntryField
from pulsar_spark.client.encryption import Decryption, Decryptor
from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.errors import CryptoError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.chunk_assembler import Assembled, ChunkAssembler, ChunkLimits
from pulsar_spark.wire.entry.entries import decode
from pulsar_spark.wire.frame_runs import Messages
from pulsar_spark.wire.frames import encode_section_head
from pulsar_spark.wire.wire_values import varint

TOPIC = TopicName.parse("t")
# No UTF-8 by a byte that never is, by a sequence that is cut off, and by a surrogate.
TEXTS = (b"\xffx", b"x\xc3", b"\xed\xa0\x80")
REQUIRED = b"\x10\x02\x18\x03"
BATCH = b"\x58\x01"


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, as it is on the wire."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def messages(metadata: bytes, payload: bytes, count: int) -> Messages:
    """``count`` entries alike, as a consumer has them."""
    section = encode_section_head(metadata, payload) + payload
    ends = np.arange(1, count + 1) * len(section)
    return Messages(7, section * count, np.full(count, 5), np.arange(count), ends - len(section), ends)


def rows(metadata: bytes, payload: bytes, count: int) -> list[object]:
    """The columns of what is decoded, each as what its rows have in common."""
    group = decode([messages(metadata, payload, count)])
    assert group.corrupt is None
    (found,) = decode_entries([RangeEntries(TOPIC, [group.entries])], max_rows=1000, max_bytes=1 << 20)
    columns = [
        found.key,
        found.properties,
        *map(found.entry_field, (EntryField.PRODUCER_NAME, EntryField.REPLICATED_FROM)),
    ]
    values = [[None] * count if column is None else column.to_pylist() for column in columns]
    assert all(column == column[:1] * count for column in values)
    return [column[0] for column in values]


def whole(text: bytes, count: int) -> bytes:
    """A message in two chunks that have a text as their uuid, among ``count`` entries."""
    chunks, found = ChunkAssembler(ChunkLimits()), []
    for number in (0, 1):
        own = field(26, text) + b"\xd8\x01\x02\xe0\x01\x02\xe8\x01" + varint(number)
        group = decode([messages(field(1, b"p") + REQUIRED + own, b"%d" % number, count)])
        entry = group.entries.one(0)
        found.append(chunks.take(entry.metadata, entry.payload, MessageId(5, number), 0.0))
    assert isinstance(found[1], Assembled)
    return bytes(found[1].payload)


def refusal(text: bytes, count: int) -> str:
    """What is said of an entry that is encrypted for a key with a text as its name."""
    keys = field(1, text) + field(2, b"v") + field(3, field(1, text) + field(2, text))
    group = decode([messages(field(1, b"p") + REQUIRED + field(13, keys), b"v", count)])
    try:
        Decryption(Decryptor(), TOPIC).entries(group.entries)
    except CryptoError as error:
        return str(error)
    raise AssertionError("it was not refused")


def main() -> None:
    """Print the runtime in one line, and what is read in another."""
    read: list[object] = []
    for text in TEXTS:
        own = field(1, text) + REQUIRED + field(5, text)
        named = field(4, field(1, text) + field(2, text)) + field(6, text) + field(7, text) + field(14, text)
        single = field(1, field(1, text) + field(2, text)) + field(2, text) + b"\x18\x00"
        batch = len(single).to_bytes(4, "big") + single
        for count in (1, 40):
            read += [rows(own + named, b"v", count), rows(own + BATCH, batch, count)]
            read += [whole(text, count), refusal(text, count)]
    print(api_implementation.Type())  # noqa: T201 - what it is for
    print(read)  # noqa: T201


if __name__ == "__main__":
    main()
