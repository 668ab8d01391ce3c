"""Key readers, and what is done where a key is missing. The keys are EC keys: they take no time to make."""

import gc
import logging
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pulsar_spark.client import encryption
from pulsar_spark.client.encryption import (
    ConsumerCryptoFailureAction,
    CryptoKeyReader,
    Decryption,
    Decryptor,
    EncryptionKeyInfo,
    Encryptor,
    KeyFolder,
    ProducerCryptoFailureAction,
)
from pulsar_spark.errors import CryptoError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.encryption import unwrap
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry

TOPIC = TopicName.parse("t-partition-3")
DISCARD, CONSUME = ConsumerCryptoFailureAction.DISCARD, ConsumerCryptoFailureAction.CONSUME
SEND = ProducerCryptoFailureAction.SEND


def put_key(folder, name):
    key = ec.generate_private_key(ec.SECP256R1())
    pem, raw = serialization.Encoding.PEM, serialization.NoEncryption()
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.public.pem").write_bytes(public)
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, raw)
    (folder / f"{name}.private.pem").write_bytes(private)


@pytest.fixture
def folder(tmp_path):
    """With the keys a and b."""
    for name in "ab":
        put_key(tmp_path, name)
    return tmp_path


@pytest.fixture
def keys(folder):
    return KeyFolder(folder)


class Counted:
    """Counts the questions for private keys."""

    def __init__(self, reader):
        self.asked = 0
        self._reader = reader

    def get_public_key(self, name, metadata):
        return self._reader.get_public_key(name, metadata)

    def get_private_key(self, name, metadata):
        self.asked += 1
        return self._reader.get_private_key(name, metadata)


def entry(number, payload=b"value", fields=b"", **more):
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=number, publish_time=1, **more)
    metadata.MergeFromString(fields)
    return Entry(7, number, metadata, payload, None)


def sealed(encryptor, number, payload=b"value", **more):
    fields, ciphertext = encryptor.seal(payload)
    return entry(number, ciphertext, fields, **more)


def payloads(entries):
    return [bytes(payload) for payload in entries.payloads]


def test_a_folder_is_a_key_reader(keys):
    assert isinstance(keys, CryptoKeyReader)
    assert keys.get_private_key("a", {}).key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert keys.get_public_key("a", {}).key.startswith(b"-----BEGIN PUBLIC KEY-----")


def test_a_key_that_is_missing_is_named(keys, folder):
    with pytest.raises(CryptoError, match=r"private key 'c' .* No such file") as caught:
        keys.get_private_key("c", {})
    assert str(folder) in str(caught.value)
    assert "NAME.private.pem" in caught.value.advice


@pytest.mark.parametrize("name", ["../a", "/a", "a/../a", "..", ".a", "a\\b", "a\0"])
def test_a_name_does_not_lead_out_of_the_folder(keys, folder, name):
    (folder / "inner").mkdir()
    with pytest.raises(CryptoError, match="cannot be the name of a key"):
        KeyFolder(folder / "inner").get_private_key(name, {})


def test_a_key_is_not_shown():
    assert "secret" not in repr(EncryptionKeyInfo(b"secret", {"version": "2"}))


def test_what_is_encrypted_is_decrypted_among_what_is_not(keys):
    encryptor = Encryptor(keys, ["a"])
    group = Entries.of([entry(0, b"x"), sealed(encryptor, 1, b"y"), sealed(encryptor, 2, b"z"), entry(3)])
    assert group.encrypted.tolist() == [False, True, True, False]
    plain = Decryption(Decryptor(keys), TOPIC).entries(group)
    assert payloads(plain) == [b"x", b"y", b"z", b"value"]
    assert plain.entry.tolist() == [0, 1, 2, 3]


def test_what_is_not_encrypted_is_not_touched():
    group = Entries.of([entry(0), entry(1)])
    assert Decryption(Decryptor(), TOPIC).entries(group) is group


@pytest.mark.parametrize("name", ["a", "b"])
def test_one_of_several_keys_is_enough(keys, folder, name):
    encryptor = Encryptor(keys, ["a", "b"])
    (folder / f"{'b' if name == 'a' else 'a'}.private.pem").unlink()
    plain = Decryption(Decryptor(keys), TOPIC).entries(Entries.of([sealed(encryptor, 0)]))
    assert payloads(plain) == [b"value"]


