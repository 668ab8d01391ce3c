"""Payloads and data keys: round trips, what Bouncy Castle made, and that nothing changed is taken."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CryptoError
from pulsar_spark.protocol.encryption import Opener, PublicKey, Sealer, unwrap, wrap
from pulsar_spark.wire import pulsar_pb2 as pb

PEM = serialization.Encoding.PEM
CURVES = (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1())


def private_pem(key, passphrase=None):
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        how = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, how)


def public_key(key, name="k"):
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return PublicKey(name, key.public_key().public_bytes(PEM, kind))


# Keys for whoever needs one; to generate an RSA key takes a while.
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ALL = {"rsa": RSA, **{curve.name: ec.generate_private_key(curve) for curve in CURVES}}
each_key = pytest.mark.parametrize("key", ALL.values(), ids=ALL.keys())
kinds = st.sampled_from([RSA, EC])
data_keys = st.sampled_from([16, 24, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size))


def sealed(keys, payload):
    """The metadata and the payload of an entry."""
    fields, ciphertext = Sealer(keys).seal(payload)
    metadata = pb.MessageMetadata()
    metadata.MergeFromString(fields)
    return metadata, ciphertext


def flipped(data, place):
    """One bit is another one."""
    changed = bytearray(data)
    changed[place // 8 % len(data)] ^= 1 << place % 8
    return bytes(changed)


@each_key
def test_what_is_sealed_is_opened(key):
    metadata, ciphertext = sealed([public_key(key)], b"value")
    (wrapped,) = metadata.encryption_keys
    assert wrapped.key == b"k"
    assert len(metadata.encryption_param) == 12
    assert not metadata.HasField("encryption_algo")  # as the Java client has it
    assert b"value" not in ciphertext
    assert Opener(private_pem(key), wrapped.value).open(metadata.encryption_param, ciphertext) == b"value"


@given(st.binary(), st.lists(st.tuples(st.text(), st.text()), max_size=2))
def test_several_keys_open_it(payload, about):
    keys = {"rsa": RSA, "ec": EC}
    metadata, ciphertext = sealed(
        [public_key(key, name)._replace(metadata=tuple(about)) for name, key in keys.items()], payload
    )
    assert [each.key for each in metadata.encryption_keys] == [b"rsa", b"ec"]
    for each in metadata.encryption_keys:
        opener = Opener(private_pem(keys[each.key.decode()]), each.value)
        assert opener.open(metadata.encryption_param, memoryview(ciphertext)) == payload
        assert [(pair.key.decode(), pair.value.decode()) for pair in each.metadata] == about


def test_no_two_payloads_are_encrypted_alike():
    sealer = Sealer([public_key(EC)])
    assert len({sealer.seal(b"value") for _ in range(100)}) == 100


def test_room_is_what_an_entry_grows_by():
    sealer = Sealer([public_key(RSA), public_key(EC)])
    fields, ciphertext = sealer.seal(b"value")
    assert sealer.room == len(fields) + len(ciphertext) - len(b"value")


@given(kinds, data_keys)
def test_a_data_key_is_unwrapped(key, data_key):
    assert unwrap(private_pem(key), wrap(public_key(key), data_key)) == data_key


@given(kinds, st.integers(0, 10_000))
def test_a_changed_data_key_is_refused(key, place):
    changed = flipped(wrap(public_key(key), bytes(32)), place)
    with pytest.raises(CryptoError, match="encrypted for another key"):
        unwrap(private_pem(key), changed)


@given(kinds, st.binary(max_size=300))
def test_what_is_no_data_key_is_refused(key, data):
    with pytest.raises(CryptoError, match="encrypted for another key"):
        unwrap(private_pem(key), data)


@given(kinds, st.integers(0, 300))
def test_a_data_key_that_is_cut_is_refused(key, size):
    whole = wrap(public_key(key), bytes(32))
    with pytest.raises(CryptoError, match="encrypted for another key"):
        unwrap(private_pem(key), whole[: min(size, len(whole) - 1)])


@pytest.mark.parametrize(
    ("key", "other"),
    [(RSA, EC), (EC, RSA), (EC, ec.generate_private_key(ec.SECP256R1())), (EC, ALL["secp521r1"])],
)
def test_another_key_does_not_open_it(key, other):
    with pytest.raises(CryptoError, match="encrypted for another key"):
        unwrap(private_pem(other), wrap(public_key(key), bytes(32)))


def test_a_data_key_that_is_none_of_aes_is_refused():
    with pytest.raises(CryptoError, match="31 bytes"):
        unwrap(private_pem(EC), wrap(public_key(EC), bytes(31)))


@given(st.binary(), st.integers(0, 10_000), st.sampled_from(["payload", "nonce"]))
def test_changed_bytes_are_refused(payload, place, what):
    metadata, ciphertext = sealed([public_key(EC)], payload)
    nonce = metadata.encryption_param
    if what == "payload":
        ciphertext = flipped(ciphertext, place)
    else:
        nonce = flipped(nonce, place)
    opener = Opener(private_pem(EC), metadata.encryption_keys[0].value)
    with pytest.raises(CryptoError, match="was changed"):
        opener.open(nonce, ciphertext)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_anything_is_refused(nonce, ciphertext):
    opener = Opener(private_pem(EC), wrap(public_key(EC), bytes(32)))
    with pytest.raises(CryptoError):
        opener.open(nonce, ciphertext)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"no PEM",
        b"\xff\xfe",
        private_pem(EC, b"pass"),
        private_pem(ed25519.Ed25519PrivateKey.generate()),
        public_key(RSA).pem,
    ],
    ids=["empty", "text", "no UTF-8", "with a passphrase", "Ed25519", "public"],
)
def test_what_is_no_private_key_is_refused_without_being_told(pem):
    with pytest.raises(
        CryptoError, match="not an RSA or EC key in PEM format without a passphrase"
    ) as caught:
        Opener(pem, b"data key")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "pem",
    [b"", b"no PEM", private_pem(RSA), public_key(ed25519.Ed25519PrivateKey.generate()).pem],
    ids=["empty", "text", "private", "Ed25519"],
)
def test_what_is_no_public_key_is_refused(pem):
    with pytest.raises(CryptoError, match="the public key 'k' is not an RSA or EC key in PEM"):
        Sealer([PublicKey("k", pem)])


# Made by the Java client's MessageCryptoBc 4.2.4 for the P-256 key 7, of b"hello java".
WRAPPED = (
    "0403f94f58a7b2fc73e5d01b5c2d5b7b9d4ab03296b487ba1b8b5c8fbf9db9443c1fb810cff858bfdfe798f85f1af80ea698a7ed"
    "5269a07bd5e2ec8ba7f70b64675f0ec83313a8fc476222daa0e3b2a883b47d6b3db0aec9f73d6296f7ca49b12d92a1e536878a25"
    "3c04c10cc3faf81d514e22a913"
)
NONCE, CIPHERTEXT = "37c9e996b392ae919d099172", "508b2106a231c6d1fbecc60616a664a8002cfba70a06fef891bd"


def test_what_java_encrypted_for_an_ec_key():
    opener = Opener(private_pem(ec.derive_private_key(7, ec.SECP256R1())), bytes.fromhex(WRAPPED))
    assert opener.open(bytes.fromhex(NONCE), bytes.fromhex(CIPHERTEXT)) == b"hello java"
