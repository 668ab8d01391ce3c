import enum
from pathlib import Path

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.rows.schema import METADATA_COLUMNS
from tests.spark.options.parsing import sink, source


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1500", 1.5),
        ("100ms", 0.1),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        (" 7 s ", 7.0),
        ("30 seconds", 30.0),
        ("1 Day", 86400.0),
        ("100", 0.1),
        ("99ms", 0.099),
    ],
)
def test_times_take_units_and_plain_milliseconds(text, seconds):
    assert source(pollTimeoutMs=text).poll_timeout == pytest.approx(seconds)


def test_the_plain_unit_of_a_time_is_the_one_in_its_name():
    assert source(pulsar_client_keepAliveIntervalSeconds="5").client.keep_alive_interval == 5.0
    delay = sink(pulsar_producer_batchingMaxPublishDelayMicros="5000").producer.batching_max_publish_delay
    assert delay == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("text", "size"), [("100", 100), ("64k", 65536), ("1M", 1 << 20), ("1.5mb", 3 << 19)]
)
def test_sizes_take_units(text, size):
    assert sink(pulsar_producer_batchingMaxBytes=text).producer.batching_max_bytes == size


@pytest.mark.parametrize("text", ["keys", "my.2", ""])
def test_what_is_neither_a_folder_nor_a_name(text):
    with pytest.raises(OptionError, match=r"pulsar\.reader\.cryptoKeyReader .*PATH/NAME or file:PATH"):
        source(pulsar_reader_cryptoKeyReader=text)


def test_a_key_reader_is_a_folder_or_a_name():
    for text in ("./keys", "keys/", "file:keys"):
        assert source(pulsar_reader_cryptoKeyReader=text).decryption.key_reader == Path("keys")
    assert source(pulsar_reader_cryptoKeyReader="my.Keys").decryption.key_reader == "my.Keys"


@pytest.mark.parametrize("text", ["", ",", "a,,b"])
def test_names_of_keys_are_not_empty(text):
    with pytest.raises(OptionError, match=r"pulsar\.producer\.encryptionKeys .*names separated by commas"):
        sink(pulsar_producer_encryptionKeys=text, pulsar_producer_cryptoKeyReader="/keys")


def test_metadata_columns_may_be_none_at_all():
    assert source(metadataColumns=" ").columns.metadata == ()


def test_metadata_columns_may_be_all():
    assert source(metadataColumns="*").columns.metadata == tuple(METADATA_COLUMNS)


class Colour(enum.Enum):
    RED = "Red"
    DEEP_BLUE = "deepBlue"


def test_one_of_some_names_in_any_case():
    parse = parsers.member_of(Colour)
    assert [parse(text) for text in ("red", "RED", "DEEPBLUE")] == [Colour.RED, Colour.RED, Colour.DEEP_BLUE]
    assert parse.accepts == "`Red`, `deepBlue`"
    with pytest.raises(ValueError, match=r"^one of Red, deepBlue$"):
        parse("green")


@pytest.mark.parametrize(
    ("parse", "smallest", "below"),
    [
        (parsers.count(1), "1", "0"),
        (parsers.count(0), "0", "-1"),
        (parsers.size(1024), "1k", "1023"),
        (parsers.seconds("ms", 1.0), "1000", "999"),
    ],
)
def test_the_minimum_is_allowed_and_less_is_not(parse, smallest, below):
    parse(smallest)
    with pytest.raises(ValueError, match=r"^a (whole number from|size of|time of at least) "):
        parse(below)


def test_the_maximum_of_times_and_sizes_is_allowed():
    assert parsers.seconds("ms", 0.0)("24d") == 24 * 86400
    assert parsers.size(0)("1024g") == 1 << 40


def test_dotted_names():
    assert parsers.dotted_names("a.b, c.d.E") == ("a.b", "c.d.E")
    for text in ("a", "a.", "a.b-c", "a.b,", "a.1"):
        with pytest.raises(ValueError, match="a Python name"):
            parsers.dotted_names(text)


def test_topics_once_each_in_their_order():
    assert parsers.topics("b, a,persistent://public/default/b") == (
        TopicName.parse("b"),
        TopicName.parse("a"),
    )


def test_metadata_columns_keep_their_order_and_are_there_once():
    assert parsers.metadata_columns("__index, __KEY,__index") == ("__index", "__key")
    with pytest.raises(ValueError, match="the value is always the first column"):
        parsers.metadata_columns("__key,,")


def test_properties_are_a_json_object_of_texts():
    assert parsers.properties('{"b": "1", "a": ""}') == (("b", "1"), ("a", ""))
    for text in ("", "[]", '{"a": null}', '{"a": "\\ud800"}', "[" * 100_000):
        with pytest.raises(ValueError, match="a JSON object of texts"):
            parsers.properties(text)
