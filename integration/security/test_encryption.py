"""End-to-end encryption through Spark: options, workers that find the keys, errors that show none."""

import pytest
from pyspark.errors import PySparkException

from integration.fixtures.spark import begun, finish
from integration.helpers.crypto_keys import make_keys, peers_key
from integration.helpers.peer import CompressionType, Record
from pulsar_spark.client import KeyFolder

OWN = "integration.helpers.users_code.Keys"
VALUES = [b"%d" % number for number in range(100)]


def values(rows):
    return sorted((bytes(row.value) for row in rows.collect()), key=int)


def test_encrypted_by_others_copied_and_encrypted_anew(pulsar_in_spark, peer, topic, checkpoint, tmp_path):
    keys = make_keys(tmp_path)
    theirs, copy, ours = (f"{topic}-{name}" for name in ("theirs", "copy", "ours"))
    key = peers_key(keys, "rsa")
    peer.produce(
        theirs,
        [Record(value) for value in VALUES],
        batch_size=10,
        compression=CompressionType.ZSTD,
        encryption_key="rsa",
        crypto_key_reader=key,
    )
    folder = {"pulsar.reader.cryptoKeyReader": f"file://{keys}"}
    own = {"pulsar.producer.cryptoKeyReader": OWN, "pulsar.producer.encryptionKeys": "own"}
    rows = pulsar_in_spark.stream(theirs, **folder).select("value")
    finish(begun(pulsar_in_spark.write_stream(rows, checkpoint, copy, **own).trigger(availableNow=True)))
    read_own = {"pulsar.reader.cryptoKeyReader": OWN}
    assert values(pulsar_in_spark.read(copy, **read_own)) == VALUES

    with pytest.raises(PySparkException, match=r"\[PULSAR_CRYPTO\].*the private key 'own' cannot") as caught:
        pulsar_in_spark.read(copy, **folder).collect()
    pem = KeyFolder(keys).get_private_key("rsa", {}).key.decode()
    assert pem.splitlines()[1] not in str(caught.value)
    discarding = pulsar_in_spark.read(copy, **folder, **{"pulsar.reader.cryptoFailureAction": "DISCARD"})
    assert discarding.collect() == []

    written = pulsar_in_spark.read(theirs, **folder).select("value")
    names = {"pulsar.producer.cryptoKeyReader": str(keys), "pulsar.producer.encryptionKeys": "ec,rsa"}
    pulsar_in_spark.write(written, ours, **names)
    found = peer.read_all(ours, crypto_key_reader=key)
    assert sorted((record.value or b"" for record in found), key=int) == VALUES
