"""End-to-end encryption: its options, and the encryptors and decryptors of this process.

Encryptors and decryptors are made in tasks, because options are sent to tasks, and keys are not.
"""

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
from pulsar_spark.spark.options.user_code import load_class

_OPTION = "cryptoKeyReader"
_METHODS = ("get_public_key", "get_private_key")


@dataclass(frozen=True, slots=True)
class EncryptionOptions:
    """Options of encryption.

    Attributes:
        key_reader: a folder, or the dotted name of a class of key readers.
    """

    key_reader: Path | str
    keys: tuple[str, ...]
    action: ProducerCryptoFailureAction


@dataclass(frozen=True, slots=True)
class DecryptionOptions:
    """Options of decryption.

    Attributes:
        key_reader: a folder, or the dotted name of a class of key readers; None: nothing can be decrypted.
    """

    key_reader: Path | str | None
    action: ConsumerCryptoFailureAction


@lru_cache(maxsize=100)
def encryptor_of(options: EncryptionOptions) -> Encryptor:
    """Returns this process's encryptor for the options, so that tasks share a data key.

    Raises:
        OptionError: the key reader cannot be imported, or is not a class of key readers.
    """
    return Encryptor(_key_reader(options.key_reader), options.keys, options.action)


@lru_cache(maxsize=100)
def decryptor_of(options: DecryptionOptions) -> Decryptor:
    """Returns this process's decryptor for the options, so that tasks share decrypted data keys."""
    reader = None if options.key_reader is None else _key_reader(options.key_reader)
    return Decryptor(reader, options.action)


def own_decryptor(options: EncryptionOptions) -> Decryptor:
    """Returns a decryptor of the sink's own messages, if the sink's key reader has the private keys."""
    return decryptor_of(DecryptionOptions(options.key_reader, ConsumerCryptoFailureAction.FAIL))


def check_key_reader(place: Path | str | None) -> None:
    """Raises OptionError if this process, the driver, has no such folder or class."""
    if isinstance(place, str):
        load_class(_OPTION, place, *_METHODS)
    elif place is not None and not place.is_dir():
        raise OptionError(
            f"option {_OPTION} is {place}, and there is no such folder in {Path.cwd()}",
            advice="Put the folder of keys on the hosts of the driver and of the tasks",
        )


def _key_reader(place: Path | str) -> CryptoKeyReader:
    if isinstance(place, Path):
        return KeyFolder(place)
    reader: CryptoKeyReader = load_class(_OPTION, place, *_METHODS)()
    return reader
