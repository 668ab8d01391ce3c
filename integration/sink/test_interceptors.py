"""Interceptors, on the real broker."""

import pytest
from pyspark.errors import PySparkException

from integration.helpers.peer import Record


def test_in_spark(pulsar_in_spark, peer, topic):
    rows = pulsar_in_spark.rows([("a",), ("b",)], "value string")
    names = "integration.helpers.users_code.Shout, integration.helpers.users_code.Shout"
    pulsar_in_spark.write(rows, topic, **{"pulsar.producer.interceptors": names})
    assert peer.read_all(topic) == [Record(b"A!!"), Record(b"B!!")]


def test_one_that_fails_in_spark_fails_the_write_without_a_value_in_the_error(pulsar_in_spark, peer, topic):
    rows = pulsar_in_spark.rows([("personal",)], "value string")
    with pytest.raises(PySparkException) as caught:
        pulsar_in_spark.write(
            rows, topic, **{"pulsar.producer.interceptors": "integration.helpers.users_code.Blames"}
        )
    assert "[PULSAR_OPTION] the interceptor integration.helpers.users_code.Blames raised ValueError" in str(
        caught.value
    )
    assert "personal" not in str(caught.value)
    assert peer.read_all(topic) == []
