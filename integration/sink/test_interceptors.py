"""Interceptors, on the real broker."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from integration.chaos.messages import columns_of, numbered
from integration.helpers.clients import entries_of, id_of
from integration.helpers.peer import Record
from integration.helpers.task_runs import run, task_of
from pulsar_spark.client import ProducerInterceptor, ProducerOptions, TopicWriter, UserCode
from pulsar_spark.errors import SendError
from pulsar_spark.ids import TopicName


class Keyed(ProducerInterceptor):
    """Gives each row the key "k", and notes what it is told."""

    def __init__(self):
        self.told: list[tuple[Any, ...]] = []

    def before_send(self, columns):
        return replace(columns, key=pa.array([b"k"] * len(columns), pa.binary()))

    def on_send_acknowledgement(self, *told):
        self.told.append(told)


@pytest.mark.parametrize("batching", [True, False])
def test_what_is_sent_is_told(client, peer, topic, batching):
    one = Keyed()
    options = ProducerOptions(batching=batching, batching_max_messages=4, batching_max_publish_delay=60.0)
    with TopicWriter(client, TopicName.parse(topic), options, code=UserCode(interceptors=[one])) as writer:
        writer.send(columns_of(numbered(10)))
        writer.flush()
    assert peer.read_all(topic) == [replace(record, key="k") for record in numbered(10)]
    sizes = [4, 4, 2] if batching else [1] * 10
    assert one.told == [
        (topic, sum(sizes[:number]), sizes[number], id_of(entry), None)
        for number, entry in enumerate(entries_of(client, topic))
    ]


def test_what_fails_is_told(client, admin, topic):
    one = Keyed()
    with TopicWriter(
        client, TopicName.parse(topic), ProducerOptions(), code=UserCode(interceptors=[one])
    ) as writer:
        writer.send(columns_of(numbered(1)))
        writer.flush()
        one.told.clear()
        admin.terminate(topic)
        writer.send(columns_of(numbered(3)))
        with pytest.raises(SendError) as raised:
            writer.flush()
    assert one.told == [(topic, 1, 3, None, raised.value)]


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


def test_what_an_earlier_run_has_stored_is_not_told_again(client, once_topic):
    first, again = Keyed(), Keyed()
    for one in (first, again):
        code = UserCode(interceptors=[one])
        run(client, once_topic, numbered(10), task_of(client, required=True), code=code)
    assert sum(messages for _, _, messages, place, _ in first.told if place is not None) == 10
    assert again.told == []
