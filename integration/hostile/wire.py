"""Bytes that producers and brokers may send, at random: usual ones, odd ones, and broken ones."""

from __future__ import annotations

import random
import struct
from base64 import b64encode

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.wire_values import varint

CODECS = (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY)
EXTREMES = (0, 1, 2, 127, 128, 255, 2**14, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"",
    b"k",
    b"key-7",
    "Grüße".encode(),
    b"\xff\xfe",
    b"x\xc3",
    b"\xed\xa0\x80",
    b"t" * 200,
    b"\0" * 9,
)
_UNKNOWN = (b"\x98\x06\x07", b"\x9a\x06\x03abc", b"\x9d\x06abcd", b"\x99\x06abcdefgh")
# Groups, known numbers of another wire type, and fields without an end.
_ODD = (
    *(b"\x93\x03\x94\x03", b"\x93\x06" * 200),
    *(b"\x08\x05", b"\x62\x02no"),
    *(b"\x7a", b"\xff\xff\xff", b"\x00\x01"),
)


def number_field(number: int, value: int) -> bytes:
    """A varint field as it is on the wire."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of bytes as it is on the wire."""
    return varint(number << 3 | 2) + varint(len(value)) + value


class Wire:
    """Makes bytes; the same seed makes the same ones.

    Args:
        chance: where all choices come from.
        broken: how likely each part is one that the protocol does not allow.
    """

    def __init__(self, chance: random.Random, broken: float) -> None:
        self.chance = chance
        self._broken = broken

    def is_broken(self) -> bool:
        """Whether the next part is to be one that the protocol does not allow."""
        return self.chance.random() < self._broken

    def text(self) -> bytes:
        """What stands for a text, and need not be one."""
        chance = self.chance
        return chance.choice(_TEXTS) if chance.random() < 0.8 else chance.randbytes(chance.randrange(30))

    def number(self) -> int:
        """An unsigned 64 bit number."""
        return self.chance.choice(EXTREMES) if self.chance.random() < 0.5 else self.chance.randrange(1 << 40)

    def section(self) -> bytes:
        """A payload section: of a batch or of a single message, by any codec."""
        chance = self.chance
        codec = chance.choice(CODECS)
        batch = chance.random() < 0.6
        count = chance.choice((1, 2, 3, 9, 40)) if batch else 0
        plain = self.batch(count) if batch else chance.choice(_TEXTS) * chance.randrange(5)
        stored = bytes(compress(codec, plain))
        size = len(plain)
        if self.is_broken():
            size = chance.choice((size + 1, max(0, size - 1), size + chance.randrange(20), *EXTREMES[:10]))
        if self.is_broken():
            stored = self.damaged(stored)
        fields = [bytes_field(1, self.text()), number_field(2, self.number()), number_field(3, self.number())]
        if batch:
            fields.append(number_field(11, count if not self.is_broken() else self.number()))
        if codec or chance.random() < 0.5:
            fields.append(number_field(8, codec if not self.is_broken() else chance.randrange(9)))
            fields.append(number_field(9, size))
        fields += [self.entry_field() for _ in range(chance.choice((0, 0, 1, 2, 5)))]
        if chance.random() < 0.2:
            chance.shuffle(fields)
        metadata = b"".join(fields)
        if self.is_broken():
            metadata = self.damaged(metadata)
        return self.framed_section(metadata, stored)

    def shifted_sections(self) -> list[bytes]:
        """Batches of which the first is a message longer, and the last one shorter, than they declare.

        Their bytes together are as many as declared, and messages end where they should: who verifies no more
        than that gives all between them the values of another.
        """
        messages = [b"\0\0\0\x02\x18\x08" + b"value-%02d" % number for number in range(8)]
        size, codec = len(messages[0]), self.chance.choice((pb.LZ4, pb.LZ4, *CODECS[1:]))

        def section(held: list[bytes], count: int) -> bytes:
            fields = [bytes_field(1, b"p"), number_field(2, 0), number_field(3, 0), number_field(11, count)]
            fields += [number_field(8, codec), number_field(9, size * count)]
            return self.framed_section(b"".join(fields), bytes(compress(codec, b"".join(held))))

        between = [section([message], 1) for message in messages[2:6]]
        return [section(messages[:2], 1), *between, section(messages[7:], 2)]

    def framed_section(self, metadata: bytes, payload: bytes) -> bytes:
        """A payload section, maybe with the broker's metadata in front."""
        chance = self.chance
        checked = struct.pack(">I", len(metadata)) + metadata + payload
        checksum = crc32c(checked) ^ (self.is_broken() << chance.randrange(32))
        whole = b"\x0e\x01" + struct.pack(">I", checksum) + checked
        if self.is_broken():
            whole = checked
        if chance.random() < 0.3:
            broker = number_field(1, self.number()) + number_field(2, self.number() >> chance.randrange(2))
            if self.is_broken():
                broker = self.damaged(broker)
            whole = b"\x0e\x02" + struct.pack(">I", len(broker)) + broker + whole
        return self.damaged(whole) if self.is_broken() else whole

    def batch(self, count: int) -> bytes:
        """The payload of a batch, not compressed."""
        kinds = [self.message() for _ in range(self.chance.choice((1, 1, 2, 3)))]
        return b"".join(self.chance.choice(kinds) for _ in range(count))

    def message(self) -> bytes:
        """One message of a batch."""
        chance = self.chance
        value = chance.choice(_TEXTS) * chance.randrange(4)
        size = len(value) if not self.is_broken() else self.number()
        fields = [self.message_field() for _ in range(chance.choice((0, 0, 1, 2, 5)))]
        fields.insert(chance.randrange(len(fields) + 1), number_field(3, size))
        metadata = b"".join(fields)
        if self.is_broken():
            metadata = self.damaged(metadata)
        return struct.pack(">I", len(metadata)) + metadata + value

    def message_field(self) -> bytes:
        """A field of SingleMessageMetadata."""
        makers = (
            lambda: bytes_field(2, self.text()),
            lambda: bytes_field(2, b64encode(self.text())) + b"\x30\x01",
            lambda: bytes_field(1, self.pair()),
            lambda: number_field(5, self.number()),
            lambda: bytes_field(7, self.text()),
            lambda: number_field(8, self.number()),
            lambda: self.chance.choice((b"\x48\x01", b"\x48\x00", b"\x50\x01", b"\x20\x01", b"\x20\x00")),
            lambda: self.chance.choice(_ODD) if self.is_broken() else self.chance.choice(_UNKNOWN),
            lambda: b"\x30\x01" if self.is_broken() else b"",
        )
        return self.chance.choice(makers)()

    def entry_field(self) -> bytes:
        """A field of MessageMetadata."""
        chance = self.chance
        makers = (
            lambda: bytes_field(chance.choice((5, 6, 7, 14, 15, 16, 18, 26, 32, 2019)), self.text()),
            lambda: bytes_field(6, b64encode(self.text())) + b"\x88\x01\x01",
            lambda: bytes_field(4, self.pair()),
            lambda: number_field(chance.choice((12, 19, 20, 22, 23, 24, 28, 29, 31, 33, 34)), self.number()),
            lambda: number_field(chance.choice((25, 30)), chance.randrange(2)),
            lambda: number_field(27, chance.choice((0, 1, 2, 3))),
            lambda: bytes_field(13, self.encryption_key()),
            lambda: chance.choice(_ODD) if self.is_broken() else chance.choice(_UNKNOWN),
            lambda: b"\x88\x01\x01" if self.is_broken() else b"",
        )
        return chance.choice(makers)()

    def pair(self) -> bytes:
        """A KeyValue."""
        parts = [bytes_field(1, self.text()), bytes_field(2, self.text())]
        if self.is_broken():
            parts = self.chance.choice((parts[:1], parts[1:], parts * 2, [self.damaged(b"".join(parts))]))
        elif self.chance.random() < 0.1:
            parts = self.chance.choice((parts[::-1], [*parts, parts[0]], [*parts, b"\x18\x05"]))
        return b"".join(parts)

    def encryption_key(self) -> bytes:
        """An EncryptionKeys."""
        whole = bytes_field(1, self.text()) + bytes_field(2, self.text()) + bytes_field(3, self.pair())
        return self.damaged(whole) if self.is_broken() else whole

    def damaged(self, data: bytes) -> bytes:
        """The bytes with a few of them changed, left out, put in, repeated or cut off."""
        chance, changed = self.chance, bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(changed) + 1)
            to = min(len(changed), at + chance.choice((1, 1, 2, 8)))
            kind = chance.randrange(6)
            if kind == 0:
                changed[at:to] = chance.randbytes(to - at)
            elif kind == 1:
                del changed[at:to]
            elif kind == 2:
                changed[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
            elif kind == 3:
                changed[at:at] = changed[at:to] * chance.choice((1, 2, 40))
            elif kind == 4:
                del changed[at:]
            else:
                changed[at:to] = varint(chance.choice(EXTREMES))
        return bytes(changed)
