import pytest

from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.option import Mode, Parser, Table, Values
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE

TEXT = Parser("text", str)
ALL = (*CONNECTION, *SOURCE, *SINK)


def test_every_default_can_be_given():
    for option in ALL:
        if option.default is not None:
            option.parser(option.default)


def test_names_are_unique():
    for side in (SOURCE, SINK):
        names = [option.name.lower() for option in (*CONNECTION, *side)]
        assert len(names) == len(set(names))


def test_values_are_found_by_their_options():
    table = Table()
    number = table.add("Number", Parser("number", int), "7", "A number.")
    text = table.add_optional("text", TEXT, "A text.", only=Mode.BATCH, secret=True)
    assert list(table) == [number, text]
    values = Values({"Number": 8, "text": None}, (number,))
    assert (values[number], values[text]) == (8, None)
    assert number in values.given
    assert text not in values.given
    assert (text.only, text.secret, number.only, number.secret) == (Mode.BATCH, True, None, False)


def test_a_table_has_the_lines_of_its_parts():
    table, part = Table(), Table()
    first = table.add_optional("first", TEXT, "Its own.")
    second = part.add_optional("second", TEXT, "The part's.")
    table.extend(part)
    assert list(table) == [first, second]
    assert list(part) == [second]


def test_an_option_of_another_table_has_no_value():
    other = Table().add("other", TEXT, "x", "Another.")
    with pytest.raises(KeyError):
        Values({}, ())[other]


def test_options_of_the_same_text_are_not_the_same():
    assert Table().add_optional("a", TEXT, "A.") != Table().add_optional("a", TEXT, "A.")
