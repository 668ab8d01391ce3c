"""Stores in PKCS#12: keys with their chains, certificates, and what is none of them."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client.net.key_stores import certificates_of, key_of

_NOW = datetime.datetime.now(datetime.timezone.utc)
_DAY = datetime.timedelta(days=1)


def issue(name, key, issuer, issuers_key):
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1])
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return (
        builder.not_valid_before(_NOW - _DAY).not_valid_after(_NOW + _DAY).sign(issuers_key, hashes.SHA256())
    )


@pytest.fixture(scope="module")
def keys():
    return [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]


@pytest.fixture(scope="module")
def chain(keys):
    """Of a client, of who issued its certificate, and of the root."""
    client, middle, root = keys
    return [
        issue("client", client, "middle", middle),
        issue("middle", middle, "root", root),
        issue("root", root, "root", root),
    ]


def stored(password, key=None, certificate=None, others=()):
    encryption = (
        serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    )
    return pkcs12.serialize_key_and_certificates(b"name", key, certificate, list(others), encryption)


@pytest.mark.parametrize("password", ["changeit", "pässword", None, ""])
def test_a_key_and_its_chain_in_their_order(keys, chain, password):
    other = issue("other", keys[1], "nobody", keys[1])
    data = stored(password, keys[0], chain[0], [other, chain[2], chain[1]])
    found = key_of(data, password, "other passphrase")
    assert x509.load_pem_x509_certificates(found) == chain
    key = serialization.load_pem_private_key(found[found.index(b"-----BEGIN ENC") :], b"other passphrase")
    assert key.private_numbers() == keys[0].private_numbers()
    # What a wrong passphrase makes of the key is chance, and so is the text of the error.
    with pytest.raises(ValueError):  # noqa: PT011
        serialization.load_pem_private_key(found[found.index(b"-----BEGIN ENC") :], b"changeit")


def test_an_rsa_key():
    key = rsa.generate_private_key(65537, 2048)
    certificate = issue("a", key, "a", key)
    found = key_of(stored("pw", key, certificate), "pw", "x")
    assert x509.load_pem_x509_certificates(found) == [certificate]


def test_certificates_of_a_circle(keys):
    """Whoever makes a store of certificates that have issued each other gets no endless chain."""
    a, b = issue("a", keys[0], "b", keys[1]), issue("b", keys[1], "a", keys[0])
    assert x509.load_pem_x509_certificates(key_of(stored("pw", keys[0], a, [b]), "pw", "x")) == [a, b]


@pytest.mark.parametrize("password", ["changeit", None])
def test_all_certificates_are_trusted(keys, chain, password):
    der = [each.public_bytes(serialization.Encoding.DER) for each in chain]
    for data in (stored(password, others=chain), stored(password, keys[0], chain[0], chain[1:])):
        found = certificates_of(data, password)
        assert len(found) == sum(map(len, der))
        assert all(each in found for each in der)


@pytest.mark.parametrize("password", ["wrong", None, ""])
def test_a_wrong_password(keys, chain, password):
    data = stored("changeit", keys[0], chain[0])
    for read in (lambda: key_of(data, password, "x"), lambda: certificates_of(data, password)):
        with pytest.raises(
            ValueError, match=r"^it is not a PKCS#12 store, or its password is wrong$"
        ) as caught:
            read()
        assert caught.value.__cause__ is None


def test_stores_that_lack_what_is_wanted(keys, chain):
    with pytest.raises(ValueError, match="it contains no private key"):
        key_of(stored("pw", others=chain), "pw", "x")
    with pytest.raises(ValueError, match="it contains no private key"):
        key_of(stored("pw", keys[0]), "pw", "x")
    with pytest.raises(ValueError, match="it contains no certificate"):
        certificates_of(stored("pw", keys[0]), "pw")


@given(st.binary(max_size=100))
def test_what_is_no_store(data):
    for read in (lambda: key_of(data, "pw", "x"), lambda: certificates_of(data, "pw")):
        with pytest.raises(ValueError, match="it is not a PKCS#12 store"):
            read()
