"""The error tree: texts, flags, the map from the broker's codes, and the way through a pickle."""

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark import errors
from pulsar_spark.errors import PulsarError, from_server
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each

# class, code, retriable, parent: what retry loops and users' documentation rely on.
TABLE = [
    ("OptionError", "PULSAR_OPTION", False, "PulsarError"),
    ("ProtocolError", "PULSAR_PROTOCOL", True, "PulsarError"),
    ("CorruptError", "PULSAR_CORRUPT", False, "PulsarError"),
    ("DataLossError", "PULSAR_DATA_LOSS", False, "PulsarError"),
    ("OtherClusterError", "PULSAR_OTHER_CLUSTER", False, "PulsarError"),
    ("UnsupportedError", "PULSAR_UNSUPPORTED", False, "PulsarError"),
    ("CryptoError", "PULSAR_CRYPTO", False, "PulsarError"),
    ("DuplicatesError", "PULSAR_DUPLICATES", False, "PulsarError"),
    ("SchemaChangedError", "PULSAR_SCHEMA_CHANGED", False, "PulsarError"),
    ("DeadlineError", "PULSAR_TIMEOUT", False, "PulsarError"),
    ("QueueFullError", "PULSAR_QUEUE_FULL", False, "PulsarError"),
    ("ClosedError", "PULSAR_CLOSED", False, "PulsarError"),
    ("LibraryError", "PULSAR_LIBRARY", False, "PulsarError"),
    ("BrokerError", "PULSAR_BROKER", False, "PulsarError"),
    ("ConnectError", "PULSAR_CONNECT", True, "BrokerError"),
    ("NotReadyError", "PULSAR_NOT_READY", True, "BrokerError"),
    ("BusyError", "PULSAR_BUSY", True, "BrokerError"),
    ("QuotaError", "PULSAR_QUOTA", True, "BusyError"),
    ("TlsError", "PULSAR_TLS", False, "BrokerError"),
    ("AuthError", "PULSAR_AUTH", False, "BrokerError"),
    ("TopicNotFoundError", "PULSAR_TOPIC_NOT_FOUND", False, "BrokerError"),
    ("TopicEndedError", "PULSAR_TOPIC_ENDED", False, "BrokerError"),
    ("TopicMigratedError", "PULSAR_TOPIC_MIGRATED", False, "TopicEndedError"),
    ("NotAllowedError", "PULSAR_NOT_ALLOWED", False, "BrokerError"),
    ("SubscriptionLimitError", "PULSAR_SUBSCRIPTION_LIMIT", False, "NotAllowedError"),
    ("SchemaError", "PULSAR_SCHEMA", False, "BrokerError"),
    ("SendError", "PULSAR_SEND", False, "BrokerError"),
    ("TerminatedError", "PULSAR_TERMINATED", False, "SendError"),
    ("TransactionError", "PULSAR_TRANSACTION", False, "BrokerError"),
]
CLASSES = [getattr(errors, row[0]) for row in TABLE]

each_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
texts = st.text(max_size=20)
maybe = st.none() | texts


def every_subclass(kind):
    for child in kind.__subclasses__():
        yield child
        yield from every_subclass(child)


def test_the_tree_is_complete():
    assert {kind for kind in every_subclass(PulsarError) if kind.__module__ == errors.__name__} == set(
        CLASSES
    )
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)


@for_each(("name", "code", "retriable", "parent"), TABLE)
def test_flags(name, code, retriable, parent):
    kind = getattr(errors, name)
    assert (kind.code, kind.retriable) == (code, retriable)
    assert kind.__bases__[0] is getattr(errors, parent)
    assert f" {name} " in errors.__doc__
    line = next(line for line in errors.__doc__.splitlines() if f" {name} " in line)
    assert code in line.split()
    assert ("yes" in line.split()) == retriable


@pytest.mark.parametrize(
    "text", ["a\nb", "\x1b[2Ka", "\x85", "\u2028", "\u202ea", "\ud800", "a\r\n\tb", "\x00"]
)
def test_texts_of_others_cannot_write_lines_or_move_a_terminal(text):
    said = ascii(text)[1:-1]
    for error in (
        PulsarError(text, topic=text, message_id=text),
        from_server(1, f"why: {text}", topic=text),
        PulsarError(text).located(text, text),
    ):
        assert str(error).isprintable()
        assert said in str(error) or said.startswith("a")
        str(error).encode()
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.what, again.topic) == (str(error), error.what, error.topic)
    assert PulsarError(text).what == said


