"""What options say of end-to-end encryption, and what is made of that in each process that needs it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pulsar_spark.client import (
    ConsumerCryptoFailureAction,
    CryptoKeyReader,
    Decryptor,
    Encryptor,
    KeyFolder,
    ProducerCryptoFailureAction,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.user_code import load

_OPTION = "cryptoKeyReader"


@dataclass(frozen=True, slots=True)
class EncryptionOptions:
    """How messages are encrypted.

    Attributes:
        key_reader: an absolute path of a folder, or the dotted name of what makes a key reader.
        keys: names of public keys.
        action: for messages that cannot be encrypted.
    """

    key_reader: str
    keys: tuple[str, ...]
    action: ProducerCryptoFailureAction


@dataclass(frozen=True, slots=True)
class DecryptionOptions:
    """How messages are decrypted.

    Attributes:
        key_reader: as in EncryptionOptions; None: nothing can be decrypted.
        action: for entries that cannot be decrypted.
    """

    key_reader: str | None
    action: ConsumerCryptoFailureAction


@lru_cache(maxsize=100)
def encryptor_of(options: EncryptionOptions) -> Encryptor:
    """The one of this process, so that tasks share a data key.

    Raises:
        OptionError: the key reader cannot be had.
    """
    return Encryptor(_key_reader(options.key_reader), options.keys, options.action)


@lru_cache(maxsize=100)
def decryptor_of(options: DecryptionOptions) -> Decryptor:
    """The one of this process, so that tasks share the data keys they have seen.

    Raises:
        OptionError: the key reader cannot be had.
    """
    reader = None if options.key_reader is None else _key_reader(options.key_reader)
    return Decryptor(reader, options.action)


def _key_reader(text: str) -> CryptoKeyReader:
    if text.startswith("/"):
        return KeyFolder(Path(text))
    reader = load(_OPTION, text)()
    if not isinstance(reader, CryptoKeyReader):
        raise OptionError(
            f"option {_OPTION} is {text}, which does not make a key reader",
            advice="Name a class or function without arguments whose result has the methods get_public_key "
            "and get_private_key; docs/encryption.md shows one",
        )
    return reader
