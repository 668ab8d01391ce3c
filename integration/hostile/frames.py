"""The mutation fuzzer: broken bytes into each decoder and state machine; documented errors only may come.

Each input has a second and 200 MB more address space than there was before the first.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from integration.hostile.broker import any_stream, fill
from integration.hostile.wire import CODECS, EXTREMES, Wire, bytes_field, number_field
from pulsar_spark.client.consuming.inbox import Inbox
from pulsar_spark.client.encryption import Decryption, Decryptor, EncryptionKeyInfo
from pulsar_spark.errors import BrokerError, CorruptError, CryptoError, ProtocolError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.connection import Answer, Challenged, Connection, FrameFor, Role
from pulsar_spark.protocol.encryption import Opener, PublicKey, Sealer
from pulsar_spark.protocol.lookup import Address, Lookup
from pulsar_spark.protocol.reading.chunk_assembler import Assembled, ChunkAssembler, ChunkLimits, is_chunk
from pulsar_spark.protocol.reading.range_progress import RangeProgress
from pulsar_spark.protocol.writing.packer import Packer
from pulsar_spark.protocol.writing.partition_writer import PartitionWriter
from pulsar_spark.protocol.writing.pending import MemoryBudget, PendingWindow
from pulsar_spark.protocol.writing.stored_ids import StoredIds
from pulsar_spark.wire import commands, wire_values
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle, decode_batches
from pulsar_spark.wire.columns.message_ids import parse_message_id
from pulsar_spark.wire.entry.codecs import decompress, decompress_together
from pulsar_spark.wire.entry.entries import Entries, Entry, decode
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, decode_origin, encode_origin
from pulsar_spark.wire.frame_runs import Messages, Receipts
from pulsar_spark.wire.frames import FrameReader, decode_payload_section, encode_command

_SECONDS = 1.0
_MEMORY = 200 << 20  # bytes
_LIMIT = 1 << 20  # bytes that a payload may decompress to, here
_TOPIC = "persistent://a/b/t"
_LOGIN = commands.Login("token", b"s3cret")


class UndocumentedError(AssertionError):
    """An input did what it must not; the text has it."""


def run(seed: int, frames: int) -> Iterator[int]:
    """Give so many inputs to the targets in turn; gives how many there were now and then.

    Raises:
        UndocumentedError: with the target, the seed of the input, and what happened.
    """
    names = list(TARGETS)
    with _limited_memory():
        for number in range(frames):
            one_input(names[number % len(names)], f"{seed}/{number}")
            if number % 1000 == 999:
                yield number + 1
    yield frames


def one_input(target: str, seed: str) -> None:
    """Give one input to a target; raises UndocumentedError."""
    chance = random.Random(seed)
    wire = Wire(chance, chance.choice((0.01, 0.1, 0.5)))
    prepare, documented = TARGETS[target]
    act = prepare(wire)
    began = time.process_time()  # not what others take of a busy machine
    try:
        act()
    except documented:
        pass
    except Exception as error:
        raise UndocumentedError(f"{target}, seed {seed}: {error!r}") from error
    took = time.process_time() - began
    if took > _SECONDS:
        raise UndocumentedError(f"{target}, seed {seed}: it took {took:.1f} s")


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Let allocations fail that an input must not make; where the system cannot, nothing happens."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        used = int(sizes.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)


# ---- targets: each prepares an input, and gives what takes it


def _frame_reader(wire: Wire) -> Callable[[], object]:
    stream, reader = any_stream(wire), FrameReader()
    return lambda: [reader.feed(piece) for piece in stream]


def _connection(wire: Wire) -> Callable[[], object]:
    stream = any_stream(wire)
    connection = Connection(0, keep_alive=30, timeout=10, login=_LOGIN)
    connected = pb.CommandConnected(server_version="hostile")
    if wire.chance.random() < 0.9:
        connection.receive(
            encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=connected)), 0
        )
    for _ in range(5):
        connection.request(lambda request_id: commands.lookup(request_id, _TOPIC, authoritative=False), 0, 20)
    writer = _writer(wire)

    def act() -> None:
        for now, piece in enumerate(stream):
            for event in connection.receive(piece, now):
                _heard(connection, writer, event)
            connection.tick(now + wire.chance.choice((0, 1, 25)))

    return act


def _heard(connection: Connection, writer: PartitionWriter, event: object) -> None:
    """What those do whom an event is for."""
    if isinstance(event, Challenged):
        connection.log_in(_LOGIN)
    elif isinstance(event, Answer) and isinstance(event.result, pb.BaseCommand):
        answer = event.result
        if answer.type == pb.BaseCommand.LOOKUP_RESPONSE:
            Lookup(_TOPIC, Address("h", 6650)).answered(answer.lookupTopicResponse)
        elif answer.type == pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
            str(wire_values.from_wire_id(answer.getLastMessageIdResponse.last_message_id))
        elif answer.type == pb.BaseCommand.CONSUMER_STATS_RESPONSE:
            wire_values.from_wire_count(answer.consumerStatsResponse.msgBacklog)
        elif answer.type == pb.BaseCommand.PRODUCER_SUCCESS:
            writer.registering()
            writer.registered(answer.producer_success, 5000)
            writer.resend("1", 0.0)
    elif isinstance(event, FrameFor) and event.role is Role.PRODUCER and isinstance(event.frame, Receipts):
        for receipt in zip(*event.frame[1:], strict=True):
            writer.receipt(*receipt)
        assert writer.tally.sent.messages >= 0
    elif isinstance(event, FrameFor) and event.role is Role.PRODUCER:
        command = event.frame.command
        if command.type == pb.BaseCommand.SEND_ERROR:
            error = command.send_error
            writer.refused(error.sequence_id, error.error, error.message)


def _writer(wire: Wire) -> PartitionWriter:
    """One with entries that wait for their receipts."""
    packer = Packer(_TOPIC, pb.NONE, chunking=True, chunk_max_message_size=None)
    window = PendingWindow(_TOPIC, 300, MemoryBudget(1 << 20), 30.0)
    writer = PartitionWriter(_TOPIC, packer, window, StoredIds(_TOPIC))
    writer.registering()
    writer.registered(pb.CommandProducerSuccess(request_id=1, producer_name="p"), 5000)
    writer.resend("1", 0.0)
    sizes = [wire.chance.choice((1, 9000)) for _ in range(3)]
    messages = [EncodedSingle(memoryview(b""), memoryview(bytes(size))) for size in sizes]
    writer.add(list(packer.singles(messages, 5)), 0.0)
    return writer


def _lookup(wire: Wire) -> Callable[[], object]:
    answers = [pb.CommandLookupTopicResponse() for _ in range(25)]
    for answer in answers:
        fill(wire, answer, 0)
        url = f"pulsar{wire.chance.choice(('', '+ssl'))}://{wire.text().decode(errors='replace')}:6650"
        answer.brokerServiceUrl = wire.chance.choice((url, "pulsar://h:1", "pulsar://[::1%eth0]:65536"))

    def act() -> None:
        look_up = Lookup(_TOPIC, Address("h", 6650, tls=wire.chance.random() < 0.5))
        for answer in answers:
            if look_up.answered(answer) is not None:
                return

    return act


def _range(wire: Wire) -> Callable[[], object]:
    """A range, and a broker that says any positions."""

    def place() -> MessageId:
        ledger, entry = (wire.chance.choice((-1, 0, 1, 2, 3, 2**63 - 1)) for _ in range(2))
        return MessageId(ledger, entry, wire.chance.choice((-1, 0)))

    places = [place() for _ in range(60)]
    start, end = sorted(places[:2])
    progress = RangeProgress(
        start, end, visible=wire.chance.random() < 0.5, begins=wire.chance.choice((None, places[2]))
    )
    ids = np.array([[each.ledger, each.entry] for each in sorted(places[:5])], np.int64).T

    def act() -> None:
        for one, other, third in zip(places[::3], places[1::3], places[2::3], strict=True):
            kind = wire.chance.randrange(7)
            if kind == 0:
                progress.opened(one)
            elif kind == 1:
                progress.first_gap(*ids)
            elif kind == 2:
                progress.judge_gap(one, other)
            elif kind == 3:
                progress.judge_silence(one, other)
            elif kind == 4:
                first, found = wire.chance.choice((None, other)), wire.chance.choice((None, third))
                progress.judge_probe(one, first, found)
            elif kind == 5:
                progress.repeat(wire.chance.choice((None, one)))
            else:
                progress.received(one)
            str((progress.position, progress.is_done, progress.entries_left))
        progress.passed(wire.chance.choice((None, places[0])))

    return act


def _data_key(wire: Wire) -> Callable[[], object]:
    """A data key under a public key, and a payload, both of them damaged or not."""
    private, sealer = wire.chance.choice(_keys())
    fields, sealed = sealer.seal(b"payload")
    metadata = pb.MessageMetadata.FromString(fields)
    wrapped, nonce = metadata.encryption_keys[0].value, metadata.encryption_param
    if wire.is_broken():
        wrapped = wire.damaged(wrapped)
    if wire.is_broken():
        nonce = wire.damaged(nonce)
    return lambda: Opener(private, wrapped).open(nonce, wire.damaged(bytes(sealed)))


@lru_cache(maxsize=1)
def _keys() -> list[tuple[bytes, Sealer]]:
    """An RSA and an EC key: each private one in PEM, and what encrypts for it."""
    made = []
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())):
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        made.append((private, Sealer([PublicKey("k", public)])))
    return made


def _section(wire: Wire) -> Callable[[], object]:
    section = wire.section()
    return lambda: decode_payload_section(memoryview(section))


def _sections(wire: Wire) -> Callable[[], object]:
    """As many as are read by column; the good ones are alike."""
    sections = [Wire(wire.chance, 0.0).section()] * 30
    rows = [wire.chance.randrange(30) for _ in range(wire.chance.choice((1, 2)))]
    for row in rows:
        sections[row] = wire.section()
    ends = np.cumsum([len(each) for each in sections])
    starts = ends - np.array([len(each) for each in sections])
    messages = Messages(1, b"".join(sections), np.full(30, 5), np.arange(30), starts, ends)

    def act() -> None:
        entries = decode([messages]).entries
        for row in rows:
            if row < len(entries):
                entries.one(row)
        entries.texts(EntryField.ORIGIN)

    return act


def _origin(wire: Wire) -> Callable[[], object]:
    """An entry with an origin, damaged or not: it is read as it was made, or not at all."""
    chance, payload = wire.chance, wire.text()
    begin = chance.choice((None, MessageId(chance.randrange(1 << 63), chance.randrange(1 << 31))))
    made = Origin(chance.randrange(1 << 32), 3, 1, begin, chance.randrange(1 << 31))
    others = bytes_field(1, b"p") + number_field(2, 1) + number_field(3, 1)
    field = encode_origin(made, b"secret", _TOPIC, payload, others)
    if wire.is_broken():
        field = wire.damaged(field)
    section = wire.framed_section(others + field, wire.damaged(payload) if wire.is_broken() else payload)

    def act() -> None:
        stored = decode_payload_section(memoryview(section))
        entries = Entries.of([Entry(5, 1, stored.metadata, stored.payload, None)])
        for found in entries.texts(EntryField.ORIGIN).drop_null().to_pylist():
            origin = decode_origin(found, b"secret", _TOPIC, stored.payload, others)
            assert origin in (None, made)
            assert origin is None or begin is not None or bytes(stored.payload) == payload

    return act


def _batch(wire: Wire) -> Callable[[], object]:
    count = wire.chance.choice((1, 3, 30))
    payload = wire.batch(count)
    if wire.is_broken():
        payload = wire.damaged(payload)
    if wire.is_broken():
        count = wire.chance.choice(EXTREMES[:9])
    return lambda: decode_batches([payload], [count])


def _codec(wire: Wire) -> Callable[[], object]:
    chance = wire.chance
    kind = chance.choice((*CODECS, 9))
    data = wire.damaged(wire.batch(chance.choice((1, 30)))) if chance.random() < 0.5 else wire.section()
    size = chance.choice((len(data), 0, 1, _LIMIT, *EXTREMES))
    return lambda: (
        decompress(kind, data, size, _LIMIT),
        decompress_together([data, data], [min(size, _LIMIT)] * 2),
    )


def _chunks(wire: Wire) -> Callable[[], object]:
    chance, made = wire.chance, []
    for _ in range(20):
        metadata = pb.MessageMetadata(
            producer_name=chance.choice((b"p", b"q")),
            publish_time=wire.number(),
            uuid=chance.choice((b"a", b"b", b"\xff")),
            num_chunks_from_msg=chance.choice((2, 3, 2**31 - 1)),
            chunk_id=chance.choice((0, 0, 1, 1, 2, -1, 2**31 - 1)),
            total_chunk_msg_size=chance.choice((2, 8, 12, 2**31 - 1, -1)),
        )
        made.append(metadata)
    limits = ChunkLimits(max_pending=chance.choice((0, 1, 10)), auto_ack_oldest=chance.random() < 0.5)

    def act() -> None:
        chunks = ChunkAssembler(limits)
        for entry, metadata in enumerate(made):
            assert is_chunk(metadata)
            part = metadata.producer_name * 4
            message = chunks.take(metadata, part, MessageId(5, entry), metadata.publish_time / 1000)
            assert sum(each.size for each in chunks._open.values()) <= 4 * len(made)
            if isinstance(message, Assembled):  # of the chunks of one producer
                assert set(message.payload) == set(metadata.producer_name)

    return act


def _inbox(wire: Wire) -> Callable[[], object]:
    """One that more comes into than was asked for."""
    blocks = [bytes(wire.chance.choice((1, 100, 1 << 16))) for _ in range(50)]
    place = np.zeros(1, np.int64)
    parts = [Messages(1, each, place, place, place, place + len(each)) for each in blocks]
    inbox = Inbox(None, 1 << 17)

    def act() -> None:
        for part in parts:
            inbox.deliver([part])
            if inbox.holds_messages and wire.chance.random() < 0.1:
                inbox.take_group(0)
            assert inbox.bytes <= 1 << 18

    return act


def _encrypted(wire: Wire) -> Callable[[], object]:
    """An entry for any number of keys, the right one among the first or not."""
    chance = wire.chance
    private, sealer = chance.choice(_keys())
    fields, sealed = sealer.seal(b"payload")
    metadata = pb.MessageMetadata.FromString(fields)
    keys = [metadata.encryption_keys.pop()]
    for _ in range(chance.choice((0, 1, 30, 3000))):
        own = pb.EncryptionKeys(key=wire.text() * chance.choice((1, 99)), value=wire.text())
        own.metadata.add(key=wire.text(), value=wire.text())
        keys.insert(chance.choice((0, len(keys))), own)
    metadata.encryption_keys.extend(keys)
    entry = Entry(1, 1, metadata, wire.damaged(sealed) if wire.is_broken() else sealed, None)
    decryption = Decryption(Decryptor(_AnyKey(private)), TopicName.parse(_TOPIC))

    def act() -> None:
        try:
            decryption.entry(entry)
        except CryptoError as error:
            if len(str(error)) > 10_000:
                raise UndocumentedError(f"an error of {len(str(error))} characters") from error
            raise

    return act


class _AnyKey:
    """A key reader that has one key, under any name."""

    def __init__(self, pem: bytes) -> None:
        self._pem = pem

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        raise CryptoError("there is none")

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        return EncryptionKeyInfo(self._pem)


def _message_id(wire: Wire) -> Callable[[], object]:
    place = pb.MessageIdData()
    fill(wire, place, 0)
    data = wire.damaged(place.SerializePartialToString())
    return lambda: parse_message_id(data)


_Target = tuple[Callable[[Wire], Callable[[], object]], tuple[type[Exception], ...]]

# What takes the input, and the errors that its docstring names.
TARGETS: dict[str, _Target] = {
    "FrameReader": (_frame_reader, (ProtocolError,)),
    "Connection": (_connection, (ProtocolError, BrokerError)),
    "decode_payload_section": (_section, (CorruptError,)),
    "decode": (_sections, ()),
    "decode_origin": (_origin, (CorruptError,)),
    "decode_batches": (_batch, (CorruptError,)),
    "decompress": (_codec, (CorruptError,)),
    "ChunkAssembler": (_chunks, ()),
    "Inbox": (_inbox, ()),
    "Decryption": (_encrypted, (CryptoError,)),
    "Lookup": (_lookup, (ProtocolError, BrokerError)),
    "RangeProgress": (_range, ()),
    "Opener": (_data_key, (CryptoError,)),
    "parse_message_id": (_message_id, (ValueError,)),
}
