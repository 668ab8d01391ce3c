"""Folders of keys for end-to-end encryption, as the options `cryptoKeyReader` take them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pulsar
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

_Key: TypeAlias = "rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey"


def make_keys(folder: Path) -> Path:
    """Put the keys `rsa`, `other`, also of RSA, and `ec` into a folder, which is returned."""
    keys: dict[str, _Key] = {
        "rsa": rsa.generate_private_key(65537, 2048),
        "other": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
    }
    for name, key in keys.items():
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.public.pem").write_bytes(public)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.private.pem").write_bytes(private)
    return folder


def peers_key(keys: Path, name: str) -> pulsar.CryptoKeyReader:
    """The C++ client's key reader: it has one key, whatever it is asked for, and that of RSA."""
    return pulsar.CryptoKeyReader(str(keys / f"{name}.public.pem"), str(keys / f"{name}.private.pem"))
