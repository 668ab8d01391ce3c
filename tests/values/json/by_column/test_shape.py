import json

import pytest

from pulsar_spark.values.json.by_column.shape import JsonLayout


def learned(*payloads):
    layout = JsonLayout()
    for payload in payloads:
        assert layout.learn(payload)
    return layout


def order(*rows):
    """The keys that were learned of objects with these keys, one letter each."""
    payloads = [json.dumps(dict.fromkeys(row, 1)).encode() for row in rows]
    return "".join(learned(*payloads).shape.keys)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["abc"], "abc"),
        (["ac", "ab"], "abc"),
        (["ac", "abc"], "abc"),
        (["b", "ab", "bc"], "abc"),
        (["ab", "ba"], "ba"),
        (["abc", "ca"], "cab"),
        (["a", "", "a"], "a"),
    ],
)
def test_keys_are_in_an_order_that_all_rows_have_or_in_that_of_the_last(rows, expected):
    assert order(*rows) == expected


def test_objects_and_arrays_within_are_learned():
    shape = learned(b'{"a":{"b":[{"c":1},{"d":2}]}}').shape
    item = shape.keys["a"].keys["b"].item
    assert set(item.keys) == {"c", "d"}
    assert shape.keys["a"].keys["b"].is_array
    assert item.is_object


def test_what_a_value_was_last_counts_and_null_does_not():
    assert learned(b'{"a":{}}', b'{"a":null}').shape.keys["a"].is_object
    assert not learned(b'{"a":{}}', b'{"a":5}').shape.keys["a"].is_object


def test_space_is_seen_between_tokens_only():
    assert not learned(b'{"a b":"c d\\" e"}').has_space
    assert learned(b'{"a": 1}').has_space
    assert learned(b'{"a":1}', b'{"a":1}\n').has_space


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 10_000, b"[" + b" " * 20_000 + b"]"])
def test_nothing_is_learned_of_what_is_broken_or_large(payload):
    layout = JsonLayout()
    assert not layout.learn(payload)
    assert not layout.is_known


def test_what_is_kept_of_keys_is_bounded():
    layout = JsonLayout()
    for start in range(0, 5_000, 500):
        layout.learn(json.dumps(dict.fromkeys(range(start, start + 500))).encode())
    assert len(layout.shape.keys) <= 1_000


@pytest.mark.parametrize("inner", ["[%s]", '{"a":%s}'])
def test_payloads_that_are_deeper_than_the_stack_are_learned_in_part_or_not_at_all(inner):
    """Newer Pythons parse what their own code could not go through."""
    text = "1"
    for _ in range(2_000):
        text = inner % text
    JsonLayout().learn(text.encode())
