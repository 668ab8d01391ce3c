"""End-to-end encryption: what we encrypt the C++ and Java clients read, and the other way round."""

import logging
from random import Random

import pytest

from integration.broker.waiting import HANG
from integration.chaos.messages import BEGINNING, columns_of, last_message, records_of
from integration.helpers.clients import open_writer
from integration.helpers.crypto_keys import make_keys, peers_key
from integration.helpers.java_peer import JavaEntries, read_in_java, write_in_java
from integration.helpers.peer import CompressionType, Record
from pulsar_spark.client import (
    ConsumerCryptoFailureAction,
    Decryptor,
    Encryptor,
    KeyFolder,
    ProducerCryptoFailureAction,
    UserCode,
    last_sequence_id,
)
from pulsar_spark.errors import CryptoError, NotAllowedError
from pulsar_spark.ids import MessageId, TopicName
from tests.ranges import read_range
from tests.writes import write_all

DISCARD, CONSUME = ConsumerCryptoFailureAction.DISCARD, ConsumerCryptoFailureAction.CONSUME
RECORDS = [
    Record(b"value", "key", (("name", "value"),), 1_600_000_000_000),
    *[Record(b"%d " % number * 20, f"key-{number % 3}") for number in range(50)],
    Record(b""),
    Record(None, "deleted"),
]
LARGE = [Record(Random(5).randbytes(size), f"key-{size}") for size in (256, 1_500_000, 700, 2_000_000)]

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def few_keys(keys, tmp_path):
    """A folder that lacks the private key `rsa`, and has that of another one in the place of `other`."""
    for name in ("ec.private.pem", "rsa.public.pem"):
        (tmp_path / name).write_bytes((keys / name).read_bytes())
    (tmp_path / "other.private.pem").write_bytes((keys / "rsa.private.pem").read_bytes())
    return tmp_path


def write(client, topic, records, encryptor, **options):
    write_all(open_writer(client, topic, UserCode(encryptor=encryptor), **options), columns_of(records))


def read_entries(client, topic, decryptor):
    name = TopicName.parse(topic)
    groups = read_range(
        client, name, BEGINNING, last_message(client, name), poll_timeout=HANG, decryptor=decryptor
    )
    return (entry for group in groups for entry in group)


def read(client, topic, keys):
    return records_of(read_entries(client, topic, Decryptor(KeyFolder(keys))))


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZSTD"])
@pytest.mark.parametrize("batching", [True, False])
def test_the_cpp_client_reads_what_we_encrypt(client, peer, topic, keys, batching, compression):
    codec = int(getattr(CompressionType, compression))
    encryptor = Encryptor(KeyFolder(keys), ["rsa", "other"])
    write(client, topic, RECORDS, encryptor, batching=batching, compression=codec)
    for name in ("rsa", "other"):
        assert peer.read_all(topic, crypto_key_reader=peers_key(keys, name)) == RECORDS
    assert read(client, topic, keys) == RECORDS


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZSTD"])
@pytest.mark.parametrize("batch_size", [0, 10])
def test_we_read_what_the_cpp_client_encrypts(client, peer, topic, keys, batch_size, compression):
    peer.produce(
        topic,
        RECORDS,
        batch_size=batch_size,
        compression=getattr(CompressionType, compression),
        encryption_key="rsa",
        crypto_key_reader=peers_key(keys, "rsa"),
    )
    assert read(client, topic, keys) == RECORDS


@pytest.mark.parametrize("compression", ["NONE", "LZ4"])
def test_chunks_are_encrypted_one_by_one(client, peer, topic, keys, compression):
    """In both directions, and where a range begins at a message's last chunk."""
    ours, theirs = f"{topic}-ours", f"{topic}-theirs"
    codec = getattr(CompressionType, compression)
    options = {"batching": False, "chunking": True, "chunk_max_message_size": 200_000}
    write(client, ours, LARGE, Encryptor(KeyFolder(keys), ["rsa"]), compression=int(codec), **options)
    assert peer.read_all(ours, crypto_key_reader=peers_key(keys, "rsa")) == LARGE
    larger = [*LARGE, Record(Random(6).randbytes(6_000_000))]
    key = {"encryption_key": "rsa", "crypto_key_reader": peers_key(keys, "rsa")}
    peer.produce(theirs, larger, compression=codec, chunking_enabled=True, **key)
    for topic, expected in ((ours, LARGE), (theirs, larger)):
        assert read(client, topic, keys) == expected
        name = TopicName.parse(topic)
        end = last_message(client, name)
        before = MessageId(end.ledger, end.entry - 1)
        groups = read_range(
            client, name, before, end, poll_timeout=HANG, decryptor=Decryptor(KeyFolder(keys))
        )
        assert records_of(entry for group in groups for entry in group) == expected[-1:]


