"""Key readers by folder and by name, one for each process."""

import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pulsar_spark.client import (
    ConsumerCryptoFailureAction,
    EncryptionKeyInfo,
    KeyFolder,
    ProducerCryptoFailureAction,
)
from pulsar_spark.client.encryption import Decryption
from pulsar_spark.errors import CryptoError, OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.connection import (
    DecryptionOptions,
    EncryptionOptions,
    check_key_reader,
    decryptor_of,
    encryptor_of,
    own_decryptor,
)
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry

HERE = __name__
FAIL = ConsumerCryptoFailureAction.FAIL


class Keys(KeyFolder):
    def __init__(self):
        super().__init__(Path("/nowhere"))


class NoKeys:
    def __init__(self):
        raise AssertionError("it was called")

    def get_public_key(self, name, metadata):
        return EncryptionKeyInfo(b"")


def function():
    raise AssertionError("it was called")


def test_one_for_all_tasks_of_a_process():
    for text in (Path("/keys"), f"{HERE}.Keys"):
        options = DecryptionOptions(text, FAIL)
        assert decryptor_of(options) is decryptor_of(pickle.loads(pickle.dumps(options)))
        written = EncryptionOptions(text, ("a",), ProducerCryptoFailureAction.FAIL)
        assert encryptor_of(written) is encryptor_of(pickle.loads(pickle.dumps(written)))
        assert len(pickle.dumps(written)) < 500
        assert own_decryptor(written) is own_decryptor(pickle.loads(pickle.dumps(written)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_module.Keys", "there is no such name"),
        (f"{HERE}.NoKeys", "is not a class with the methods get_public_key and get_private_key"),
        (f"{HERE}.function", "is not a class with"),
    ],
)
def test_what_is_no_key_reader(name, text):
    with pytest.raises(OptionError, match=rf"cryptoKeyReader is {name}.*{text}"):
        decryptor_of(DecryptionOptions(name, FAIL))
    with pytest.raises(OptionError, match=rf"cryptoKeyReader is {name}.*{text}"):
        check_key_reader(name)


def test_a_folder_that_the_driver_does_not_have_is_no_key_reader(tmp_path, monkeypatch):
    (tmp_path / "keys").mkdir()
    monkeypatch.chdir(tmp_path)
    for found in (None, tmp_path, Path("keys"), f"{HERE}.Keys"):
        check_key_reader(found)
    with pytest.raises(OptionError, match=rf"is keyz, and there is no such folder in {tmp_path}\. Put the"):
        check_key_reader(Path("keyz"))


def test_a_sink_can_read_what_it_has_encrypted_if_it_has_the_private_key(tmp_path):
    """Else it is an error: rows that are left out silently would be sent again."""
    key, pem = ec.generate_private_key(ec.SECP256R1()), serialization.Encoding.PEM
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "own.public.pem").write_bytes(public)
    options = EncryptionOptions(tmp_path, ("own",), ProducerCryptoFailureAction.FAIL)
    fields, sealed = encryptor_of(options).seal(b"a row")
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=1)
    metadata.MergeFromString(fields)
    stored = Entries.of([Entry(7, 0, metadata, sealed, None)])
    with pytest.raises(CryptoError, match=r"private key 'own' .* No such file"):
        Decryption(own_decryptor(options).for_task(), TopicName.parse("t")).entries(stored)
    raw = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, raw)
    (tmp_path / "own.private.pem").write_bytes(private)
    plain = Decryption(own_decryptor(options).for_task(), TopicName.parse("t")).entries(stored)
    assert [bytes(payload) for payload in plain.payloads] == [b"a row"]