def test_other_writings_are_shown_as_they_are():
    text = "Grüße, 你好, שלום, 👍🏽, tab-less \\n"
    assert str(PulsarError(text, topic=text)) == f"[PULSAR_ERROR] {text}; topic {text}"


def test_the_facts_are_without_the_advice():
    error = errors.CorruptError("bad", topic="t", message_id="1:2")
    assert error.facts == "[PULSAR_CORRUPT] bad; topic t; message 1:2"
    assert str(error) == f"{error.facts}. {error.advice}"


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ({}, "[PULSAR_SEND] it failed"),
        ({"topic": "persistent://a/b/c"}, "[PULSAR_SEND] it failed; topic persistent://a/b/c"),
        ({"message_id": "3:4:5"}, "[PULSAR_SEND] it failed; message 3:4:5"),
        ({"advice": "Stop"}, "[PULSAR_SEND] it failed. Stop"),
        (
            {"topic": "t", "message_id": "3:4", "advice": "Look here"},
            "[PULSAR_SEND] it failed; topic t; message 3:4. Look here",
        ),
    ],
)
def test_text(places, text):
    usual = "" if "advice" in places else f". {errors.SendError.usual_advice}"
    assert str(errors.SendError("it failed", **places)) == text + usual


def fields(error):
    return type(error), error.what, error.topic, error.message_id, error.advice, str(error)


@given(kind=st.sampled_from(CLASSES), what=texts, topic=maybe, message_id=maybe, advice=maybe)
def test_pickled_and_copied(kind, what, topic, message_id, advice):
    error = kind(what, topic=topic, message_id=message_id, advice=advice)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert fields(pickle.loads(pickle.dumps(error, protocol))) == fields(error)
    assert fields(copy.copy(error)) == fields(error)
    assert copy.copy(error) is not error


@each_class
def test_located_fills_in_what_is_missing(kind):
    error = kind("it failed", advice="Stop")
    assert fields(error.located("t", "1:2")) == fields(
        kind("it failed", topic="t", message_id="1:2", advice="Stop")
    )
    assert error.topic is None


@each_class
def test_located_keeps_the_first_place(kind):
    error = kind("it failed", topic="first", message_id="1:2")
    assert fields(error.located("second", "3:4")) == fields(error)


BY_CODE = {
    "UnknownError": errors.BrokerError,
    "MetadataError": errors.NotReadyError,
    "PersistenceError": errors.NotReadyError,
    "AuthenticationError": errors.AuthError,
    "AuthorizationError": errors.AuthError,
    "ConsumerBusy": errors.BusyError,
    "ServiceNotReady": errors.NotReadyError,
    "ProducerBlockedQuotaExceededError": errors.QuotaError,
    "ProducerBlockedQuotaExceededException": errors.SendError,
    "ChecksumError": errors.SendError,
    "TopicNotFound": errors.TopicNotFoundError,
    "TooManyRequests": errors.NotReadyError,
    "TopicTerminatedError": errors.TerminatedError,
    "ProducerBusy": errors.BusyError,
    "InvalidTopicName": errors.TopicNotFoundError,
    "IncompatibleSchema": errors.SchemaError,
    "NotAllowedError": errors.NotAllowedError,
    "ProducerFenced": errors.SendError,
    "TransactionCoordinatorNotFound": errors.NotReadyError,
    "InvalidTxnStatus": errors.NotReadyError,
    "TransactionConflict": errors.TransactionError,
    "TransactionNotFound": errors.TransactionError,
}


@for_each(("name", "number"), pb.ServerError.items())
def test_the_broker_s_codes(name, number):
    error = from_server(number, "why\nat java.lang.Thread", topic="t")
    assert type(error) is BY_CODE.get(name, errors.BrokerError)
    assert error.topic == "t"
    assert "why" in str(error)
    assert f"(ServerError {number})" in str(error)
    assert "java" not in str(error) or name == "IncompatibleSchema"


@for_each(("name", "number"), pb.ServerError.items())
@for_each("text", ["", " ", "\n"])
def test_a_refusal_without_a_reason_has_the_code_s_name_and_what_to_do(name, number, text):
    error = from_server(number, text, topic="t")
    assert error.what == f"the broker refused the request: {name} (ServerError {number})"
    kind = errors.NotReadyError if name == "UnknownError" else BY_CODE.get(name, errors.BrokerError)
    assert type(error) is kind
    assert error.advice