def test_java_reads_what_we_encrypt_and_we_read_what_it_encrypts(cluster, client, topic, keys):
    """With keys of both kinds; the Java client alone knows EC keys."""
    ours, theirs = f"{topic}-ours", f"{topic}-theirs"
    for names in (["ec"], ["rsa", "ec"]):
        for batching in (True, False):
            write(client, ours, RECORDS, Encryptor(KeyFolder(keys), names), batching=batching)
    values = [
        (message.value, message.properties) for message in read_in_java(cluster.service_url, [ours], keys)
    ]
    assert values == 4 * [(record.value, dict(record.properties)) for record in RECORDS]
    expected = [b"%d" % number for number in range(20)]
    tasks = [
        JavaEntries(
            topic=theirs,
            groups=[list(map(Record, expected))],
            codec=codec,
            batching=batching,
            names=["ec", "rsa"],
        )
        for batching in (True, False)
        for codec in ("NONE", "ZSTD")
    ]
    write_in_java(cluster.service_url, tasks, keys)
    assert [record.value for record in read(client, theirs, keys)] == 4 * expected
    (keys / "ec.private.pem").rename(keys / "away")
    try:
        assert [record.value for record in read(client, theirs, keys)] == 4 * expected
    finally:
        (keys / "away").rename(keys / "ec.private.pem")


# ---- failures


def unreadable(client, topic, keys, name):
    """A message, a batch and a message encrypted for `name` alone, and one in clear."""
    encryptor = Encryptor(KeyFolder(keys), ["ec"])
    write(client, topic, [Record(b"first", "k")], encryptor, batching=False)
    write(client, topic, [Record(b"a"), Record(b"b")], Encryptor(KeyFolder(keys), [name]))
    write_all(open_writer(client, topic), columns_of([Record(b"last")]))


@pytest.mark.parametrize("name", ["rsa", "other"])
def test_what_cannot_be_decrypted(client, topic, keys, few_keys, caplog, name):
    """The key is missing, or a wrong one."""
    unreadable(client, topic, keys, name)
    text = {"rsa": "No such file", "other": "encrypted for another key"}[name]
    with pytest.raises(CryptoError, match=rf"\[PULSAR_CRYPTO\].*'{name}'.*{text}.*; topic {topic}; message"):
        list(read_entries(client, topic, Decryptor(KeyFolder(few_keys))))
    caplog.set_level(logging.WARNING)
    kept = read_entries(client, topic, Decryptor(KeyFolder(few_keys), DISCARD))
    assert [record.value for record in records_of(kept)] == [b"first", b"last"]
    assert "1 encrypted entries are left out" in caplog.text
    entries = list(read_entries(client, topic, Decryptor(KeyFolder(few_keys), CONSUME)))
    first, stored, last = records_of(entries)
    assert (first.value, last.value) == (b"first", b"last")
    assert stored.value == bytes(entries_raw(client, topic)[1].payload)
    assert "read in their encrypted form" in caplog.text
    assert "BEGIN" not in caplog.text


def entries_raw(client, topic):
    return list(read_entries(client, topic, Decryptor(action=CONSUME)))


def test_a_namespace_may_take_encrypted_messages_only(client, peer, admin, namespace, own_topic, keys):
    admin.require_encryption(namespace)
    topic = own_topic
    write(client, topic, RECORDS, Encryptor(KeyFolder(keys), ["rsa"]))
    assert peer.read_all(topic, crypto_key_reader=peers_key(keys, "rsa")) == RECORDS
    with pytest.raises(NotAllowedError, match=r"Encryption is required.*encryptionKeys"):
        write(client, topic, RECORDS, None)
    # What a producer has stored can be asked for without a key.
    assert last_sequence_id(client, TopicName.parse(topic), "task", is_encrypted=True) == -1
    with pytest.raises(NotAllowedError, match="Encryption is required"):
        last_sequence_id(client, TopicName.parse(topic), "task", is_encrypted=False)
    send = Encryptor(KeyFolder(keys), ["none"], ProducerCryptoFailureAction.SEND)
    with pytest.raises(NotAllowedError, match=r"must be encrypted.*encryptionKeys"):
        write(client, topic, RECORDS, send)
