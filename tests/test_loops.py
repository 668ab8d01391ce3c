import pytest

from tests.loops import for_each, for_seeds


def test_all_cases_run_and_a_failure_says_which_it_is():
    ran = []

    @for_each("a", [1, 2])
    @for_each(("b", "c"), ((b, b + 1) for b in (3, 5)))
    def cases(a, b, c):
        ran.append((a, b, c))
        assert ran != [(1, 3, 4), (1, 5, 6), (2, 3, 4), (2, 5, 6)]

    with pytest.raises(AssertionError, match=r"with {'a': 2}") as caught:
        cases()
    assert "with {'b': 5, 'c': 6}" in str(caught.value.__cause__)
    assert len(ran) == 4


def test_a_few_seeds_run_in_each_run_and_all_with_the_long_tests():
    ran = []

    @for_seeds(5, 2)
    def cases(seed, fixture):
        ran.append((seed, fixture))

    (mark,) = cases.pytestmark
    few, long = mark.args[1]
    assert long.marks[0].name == "long"
    for share in (few, *long.values):
        cases(share=share, fixture="f")
    assert ran == [(seed, "f") for seed in range(5)]
