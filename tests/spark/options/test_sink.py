from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_spark.client import KeyValueEncoding, PartKind, ProducerCryptoFailureAction
from pulsar_spark.errors import OptionError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.connection import EncryptionOptions
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.rows.schema import ValueFormat
from pulsar_spark.spark.rows.write_values import SinkValues
from tests.spark.options.parsing import URL, sink, source


def test_transactions_have_a_time_out():
    assert parse_sink(URL).transaction_timeout is None
    assert parse_sink({**URL, "delivery": "Transactional"}).transaction_timeout == 600.0
    options = {"delivery": "transactional", "transactionTimeout": "90s"}
    assert parse_sink({**URL, **options}).transaction_timeout == 90.0
    with pytest.raises(OptionError, match="no effect without delivery=transactional"):
        parse_sink({**URL, "transactionTimeout": "90s"})
    with pytest.raises(OptionError, match="delivery is 'exactly'"):
        parse_sink({**URL, "delivery": "exactly"})


@pytest.mark.parametrize("place", ["env:LOG_KEY", "file:///run/secrets/log", "file:log", "./log"])
def test_the_key_of_the_log_is_named_by_its_place(place):
    assert sink().transaction_log_key is None
    assert sink(delivery="transactional", transactionLogKey=place).transaction_log_key == place
    with pytest.raises(OptionError, match="transactionLogKey has no effect without delivery=transactional"):
        sink(transactionLogKey=place)


@pytest.mark.parametrize("given", ["my secret", "env:", "env:a b", "token:secret"])
def test_a_key_in_the_place_of_its_place_is_not_shown(given):
    with pytest.raises(OptionError, match=r"option transactionLogKey is wrong\. It must be a file") as raised:
        sink(delivery="transactional", transactionLogKey=given)
    assert "secret" not in str(raised.value)


def test_who_wants_to_fail_rather_than_to_write_twice():
    assert not sink().fail_on_duplicates
    assert sink(delivery="effectively-once", failOnDuplicates="true").fail_on_duplicates
    for delivery in ({}, {"delivery": "transactional"}, {"delivery": "at-least-once"}):
        with pytest.raises(
            OptionError, match="failOnDuplicates has no effect without delivery=effectively-once"
        ):
            sink(failOnDuplicates="true", **delivery)


def test_all_that_a_sink_takes_besides():
    options = sink(
        topic="t",
        upsert="true",
        keyBytes="true",
        onBatchWritten="a.b",
        pulsar_producer_interceptors="c.D, e.F",
    )
    assert options.topic == TopicName.parse("t")
    assert options.upsert
    assert options.producer.key_bytes
    assert options.on_batch_written == "a.b"
    assert options.interceptors == ("c.D", "e.F")
    usual = sink()
    assert (usual.topic, usual.upsert, usual.on_batch_written, usual.interceptors) == (None, False, None, ())
    assert (usual.delivery, usual.encryption) == (None, None)


def test_keys_and_their_reader():
    given = {
        "pulsar_producer_encryptionKeys": "a, b,a",
        "pulsar_producer_cryptoKeyReader": "file:///my%20keys",
    }
    action = ProducerCryptoFailureAction
    assert sink(**given).encryption == EncryptionOptions(Path("/my keys"), ("a", "b"), action.FAIL)
    given["pulsar_producer_cryptoFailureAction"] = "send"
    assert sink(**given).encryption == EncryptionOptions(Path("/my keys"), ("a", "b"), action.SEND)


def test_values_are_bytes_unless_a_schema_makes_them():
    assert sink().values == SinkValues()
    assert SinkValues().format is ValueFormat.RAW
    given = sink(
        valueFormat="Columns", schemaRegistration="existing", keyColumns="b, a", keyValueEncoding="separated"
    )
    expected = SinkValues(ValueFormat.COLUMNS, key_columns=("b", "a"), may_register=False)
    assert given.values == replace(expected, key_value_encoding=KeyValueEncoding.SEPARATED)
    for kind in PartKind:
        made = sink(valueFormat="struct", schemaType=kind.value).values
        assert made == SinkValues(ValueFormat.STRUCT, kind)
    own = sink(valueFormat="columns", keyColumns="a", valueSchema='"int"', keySchema="/key.avsc")
    assert (own.value_schema, own.key_schema) == ('"int"', Path("/key.avsc"))
    inline = sink(valueFormat="columns", keyColumns="a", keyValueEncoding="INLINE")
    assert inline.values.key_value_encoding is KeyValueEncoding.INLINE


WITH_A_SCHEMA = {
    "schemaRegistration": "auto",
    "keyColumns": "a",
    "keyValueEncoding": "INLINE",
    "schemaType": "json",
    "valueSchema": '"int"',
    "keySchema": '"int"',
}


@pytest.mark.parametrize(("name", "text"), WITH_A_SCHEMA.items())
def test_what_has_no_use_without_a_schema(name, text):
    with pytest.raises(OptionError, match=f"option {name} has no effect with valueFormat=raw"):
        sink(**{name: text})


def test_protobuf_is_not_written():
    with pytest.raises(OptionError, match=r"does not write Protobuf: .*UDF, and set valueFormat=raw"):
        sink(valueFormat="columns", schemaType="protobuf")


@pytest.mark.parametrize("word", ["avro", "json", "primitive", "protobuf"])
def test_the_old_words_are_answered_with_the_new_ones(word):
    for parse in (sink, source):
        with pytest.raises(OptionError, match=rf"must be columns, and schemaType={word} for a topic without"):
            parse(valueFormat=word)


def test_an_encoding_of_keys_needs_them():
    with pytest.raises(OptionError, match="option keyValueEncoding has no effect without keyColumns"):
        sink(valueFormat="columns", keyValueEncoding="INLINE")


@pytest.mark.parametrize(
    ("text", "right"),
    [("exactly-once", "effectively-once or transactional"), ("Exactly-Once", "effectively-once")],
)
def test_a_delivery_of_other_connectors_is_answered_with_ours(text, right):
    with pytest.raises(OptionError, match=f"option delivery is '{text}'. It must be {right}"):
        sink(delivery=text)


def test_a_scalable_topic_is_written():
    assert str(sink(topic="topic://public/default/st").topic) == "topic://public/default/st"


@pytest.mark.parametrize(
    "given",
    [
        {"delivery": "transactional"},
        {"pulsar_producer_initialSequenceId": "3"},
        {"pulsar_producer_accessMode": "Exclusive"},
        {"pulsar_producer_messageRoutingMode": "CustomPartition", "pulsar_producer_messageRouter": "a.b"},
    ],
)
def test_options_that_segments_cannot_keep_are_refused(given):
    sink(topic="st", **given)
    with pytest.raises(UnsupportedError, match="cannot be used with a scalable topic: "):
        sink(topic="topic://public/default/st", **given)
