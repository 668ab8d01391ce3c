"""Key readers by folder and by name, one for each process."""

import pickle
from pathlib import Path

import pytest

from pulsar_spark.client import (
    ConsumerCryptoFailureAction,
    EncryptionKeyInfo,
    KeyFolder,
    ProducerCryptoFailureAction,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.encryption import (
    DecryptionOptions,
    EncryptionOptions,
    decryptor_of,
    encryptor_of,
)

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
    for text in ("/keys", f"{HERE}.Keys"):
        options = DecryptionOptions(text, FAIL)
        assert decryptor_of(options) is decryptor_of(pickle.loads(pickle.dumps(options)))
        written = EncryptionOptions(text, ("a",), ProducerCryptoFailureAction.FAIL)
        assert encryptor_of(written) is encryptor_of(pickle.loads(pickle.dumps(written)))
        assert len(pickle.dumps(written)) < 500


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