def test_a_code_that_is_not_known_is_a_plain_error():
    assert "refused the request: an unknown error (ServerError 99)" in str(from_server(99, ""))


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (pb.PersistenceError, "Check the bookies"),
        (pb.SubscriptionNotFound, "Start the query again"),
        (pb.TopicNotFound, "create it first"),
        (pb.TopicTerminatedError, "Write to another topic"),
        (pb.ProducerFenced, "exclusive accessMode"),
    ],
)
def test_what_to_do(number, advice):
    assert advice in str(from_server(number, "why"))


@pytest.mark.parametrize("text", ["Failed to recover Transaction Buffer.", ""])
def test_a_topic_that_is_closed_to_be_loaded_anew_or_deleted_is_tried_again(text):
    error = from_server(pb.UnknownError, text, topic="t")
    assert type(error) is errors.NotReadyError
    assert error.retriable


def test_an_error_that_only_its_reason_tells_is_not_tried_again():
    assert type(from_server(pb.UnknownError, "any other", topic="t")) is errors.BrokerError


def test_a_subscription_that_is_not_durable_is_waited_for():
    text = "NonDurable subscription with the same name already exists."
    error = from_server(pb.NotAllowedError, text, topic="t")
    assert type(error) is errors.NotReadyError
    assert error.retriable
    durable = from_server(pb.NotAllowedError, text.removeprefix("Non"), topic="t")
    assert type(durable) is errors.NotAllowedError
    assert not durable.retriable


def test_a_limit_of_subscriptions_has_a_class_of_its_own():
    text = "Exceed the maximum number of subscriptions of the topic: t"
    error = from_server(pb.NotAllowedError, text, topic="t")
    assert type(error) is errors.SubscriptionLimitError
    assert text in str(error)
    assert type(from_server(pb.MetadataError, text, topic="t")) is errors.NotReadyError


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Exceed maximum message size", "maxMessageSize .*batchingMaxBytes"),
        ("Exceeds max allowed delivery delay of 60000 milliseconds", "maxDeliveryDelayInMillis.*__deliverAt"),
    ],
)
def test_a_refused_message_is_no_matter_of_subscriptions(text, advice):
    error = from_server(pb.NotAllowedError, text, topic="t")
    assert type(error) is errors.NotAllowedError
    assert re.search(f"{text}.*{advice}", str(error))
    assert "subscription" not in str(error)


def test_a_last_entry_that_the_broker_cannot_parse_says_what_helps():
    """It is tried again: another message may come at any time."""
    text = "Failed to get batch size for entry java.lang.IllegalStateException: Some fields are missing"
    error = from_server(pb.MetadataError, text, topic="t")
    assert type(error) is errors.NotReadyError
    assert error.retriable
    assert "publish another message" in str(error)
    assert "publish another message" not in str(from_server(pb.MetadataError, "another reason", topic="t"))


@pytest.mark.parametrize("text", ["Encryption is required in t", "Messages must be encrypted"])
def test_that_encryption_is_required_is_not_tried_again(text):
    error = from_server(pb.MetadataError, text)
    assert type(error) is errors.NotAllowedError
    assert "encryptionKeys" in str(error)


# As brokers write it: Java's names of classes, both schemas, and all of it once more.
_REASON = """Error during schema compatibility check with strategy FULL: {0}Unable to read schema:\x20
{{
  "type" : "record",
  "name" : "a.b.R"
}}
using schema:
"int\""""
_CLASS = "org.apache.pulsar.broker.service.schema.exceptions.IncompatibleSchemaException: "


def test_of_a_refused_schema_the_whole_reason_is_told_once():
    reason = _CLASS + _REASON.format("org.apache.avro.SchemaValidationException: ")
    error = from_server(pb.IncompatibleSchema, f"{reason} caused by {reason}", topic="t")
    assert error.what == (
        "the broker refused the request: Error during schema compatibility check with strategy FULL: "
        "Unable to read "
        'schema: { "type" : "record", "name" : "a.b.R" } using schema: "int" (ServerError 18)'
    )
    assert "pulsar_spark admin schemas" in str(error)


@given(st.integers(-(2**31), 2**31 - 1), st.text())
def test_any_code_and_any_text_make_an_error_of_one_short_line(number, text):
    error = from_server(number, text)
    assert isinstance(error, errors.BrokerError)
    assert len(error.what.splitlines()) == 1
    assert len(error.what) < (2100 if number == pb.IncompatibleSchema else 400)
