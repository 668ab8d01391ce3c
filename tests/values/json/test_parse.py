"""Both libraries give the same objects, and refuse the same payloads."""

import json
import math
import subprocess
import sys

import pytest

from pulsar_spark.values.json import parse
from pulsar_spark.values.json.parse import MAX_DEPTH, is_too_deep, text_of
from tests.values.json_payloads import HOSTILE, Maker, broken


def parsed(payload):
    try:
        return repr(parse.parse(payload))
    except ValueError:
        return None


def by_json(monkeypatch, payloads):
    with monkeypatch.context() as patch:
        patch.setattr(parse, "_parse_usual", parse._parse_by_json)
        return [parsed(each) for each in payloads]


@pytest.mark.parametrize("seed", range(8))
def test_msgspec_and_json_give_the_same(seed, monkeypatch):
    maker = Maker(seed)
    tree = maker.record()
    payloads = [maker.payload(tree) for _ in range(300)]
    payloads += [broken(maker.random, each, payloads[0]) for each in payloads]
    found = [parsed(each) for each in payloads]
    assert found == by_json(monkeypatch, payloads)
    assert found.count(None) not in (0, len(found))


def test_hostile_texts_are_the_same_by_both(monkeypatch):
    texts = [
        b"-0",
        b"[-0 ,-0.0,1e-0]",
        b"9" * 700,
        b"9" * 5000,
        b"18446744073709551616",
        b"NaN",
        b"-Infinity",
    ]
    texts += [*HOSTILE, b"\xef\xbb\xbf1", b'"\\ud800"', b'{"a":1,"a":2}', b'"\xed\xa0\x80"', b"1\0", b"\x0c1"]
    payloads = [whole % each for each in texts for whole in (b"%s", b'["%s"]', b'{"a":%s}')]
    found = [parsed(each) for each in payloads]
    assert found == by_json(monkeypatch, payloads)


def test_numbers_keep_their_text():
    assert parse.parse(b"[1.50,1e400,-0,NaN,-0.0,12]") == [b"1.50", b"1e400", b"-0", b"NaN", b"-0.0", 12]
    assert parse.parse(b"9" * 5000) == b"9" * 5000
    assert math.isnan(float(parse.parse(b"NaN")))


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
        "assert parse.msgspec is None and parse._parse_usual is parse._parse_by_json\n"
        "print(parse.parse(b'[1.50]'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[b'1.50']\n"
