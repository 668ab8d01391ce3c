import json
import random
import re
from fractions import Fraction

import pytest

from pulsar_spark.values.json.scan import (
    END,
    NUMBER,
    BadJsonError,
    read_name,
    scaled,
    skip_space,
    skip_value,
)
from tests.values.json_payloads import HOSTILE, Maker, broken


def is_json(text):
    """Whether all of a text is one value."""
    text += END
    try:
        return skip_space(text, skip_value(text, skip_space(text, 0))) == len(text) - 1
    except BadJsonError:
        return False


def is_json_of_python(text):
    try:
        json.loads(text, parse_int=str)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("seed", range(10))
def test_values_are_skipped_exactly_if_json_loads_takes_them(seed):
    maker = Maker(seed)
    tree = maker.record()
    pick = maker.random
    verdicts = set()
    for _ in range(300):
        payload = maker.payload(tree)
        if pick.random() < 0.5:
            payload = broken(pick, payload, payload)
        text = payload.decode("utf-8", "replace")
        try:
            expected = is_json_of_python(text)
        except RecursionError:
            continue
        assert is_json(text) == expected, text
        verdicts.add(expected)
    assert verdicts == {True, False}


def test_each_hostile_text_gets_the_verdict_of_json_loads():
    for part in HOSTILE:
        text = part.decode("utf-8", "replace")
        for whole in (text, f'["{text}"]', f'{{"a":{text}}}', f"[{text},{text}]"):
            try:
                expected = is_json_of_python(whole)
            except RecursionError:
                continue
            assert is_json(whole) == expected, whole


def test_depth_costs_no_stack():
    assert is_json("[" * 1_000_000 + "]" * 1_000_000)
    assert is_json('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert not is_json("[" * 1_000_000)


def test_names_may_have_escapes_and_space_around_the_colon():
    for text in ('"ab":1', '"ab" :\n 1', '"\\u0061b":1'):
        name, at = read_name(text + END, 0)
        assert (name, text[at]) == ("ab", "1")
    for text in ("ab:1", '"ab"1', '"ab', '"a\nb":1', '"\\x":1', ""):
        with pytest.raises(BadJsonError):
            read_name(text + END, 0)


def random_number(pick):
    whole = pick.choice(("0", str(pick.randrange(10**6)), str(pick.randrange(10**25))))
    fraction = pick.choice(("", ".0", f".{pick.randrange(10**8):08}", "." + "0" * 20 + "1"))
    exponent = pick.choice(("", "", f"e{pick.randrange(-30, 30)}", "E+2", "e-0"))
    return pick.choice(("", "-")) + whole + fraction + exponent


def test_scaled_numbers_are_those_of_fractions():
    pick = random.Random(5)
    seen = [0, 0, 0]
    for _ in range(20_000):
        text, scale, digits = random_number(pick), pick.choice((0, 2, 6)), pick.choice((5, 19, 38))
        exact = Fraction(text) * 10**scale
        for is_cut in (False, True):
            found = scaled(NUMBER.fullmatch(text), scale, digits, is_cut=is_cut)
            fits = abs(exact) < 10**digits and (is_cut or exact.denominator == 1)
            if found is None:
                assert not fits, text
            else:
                assert fits, text
                assert found == exact.__floor__(), text
            seen[is_cut + (found is None)] += 1
    assert min(seen) > 1_000


@pytest.mark.parametrize(
    ("text", "is_cut", "expected"),
    [
        ("1e9999999999", False, None),
        ("1e99999999999999", True, None),
        ("0e99999999999999", False, 0),
        ("1e-99999999999999", False, None),
        ("1e-99999999999999", True, 0),
        ("-1e-99999999999999", True, -1),
        ("1" * 1_000_000, False, None),
        ("1" + "0" * 1_000_000 + "e-1000000", False, 1),
    ],
)
def test_scaled_numbers_cost_no_more_than_their_text(text, is_cut, expected):
    number = NUMBER.fullmatch(text)
    assert isinstance(number, re.Match)
    assert scaled(number, 0, 19, is_cut=is_cut) == expected