def test_a_data_key_is_asked_for_once(keys):
    encryptor, counted = Encryptor(keys, ["a"]), Counted(keys)
    decryptor = Decryptor(counted)
    for _ in range(3):
        Decryption(decryptor, TOPIC).entries(Entries.of([sealed(encryptor, number) for number in range(5)]))
    assert counted.asked == 1


def unreadable(keys, folder, why):
    """Entries 0 and 2 can be decrypted, 1 not; and the reader."""
    encryptor = Encryptor(keys, ["a"])
    batch = {"num_messages_in_batch": 5, "compression": pb.ZSTD, "uncompressed_size": 100}
    good, bad = [sealed(encryptor, number) for number in (0, 2)], sealed(encryptor, 1, b"batch", **batch)
    if why == "tampered":
        bad = bad._replace(payload=bad.payload[:-1] + bytes([bad.payload[-1] ^ 1]))
    else:
        bad = sealed(Encryptor(keys, ["b"]), 1, b"batch", **batch)
        (folder / "b.private.pem").unlink()
        if why == "wrong key":
            (folder / "b.private.pem").write_bytes((folder / "a.private.pem").read_bytes())
    return bad, Entries.of([good[0], bad, good[1]])


REASONS = {
    "tampered": "was changed",
    "missing key": r"none of its keys can be used \('b': the private key 'b' cannot be read",
    "wrong key": r"none of its keys can be used \('b': the data key was encrypted for another key",
}
each_reason = pytest.mark.parametrize(("why", "text"), REASONS.items(), ids=REASONS.keys())


@each_reason
def test_fail_names_the_message(keys, folder, why, text):
    _, group = unreadable(keys, folder, why)
    with pytest.raises(CryptoError, match=text) as caught:
        Decryption(Decryptor(keys), TOPIC).entries(group)
    assert (caught.value.topic, caught.value.message_id) == (str(TOPIC), "7:1")


@each_reason
def test_discard_leaves_it_out_and_tells(keys, folder, caplog, why, text):
    _, group = unreadable(keys, folder, why)
    decryption = Decryption(Decryptor(keys, DISCARD), TOPIC)
    plain = decryption.entries(group)
    assert plain.entry.tolist() == [0, 2]
    decryption.report()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "1 encrypted entries are left out" in record.getMessage()
    assert "message 7:1" in record.getMessage()


@each_reason
def test_consume_gives_what_is_stored(keys, folder, caplog, why, text):
    bad, group = unreadable(keys, folder, why)
    decryption = Decryption(Decryptor(keys, CONSUME), TOPIC)
    plain = decryption.entries(group)
    assert payloads(plain) == [b"value", bytes(bad.payload), b"value"]
    assert plain.messages.tolist() == [0, 0, 0]
    assert plain.compression.tolist() == [0, 0, 0]
    decryption.report()
    assert "read in their encrypted form" in caplog.text


def test_all_may_be_discarded(keys):
    group = Entries.of([sealed(Encryptor(keys, ["a"]), 0)])
    assert len(Decryption(Decryptor(action=DISCARD), TOPIC).entries(group)) == 0


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_key_is_asked_for_once_in_a_task(keys, folder, is_missing):
    """Whatever data keys are encrypted for it, and in whatever range: 1 MB had it asked for 2,600 times."""
    counted = Counted(keys)
    shared = Decryptor(counted, DISCARD)
    group = Entries.of([sealed(Encryptor(keys, ["a"]), number) for number in range(5)])
    if is_missing:
        (folder / "a.private.pem").unlink()
    task = shared.for_task()
    for _ in range(2):
        assert len(Decryption(task, TOPIC).entries(group)) == (0 if is_missing else 5)
    assert counted.asked == 1
    # A key that was missing may have been added since.
    Decryption(shared.for_task(), TOPIC).entries(group)
    assert counted.asked == (2 if is_missing else 1)


def test_a_key_with_other_metadata_is_another(keys):
    counted = Counted(keys)
    decryptor = Decryptor(counted)
    for version in (b"1", b"2", b"1"):
        found = sealed(Encryptor(keys, ["a"]), 0)
        found.metadata.encryption_keys[0].metadata.add(key=b"version", value=version)
        assert Decryption(decryptor, TOPIC).entry(found).payload == b"value"
    assert counted.asked == 2


