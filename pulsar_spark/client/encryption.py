"""End-to-end encryption: the source of keys, and the handling of missing keys.

A producer encrypts with an :class:`Encryptor`, a reader of ranges decrypts with a :class:`Decryptor`. Both
are thread-safe, and no other object keeps data keys. The formats are those of
:mod:`pulsar_spark.protocol.encryption`.
"""

from __future__ import annotations

import copy
import logging
import pkgutil
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import CryptoError, LibraryError, PulsarError, assert_never
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry

if TYPE_CHECKING:
    from pulsar_spark.protocol.encryption import Opener, PublicKey, Sealer

# Seconds after which a producer makes a new data key, as in other Pulsar clients.
_LIFE_OF_A_DATA_KEY = 4 * 3600.0

# Seconds after which a producer that may send without the keys (failure action SEND) requests them again.
_TRY_AGAIN = 10.0

# Maximum keys that are tried for an entry, because a try takes 1 ms, and an entry may have 100,000 keys.
_MAX_KEYS = 20
_SHOWN_KEYS = 5  # maximum keys that an error names
_LONGEST_NAME = 100  # maximum characters of a key's name in errors, because any producer can choose it
_LONGEST_REASON = 300  # maximum characters of a key's error, which may contain the name
_KEPT_DATA_KEYS = 1000  # maximum data keys that a process remembers
_KEPT_FAILURES = 1000  # maximum unusable data keys that a task remembers
# Maximum keys (or errors) of the key reader that a task caches, by the keys' names and metadata.
_KEPT_ANSWERS = 10_000

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class ProducerCryptoFailureAction(Enum):
    """Handling of messages that a producer cannot encrypt."""

    FAIL = "FAIL"
    SEND = "SEND"


class ConsumerCryptoFailureAction(Enum):
    """Handling of entries that a reader cannot decrypt."""

    FAIL = "FAIL"
    DISCARD = "DISCARD"
    CONSUME = "CONSUME"


