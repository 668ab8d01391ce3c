"""Both libraries give the same objects, and refuse the same payloads."""

import json
import math
import subprocess
import sys

import pyarrow as pa
import pytest

from pulsar_spark.values.json import parse
from pulsar_spark.values.json.parse import MAX_DEPTH, is_too_deep, parse_all, text_of
from tests.loops import a_few_of
from tests.values.json_payloads import HOSTILE, Maker, broken, plain, read_objects, tree_of

BY_JSON = {keeps_text: parse._by_json(keeps_text) for keeps_text in (False, True)}


def parsed(payload):
    """What a payload is alone, with and without texts of numbers; None: it is refused."""
    try:
        return [repr(parse.parse(payload, keeps_text=keeps_text)) for keeps_text in (False, True)]
    except ValueError:
        return None


def by_json(monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setattr(parse, "_USUAL", BY_JSON)
        patch.setattr(parse, "_MALFORMED", json.JSONDecodeError)
        return call()


def all_parsed(payloads):
    """The same, parsed together."""
    both = []
    for keeps_text in (False, True):
        values, bad = parse_all(pa.array(payloads, pa.binary()), keeps_text=keeps_text)
        both.append([None if row in bad else repr(value) for row, value in enumerate(values)])
    return [None if None in pair else list(pair) for pair in zip(*both, strict=True)]


def written(seed):
    maker = Maker(seed)
    tree = maker.record()
    payloads = [maker.payload(tree) for _ in range(300)]
    return tree, payloads + [broken(maker.random, each, payloads[0]) for each in payloads]


@pytest.mark.parametrize("seed", a_few_of(8))
def test_msgspec_and_json_give_the_same(seed, monkeypatch):
    _, payloads = written(seed)
    found = [parsed(each) for each in payloads]
    assert found == by_json(monkeypatch, lambda: [parsed(each) for each in payloads])
    assert found == all_parsed(payloads)
    assert found.count(None) not in (0, len(found))


@pytest.mark.parametrize("seed", a_few_of(8))
def test_columns_and_verdicts_are_the_same_without_msgspec(seed, monkeypatch):
    tree, payloads = written(seed)
    found = read_objects(tree_of(tree), payloads)
    other = by_json(monkeypatch, lambda: read_objects(tree_of(tree), payloads))
    assert repr(plain(found.column)) == repr(plain(other.column))
    assert found.is_bad.tolist() == other.is_bad.tolist()


def test_hostile_texts_are_the_same_by_both(monkeypatch):
    texts = [
        b"-0",
        b"[-0 ,-0.0,1e-0]",
        b"9" * 700,
        b"9" * 5000,
        b"18446744073709551616",
        b"NaN",
        b"-Infinity",
        b"1e400",
        b"0.1000000000000000055511151231257827",
    ]
    texts += [*HOSTILE, b"\xef\xbb\xbf1", b'"\\ud800"', b'{"a":1,"a":2}', b'"\xed\xa0\x80"', b"1\0", b"\x0c1"]
    payloads = [whole % each for each in texts for whole in (b"%s", b'["%s"]', b'{"a":%s}', b" %s ")]
    found = [parsed(each) for each in payloads]
    assert found == by_json(monkeypatch, lambda: [parsed(each) for each in payloads])
    assert found == all_parsed(payloads)
    assert found == [each for payload in payloads for each in all_parsed([payload])]
    assert [parsed(each) for each in (b"[-0]", b"7")] == all_parsed([b"[-0]", b"7"])


def test_a_zero_has_its_sign_wherever_its_payload_ends():
    payloads = [b"-0", b"1", b"-0 ", b"[2]", b"\t-0", None, b"-0"]
    values, bad = parse_all(pa.array(payloads, pa.binary()), keeps_text=False)
    assert values == [b"-0", 1, b"-0", [2], b"-0", None, b"-0"]
    assert bad == []


def test_numbers_keep_their_text():
    assert parse.parse(b"[1.50,1e400,-0,NaN,-0.0,12]") == [b"1.50", b"1e400", b"-0", b"NaN", b"-0.0", 12]
    assert parse.parse(b"9" * 5000) == b"9" * 5000
    assert math.isnan(float(parse.parse(b"NaN")))


def test_numbers_are_floats_where_no_text_is_kept():
    payload = b"[1.50,1e400,-0,-Infinity,-0.0,12]"
    found = parse.parse(payload, keeps_text=False)
    assert repr(found) == "[1.5, b'1e400', b'-0', -inf, -0.0, 12]"


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"\\\\":[', b'["]\\"]",'])
def test_more_brackets_than_the_most_are_refused(opening):
    closing = b"".join({91: b"]", 123: b"}"}[each] for each in reversed(opening) if each in b"[{")
    nested = len(closing)
    levels = MAX_DEPTH // nested
    payload = opening * levels + b"1" + closing * levels
    parse.parse(payload)
    assert not is_too_deep(payload)
    deeper = b"[" + payload + b"]"
    assert is_too_deep(deeper)
    with pytest.raises(ValueError, match="more than 1000 brackets"):
        parse.parse(deeper)


def test_json_is_written_with_the_numbers_as_they_were():
    text = '{"a":[1.50,"NaN \\\\ \\"NaN",NaN,-0,null,true],"é":"1.5"}'
    assert text_of(parse.parse(text.replace(",", " , ").encode())) == text
    assert json.loads(text_of(parse.parse(b'["\\ud800"]'))) == ["\ud800"]
    deep = b"[" * MAX_DEPTH + b"1.0" + b"]" * MAX_DEPTH
    assert text_of(parse.parse(deep)) == deep.decode()


def test_without_msgspec_json_parses():
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from pulsar_spark.values.json import parse\n"
        "assert parse.msgspec is None and 'msgspec' not in repr(parse._USUAL)\n"
        "print(parse.parse(b'[1.50]'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[b'1.50']\n"


def test_malformed_json_costs_one_reader(monkeypatch):
    """The standard library takes microseconds to refuse each, and a producer may send millions."""

    def never(payload, keeps_text):
        raise AssertionError(payload)

    monkeypatch.setattr(parse, "_parse_unusual", never)
    payloads = [b"{", b'{"a":1', b"{}}", b"[1,]", b"nan", b"", b"{'a':1}", b'["\\u00f6",']
    for some in (payloads, [*payloads, b"-1"]):
        values, bad = parse_all(pa.array(some, pa.binary()), keeps_text=False)
        assert bad == list(range(len(payloads)))
        assert values[len(payloads) :] == [-1] * (len(some) - len(payloads))


def test_a_repeated_refusal_costs_one_call(monkeypatch):
    calls = []
    usual = parse._parse_usual

    def counted(payload, *, keeps_text):
        calls.append(payload)
        return usual(payload, keeps_text=keeps_text)

    monkeypatch.setattr(parse, "_parse_usual", counted)
    values, bad = parse_all(pa.array([b"\0", b"1", None, b"{}}"] * 500, pa.binary()), keeps_text=False)
    assert values == [None, 1, None, None] * 500
    assert bad == [row for row in range(2000) if row % 4 in (0, 3)]
    assert len(calls) == 2 + 500
