"""No secret is found in anything that Spark and this package write, whatever fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from integration.broker.waiting import HANG
from integration.helpers.local_spark import ROOT
from integration.helpers.secrets_driver import Job, dump, environment
from integration.helpers.secured import ADMIN, CLERK, PASSWORD, USER, Issuer, TokenMaker

# Many queries in one run.
_RUN = 10 * HANG

STORE_PASSWORD = "store-pw-1618033"


def key_store(secured, file):
    """Write a key store of the administrator, and name it."""
    pem = secured.authority.issue(ADMIN)
    key = serialization.load_pem_private_key(Path(pem.key).read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(Path(pem.certificate).read_bytes())
    encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    store = pkcs12.serialize_key_and_certificates(b"admin", key, certificate, None, encryption)
    file.write_bytes(store)
    return str(file)


@pytest.mark.long
def test_no_secret_is_told(secured, tmp_path, topic):
    good, expired = secured.tokens.token(ADMIN), secured.tokens.token(ADMIN, -60)
    strange, clerk = TokenMaker().token(ADMIN), secured.tokens.token(CLERK)
    wrong_password, wrong_secret = f"{PASSWORD}-wrong", f"{Issuer.SECRET}-wrong"
    store = {
        "tlsKeyStorePath": key_store(secured, tmp_path / "key.p12"),
        "tlsKeyStorePassword": STORE_PASSWORD,
    }

    def job(name, part, fails, login, params, **more):
        place = {"service.url": secured.tls_url, "topic": f"{topic}-{name}"}
        secured.broker.admin.create_topic(place["topic"])
        options = {**place, **secured.options(login, params, **more)}
        return Job(name=name, parts=tuple(part.split()), fails=fails, options=options)

    with Issuer(secured.tokens) as issuer:
        wrong = tmp_path / "wrong.json"
        wrong.write_text(json.dumps({"client_id": Issuer.CLIENT_ID, "client_secret": wrong_secret}))
        password = json.dumps({"userId": USER, "password": wrong_password})
        jobs = [
            job("good", "write read stream", None, "token", f"token:{good}"),
            job("expired", "stream", "[PULSAR_AUTH]", "token", expired),
            job("strange", "write", "[PULSAR_AUTH]", "token", f"token:{strange}"),
            job("not-allowed", "read", "[PULSAR_AUTH]", "token", clerk),
            job("ca", "write", "[PULSAR_TLS]", "token", good, tlsTrustCertsFilePath=secured.stranger.file),
            job("password", "write", "[PULSAR_AUTH]", "basic", password),
            job("json", "read", "[PULSAR_OPTION]", "basic", f'{{"password": "{PASSWORD}"'),
            job("plugin", "write", "[PULSAR_OPTION]", "tokn", f"token:{good}"),
            job("oauth2", "write", None, "oauth2", issuer.params(issuer.key_file(tmp_path / "key.json"))),
            job("oauth2-wrong", "read", "[PULSAR_AUTH]", "oauth2", issuer.params(f"file://{wrong}")),
            job("store", "write read stream", None, "token", good, **store),
            job(
                *("store-wrong", "write read", "[PULSAR_TLS]", "token", good),
                **{**store, "tlsKeyStorePassword": f"{STORE_PASSWORD}-wrong"},
            ),
            job("timeout", "read", "[PULSAR_OPTION]", "token", good, operationTimeoutMs="soon"),
        ]
        output = run_driver(tmp_path, jobs)
    secrets = {
        "a good token": good,
        "an expired token": expired,
        "a strange token": strange,
        "a clerk's token": clerk,
        "the password": PASSWORD,
        "the client secret": Issuer.SECRET,
        "the store's password": STORE_PASSWORD,
        "a token's signature": good.rpartition(".")[2],
        **{f"OAuth2 token {number}": token for number, token in enumerate(issuer.issued)},
    }
    assert len(issuer.issued) > 0
    ours = ("key.json", "wrong.json", "key.p12")
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.name not in ours]
    found = [
        f"{name} in {file.relative_to(tmp_path)}"
        for file in files
        for name, secret in secrets.items()
        if secret.encode() in file.read_bytes()
    ]
    assert found == []
    # The look is worth something only where there is something to be seen.
    assert {"good.said", "good.progress", "sql.json", "output"} <= {file.name for file in files}
    assert any("events" in str(file) and file.stat().st_size for file in files)
    assert any("checkpoints" in str(file) for file in files)
    assert b"pulsar_spark" in output


def run_driver(folder, jobs):
    """Run the jobs in a driver of its own; returns what it wrote, which is kept in `output` as well."""
    environment(folder / "chatty")
    paths = [str(folder / "chatty"), str(ROOT)]
    (folder / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "integration.helpers.secrets_driver", str(folder / "out")],
        input=dump(jobs).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        timeout=_RUN,
        check=False,
    )
    (folder / "output").write_bytes(done.stdout)
    assert done.returncode == 0, done.stdout[-4000:].decode(errors="replace")
    return done.stdout
