"""Reads key stores and trust stores: PKCS#12 files made by Java's keytool or OpenSSL.

This module is loaded on first use, because ``cryptography`` is an extra and slow to load.
"""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)


def key_of(data: bytes, password: str | None, passphrase: str) -> bytes:
    """Returns the certificate of a store, its chain, and the key, encrypted by ``passphrase``; all in PEM.

    Raises ValueError if ``data`` is not PKCS#12, has another password, or has no key with a certificate.
    """
    store = _load(data, password)
    if store.key is None or store.cert is None:
        raise ValueError("it contains no private key with a certificate")
    chain = [store.cert.certificate]
    # Selects the issuers of this key's certificate, because the file may have further certificates.
    others = [each.certificate for each in store.additional_certs]
    while issuers := [each for each in others if each.subject == chain[-1].issuer and each not in chain]:
        chain.append(issuers[0])
    key = store.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase.encode())
    )
    return b"".join([*(each.public_bytes(Encoding.PEM) for each in chain), key])


def certificates_of(data: bytes, password: str | None) -> bytes:
    """Returns all certificates of a store in DER, one after the other.

    Raises ValueError if ``data`` is not PKCS#12, has another password, or has no certificate.
    """
    store = _load(data, password)
    found = [*([] if store.cert is None else [store.cert]), *store.additional_certs]
    if not found:
        raise ValueError("it contains no certificate")
    return b"".join(each.certificate.public_bytes(Encoding.DER) for each in found)


def _load(data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):  # their texts might show its content
        raise ValueError("it is not a PKCS#12 store, or its password is wrong") from None
