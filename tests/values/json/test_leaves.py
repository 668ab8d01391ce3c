"""Numbers of any size and precision, exactly."""

import random
import re
from fractions import Fraction

import pytest

from pulsar_spark.values.json.leaves import NUMBER, scaled


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