def test_very_many_keys_of_a_stranger_do_not_hide_another_key(keys, monkeypatch):
    monkeypatch.setattr(encryption, "_KEPT_ANSWERS", 50)
    monkeypatch.setattr(encryption, "_KEPT_FAILURES", 50)
    counted = Counted(keys)
    decryptor = Decryptor(counted, DISCARD)
    for number in range(100):
        Decryption(decryptor, TOPIC).entry(with_keys(number, (f"missing {number}", b"")))
    assert counted.asked == 100
    assert len(decryptor._answers._values) == 50, "memory is bounded"
    entry = sealed(Encryptor(keys, ["a"]), 0)
    assert Decryption(decryptor, TOPIC).entry(entry) is not None
    assert counted.asked == 101


def test_without_a_reader_it_says_what_to_set(keys):
    group = Entries.of([sealed(Encryptor(keys, ["a"]), 0)])
    with pytest.raises(CryptoError, match=r"Set pulsar\.reader\.cryptoKeyReader"):
        Decryption(Decryptor(), TOPIC).entries(group)


def test_an_entry_may_hold_anything(keys):
    """Names and values of keys are chosen by whoever may write."""
    raw = pb.MessageMetadata()
    key = raw.encryption_keys.add(key=b"\xff\xfe" * 5_000, value=b"")
    key.metadata.add(key=b"\xff", value=b"\xfe")
    broken = raw.SerializePartialToString()
    with pytest.raises(CryptoError) as caught:
        Decryption(Decryptor(keys), TOPIC).entries(Entries.of([entry(0, b"", broken)]))
    assert len(str(caught.value)) < 1000


def with_keys(number, *keys, payload=b"value"):
    """An entry with keys of (name, data key), whatever they are worth."""
    made = entry(number, payload)
    for name, wrapped in keys:
        made.metadata.encryption_keys.add(key=name.encode(), value=wrapped)
    return made


def failure_of(entry, decryptor):
    with pytest.raises(CryptoError) as caught:
        Decryption(decryptor, TOPIC).entry(entry)
    return caught.value.what


@contextmanager
def opened():
    """The data keys that are decrypted, or tried."""
    tried = []

    def unwrap_noted(pem, wrapped):
        tried.append(wrapped)
        return unwrap(pem, wrapped)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pulsar_spark.protocol.encryption.unwrap", unwrap_noted)
        yield tried


def test_of_many_data_keys_few_are_tried(keys):
    """Each takes a millisecond: 2 MB of them took 5 seconds."""
    wrong = [("a", b"%d" % number) for number in range(8000)]
    with opened() as tried:
        what = failure_of(with_keys(0, *wrong), Decryptor(keys))
    assert len(tried) == 20
    assert "and 7999 more, of which 19 were tried" in what


@pytest.mark.parametrize(
    ("count", "others"),
    [(1, ""), (5, ""), (6, "; and 1 more)"), (20, "; and 15 more)"), (100_000, "15 were tried)")],
)
def test_of_many_names_few_are_shown(keys, count, others):
    missing = [(f"{number:06}{'x' * 50}", b"") for number in range(count)]
    what = failure_of(with_keys(0, *missing), Decryptor(keys))
    assert what.endswith(others)
    assert what.count("cannot be read from") == min(count, 5)
    assert len(what) < 3000


def test_the_right_one_of_twenty_keys_is_found(keys):
    encryptor = Encryptor(keys, ["a"])
    right = sealed(encryptor, 0)
    wrong = [(f"missing {number}", b"") for number in range(19)]
    found = with_keys(0, *wrong, ("a", data_key(encryptor)), payload=right.payload)
    found.metadata.encryption_param = right.metadata.encryption_param
    assert Decryption(Decryptor(keys), TOPIC).entry(found).payload == b"value"


class Talkative:
    """A key reader whose errors show all that it was asked."""

    def get_private_key(self, name, metadata):
        raise CryptoError(f"no key {name} {metadata}", advice="Ask for one")


