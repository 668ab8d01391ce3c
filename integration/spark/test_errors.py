"""Mistakes are reported soon, not after the time-outs, with what to do."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException

from integration.broker.waiting import FAR_AWAY, promptly
from integration.fixtures.spark import InjectedError, PulsarInSpark, begun, finish
from integration.helpers.local_spark import ROOT
from integration.helpers.raw import RawConnection, RawProducer
from pulsar_spark import register
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark_broker.ports import free_port

# What is wrong from the start must not be waited for: no test takes a part of this.
PATIENT = {
    "pulsar.client.operationTimeoutMs": f"{FAR_AWAY:g}s",
    "pulsar.client.connectionTimeoutMs": f"{FAR_AWAY:g}s",
}


@pytest.fixture
def nowhere(spark):
    """A service URL at which nobody listens; Spark is warm."""
    spark.range(1).count()
    return PulsarInSpark(spark, f"pulsar://127.0.0.1:{free_port()}")


def error_of(action):
    # A start takes about 5 s, and the first one of a Spark 15 s.
    with promptly(200.0), pytest.raises(PySparkException) as caught:
        action()
    text = str(caught.value)
    if "[PULSAR_" in text:  # which has the fault and advice: users need no frames of this package
        ours = [line for line in text.splitlines() if f'File "{ROOT}/pulsar_spark/' in line]
        assert all("/short_errors.py" in line for line in ours), ours
    return text


def run_stream(here, checkpoint, topic, **options):
    rows = here.stream(topic, **PATIENT, **options)
    finish(begun(rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))))


def test_a_refused_connection_of_a_batch_read(nowhere, topic):
    text = error_of(lambda: nowhere.read(topic, **PATIENT).collect())
    assert "[PULSAR_CONNECT]" in text
    assert "Check service.url" in text


def test_a_refused_connection_of_a_stream(nowhere, topic, checkpoint):
    assert "[PULSAR_CONNECT]" in error_of(lambda: run_stream(nowhere, checkpoint, topic))


def test_a_refused_connection_of_a_batch_write(nowhere, topic):
    rows = nowhere.rows([("v",)], "value string")
    assert "[PULSAR_CONNECT]" in error_of(lambda: nowhere.write(rows, topic, **PATIENT))


def test_a_refused_connection_of_a_streaming_write(nowhere, topic, checkpoint):
    ticks = nowhere.spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    sink = nowhere.write_stream(ticks, checkpoint, topic, **PATIENT)
    assert "[PULSAR_CONNECT]" in error_of(lambda: finish(sink.start()))


def test_a_web_port_of_a_batch_read(spark, cluster, topic):
    web = PulsarInSpark(spark, cluster.admin_url.replace("http://", "pulsar://"))
    text = error_of(lambda: web.read(topic, **PATIENT).collect())
    assert "[PULSAR_PROTOCOL] the peer answers in HTTP" in text
    assert "usually 6650" in text


def test_a_missing_topic(pulsar_in_spark, topic, checkpoint):
    for action in (
        lambda: pulsar_in_spark.read(topic, **PATIENT).collect(),
        lambda: run_stream(pulsar_in_spark, checkpoint, topic),
    ):
        text = error_of(action)
        assert "[PULSAR_TOPIC_NOT_FOUND]" in text
        assert topic in text
        assert "create it first" in text


def test_a_missing_namespace_of_the_sink(pulsar_in_spark):
    rows = pulsar_in_spark.rows([("v",)], "value string")
    text = error_of(lambda: pulsar_in_spark.write(rows, "nobody/nowhere/t", **PATIENT))
    assert "[PULSAR_TOPIC_NOT_FOUND]" in text


def test_options_and_rows_that_are_wrong(pulsar_in_spark, topic, checkpoint):
    rows = pulsar_in_spark.rows([("a", "b")], "a string, b string")
    for action, advice in (
        (lambda: pulsar_in_spark.read(topic, startingOffset="latest"), "Did you mean startingOffsets?"),
        (lambda: pulsar_in_spark.stream(topic, pollTimeoutMs="soon"), "It must be a time such as"),
        (lambda: pulsar_in_spark.write(rows, topic), "to_json(struct(a, b)) as value"),
        (lambda: pulsar_in_spark.write(rows.select("a")), 'Set .option("topic", ...)'),
        (lambda: pulsar_in_spark.write(rows.select("a"), topic, compression="LZ4"), "Did you mean"),
    ):
        text = error_of(action)
        assert "[PULSAR_OPTION]" in text
        assert advice in text


def test_a_users_schema(pulsar_in_spark, cluster, topic, checkpoint):
    source = pulsar_in_spark.spark.readStream.format("pulsar").schema("value string")
    rows = source.option("service.url", cluster.service_url).option("topic", topic).load()
    sink = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    assert "Cast it after .load()" in error_of(lambda: finish(begun(sink)))


def test_a_property_that_is_not_utf8(pulsar_in_spark, topic):
    rows = pulsar_in_spark.spark.range(3).selectExpr(
        "'v' AS value", "map('n', if(id = 1, CAST(X'C328' AS STRING), 'ok')) AS __messageProperties"
    )
    text = error_of(lambda: pulsar_in_spark.write(rows.coalesce(1), topic))
    assert "[PULSAR_OPTION] row 1 of the batch: the value of the property b'n' is not UTF-8" in text
    assert topic in text


def test_records_that_kafka_on_pulsar_has_stored(pulsar_in_spark, cluster, topic):
    records = bytes(8) + (100).to_bytes(4, "big") + bytes(100)
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, topic)
        properties = [pb.KeyValue(key=b"entry.format", value=b"kafka")]
        place = producer.send(records, properties=properties, num_messages_in_batch=2)
    text = error_of(lambda: pulsar_in_spark.read(topic, failOnDataLoss="false").collect())
    assert "[PULSAR_UNSUPPORTED] an entry has Kafka-on-Pulsar's format kafka" in text
    assert f"topic {topic}; message {place}" in text


def test_a_failing_sink_is_not_our_error(pulsar_in_spark, topic, checkpoint):
    def fail(batch, number):
        raise InjectedError(number)

    pulsar_in_spark.write(pulsar_in_spark.rows([("v",)], "value string"), topic)
    stream = pulsar_in_spark.stream(topic).writeStream.foreachBatch(fail)
    query = begun(stream.option("checkpointLocation", str(checkpoint)))
    assert "InjectedError" in error_of(lambda: finish(query))


def test_a_thread_of_the_program_writes_after_it_has_registered(pulsar_in_spark, topic):
    """Spark looks for the format of a write in the active session, which each thread has for itself."""
    rows = pulsar_in_spark.rows([("v",)], "value string")

    def write():
        pulsar_in_spark.write(rows, topic)

    def register_and_write():
        register(pulsar_in_spark.spark)
        write()

    with ThreadPoolExecutor(1) as thread, pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        thread.submit(write).result()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(register_and_write).result()
    assert pulsar_in_spark.read(topic).count() == 1