@dataclass(frozen=True, slots=True)
class EncryptionKeyInfo:
    """A key that a key reader returns.

    Attributes:
        key: key in PEM format, without a passphrase.
        metadata: information about a public key for readers, such as its version, sent unencrypted.
    """

    key: bytes = field(repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class CryptoKeyReader(Protocol):
    """Finds keys by their names. Its methods may be called from several threads, and may block."""

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Returns the public key ``name``, to encrypt for its owner; ``metadata`` is empty.

        Raises:
            CryptoError: the key is missing. Users see the text of this error, but of no other exception.
        """

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Returns the private key of the public key ``name``; raises as ``get_public_key``.

        Both arguments are part of the message, so any producer of the topic can choose them.
        """


class KeyFolder:
    """Keys in files ``NAME.public.pem`` and ``NAME.private.pem``, which are read at each request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Returns the public key; raises CryptoError if its file cannot be read."""
        return self._read(name, "public")

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        """Returns the private key; raises CryptoError if its file cannot be read."""
        return self._read(name, "private")

    def _read(self, name: str, kind: str) -> EncryptionKeyInfo:
        if name.startswith(".") or set(name) & set("/\\\0"):
            raise CryptoError(f"{_shown(name)} cannot be the name of a key file")
        path = self._folder / f"{name}.{kind}.pem"
        try:
            return EncryptionKeyInfo(path.read_bytes())
        except OSError as error:
            raise CryptoError(
                f"the {kind} key {_shown(name)} cannot be read from {self._folder}: {error.strerror}",
                advice=f"Put it into a file NAME.{kind}.pem on the hosts of Spark's Python workers",
            ) from None


class Encryptor:
    """Encrypts payloads of any number of producers, which share one data key.

    ``names``: names of the public keys. The owner of any of these keys can decrypt.
    """

    def __init__(
        self,
        reader: CryptoKeyReader,
        names: Sequence[str],
        action: ProducerCryptoFailureAction = ProducerCryptoFailureAction.FAIL,
    ) -> None:
        self._reader = reader
        self._names = tuple(names)
        self._action = action
        self._lock = threading.Lock()
        self._sealer: Sealer | None = None
        self._due = float("-inf")

    def seal(self, payload: Buffer) -> tuple[bytes, Buffer]:
        """Returns serialized fields to append to an entry's MessageMetadata, and the encrypted payload.

        ``payload``: compressed payload of the entry. If the failure action is SEND, and no data key could be
        made yet, returns no fields, and the unchanged payload.

        Raises:
            CryptoError: the payload could not be encrypted.
            LibraryError: ``cryptography`` is not installed.
        """
        sealer = self._current()
        return (b"", payload) if sealer is None else sealer.seal(payload)

    @property
    def room(self) -> int:
        """Returns the bytes by which encryption enlarges an entry; raises as ``seal``."""
        sealer = self._current()
        return 0 if sealer is None else sealer.room

    def _current(self) -> Sealer | None:
        now = time.monotonic()
        if now >= self._due:
            with self._lock:
                if now >= self._due:
                    self._renew(now)
        return self._sealer

    def _renew(self, now: float) -> None:
        try:
            self._sealer = _ciphers().Sealer([self._public_key(name) for name in self._names])
            self._due = now + _LIFE_OF_A_DATA_KEY
        except CryptoError as error:
            match self._action:
                case ProducerCryptoFailureAction.FAIL:
                    raise
                case ProducerCryptoFailureAction.SEND:
                    pass
                case action:
                    assert_never(action)
            what = "messages are sent WITHOUT encryption" if self._sealer is None else "the data key is kept"
            _log.warning("%s; the keys are requested again in %g s: %s", what, _TRY_AGAIN, error)
            self._due = now + _TRY_AGAIN

    def _public_key(self, name: str) -> PublicKey:
        info = _asked(self._reader, "public", name, {})
        return _ciphers().PublicKey(name, info.key, tuple(info.metadata.items()))


class Decryptor:
    """Decrypts the entries of topic ranges; keeps the data keys that it has decrypted.

    ``reader``: source of the private keys; None: nothing can be decrypted.
    """

    def __init__(
        self,
        reader: CryptoKeyReader | None = None,
        action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> None:
        self.action = action
        self._reader = reader
        self._lock = threading.Lock()
        self._kept: _Recent[Opener] = _Recent(_KEPT_DATA_KEYS)
        self._forget()

    def _forget(self) -> None:
        """Drops the cached keys of the key reader, and the cached errors of unusable data keys."""
        self._asking = threading.Lock()
        self._answers: _Recent[EncryptionKeyInfo | CryptoError] = _Recent(_KEPT_ANSWERS)
        self._failures: _Recent[CryptoError] = _Recent(_KEPT_FAILURES)

    def for_task(self) -> Decryptor:
        """Returns a copy for one task; it shares the cached data keys, but requests private keys again."""
        made = copy.copy(self)
        made._forget()
        return made

    def opener(self, key: pb.EncryptionKeys) -> Opener | CryptoError:
        """Returns an object that decrypts with the data key in ``key``; or the error if it is unusable."""
        digest = _digest(key)
        with self._lock:
            found = self._kept.get(digest) or self._failures.get(digest)
        if found is not None:
            return found
        try:
            info = self._private_key(key)
            made = info if isinstance(info, CryptoError) else _ciphers().Opener(info.key, key.value)
        except CryptoError as error:
            made = _shortened(error)
        with self._lock:
            if isinstance(made, CryptoError):
                self._failures.put(digest, made)
            else:
                self._kept.put(digest, made)
        return made

    def _private_key(self, key: pb.EncryptionKeys) -> EncryptionKeyInfo | CryptoError:
        """Returns the key reader's private key or error, which is cached, because the reader may be slow."""
        if self._reader is None:
            raise CryptoError("cryptoKeyReader is not set", advice="Set pulsar.reader.cryptoKeyReader")
        digest = _digest(pb.EncryptionKeys(key=key.key, metadata=key.metadata))
        with self._asking:
            known = self._answers.get(digest)
            if known is None:
                metadata = {_text(each.key): _text(each.value) for each in key.metadata}
                try:
                    answer = _asked(self._reader, "private", _text(key.key), metadata)
                    known = EncryptionKeyInfo(answer.key)
                except CryptoError as error:
                    known = _shortened(error)
                self._answers.put(digest, known)
            return known


class _Recent(Generic[_T]):
    """A cache of the last used values, by digests of keys, because a key may have megabytes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: OrderedDict[bytes, _T] = OrderedDict()

    def get(self, digest: bytes) -> _T | None:
        value = self._values.get(digest)
        if value is not None:
            self._values.move_to_end(digest)
        return value

    def put(self, digest: bytes, value: _T) -> None:
        self._values[digest] = value
        if len(self._values) > self._count:
            self._values.popitem(last=False)


class Decryption:
    """Decrypts the entries of one range of a topic partition."""

    def __init__(self, decryptor: Decryptor, topic: TopicName) -> None:
        self._decryptor = decryptor
        self._topic = str(topic)
        self._failed = 0
        self._first_failure: PulsarError | None = None

    def entries(self, entries: Entries) -> Entries:
        """Decrypts the encrypted entries of ``entries``; each chunk is decrypted by itself.

        An entry that cannot be decrypted is left out with the failure action DISCARD. With CONSUME it becomes
        one message, whose value is the stored payload. With FAIL, raises a CryptoError with its id.
        """
        if not entries.encrypted.any():
            return entries
        return Entries.of([plain for entry in entries if (plain := self.entry(entry)) is not None])

    def entry(self, entry: Entry) -> Entry | None:
        """Decrypts one entry; returns None if it is discarded."""
        if not entry.metadata.encryption_keys:
            return entry
        try:
            return entry._replace(payload=self._open(entry.metadata, entry.payload))
        except CryptoError as error:
            located = error.located(self._topic, str(MessageId(entry.ledger, entry.entry)))
            return self._undecrypted(entry, located)

    def _undecrypted(self, entry: Entry, error: CryptoError) -> Entry | None:
        match self._decryptor.action:
            case ConsumerCryptoFailureAction.FAIL:
                raise error from None
            case ConsumerCryptoFailureAction.DISCARD:
                given = None
            case ConsumerCryptoFailureAction.CONSUME:
                given = _as_stored(entry)
            case action:
                assert_never(action)
        self._failed += 1
        self._first_failure = self._first_failure or error
        return given

    def report(self) -> None:
        """Logs one WARNING about the entries that could not be decrypted."""
        if self._failed:
            discards = self._decryptor.action is ConsumerCryptoFailureAction.DISCARD
            fate = "left out" if discards else "read in their encrypted form"
            _log.warning("%d encrypted entries are %s, first: %s", self._failed, fate, self._first_failure)

    def _open(self, metadata: pb.MessageMetadata, payload: Buffer) -> bytes:
        """Decrypts with the first usable key of an entry."""
        failures: dict[str, CryptoError] = {}
        for key in islice(metadata.encryption_keys, _MAX_KEYS):
            found = self._decryptor.opener(key)
            if not isinstance(found, CryptoError):
                return found.open(metadata.encryption_param, payload)
            failures[_shown(_text(key.key))] = found
        reasons = [f"{name}: {error.what}" for name, error in islice(failures.items(), _SHOWN_KEYS)]
        count, shown = len(metadata.encryption_keys), len(reasons)
        if count > _MAX_KEYS:
            reasons.append(f"and {count - shown} more, of which {_MAX_KEYS - shown} were tried")
        elif count > shown:
            reasons.append(f"and {count - shown} more")
        advices = {error.advice for error in failures.values()}
        raise CryptoError(
            f"an entry is encrypted, and none of its keys can be used ({'; '.join(reasons)})",
            advice=advices.pop() if len(advices) == 1 else None,
        )


def _digest(key: pb.EncryptionKeys) -> bytes:
    return blake2b(key.SerializePartialToString()).digest()


def _shortened(error: CryptoError) -> CryptoError:
    """Returns a copy of an error with less text, and no traceback, which would keep objects in memory."""
    return CryptoError(error.what[:_LONGEST_REASON], advice=error.advice)


def _as_stored(entry: Entry) -> Entry:
    """Returns an entry as one message, whose value is the stored payload, such as a compressed batch."""
    metadata = pb.MessageMetadata()
    metadata.CopyFrom(entry.metadata)
    for name in (
        *("num_messages_in_batch", "compression", "uncompressed_size"),
        *("uuid", "chunk_id", "num_chunks_from_msg", "total_chunk_msg_size"),
    ):
        metadata.ClearField(name)
    return entry._replace(metadata=metadata)


def _asked(reader: CryptoKeyReader, kind: str, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
    try:
        ask = reader.get_public_key if kind == "public" else reader.get_private_key
        info = ask(name, metadata)
    except PulsarError:
        raise
    except Exception as error:  # noqa: BLE001 - its text is not shown: it might hold the key
        raise CryptoError(
            f"the key reader {type(reader).__name__} failed for the {kind} key {_shown(name)}: "
            f"{type(error).__name__}",
            advice="To have an error's text shown, raise a pulsar_spark.errors.CryptoError in the key reader",
        ) from None
    if not isinstance(info, EncryptionKeyInfo):
        raise CryptoError(
            f"the key reader {type(reader).__name__} returned a {type(info).__name__} instead of an "
            "EncryptionKeyInfo"
        )
    return info


def _ciphers() -> _Ciphers:
    """Returns the module that needs ``cryptography``, an extra that loads slowly; loads it on first use."""
    try:
        module: _Ciphers = pkgutil.resolve_name("pulsar_spark.protocol.encryption:")
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise LibraryError(
            "encryption requires the package cryptography, which is not installed",
            advice="Run pip install 'cryptography>=42' on the hosts of Spark's Python workers",
        ) from error
    return module


class _Ciphers(Protocol):
    Opener: type[Opener]
    PublicKey: type[PublicKey]
    Sealer: type[Sealer]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _shown(name: str) -> str:
    return repr(name[:_LONGEST_NAME])
