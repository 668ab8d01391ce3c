"""End-to-end encryption of payloads with data keys, and of data keys with the readers' public keys. No I/O.

Content of an encrypted entry, for all Pulsar clients:

    ==================  ==============================================================================
    payload             AES-GCM of the compressed payload or its chunk, with a tag of 16 bytes at the end
    encryption_param    nonce, 12 random bytes
    encryption_keys     for each public key: its name, metadata of the key reader, and the encrypted data key
    ==================  ==============================================================================

An RSA key encrypts the data key by OAEP with SHA-1; an EC key by ECIES as in Bouncy Castle's default (IEEE
1363a): an uncompressed ephemeral point, the data key XORed with a key stream, and the HMAC of this
ciphertext. KDF2 with SHA-1 over the point and the shared secret makes the key stream and the HMAC's key.

This module is loaded on first use, because ``cryptography`` is an extra, and slow to load.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import CryptoError
from pulsar_spark.wire import pulsar_pb2 as pb

_PublicKey: TypeAlias = "rsa.RSAPublicKey | ec.EllipticCurvePublicKey"
_PrivateKey: TypeAlias = "rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey"

_NONCE_SIZE = 12
_DATA_KEY_BITS = 256
_DATA_KEY_SIZES = (16, 24, 32)

_OAEP = padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)
_MAC_KEY_SIZE = 16
_MAC_SIZE = SHA1.digest_size
# Errors of loading a key; their texts are dropped, because they might contain parts of the key.
_NO_KEY = (ValueError, TypeError, UnsupportedAlgorithm)
_NO_ENCODING = bytes(8)  # the MAC's length field for ECIES's optional parameters, here empty


class PublicKey(NamedTuple):
    """A reader's public key; its name and metadata are written into the entry's metadata."""

    name: str
    pem: bytes
    metadata: tuple[tuple[str, str], ...] = ()


class Sealer:
    """A new data key, encrypted with each of the readers' public keys.

    Args:
        keys: public keys; the owner of any of the private keys can read.

    Attributes:
        room: bytes that encryption adds to an entry.

    Raises:
        CryptoError: a key cannot encrypt.
    """

    def __init__(self, keys: Sequence[PublicKey]) -> None:
        data_key = AESGCM.generate_key(_DATA_KEY_BITS)
        self._cipher = AESGCM(data_key)
        metadata = pb.MessageMetadata()
        for key in keys:
            wrapped = metadata.encryption_keys.add(key=key.name.encode(), value=wrap(key, data_key))
            for name, value in key.metadata:
                wrapped.metadata.add(key=name.encode(), value=value.encode())
        self._keys = metadata.SerializePartialToString()
        fields, sealed = self.seal(b"")
        self.room = len(fields) + len(sealed)

    def seal(self, payload: Buffer) -> tuple[bytes, bytes]:
        """Encrypts a payload; returns fields to append to its metadata, and the encrypted payload."""
        nonce = os.urandom(_NONCE_SIZE)
        fields = pb.MessageMetadata(encryption_param=nonce).SerializePartialToString()
        return self._keys + fields, self._cipher.encrypt(nonce, payload, None)


class Opener:
    """Decrypts payloads. ``wrapped``: encrypted data key; ``pem``: private key that decrypts the data key.

    Raises:
        CryptoError: the data key was encrypted for another key, or ``pem`` is not a key.
    """

    def __init__(self, pem: bytes, wrapped: bytes) -> None:
        self._cipher = AESGCM(unwrap(pem, wrapped))

    def open(self, nonce: bytes, payload: Buffer) -> bytes:
        """Decrypts a payload; raises CryptoError if it was changed, or encrypted with another key."""
        try:
            return self._cipher.decrypt(nonce, payload, None)
        except (InvalidTag, ValueError):  # ValueError for a nonce of another size
            raise CryptoError(
                "an entry was changed after its encryption, or was encrypted with another key or method"
            ) from None


def wrap(key: PublicKey, data_key: bytes) -> bytes:
    """Encrypts a data key for the owner of a public key.

    Raises:
        CryptoError: the public key is no RSA or EC key in PEM, or the RSA key is too small.
    """
    public = _load_public(key)
    if isinstance(public, rsa.RSAPublicKey):
        try:
            return public.encrypt(data_key, _OAEP)
        except ValueError:
            raise CryptoError(f"the RSA key {key.name!r} is too small") from None
    ephemeral = ec.generate_private_key(public.curve)
    point = _point(ephemeral.public_key())
    mac_key, stream = _ecies_keys(point, ephemeral.exchange(ec.ECDH(), public), len(data_key))
    hidden = _xor(data_key, stream)
    return point + hidden + _mac(mac_key, hidden).finalize()


def unwrap(pem: bytes, wrapped: bytes) -> bytes:
    """Decrypts a data key; the opposite of :func:`wrap`.

    Raises:
        CryptoError: the data key was encrypted for another key, or ``pem`` is no RSA or EC key in PEM.
    """
    private = _load_private(pem)
    try:
        if isinstance(private, rsa.RSAPrivateKey):
            data_key = private.decrypt(wrapped, _OAEP)
        else:
            data_key = _ecies_open(private, wrapped)
    except (ValueError, InvalidSignature):
        raise CryptoError("the data key was encrypted for another key") from None
    if len(data_key) not in _DATA_KEY_SIZES:
        raise CryptoError(f"a data key of {len(data_key)} bytes is not an AES key")
    return data_key


def _ecies_open(private: ec.EllipticCurvePrivateKey, wrapped: bytes) -> bytes:
    size = len(_point(private.public_key()))
    point, hidden, mac = wrapped[:size], wrapped[size:-_MAC_SIZE], wrapped[size:][-_MAC_SIZE:]
    ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private.curve, point)
    if not hidden:
        raise ValueError("nothing is encrypted")
    mac_key, stream = _ecies_keys(point, private.exchange(ec.ECDH(), ephemeral), len(hidden))
    _mac(mac_key, hidden).verify(mac)
    return _xor(hidden, stream)


def _ecies_keys(point: bytes, secret: bytes, size: int) -> tuple[bytes, bytes]:
    """Returns the MAC's key and a key stream of ``size`` bytes. KDF2 is the KDF of X9.63."""
    keys = X963KDF(SHA1(), _MAC_KEY_SIZE + size, None).derive(point + secret)
    return keys[:_MAC_KEY_SIZE], keys[_MAC_KEY_SIZE:]


def _mac(key: bytes, hidden: bytes) -> HMAC:
    mac = HMAC(key, SHA1())
    mac.update(hidden + _NO_ENCODING)
    return mac


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


def _load_public(key: PublicKey) -> _PublicKey:
    try:
        public = serialization.load_pem_public_key(key.pem)
    except _NO_KEY:
        public = None
    if not isinstance(public, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise CryptoError(f"the public key {key.name!r} is not an RSA or EC key in PEM format")
    return public


def _load_private(pem: bytes) -> _PrivateKey:
    try:
        # Skips the key's validation, which takes a second, because an invalid key only fails to decrypt.
        private = serialization.load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    except _NO_KEY:
        private = None
    if not isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise CryptoError("the private key is not an RSA or EC key in PEM format without a passphrase")
    return private
