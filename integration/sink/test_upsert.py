"""Upserts: what compaction makes of the keys and tombstones that the sink writes."""

import pytest
from pyspark.errors import PySparkException

from integration.broker.waiting import wait_until

SCHEMA = "__key string, value string"


def test_the_last_value_of_each_key_is_left(pulsar_in_spark, peer, admin, topic):
    first = [(f"k{number}", "old") for number in range(6)]
    second = [("k1", "new"), ("k2", None), ("k3", None), ("k3", "again"), ("k4", "new"), ("k4", None)]
    for rows in (first, second):
        pulsar_in_spark.write(pulsar_in_spark.rows(rows, SCHEMA), topic, upsert="true")
    admin.compact(topic)
    wait_until(lambda: admin.compaction_status(topic) == "SUCCESS")
    expected = {"k0": "old", "k1": "new", "k3": "again", "k5": "old"}
    kept = pulsar_in_spark.read(topic, readCompacted="true").collect()
    assert sorted((bytes(row["__key"]).decode(), bytes(row.value).decode()) for row in kept) == sorted(
        expected.items()
    )
    assert {
        message.partition_key(): message.data().decode()
        for message in peer.messages(topic, is_read_compacted=True)
        if message.partition_key()  # It shows what compaction took out of a batch as empty messages.
    } == expected


def test_a_row_without_a_key_is_an_error(pulsar_in_spark, topic):
    rows = pulsar_in_spark.rows([("k", "v"), (None, "v")], SCHEMA)
    with pytest.raises(PySparkException, match=r"\[PULSAR_OPTION\] option upsert is true, but a row has no"):
        pulsar_in_spark.write(rows, topic, upsert="true")