@pytest.mark.parametrize("reader", [KeyFolder(Path("/nowhere")), Talkative()])
def test_what_is_remembered_is_small(reader):
    """Names of keys and what is said of them are as long as a producer likes."""
    decryption = Decryption(Decryptor(reader, DISCARD), TOPIC)
    tracemalloc.start()
    try:
        for number in range(10):
            large = with_keys(number, (f"{number}" + "n" * (1 << 20), b"w" * (1 << 20)))
            large.metadata.encryption_keys[0].metadata.add(key=b"k", value=b"v" * (1 << 20))
            assert decryption.entry(large) is None
            del large
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_data_keys_that_can_be_used_are_remembered_without_what_is_said_of_them(keys):
    counted = Counted(keys)
    encryptor = Encryptor(counted, ["a"])
    decryptor = Decryptor(counted)
    tracemalloc.start()
    try:
        for number in range(30):
            large = sealed(encryptor, number)
            large.metadata.encryption_keys[0].metadata.add(key=b"%d" % number, value=b"v" * (1 << 20))
            assert Decryption(decryptor, TOPIC).entry(large).payload == b"value"
            del large
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert counted.asked == 30


def test_data_keys_that_were_used_last_are_remembered(keys, monkeypatch):
    monkeypatch.setattr(encryption, "_KEPT_DATA_KEYS", 2)
    decryptor = Decryptor(keys)
    sources = [Encryptor(keys, ["a"]) for _ in range(3)]
    with opened() as tried:
        for source in (0, 1, 0, 2, 0, 1):
            Decryption(decryptor, TOPIC).entry(sealed(sources[source], 0))
    assert len(tried) == 4


class Own:
    """A key reader that fails as it is told."""

    def __init__(self, answer):
        self._answer = answer

    def get_public_key(self, name, metadata):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    get_private_key = get_public_key


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ValueError("secret"), "the key reader Own failed for the public key 'a': ValueError"),
        (CryptoError("the vault is closed"), "the vault is closed"),
        (b"secret", "the key reader Own returned a bytes instead"),
        (EncryptionKeyInfo(b"secret"), "the public key 'a' is not an RSA or EC key in PEM"),
    ],
)
def test_a_reader_of_the_users_own_may_fail(answer, text):
    with pytest.raises(CryptoError, match=text) as caught:
        Encryptor(Own(answer), ["a"]).seal(b"value")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_metadata_of_a_key_reach_its_reader(keys):
    class Versioned(Counted):
        def get_public_key(self, name, metadata):
            return EncryptionKeyInfo(super().get_public_key(name, metadata).key, {"version": "2"})

        def get_private_key(self, name, metadata):
            self.metadata = metadata
            return super().get_private_key(name, metadata)

    reader = Versioned(keys)
    group = Entries.of([sealed(Encryptor(reader, ["a"]), 0)])
    Decryption(Decryptor(reader), TOPIC).entries(group)
    assert reader.metadata == {"version": "2"}


def data_key(encryptor):
    metadata = pb.MessageMetadata()
    metadata.MergeFromString(encryptor.seal(b"")[0])
    return metadata.encryption_keys[0].value


def test_a_data_key_lives_four_hours(keys, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(encryption, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now)}))
    encryptor = Encryptor(keys, ["a"])
    first = data_key(encryptor)
    now += 4 * 3600 - 1
    assert data_key(encryptor) == first
    now += 1
    assert data_key(encryptor) != first


def test_send_sends_without_encryption_until_there_is_a_key(keys, folder, monkeypatch, caplog):
    now = 1000.0
    monkeypatch.setattr(encryption, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now)}))
    encryptor = Encryptor(keys, ["c"], SEND)
    assert [encryptor.seal(b"value") for _ in range(3)] == 3 * [(b"", b"value")]
    assert encryptor.room == 0
    (record,) = caplog.records
    assert "WITHOUT encryption" in record.getMessage()
    put_key(folder, "c")
    now += 10
    first = data_key(encryptor)
    (folder / "c.public.pem").unlink()
    now += 4 * 3600
    assert data_key(encryptor) == first
    assert "the data key is kept" in caplog.text


def test_what_is_not_installed_is_named(folder):
    code = """
import sys
from pathlib import Path
from pulsar_spark.client.encryption import Encryptor, KeyFolder, ProducerCryptoFailureAction
from pulsar_spark.errors import LibraryError

sys.modules["cryptography"] = None
for action in ProducerCryptoFailureAction:
    try:
        Encryptor(KeyFolder(Path(sys.argv[1])), ["a"], action).seal(b"value")
    except LibraryError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout.count("pip install 'cryptography>=42'") == 2


def test_nothing_is_loaded_before_it_is_used():
    code = "import sys, pulsar_spark.client; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
